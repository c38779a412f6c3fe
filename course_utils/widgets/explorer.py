"""`explore`: sliders bound to a function of the page, and what it returns beside them."""

import html

import anywidget
import ipywidgets
import traitlets
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.widgets.attention_grid import AttentionGrid
from course_utils.widgets.drive import Driver
from course_utils.widgets.still import StillMixin
from course_utils.widgets.view import HERE, script

ROOM = 84  # pixels that an error needs; kept below the controls, so that it covers nothing but the result
ROW = 22  # pixels of a bar or a line of text


def explore(function, **controls):
    """Show what `function` returns while its arguments are changed by hand.

    Each keyword names an argument of `function` and says which values it may take:

    - `(min, max)` or `(min, max, step)`: a slider, of whole numbers if all are whole;
    - a list of choices: a menu;
    - True or False: a tick box; a string: a text box;
    - any ipywidget with a `value`.

    It starts at the argument's default if the function has one, else at the first value. What is
    returned picks the view: a 2-D array an AttentionGrid (weights if all its numbers lie between 0 and
    1, else scores); a dict of names and numbers, or a list of numbers, bars; a `plots.picture(...)`
    itself; a string or a number, text. An error in `function` is shown in words, and the next good
    value recovers. ValueError for a control that is none of these or that `function` has no argument for.
    """
    return Explorer(function, controls)


class ErrorLine(anywidget.AnyWidget):
    """The line in which an error is told; its script also keeps the sliders' keys for them in Notebook 7."""

    _esm = script("error_line")
    _css = HERE / "style.css"
    error = traitlets.Unicode("").tag(sync=True)


class Explorer(StillMixin, ipywidgets.VBox):
    """The box of controls and result that `explore` returns."""

    def __init__(self, function, controls):
        self._text, self._grid = ipywidgets.HTML(), None
        self._error, self._holder = ErrorLine(), ipywidgets.VBox(layout=ipywidgets.Layout(min_height=f"{ROOM}px"))
        self._height, self._reach, self._last = 0, 0.0, None
        self.driver = Driver(function, controls, self._show, self._complain)
        super().__init__([*self.controls.values(), self._error, self._holder])
        self.driver.update()
        self._first_repr = f"explore({self.driver.name}: {self.driver.listed()})"
        self._first = self._last

    @property
    def controls(self):
        """The controls by the name of the argument they drive."""
        return self.driver.controls

    @property
    def error(self):
        """The sentence about what went wrong, "" while all is well."""
        return self._error.error

    def _complain(self, sentence):
        self._error.error = sentence
        (self._holder.add_class if sentence else self._holder.remove_class)("pl-stale")

    def _show(self, result):
        result = _plain(result)
        if getattr(result, "ndim", 0) == 2:
            self._show_grid(result)
        else:
            self._text.value = self._words(result)
            self._place(self._text)
            self._keep_height(_height(result))
        self._last = result

    def _show_grid(self, values):
        scores = values.size and (values.min() < 0 or values.max() > 1)
        kind = "scores" if scores or (self._grid and self._grid.kind == "scores") else "weights"
        if kind == "scores":  # the colours stay comparable while a slider moves
            self._reach = max(self._reach, plots.score_limit(values, values == -float("inf")))
        limit = self._reach or None
        if self._grid is None or (self._grid.kind, *self._grid.shape) != (kind, *values.shape):
            rows, columns = (range(n) for n in values.shape)
            self._grid = AttentionGrid(values, rows, columns, kind=kind, limit=limit)
        else:
            self._grid.show_value(values, limit=limit)
        self._place(self._grid)

    def _words(self, result):
        if isinstance(result, plots.Picture):
            return result._repr_html_()
        if isinstance(result, dict):
            self._reach = max(self._reach, *map(abs, result.values()), 1e-12)
            return _bars_html(result, 1.0 if self._reach <= 1 else self._reach)
        return f'<pre style="white-space:pre-wrap;font-size:1.1em">{html.escape(result)}</pre>'

    def _place(self, widget):
        if self._holder.children != (widget,):
            self._holder.children = (widget,)

    def _keep_height(self, height):
        """The page below must not jump while a slider moves: the result's room grows, and never shrinks."""
        if height > self._height:
            self._height = height
            self._text.layout.min_height = f"{height}px"

    def __repr__(self):
        return self._first_repr

    def still_html(self):
        """A picture of the first result, with the controls' first values in words above it."""
        words = f"<p><i>Controls, when the notebook runs: {html.escape(self._first_repr[8:-1])}</i></p>"
        return words + _still(self._first, self.driver.name)


