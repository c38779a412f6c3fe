"""Figures for reading: heat maps, blobs, planes, bars, loss curves; `show` ends each one.

Rows are queries, columns are keys. A mask is boolean, True = may attend. Functions take arrays (NumPy or torch),
never models, and draw on the Axes they are given. Colours and finished pictures are those of style.py.
"""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.patches import FancyBboxPatch, Rectangle

from course_utils.style import (
    ADDED,
    CARD,
    HATCH,
    INK,
    KEY,
    KEY_TEXT,
    MARKED,
    OTHER,
    QUERY,
    SCORES_MAP,
    VALUE,
    WEIGHTS_MAP,
    Picture,
    drawable,
    label,
    picture,
    show,
    to_numpy,
)

__all__ = [
    "ADDED",
    "CARD",
    "HATCH",
    "INK",
    "KEY",
    "KEY_TEXT",
    "MARKED",
    "OTHER",
    "QUERY",
    "SCORES_MAP",
    "VALUE",
    "WEIGHTS_MAP",
    "Picture",
    "drawable",
    "label",
    "picture",
    "show",
    "to_numpy",
    "bars",
    "blobs",
    "checked_grid",
    "heatmap",
    "loss_curve",
    "plane",
    "score_limit",
    "tokens",
]

MAX_NUMBERS = 16  # a grid with more tokens than this has no room for numbers


def _number(value):
    text = f"{value:.2f}"
    return "0.00" if text == "-0.00" else text


def checked_grid(values, queries, keys, mask):
    """Checked arrays for a grid: values (T_q, T_k), and mask of the same shape or None."""
    values = to_numpy(values).astype(float)
    if values.ndim != 2:
        raise ValueError(
            f"A grid needs one number for each query and key, shape (T_q, T_k); this array has shape {values.shape}. "
            "Pick one sentence and one head, such as weights[0, 0]."
        )
    if values.shape != (len(queries), len(keys)):
        raise ValueError(
            f"The grid has shape {values.shape} (rows are queries, columns are keys), "
            f"but there are {len(queries)} queries and {len(keys)} keys. Give one label for each row and column."
        )
    if mask is not None:
        mask = np.broadcast_to(to_numpy(mask), values.shape)
        if mask.dtype != bool:
            raise ValueError(
                f"A mask is boolean, True = may attend; this one holds {mask.dtype}. Compare, as in mask > 0."
            )
    return values, mask


def _axes(ax, columns, rows, cell=0.62):
    if ax is None:
        _, ax = plt.subplots(figsize=(min(2.4 + cell * columns, 11), min(1.7 + 0.45 * rows, 9)))
    return ax


def _name_axes(ax, queries, keys, transposed):
    """Ticks and names of a grid. Columns are named above, as in a table, upright when the words are long."""
    across, down = (queries, keys) if transposed else (keys, queries)
    ax.xaxis.set_ticks_position("top")
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0)
    inches = ax.get_position().width * ax.figure.get_figwidth() * 0.8 / max(len(across), 1)
    long = max(map(len, across), default=0) * 0.085 > inches
    ax.set_xticklabels(across, rotation=45 if long else 0, ha="left" if long else "center", rotation_mode="anchor")
    ax.set_yticklabels(down, rotation=0)
    for tick in [*ax.get_xticklabels(), *ax.get_yticklabels()]:
        if tick.get_text().strip("␣") in MARKED:
            tick.set_fontweight("bold")
    names = ("key: the token looked at", "query: the token that looks")
    ax.set_xlabel(names[transposed], color=(KEY_TEXT, QUERY)[transposed], labelpad=8)
    ax.set_ylabel(names[not transposed], color=(KEY_TEXT, QUERY)[not transposed], labelpad=8)
    if len(down) < 5:  # too few rows for the long name to stand beside
        ax.set_ylabel(("query: looks", "key: looked at")[transposed], rotation=0, ha="right", va="center")


