"""questions.csv: a line per question, with its scores and what it is about."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from horde_agent.gvf import GVF
from horde_agent.interface import Interface
from horde_agent.questions import QuestionColumns, question_columns
from horde_agent.runs.storage.files import number_in, read_lines, write_csv

SCORE_COLUMNS = (
    "name",
    "nmsre",
    "nmsre_of_persistence",
    "variance",
    "n_tests",
    "mspbe_scalar",
    "mspbe_vector",
    "diverged",
    "n_updates",
    "mspbe_valid",
    "nearly_constant",
)
"""Name and scores. nmsre_of_persistence: that of "the present reading lasts", or of the mean return if the question is
not about a channel's sum. mspbe_valid: 0 while w has had too few updates. nearly_constant: see `scoring.nmsre`, empty
if unknown."""
MEAN_PREDICTOR_COLUMN = "nmsre_of_mean_predictor"
"""The NMSRE of always predicting the mean return; of a log alone."""


def write_questions(
    path: Path,
    questions: Sequence[GVF],
    interface: Interface,
    scores: Sequence[Sequence[object]],
    nmsre_of_mean: Sequence[float] | None = None,
) -> None:
    """Write questions.csv.

    Args:
        path: The file.
        questions: The questions.
        interface: Interface of the robot, for the names of channels and actions.
        scores: The values of `SCORE_COLUMNS` for each question.
        nmsre_of_mean: The NMSRE of always predicting the mean return, for each question of a log.

    Raises:
        OSError: If the file cannot be written.
    """
    names = [*SCORE_COLUMNS, *QuestionColumns._fields]
    columns = question_columns(questions, interface)
    lines: list[list[object]] = [
        [*score, *about] for score, about in zip(scores, columns, strict=True)
    ]
    if nmsre_of_mean is not None:
        names.append(MEAN_PREDICTOR_COLUMN)
        for line, value in zip(lines, nmsre_of_mean, strict=True):
            line.append(float(value))
    write_csv(path, names, lines)


class QuestionLine(NamedTuple):
    """A line of questions.csv; a number that is missing there is NaN."""

    name: str
    nmsre: float
    nmsre_of_persistence: float
    variance: float
    n_tests: int
    mspbe_scalar: float
    has_diverged: bool
    is_nearly_constant: bool
    about: QuestionColumns

    @property
    def is_scored(self) -> bool:
        """Whether it has an NMSRE that counts: that of a diverged demon does not."""
        return not (self.has_diverged or math.isnan(self.nmsre))


def read_questions(path: Path) -> list[QuestionLine]:
    """Read questions.csv.

    Raises:
        FileNotFoundError: If there is no such file.
        KeyError: If it lacks a column.
        ValueError: If a line does not fit the header, or a number is none.
    """
    return [_parsed(line) for line in read_lines(path)]


def _parsed(line: Mapping[str, str]) -> QuestionLine:
    about = QuestionColumns(
        family=line["family"],
        policy=line["policy"],
        gamma=number_in(line["gamma"]),
        channel=line["channel"],
    )
    return QuestionLine(
        name=line["name"],
        nmsre=number_in(line["nmsre"]),
        nmsre_of_persistence=number_in(line["nmsre_of_persistence"]),
        variance=number_in(line["variance"]),
        n_tests=int(line["n_tests"]),
        mspbe_scalar=number_in(line["mspbe_scalar"]),
        has_diverged=line["diverged"] == "1",
        is_nearly_constant=line["nearly_constant"] == "1",
        about=about,
    )
