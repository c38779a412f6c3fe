"""What every view must bear, in a real JupyterLab: quick moves, errors, a cell run again, a page that stays still."""

import numpy as np
import pytest

import lab
from course_utils.attention import softmax
from test_pages import idle

pytestmark = pytest.mark.slow

# The slider goes from 0 to 64; all its values are good but three.
SETUP = """
import numpy as np
from course_utils.attention import softmax
from course_utils.widgets import *
calls = []
scores = np.array([[0.0, 1.0, 2.0], [3.0, 0.5, 0.0], [1.0, 1.0, 4.0]])
names = ['I', '<b>dropped</b>', 'my']
def unless_bad(x, good, nan, shape):
    calls.append(x)
    return 1 / 0 if x == 61 else nan if x == 62 else shape if x == 63 else good
def weights(x=0): return unless_bad(x, softmax(x / 20 * scores), scores * np.nan, np.eye(2))
"""
SCORES = np.array([[0.0, 1.0, 2.0], [3.0, 0.5, 0.0], [1.0, 1.0, 4.0]])
# name: the cell; the numbers of the table behind the view for a slider at x; what is said of NaN, of the shape
VIEWS = {
    "AttentionGrid": (
        "AttentionGrid(weights, names, x=(0, 64))",
        lambda x: softmax(x / 20 * SCORES),
        ("NaN", "shape (2, 2)"),
    ),
    "explore": (
        "explore(lambda x=0: weights(x) if x != 63 else np.ones((2, 2, 2)), x=(0, 64))",
        lambda x: softmax(x / 20 * SCORES),
        ("NaN", "shape (2, 2, 2)"),
    ),
    "VectorPlane": (
        "def score(query, x=0): return unless_bad(x, x / 20 * scores[:, :2] @ query, scores[0] * np.nan, np.eye(2))\n"
        "VectorPlane(score, names, scores[:, :2] + 1, drag={'query': (1.0, 0.5)}, x=(0, 64), limit=12)",
        lambda x: np.stack([s := x / 20 * SCORES[:, :2] @ [1.0, 0.5], softmax(s)], axis=1),
        ("NaN", "shape (2, 2)"),
    ),
    "TokenStrip": (
        "def cut(text, x=0): return unless_bad(x, (names, x * np.arange(1, 4)), (names, [np.nan] * 3), (names, [1]))\n"
        "TokenStrip(cut, x=(0, 64))",
        lambda x: x * np.arange(1, 4)[:, None],
        ("NaN", "3 tokens and 1 ids"),
    ),
    "NextToken": (
        "def logits(x=0): return unless_bad(x, x / 20 * scores[1], scores[1] * np.nan, np.ones(2))\n"
        "NextToken(logits, names, x=(0, 64))",
        lambda x: softmax(x / 20 * SCORES[1])[:, None] * [1, 1],
        ("NaN", "shape is (2,)"),
    ),
    "HeadView": (
        "def heads(x=0): return unless_bad(x, softmax(x / 20 * np.stack([scores, scores.T])),\n"
        "                                  np.full((2, 3, 3), np.nan), np.ones((2, 2, 2)))\n"
        "view = HeadView(heads, names, head=1, x=(0, 64)); view.held = ['query', 2]; view",
        lambda x: softmax(x / 20 * SCORES.T)[2][:, None],
        ("NaN", "shape is (2, 2, 2)"),
    ),
}
MEMORY = "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS')][0])"
# Heights of the view's cell in every frame; what stands below stays where it is while there is only one.
WATCH = """() => {
  const cell = [...document.querySelectorAll('.jp-CodeCell')].at(-1);
  window.heights = new Set();
  const look = () => {
    window.heights.add(Math.round(cell.getBoundingClientRect().height));
    requestAnimationFrame(look);
  };
  look();
}"""


def ask(page, code):
    """Run `code` in the page's kernel and return what it prints."""
    return page.page.evaluate(
        """async (code) => {
          const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
          const future = kernel.requestExecute({ code });
          let text = "";
          future.onIOPub = (m) => { if (m.header.msg_type === "stream") text += m.content.text; };
          await future.done;
          return text;
        }""",
        code,
    )


