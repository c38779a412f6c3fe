"""Make the notebooks from their text twins, and check them in fresh kernels.

    python tools/notebooks.py build          all of them: text -> .ipynb, run, outputs stored
    python tools/notebooks.py build 04       one
    python tools/notebooks.py check [04]     run without writing: no error, no stderr, a bound on memory, controls moved
    python tools/notebooks.py twice [04]     the same with every code cell run two times in a row

The text in notebooks/text/ is edited, the .ipynb is made: one direction only.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
VIEW = "application/vnd.jupyter.widget-view+json"
MEMORY_LIMIT_MB = 1000  # Binder gives 2 GB to everything, JupyterLab included

# Run after the last cell: a control that a later cell broke shows itself here.
MOVE_CONTROLS = """
from course_utils.widgets.explorer import move_all_controls
move_all_controls()
"""
# Notebooks 00-06 are NumPy pages: torch would cost 3 s and 200 MB.
NO_TORCH = """
import sys
assert "torch" not in sys.modules, "something on this page imports torch"
"""


def chosen(numbers):
    """Text twins whose two-digit numbers are given, or all of them, in order."""
    texts = sorted((NOTEBOOKS / "text").glob("[0-9][0-9]_*.md"))
    found = [t for t in texts if not numbers or t.name[:2] in numbers]
    missing = set(numbers) - {t.name[:2] for t in found}
    if missing or not found:
        sys.exit(
            f"No notebook with number {', '.join(sorted(missing)) or '?'} in notebooks/text/. Write N=04, for example."
        )
    return found


def to_ipynb(text):
    """Bring the .ipynb in step with its text; ids of cells that are still there survive."""
    target = NOTEBOOKS / f"{text.stem}.ipynb"
    command = [sys.executable, "-m", "jupytext", "--quiet", "--to", "ipynb", "--update", "--output", target, text]
    subprocess.run(command, check=True)
    return target


def peak_memory_mb(pid):
    """Peak resident memory of a process in MB, or None where the system does not tell (only Linux does)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / 1024


def run(notebook):
    """Run all cells in a fresh kernel, in an empty folder for training runs. Returns (seconds, peak MB)."""
    peak = [None]
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(NOTEBOOKS)}},
        on_cell_executed=lambda **_: peak.__setitem__(0, peak_memory_mb(client.km.provisioner.pid)),
    )
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as runs:
        os.environ["COURSE_RUNS"] = runs
        client.execute()
    return time.perf_counter() - start, peak[0]


def clean(notebook):
    """Leave out what must not be committed: live views (the picture stays), widget state, version numbers."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata.get("language_info", {}).pop("version", None)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(VIEW, None)


def complaints(notebook):
    """What a run left that a reader must not see."""
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                yield f"cell {number} writes to stderr: {output.text.strip()[:200]}"


def build(text):
    target = to_ipynb(text)
    notebook = nbformat.read(target, as_version=4)
    seconds, peak = run(notebook)
    clean(notebook)
    nbformat.write(notebook, target)
    return seconds, peak, list(complaints(notebook))


def check(text, times=1):
    notebook = nbformat.read(NOTEBOOKS / f"{text.stem}.ipynb", as_version=4)
    cells = []
    for cell in notebook.cells:
        cells.extend([cell] if cell.cell_type != "code" else [nbformat.from_dict(cell) for _ in range(times)])
    last = MOVE_CONTROLS + (NO_TORCH if text.name < "07" else "")
    notebook.cells = [*cells, nbformat.v4.new_code_cell(last)]
    seconds, peak = run(notebook)
    found = list(complaints(notebook))
    if peak and peak > MEMORY_LIMIT_MB:
        found.append(f"the kernel used {peak:.0f} MB, more than {MEMORY_LIMIT_MB}")
    return seconds, peak, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "check", "twice"])
    parser.add_argument("numbers", nargs="*", help="two digits each, such as 04")
    arguments = parser.parse_args()
    act = {"build": build, "check": check, "twice": lambda text: check(text, times=2)}[arguments.action]
    failed = False
    for text in chosen(arguments.numbers):
        seconds, peak, found = act(text)
        print(f"{text.stem:34} {seconds:6.1f} s  {peak or float('nan'):6.0f} MB", *found, sep="\n    ", flush=True)
        failed |= bool(found)
    sys.exit(failed)


if __name__ == "__main__":
    main()
