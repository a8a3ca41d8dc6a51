"""A hook of the site: links to files outside docs/ become names; the gallery page shows its scripts."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify

GALLERY = Path(__file__).parent / "gallery"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with links to files above docs/ replaced by names; the gallery page with every script."""
    if page.file.src_uri == "gallery/index.md":
        scripts = sorted(GALLERY.glob("*.py"))
        for script in scripts:
            markdown = markdown.replace(f"]({script.name})", f"](#{slugify(_title(script), '-')})")
        markdown += "".join(_shown(script) for script in scripts)
    above = r"\[([^\]]+)\]\(\s*\.\./((?:examples|horde_\w+|assets|tests)/[^)\s]+|[A-Z]+\.md)\s*\)"
    return re.sub(above, r"\1 (`\2`)", markdown)


def _docstring(script: Path) -> str:
    return ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or script.stem


def _title(script: Path) -> str:
    """Return the heading of a script's section."""
    return _docstring(script).partition(": ")[0]


def _shown(script: Path) -> str:
    """Return a script of the gallery: its docstring, picture and code."""
    code = script.read_text(encoding="utf-8")
    title, _, says = _docstring(script).partition(": ")
    return f"\n\n## {title}\n\n{says}\n\n![{title}]({script.stem}.png)\n\n````python\n{code}````\n"