def heatmap(weights, queries, keys, mask=None, ax=None, kind="weights", limit=None, layout="rows"):
    """A grid of attention: row i is query i from top to bottom, column j is key j. Returns the Axes.

    `weights` is (T_q, T_k). Colours run from 0 to 1 for kind="weights", and from -limit to limit for
    kind="scores" (limit: the largest visible absolute value unless given, so that it can stay fixed
    over a slider's range). Cells that `mask` (True = may attend) or -inf rule out are hatched, without
    a number. Numbers are shown up to 16 tokens. layout="article" puts the queries across the top
    (`weights` stays (T_q, T_k)). ValueError for wrong shapes.
    """
    values, mask = checked_grid(weights, queries, keys, mask)
    queries, keys = [label(t) for t in queries], [label(t) for t in keys]
    turned = _turned(layout)
    if kind not in ("weights", "scores"):
        raise ValueError(f"kind is 'weights' (from 0 to 1) or 'scores' (any number); it is {kind!r}.")
    hidden = np.isneginf(values) if mask is None else ~mask | np.isneginf(values)
    if kind == "scores" and limit is None:
        limit = score_limit(values, hidden)
    low, high = (0.0, 1.0) if kind == "weights" else (-limit, limit)
    if turned:
        values, hidden = values.T, hidden.T
    ax = _axes(ax, values.shape[1], values.shape[0])
    numbers = max(values.shape) <= MAX_NUMBERS
    sns.heatmap(
        np.where(hidden, 0.0, values),  # -inf would take the colours of all other cells away
        mask=hidden,
        vmin=low,
        vmax=high,
        cmap=WEIGHTS_MAP if kind == "weights" else SCORES_MAP,
        annot=np.vectorize(_number, otypes=[object])(values) if numbers and values.size else False,
        fmt="",
        annot_kws={"fontsize": 10},
        linewidths=1 if numbers else 0,
        linecolor=CARD,
        cbar=not numbers,
        xticklabels=queries if turned else keys,
        yticklabels=keys if turned else queries,
        ax=ax,
    )
    for i, j in zip(*np.nonzero(hidden), strict=True):
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor=HATCH, edgecolor="#9A9A9A", hatch="///", linewidth=0))
    _name_axes(ax, queries, keys, transposed=turned)
    return ax


def score_limit(values, hidden):
    """The largest absolute score that is not hidden: the end of both sides of the colour scale."""
    visible = np.abs(values[~hidden])
    return float(visible.max()) if visible.size and visible.max() > 0 else 1.0


def _turned(layout):
    if layout not in ("rows", "article"):
        raise ValueError(f"layout is 'rows' or 'article' (queries across the top); it is {layout!r}.")
    return layout == "article"


def blobs(weights, queries, keys, mask=None, ax=None, layout="rows", color=QUERY):
    """The same grid as round blobs whose area is the weight, as in the article. Returns the Axes.

    layout="rows": queries down the side, as everywhere in this course. layout="article": queries
    across the top, so that a *column* adds up to 1. `weights` is always (T_q, T_k).
    """
    values, mask = checked_grid(weights, queries, keys, mask)
    queries, keys = [label(t) for t in queries], [label(t) for t in keys]
    turned = _turned(layout)
    rows, columns = (len(keys), len(queries)) if turned else (len(queries), len(keys))
    ax = _axes(ax, columns, rows, cell=0.5)
    biggest = max(float(np.nanmax(np.abs(values), initial=0.0)), 1e-12)
    for (i, j), value in np.ndenumerate(values):
        x, y = (i, j) if turned else (j, i)
        if mask is not None and not mask[i, j]:
            ax.add_patch(Rectangle((x, y), 1, 1, facecolor=HATCH, edgecolor="#9A9A9A", hatch="///", linewidth=0))
            continue
        radius = 0.46 * np.sqrt(abs(value) / biggest)
        ax.add_patch(plt.Circle((x + 0.5, y + 0.5), radius, facecolor=color if value >= 0 else OTHER, alpha=0.85))
        if max(rows, columns) <= 6:
            inside = radius > 0.28
            ax.text(
                x + (0.5 if inside else 0.97),
                y + (0.5 if inside else 0.95),
                _number(value),
                ha="center" if inside else "right",
                va="center" if inside else "bottom",
                color="white" if inside else INK,
                fontsize=10,
            )
    ax.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal")
    ax.set_xticks(np.arange(columns) + 0.5)
    ax.set_yticks(np.arange(rows) + 0.5)
    ax.spines[:].set_visible(False)
    ax.hlines(range(rows + 1), 0, columns, color="#E4E1DA", lw=0.8, zorder=0)
    ax.vlines(range(columns + 1), 0, rows, color="#E4E1DA", lw=0.8, zorder=0)
    _name_axes(ax, queries, keys, transposed=turned)
    return ax


