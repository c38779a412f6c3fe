"""`explore` and what every view leaves behind."""

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import pytest

from course_utils import plots
from course_utils.widgets import explore
from course_utils.widgets.explorer import move_all_controls
from course_utils.widgets.still import StillMixin


def double(x=1.0):
    return 2 * x


def result(view):
    """The HTML that the view shows: an error, and words, bars or a picture."""
    return view.error + view._text.value


def test_a_moved_slider_calls_the_function_once():
    calls = []

    def record(x=1):
        calls.append(x)
        return x

    for _ in range(3):  # running the cell again leaves no second handler on the new view
        view = explore(record, x=(0, 9))
    calls.clear()
    view.controls["x"].value = 7
    assert calls == [7]
    assert ">7<" in result(view)


@pytest.mark.parametrize(
    ("spec", "kind", "value"),
    [
        ((0, 9), ipywidgets.IntSlider, 0),
        ((0.0, 1.0), ipywidgets.FloatSlider, 0.0),
        ((0, 1, 0.25), ipywidgets.FloatSlider, 0),
        (["b", "a"], ipywidgets.Dropdown, "b"),
        (True, ipywidgets.Checkbox, True),
        ("text", ipywidgets.Text, "text"),
        (ipywidgets.IntText(3), ipywidgets.IntText, 3),
    ],
)
def test_controls(spec, kind, value):
    view = explore(lambda x: str(x), x=spec)
    assert type(view.controls["x"]) is kind
    assert view.controls["x"].value == value


def test_the_default_of_the_function_is_the_start():
    assert explore(double, x=(0.0, 5.0)).controls["x"].value == 1.0


def test_an_array_becomes_a_grid_that_is_kept():
    view = explore(lambda beta=1.0: np.eye(3) * beta, beta=(0.0, 1.0))
    grid = view._holder.children[0]
    view.controls["beta"].value = 0.5
    assert view._holder.children == (grid,) and grid.kind == "weights"
    assert np.frombuffer(grid.values, np.float32).reshape(3, 3)[1].tolist() == [0, 0.5, 0]
    assert 'alt="Grid of weights' in view.still_html()


def test_the_colours_of_scores_do_not_follow_the_slider():
    view = explore(lambda s=2.0: np.array([[0.1, -1.0], [0.2, 0.3]]) * s, s=(0.0, 4.0))
    grid = view._holder.children[0]
    assert grid.kind == "scores" and grid.limit == 2.0
    view.controls["s"].value = 4.0
    assert grid.limit == 4.0
    view.controls["s"].value = 0.0
    assert grid.limit == 4.0 and grid.kind == "scores"


@pytest.mark.parametrize("spec", [(3, 1), (0, 1, 0), [], None, (1, 2, 3, 4), ("a", "b")])
def test_a_wrong_control_is_explained(spec):
    with pytest.raises(ValueError, match="'x'"):
        explore(lambda x: x, x=spec)


def test_a_control_without_an_argument_is_explained():
    with pytest.raises(ValueError, match="no argument of that name. It has x"):
        explore(double, y=(0, 1))


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;"),
        (0.123456, "0.1235"),
        ({"broke": 0.6, "<b>": 0.4}, ">0.60<"),
        ({"broke": 0.6, "<b>": 0.4}, "&lt;b&gt;"),
        ([1, 2], ">2.00<"),
    ],
)
def test_what_is_returned_decides_what_is_shown(returned, shown):
    def give(x=0):
        return returned

    assert shown in result(explore(give, x=(0, 1)))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: None, "end it with"),
        (lambda: np.array([np.nan, 1]), "not a number"),
        (lambda: np.zeros((2, 2, 2)), "shape (2, 2, 2)"),
        (lambda: object(), "no view shows"),
    ],
)
def test_an_error_is_told_in_the_view_and_the_next_value_recovers(bad, words):
    def sometimes(x=0):
        return bad() if x == 1 else "fine"

    view = explore(sometimes, x=(0, 2))
    view.controls["x"].value = 1
    assert words in view.error and "x=1" in view.error
    view.controls["x"].value = 2
    assert result(view).endswith(">fine</pre>")


@pytest.mark.slow
def test_no_figure_is_left_open():
    def draw(x=0):
        figure, ax = plt.subplots()
        ax.plot([x, 1])
        if x == 5:
            raise ValueError("after the figure was made")
        return plots.picture(figure, alt=f"A line from {x} to one, drawn anew")

    view = explore(draw, x=(0, 40))
    for x in range(41):
        view.controls["x"].value = x
    assert plt.get_fignums() == []


def test_the_page_does_not_jump_when_a_result_is_smaller():
    def draw(rows=3):
        return plots.picture(plots.bars(np.ones(rows), "abcdefgh"[:rows]).figure, alt=f"{rows} bars of length one each")

    view = explore(draw, rows=(1, 8))
    view.controls["rows"].value = 8
    tallest = view._text.layout.min_height
    view.controls["rows"].value = 1
    assert view._text.layout.min_height == tallest and int(tallest[:-2]) > 300


def test_room_is_kept_for_more_bars_and_for_an_error():
    view = explore(lambda n=9: {str(i): 1.0 for i in range(n)} if n else 1 / 0, n=(0, 9))
    room = view._text.layout.min_height
    view.controls["n"].value = 2
    assert view._text.layout.min_height == room and int(room[:-2]) >= 9 * 20
    view.controls["n"].value = 0
    assert "pl-stale" in view._holder._dom_classes and int(view._holder.layout.min_height[:-2]) >= 80
    view.controls["n"].value = 1
    assert "pl-stale" not in view._holder._dom_classes


def test_the_bundle_holds_picture_words_and_live_view(capsys, monkeypatch):
    shown = []
    monkeypatch.setattr("course_utils.widgets.still.display", lambda data, raw: shown.append(data))
    view = explore(lambda x=0: {"a": 0.5}, x=(0, 1))
    view.controls["x"].value = 1
    view._ipython_display_()
    (bundle,) = shown
    assert bundle["text/plain"] == "explore(<lambda>: x=0)"  # the first state, also after moves
    assert 'alt="Bars' in bundle["text/html"] and "x=0" in bundle["text/html"]
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id


def test_a_view_without_a_picture_is_refused():
    with pytest.raises(TypeError, match="picture of its first state"):
        StillMixin().still_html()


def test_moving_all_controls_finds_a_callback_that_a_later_cell_broke():
    ipywidgets.Widget.close_all()
    table = {0: "a", 1: "b"}
    explore(lambda x=0: table[x], x=(0, 1))
    move_all_controls()
    table.clear()
    with pytest.raises(RuntimeError, match="KeyError"):
        move_all_controls()
