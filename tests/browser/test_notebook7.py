"""Notebook 7 takes keys at the document, before a slider sees them; those that move the slider must reach it."""

import importlib.util
import os

import pytest

import lab
from test_pages import idle
from test_views import GRID, SHOW

pytestmark = pytest.mark.slow

EXPLORE = "explore(lambda n=3, what='a': what * n, n=(1, 20), what=['a', 'b', 'c'])"
ACTIVE = "() => jupyterapp.shell.currentWidget.content.activeCellIndex"


@pytest.fixture(scope="module")
def page(folder, chromium, write):
    if not importlib.util.find_spec("notebook"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("Notebook 7 is not installed: pip install notebook")
    write("keys.ipynb", GRID, SHOW, EXPLORE)
    with lab.server(folder, app="notebook") as address:
        page = lab.Page(chromium, address, "keys.ipynb", app="notebook")
        page.run_all()
        yield page
        page.close()


def focus(page, element):
    """Focus an element with the notebook in command mode; the number of its cell."""
    page.page.evaluate("() => { jupyterapp.shell.currentWidget.content.mode = 'command' }")
    element.focus()
    return page.page.evaluate(ACTIVE)


@pytest.mark.parametrize("which", [0, 1], ids=["a view", "explore"])
def test_the_keys_of_a_slider_move_it_and_not_the_notebook(page, which):
    readout = page.page.locator(".widget-readout").nth(which)
    cell = focus(page, page.page.locator(lab.HANDLE).nth(which))
    first, last, step = ((0.0, 5.0, 0.1), (1, 20, 1))[which]
    for key, change in (("Home", first), ("ArrowRight", step), ("ArrowUp", step), ("ArrowDown", -step), ("End", last)):
        before = 0 if key in ("Home", "End") else float(readout.inner_text())
        page.page.keyboard.press(key)

        def moved(key=key, value=before + change):
            assert float(readout.inner_text()) == pytest.approx(value), key

        lab.eventually(page, moved)
    assert page.page.evaluate(ACTIVE) == cell


def test_a_menu_moves_by_keys(page):
    menu = page.page.locator(".jp-OutputArea select")
    cell = focus(page, menu)
    page.page.keyboard.press("ArrowDown")
    idle(page)
    assert menu.input_value() == "b" and page.page.evaluate(ACTIVE) == cell


def test_other_keys_stay_the_notebook_s(page):
    cell = focus(page, page.page.locator(lab.HANDLE).first)
    page.page.keyboard.press("ArrowLeft")
    page.page.keyboard.press("Shift+Enter")
    page.page.wait_for_function(f"({ACTIVE})() === {cell + 1}")
    idle(page)
    page.page.keyboard.press("Enter")  # the notebook has the focus again: Enter edits, Escape leaves
    page.page.wait_for_function("jupyterapp.shell.currentWidget.content.mode === 'edit'")
    page.page.keyboard.press("Escape")
    page.page.wait_for_function("jupyterapp.shell.currentWidget.content.mode === 'command'")
    page.page.keyboard.press("ArrowUp")
    page.page.wait_for_function(f"({ACTIVE})() === {cell}")
