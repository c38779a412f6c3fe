"""One JupyterLab and one Chromium for all browser tests."""

import importlib.util
import os
import shutil
from pathlib import Path

import nbformat
import pytest

import lab


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in Path(item.fspath).parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.filterwarnings("default"))  # Playwright's and the servers' own


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with copies of all notebooks, so that a run changes nothing here."""
    folder = tmp_path_factory.mktemp("lab")
    for notebook in lab.NOTEBOOKS.glob("*.ipynb"):
        shutil.copy(notebook, folder)
    return folder


@pytest.fixture(scope="session")
def address(folder):
    needed = {"Chromium": lab.chromium(), "Playwright": importlib.util.find_spec("playwright")}
    missing = [name for name, there in needed.items() if not there]
    if missing:
        reason = f"{' and '.join(missing)} not found: apt-get install chromium, pip install playwright"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with lab.server(folder) as address:
        yield address


@pytest.fixture(scope="session")
def chromium(address):
    with lab.browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def write(folder):
    """write(name, cell, cell, ...) makes a notebook of these cells."""

    def write(name, *cells):
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells], metadata=kernel)
        nbformat.write(made, folder / name)

    return write


@pytest.fixture
def run(write, address, chromium):
    """run(cell, cell, ...) opens a notebook of these cells in JupyterLab and runs it; run(name=...) one of ours."""
    opened = []

    def run(*cells, name="scratch.ipynb"):
        if cells:
            write(name, *cells)
        page = lab.Page(chromium, address, name)
        opened.append(page)
        page.run_all()
        return page

    yield run
    for page in opened:
        page.close()