def move_all_controls():
    """Move every control of every view in this kernel through its range; RuntimeError if one then shows an error.

    The check of the notebooks ends with it: a callback that a later cell broke shows itself.
    """
    registry = getattr(ipywidgets.widgets.widget, "_instances", None)
    instances = ipywidgets.Widget.widgets if registry is None else registry  # ipywidgets 7, 8
    for view in [w for w in list(instances.values()) if getattr(w, "driver", None)]:
        for name, control, values in view.driver.extremes():
            first = control.value
            for value in [*values, first]:
                control.value = value
                if view.error:
                    raise RuntimeError(f"{view}: {name}={value!r} gives {view.error}")


def _height(result):
    """The pixels that a picture, bars or a text need at least."""
    if isinstance(result, plots.Picture):
        return result.height + 10
    return ROW * (len(result) if isinstance(result, dict) else result.count("\n") + 1)


def _plain(result):
    """What a function returned, as a Picture, a string, a dict of numbers or a 2-D array; else ValueError."""
    if isinstance(result, (plots.Picture, str)):
        return result
    if isinstance(result, Figure):
        return plots.picture(result, alt="A figure drawn by the function on this page.")
    if result is None:
        raise ValueError("the function returned nothing; end it with `return ...`")
    if isinstance(result, dict):
        values = plots.to_numpy(list(result.values()))
        result = {str(name): float(value) for name, value in zip(result, _numbers(values, "a dict"), strict=True)}
        if not result:
            raise ValueError("the function returned an empty dict")
        return result
    values = _numbers(plots.to_numpy(result), type(result).__name__)
    if values.ndim == 0:
        return f"{values:.4g}" if values.dtype.kind == "f" else str(values)
    if values.ndim == 1:
        return {str(i): float(value) for i, value in enumerate(values)}
    if values.ndim > 2:
        raise ValueError(
            f"an array of shape {values.shape} has no view; pick a part of two axes, such as weights[0, 0]"
        )
    return values


def _numbers(values, kind):
    if values.dtype.kind not in "biuf":
        raise ValueError(f"the function returned {kind}, which no view shows")
    if values.dtype.kind == "f" and (values != values).any():
        raise ValueError("the result holds NaN, which is not a number: look for 0/0 or a row of -inf")
    return values


def _bars_html(named, reach):
    """Bars as a table: quick to renew, and read by a screen reader as it stands."""
    rows = []
    for name, value in named.items():
        width = 100 * min(abs(value) / reach, 1)
        color = plots.QUERY if value >= 0 else plots.OTHER
        rows.append(
            f'<tr><th scope="row" style="text-align:right;font-weight:normal;padding:1px 8px">{html.escape(name)}</th>'
            f'<td style="width:320px"><div style="width:{width:.1f}%;height:14px;background:{color}"></div></td>'
            f'<td style="text-align:right;padding:1px 8px;font-variant-numeric:tabular-nums">{value:.2f}</td></tr>'
        )
    return f'<table style="border-collapse:collapse">{"".join(rows)}</table>'


def _still(result, name):
    """HTML with a picture of the result, for a page without a kernel."""
    if isinstance(result, plots.Picture):
        return result._repr_html_()
    if isinstance(result, dict):
        listed = ", ".join(f"{n} {v:.2f}" for n, v in result.items())
        ax = plots.bars(list(result.values()), list(result), axis="value")
        return plots.picture(ax.figure, alt=f"Bars of what {name} returned: {listed}.")._repr_html_()
    if getattr(result, "ndim", 0) == 2:
        rows, columns = (range(n) for n in result.shape)
        scores = result.size and (result.min() < 0 or result.max() > 1)
        return AttentionGrid(result, rows, columns, kind="scores" if scores else "weights").picture()._repr_html_()
    return f"<pre>{html.escape(result or '')}</pre>"
