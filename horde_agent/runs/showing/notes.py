"""Warnings about missing and damaged files of a run, for its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from horde_agent.record import Stream
from horde_agent.runs.keeping.folder import RunFolder

T = TypeVar("T")


class Notes:
    """Collects warnings, `sentences`, while files are read and sections are written."""

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
        """Add a warning for each file that contains less than the summary says; None is an unreadable file."""
        steps, n_tests, n_questions = (summary.get(key) for key in ("steps", "n_excursions", "n_questions"))
        if stream is not None:
            last = int(stream.rows["step"][-1]) if len(stream) else 0
            if isinstance(steps, int) and last < steps:
                self.sentences.append(f"{folder.life.name} is cut off: it ends at step {last:,} of {steps:,}.")
            self.sentences += [f"{fault}." for fault in stream.faults]
        n_lines = None if questions is None else len(questions)
        of_excursions, of_questions = (folder.excursions, found, n_tests), (folder.questions, n_lines, n_questions)
        for (file, there, expected), unit in ((of_excursions, "excursions"), (of_questions, "questions")):
            if isinstance(expected, int) and there is not None and there < expected:
                self.sentences.append(f"{file.name} is cut off: it contains {there:,} of {expected:,} {unit}.")


def _short(error: Exception) -> str:
    """Return an error's message on one line of at most 200 characters, or its class name if it has none."""
    said = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, KeyError):
        said = f"it lacks {said}"
    return (said if len(said) <= 200 else said[:200] + "...") or type(error).__name__
