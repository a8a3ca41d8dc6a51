"""Warnings about missing, damaged or truncated run files."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from horde_agent.record import Stream
from horde_agent.runs.config import LearnConfig
from horde_agent.runs.run_folder import RunFolder, read_csv

T = TypeVar("T")

_LATER = ("parity", "snapshot_every", "on_alarm", "columns", "shards", "ray")  # settings that older runs did not have


class Notes:
    """Collects warnings while files are read and sections are written.

    Attributes:
        sentences: The warnings.
    """

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def read(self, file: Path, reader: Callable[[Path], T]) -> T | None:
        """Return the contents of a file; if it is missing or damaged, add a warning and return None."""
        try:
            return reader(file)
        except FileNotFoundError:
            self.sentences.append(f"{file.name} is missing.")
        except Exception as error:  # a damaged file can raise anything, and the other files are still of use
            self.sentences.append(f"{file.name} is damaged: {_short(error)}.")
        return None

    def drawn(self, what: str, files: Sequence[Path], draw: Callable[[], str]) -> str:
        """Return a section; if it cannot be made from its files, add a warning and return an empty string."""
        try:
            return draw()
        except Exception as error:  # as above
            names = " and ".join(file.name for file in files)
            self.sentences.append(f"{what} cannot be made from {names}: {_short(error)}.")
        return ""

    def compare(
        self,
        folder: RunFolder,
        summary: Mapping[str, Any],
        stream: Stream | None,
        found: int | None,
        questions: Sequence[Mapping[str, str]] | None,
    ) -> None:
        """Add a warning for each file that contains less than the summary says; None is an unreadable file.

        Args:
            folder: The run's.
            summary: From summary.json.
            stream: The end of the recording.
            found: Number of recorded excursions.
            questions: Lines of questions.csv.
        """
        steps, n_tests, n_questions = (summary.get(key) for key in ("steps", "n_excursions", "n_questions"))
        if stream is not None:
            last = int(stream.rows["step"][-1]) if len(stream) else 0
            if isinstance(steps, int) and last < steps:
                self.sentences.append(f"{folder.life.name} is cut off: it ends at step {last:,} of {steps:,}.")
            self.sentences += [f"{fault}." for fault in stream.faults]
        if isinstance(n_tests, int) and found is not None and found < n_tests:
            self.sentences.append(
                f"{folder.excursions.name} is cut off: it contains {found:,} of {n_tests:,} excursions."
            )
        if isinstance(n_questions, int) and questions is not None and len(questions) < n_questions:
            self.sentences.append(
                f"{folder.questions.name} is cut off: it contains {len(questions):,} of {n_questions:,} questions."
            )


def settings(file: Path) -> dict[str, Any]:
    """Read a config.toml."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def missing_settings(file: Path) -> list[str]:
    """Return the settings missing from a config.toml, which is written whole with its versions last."""
    text = file.read_text(encoding="utf-8")
    there = {*tomllib.loads(text), *(line.split()[1] for line in text.splitlines() if line.startswith("# "))}
    asked = [field.name for field in fields(LearnConfig) if field.name not in _LATER]
    return [name for name in (*asked, "versions") if name not in there]


def table(file: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: If the file contains something else.
    """
    found = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object, found {str(found)[:40]!r}")
    return found


def lines(file: Path) -> list[dict[str, str]]:
    """Return the lines of a CSV with a header; a truncated last line is omitted.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If another line does not fit the header.
    """
    if not file.is_file():
        raise FileNotFoundError(file)
    found = read_csv(file)
    for number, line in enumerate(found, 2):
        if None in line or None in line.values():
            if number == len(found) + 1:
                return found[:-1]
            raise ValueError(f"line {number} does not fit the header")
    return found


def _short(error: Exception) -> str:
    """Return an error's message on one line of at most 200 characters, or its class name if it has none."""
    said = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, KeyError):
        said = f"it lacks {said}"
    return (said if len(said) <= 200 else said[:200] + "...") or type(error).__name__
