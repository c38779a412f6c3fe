"""The package as a whole: cheap to import, one seed for everything, imports that go one way."""

import ast
import random
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import course_utils
from course_utils import drawings

PACKAGE = Path(course_utils.__file__).parent
ORDER = ["attention", "text", "vectors", "data", "model", "train", "generate", "introspect"]
LIGHT = {"attention", "text", "vectors", "data"}


def modules_after(code):
    command = [sys.executable, "-c", f"{code}; import sys; print(' '.join(sys.modules))"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_is_cheap():
    assert not {"torch", "matplotlib", "numpy"} & modules_after("import course_utils; course_utils.shifted_seed(1)")


@pytest.mark.parametrize("name", sorted(LIGHT))
def test_numpy_modules_bring_in_neither_torch_nor_matplotlib(name):
    loaded = modules_after(f"from course_utils import {name}")
    assert "numpy" in loaded and not {"torch", "matplotlib"} & loaded


def test_views_do_not_bring_in_torch():
    assert "torch" not in modules_after("from course_utils import plots, widgets, drawings")


def imported_from_the_package(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "course_utils":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("course_utils."):
            yield node.module.split(".")[1]


def test_imports_go_one_way():
    for path in PACKAGE.glob("*.py"):
        if path.stem in ORDER:
            later = ORDER[ORDER.index(path.stem) + 1 :]
            assert not set(imported_from_the_package(path)) & {*later, "plots", "widgets"} - {"plots"}, path.stem
    for path in [PACKAGE / "plots.py", *(PACKAGE / "widgets").glob("*.py")]:
        assert not set(imported_from_the_package(path)) & set(ORDER[4:]), path.stem


def test_seed_reaches_every_generator(monkeypatch):
    import torch

    def draw(n):
        own = course_utils.seed(n)
        return random.random(), np.random.rand(), torch.rand(1).item(), own.random()

    first = draw(0)
    assert draw(0) == first and not set(draw(1)) & set(first)
    monkeypatch.setenv("COURSE_SEED_SHIFT", "1")
    shifted = draw(0)
    monkeypatch.setenv("COURSE_SEED_SHIFT", "0")
    assert shifted == draw(1)
    monkeypatch.setenv("COURSE_SEED_SHIFT", "one")
    with pytest.raises(ValueError, match="whole number"):
        course_utils.seed(0)


def test_an_unknown_module_is_an_attribute_error():
    with pytest.raises(AttributeError, match="it has attention"):
        course_utils.atention  # noqa: B018
    assert "attention" in dir(course_utils)


def test_the_drawing_has_every_part_of_the_paper():
    ax = drawings.architecture()
    words = [t.get_text() for t in ax.texts]
    assert words.count("self-attention") == 1 and words.count("masked self-attention") == 1
    assert words.count("cross-attention") == 1
    assert words.count("add, normalise") == 5  # two in the encoder, three in the decoder
    assert words.count("feed-forward") == 2
    plt.close(ax.figure)


def test_every_asset_is_in_notice():
    notice = (PACKAGE.parent / "NOTICE").read_text(encoding="utf-8")
    assets = [p.name for p in (PACKAGE / "assets").iterdir() if p.is_file()]
    assert assets and [name for name in assets if name not in notice] == []