def plane(points, words, ax=None, colors=None, arrows=False, names=("first number", "second number")):
    """Words as points (or arrows from the origin) in two dimensions. Returns the Axes.

    `points` is (n, 2) with one word each; `colors` one colour or one a word. The two axes have one scale,
    so that angles and lengths look as they are. Labels step aside where two would overlap.
    """
    points = to_numpy(points).astype(float)
    if points.ndim != 2 or points.shape != (len(words), 2):
        raise ValueError(f"A plane needs two numbers for each of the {len(words)} words; this array is {points.shape}.")
    if ax is None:
        _, ax = plt.subplots(figsize=(6.0, 5.0))
    colors = [colors or QUERY] * len(words) if colors is None or isinstance(colors, str) else list(colors)
    ax.axhline(0, color="#D5D1C8", lw=1, zorder=0)
    ax.axvline(0, color="#D5D1C8", lw=1, zorder=0)
    for (x, y), color in zip(points, colors, strict=True):
        if arrows:
            ax.annotate(
                "",
                (x, y),
                (0, 0),
                arrowprops={"arrowstyle": "-|>", "color": color, "lw": 2, "shrinkA": 0, "shrinkB": 0},
            )
        else:
            ax.plot(x, y, "o", color=color, ms=7)
    low, high = np.minimum(points.min(0, initial=0), 0), np.maximum(points.max(0, initial=0), 0)
    pad = 0.16 * max(*(high - low), 1e-9)
    ax.set(xlim=(low[0] - pad, high[0] + pad * 1.8), ylim=(low[1] - pad, high[1] + pad), aspect="equal")
    _place_labels(ax, points, [label(w) for w in words], colors)
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    return ax


def _place_labels(ax, points, words, colors):
    """Put each word beside its point: the first of eight places that no other word or point takes."""
    if not any(words):
        return
    figure = ax.figure
    figure.canvas.draw()
    taken = [np.array([p, p]) for p in ax.transData.transform(points)] if len(points) else []
    offsets = [(7, 4, "left", "bottom"), (7, -4, "left", "top"), (-7, 4, "right", "bottom"), (-7, -4, "right", "top")]
    offsets += [
        (0, 8, "center", "bottom"),
        (0, -8, "center", "top"),
        (14, 16, "left", "bottom"),
        (14, -16, "left", "top"),
    ]
    renderer = figure.canvas.get_renderer()
    for point, word, color in zip(points, words, colors, strict=True):
        for dx, dy, ha, va in offsets:
            text = ax.annotate(
                word, point, (dx, dy), textcoords="offset points", ha=ha, va=va, color=INK if color == KEY else color
            )
            box = text.get_window_extent(renderer).get_points()
            if all((box[1] <= t[0]).any() or (box[0] >= t[1]).any() for t in taken) or (dx, dy) == offsets[-1][:2]:
                taken.append(box)
                break
            text.remove()


def bars(values, names, ax=None, color=QUERY, highlight=None, limit=None, title=None, axis="probability"):
    """One horizontal bar for each name, largest value where you put it; the number stands at its end. Returns the Axes.

    `highlight` is a name drawn in KEY's orange; `limit` fixes the axis (1 for probabilities over a slider).
    """
    values = to_numpy(values).astype(float)
    if values.ndim != 1 or len(values) != len(names):
        raise ValueError(f"Bars need one number for each of the {len(names)} names; this array is {values.shape}.")
    if ax is None:
        _, ax = plt.subplots(figsize=(5.6, 0.9 + 0.34 * len(names)))
    chosen = [KEY if highlight is not None and n == highlight else color for n in names]
    places = np.arange(len(names))
    ax.barh(places, values, color=chosen, height=0.72)
    reach = limit or max(float(np.nanmax(np.abs(values), initial=0.0)), 1e-12)
    for place, value in zip(places, values, strict=True):
        ax.text(max(value, 0) + 0.015 * reach, place, _number(value), va="center", fontsize=10)
    low = 0 if np.nanmin(values, initial=0.0) >= 0 else -1.05 * reach
    ax.set(xlim=(low, reach * 1.14), ylim=(len(names) - 0.4, -0.6))
    ax.set_yticks(places, [label(n) for n in names])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(axis)
    if title:
        ax.set_title(title)
    return ax


