"""What every view shares: the picture it leaves where no kernel runs."""

from IPython.display import display


class StillMixin:
    """A widget that is displayed together with a picture of its first state.

    A subclass has `still_html()`, the HTML of that picture with alt text, and its own short
    `__repr__`. Jupyter shows the live view where it can and the picture elsewhere (GitHub, nbviewer,
    a page exported to HTML). ipywidgets 7 never asks for a bundle, so the whole bundle is displayed here.
    """

    def still_html(self):
        """HTML of the first state, for a page without a kernel."""
        raise TypeError(f"{type(self).__name__} has no still_html(): every view needs the picture of its first state.")

    @property
    def shown_id(self):
        """The id of the widget that stands for this view on the page."""
        return self.model_id

    def _ipython_display_(self):
        display(
            {
                "text/plain": repr(self),
                "text/html": self.still_html(),
                "application/vnd.jupyter.widget-view+json": {
                    "version_major": 2,
                    "version_minor": 0,
                    "model_id": self.shown_id,
                },
            },
            raw=True,
        )
