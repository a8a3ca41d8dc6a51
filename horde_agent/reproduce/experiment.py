"""The frame of an experiment: its measurements, the rules by which its claims are judged, tables and figures.

An experiment is a module that measures, judges the claims, draws, and ends with its `Experiment`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from horde_agent.reproduce.lives import LifeSpec
from horde_agent.reproduce.result import Cell, Claim, Figure, Result, Table, mean_ci, verdict
from horde_agent.reproduce.study import Study


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
