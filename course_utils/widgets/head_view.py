"""HeadView: all heads of a model as small grids, and one of them as lines between two sentences."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import traitlets
from matplotlib.collections import LineCollection

from course_utils import plots
from course_utils.widgets.text_box import sendable
from course_utils.widgets.view import View, floats, script

SMALL = 24  # cells on a side of a small grid; longer sentences are pooled: each cell the largest of its part
FAINT, LEAST = 0.1, 0.005  # weights below these have no line: without a chosen token, with one
MOST_LINES = 200
ROOM = 30  # tokens that have room for a label each


class HeadView(View):
    """Many heads side by side, layers down and heads across; the chosen one as lines, queries left, keys right.

    HeadView(weights, queries) takes weights (n_layers, n_heads, T_q, T_k), or (n_heads, T_q, T_k) of one
    layer, or a list with one such array for each layer, as `introspect.attention_maps` returns for one
    sentence. `keys` names the other sentence of cross-attention. HeadView(function, queries, step=(0, 9))
    shows what `function(step)` returns, under a slider. ValueError if they are no weights of this shape.

    Click a small grid to choose its head. Hover a token to see its lines, click to hold it, Esc or a
    second click lets go; arrow keys move. The opacity of a line is its weight.
    """

    _esm = script("head_view")
    query_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    key_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    small = traitlets.Bytes(b"").tag(sync=True)  # the small grids, 0 to 255
    small_shape = traitlets.List([0, 0, 0, 0]).tag(sync=True)  # n_layers, n_heads, rows, columns
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    held = traitlets.List([]).tag(sync=True)  # ["query", i] or ["key", j], or nothing
    hover = traitlets.List([]).tag(sync=True)
    lines = traitlets.Bytes(b"").tag(sync=True)  # (query, key, weight) of each line
    given = traitlets.Bytes(b"").tag(sync=True)  # the chosen token's weight for each token of the other side
    detail = traitlets.Unicode("").tag(sync=True)
    colors = traitlets.Bytes(b"").tag(sync=True)
    marked = traitlets.List(list(plots.MARKED)).tag(sync=True)
    room = traitlets.Int(ROOM).tag(sync=True)

    def __init__(self, first, queries, keys=None, *, layer=0, head=0, **controls):
        queries = [sendable(str(q)) for q in queries]
        keys = queries if keys is None else [sendable(str(k)) for k in keys]
        table = (mpl.colormaps[plots.WEIGHTS_MAP](np.linspace(0, 1, 256))[:, :3] * 255).round().astype(np.uint8)
        self._weights = np.zeros((1, 1, len(queries), len(keys)))
        names = {"query_names": queries, "key_names": keys, "colors": table.tobytes()}
        super().__init__(first, controls, layer=layer, head=head, **names)
        self.observe(self._tell, names=["layer", "head", "held", "hover"])

    def show_value(self, value):
        """Show other weights in place of the present ones; ValueError if they do not fit the sentences."""
        weights = _checked(value, len(self.query_names), len(self.key_names))
        _check_place("layer", self.layer, weights.shape[0])
        _check_place("head", self.head, weights.shape[1])
        self._weights = weights
        pooled = _pooled(_pooled(weights, 2), 3)
        with self.hold_sync():
            self.small_shape = list(pooled.shape)
            self.small = (255 * np.clip(pooled, 0, 1)).round().astype(np.uint8).tobytes()
            self._tell()

    def _tell(self, _change=None):
        """The lines, the row of weights and the sentence for what is chosen now."""
        _check_place("layer", self.layer, self._weights.shape[0])
        _check_place("head", self.head, self._weights.shape[1])
        grid, chosen = self._weights[self.layer, self.head], self.held or self.hover
        seen = grid
        if chosen:
            side, index = chosen
            row = grid[index] if side == "query" else grid[:, index]
            seen = np.zeros_like(grid)  # the lines of this token alone
            seen[(index, slice(None)) if side == "query" else (slice(None), index)] = row
        places = np.argwhere(seen >= (LEAST if chosen else FAINT))
        values = seen[tuple(places.T)]
        strongest = np.argsort(-values, kind="stable")[:MOST_LINES][::-1]  # drawn last, so on top
        with self.hold_sync():
            self.lines = floats(np.column_stack([places, values])[strongest])
            self.given = floats(row) if chosen else b""
            self.detail = self._describe(chosen, row) if chosen else self._overview(len(places))

    def _overview(self, count):
        which = f"weights of {FAINT:.2f} and more" if count <= MOST_LINES else f"the {MOST_LINES} largest weights"
        return f"Layer {self.layer}, head {self.head}. Largest: {self._largest()}. Lines: {which}."

    def _describe(self, chosen, row):
        where = f"Layer {self.layer}, head {self.head}"
        side, index = chosen
        own, other = (self.query_names, self.key_names)[:: 1 if side == "query" else -1]
        best = [f"{_seen(other[i])} {row[i]:.2f}" for i in np.argsort(-row, kind="stable")[:5] if row[i] >= LEAST]
        verb = "gives" if side == "query" else "gets from"
        return f"{where}: {side} {_seen(own[index])} {verb} {', '.join(best) or 'nothing'}."

    def _largest(self):
        grid = self._weights[self.layer, self.head]
        most = np.sort(np.argpartition(-grid, min(3, grid.size) - 1, axis=None)[:3])  # 512 x 512 are not sorted for 3
        cells = [np.unravel_index(i, grid.shape) for i in sorted(most, key=lambda i: -grid.flat[i])]
        names = [f"{_seen(self.query_names[i])} to {_seen(self.key_names[j])} {grid[i, j]:.2f}" for i, j in cells]
        return ", ".join(names)

    def figure(self):
        """The small grids and the chosen head as a matplotlib figure."""
        n_layers, n_heads, rows, columns = self.small_shape
        tokens = max(len(self.query_names), len(self.key_names))
        high = min(1.2 + 0.26 * tokens, 9)
        fig, (left, right) = plt.subplots(1, 2, figsize=(10, high), width_ratios=[2, 3])
        small = np.frombuffer(self.small, np.uint8).reshape(self.small_shape) / 255
        mosaic = np.full((n_layers, n_heads, rows + 1, columns + 1), np.nan)  # a gap after each grid
        mosaic[:, :, :rows, :columns] = small
        mosaic = mosaic.transpose(0, 2, 1, 3).reshape(n_layers * (rows + 1), -1)
        corners = (0, n_heads, n_layers, 0)
        left.imshow(mosaic, cmap=plots.WEIGHTS_MAP, vmin=0, vmax=1, extent=corners, interpolation="nearest")
        left.set_aspect("equal" if max(rows, columns) < 2 * min(rows, columns) else "auto", anchor="N")
        frame = plt.Rectangle((self.head, self.layer), columns / (columns + 1), rows / (rows + 1), fill=False)
        frame.set(edgecolor="#D55E00", linewidth=2.5)
        left.add_patch(frame)
        left.set(xlabel="head", ylabel="layer")
        left.set_xticks(np.arange(n_heads) + 0.5, range(n_heads))
        left.set_yticks(np.arange(n_layers) + 0.5, range(n_layers))
        left.tick_params(length=0)
        left.spines[:].set_visible(False)
        self._draw_lines(right, tokens)
        return fig

    def _draw_lines(self, ax, tokens):
        lines = np.frombuffer(self.lines, np.float32).reshape(-1, 3)
        color = mpl.colors.to_rgb(plots.QUERY)
        ends = [[(0, query), (1, key)] for query, key, _ in lines]
        shades = [(*color, min(max(weight, 0.06), 1)) for *_, weight in lines]
        ax.add_collection(LineCollection(ends, colors=shades, linewidths=2))
        each = -(-tokens // ROOM)  # with many tokens only every n-th is named
        chosen, given = self.held or self.hover, np.frombuffer(self.given, np.float32)
        for x, side, names in ((-0.03, "query", self.query_names), (1.03, "key", self.key_names)):
            for i, name in enumerate(names):
                this = chosen == [side, i]
                near = chosen and chosen[0] == side and abs(i - chosen[1]) < each
                if (i % each or near) and not this:
                    continue
                tint = 0.85 * min(given[i], 1) if chosen and chosen[0] != side else 0
                bold = "bold" if this or name.strip() in plots.MARKED else "normal"
                ink = plots.QUERY if this else plots.INK
                ha = "right" if x < 0 else "left"
                text = ax.text(x, i, plots.label(name), ha=ha, va="center", fontsize=10, fontweight=bold, color=ink)
                if tint > 0.01:
                    text.set_color("white" if tint > 0.5 else ink)
                    text.set_bbox({"facecolor": (*color, tint), "edgecolor": "none", "pad": 2})
        ax.text(0, -1.1 * each, "query: looks", ha="right", va="center", color=plots.QUERY)
        ax.text(1, -1.1 * each, "key: looked at", ha="left", va="center", color=plots.KEY_TEXT)
        ax.set(xlim=(-0.45, 1.45), ylim=(tokens - 0.4, -1.6 * each), title=f"layer {self.layer}, head {self.head}")
        ax.axis("off")

    def alt(self):
        """One sentence with the shape, the chosen head and its largest weights."""
        n_layers, n_heads = self.small_shape[:2]
        size = f"{len(self.query_names)} queries by {len(self.key_names)} keys"
        held = f" {self.detail}" if self.held else f" In layer {self.layer}, head {self.head}: {self._largest()}."
        layers, heads = (f"{n} {word}{'s'[: n != 1]}" for n, word in ((n_layers, "layer"), (n_heads, "head")))
        return f"Attention weights, {layers} of {heads}, {size}.{held}"

    def __repr__(self):
        n_layers, n_heads = self.small_shape[:2]
        return (
            f"HeadView({n_layers} x {n_heads} heads, {len(self.query_names)} queries x {len(self.key_names)} keys, "
            f"layer={self.layer}, head={self.head})"
        )


def _seen(token):
    return plots.label(token).replace(r"\$", "$")


def _pooled(weights, axis):
    """At most SMALL cells along this axis, each the largest of its part: one bright cell in 512 stays visible."""
    size = weights.shape[axis]
    if size <= SMALL:
        return weights
    return np.maximum.reduceat(weights, np.arange(SMALL) * size // SMALL, axis=axis)


def _check_place(name, number, count):
    if not 0 <= number < count:
        raise ValueError(f"There is no {name} {number}: there are {count}. Give a number from 0 to {count - 1}.")


def _checked(value, T_q, T_k):
    """Weights (n_layers, n_heads, T_q, T_k), checked."""
    if isinstance(value, (list, tuple)) and len(value) and hasattr(value[0], "shape"):
        shapes = [tuple(layer.shape) for layer in value]
        if len(set(shapes)) > 1:
            raise ValueError(
                f"The layers differ in shape: {shapes}. Give the heads of one kind, such as the self-attention of the "
                "encoder, in one view."
            )
        value = np.stack([plots.to_numpy(layer) for layer in value])
    weights = plots.to_numpy(value)
    given = weights.shape
    if weights.ndim == 5 and weights.shape[1] == 1:  # a batch of one sentence, as attention_maps gives it
        weights = weights[:, 0]
    if weights.ndim == 3:
        weights = weights[None]
    if weights.ndim != 4 or weights.shape[2:] != (T_q, T_k) or not weights.size:
        raise ValueError(
            f"Heads need weights of shape (n_layers, n_heads, {T_q}, {T_k}), for {T_q} queries and {T_k} keys, or "
            f"(n_heads, {T_q}, {T_k}). Take one sentence of a batch, such as weights[:, 0] (here the shape is "
            f"{given})."
        )
    if weights.dtype.kind not in "biuf" or not np.isfinite(weights).all():
        raise ValueError("The weights hold NaN or infinity: look for 0/0, or for scores where weights should be.")
    low, high = float(weights.min()), float(weights.max())
    if low < -1e-4 or high > 1.001:
        raise ValueError(
            f"A weight is a number from 0 to 1, and these run from {low:.2f} to {high:.2f}. Give the weights after "
            "softmax, not the scores."
        )
    return weights
