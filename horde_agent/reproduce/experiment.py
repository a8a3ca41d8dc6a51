"""The frame of an experiment: its measurements, the rules by which its claims are judged, and its result as JSON.

An experiment is a module that measures, judges the claims, draws, and ends with its `Experiment`. Its result has claims
with verdicts, figures and tables.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from horde_agent.reproduce.lives import LifeSpec
from horde_agent.reproduce.study import Study
from horde_agent.runs.keeping.folder import write_json

Verdict = Literal["reproduced", "partly reproduced", "not reproduced"]
Cell = str | int | float | None


def verdict(holds: Sequence[bool]) -> Verdict:
    """Return the verdict on a claim from its parts: all hold, some hold, none holds.

    Example:
        >>> verdict([True, True]), verdict([True, False]), verdict([False])
        ('reproduced', 'partly reproduced', 'not reproduced')
    """
    if not holds:
        raise ValueError("a verdict needs at least one part that holds or does not")
    return "reproduced" if all(holds) else "partly reproduced" if any(holds) else "not reproduced"


@dataclass(frozen=True)
class Claim:
    """One claim of the paper with its measurement."""

    text: str  # the claim in a sentence
    source: str  # where the paper makes it: section or figure
    paper: str  # what the paper says, or shows
    measured: str  # the measurement, with its numbers
    verdict: Verdict  # computed from the numbers, see `verdict`
    rule: str = ""  # what the verdict was computed by, in words: the parts and their limits
    cause: str = ""  # the measured cause, where the result differs


@dataclass(frozen=True)
class Figure:
    """A picture in the experiment's folder."""

    file: str  # name of the PNG in `Study.folder(experiment)`
    caption: str  # its caption


@dataclass(frozen=True)
class Table:
    """A table; floats are shown with four digits."""

    title: str  # its heading
    header: Sequence[str]  # names of the columns
    rows: Sequence[Sequence[Cell]]  # a cell per column
    note: str = ""  # how to read it

    @classmethod
    def of(cls, title: str, rows: Sequence[Mapping[str, Cell]], note: str = "") -> Table:
        """Return the table of rows that map the names of the columns, the same in each, to cells."""
        return cls(title, list(rows[0]), [list(row.values()) for row in rows], note)


@dataclass
class Result:
    """Result of an experiment."""

    name: str  # of the experiment, as in the command
    title: str  # a heading for people
    claims: list[Claim] = field(default_factory=list)  # in the order in which they are read
    figures: list[Figure] = field(default_factory=list)  # in this order too
    tables: list[Table] = field(default_factory=list)  # in this order too
    seconds: float = 0.0  # wall-clock time, set by the command; cached work is not counted
    settings: dict[str, Cell] = field(default_factory=dict)  # everything needed to repeat it: sizes, step sizes, seeds
    remarks: list[str] = field(default_factory=list)  # sentences about how to read the result
    versions: dict[str, str] = field(default_factory=dict)  # of the program and its libraries, set by the command

    def write(self, path: Path) -> None:
        """Write the result as JSON; numbers that are not finite become null."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read what `write` wrote."""
        table = json.loads(path.read_text(encoding="utf-8"))
        table["claims"] = [Claim(**claim) for claim in table["claims"]]
        table["figures"] = [Figure(**figure) for figure in table["figures"]]
        table["tables"] = [Table(**inner) for inner in table["tables"]]
        return cls(**table)


class Mean(NamedTuple):
    """A mean over independent runs with the half-width of its confidence interval; NaN for a single run."""

    mean: float
    half_width: float
    n: int

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "-"
        if math.isnan(self.half_width):
            return f"{self.mean:.3g}"
        return f"{self.mean:.3g} ± {self.half_width:.2g}"


def join(values: Iterable[object], form: str = "") -> str:
    """Return values in one format, with commas between them.

    Example:
        >>> join([0.5, 0.25], ".0%")
        '50%, 25%'
    """
    return ", ".join(format(value, form) for value in values)


def mean_ci(values: ArrayLike) -> Mean:
    """Return the mean of independent runs (seeds) with its 95 % confidence interval by Student's t.

    Args:
        values: One per run, shape (n,), n at least 1.

    Raises:
        ValueError: If there is no value.

    Example:
        >>> str(mean_ci([1.0, 2.0, 3.0]))
        '2 ± 2.5'
    """
    v = np.asarray(values, dtype=np.float64).ravel()
    if not v.size:
        raise ValueError("values must hold at least one run")
    if v.size == 1:
        return Mean(float(v[0]), math.nan, 1)
    spread = float(v.std(ddof=1)) / math.sqrt(v.size)
    return Mean(float(v.mean()), student_t(v.size - 1) * spread, v.size)


