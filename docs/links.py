"""A hook of the site: links to files outside docs/ become names; scripts of the gallery are shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GALLERY = Path(__file__).parent / "gallery"
SCRIPT_LINE = re.compile(r"^\[(\w+\.py)\]\(\1\)$", re.MULTILINE)
OUTSIDE = re.compile(
    r"\[([^\]]+)\]\(\s*\.\./((?:examples|horde_\w+|assets|tests)/[^)\s]+|[A-Z]+\.md)\s*\)"
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with links to files above docs/ replaced by names; the gallery with its scripts."""
    if page.file.src_uri == "gallery/index.md":
        markdown = SCRIPT_LINE.sub(_folded_script, markdown)
    return OUTSIDE.sub(r"\1 (`\2`)", markdown)


def _folded_script(line: re.Match[str]) -> str:
    """Return a script's code, folded, in the place of a link to it."""
    name = line[1]
    code = (GALLERY / name).read_text(encoding="utf-8")
    indented = "".join(f"    {code_line}\n" for code_line in code.splitlines())
    return f'??? example "{name}"\n    ````python\n{indented}    ````\n'
