"""Write the repository's address (pyproject.toml, project URLs) into badges and set-up cells.

While the address is not set there are no badges, and a set-up cell says how to install by hand.
The badges open the tag `v` + version, not a branch that moves: tag the commit before publishing the links.
"""

import re
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
BADGES = re.compile(r"<!-- launch -->.*?<!-- /launch -->", re.S)
ADDRESS_LINE = re.compile(r'^REPOSITORY = ".*"$', re.M)


def settings(pyproject):
    """(address or "", tag) from the text of pyproject.toml; ValueError for an address that is not GitHub's."""
    version = re.search(r'^version = "([^"]+)"', pyproject, re.M).group(1)
    found = re.search(r'^Repository = "([^"]*)"', pyproject, re.M)
    address = found.group(1).rstrip("/").removesuffix(".git") if found else ""
    if address and not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", address):
        raise ValueError(
            f"Repository must look like https://github.com/OWNER/NAME; in pyproject.toml it is {address!r}."
        )
    return address, f"v{version}"


def badges(address, tag, notebook):
    """The Markdown of both launch badges for a notebook's file name, or "" without an address."""
    if not address:
        return ""
    where = address.removeprefix("https://github.com/")
    binder = f"https://mybinder.org/v2/gh/{where}/{tag}?labpath=notebooks%2F{notebook}"
    colab = f"https://colab.research.google.com/github/{where}/blob/{tag}/notebooks/{notebook}"
    return (
        f"[![Open in Binder](https://mybinder.org/badge_logo.svg)]({binder}) "
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab})"
    )


def linked(source, address, tag, notebook):
    """`source` with both places written anew."""
    source = BADGES.sub(f"<!-- launch -->{badges(address, tag, notebook)}<!-- /launch -->", source)
    return ADDRESS_LINE.sub(f'REPOSITORY = "{address}"', source)


def main():
    address, tag = settings((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    plain = [
        ROOT / "README.md",
        ROOT / "tools" / "bootstrap_cell.py",
        *sorted((ROOT / "notebooks" / "text").glob("*.md")),
    ]
    for path in plain:
        notebook = f"{path.stem}.ipynb" if path.parent.name == "text" else "00_start_here.ipynb"
        path.write_text(linked(path.read_text(encoding="utf-8"), address, tag, notebook), encoding="utf-8")
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            cell.source = linked(cell.source, address, tag, path.name)
        nbformat.write(notebook, path)
    print(f"Badges and set-up cells now point to {address} at {tag}." if address else "No address is set: no badges.")


if __name__ == "__main__":
    main()