@cache
def student_t(degrees: int, level: float = 0.95) -> float:
    """Return t with P(|T| < t) = level for Student's t with `degrees` degrees of freedom.

    By t = sqrt(n) tan(u) the density becomes cos(u)^(n-1), which is summed over a fine grid of u.
    """
    edges = np.linspace(0.0, np.pi / 2, 20_001)
    density = np.cos((edges[1:] + edges[:-1]) / 2) ** (degrees - 1)
    below = np.concatenate([[0.0], np.cumsum(density)]) / density.sum()
    return float(math.sqrt(degrees) * np.tan(np.interp(level, below, edges)))


# ---- claims and how they are judged ----------------------------------------------------------------------------------


class Finding(NamedTuple):
    """The measurement of one claim."""

    measured: str  # the measurement, with its numbers
    holds: Sequence[bool]  # whether each part of the rule holds
    cause: str = ""  # the measured cause, where the result differs


def finding_of_means(values: Mapping[str, ArrayLike], holds: Callable[[float], bool], before: str = "") -> Finding:
    """Return the finding of a rule about the mean of each of some named values.

    Args:
        values: One value per run, or one number, by name.
        holds: Whether the rule holds for a mean.
        before: What they are, with a space at the end.
    """
    means = {name: mean_ci(value) for name, value in values.items()}
    said = "; ".join(f"{name} {mean}" for name, mean in means.items())
    return Finding(f"{before}{said}.", [holds(mean.mean) for mean in means.values()])


Judge = Callable[[Any], Finding | None]
"""Takes the data of an experiment; returns the finding, or None if the data say nothing about the claim."""


class ClaimRule(NamedTuple):
    """One claim, with the rule and the function that judge it.

    Attributes:
        text, source, paper: As in `Claim`.
        rule: As in `Claim`; may hold fields of the data, as in "{data.change_at}".
        judge: The function.
    """

    text: str
    source: str
    paper: str
    rule: str
    judge: Judge


class Claims(list[ClaimRule]):
    """Claims in the order of the paper; `add` decorates the function that judges one.

    Args:
        source: As in `Claim`, unless `add` names another one.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source

    def add(self, text: str, paper: str, rule: str, source: str = "") -> Callable[[Judge], Judge]:
        """Return the decorator of a claim's function; arguments as in `ClaimRule`."""

        def decorate(judge: Judge) -> Judge:
            self.append(ClaimRule(text, source or self._source, paper, rule, judge))
            return judge

        return decorate


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes:
        name: As in the command, and of its module in `reproduce`.
        title: A heading for people.
        gather: Measures, or reads cached results; its result is the `data` that everything else takes.
        rules: Of the claims, in the order of the paper.
        pictures: Draws the figures into a folder and returns their entries.
        tables: The tables, in the order in which they are read.
        settings: Everything needed to repeat it.
        remarks: Sentences about how to read the result; may hold fields of the data, as a rule may.
        lives: The lives that it learns from, which the command simulates first.
    """

    name: str
    title: str
    gather: Callable[[Study], Any]
    rules: Sequence[ClaimRule]
    pictures: Callable[[Any, Path], list[Figure]]
    tables: Callable[[Any], list[Table]]
    settings: Callable[[Study, Any], dict[str, Cell]]
    remarks: Sequence[str]
    lives: Callable[[Study], list[LifeSpec]] | None = None

    def run(self, study: Study) -> Result:
        """Measure, judge the claims and draw the figures."""
        data = self.gather(study)
        return Result(
            self.name,
            self.title,
            self.judge(data),
            self.pictures(data, study.folder(self.name)),
            self.tables(data),
            settings=self.settings(study, data),
            remarks=[remark.format(data=data) for remark in self.remarks],
        )

    def judge(self, data: Any) -> list[Claim]:
        """Return the claims with their verdicts."""
        found = [(rule, rule.judge(data)) for rule in self.rules]
        return [
            Claim(r.text, r.source, r.paper, f.measured, verdict(f.holds), r.rule.format(data=data), f.cause)
            for r, f in found
            if f is not None
        ]
