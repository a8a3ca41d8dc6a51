"""A hook of the site: what a page links to outside docs/ is a file of the repository, named as such and not linked."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page whose links to files above docs/ are their names."""
    return re.sub(r"\[([^\]]+)\]\(\s*\.\./((?:examples|horde_\w+|assets|tests)/[^)\s]+)\s*\)", r"\1 (`\2`)", markdown)
