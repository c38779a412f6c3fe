"""`explore`: sliders bound to a function of the page, and what it returns beside them."""

import html
import inspect
import numbers

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.widgets.still import StillMixin


def explore(function, **controls):
    """Show what `function` returns while its arguments are changed by hand.

    Each keyword names an argument of `function` and says which values it may take:

    - `(min, max)` or `(min, max, step)`: a slider, of whole numbers if all are whole;
    - a list of choices: a menu;
    - True or False: a tick box; a string: a text box;
    - any ipywidget with a `value`.

    It starts at the argument's default if the function has one, else at the first value. What is
    returned decides what is shown: a `plots.picture(...)` as it is; a dict of names and numbers, or
    a list of numbers, as bars; a 2-D array as a heat map; a string or a number as text. An error
    in `function` is shown in words, and the next good value recovers. ValueError for a control that is none
    of these or that `function` has no argument for.
    """
    return Explorer(function, controls)


class Explorer(StillMixin, ipywidgets.VBox):
    """The box of controls and result that `explore` returns."""

    def __init__(self, function, controls):
        self._function, self._name = function, getattr(function, "__name__", "function")
        defaults = _defaults(function, controls)
        self.controls = {name: _control(name, spec, defaults.get(name)) for name, spec in controls.items()}
        self._result, self._height = ipywidgets.HTML(), 0
        super().__init__([*self.controls.values(), self._result])
        for control in self.controls.values():
            control.observe(self._update, names="value")
        self._update()
        self._first_repr, self._first_html = self._describe(), self._result.value

    def _values(self):
        return {name: control.value for name, control in self.controls.items()}

    def _update(self, _change=None):
        figures = set(plt.get_fignums())
        try:
            result = self._function(**self._values())
            self._result.value = _as_html(result, self._name)
            self._keep_height(getattr(result, "height", 0))
        except Exception as error:  # the reader's function: say what happened, keep the view alive
            self._result.value = (
                f'<div role="alert" style="border-left:4px solid #D55E00;padding:6px 12px">'
                f"<b>{html.escape(self._name)}</b> stopped with {type(error).__name__}: {html.escape(str(error))}<br>"
                f"Values: {html.escape(_listed(self._values()))}. Move a control or mend the function.</div>"
            )
        finally:
            for left_open in set(plt.get_fignums()) - figures:
                plt.close(left_open)

    def _keep_height(self, height):
        """The page below must not jump while a slider moves: the result's room grows, and never shrinks."""
        if height > self._height:
            self._height = height
            self._result.layout.min_height = f"{height + 10}px"

    def _describe(self):
        return f"explore({self._name}: {_listed(self._values())})"

    def __repr__(self):
        return self._first_repr

    def still_html(self):
        """The first result, with the controls' first values in words above it."""
        return (
            f"<p><i>Controls, when the notebook runs: {html.escape(self._first_repr[8:-1])}</i></p>{self._first_html}"
        )


def move_all_controls():
    """Move every control of every view in this kernel through its range; RuntimeError if one then shows an error.

    The check of the notebooks ends with it: a callback that a later cell broke shows itself.
    """
    registry = getattr(ipywidgets.widgets.widget, "_instances", None)
    instances = ipywidgets.Widget.widgets if registry is None else registry  # ipywidgets 7, 8
    for view in [w for w in list(instances.values()) if isinstance(w, Explorer)]:
        for name, control in view.controls.items():
            first = control.value
            for value in [*_extremes(control), first]:
                control.value = value
                if 'role="alert"' in view._result.value:
                    raise RuntimeError(f"{view}: {name}={value!r} gives {view._result.value}")


def _extremes(control):
    if hasattr(control, "max"):
        return control.min, control.max
    if hasattr(control, "options"):
        return control.options
    return () if isinstance(control.value, str) else (not control.value,)


def _listed(values):
    return ", ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items()
    )


