"""The live display of `train.fit`.

It is a bar, the time left, the latest losses and a growing loss curve. In a notebook the text and the picture
are two displays, updated in place; elsewhere a plain line is printed now and then. The picture costs far more than the
text, so while the model trains it is coarse, and drawn again only if all display then stays within `SHARE` of the time.
plots.py draws, and is imported when the first picture is due.
"""

import sys
from time import perf_counter

TEXT_EVERY = 0.25  # seconds between two updates of the text
LINE_EVERY = 10.0  # seconds between two printed lines outside a notebook
SHARE = 0.04  # of the training time: the most that the display may take
COARSE, FINE = 80, 130  # dots per inch of a picture while training, and of the last


def in_notebook():
    """True in a Jupyter kernel (also Colab's and VS Code's), where a display can be updated in place."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython.get_ipython() if ipython else None, "kernel")


def bar(step, steps, width=30):
    """A text bar.

    >>> bar(3, 4, width=8)
    '[######..]'
    """
    full = width * step // steps
    return "[" + "#" * full + "." * (width - full) + "]"


def duration(seconds):
    """Seconds in words.

    >>> duration(7.4), duration(200)
    ('7 s', '3 min 20 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def losses(history):
    """The losses of the last evaluation, in words; an empty text before the first."""
    if not history.step:
        return ""
    held_out = f", held-out {history.val_loss[-1]:.3f}" if history.val_loss else ""
    return f"training loss {history.train_loss[-1]:.3f}{held_out} nats"


def alt_text(history, steps, floors):
    """The loss curve in one sentence, for a reader who cannot see it."""
    curves = {"training": history.train_loss, "held-out": history.val_loss}
    curves = "; ".join(
        f"{name} loss from {loss[0]:.2f} to {loss[-1]:.2f} nats" for name, loss in curves.items() if loss
    )
    lines = ", ".join(f"{name} {nats:.2f}" for name, nats in (floors or {}).items())
    floors = f" Floors: {lines}." if lines else ""
    return f"Loss curve, steps {history.step[0]} to {history.step[-1]} of {steps}: {curves}.{floors}"


class Live:
    """The display of one run. `update` may be called at each step: it returns at once when nothing is due."""

    def __init__(self, history, step, steps, floors):
        self.history, self.steps, self.floors = history, steps, floors
        self.first_step, self.started = step, perf_counter()
        self.spent = self.cost = 0.0  # seconds: for all display so far, for the last picture
        self.drawn = None  # the last evaluation in the picture
        self.notebook = in_notebook()
        self.last = -1.0 if self.notebook else self.started  # when the text was last shown
        self.text = self.picture = None  # handles of the two displays

    def update(self, step):
        """Show step `step` if it is time to."""
        now = perf_counter()
        if now - self.last < (TEXT_EVERY if self.notebook else LINE_EVERY):
            return
        self.last = now
        elapsed = now - self.started
        self._say(step, f"about {duration((self.steps - step) * elapsed / (step - self.first_step))} left")
        evaluated = self.history.step and self.history.step[-1] != self.drawn
        if self.notebook and evaluated and self.spent + self.cost <= SHARE * elapsed:
            self._draw(COARSE)
        self.spent += perf_counter() - now

    def finish(self, step):
        """The last state: the bar as far as it came, and the whole curve."""
        if self.notebook:
            self._say(step, f"{duration(self.history.seconds)} of training")
            if self.history.step:
                self._draw(FINE)

    def _say(self, step, time):
        now = losses(self.history)
        line = f"{bar(step, self.steps)} step {step} of {self.steps}, {time}" + (f"; {now}" if now else "")
        if self.notebook:
            self.text = _put(self.text, {"text/plain": line}, raw=True)
        else:
            print(line)

    def _draw(self, dpi):
        started = perf_counter()
        from course_utils import plots

        history = self.history
        ax = plots.loss_curve(history.step, history.train_loss, history.val_loss or None, self.floors)
        ax.set_xlim(0, self.steps)  # the curve grows to the right, and the picture keeps its size
        alt = alt_text(history, self.steps, self.floors)
        self.picture = _put(self.picture, plots.picture(ax.figure, alt=alt, dpi=dpi))
        self.drawn, self.cost = history.step[-1], perf_counter() - started


def _put(handle, content, **options):
    """Display `content`, or put it where `handle` displayed its last; returns the handle."""
    from IPython.display import display

    if handle is None:
        return display(content, display_id=True, **options)
    handle.update(content, **options)
    return handle
