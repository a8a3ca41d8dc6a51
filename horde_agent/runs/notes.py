"""What is wrong with the files of a run, in sentences for its report: damaged, missing, cut off, or too short."""

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
    """Collects sentences while files are read and sections drawn.

    Attributes:
        said: The sentences.
    """

    def __init__(self) -> None:
        self.said: list[str] = []

    def read(self, file: Path, reader: Callable[[Path], T]) -> T | None:
        """Return what a file holds; where it is missing or damaged, note that and return None."""
        try:
            return reader(file)
        except FileNotFoundError:
            self.said.append(f"{file.name} is missing.")
        except Exception as error:  # whatever a damaged file does to its reader, the other files are worth reading
            self.said.append(f"{file.name} is damaged: {_short(error)}.")
        return None

    def drawn(self, what: str, files: Sequence[Path], draw: Callable[[], str]) -> str:
        """Return a section; where it cannot be drawn from its files, note that and return an empty one."""
        try:
            return draw()
        except Exception as error:  # as above
            names = " and ".join(file.name for file in files)
            self.said.append(f"{what} cannot be drawn from {names}: {_short(error)}.")
        return ""

    def compare(
        self,
        folder: RunFolder,
        summary: Mapping[str, Any],
        stream: Stream | None,
        found: int | None,
        questions: Sequence[Mapping[str, str]] | None,
    ) -> None:
        """Note which files hold less than the summary tells of; None stands for one that cannot be read.

        Args:
            folder: Of the run.
            summary: Of the run.
            stream: The end of its record.
            found: Excursions that there are.
            questions: The lines of its table.
        """
        steps, n_tests, n_questions = (summary.get(key) for key in ("steps", "n_excursions", "n_questions"))
        if stream is not None:
            last = int(stream.rows["step"][-1]) if len(stream) else 0
            if isinstance(steps, int) and last < steps:
                self.said.append(f"{folder.life.name} is cut off: it ends at step {last:,} of {steps:,}.")
            self.said += [f"{fault}." for fault in stream.faults]
        if isinstance(n_tests, int) and found is not None and found < n_tests:
            self.said.append(f"{folder.excursions.name} is cut off: it holds {found:,} of {n_tests:,} excursions.")
        if isinstance(n_questions, int) and questions is not None and len(questions) < n_questions:
            self.said.append(
                f"{folder.questions.name} is cut off: it holds {len(questions):,} of {n_questions:,} questions."
            )


def settings(file: Path) -> dict[str, Any]:
    """Return what a run's config.toml holds."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def missing_settings(file: Path) -> list[str]:
    """Return what a run's config.toml ought to hold and does not: it is written whole, with its versions last."""
    text = file.read_text(encoding="utf-8")
    there = {*tomllib.loads(text), *(line.split()[1] for line in text.splitlines() if line.startswith("# "))}
    asked = [field.name for field in fields(LearnConfig) if field.name not in _LATER]
    return [name for name in (*asked, "versions") if name not in there]


def table(file: Path) -> dict[str, Any]:
    """Return a table of names and values.

    Raises:
        ValueError: If the file holds something else.
    """
    found = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"it holds no table of names and values but {str(found)[:40]!r}")
    return found


def lines(file: Path) -> list[dict[str, str]]:
    """Return the lines of a table with a head; where one is cut off, those before it.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line in the middle does not fit the head.
    """
    if not file.is_file():
        raise FileNotFoundError(file)
    found = read_csv(file)
    for number, line in enumerate(found, 2):
        if None in line or None in line.values():
            if number == len(found) + 1:
                return found[:-1]
            raise ValueError(f"line {number} does not fit its head")
    return found


def _short(error: Exception) -> str:
    """Return what an error says, in a line that a reader takes in; an error without words by its kind."""
    said = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, KeyError):
        said = f"it lacks {said}"
    return (said if len(said) <= 200 else said[:200] + "...") or type(error).__name__
