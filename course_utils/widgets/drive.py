"""Controls that drive a function: the part that every view and `explore` share."""

import inspect
import numbers

import ipywidgets
import matplotlib.pyplot as plt


class Driver:
    """Calls `function` with the values of its controls, and again after each move.

    `sink(result)` shows what came back; `complain(sentence)` shows in words what went wrong in either,
    and the next good value recovers. No threads: the last value set is the last one shown.
    """

    def __init__(self, function, controls, sink, complain):
        self.function, self.name = function, getattr(function, "__name__", "function")
        defaults = _defaults(function, controls)
        self.controls = {name: _control(name, spec, defaults.get(name)) for name, spec in controls.items()}
        self._sink, self._complain = sink, complain
        for control in self.controls.values():
            control.observe(self.update, names="value")

    def values(self):
        """The controls' values by argument name."""
        return {name: control.value for name, control in self.controls.items()}

    def listed(self):
        """The values as words: "beta=1, d_k=2"."""
        values = self.values().items()
        return ", ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values
        )

    def update(self, _change=None):
        """Call the function and show what it returns, or the sentence that says why not."""
        figures = set(plt.get_fignums())
        try:
            self._sink(self.function(**self.values()))
        except Exception as error:  # the reader's function: say what happened, keep the view alive
            where = f" (values: {self.listed()})" if self.controls else ""
            what = f"{self.name} stopped with {type(error).__name__}: {str(error).rstrip('.')}"
            self._complain(f"{what}{where}. Move a control or mend the function.")
        else:
            self._complain("")
        finally:
            for left_open in set(plt.get_fignums()) - figures:
                plt.close(left_open)

    def extremes(self):
        """(name, control, its first, last and all listed values) for trying the whole range."""
        for name, control in self.controls.items():
            if hasattr(control, "max"):
                yield name, control, (control.min, control.max)
            elif hasattr(control, "options"):
                yield name, control, control.options
            elif isinstance(control.value, bool):
                yield name, control, (not control.value,)


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
    """The ipywidget for one control; see `explore` for what `spec` may be."""
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
