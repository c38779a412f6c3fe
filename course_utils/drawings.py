"""Our own drawings of the paper's architecture (its figure 1 shows the same parts)."""

import functools

import matplotlib.pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from course_utils.plots import ADDED, INK, KEY, KEY_TEXT, OTHER, QUERY, VALUE

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
ENCODER = ["tokens", "embedding", "positions", "encoder attention", "add and norm", "feed-forward", "add and norm"]
DECODER = ["tokens", "embedding", "positions", "decoder attention", "add and norm"]
DECODER += ["cross-attention", "add and norm", "feed-forward", "add and norm", "logits", "softmax"]
LEFT, RIGHT, HALF, STEP = 2.2, 7.0, 1.6, 0.92  # where the towers stand, half a box's width, from one box to the next
SIDES, ENDS = (-0.3, 9.4), (-1.1, 11 * STEP + 0.2)
TOWERS = {"encoder": (LEFT, ENCODER), "decoder": (RIGHT, DECODER)}
WHOLE_ENCODER, WHOLE_DECODER = ({(stack, k) for k in range(len(names))} for stack, (_, names) in TOWERS.items())
ABSENT = {  # what each family lacks, as (stack, place from below)
    "encoder and decoder": set(),
    "encoder-only": WHOLE_DECODER,
    "decoder-only": WHOLE_ENCODER | {("decoder", 5), ("decoder", 6)},  # without a memory nothing to cross to
}
FAMILIES = tuple(ABSENT)


