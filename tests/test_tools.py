"""The scripts that make, check, link and reset the notebooks."""

import subprocess
import sys
from pathlib import Path

import links
import nbformat
import pytest
import reset

import notebooks

ROOT = Path(__file__).resolve().parent.parent
BOOTSTRAP = (ROOT / "tools" / "bootstrap_cell.py").read_text(encoding="utf-8")


def test_an_address_reaches_badges_and_set_up_cells():
    address, tag = links.settings('version = "1.2.3"\nRepository = "https://github.com/me/course.git"\n')
    assert (address, tag) == ("https://github.com/me/course", "v1.2.3")
    page = "# T\n<!-- launch --><!-- /launch -->\n" + BOOTSTRAP
    linked = links.linked(page, address, tag, "04_x.ipynb")
    assert "mybinder.org/v2/gh/me/course/v1.2.3?labpath=notebooks%2F04_x.ipynb" in linked
    assert "github/me/course/blob/v1.2.3/notebooks/04_x.ipynb" in linked
    assert '\nREPOSITORY = "https://github.com/me/course"\n' in linked
    assert links.linked(linked, "", tag, "04_x.ipynb") == links.linked(page, "", tag, "04_x.ipynb")  # and back


def test_no_address_no_badges():
    assert links.settings('version = "1"\n# Repository = "https://github.com/OWNER/NAME"') == ("", "v1")
    assert links.badges("", "v1", "x") == ""
    with pytest.raises(ValueError, match="OWNER/NAME"):
        links.settings('version = "1"\nRepository = "example.org"')


def run_bootstrap(monkeypatch, tmp_path, cell, installed):
    calls = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr(subprocess, "run", lambda command, check: calls.append(command))
    exec(compile(cell, "set-up cell", "exec"), {})
    return calls


def test_set_up_does_nothing_where_the_course_is_installed(monkeypatch, tmp_path):
    assert run_bootstrap(monkeypatch, tmp_path, BOOTSTRAP, installed=True) == []
    assert list(tmp_path.iterdir()) == []


def test_set_up_without_an_address_says_what_to_do(monkeypatch, tmp_path):
    cell = links.ADDRESS_LINE.sub('REPOSITORY = ""', BOOTSTRAP)
    with pytest.raises(ModuleNotFoundError, match="Install.*README.*kernel"):
        run_bootstrap(monkeypatch, tmp_path, cell, installed=False)


def test_set_up_on_colab_keeps_what_is_installed(monkeypatch, tmp_path):
    cell = links.linked(BOOTSTRAP, "https://github.com/me/course", "v1", "x")
    (command,) = run_bootstrap(monkeypatch, tmp_path, cell, installed=False)
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert command[-1] == "pencil-and-lead @ git+https://github.com/me/course"
    kept = (tmp_path / command[command.index("-c") + 1]).read_text(encoding="utf-8")
    assert "\nnumpy==" in kept and "torch==" in kept


def test_reset_keeps_the_readers_copy(tmp_path, monkeypatch):
    path = tmp_path / "04_x.ipynb"
    monkeypatch.setattr(reset, "delivered", lambda _: b"fresh")
    path.write_bytes(b"mine")
    kept = reset.reset(path)
    assert kept.read_bytes() == b"mine" and kept.name.startswith("04_x.mine-")
    assert path.read_bytes() == b"fresh"
    assert reset.reset(path) is None
    assert len(list(tmp_path.iterdir())) == 2


def test_an_unknown_number_is_refused():
    with pytest.raises(SystemExit, match="98"):
        notebooks.chosen(["98"])


def one_cell(source):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])


@pytest.mark.slow
def test_a_run_notices_errors_stderr_and_a_dead_kernel():
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    noisy = one_cell("import sys; print('w', file=sys.stderr)")
    seconds, peak = notebooks.run(noisy)
    assert any("stderr" in c for c in notebooks.complaints(noisy))
    assert 0 < seconds < 60 and (peak is None or 10 < peak < 500)
    with pytest.raises(CellExecutionError):
        notebooks.run(one_cell("%notmagic"))
    with pytest.raises(DeadKernelError):
        notebooks.run(one_cell("import os; os._exit(1)"))


def test_cleaning_leaves_the_picture_and_takes_the_live_view():
    page = one_cell("view")
    data = {notebooks.VIEW: {"model_id": "1"}, "text/html": "<img>", "text/plain": "view"}
    page.cells[0].outputs = [nbformat.v4.new_output("display_data", data)]
    page.metadata.update(widgets={"state": {}}, language_info={"name": "python", "version": "3.11.7"})
    notebooks.clean(page)
    assert set(page.cells[0].outputs[0].data) == {"text/html", "text/plain"}
    assert "widgets" not in page.metadata and "version" not in page.metadata.language_info
