"""Each notebook in a real JupyterLab: run all, then every control by key, click on its track, drag and typing."""

import pytest

import lab

ODD_TEXTS = ["<script>alert(1)</script>", "🙂 ✏️", "", "a" * 5000, "I just dropped my pencil"]
SLIDER = ".jp-OutputArea .noUi-target"
BOX = ".jp-OutputArea .widget-text input, .jp-OutputArea .widget-textarea textarea"
CONTROLS = f"{SLIDER}, {BOX}, .jp-OutputArea select, .widget-checkbox input, .pl-view canvas, .pl-view svg"


def idle(page):
    """Wait until the kernel has answered all that was sent."""
    page.page.wait_for_timeout(120)
    page.page.wait_for_function(
        "jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'", timeout=60_000
    )
    page.page.wait_for_timeout(80)


def complaints(page):
    """What views say in words about errors of the functions they drive."""
    texts = page.page.locator("[role=alert]").all_inner_texts()
    return [text for text in texts if text.strip() and "stopped with" in text]


def move(page, slider):
    """Key, click at three quarters of the track, drag: the handle must end where it was put."""
    slider.scroll_into_view_if_needed()
    handle = slider.locator(".noUi-handle")
    handle.focus()
    before = handle.get_attribute("aria-valuetext")
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowRight")
    if handle.get_attribute("aria-valuetext") == before:  # it stood at its right end
        page.page.keyboard.press("ArrowLeft")
    idle(page)
    assert handle.get_attribute("aria-valuetext") != before, "a key did not move it"
    box = slider.bounding_box()
    page.page.mouse.click(box["x"] + 0.75 * box["width"], box["y"] + box["height"] / 2)
    idle(page)
    page.page.wait_for_timeout(400)  # the handle glides to a click for 300 ms
    clicked = handle.bounding_box()
    assert abs(clicked["x"] + clicked["width"] / 2 - box["x"] - 0.75 * box["width"]) < 0.2 * box["width"]
    page.page.mouse.move(clicked["x"] + clicked["width"] / 2, clicked["y"] + clicked["height"] / 2)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 3, steps=6)
    page.page.mouse.up()
    idle(page)
    dragged = handle.bounding_box()
    assert dragged["x"] < clicked["x"], "a drag to the left did not move it to the left"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(p.name for p in lab.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")), ids=lambda n: n[:2])
def test_page(run, name):
    page = run(name=name)
    assert page.page.locator(".jp-OutputArea [data-mime-type='application/vnd.jupyter.error']").count() == 0
    sliders = page.page.locator(SLIDER)
    assert page.page.locator(CONTROLS).count() >= 2
    for k in range(sliders.count()):
        move(page, sliders.nth(k))
    assert complaints(page) == []
    menus = page.page.locator(".jp-OutputArea select")
    for k in range(menus.count()):
        menus.nth(k).select_option(index=menus.nth(k).locator("option").count() - 1)
        idle(page)
    assert complaints(page) == []
    boxes = page.page.locator(BOX)
    for k in range(boxes.count()):
        for text in ODD_TEXTS:
            boxes.nth(k).fill(text)
            idle(page)
    assert page.page.locator(".jp-OutputArea script").count() == 0
    assert page.errors == []
    assert page.outside == []


@pytest.mark.slow
def test_a_saved_page_shows_pictures_before_anything_runs(folder, address, chromium):
    page = lab.Page(chromium, address, "03_dot_product_attention.ipynb")
    assert page.page.locator(".jp-OutputArea img[alt]").count() >= 4
    text = page.page.inner_text(".jp-NotebookPanel")
    assert "model not found" not in text and "Loading widget" not in text
    page.close()