def tokens(pieces, ids=None, ax=None, selected=None):
    """Tokens in a row as tinted boxes, ids below; long rows wrap. Spaces are shown as ␣. Returns the Axes."""
    tints = ["#D6E8F3", "#FBE8C4", "#D2EEE4", "#F4E1EB", "#E6E6E6"]
    line, per_line = [], 86
    x = y = 0
    for k, piece in enumerate(pieces):
        wide = max(len(label(piece)), len(str(ids[k])) * 0.85 if ids is not None else 0) + 1.0
        if x and x + wide > per_line:
            x, y = 0, y + 1
        line.append((x, y, wide, piece))
        x += wide + 0.5
    if ax is None:
        _, ax = plt.subplots(figsize=(9.8, 0.35 + 0.72 * (y + 1)))
    for k, (x, y, wide, piece) in enumerate(line):
        edge = INK if k == selected else "none"
        ax.add_patch(
            FancyBboxPatch(
                (x, y - 0.25),
                wide,
                0.5,
                boxstyle="round,pad=0,rounding_size=0.25",
                fc=tints[k % 5],
                ec=edge,
                mutation_aspect=0.1,
            )
        )
        ax.text(x + wide / 2, y, label(piece), ha="center", va="center", fontsize=11)
        if ids is not None:
            ax.text(x + wide / 2, y + 0.42, str(ids[k]), ha="center", va="center", fontsize=10, color="#5A5A5A")
    ax.set(xlim=(-0.3, per_line + 1), ylim=((line[-1][1] if line else 0) + 0.7, -0.45))
    ax.axis("off")
    return ax


def loss_curve(steps, train_loss, val_loss=None, floors=None, ax=None, mark=None):
    """Loss in nats a token against the training step, with floors no model of a kind can pass. Returns the Axes.

    `floors` maps a name to nats: horizontal lines. `mark` is a step at which a point is drawn.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(7.2, 4.0))
    ax.plot(steps, train_loss, color=OTHER, lw=1.5, label="training")
    if val_loss is not None and len(val_loss):
        ax.plot(steps, val_loss, color=QUERY, lw=2.2, label="held-out")
    _floors(ax, floors or {})
    if mark is not None and len(steps):
        nearest = int(np.argmin(np.abs(np.asarray(steps) - mark)))
        y = (val_loss if val_loss is not None and len(val_loss) else train_loss)[nearest]
        ax.plot(steps[nearest], y, "o", color=ADDED, ms=10, zorder=5)
    ax.set_xlabel("training step")
    ax.set_ylabel("loss, nats a token")
    ax.legend(frameon=False, loc="upper right")
    return ax


def _floors(ax, floors):
    """Dashed lines with their names in the right margin, moved apart where two would overlap."""
    low, high = ax.get_ylim()
    low = min([low, *floors.values()])
    ax.set_ylim(low - 0.03 * (high - low), high)
    gap, last = 0.055 * (high - low), -np.inf
    for name, nats in sorted(floors.items(), key=lambda item: item[1]):
        ax.axhline(nats, color=KEY_TEXT, lw=1, ls="--")
        last = max(nats, last + gap)
        ax.annotate(
            f"{nats:.2f}  {name}",
            xy=(1, nats),
            xytext=(1.03, last),
            xycoords=ax.get_yaxis_transform(),
            textcoords=ax.get_yaxis_transform(),
            va="center",
            fontsize=10,
            color=KEY_TEXT,
            arrowprops={
                "arrowstyle": "-",
                "color": KEY_TEXT,
                "lw": 0.6,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )
