"""Every test, also each notebook's, trains into an empty folder and never sees the reader's own runs."""

import os
import tempfile

import pytest

_runs = tempfile.TemporaryDirectory(prefix="course-runs-")
os.environ["COURSE_RUNS"] = _runs.name  # before any kernel starts: kernels inherit it
os.environ.setdefault("MPLBACKEND", "agg")


@pytest.fixture(autouse=True)
def _empty_runs_folder(tmp_path, monkeypatch, request):
    if request.node.fspath.ext == ".py":
        monkeypatch.setenv("COURSE_RUNS", str(tmp_path / "runs"))