def numbers(view):
    """The numbers in the table behind a view, a row for each of the three names, in their order."""
    rows = view.locator("tr").evaluate_all("rows => rows.map((row) => [...row.children].map((c) => c.textContent))")[1:]
    order = ["I", "<b>dropped</b>", "my"]
    rows.sort(key=lambda row: next((k for k, name in enumerate(order) if name in row), len(order)))

    def read(row):
        return [float(cell) for cell in row if cell.replace(".", "").lstrip("-").isdigit()]

    return [read(row) for row in rows]


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_bears_quick_moves_errors_and_being_run_again(run, name):
    code, expected, (nan, shape) = VIEWS[name]
    page = run(SETUP, code)
    page.run_all()
    page.run_all()  # three times: what earlier runs left must not answer
    cell = page.page.locator(".jp-CodeCell").last
    view, handle, line = cell.locator(".pl-view").last, cell.locator(lab.HANDLE).first, cell.locator(".pl-error").first
    readout = cell.locator(".widget-readout").first
    press = page.page.keyboard.press

    def agrees():
        table, x = numbers(view), float(readout.inner_text())
        if name == "VectorPlane":  # the places of the arrows, then the bars
            table = [row[2:] for row in table[:3]]
        elif name == "TokenStrip":  # the token's number, then its id
            table = [row[1:] for row in table]
        elif name == "explore":
            table = [row[1:] for row in table]
        np.testing.assert_allclose(np.array(table), expected(x), atol=0.0051)

    lab.eventually(page, agrees)
    handle.focus()
    press("ArrowRight")
    idle(page)
    before = int(ask(page, MEMORY))
    page.page.evaluate(WATCH)
    for n in range(200):
        press("ArrowLeft" if n % 5 == 0 or n >= 80 and n % 2 else "ArrowRight")
    idle(page)
    lab.eventually(page, agrees)
    assert float(readout.inner_text()) > 20
    assert int(ask(page, MEMORY)) - before < 20_000  # kB
    ask(page, "calls.clear()")
    press("End")
    idle(page)
    assert ask(page, "print(calls)").strip() == "[64]"
    for words in (shape, nan, "division by zero"):
        press("ArrowLeft")

        def told(words=words):
            assert words in line.inner_text()

        lab.eventually(page, told)
    press("ArrowLeft")
    idle(page)
    lab.eventually(page, agrees)
    assert readout.inner_text() == "60" and not line.is_visible()
    assert len(page.page.evaluate("() => [...heights]")) == 1, "what stands below jumped"
    assert page.page.locator(".pl-view b").count() == 0  # a token is text
    assert page.errors == [] and page.outside == []


def told(page, selector, words):
    """Wait until the element says so."""

    def check():
        assert words in page.page.locator(selector).first.inner_text()

    lab.eventually(page, check)


def test_token_strip_takes_any_text_and_steps_through_merges(run):
    page = run(
        "from course_utils import text\nfrom course_utils.widgets import TokenStrip\n"
        "TokenStrip(text.BPETokenizer.gpt2(), text='my pencil')"
    )
    box, chips = page.page.locator(".widget-textarea textarea"), page.page.locator("button.pl-chip")
    for typed, summary in (
        ("<script>window.hit=1</script>", "29 characters"),
        ("🙂 ✏️", "4 characters"),
        ("a" * 5000, "5,000 characters; the first 200 of them are shown"),
        ("", "0 tokens"),
        ("my mechanical", "2 tokens for 13 characters"),
    ):
        box.fill(typed)
        told(page, ".pl-status", summary)

        def shown(typed=typed):
            pieces = "".join(chips.locator(".pl-piece").all_inner_texts())
            assert chips.count() <= 200 and ("<" not in typed or pieces == typed)

        lab.eventually(page, shown)
    assert page.page.evaluate("window.hit") is None and page.page.locator(".jp-OutputArea script").count() == 0
    chips.nth(0).focus()
    for key in ("ArrowRight", "Enter"):
        page.page.keyboard.press(key)
    told(page, ".pl-token-detail", "␣mechanical, id 12370, 11 bytes")
    made = page.page.locator(".pl-made .pl-piece")
    assert "".join(made.all_inner_texts()) == "␣mechanical" and made.count() == 11
    page.page.get_by_text("Merge ▶").click()
    told(page, ".pl-steps", "Merge 1 of ")
    assert made.count() == 10
    page.page.locator(".pl-steps input").focus()
    page.page.keyboard.press("End")
    told(page, ".pl-steps", "→ ␣mechanical")
    assert made.all_inner_texts() == ["␣mechanical"]
    page.page.get_by_text("◀ Undo merge").click()
    told(page, ".pl-steps", "Merge ")
    lab.eventually(page, lambda: np.testing.assert_equal(made.count(), 2))
    chips.nth(1).click()  # a second click lets go
    told(page, ".pl-status", "Click a token")
    assert page.errors == [] and page.outside == []


