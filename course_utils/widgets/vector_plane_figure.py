"""The still picture of a VectorPlane, and the colours that the live one shares with it."""

import matplotlib.pyplot as plt
import numpy as np

from course_utils import plots

# role: its line on a light and on a dark page, then its letters on both
ROLES = {
    "query": [plots.QUERY, "#56B4E9", plots.QUERY, "#6BB7E8"],
    "key": [plots.KEY, plots.KEY, plots.KEY_TEXT, plots.KEY],
    "value": [plots.VALUE, "#2BBF94", "#00734F", "#2BBF94"],
    "added": [plots.ADDED, plots.ADDED, "#9C3F74", "#DE93BC"],
    "other": [plots.OTHER, "#A6A6A6", "#555555", "#BDBDBD"],
}


def bar_role(title):
    """Whose colour a group of bars has: weights belong to the query, other numbers to nobody."""
    return "query" if title == "weights" else "other"


def draw(view, places, rows, bars):
    """The view as a matplotlib figure.

    `places` is (n, 2) with NaN for an arrow that is not drawn; `bars` has (title, low, high, numbers) for each
    group, with one number for each name in `rows`.
    """
    count = len(bars)
    fig = plt.figure(figsize=(9.2, 4.7) if count else (5.4, 4.9))
    parts = fig.add_gridspec(max(count, 1), 2 if count else 1, width_ratios=[1.35, 1] if count else None)
    _draw_plane(fig.add_subplot(parts[:, 0]), view, places)
    for k, (title, low, high, numbers) in enumerate(bars):
        ax = fig.add_subplot(parts[k, 1])
        plots.bars(numbers, rows, ax=ax, color=ROLES[bar_role(title)][0], limit=high, axis="", title=title)
        ax.set_xlim(1.05 * low, 1.2 * high)
        ax.set_xticks(sorted({low, 0.0, high}))
        if count == 1:
            ax.set_box_aspect(min(1.1, 0.12 * len(rows)))
    if view.detail and not view.error:
        fig.supxlabel("\n".join(map(plots.label, view.detail.split("\n"))), fontsize=10.5, x=0.03, ha="left")
    return fig


def _draw_plane(ax, view, places):
    shown = [i for i, place in enumerate(places) if np.isfinite(place).all()]
    names = [view.labels[i] for i in shown]
    colors = [ROLES[view.roles[i]][0] for i in shown]
    beside = [""] * len(names) if view.arrows else names  # arrows have their names ahead of their tips
    plots.plane(places[shown], beside, ax=ax, colors=colors, arrows=view.arrows, names=view.axis_names)
    ax.set(xlim=view.area[:2], ylim=view.area[2:])
    ax.grid(view.grid, color="#E8E5DE", lw=0.8)
    ax.set_axisbelow(True)
    for i, name, color in zip(shown, names, colors, strict=True):
        if i in view.moving:
            ax.plot(*places[i], "o", mfc=color + "30", mec=color, ms=17, mew=1.5, clip_on=False)
        if view.arrows:
            ahead = places[i] / (np.hypot(*places[i]) or 1.0) * (18 if i in view.moving else 8)
            side = "left" if ahead[0] > 3 else "right" if ahead[0] < -3 else "center"
            look = {
                "color": ROLES[view.roles[i]][2],
                "ha": side,
                "va": "center" if abs(ahead[1]) < 6 else "baseline",
            }
            ahead[1] -= 8 if ahead[1] < -6 else 0
            ax.annotate(plots.label(name), places[i], ahead, textcoords="offset points", **look)
    for name, x, y in view.directions:
        ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": plots.ADDED, "lw": 1.4, "ls": "--"})
        look = {"color": ROLES["added"][2], "ha": "right" if x > 0 else "left", "style": "italic"}
        ax.annotate(plots.label(name), (x, y), (0, -14), textcoords="offset points", **look)
    if view.against:
        _draw_product(ax, view, places)


def _draw_product(ax, view, places):
    q, k = places[view.moving[0]], places[view.labels.index(view.against)]
    if not q.any() or np.isnan(k).any():
        return
    foot = q * (q @ k) / (q @ q)
    ax.axline((0, 0), tuple(q), color=ROLES[view.roles[view.moving[0]]][0], lw=1, ls="--")
    ax.axline((0, 0), (-q[1], q[0]), color=plots.OTHER, lw=1, ls=":")
    ax.plot(*np.array([k, foot]).T, ":", color=plots.INK, lw=1.4)
    ax.plot(*np.array([foot * 0, foot]).T, color=plots.INK, lw=4, alpha=0.45)
