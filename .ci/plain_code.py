#!/usr/bin/env python3
"""Check that the lines added to Python files state one thing each; `make check` runs this.

Refused are places for which ruff has no rule:

    tuples     a, b = x, y with values that are written out; a swap is no such place
    ternaries  x if c else y inside another one, or as one argument among others
    walrus     := outside a while condition
    names      values assigned to a name that does not say what they are: found, own, given, ...

Lines are compared with the commit from which this branch left main, or on main with the commit
before the last. Without such a commit (a shallow clone, or no Git repository) all files are
checked, and at most so many places per 1,000 lines may be found as in LIMITS.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

FOLDERS = ("horde_agent", "horde_env", "tests", "examples", "docs", ".ci")
# Places per 1,000 lines of all files
LIMITS = {"tuples": 3.0, "ternaries": 3.0, "walrus": 0.3, "names": 1.0}
MAIN_BRANCHES = ("origin/main", "main", "origin/master", "master")
_NO_NOUNS = """
    after again asked back before by came done each every far found given gone got held here how
    into it its kept known lived made meanwhile mine now of once onto other others own put ran
    rest said seen since so taken that there this those to told until went what which whose
"""
UNCLEAR_NAMES = frozenset(_NO_NOUNS.split())


class Place(NamedTuple):
    """A line that states more than one thing, or that does not name its value."""

    path: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.text}"


def is_packed(node: ast.Assign) -> bool:
    """Return whether several written-out values are assigned in one statement."""
    target = node.targets[0]
    if not (isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)):
        return False
    names = sorted(ast.unparse(name) for name in target.elts)
    values = sorted(ast.unparse(value) for value in node.value.elts)
    return names != values


def is_unclear(target: ast.expr) -> bool:
    """Return whether a target is, or unpacks into, a local name that is no noun."""
    targets = [target]
    if isinstance(target, ast.Tuple):
        targets = target.elts
    return any(isinstance(name, ast.Name) and name.id in UNCLEAR_NAMES for name in targets)


def places_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line number and kind of each place in a file's syntax tree."""
    in_while = set[ast.AST]()
    in_ternary = set[ast.AST]()
    among_others = set[ast.AST]()
    # The parents of a node come before it
    for node in ast.walk(tree):
        match node:
            case ast.While():
                in_while.update(ast.walk(node.test))
            case ast.Call():
                arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
                if len(arguments) > 1:
                    among_others.update(arguments)
            case ast.Assign():
                if is_packed(node):
                    yield node.lineno, "tuples"
                if any(map(is_unclear, node.targets)):
                    yield node.lineno, "names"
            case ast.IfExp():
                if node in in_ternary or node in among_others:
                    yield node.lineno, "ternaries"
                in_ternary.update(set(ast.walk(node)) - {node})
            case ast.NamedExpr():
                if node not in in_while:
                    yield node.lineno, "walrus"


def places_in(path: Path) -> list[Place]:
    """Return the places of one file, by line."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    numbered = sorted(places_of(ast.parse(text)))
    return [Place(path, line, kind, lines[line - 1].strip()) for line, kind in numbered]


def git(*words: str) -> str | None:
    """Return what Git writes, None if it fails or is not installed."""
    try:
        process = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    if process.returncode:
        return None
    return process.stdout.strip()


def older_commit() -> str | None:
    """Return the commit that lines are compared with, None without one."""
    head = git("rev-parse", "HEAD")
    for branch in MAIN_BRANCHES:
        base = git("merge-base", "HEAD", branch)
        if base and base != head:
            return base
    return git("rev-parse", "--verify", "--quiet", "HEAD~1")


def added_lines(commit: str) -> dict[Path, set[int]]:
    """Return the numbers of the lines added since a commit, committed or not, by file."""
    difference = git("diff", "--unified=0", "--no-color", commit, "--", "*.py") or ""
    added = defaultdict[Path, set[int]](set)
    path = Path()
    for line in difference.splitlines():
        if line.startswith("+++ b/"):
            path = Path(line.removeprefix("+++ b/"))
        hunk = re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)
        if hunk:
            first = int(hunk[1])
            added[path].update(range(first, first + int(hunk[2] or 1)))
    for name in (
        git("ls-files", "--others", "--exclude-standard", "--", "*.py") or ""
    ).splitlines():
        path = Path(name)
        n_lines = len(path.read_text(encoding="utf-8").splitlines())
        added[path] = set(range(1, n_lines + 1))
    return dict(added)


def check_added_lines(commit: str) -> int:
    """Print the places on lines added since a commit; return an exit status."""
    places = []
    for path, lines in sorted(added_lines(commit).items()):
        if path.is_file():
            places += [place for place in places_in(path) if place.line in lines]
    for place in places:
        print(place)
    if places:
        print(f"{len(places)} added lines state more than one thing, or do not name their value")
    return int(bool(places))


def check_all_files() -> int:
    """Compare the number of places in all files with the limits; return an exit status."""
    print("no older commit to compare lines with: all files are checked")
    places = []
    n_lines = 0
    for folder in FOLDERS:
        for path in sorted(Path(folder).rglob("*.py")):
            n_lines += len(path.read_text(encoding="utf-8").splitlines())
            places += places_in(path)
    counts = Counter(place.kind for place in places)
    exceeded = [kind for kind, limit in LIMITS.items() if counts[kind] * 1000 > limit * n_lines]
    for place in places:
        if place.kind in exceeded:
            print(place)
    for kind in exceeded:
        share = 1000 * counts[kind] / n_lines
        print(f"{kind}: {share:.1f} per 1,000 lines, at most {LIMITS[kind]} are allowed")
    return int(bool(exceeded))


def main(arguments: Sequence[str]) -> int:
    """Check the added lines, or all files if there is no older commit; return an exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--since", metavar="COMMIT", help="the commit to compare lines with")
    options = parser.parse_args(arguments)
    folder = git("rev-parse", "--show-toplevel")
    if folder:
        os.chdir(folder)
    commit = options.since or older_commit()
    if commit is None:
        return check_all_files()
    return check_added_lines(commit)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
