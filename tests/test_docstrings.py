"""Docstrings give the shapes of array arguments, which signatures cannot."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import horde_agent

ROOT = Path(__file__).resolve().parents[1]
ARRAYS = {"Bools", "Floats", "Integers", "NDArray", "Observation", "Reals", "Tiles"}
SHAPE = re.compile(r"\bshapes?\b|\((?:n_\w+|[A-Z]|n)(?: \+ 1)?, ?(?:[^()]*)\)")


def public_functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield a module's public functions and methods by their names."""
    waiting: list[tuple[str, ast.Module | ast.ClassDef]] = [("", ast.parse(path.read_text(encoding="utf-8")))]
    while waiting:
        prefix, inside = waiting.pop()
        for node in inside.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                if isinstance(node, ast.ClassDef):
                    waiting.append((f"{prefix}{node.name}.", node))
                else:
                    yield f"{path.relative_to(ROOT)}:{node.lineno} {prefix}{node.name}", node


def takes_arrays(function: ast.FunctionDef) -> bool:
    """Return whether an argument is annotated as an array."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    names = (node for a in arguments if a.annotation for node in ast.walk(a.annotation))
    return any(isinstance(node, ast.Name) and node.id in ARRAYS for node in names)


def test_functions_with_array_arguments_document_their_shapes() -> None:
    lacking = [
        name
        for path in sorted((ROOT / "horde_agent").rglob("*.py"))
        for name, function in public_functions(path)
        if takes_arrays(function) and not SHAPE.search(ast.get_docstring(function) or "")
    ]
    assert lacking == []


@pytest.mark.parametrize("name", [name for name in horde_agent.__all__ if inspect.isclass(getattr(horde_agent, name))])
def test_the_docstring_of_a_public_class_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(getattr(horde_agent, name)) or "")