def _defaults(function, controls):
    parameters = inspect.signature(function).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in controls:
        if name not in parameters and not takes_any:
            raise ValueError(
                f"There is a control for {name!r}, but {getattr(function, '__name__', 'the function')} has no argument "
                f"of that name. It has {', '.join(parameters) or 'none'}."
            )
    return {name: p.default for name, p in parameters.items() if p.default is not p.empty}


def _control(name, spec, default):
    """The ipywidget for one control of `explore`."""
    look = {"description": name, "style": {"description_width": "initial"}}
    if isinstance(spec, ipywidgets.Widget):
        if not hasattr(spec, "value"):
            raise ValueError(f"The control for {name!r} is a {type(spec).__name__}, which has no value to read.")
        return spec
    if isinstance(spec, bool):
        return ipywidgets.Checkbox(spec if default is None else bool(default), indent=False, **look)
    if isinstance(spec, str):
        wide = ipywidgets.Layout(width="95%")
        return ipywidgets.Text(spec if default is None else str(default), layout=wide, **look)
    if isinstance(spec, list) and spec:
        return ipywidgets.Dropdown(options=spec, value=default if default in spec else spec[0], **look)
    if isinstance(spec, tuple) and len(spec) in (2, 3) and all(isinstance(x, numbers.Real) for x in spec):
        low, high, *step = spec
        if not low < high or (step and step[0] <= 0):
            raise ValueError(f"The slider for {name!r} needs min < max and a step above 0; it has {spec}.")
        start = low if default is None else min(max(default, low), high)
        wide = ipywidgets.Layout(width="min(480px, 95%)")
        if all(isinstance(x, numbers.Integral) for x in (*spec, start)):
            return ipywidgets.IntSlider(start, low, high, *step, layout=wide, **look)
        fine = step[0] if step else (high - low) / 100
        return ipywidgets.FloatSlider(start, min=low, max=high, step=fine, layout=wide, **look)
    raise ValueError(
        f"The control for {name!r} is {spec!r}. Give (min, max), (min, max, step), a list of choices, True or False, "
        "a string, or an ipywidget."
    )


def _as_html(result, name):
    """HTML for whatever the reader's function returned; see `explore`."""
    if isinstance(result, plots.Picture):
        return result._repr_html_()
    if isinstance(result, Figure):
        return plots.picture(result, alt=f"Figure drawn by the function {name}.")._repr_html_()
    if isinstance(result, str):
        return f'<pre style="white-space:pre-wrap">{html.escape(result)}</pre>'
    if isinstance(result, dict):
        names, values = list(map(str, result)), plots.to_numpy(list(result.values()))
        return _bars(values, names, name)
    if result is None:
        raise ValueError("the function returned nothing; end it with `return ...`")
    values = plots.to_numpy(result)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"the function returned {type(result).__name__}, which no view shows")
    if values.ndim == 0:
        number = f"{values:.4g}" if values.dtype.kind == "f" else str(values)
        return f'<pre style="font-size:1.2em">{number}</pre>'
    if np.isnan(values.astype(float)).any():
        raise ValueError("the result holds NaN, which is not a number: look for 0/0 or a row of -inf")
    if values.ndim == 1:
        return _bars(values, [str(i) for i in range(len(values))], name)
    rows, columns = ([str(i) for i in range(n)] for n in values.shape[:2])
    weights = values.min(initial=0) >= 0 and values.max(initial=0) <= 1
    ax = plots.heatmap(values, rows, columns, kind="weights" if weights else "scores")
    return plots.picture(ax.figure, alt=f"Heat map of the {values.shape} array that {name} returned.")._repr_html_()


def _bars(values, names, name):
    """Bars with the values in the alt text too, since they are few."""
    ax = plots.bars(values, names, axis="value", limit=1 if 0 <= values.min() and values.max() <= 1 else None)
    listed = ", ".join(f"{n} {v:.2f}" for n, v in zip(names, values, strict=True))
    return plots.picture(ax.figure, alt=f"Bars of what {name} returned: {listed}.")._repr_html_()
