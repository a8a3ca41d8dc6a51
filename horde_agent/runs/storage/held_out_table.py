"""held_out.csv: a line per off-policy question, with its score on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from horde_agent.runs.storage.files import number_in, read_lines, write_csv

_COLUMNS = (
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
        lines.append([cells[name] for name in _COLUMNS])
    write_csv(path, _COLUMNS, lines)


def read_held_out(path: Path) -> list[HeldOutScore]:
    """Read held_out.csv; an empty list without the file.

    Raises:
        KeyError: If it lacks a column.
        ValueError: If a line does not fit the header, or a number is none.
    """
    if not path.is_file():
        return []
    return [_parsed(line) for line in read_lines(path)]


def _parsed(line: Mapping[str, str]) -> HeldOutScore:
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
