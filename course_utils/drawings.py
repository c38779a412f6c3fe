"""Our own drawing of the paper's architecture (its figure 1 shows the same parts)."""

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

from course_utils.plots import ADDED, INK, KEY, OTHER, QUERY, VALUE

# What each part is, and the notebook that builds it.
PARTS = {
    "tokens": ("tokens become ids", "01"),
    "embedding": ("embedding", "02"),
    "positions": ("add positions", "09"),
    "encoder attention": ("self-attention", "03-05, 08"),
    "decoder attention": ("masked self-attention", "05, 08"),
    "cross-attention": ("cross-attention", "13"),
    "add and norm": ("add, normalise", "10"),
    "feed-forward": ("feed-forward", "10"),
    "logits": ("linear layer: logits", "07, 10"),
    "softmax": ("softmax: probabilities", "03, 12"),
}


def architecture(ax=None):
    """The encoder-decoder of the paper; each box names the notebook that builds it. Returns the Axes.

    Read it from bottom to top. The left stack reads the source sentence, the right one writes the
    target; both are repeated N times (6 in the paper). One arrow joins them: keys and values for
    cross-attention.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(8.6, 8.6))
    left, right, step = 2.2, 7.0, 0.92
    encoder = ["tokens", "embedding", "positions", "encoder attention", "add and norm", "feed-forward", "add and norm"]
    decoder = ["tokens", "embedding", "positions", "decoder attention", "add and norm"]
    decoder += ["cross-attention", "add and norm", "feed-forward", "add and norm", "logits", "softmax"]
    for x, names in ((left, encoder), (right, decoder)):
        for k, name in enumerate(names):
            _box(ax, x, k * step, *PARTS[name], _tint(name))
            if k:
                _arrow(ax, (x, (k - 1) * step + 0.26), (x, k * step - 0.26))
            if name == "add and norm":  # the residual connection goes around the part below
                below, y, side = (k - 1) * step - 0.37, k * step, x + 1.62
                ax.plot([x, side, side], [below, below, y], color=ADDED, lw=1.6)
                _arrow(ax, (side, y), (x + 1.5, y), ADDED)
    for x, first, last, side, name in ((left, 3, 6, -1, "encoder"), (right, 3, 8, 1, "decoder")):
        _frame(ax, x, first * step - 0.42, last * step + 0.42)
        ax.text(
            x + side * 2.02, (first + last) / 2 * step, f"{name}\nN times", ha="center", va="center", rotation=90 * side
        )
    memory = 5 * step
    ax.plot(
        [left, left, (left + right) / 2, (left + right) / 2],
        [6 * step + 0.26, 7 * step, 7 * step, memory],
        color=KEY,
        lw=2,
    )
    _arrow(ax, ((left + right) / 2, memory), (right - 1.55, memory), KEY)
    ax.text((left + right) / 2 - 0.1, 7 * step + 0.1, "keys and values", ha="right", va="bottom", color="#8A5F00")
    ax.text(left, -0.62, "source, such as English", ha="center", va="top", style="italic")
    ax.text(right, -0.62, "target so far, such as German", ha="center", va="top", style="italic")
    ax.text(right, 11 * step - 0.32, "the next target token", ha="center", va="bottom", style="italic")
    ax.set(xlim=(-0.3, 9.4), ylim=(-1.1, 11 * step + 0.2))
    ax.axis("off")
    return ax


def _tint(name):
    if "attention" in name:
        return QUERY
    return {"feed-forward": VALUE, "add and norm": ADDED}.get(name, OTHER)


def _box(ax, x, y, words, notebook, color):
    ax.add_patch(
        FancyBboxPatch(
            (x - 1.5, y - 0.26), 3.0, 0.52, boxstyle="round,pad=0,rounding_size=0.12", fc=color + "26", ec=color, lw=1.4
        )
    )
    ax.text(x - 1.4, y, words, ha="left", va="center", fontsize=10.5, color=INK)
    ax.text(x + 1.42, y, notebook, ha="right", va="center", fontsize=10, color="#5A5A5A")


def _arrow(ax, start, end, color=OTHER):
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.6, "shrinkA": 0, "shrinkB": 0})


def _frame(ax, x, low, high):
    ax.add_patch(
        FancyBboxPatch(
            (x - 1.72, low),
            3.44,
            high - low,
            boxstyle="round,pad=0,rounding_size=0.2",
            fc="none",
            ec="#B9B5AB",
            lw=1.2,
            ls="--",
        )
    )