def architecture(ax=None):
    """The encoder-decoder of the paper; each box names the notebook that builds it. Returns the Axes.

    Read it from bottom to top. The left stack reads the source sentence, the right one writes the
    target; both are repeated N times (6 in the paper). One arrow joins them: keys and values for
    cross-attention.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(8.6, 8.6))
    return _towers(ax, notes={name: notebook for name, (_, notebook) in PARTS.items()})


def shapes(B, T_src, T, d_model, n_heads, d_ff, vocab_size, family="encoder and decoder"):
    """The same drawing with the shape of what each arrow carries, for B pairs of T_src and T tokens. Returns the Axes.

    Attention boxes hold the shape of their weights (B, n_heads, T_q, T_k), feed-forward boxes that of their hidden
    numbers. `family` is one of FAMILIES: boxes that it lacks are dashed and empty. ValueError for another.

    The boxes are pixels (plots.picture with dpi=100 suits them), and the next call for this family writes on the same
    Axes, so that a slider can redraw the shapes quickly.
    """
    if family not in FAMILIES:
        raise ValueError(f"There are three families. Choose {', '.join(FAMILIES)} (it is {family!r}).")
    ax = _boxes(family)
    ax.figure.set_layout_engine("none")  # each savefig leaves the style's own behind
    for text in [*ax.texts]:
        text.remove()
    for stack, (x, names) in TOWERS.items():
        T_q = {"encoder": T_src, "decoder": T}[stack]
        inside = {"cross-attention": (B, n_heads, T, T_src), "feed-forward": (B, T_q, d_ff)}
        inside[f"{stack} attention"] = (B, n_heads, T_q, T_q)
        carried = {"embedding": (B, T_q), "softmax": (B, T_q, vocab_size)}  # by the arrow into this box
        for k, name in enumerate(names):
            if (stack, k) not in ABSENT[family]:
                _note(ax, x, k * STEP, inside.get(name, ""))
                if k:
                    shape = carried.get(name, (B, T_q, d_model))
                    ax.text(x - 0.12, (k - 0.5) * STEP, shape, ha="right", va="center", fontsize=10)
    if ("encoder", 0) not in ABSENT[family]:
        ax.text(LEFT + 0.1, 7 * STEP - 0.1, (B, T_src, d_model), va="top", fontsize=10, color=KEY_TEXT)
    return ax


@functools.cache
def _boxes(family):
    """An Axes with the boxes and arrows of a family as pixels, without a word that changes."""
    drawn, ax = (Figure(figsize=(8.6, 7.6), dpi=100, layout="none").add_axes((0, 0, 1, 1)) for _ in range(2))
    _towers(drawn, {}, ABSENT[family])
    canvas = FigureCanvasAgg(drawn.figure)
    canvas.draw()
    ax.imshow(canvas.buffer_rgba(), extent=(*SIDES, *ENDS), aspect="auto", interpolation="nearest")
    ax.axis("off")
    return ax


def _towers(ax, notes, absent=frozenset()):
    """Both stacks with `notes` in the boxes; for (stack, k) in `absent` an empty, dashed one."""
    for stack, (x, names) in TOWERS.items():
        below = None
        for k, name in enumerate(names):
            if (stack, k) in absent:
                _frame(ax, x, k * STEP, HALF, 0.26, 0.12)
                continue
            _box(ax, x, k * STEP, PARTS[name][0], _tint(name))
            _note(ax, x, k * STEP, notes.get(name, ""))
            if below is not None:
                _arrow(ax, (x, below * STEP + 0.26), (x, k * STEP - 0.26))
            if name == "add and norm":  # the residual connection goes around the part below
                start, y, side = (k - 1) * STEP - 0.37, k * STEP, x + HALF + 0.12
                ax.plot([x, side, side], [start, start, y], color=ADDED, lw=1.6)
                _arrow(ax, (side, y), (x + HALF, y), ADDED)
            below = k
    for stack, first, last, side in (("encoder", 3, 6, -1), ("decoder", 3, 8, 1)):
        x, middle = TOWERS[stack][0], (first + last) / 2 * STEP
        _frame(ax, x, middle, HALF + 0.22, (last - first) / 2 * STEP + 0.42, 0.2)
        if (stack, first) not in absent:
            ax.text(x + side * 2.1, middle, f"{stack}\nN times", ha="center", va="center", rotation=90 * side)
    if not absent:
        middle, y = (LEFT + RIGHT) / 2, 5 * STEP
        ax.plot([LEFT, LEFT, middle, middle], [6 * STEP + 0.26, 7 * STEP, 7 * STEP, y], color=KEY, lw=2)
        _arrow(ax, (middle, y), (RIGHT - HALF - 0.05, y), KEY)
        ax.text(middle - 0.1, 7 * STEP + 0.1, "keys and values", ha="right", va="bottom", color=KEY_TEXT)
    elif ("encoder", 0) not in absent:
        _arrow(ax, (LEFT, 6 * STEP + 0.26), (LEFT, 7 * STEP))
    if ("encoder", 0) not in absent:
        ax.text(LEFT, -0.62, "source, such as English", ha="center", va="top", style="italic")
    if ("decoder", 0) not in absent:
        written = "the text so far" if absent else "target so far, such as German"
        ax.text(RIGHT, -0.62, written, ha="center", va="top", style="italic")
        ax.text(RIGHT, 11 * STEP - 0.32, "the next target token", ha="center", va="bottom", style="italic")
    ax.set(xlim=SIDES, ylim=ENDS)
    ax.axis("off")
    return ax


def _tint(name):
    if "attention" in name:
        return QUERY
    return {"feed-forward": VALUE, "add and norm": ADDED}.get(name, OTHER)


def _box(ax, x, y, words, color):
    rounded = "round,pad=0,rounding_size=0.12"
    low, wide = (x - HALF, y - 0.26), 2 * HALF
    ax.add_patch(FancyBboxPatch(low, wide, 0.52, boxstyle=rounded, fc=color + "26", ec=color, lw=1.4))
    ax.text(x - HALF + 0.1, y, words, ha="left", va="center", fontsize=10.5, color=INK)


def _note(ax, x, y, words):
    ax.text(x + HALF - 0.08, y, words, ha="right", va="center", fontsize=10, color="#5A5A5A")


def _arrow(ax, start, end, color=OTHER):
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.6, "shrinkA": 0, "shrinkB": 0})


def _frame(ax, x, y, half_width, half_height, corner):
    low, rounded = (x - half_width, y - half_height), f"round,pad=0,rounding_size={corner}"
    box = FancyBboxPatch(
        low, 2 * half_width, 2 * half_height, boxstyle=rounded, fc="none", ec="#B9B5AB", lw=1.2, ls="--"
    )
    ax.add_patch(box)
