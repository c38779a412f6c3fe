"""The views in a real JupyterLab: numbers on the screen against NumPy, speed of moving, errors, themes."""

import numpy as np
import pytest

import lab
from course_utils import attention
from test_pages import idle

pytestmark = pytest.mark.slow

GRID = """
import numpy as np
from course_utils import attention
from course_utils.widgets import AttentionGrid, explore
scores = np.array([[0.0, 1.0, 2.0], [3.0, 0.5, 0.0], [1.0, 1.0, 4.0]])
def weights(beta=1.0):
    return attention.softmax(beta * scores)
"""
SHOW = "grid = AttentionGrid(weights, ['I', '<b>dropped</b>', 'my'], beta=(0.0, 5.0, 0.1)); grid"
SCORES = np.array([[0.0, 1.0, 2.0], [3.0, 0.5, 0.0], [1.0, 1.0, 4.0]])


def table(page, cell=-1):
    """The numbers that a screen reader finds behind the grid."""
    page.page.wait_for_timeout(350)
    rows = page.page.locator(".pl-view table").nth(cell).locator("tr").all()[1:]
    return np.array([[float(c) for c in row.locator("td").all_inner_texts()] for row in rows])


def readout(page):
    return float(page.page.locator(".widget-readout").first.inner_text())


def test_numbers_on_the_screen_are_numpys(run):
    page = run(GRID, SHOW)
    np.testing.assert_allclose(table(page), attention.softmax(SCORES), atol=0.006)
    handle = page.page.locator(lab.HANDLE).first
    handle.focus()
    for _ in range(7):
        page.page.keyboard.press("ArrowRight")
    idle(page)
    np.testing.assert_allclose(table(page), attention.softmax(readout(page) * SCORES), atol=0.006)
    assert page.page.locator(".pl-view b").count() == 0  # a token is text
    assert page.errors == [] and page.outside == []


def test_a_cell_is_held_and_let_go_by_keyboard_and_mouse(run):
    page = run(GRID, "AttentionGrid(attention.softmax(scores), list('abc'))")
    canvas, status = page.page.locator(".pl-view canvas"), page.page.locator(".pl-status")
    canvas.focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.page.keyboard.press(key)
        idle(page)
    assert "Held: query b, key a" in status.inner_text()
    assert "weight 0.883" in page.page.locator(".pl-detail").inner_text()
    page.page.keyboard.press("Escape")
    idle(page)
    assert "Held" not in status.inner_text()
    box = canvas.bounding_box()
    for expected in (True, False):
        page.page.mouse.click(box["x"] + box["width"] - 30, box["y"] + box["height"] - 15)
        idle(page)
        assert ("Held: query c, key c" in status.inner_text()) is expected


def test_labels_follow_the_theme(run):
    page = run(GRID, "AttentionGrid(attention.softmax(scores), list('abc'))")
    ink = "() => getComputedStyle(document.querySelector('.pl-view')).color"
    pixels = "() => document.querySelector('.pl-view canvas').toDataURL()"
    light, drawn = page.page.evaluate(ink), page.page.evaluate(pixels)
    page.theme("Dark")
    assert page.page.evaluate(ink) != light and page.page.evaluate(pixels) != drawn
    page.theme("Light")


def test_five_hundred_tokens_draw_within_a_second(run):
    page = run(
        GRID,
        "large = np.random.default_rng(0).normal(size=(512, 512))\n"
        "AttentionGrid(lambda beta=1.0: attention.softmax(beta * large), range(512), beta=(0.0, 5.0))",
    )
    page.page.locator(lab.HANDLE).first.focus()
    page.page.evaluate(
        """() => {
          const canvas = document.querySelector(".pl-view canvas"), before = canvas.toDataURL();
          window.took = new Promise((done) => addEventListener("keydown", () => {
            const start = performance.now();
            const changed = () => canvas.toDataURL() !== before;
            const look = () => changed() ? done(performance.now() - start) : requestAnimationFrame(look);
            look();
          }, { once: true, capture: true }));
        }"""
    )
    page.page.keyboard.press("ArrowRight")
    took = page.page.evaluate("() => window.took")
    assert took < 2000, f"{took:.0f} ms"  # a second on a quiet machine


def test_saving_gives_a_picture_file(run, tmp_path):
    page = run(GRID, "AttentionGrid(attention.softmax(scores), list('abc'))")
    for kind, start in (("SVG", b"<?xml"), ("PNG", b"\x89PNG")):
        with page.page.expect_download() as download:
            page.page.get_by_text(f"Save {kind}").click()
        path = tmp_path / kind
        download.value.save_as(path)
        assert path.read_bytes().startswith(start)


PLANE = """
import numpy as np
from course_utils.widgets import VectorPlane
K = np.array([[2.0, 0.0], [-1.0, 1.5], [0.5, -1.0]])
def score(query): return K @ query / np.sqrt(2)
VectorPlane(score, ["a", "<i>b</i>", "c"], K, drag={"query": (1.0, 0.5)}, colors="key", limit=4, span=(-3, 3))
"""


def check_plane(page):
    """The rows of the table behind the plane: place of the query, and scores and weights as NumPy has them."""
    page.page.wait_for_timeout(400)
    rows = [row.locator("th, td").all_inner_texts() for row in page.page.locator(".pl-view table tr").all()[1:]]
    cells = {name: [float(c) for c in numbers if c] for name, *numbers in rows}
    keys, query = np.array([[2.0, 0.0], [-1.0, 1.5], [0.5, -1.0]]), np.array(cells["query"][:2])
    shown = np.array([cells[name][2:] for name in ("a", "<i>b</i>", "c")])
    scores = keys @ query / np.sqrt(2)
    np.testing.assert_allclose(shown, np.stack([scores, attention.softmax(scores)], axis=1), atol=0.012)
    return query


def test_the_query_is_dragged_by_keys_and_by_mouse(run):
    page = run(PLANE)
    assert check_plane(page).tolist() == [1.0, 0.5]
    handle = page.page.locator(".pl-view [role=slider]").first
    handle.focus()
    for key in ("ArrowUp", "ArrowUp", "Shift+ArrowLeft"):
        page.page.keyboard.press(key)
    idle(page)
    np.testing.assert_allclose(check_plane(page), [0.5, 0.7], atol=0.006)
    circle = page.page.locator(".pl-view [role=slider] circle").first.bounding_box()
    x, y = circle["x"] + circle["width"] / 2, circle["y"] + circle["height"] / 2
    page.page.mouse.move(x, y)
    page.page.mouse.down()
    for step in range(200):  # many quick moves; the last one wins
        page.page.mouse.move(x - 60 * (step % 7) / 6, y + 40 * (step % 5) / 4)
    page.page.mouse.move(x - 80, y + 50)
    page.page.mouse.up()
    idle(page)
    dragged = check_plane(page)
    assert dragged[0] < 0.3 and dragged[1] < 0.5  # to the left and down
    assert page.page.locator(".pl-view i").count() == 0 and page.errors == [] and page.outside == []
