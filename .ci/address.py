"""Enter the repository's public address wherever it stands.

    python .ci/address.py https://github.com/OWNER/REPOSITORY
    python .ci/address.py none      # no badge and no link, as before there is an address

`[project.urls]` in pyproject.toml is its home; `disagreeing` compares the other places with it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GITHUB = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+)")
COLAB = "https://colab.research.google.com"
NOTEBOOK = (
    "[![Open in Colab]({colab}/assets/colab-badge.svg)]"
    "({colab}/github/{owner}/{name}/blob/notebooks/{notebook}.ipynb)"
)
TESTS = (
    "[![tests]({address}/actions/workflows/ci.yml/badge.svg)]({address}/actions/workflows/ci.yml)"
)
NOTEBOOKS = ("what_a_robot_can_know", "learn_from_my_log", "is_this_policy_better")


class Place(NamedTuple):
    """Lines that stand behind a line of a file if the address is set, and are absent otherwise."""

    file: str
    after: str
    lines: str


PLACES = (
    Place("pyproject.toml", "[project.urls]", 'Repository = "{address}"'),
    Place("CITATION.cff", "license: Apache-2.0", 'repository-code: "{address}"'),
    Place(
        "mkdocs.yml",
        "site_name: Horde",
        "repo_url: {address}\nsite_url: https://{owner}.github.io/{name}/",
    ),
    Place("packaging/conda/recipe.yaml", "about:", "  homepage: {address}"),
    Place("README.md", "# horde-gvf", f"\n{TESTS} {NOTEBOOK.replace('{notebook}', NOTEBOOKS[0])}"),
    Place(
        "examples/notebooks/README.md",
        "| `is_this_policy_better` | two policies judged from a log |",
        "\n"
        + "\n".join(f"* {NOTEBOOK.replace('{notebook}', name)} `{name}`" for name in NOTEBOOKS),
    ),
)


def written(place: Place, text: str, address: str | None) -> str:
    """Return a file's text with the lines of a place for an address, or without them.

    Raises:
        ValueError: If the line is missing that they follow, or the address is not that of a repository.
    """
    if f"\n{place.after}\n" not in f"\n{text}":
        raise ValueError(f"{place.file} has no line {place.after!r}, which the address follows")
    any_address = re.escape(place.lines)
    for field in ("address", "owner", "name"):
        any_address = any_address.replace(rf"\{{{field}\}}", r"[\w.:/-]+")
    any_address = any_address.replace(r"\{colab\}", re.escape(COLAB))
    present = re.compile(rf"^({re.escape(place.after)}\n){any_address}\n", re.MULTILINE)
    bare = present.sub(r"\1", text, count=1)
    if address is None:
        return bare
    match = GITHUB.fullmatch(address)
    if match is None:
        raise ValueError(f"an address is https://github.com/OWNER/REPOSITORY, not {address!r}")
    lines = place.lines.format(address=address, owner=match[1], name=match[2], colab=COLAB)
    completed = f"\n{bare}".replace(f"\n{place.after}\n", f"\n{place.after}\n{lines}\n", 1)
    return completed[1:]


def address_of(root: Path) -> str | None:
    """Return the address in pyproject.toml, None before there is one."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address: str | None = project["urls"].get("Repository")
    return address


def disagreeing(root: Path) -> list[str]:
    """Return the files that have another address than pyproject.toml, or lack it."""
    address = address_of(root)
    texts = [(place, (root / place.file).read_text(encoding="utf-8")) for place in PLACES]
    return [place.file for place, text in texts if written(place, text, address) != text]


def enter(root: Path, address: str | None) -> None:
    """Write the address, or its absence, into all files, or into none if one does not fit."""
    texts = {}
    for place in PLACES:
        path = root / place.file
        texts[path] = written(place, path.read_text(encoding="utf-8"), address)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


def main(words: list[str]) -> int:
    """Enter the address in `words`, and return the exit code."""
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    address: str | None = words[0].rstrip("/")
    if address == "none":
        address = None
    try:
        enter(ROOT, address)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
