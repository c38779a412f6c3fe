"""Bring a notebook back as it was delivered; the reader's copy is kept beside it.

python tools/reset.py 04
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def delivered(path):
    """The bytes of the notebook as delivered: from git, or without git made from its text (then without outputs)."""
    name = path.relative_to(ROOT).as_posix()
    try:
        return subprocess.run(["git", "show", f"HEAD:{name}"], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        text = path.parent / "text" / f"{path.stem}.md"
        command = [sys.executable, "-m", "jupytext", "--quiet", "--to", "ipynb", "--output", "-", text]
        return subprocess.run(command, capture_output=True, check=True).stdout


def reset(path):
    """Write the delivered notebook to `path`. Returns where the reader's copy went, or None if nothing had changed."""
    fresh = delivered(path)
    kept = None
    if path.exists() and path.read_bytes() != fresh:
        kept = path.with_name(f"{path.stem}.mine-{time.strftime('%Y%m%d-%H%M%S')}.ipynb")
        path.rename(kept)
    path.write_bytes(fresh)
    return kept


def main():
    number = sys.argv[1] if len(sys.argv) == 2 else ""
    texts = sorted((ROOT / "notebooks" / "text").glob(f"{number}_*.md")) if number else []
    if not texts:
        sys.exit("Say which notebook, by its two digits: make reset N=04")
    path = ROOT / "notebooks" / f"{texts[0].stem}.ipynb"
    kept = reset(path)
    print(
        f"{path.name} is as it was delivered. "
        + (f"Yours is {kept.name}, beside it." if kept else "It had not changed.")
    )


if __name__ == "__main__":
    main()
