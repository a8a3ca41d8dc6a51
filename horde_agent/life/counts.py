"""Counts of a life: what a robot reports with each step, its faults in total, and durations.

Any Gymnasium environment will do: without these keys in `info`, each step counts as whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from horde_agent.record.dtype import INFO_FIELDS, Flag
from horde_agent.saving import State, attributes, put_back
from horde_agent.types import Floats, Integers

LATE_S = 0.05
"""A deadline is missed by more than this; smaller lateness is jitter (design: timing)."""


_EXACT = 1 << 16  # durations in a block, two hours at 10 Hz
# Of the bins
_SHORTEST_S = 1e-7
_LONGEST_S = 1e4
_RATIO = 1.005

_SAVED_COUNTS = (
    "steps",
    "gaps",
    "crc_errors",
    "deadlines_missed",
    "n_clipped",
    "n_not_applied",
    "link_losses",
    "s_without_link",
    "n_not_finite",
)


class UnfitResult(ValueError):
    """The environment returned something that does not have the form of Gymnasium's API or of its spaces."""


class RobotInfo(NamedTuple):
    """What a reset or a step returned besides the observation; a default stands for each missing key of its `info`.

    Attributes:
        row_fields: Fields of the row that come from `info`, by name, with missing values for missing
            keys.
        flags: How the observation came about: `Flag`. It is a GAP after a reset or if `gap` is set,
            NOT_APPLIED unless the robot carried out the command (`applied`), and STALE if no new
            packet arrived (`stale`).
        reward: Reward of the step; NaN after a reset, or if it is no number.
        obeyed: Whether the robot carries out commands at all.
        battery_low, battery_urgent: Whether to dock, and whether to interrupt a test excursion for
            it.
        crc_errors, clipped: Damaged packets and values out of range since the last step.
        link_losses, s_without_link: Losses of the link since the last step, and their duration in
            seconds; None if the robot does not report them.
        overrun_s, sensor_age_s: Lateness of the step and age of its packet in seconds; None if not
            reported.
        manoeuvre_steps: Periods that the drive of this reset took; None if not reported.
        action, b: Action taken next and its probability, of a recorded life.
    """

    row_fields: dict[str, Any]
    flags: int
    reward: float
    obeyed: int = 1
    battery_low: int = 0
    battery_urgent: int = 0
    crc_errors: int = 0
    clipped: int = 0
    link_losses: int | None = None
    s_without_link: float | None = None
    overrun_s: float | None = None
    sensor_age_s: float | None = None
    manoeuvre_steps: int | None = None
    action: int = 0
    b: float = 1.0

    @classmethod
    def of(
        cls,
        info: Mapping[str, Any] | None,
        *,
        begins: bool = False,
        terminated: bool = False,
        truncated: bool = False,
        reward: Any = np.nan,
    ) -> RobotInfo:
        """Read what an environment returned; `begins`: by a reset.

        Some environments return None as `info`, which has no key.

        Raises:
            UnfitResult: If `info` is anything else than a mapping.
        """
        if info is None:
            info = {}
        if type(info) is not dict and not isinstance(info, Mapping):
            raise UnfitResult(
                f"the environment returned an info of the type {type(info).__name__}, expected a dict"
            )
        row_fields: dict[str, Any] = {}
        for name, keys, missing in INFO_FIELDS:
            if isinstance(missing, tuple):
                row_fields[name] = tuple(map(info.get, keys, missing))
            else:
                row_fields[name] = info.get(keys[0], missing)
        flags = int(Flag.NONE)
        if begins or info.get("gap", False):
            flags |= Flag.GAP
        if not info.get("applied", True):
            flags |= Flag.NOT_APPLIED
        if info.get("stale", False):
            flags |= Flag.STALE
        if terminated:
            flags |= Flag.TERMINATED
        if truncated:
            flags |= Flag.TRUNCATED
        try:
            reward = float(reward)
        except (TypeError, ValueError):
            reward = np.nan
        return cls(row_fields, flags, reward, *map(info.get, _KEYS, _DEFAULTS))


_KEYS = tuple(RobotInfo._field_defaults)
_DEFAULTS = tuple(RobotInfo._field_defaults.values())
FLAG_KEYS = ("gap", "applied", "stale")
"""Keys of `info` that `RobotInfo.flags` is made of."""


