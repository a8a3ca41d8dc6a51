"""questions.csv: a line per question, with its scores and what it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from horde_agent.gvf import GVF
from horde_agent.interface import Interface
from horde_agent.questions import QuestionColumns, question_columns
from horde_agent.runs.storage.files import write_csv

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


def columns_of(line: Mapping[str, str]) -> QuestionColumns:
    """Return what the question of a line is about."""
    return QuestionColumns(
        family=line["family"],
        policy=line["policy"],
        gamma=float(line["gamma"] or "nan"),
        channel=line["channel"],
    )
