"""Checks: each judges one claim of a paper by numbers and their limits.

    @check(
        claim="Bottom tier: Tree Backup, V-trace and ABTD end with a higher error.",
        paper="no faster than TD, with a higher asymptotic error",
        source="abstract",
        terms="Best areas over TD's:",
        limit=at_least(1.4),
    )
    def clipping_rules_end_higher(sweep: Sweep) -> dict[str, Floats]:
        return {rule: ... for rule in CLIPPING}

The function returns numbers by name, each one value or one per run, and the limit holds for each of
them. If numbers have limits of their own, it returns a list of `Number`; with a note or the cause of
a difference, it returns `Measured`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from examples.reproduce.stats import join, mean_ci

Verdict = Literal["reproduced", "partly reproduced", "not reproduced"]


def verdict(holds: Sequence[bool]) -> Verdict:
    """Return the verdict on a claim from its limits: all hold, some hold, none holds.

    Raises:
        ValueError: If there is no limit.

    Examples:
        >>> verdict([True, True]), verdict([True, False]), verdict([False])
        ('reproduced', 'partly reproduced', 'not reproduced')
    """
    if not holds:
        raise ValueError("a verdict needs at least one limit that holds or does not")
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
        """Return the same limit for every run, each judged separately."""
        return self._replace(is_of_each=True)

    def holds(self, values: ArrayLike) -> list[bool]:
        """Return whether the mean of the values, one per run, shape (n,), is within the limit; or each of them."""
        runs = np.atleast_1d(np.asarray(values, dtype=np.float64))
        if self.is_of_each:
            return [bool(self.test(value)) for value in runs.ravel()]
        return [bool(self.test(runs.mean()))]

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


# ---- measured numbers -----------------------------------------------------------------------------------------------


class Number(NamedTuple):
    """A measured number."""

    name: str  # name of the measurement
    values: ArrayLike  # one per run, shape (n,), or one number
    limit: Limit
    form: str = ""  # format of a printed number; a mean with its interval without one

    @property
    def measured(self) -> str:
        """The number in words: the mean with its interval, or each value where each is judged."""
        runs = np.atleast_1d(np.asarray(self.values, dtype=np.float64)).ravel()
        if self.limit.is_of_each:
            return f"{self.name}: {join(runs, self.form or '.3g')}"
        if self.form:
            return f"{self.name}: {format(runs.mean(), self.form)}"
        return f"{self.name}: {mean_ci(runs)}"


def numbers(values: Mapping[str, ArrayLike], limit: Limit, form: str = "") -> list[Number]:
    """Return several numbers, by name, that have one limit."""
    return [Number(name, of_name, limit, form) for name, of_name in values.items()]


class Measured(NamedTuple):
    """The measurement of one claim."""

    numbers: Mapping[str, ArrayLike] | Sequence[Number]  # by name, if the check has their limit
    note: str = ""  # further measurements, in a sentence
    cause: str | Callable[[], str] = ""  # the measured cause, if the result differs


Measurement = Measured | Mapping[str, ArrayLike] | Sequence[Number]


# ---- checks ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckResult:
    """A claim with its measurement and verdict."""

    text: str  # the claim in a sentence
    source: str  # where the paper makes it: section or figure
    paper: str  # what the paper says, or shows
    measured: str = ""  # the measurement, with its numbers
    verdict: Verdict = "not reproduced"  # computed from the numbers, see `verdict`
    rule: str = ""  # what the verdict was computed by, in words: the numbers and their limits
    cause: str = ""  # the measured cause, where the result differs


@dataclass(frozen=True)
class Check:
    """A claim of a paper, and the function that measures it.

    Attributes:
        claim: The claim in a sentence.
        paper: What the paper says, or shows.
        source: Where the paper makes it: section or figure.
        terms: What the numbers are, in words.
        limit: The limit of each number, or None if numbers have limits of their own.
        form: Format of each printed number; a mean with its interval without one.
        measure: Takes the data of an experiment; returns the measurement, or None if the data say
            nothing of the claim.
    """

    claim: str
    paper: str
    source: str
    terms: str
    limit: Limit | None
    form: str
    measure: Callable[[Any], Measurement | None]

    def judge(self, data: Any) -> CheckResult | None:
        """Return the result for an experiment's data; a cause is named for a claim that is not reproduced."""
        measurement = self.measure(data)
        if measurement is None:
            return None
        if not isinstance(measurement, Measured):
            measurement = Measured(measurement)
        judged = self._with_limits(measurement.numbers)
        outcome = verdict([held for number in judged for held in number.limit.holds(number.values)])
        if outcome == "reproduced":
            cause = ""
        elif isinstance(measurement.cause, str):
            cause = measurement.cause
        else:
            cause = measurement.cause()
        sentence = "; ".join(number.measured for number in judged)
        return CheckResult(
            text=self.claim,
            source=self.source,
            paper=self.paper,
            measured=_joined(self.terms, f"{sentence}.", measurement.note),
            verdict=outcome,
            rule=_joined(self.terms, rule_in_words(judged)),
            cause=cause,
        )

    def _with_limits(self, measured: Mapping[str, ArrayLike] | Sequence[Number]) -> list[Number]:
        if not isinstance(measured, Mapping):
            return list(measured)
        assert self.limit is not None, f"numbers without a limit: {self.claim}"
        return numbers(measured, self.limit, self.form)


def check(
    *,
    claim: str,
    paper: str,
    source: str,
    terms: str = "",
    limit: Limit | None = None,
    form: str = "",
) -> Callable[[Callable[[Any], Measurement | None]], Check]:
    """Return the decorator that makes a function a check; the arguments are the attributes of `Check`."""

    def decorate(measure: Callable[[Any], Measurement | None]) -> Check:
        return Check(claim, paper, source, terms, limit, form, measure)

    return decorate


def judge(experiment: ModuleType, data: Any) -> list[CheckResult]:
    """Return the results of an experiment's checks, in the order of its module."""
    checks = [value for value in vars(experiment).values() if isinstance(value, Check)]
    results = [each.judge(data) for each in checks]
    return [result for result in results if result is not None]


def rule_in_words(judged: Sequence[Number]) -> str:
    """Return the limits in words, each once with the names of its numbers."""
    names_of_limits: dict[str, list[str]] = {}
    for number in judged:
        names_of_limits.setdefault(str(number.limit), []).append(number.name)
    if len(names_of_limits) == 1 and len(judged) > 1:
        return f"Each {judged[0].limit.text}."
    sentences = [f"{join(names)} {limit}" for limit, names in names_of_limits.items()]
    return f"{'; '.join(sentences)}."


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences)).strip()
