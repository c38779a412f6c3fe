"""The one visual language of the course: colours, the light card, labels of tokens, and finished pictures.

The same thing has the same colour everywhere (QUERY, KEY, VALUE, ADDED, OTHER, from the Okabe-Ito palette, told
apart by colour-blind eyes too). Weights use one sequential map from 0 to 1, scores one diverging map around 0.
Figures and views read their colours here.
"""

import base64
import html
import io
from functools import cache

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager

QUERY, KEY, VALUE, ADDED, OTHER = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#7A7A7A"
WEIGHTS_MAP, SCORES_MAP = "mako_r", "RdBu_r"
KEY_TEXT = "#8A5F00"  # KEY darkened, for letters on the light card
CARD, INK, HATCH = "#FCFBF8", "#222222", "#DDDDDD"
MARKED = ("pencil", "lead")  # the two words of the article's example stand out in every grid

mpl.rcParams.update(
    {
        "figure.facecolor": CARD,
        "axes.facecolor": CARD,
        "savefig.facecolor": CARD,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "font.size": 11,
        "axes.titlesize": 12.5,
        "axes.titlelocation": "left",
        "axes.titlepad": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": mpl.cycler(color=[QUERY, KEY, VALUE, ADDED, OTHER]),
        "figure.figsize": (6.4, 4.0),
        "figure.constrained_layout.use": True,
        "figure.constrained_layout.w_pad": 0.12,
        "figure.constrained_layout.h_pad": 0.1,
        "hatch.linewidth": 0.6,
    }
)


class Picture:
    """A finished figure: pixels and the sentence that says what they show.

    Jupyter shows the pixels with the sentence as alt text; plain text shows the sentence. It is
    HTML with the pixels inside, since JupyterLab drops the alt text of a bare PNG output.
    """

    def __init__(self, png, alt, width, height):
        self.png, self.alt, self.width, self.height = png, alt, width, height  # CSS pixels

    def __repr__(self):
        return self.alt

    def _repr_html_(self):
        data = base64.b64encode(self.png).decode("ascii")
        style = "max-width:100%;height:auto;border-radius:6px"
        return (
            f'<img src="data:image/png;base64,{data}" alt="{html.escape(self.alt)}" '
            f'width="{self.width}" height="{self.height}" style="{style}">'
        )


def picture(fig, alt, dpi=130):
    """Turn a figure into a `Picture` and close it. `alt` is the sentence a reader who cannot see it gets.

    `alt` names what is drawn and what to notice, with numbers taken from the arrays. ValueError if it
    is shorter than 20 characters. A function given to `widgets.explore` returns this.
    """
    if not isinstance(alt, str) or len(alt.strip()) < 20:
        raise ValueError(f"A figure needs a sentence that tells what it shows (20 characters or more): alt is {alt!r}.")
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=dpi, pil_kwargs={"compress_level": 6})
    width, height = (round(inches * 96) for inches in fig.get_size_inches())  # the same size on every screen
    plt.close(fig)
    return Picture(buffer.getvalue(), " ".join(alt.split()), width, height)


def show(fig, alt):
    """End a figure: display it with its alt text and close it. Returns nothing. See `picture`."""
    from IPython.display import display

    display(picture(fig, alt))


def to_numpy(values):
    """An array of any number type from NumPy, lists or torch (also with gradient or on a GPU)."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def label(token):
    """A token as text for an axis: spaces and line breaks visible, `$` not read as mathematics.

    >>> print(label(" lead"), label("a$b"), label(chr(10)))
    ␣lead a\\$b ⏎
    """
    text = str(token)
    inner = text.strip(" ")
    left = len(text) - len(text.lstrip(" ")) if inner else len(text)
    text = "␣" * left + inner + "␣" * (len(text) - left - len(inner))  # a space inside a name stays a space
    marks = {"\n": "⏎", "\t": "⇥", "\r": "␍", "$": r"\$"}
    return drawable("".join(marks.get(c, c) for c in text))


def drawable(text):
    """The text with an empty box for each character that the figures' font lacks, such as most emoji."""
    return "".join(c if ord(c) in _drawn() or c in "\n\t\r" else "□" for c in text)


@cache
def _drawn():
    """The characters of the figures' font; kept, since to list them takes half a millisecond."""
    return frozenset(font_manager.get_font(font_manager.findfont(font_manager.FontProperties())).get_charmap())
