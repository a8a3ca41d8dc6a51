"""Tables with a line per question: questions.csv, and held_out.csv, the scores of off-policy ones on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
    return [_question_line(line) for line in read_lines(path)]


def _question_line(line: Mapping[str, str]) -> QuestionLine:
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


# ---- held_out.csv ----------------------------------------------------------------------------------------------------

_HELD_OUT_COLUMNS = (
    "question",
    "policy",
    "gamma",
    "n_stretches",
    "effective_size",
    "nmsre",
    "nmsre_of_persistence",
    "low",
    "high",
    "is_judged",
    "reason",
    "by_group",
)


class HeldOutScore(NamedTuple):
    """The score of a question on held-out rows; numbers are NaN if it was not judged.

    Attributes:
        question: Its name.
        policy: Name of the policy that it is about.
        gamma: Its continuation; NaN for a function.
        n_stretches: Number of stretches of rows.
        effective_size: Effective number of them after one time scale.
        nmsre: Its NMSRE.
        nmsre_of_persistence: That of "the present reading lasts".
        low: Lower end of the interval of `nmsre`.
        high: Upper end.
        reason: Why the data cannot score it; "" if they can.
        by_group: Influence of each group of stretches on the NMSRE, for paired comparisons.
    """

    question: str
    policy: str
    gamma: float
    n_stretches: int = 0
    effective_size: float = math.nan
    nmsre: float = math.nan
    nmsre_of_persistence: float = math.nan
    low: float = math.nan
    high: float = math.nan
    reason: str = ""
    by_group: tuple[float, ...] = ()

    @property
    def is_judged(self) -> bool:
        """Whether the data can score the question."""
        return not self.reason


def write_held_out(path: Path, scores: Iterable[HeldOutScore]) -> None:
    """Write held_out.csv; raise OSError if it cannot be written."""
    lines = []
    for score in scores:
        cells: dict[str, object] = score._asdict()
        cells["is_judged"] = int(score.is_judged)
        cells["by_group"] = " ".join(f"{psi:.5g}" for psi in score.by_group)
        lines.append([cells[name] for name in _HELD_OUT_COLUMNS])
    write_csv(path, _HELD_OUT_COLUMNS, lines)


def read_held_out(path: Path) -> list[HeldOutScore]:
    """Read held_out.csv; an empty list without the file.

    Raises:
        KeyError: If it lacks a column.
        ValueError: If a line does not fit the header, or a number is none.
    """
    if not path.is_file():
        return []
    return [_held_out_score(line) for line in read_lines(path)]


def _held_out_score(line: Mapping[str, str]) -> HeldOutScore:
    return HeldOutScore(
        question=line["question"],
        policy=line["policy"],
        gamma=number_in(line["gamma"]),
        n_stretches=int(line["n_stretches"]),
        effective_size=number_in(line["effective_size"]),
        nmsre=number_in(line["nmsre"]),
        nmsre_of_persistence=number_in(line["nmsre_of_persistence"]),
        low=number_in(line["low"]),
        high=number_in(line["high"]),
        reason=line["reason"],
        by_group=tuple(float(psi) for psi in line["by_group"].split()),
    )
