"""Draw the pictures of the README and of the pages into docs/images, by running the blocks that they show.

    python docs/pictures.py

Each page's Python blocks up to the last one that saves a figure run in one namespace, in the folder
of the pictures.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

DOCS = Path(__file__).resolve().parent
PAGES = (DOCS.parent / "README.md", DOCS / "index.md")
STYLE = {
    "figure.figsize": (7.0, 2.8),
    "figure.constrained_layout.use": True,
    "savefig.dpi": 120,
    "legend.frameon": False,
}


def main() -> None:
    """Draw every picture that a block of `PAGES` saves."""
    os.chdir(DOCS / "images")
    for page in PAGES:
        blocks = re.findall(
            r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
        last = max((i for i, block in enumerate(blocks) if "savefig" in block), default=-1)
        names: dict[str, object] = {}
        with pyplot.rc_context(STYLE):
            for block in blocks[: last + 1]:
                exec(compile(block, str(page), "exec"), names)
                pyplot.close("all")


if __name__ == "__main__":
    main()
