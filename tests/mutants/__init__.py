"""`make mutants`: deliberate mistakes, one at a time, and the tests that must notice each.

    python -m tests.mutants                       # all of them: hours
    python -m tests.mutants begin sb3             # those whose name or file holds one of these words

The mistakes stand in the TOML files of this folder, each with the text that it replaces, which must occur once in its
file, and the tests that must fail. The tests run in a copy of the tracked files, first without any mistake, where they
must pass. `tests/test_mutants.py` keeps the lists true: each text is there, each test exists.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LISTS = Path(__file__).parent


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes:
        name: What is done wrong, in a sentence.
        file: Where, relative to the repository.
        old: The right text, which occurs once there.
        new: What stands there instead.
        tests: Node ids that must fail, at least one of them.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, root: Path) -> str:
        """Return the file's text with the mistake in it.

        Raises:
            ValueError: If the text to replace does not occur exactly once.
        """
        text = (root / self.file).read_text(encoding="utf-8")
        if (n := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: its text occurs {n} times in {self.file}, not once; write the mistake anew")
        return text.replace(self.old, self.new)


def listed() -> list[Mutant]:
    """Return the mistakes of all lists."""
    return [
        Mutant(**{**entry, "tests": tuple(entry["tests"])})
        for path in sorted(LISTS.glob("*.toml"))
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    ]
