"""Make the notebooks from the scripts and pages whose code they show, and run them.

    python examples/notebooks/make.py          # into .build/notebooks
    python examples/notebooks/make.py --run    # with their outputs

Code stands in docs/gallery/*.py and docs/*.md alone, where tests and `make docs` run it.
"""

from __future__ import annotations

import ast
import re
import sys
import time
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / ".build" / "notebooks"
NOTEBOOKS = {
    "what_a_robot_can_know": (
        "# What a robot can know",
        "docs/gallery/nexting.py",
        "docs/gallery/what_if.py",
        "docs/gallery/lamp_moves.py",
    ),
    "learn_from_my_log": ("# Learn from my log", "docs/gallery/own_log.py", "docs/data.md"),
    "is_this_policy_better": ("# Is this policy better?", "docs/judging.md"),
}
LAST_SECTION = {"docs/data.md": "## A Minari", "docs/judging.md": "## The estimates"}
"""Where the part of a page ends that needs no files of the reader's."""
INSTALL = "In Colab, or where horde-gvf is not installed, run `%pip install horde-gvf` first."
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")


def cells_of_script(path: Path) -> list[NotebookNode]:
    """Return a script's docstring, its imports and the rest of it, which shows the figure."""
    text = path.read_text(encoding="utf-8")
    docstring, *statements = ast.parse(text).body
    imports = [node for node in statements if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = text.splitlines(keepends=True)
    head = "".join(lines[docstring.end_lineno or 0 : imports[-1].end_lineno])
    code = "".join(lines[imports[-1].end_lineno or 0 :])
    shown = re.sub(r"^figure\.savefig\(.*\n", "plt.show()\n", code, flags=re.MULTILINE)
    title = ast.get_docstring(ast.parse(text)) or ""
    return [
        new_markdown_cell(f"## {title}"),
        new_code_cell(head.strip()),
        new_code_cell(shown.strip()),
    ]


def cells_of_page(path: Path) -> list[NotebookNode]:
    """Return a page's text and its Python blocks; blocks of output come by themselves."""
    page = path.read_text(encoding="utf-8").partition("\n\n")[2]
    page = page.partition(LAST_SECTION[path.relative_to(ROOT).as_posix()])[0]
    cells: list[NotebookNode] = []
    position = 0
    for block in BLOCK.finditer(page):
        language = block[1]
        if language not in ("python", "text"):
            continue
        cells.append(new_markdown_cell(LINK.sub(r"\1", page[position : block.start()]).strip()))
        if language == "python":
            cells.append(new_code_cell(block[2].strip()))
        position = block.end()
    cells.append(new_markdown_cell(LINK.sub(r"\1", page[position:]).strip()))
    return [cell for cell in cells if cell.source]


def notebook(name: str) -> NotebookNode:
    """Return one of `NOTEBOOKS`, without outputs."""
    title, *sources = NOTEBOOKS[name]
    cells = [new_markdown_cell(f"{title}\n\n{INSTALL}")]
    for source in sources:
        path = ROOT / source
        if path.suffix == ".py":
            cells += cells_of_script(path)
        else:
            cells += cells_of_page(path)
    for number, cell in enumerate(cells):
        cell["id"] = f"{name}-{number}"  # the same in each build
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def main(words: list[str]) -> int:
    """Write the notebooks, with `--run` after running them, and return the exit code."""
    OUT.mkdir(parents=True, exist_ok=True)
    for name in NOTEBOOKS:
        content = notebook(name)
        began = time.perf_counter()
        if words == ["--run"]:
            from nbclient import NotebookClient

            NotebookClient(content, timeout=300, resources={"metadata": {"path": OUT}}).execute()
        nbformat.validate(content)
        path = OUT / f"{name}.ipynb"
        nbformat.write(content, path)
        print(f"{path.relative_to(ROOT)}: {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
