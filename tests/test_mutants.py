"""The list of deliberate mistakes stays true: each can still be made, and the tests that must notice it are there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants import ROOT, Mutant, listed


def defined(path: Path) -> set[str]:
    """Return the tests of a file, as their node ids name them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{m.name}" for m in node.body if isinstance(m, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("mutant", listed(), ids=lambda m: m.name)
def test_the_mistake_can_be_made_and_its_tests_exist(mutant: Mutant) -> None:
    assert mutant.applied(ROOT) != (ROOT / mutant.file).read_text(encoding="utf-8")
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file()
        assert not name or name.partition("[")[0] in defined(ROOT / file)


def test_no_two_mistakes_have_one_name() -> None:
    names = [mutant.name for mutant in listed()]
    assert len(names) == len(set(names))


def test_a_mistake_whose_text_is_gone_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("x = 1\ny = 1\n")
    with pytest.raises(ValueError, match=r"one for two: its text occurs 2 times in file\.py"):
        Mutant("one for two", "file.py", "= 1", "= 2", ("test",)).applied(tmp_path)