def test_next_token_shows_what_is_cut_off(run):
    page = run(
        "import numpy as np\nfrom course_utils.widgets import NextToken\n"
        "NextToken(np.log([0.1, 0.5, 0.15, 0.25]), ['ran', 'broke', 'sank', 'snapped'])"
    )
    temperature, top_k, top_p = (page.page.locator(lab.HANDLE).nth(k) for k in range(3))
    view = page.page.locator(".pl-view")

    def shows(former, final):
        def check():
            rows = view.locator("tr").evaluate_all("rows => rows.map((r) => [...r.children].map((c) => c.textContent))")
            assert [row[0] for row in rows[1:]] == ["broke", "snapped", "sank", "ran"]
            np.testing.assert_allclose(
                [[float(c) for c in row[1:]] for row in rows[1:]], np.transpose([final, former]), atol=1e-4
            )

        lab.eventually(page, check)

    probs = np.array([0.5, 0.25, 0.15, 0.1])
    top_k.focus()
    for _ in range(2):
        page.page.keyboard.press("ArrowRight")
    shows(probs, [2 / 3, 1 / 3, 0, 0])
    told(page, ".pl-summary", "2 of 4 words can be drawn; together they had 0.750 before the cut.")
    assert "cut off, was 0.15" in view.locator(".pl-bar").nth(2).inner_text()
    hatched = view.locator(".pl-bar-was").nth(2)  # as wide as the 0.15 there were
    track = hatched.evaluate("(bar) => bar.parentNode.clientWidth")
    assert hatched.bounding_box()["width"] == pytest.approx(0.15 * 0.82 * track, abs=2)
    page.page.keyboard.press("Home")
    top_p.focus()
    for _ in range(5):  # 0.95, 0.90, ..., 0.75: the first two already hold 0.75
        page.page.keyboard.press("ArrowLeft")
    shows(probs, [2 / 3, 1 / 3, 0, 0])
    page.page.keyboard.press("End")
    temperature.focus()
    page.page.keyboard.press("Home")
    shows([1, 0, 0, 0], [1, 0, 0, 0])
    told(page, ".pl-summary", "Temperature 0: the likeliest word, always.")
    view.locator(".pl-bar").nth(1).click()
    told(page, ".pl-token-detail", "snapped: logit -1.386")
    page.page.keyboard.press("ArrowDown")  # what is held moves with the keys
    told(page, ".pl-token-detail", "sank: logit -1.897")
    page.page.keyboard.press("Escape")
    told(page, ".pl-status", "Point at a bar")
    assert page.errors == [] and page.outside == []


def test_head_view_chooses_heads_and_tokens(run):
    page = run(
        "import numpy as np\nfrom course_utils.attention import softmax\nfrom course_utils.widgets import HeadView\n"
        "weights = softmax(2 * np.random.default_rng(5).normal(size=(2, 4, 3, 5)))\n"
        "HeadView(weights, ['zwei', 'und', 'vierzig'], ['<s>', 'forty', '-', 'two', '.'])"
    )
    weights = softmax(2 * np.random.default_rng(5).normal(size=(2, 4, 3, 5)))
    heads, canvas = page.page.locator(".pl-view canvas").nth(0), page.page.locator(".pl-view canvas").nth(1)

    def shows(start, row):
        told(page, ".pl-head-detail", start)

        def check():
            cells = page.page.locator(".pl-view td:nth-child(2)").all_text_contents()
            np.testing.assert_allclose(np.array(cells, float), row, atol=0.0051)

        lab.eventually(page, check)

    heads.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowRight"):
        page.page.keyboard.press(key)
    told(page, ".pl-head-detail", "Layer 1, head 2. Largest:")
    canvas.focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.page.keyboard.press(key)
        idle(page)
    shows("Layer 1, head 2: query und gives", weights[1, 2, 1])
    page.page.keyboard.press("ArrowRight")  # over to the keys
    shows("Layer 1, head 2: key forty gets from", weights[1, 2, :, 1])
    box = heads.bounding_box()  # 44 to the left and 40 above are the axes' words
    page.page.mouse.click(box["x"] + 44 + (box["width"] - 44) * 7 / 8, box["y"] + 40 + (box["height"] - 40) / 4)
    shows("Layer 0, head 3: key forty gets from", weights[0, 3, :, 1])
    page.page.keyboard.press("Escape")  # the small grids have no token to let go
    canvas.focus()
    page.page.keyboard.press("Escape")
    told(page, ".pl-head-detail", "Layer 0, head 3. Largest:")
    drawn = canvas.evaluate("(c) => c.toDataURL()")
    box = canvas.bounding_box()
    page.page.mouse.click(box["x"] + 60, box["y"] + box["height"] - 4 - 5 * 24 + 12)  # five rows of 24
    shows("Layer 0, head 3: query zwei gives", weights[0, 3, 0])
    assert canvas.evaluate("(c) => c.toDataURL()") != drawn
    assert page.errors == [] and page.outside == []


def test_ink_follows_the_theme(run):
    page = run(SETUP, *(code for code, _, _ in VIEWS.values()))
    look = """() => [...document.querySelectorAll('.pl-view')].map((view) => [
      getComputedStyle(view).color, ...[...view.querySelectorAll('canvas')].map((canvas) => canvas.toDataURL())])"""
    lab.eventually(page, lambda: np.testing.assert_equal(page.page.locator(".pl-view").count(), len(VIEWS) + 1))
    light = page.page.evaluate(look)
    page.theme("Dark")

    def dark():
        for before, after in zip(light, page.page.evaluate(look), strict=True):
            assert all(a != b for a, b in zip(before, after, strict=True))

    lab.eventually(page, dark)
    page.theme("Light")
