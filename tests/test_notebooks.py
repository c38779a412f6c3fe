"""Habits of the notebooks, read from the files: nothing here runs a cell (tools/notebooks.py and nbval do)."""

import ast
import re
import statistics
import warnings
from html.parser import HTMLParser
from pathlib import Path

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = ROOT / "GLOSSARY.md"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
BOOTSTRAP = (ROOT / "tools" / "bootstrap_cell.py").read_text(encoding="utf-8").strip()
NUMPY_ONLY = {"00", "01", "02", "03", "04", "05", "06"}
CLOSING = ["Exercises", "Recap", "Where the paper says this", "Next"]
AWAY = re.compile(r"/(?:home|root|tmp|mnt|opt|work|Users)/\w|[A-Za-z]:\\+Users|\b0x[0-9a-f]{6,}\b")


class Alts(HTMLParser):
    """The alt texts of all pictures in a piece of HTML (None where there is none)."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        if tag in ("img", "svg"):
            attributes = dict(attributes)
            self.found.append(attributes.get("alt") or attributes.get("aria-label"))


def code_cells(notebook):
    return [c for c in notebook.cells if c.cell_type == "code"]


def cell_problems(notebook):
    """Sentences about cells that a reader, nbval or another machine would stumble over."""
    cells = code_cells(notebook)
    if cells[0].source.strip() != BOOTSTRAP:
        yield "the first code cell is not the set-up cell of tools/bootstrap_cell.py"
    if [c.execution_count for c in cells] != list(range(1, len(cells) + 1)):
        yield "not run top to bottom from a fresh kernel"
    sizes = [len([line for line in c.source.splitlines() if line.strip()]) for c in cells[1:]]
    if max(sizes) > 25 or statistics.median(sizes) > 8:
        yield f"code cells are long: median {statistics.median(sizes)} lines, longest {max(sizes)}"
    for k, cell in enumerate(cells):
        try:
            tree = ast.parse(cell.source)
        except SyntaxError as error:  # a magic or shell line, which nbval may pass without running it
            yield f"code cell {k} is not plain Python: {error}"
            continue
        if cell.source.rstrip().endswith(";"):
            yield f"code cell {k} ends with ;, which nbval does not understand"
        calls = {
            n.func.attr if isinstance(n.func, ast.Attribute) else getattr(n.func, "id", "")
            for n in ast.walk(tree)
            if isinstance(n, ast.Call)
        }
        pictured = any(Alts(o.get("data", {}).get("text/html", "")).found for o in cell.outputs)
        if calls & {"show", "explore"} and not pictured and not any(isinstance(n, ast.FunctionDef) for n in tree.body):
            yield f"code cell {k} draws, and no picture is stored"
        if "tags" in cell.metadata and set(cell.metadata.tags) - {"nbval-ignore-output", "raises-exception"}:
            yield f"code cell {k} has an unknown tag: {cell.metadata.tags}"


def output_problems(notebook):
    """Sentences about stored outputs."""
    for k, cell in enumerate(code_cells(notebook)):
        for output in cell.outputs:
            data = output.get("data", {})
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
                yield f"code cell {k} stores an error"
            if output.get("name") == "stderr":
                yield f"code cell {k} stores stderr"
            if "application/vnd.jupyter.widget-view+json" in data:
                yield f"code cell {k} stores a live view"
            if "image/png" in data or "image/svg+xml" in data:
                yield f"code cell {k} stores a bare picture, whose alt text JupyterLab drops: use plots.show"
            if any(len(alt or "") < 20 for alt in Alts(data.get("text/html", "")).found):
                yield f"code cell {k} has a picture without alt text"
            text = (
                output.get("text", "")
                + data.get("text/plain", "")
                + re.sub(r"data:image/[^\"]*", "", data.get("text/html", ""))
            )
            if AWAY.search(text):
                yield f"code cell {k} shows a path or an address of the author's machine: {AWAY.search(text).group()}"


def page_problems(notebook):
    """Sentences about the prose and the file as a whole."""
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "the kernel is not python3"
    if "widgets" in notebook.metadata:
        yield "widget state is stored"
    prose = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    headings = re.findall(r"^## (.+)$", prose, re.M)
    if len(re.findall(r"^# ", prose, re.M)) != 1 or headings[-4:] != CLOSING:
        yield f"one # title and the closing sections {CLOSING} are expected; the sections are {headings}"
    if not 4 <= len(headings) - 4 <= 8:
        yield f"{len(headings) - 4} sections before the closing ones"
    if prose.count("**Predict first") < 3 or prose.count("**Notice") < 3:
        yield "fewer than three 'Predict first' or 'Notice'"
    if "<!-- launch -->" not in prose:
        yield "no place for the launch badges"
    if re.search(r"\\begin\{align|\\label\{|\\eqref|\\\(|\\\[", prose):
        yield "a formula that not every viewer renders: use $...$ or $$...$$"
    if re.search(r"\b(?:simply|obviously|easily|of course|trivial(?:ly)?)\b", prose, re.I):
        yield "a word that makes a reader feel slow"
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", prose):
        if not (ROOT / "notebooks" / target).exists():
            yield f"a link to {target}, which is not there"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_habits(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    assert [*cell_problems(notebook), *output_problems(notebook), *page_problems(notebook)] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_text_twin_is_in_step(path):
    assert out_of_step(nbformat.read(path, as_version=4), jupytext.read(path.parent / "text" / f"{path.stem}.md")) == []


def out_of_step(notebook, text):
    """Pairs of cells that differ between the notebook and its text."""
    pairs = [[(c.cell_type, c.source.strip(), c.metadata.get("tags", [])) for c in nb.cells] for nb in (notebook, text)]
    if len(pairs[0]) != len(pairs[1]):
        return [f"{len(pairs[0])} cells in the notebook, {len(pairs[1])} in its text: run make notebook"]
    return [(a, b) for a, b in zip(*pairs, strict=True) if a != b]


def test_every_text_has_its_notebook():
    texts = {t.stem for t in (ROOT / "notebooks" / "text").glob("*.md")}
    assert texts == {n.stem for n in NOTEBOOKS}


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.name[:2] in NUMPY_ONLY], ids=lambda p: p.stem)
def test_numpy_pages_do_not_name_torch(path):
    source = "\n".join(c.source for c in code_cells(nbformat.read(path, as_version=4))[1:])
    assert not re.search(
        r"^\s*(?:import|from)\s+torch|course_utils.*\b(?:model|train|generate|introspect)\b", source, re.M
    )


# Each rule is able to fail: a small notebook with one planted fault after another.


def good_notebook():
    v4 = nbformat.v4
    prose = [
        "# Title",
        "<!-- launch --><!-- /launch -->",
        "**Predict first.** **Notice.** " * 3,
        "## A",
        "## B",
        "## C",
        "## D",
    ]
    prose += [f"## {name}" for name in CLOSING]
    shown = v4.new_output(
        "display_data", {"text/html": '<img src="data:," alt="A sentence of more than 20 characters">'}
    )
    cells = [
        v4.new_markdown_cell("\n\n".join(prose)),
        v4.new_code_cell(BOOTSTRAP, execution_count=1),
        v4.new_code_cell("explore(f, x=(0, 1))", execution_count=2, outputs=[shown]),
    ]
    return v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})


def all_problems(notebook):
    return [*cell_problems(notebook), *output_problems(notebook), *page_problems(notebook)]


def test_a_good_notebook_has_no_problems():
    assert all_problems(good_notebook()) == []


def _stream(text, name="stdout"):
    return nbformat.v4.new_output("stream", name=name, text=text)


PLANTED = {
    "unknown magic": (lambda nb: nb.cells[2].update(source="%notmagic\n1 / 0"), "not plain Python"),
    "shell": (lambda nb: nb.cells[2].update(source="!false"), "not plain Python"),
    "semicolon": (lambda nb: nb.cells[2].update(source="explore(f);"), "ends with ;"),
    "order": (lambda nb: nb.cells[2].update(execution_count=7), "top to bottom"),
    "picture gone": (lambda nb: nb.cells[2].update(outputs=[]), "no picture is stored"),
    "alt": (lambda nb: nb.cells[2].outputs[0].data.update({"text/html": '<img src="data:,">'}), "without alt"),
    "png": (lambda nb: nb.cells[2].outputs[0].data.update({"image/png": ""}), "bare picture"),
    "view": (
        lambda nb: nb.cells[2].outputs[0].data.update({"application/vnd.jupyter.widget-view+json": {}}),
        "live view",
    ),
    "stderr": (lambda nb: nb.cells[2].outputs.append(_stream("w", "stderr")), "stderr"),
    "path": (lambda nb: nb.cells[2].outputs.append(_stream("/home/me/x")), "author's machine"),
    "address": (lambda nb: nb.cells[2].outputs.append(_stream("<A at 0x7f00deadbeef>")), "author's machine"),
    "set-up": (lambda nb: nb.cells[1].update(source="import os"), "set-up cell"),
    "long": (lambda nb: nb.cells[2].update(source="x = 1\n" * 30), "long"),
    "kernel": (lambda nb: nb.metadata.kernelspec.update(name="conda-env"), "kernel"),
    "state": (lambda nb: nb.metadata.update(widgets={}), "widget state"),
    "formula": (lambda nb: nb.cells[0].update(source=nb.cells[0].source + r"\begin{align}"), "formula"),
    "link": (lambda nb: nb.cells[0].update(source=nb.cells[0].source + "[x](99_gone.ipynb)"), "not there"),
    "closing": (lambda nb: nb.cells[0].update(source=nb.cells[0].source.replace("## Recap", "")), "closing"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_caught(fault):
    plant, words = PLANTED[fault]
    notebook = good_notebook()
    plant(notebook)
    assert any(words in problem for problem in all_problems(notebook)), all_problems(notebook)


def test_a_pair_out_of_step_is_caught():
    changed = good_notebook()
    changed.cells[2].source = "explore(f, x=(0, 2))"
    assert out_of_step(good_notebook(), good_notebook()) == []
    assert len(out_of_step(good_notebook(), changed)) == 1


def test_every_word_of_the_glossary_is_on_its_page():
    rows = re.findall(
        r"^\| \*\*(.+?)\*\* \|.*\]\(notebooks/(\S+)\.ipynb\) \|$", GLOSSARY.read_text(encoding="utf-8"), re.M
    )
    assert len(rows) > 40 and [word for word, _ in rows] == sorted({word for word, _ in rows}, key=str.lower)
    pages = {page: (ROOT / "notebooks" / "text" / f"{page}.md").read_text(encoding="utf-8").lower() for _, page in rows}
    missing = [(word, page) for word, page in rows if re.sub(r" \(.*\)| vector$", "", word).lower() not in pages[page]]
    assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_exported_without_a_kernel_every_view_is_a_picture(path):
    """What GitHub and nbviewer show: no kernel, no widget state."""
    from nbconvert import HTMLExporter

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nbconvert's own
        html, _ = HTMLExporter(template_name="lab").from_filename(str(path))
    stored = sum(len(Alts("".join(o.get("data", {}).get("text/html", ""))).found) for o in stored_outputs(path))
    assert len([alt for alt in Alts(html).found if len(alt or "") >= 20]) >= stored >= 2
    for words in ("Loading widget", "model not found", "Error displaying widget"):
        assert words not in html


def stored_outputs(path):
    return [o for cell in code_cells(nbformat.read(path, as_version=4)) for o in cell.outputs]
