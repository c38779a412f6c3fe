"""What every draggable view shares: its script, its function and controls, its error line, saving."""

import html
import io
from functools import cache
from pathlib import Path

import anywidget
import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import traitlets

from course_utils import plots
from course_utils.widgets.drive import Driver
from course_utils.widgets.still import StillMixin

HERE = Path(__file__).parent


@cache
def script(name):
    """The JavaScript of one view: what all share, then its own file. No build step, nothing fetched."""
    return "\n".join((HERE / file).read_text(encoding="utf-8") for file in ("common.js", f"{name}.js"))


def floats(values):
    """An array as the bytes of float32, the form in which views receive numbers."""
    return np.ascontiguousarray(plots.to_numpy(values), dtype=np.float32).tobytes()


class View(StillMixin, anywidget.AnyWidget):
    """Base of the views: Python computes and keeps the state, JavaScript draws.

    `first` is an array, or a function of the reader's whose arguments are the `controls` (as in
    `explore`). A subclass has `show_value(value)`, which checks a value and puts it into its traits,
    `figure()`, the same state as a matplotlib figure, and `alt()`, the sentence for it.
    """

    _css = HERE / "style.css"
    error = traitlets.Unicode("").tag(sync=True)  # shown in the view, in words

    def __init__(self, first, controls, **traits):
        super().__init__(**traits)
        self.driver = None
        if callable(first):
            self.driver = Driver(first, controls, self.show_value, self._complain)
            self.driver.update()
        elif controls:
            raise ValueError(
                f"Controls ({', '.join(controls)}) need a function to drive; the first argument is an array."
            )
        else:
            self.show_value(first)
        self._box = ipywidgets.VBox([*self.controls.values(), self]) if self.controls else self
        self.on_msg(self._on_message)

    @property
    def controls(self):
        """The controls by the name of the argument they drive."""
        return self.driver.controls if self.driver else {}

    def _complain(self, sentence):
        self.error = sentence

    def picture(self):
        """The view as it stands, as a `plots.Picture` with alt text."""
        return plots.picture(self.figure(), self.alt())

    def still_html(self):
        """The picture for a page without a kernel, with the controls' values in words."""
        words = (
            f"<p><i>Controls, when the notebook runs: {html.escape(self.driver.listed())}</i></p>"
            if self.controls
            else ""
        )
        return words + self.picture()._repr_html_()

    def save(self, name):
        """Write the view as it stands to a file; the name's ending is .svg, .png or .pdf."""
        if Path(name).suffix not in (".svg", ".png", ".pdf"):
            raise ValueError(f"The file's name must end in .svg, .png or .pdf; it is {str(name)!r}.")
        figure = self.figure()
        try:
            figure.savefig(name, dpi=200)
        finally:
            plt.close(figure)

    def _on_message(self, _widget, content, _buffers):
        kind = content.get("save")
        if kind in ("svg", "png"):
            figure, data = self.figure(), io.BytesIO()
            figure.savefig(data, format=kind, dpi=200)
            plt.close(figure)
            self.send({"saved": kind, "name": type(self).__name__}, [data.getvalue()])

    @property
    def shown_id(self):
        """The view itself, or the box that holds it under its controls."""
        return self._box.model_id
