"""A hook of the site: what a page links to outside docs/ is named and not linked; the gallery shows its scripts."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

GALLERY = Path(__file__).parent / "gallery"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page whose links to files above docs/ are their names; of the gallery, with all that is in it."""
    if page.file.src_uri == "gallery/index.md":
        markdown += "".join(_shown(script) for script in sorted(GALLERY.glob("*.py")))
    return re.sub(r"\[([^\]]+)\]\(\s*\.\./((?:examples|horde_\w+|assets|tests)/[^)\s]+)\s*\)", r"\1 (`\2`)", markdown)


def _shown(script: Path) -> str:
    """Return a script of the gallery: what its docstring says, its picture, and itself."""
    code = script.read_text(encoding="utf-8")
    title, _, says = (ast.get_docstring(ast.parse(code)) or script.stem).partition(": ")
    return f"\n\n## {title}\n\n{says}\n\n![{title}]({script.stem}.png)\n\n````python\n{code}````\n"
