"""AttentionGrid: every query against every key, as numbers or as the article's blobs."""

import matplotlib as mpl
import numpy as np
import traitlets

from course_utils import plots
from course_utils.widgets.view import View, floats, script

MOST_TERMS = 8  # products q_i k_i written out; more would not be read


class AttentionGrid(View):
    """A grid of weights or scores to look into: rows are queries, columns keys.

    AttentionGrid(values, queries, keys) shows a (T_q, T_k) array; AttentionGrid(function, queries,
    keys, beta=(0.0, 9.0)) shows what `function(beta)` returns, under a slider: an array, or a pair
    (array, mask). `mask` is boolean, True = may attend: other cells are hatched. With `Q` (T_q, d_k)
    and `K` (T_k, d_k) a cell tells how its score is made (scaled=False: without the division by
    sqrt(d_k)). kind="scores" for numbers before softmax; `limit` then fixes the colours.

    Hover a cell to look at it, click to hold it, Esc or a second click lets go; arrow keys move.
    """

    _esm = script("attention_grid")
    values = traitlets.Bytes(b"").tag(sync=True)
    hidden = traitlets.Bytes(b"").tag(sync=True)
    shape = traitlets.List([0, 0]).tag(sync=True)
    query_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    key_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    kind = traitlets.Enum(["weights", "scores"], "weights").tag(sync=True)
    limit = traitlets.Float(1.0).tag(sync=True)
    layout_name = traitlets.Enum(["rows", "article"], "rows").tag(sync=True)
    look = traitlets.Enum(["numbers", "blobs"], "numbers").tag(sync=True)
    cell = traitlets.List([]).tag(sync=True)  # [query, key] that is held, or nothing
    hover = traitlets.List([]).tag(sync=True)
    detail = traitlets.Unicode("").tag(sync=True)
    colors = traitlets.Bytes(b"").tag(sync=True)
    marked = traitlets.List(list(plots.MARKED)).tag(sync=True)

    def __init__(
        self,
        first,
        queries,
        keys=None,
        *,
        mask=None,
        Q=None,
        K=None,
        scaled=True,
        kind="weights",
        limit=None,
        look="numbers",
        layout="rows",
        **controls,
    ):
        self._mask, self._limit, self._scaled = mask, limit, scaled
        self._made_of = (
            None if Q is None or K is None else (plots.to_numpy(Q).astype(float), plots.to_numpy(K).astype(float))
        )
        queries = [str(q) for q in queries]
        keys = queries if keys is None else [str(k) for k in keys]
        name = plots.WEIGHTS_MAP if kind == "weights" else plots.SCORES_MAP
        table = (mpl.colormaps[name](np.linspace(0, 1, 256))[:, :3] * 255).round().astype(np.uint8)
        self._grid = np.zeros((len(queries), len(keys)))
        self._hidden = np.zeros(self._grid.shape, dtype=bool)
        super().__init__(
            first,
            controls,
            query_names=queries,
            key_names=keys,
            kind=kind,
            look=look,
            layout_name=layout,
            colors=table.tobytes(),
        )
        self.observe(self._tell, names=["cell", "hover"])

    def show_value(self, value, limit=None):
        """Show an array of (T_q, T_k), or a pair (array, mask), in place of the present one.

        `limit` is the largest score that the colours reach. ValueError for any other shape.
        """
        self._limit = self._limit if limit is None else limit
        if isinstance(value, tuple) and len(value) == 2:
            value, self._mask = value
        grid, mask = plots.checked_grid(value, self.query_names, self.key_names, self._mask)
        if np.isnan(grid).any():
            raise ValueError("the grid holds NaN, which is not a number: look for 0/0 or a row of -inf.")
        hidden = np.isneginf(grid) if mask is None else ~mask | np.isneginf(grid)
        if self.kind == "scores":
            self.limit = plots.score_limit(grid, hidden) if self._limit is None else float(self._limit)
        self._grid, self._hidden = grid, hidden
        with self.hold_sync():
            self.shape = list(grid.shape)
            self.hidden = hidden.astype(np.uint8).tobytes()
            self.values = floats(np.where(hidden, 0, grid))
        self._tell()

    def _tell(self, _change=None):
        """How the cell that is held, or else hovered, comes about."""
        where = self.cell or self.hover
        self.detail = self._explain(*where) if where else ""

    def _explain(self, i, j):
        query, key = self.query_names[i], self.key_names[j]
        if self._hidden[i, j]:
            return f"query {query}, key {key}: masked. This query may not look at this key, so its weight is 0."
        value = self._grid[i, j]
        lines = [f"query {query}, key {key}: {self.kind[:-1]} {value:.3f}"]
        if self._made_of:
            q, k = self._made_of[0][i], self._made_of[1][j]
            terms = [f"{a:.2f}·{b:.2f}" for a, b in zip(q, k, strict=True)]
            more = f" + {len(terms) - MOST_TERMS} more" if len(terms) > MOST_TERMS else ""
            divisor = np.sqrt(len(q)) if self._scaled else 1.0
            score = q @ k / divisor
            lines.append(f"q · k = {' + '.join(terms[:MOST_TERMS])}{more} = {q @ k:.3f}")
            if self._scaled:
                lines.append(f"divided by √d_k = √{len(q)}: score {score:.3f}")
            if self.kind == "weights":
                scores = (q @ self._made_of[1].T / divisor)[~self._hidden[i]]
                total = np.exp(scores - scores.max()).sum()
                mine = np.exp(score - scores.max())
                lines.append(
                    f"softmax: e^({score:.2f} - {scores.max():.2f}) = {mine:.3f}, "
                    f"of the row's total {total:.3f}: {mine / total:.3f}"
                )
        elif self.kind == "weights":
            lines.append(f"The row of {query} adds up to {self._grid[i][~self._hidden[i]].sum():.3f}.")
        return "\n".join(lines)

    def figure(self):
        """The grid as a matplotlib figure, in the look and layout chosen."""
        mask = ~self._hidden
        if self.look == "blobs":
            ax = plots.blobs(
                np.where(mask, self._grid, 0), self.query_names, self.key_names, mask=mask, layout=self.layout_name
            )
        else:
            ax = plots.heatmap(
                np.where(mask, self._grid, 0),
                self.query_names,
                self.key_names,
                mask=mask,
                kind=self.kind,
                limit=self.limit,
                layout=self.layout_name,
            )
        return ax.figure

    def alt(self):
        """One sentence with the largest cells, for a reader who does not see the grid."""
        shown = np.where(self._hidden, -np.inf, self._grid)
        best = np.argsort(-shown, axis=None)[: min(3, (~self._hidden).sum())]
        cells = [np.unravel_index(b, shown.shape) for b in best]
        named = ", ".join(f"{self.query_names[i]} to {self.key_names[j]} {shown[i, j]:.2f}" for i, j in cells)
        return f"Grid of {self.kind}, {shown.shape[0]} queries by {shown.shape[1]} keys. Largest: {named}."

    def __repr__(self):
        return f"AttentionGrid({len(self.query_names)} queries x {len(self.key_names)} keys, {self.kind})"
