"""Views whose function reads a text that is typed: the box above them, and what of a text can be sent."""

import functools

import ipywidgets
import traitlets

from course_utils.widgets.view import View


def sendable(text):
    """The text as it can be sent to the page: half a character (a lone surrogate) becomes "\\ufffd".

    >>> sendable("pen" + chr(0xD83D)) == "pen" + chr(0xFFFD), sendable("🙂")
    (True, '🙂')
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class TextBox(ipywidgets.Textarea):
    """The core text area, which also survives half a character: Python keeps it, the page shows "\\ufffd"."""

    value = traitlets.Unicode("").tag(sync=True, echo_update=False, to_json=lambda text, _widget: sendable(text))


class TextView(View):
    """A view whose function gets the text of a box above it as first argument, then its other controls by name.

    A ValueError is shown as it stands, since it speaks to the reader ("the word 'x' is not among ...");
    other errors are shown with their kind.
    """

    def __init__(self, first, text, controls, **traits):
        wide = ipywidgets.Layout(width="95%", height="52px")
        self.box = TextBox(text, description="text", layout=wide, style={"description_width": "initial"})
        self._refusal = ""
        super().__init__(self._reading(first), controls, **traits)
        self.box.observe(self.driver.update, names="value")

    @property
    def controls(self):
        """The text box, and the controls by the name of the argument they drive."""
        return {"text": self.box, **self.driver.controls}

    def _reading(self, function):
        @functools.wraps(function)
        def read(**values):
            self._refusal = ""
            try:
                return function(self.box.value, **values)
            except ValueError as error:
                self._refusal = f"{getattr(function, '__name__', 'The function')}: {error}"
                raise

        return read

    def _complain(self, sentence):
        super()._complain(sendable(self._refusal or sentence))
