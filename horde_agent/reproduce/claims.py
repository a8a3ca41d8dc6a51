"""Claims and the limits that they are judged by: a claim is cut into parts, each a number with its limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from horde_agent.reproduce.stats import join, mean_ci

Verdict = Literal["reproduced", "partly reproduced", "not reproduced"]


def verdict(holds: Sequence[bool]) -> Verdict:
    """Return the verdict on a claim from its parts: all hold, some hold, none holds.

    Examples:
        >>> verdict([True, True]), verdict([True, False]), verdict([False])
        ('reproduced', 'partly reproduced', 'not reproduced')
    """
    if not holds:
        raise ValueError("a verdict needs at least one part that holds or does not")
    if all(holds):
        return "reproduced"
    if any(holds):
        return "partly reproduced"
    return "not reproduced"


# ---- limits ---------------------------------------------------------------------------------------------------------


class Limit(NamedTuple):
    """A limit, in words and as a test; of the mean over the runs, or of each run."""

    text: str
    test: Callable[[float], bool]
    is_of_each: bool = False

    def in_each(self) -> Limit:
        """Return the same limit for every run: each is a separate part."""
        return self._replace(is_of_each=True)

    def holds(self, values: ArrayLike) -> list[bool]:
        """Return whether the mean of the values, one per run, shape (n,), is within the limit; or each of them."""
        v = np.atleast_1d(np.asarray(values, dtype=np.float64))
        return [bool(self.test(x)) for x in (v.ravel() if self.is_of_each else [v.mean()])]

    def __str__(self) -> str:
        if self.is_of_each:
            return f"each {self.text}"
        return self.text


def at_least(limit: float) -> Limit:
    """Return the limit x >= `limit`."""
    return Limit(f"at least {limit:g}", lambda x: x >= limit)


def at_most(limit: float) -> Limit:
    """Return the limit x <= `limit`."""
    return Limit(f"at most {limit:g}", lambda x: x <= limit)


def above(limit: float) -> Limit:
    """Return the limit x > `limit`."""
    return Limit(f"above {limit:g}", lambda x: x > limit)


def below(limit: float) -> Limit:
    """Return the limit x < `limit`."""
    return Limit(f"below {limit:g}", lambda x: x < limit)


def within(low: float, high: float) -> Limit:
    """Return the limit `low` <= x <= `high`."""
    return Limit(f"in [{low:g}, {high:g}]", lambda x: low <= x <= high)


class Part(NamedTuple):
    """A part of a claim."""

    what: str  # name of the measurement
    values: ArrayLike  # one per run, shape (n,), or one number
    limit: Limit
    form: str = ""  # of a printed number; a mean with its interval without one

    @property
    def measured(self) -> str:
        """The measurement in words: the mean with its interval, or each number where each is judged."""
        v = np.atleast_1d(np.asarray(self.values, dtype=np.float64)).ravel()
        if self.limit.is_of_each:
            return f"{self.what}: {join(v, self.form or '.3g')}"
        return f"{self.what}: {format(v.mean(), self.form) if self.form else mean_ci(v)}"


def parts(values: Mapping[str, ArrayLike], limit: Limit, form: str = "") -> list[Part]:
    """Return the parts of a claim that sets one limit to several numbers by name."""
    return [Part(what, each, limit, form) for what, each in values.items()]


class Finding(NamedTuple):
    """The measurement of one claim."""

    parts: Sequence[Part]
    also: str = ""  # further measurements, in a sentence
    cause: str | Callable[[], str] = ""  # the measured cause, if the result differs

    @property
    def holds(self) -> list[bool]:
        """One bool per limit that is tested: True if it holds."""
        return [held for part in self.parts for held in part.limit.holds(part.values)]

    @property
    def measured(self) -> str:
        """The measurements in words."""
        sentence = "; ".join(part.measured for part in self.parts)
        return " ".join(filter(None, (f"{sentence}.", self.also)))

    @property
    def rule(self) -> str:
        """The limits in words."""
        limits = list(dict.fromkeys(str(part.limit) for part in self.parts))
        if len(limits) == 1 and len(self.parts) > 1:
            return f"Each {self.parts[0].limit.text}."
        named = ([part.what for part in self.parts if str(part.limit) == limit] for limit in limits)
        return (
            "; ".join(f"{join(names)} {limit}" for names, limit in zip(named, limits, strict=True))
            + "."
        )


Judge = Callable[[Any], Finding | Sequence[Part] | None]
"""Takes the data of an experiment; returns the finding, or its parts, or None if the data say nothing of the claim."""


@dataclass(frozen=True)
class Claim:
    """One claim of the paper with its measurement."""

    text: str  # the claim in a sentence
    source: str  # where the paper makes it: section or figure
    paper: str  # what the paper says, or shows
    measured: str = ""  # the measurement, with its numbers
    verdict: Verdict = "not reproduced"  # computed from the numbers, see `verdict`
    rule: str = ""  # what the verdict was computed by, in words: the parts and their limits
    cause: str = ""  # the measured cause, where the result differs


class Claims(list[tuple[Claim, Judge]]):
    """Claims in the order of the paper, each with the function that judges it, which `add` decorates.

    Args:
        source: Section or figure of a claim, unless `add` names another one.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source

    def add(
        self, text: str, paper: str, terms: str = "", source: str = ""
    ) -> Callable[[Judge], Judge]:
        """Return the decorator of a claim's function; `terms` say what its numbers are, the rest is as in `Claim`."""

        def decorate(judge: Judge) -> Judge:
            self.append((Claim(text, source or self._source, paper, rule=terms), judge))
            return judge

        return decorate

    def judge(self, data: Any) -> list[Claim]:
        """Return the claims with their verdicts; a cause is named for those that are not reproduced."""
        findings = [(claim, judge(data)) for claim, judge in self]
        return [_judged(claim, finding) for claim, finding in findings if finding is not None]


def _judged(claim: Claim, found: Finding | Sequence[Part]) -> Claim:
    finding = found
    if not isinstance(finding, Finding):
        finding = Finding(finding)
    judged = verdict(finding.holds)
    if judged == "reproduced":
        cause = ""
    elif isinstance(finding.cause, str):
        cause = finding.cause
    else:
        cause = finding.cause()
    measured, rule = (f"{claim.rule} {words}".strip() for words in (finding.measured, finding.rule))
    return replace(claim, measured=measured, verdict=judged, rule=rule, cause=cause)