class RobotCounts:
    """Steps and faults of all robots of a life.

    Attributes:
        steps: Number of periods, excursions and drives included.
        gaps: Observations that do not follow from the one before, and resumes of a robot that cannot
            be restored; drives are no faults.
        crc_errors: Damaged packets.
        deadlines_missed: Steps that were late.
        n_clipped: Readings out of range.
        n_not_applied: Steps in which the action was not applied (safety stop, charging).
        n_not_finite: Observations with a reading that was not finite, which is missing then.
        link_losses, s_without_link: Number of losses of the link, and their total duration in
            seconds; None if the robot does not report them.
        sensor_age_s, overrun_s: Age of the newest packet when it was used, and lateness of each
            step, in seconds; empty if the robot does not report them.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.gaps = 0
        self.crc_errors = 0
        self.deadlines_missed = 0
        self.n_clipped = 0
        self.n_not_applied = 0
        self.n_not_finite = 0
        self.link_losses: int | None = None
        self.s_without_link: float | None = None
        self.sensor_age_s = Durations()
        self.overrun_s = Durations()

    def add(self, info: RobotInfo, flags: int, *, is_step: bool) -> None:
        """Add the faults of an observation with these flags.

        In a drive, and at its end, only damaged packets and losses of the link count.
        """
        self.crc_errors += info.crc_errors
        if info.link_losses is not None and info.s_without_link is not None:
            self.link_losses = (self.link_losses or 0) + info.link_losses
            self.s_without_link = (self.s_without_link or 0.0) + info.s_without_link
        if not is_step:
            return
        self.gaps += bool(flags & Flag.GAP)
        self.n_not_applied += bool(flags & Flag.NOT_APPLIED)
        if info.overrun_s is not None:
            self.overrun_s.add(info.overrun_s)
            self.deadlines_missed += info.overrun_s > LATE_S
        if info.sensor_age_s is not None:
            self.sensor_age_s.add(info.sensor_age_s)

    def state(self) -> State:
        """Return the counts, without the durations, which belong to this process."""
        return attributes(self, *_SAVED_COUNTS)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        put_back(self, state, *_SAVED_COUNTS)


class Durations:
    """Durations in seconds, in bounded memory: blocks of 65,536 are counted in bins that are 0.5 % wide."""

    def __init__(self) -> None:
        self._values = array("f")
        self._n_in_bins = 0
        self._longest = 0.0
        self._bins: Integers = np.zeros(
            2 + int(np.log(_LONGEST_S / _SHORTEST_S) / np.log(_RATIO)), dtype=np.int64
        )

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self._values.append(seconds)
        if len(self._values) == _EXACT:
            self._count()

    def _count(self) -> None:
        values = np.asarray(self._values, dtype=np.float64)
        bins = np.log(np.clip(values, _SHORTEST_S, _LONGEST_S) / _SHORTEST_S) / np.log(_RATIO)
        self._bins += np.bincount(bins.astype(np.int64), minlength=self._bins.size)
        self._n_in_bins = len(self)
        self._longest = max(self._longest, float(values.max()))
        self._values = array("f")

    def __len__(self) -> int:
        return self._n_in_bins + len(self._values)

    def latest(self, n: int) -> Floats:
        """Return the last `n` of the present block, in seconds; a copy."""
        return np.array(self._values[-n:], dtype=np.float64)

    def summary_ms(self) -> dict[str, float] | None:
        """Return p50, p99 and max in milliseconds; None if nothing was measured."""
        if not len(self):
            return None
        if self._n_in_bins and self._values:
            self._count()
        if not self._n_in_bins:
            p50, p99, top = np.percentile(np.asarray(self._values), [50, 99, 100])
        else:
            ranks = np.searchsorted(np.cumsum(self._bins), np.array([0.5, 0.99]) * len(self))
            (p50, p99) = _SHORTEST_S * _RATIO ** (ranks + 0.5)
            top = self._longest
        return {"p50": float(p50) * 1e3, "p99": float(p99) * 1e3, "max": float(top) * 1e3}


def duration(seconds: float) -> str:
    """Return a duration as text.

    Examples:
        >>> duration(42.4), duration(200), duration(26168.1)
        ('42 s', '3 min 20 s', '7 h 16 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
