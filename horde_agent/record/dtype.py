"""What a row of a life is: each of its fields once, with its type, unit, source, names and missing value.

`Row` is the declaration. Everything else that has rows derives from it: their binary form in files,
what a life reads from an environment's `info`, the columns of tables and bags, and the rows of the
live page. So a new field is a line here, and a key of `info` where the robot emits it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import cache
from itertools import repeat
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from horde_agent.record.segments import CRC

Observation = NDArray[np.float32]
Pose = tuple[float, float, float]

NO_ACTION = -1
NO_POLICY = 0
UNKNOWN_POSE: Pose = (np.nan, np.nan, np.nan)
_NO_OBSERVATION: Observation = np.zeros(0, dtype=np.float32)
_NO_OBSERVATION.flags.writeable = False
_N_INPUTS = -1
"""Stands for the number of channels in the shape of a field."""
_STORED_FIRST = ("t", "b", "observation", "pose", "step", "policy", "action")
"""Fields at the beginning of a stored row, on which the bytes of recordings depend; the others follow as in `Row`."""


class Phase(IntEnum):
    """The robot's activity from an observation on."""

    BEHAVE = 0
    """Follow the behaviour policy: the transition is learned from."""
    EXCURSION = 1
    """Follow a target policy to test the predictions about it: nothing is learned."""
    CENTRE = 2
    """Drive back to the centre after an excursion: nothing is learned and no action is chosen."""
    END = 3
    """Nothing: the stream ends or is cut here."""
    DOCK = 4
    """Drive to the dock, charge and leave it: nothing is learned and no action is chosen."""


DRIVES = frozenset({Phase.CENTRE, Phase.DOCK})
"""Drives: the robot chooses its motion by itself."""


class Flag(IntEnum):
    """How an observation came about: bits, to be joined by `|` (plain integers: IntFlag costs 2 us per operation)."""

    NONE = 0
    GAP = 1
    """It does not follow from the observation before it (reset, drive, lost packets)."""
    NOT_APPLIED = 2
    """The action before it was not applied."""
    TERMINATED = 4
    """The stream terminates with it: gamma' = 0."""
    TRUNCATED = 8
    """The environment truncated the episode here; the next observation follows a reset."""
    STALE = 16
    """No new packet came: it repeats the one before it."""
    TURN = 32
    """The preceding row is another robot's; this one follows the last row of the same robot."""
    RESUMED = 64
    """The first one after a resume of a robot that cannot be restored; it is a GAP, too."""


BROKEN: int = Flag.GAP | Flag.NOT_APPLIED | Flag.STALE
"""Flags of an observation that no update may reach across."""
ENDS_TEST: int = Flag.GAP | Flag.NOT_APPLIED
"""Flags of an observation at which a test excursion or an on-policy test ends.

A stale frame repeats the reading before, which stands for the one that did not arrive: the test
continues, and counts how much of each return was repeated (`TestExcursion`).
"""
UNFIT: int = Flag.NOT_APPLIED | Flag.STALE
"""Flags of an observation at which no excursion may begin."""


class RowField(NamedTuple):
    """How a field of `Row` is stored, read and named.

    Attributes:
        dtype: Type of its numbers in NumPy's notation, little-endian.
        unit: Of its numbers; "1" for counts, names and numbers without a unit.
        shape: Of the field; () for a single number.
        info: Keys of an environment's `info` with its numbers; empty if it comes from elsewhere.
        columns: Names of its numbers in tables and bags, if it has several; else it is the field's.
        is_read: Whether `horde learn --data` reads it from an export.
        is_of_clock: Whether it depends on the wall clock, and so differs between two equal runs.
        is_of_several: Whether only recordings of several robots have it.
    """

    dtype: str
    unit: str = "1"
    shape: tuple[int, ...] = ()
    info: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    is_read: bool = False
    is_of_clock: bool = False
    is_of_several: bool = False


_POSE = ("x_m", "y_m", "heading_rad")


class Row(NamedTuple):
    """One row of a stream; the default of a field is its missing value.

    Attributes:
        step: Number of 100 ms periods before this observation.
        t: Robot time in seconds; NaN if the robot has no clock.
        observation: Observation, float32, shape (n_inputs,).
        action: Discrete action taken from it, or NO_ACTION.
        b: Probability with which that action was drawn, by the behaviour policy or in an excursion
            by the policy that is tested (1 if it always takes one action); NaN without an action.
        phase, flags: See `Phase` and `Flag`.
        pose: x (m), y (m), heading (rad); NaN if unknown. For pictures only.
        policy: In an excursion the CRC-32 of the name of the policy that is tested, else NO_POLICY.
        robot: Number of the robot, from 0.
        reward: Reward of the transition that led to this observation; NaN if no transition did
            (after a reset or in a drive), or if it is unknown.
        unix_s: Wall clock when the observation arrived, in seconds since 1970; NaN if unknown. A
            simulator does not depend on it, so it differs between two equal runs.
    """

    step: Annotated[int, RowField("<i8", is_read=True)] = 0
    t: Annotated[float, RowField("<f8", "s", info=("t",))] = np.nan
    observation: Annotated[Observation, RowField("<f4", shape=(_N_INPUTS,))] = _NO_OBSERVATION
    action: Annotated[int, RowField("<i2", is_read=True)] = NO_ACTION
    b: Annotated[float, RowField("<f8", is_read=True)] = np.nan
    phase: Annotated[Phase, RowField("u1", is_read=True)] = Phase.BEHAVE
    flags: Annotated[int, RowField("u1", is_read=True)] = int(Flag.NONE)
    pose: Annotated[Pose, RowField("<f4", "m, m, rad", shape=(3,), info=_POSE, columns=_POSE)] = (
        UNKNOWN_POSE
    )
    policy: Annotated[int, RowField("<u4", is_read=True)] = NO_POLICY
    robot: Annotated[int, RowField("<u2", is_of_several=True)] = 0
    reward: Annotated[float, RowField("<f8", is_read=True)] = np.nan
    unix_s: Annotated[float, RowField("<f8", "s", is_of_clock=True)] = np.nan


_HINTS = get_type_hints(Row, include_extras=True)
FIELDS: dict[str, RowField] = {name: hint.__metadata__[0] for name, hint in _HINTS.items()}
"""The fields of a row by name, in their order."""
READ_FIELDS = tuple(name for name, field in FIELDS.items() if field.is_read)
"""Fields that `horde learn --data` reads from an export, if they are known."""
CLOCK_FIELDS = tuple(name for name, field in FIELDS.items() if field.is_of_clock)
"""Fields that differ between two equal runs."""


class InfoField(NamedTuple):
    """A field of a row that comes from an environment's `info`."""

    name: str
    keys: tuple[str, ...]  # of its numbers in `info`
    missing: Any  # its value without them


INFO_FIELDS = [
    InfoField(name, field.info, Row._field_defaults[name])
    for name, field in FIELDS.items()
    if field.info
]


@cache
def row_dtype(n_inputs: int, n_robots: int = 1) -> np.dtype[Any]:
    """Return the numpy type of a row with `n_inputs` inputs: little-endian, packed; `robot` is there if several are."""
    later = [name for name in FIELDS if name not in _STORED_FIRST]
    stored: list[Any] = []
    for name in (*_STORED_FIRST, *later):
        field = FIELDS[name]
        shape = field.shape
        if shape == (_N_INPUTS,):
            shape = (n_inputs,)
        if n_robots > 1 or not field.is_of_several:
            stored.append((name, field.dtype, shape))
    return np.dtype([*stored, (CRC, "<u4")])


def new_rows(n: int, n_inputs: int, n_robots: int = 1) -> NDArray[Any]:
    """Return `n` rows of `row_dtype` with missing values; their observations are 0."""
    return np.repeat(_missing_row(n_inputs, n_robots), n)


@cache
def _missing_row(n_inputs: int, n_robots: int) -> NDArray[Any]:
    """Return a row with missing values, shape (1,)."""
    row = np.zeros(1, row_dtype(n_inputs, n_robots))
    for name in row.dtype.names or ():
        if name not in ("observation", CRC):
            row[name] = Row._field_defaults[name]
    return row


def rows_in(rows: NDArray[Any]) -> Iterator[Row]:
    """Yield recorded rows, shape (n_rows,), one by one; their observations are views."""
    columns: list[Iterable[Any]] = []
    for name, missing in Row._field_defaults.items():
        if name not in (rows.dtype.names or ()):
            columns.append(repeat(missing, len(rows)))
        elif name == "observation":
            columns.append(rows[name])
        else:
            columns.append(rows[name].tolist())
    return map(Row._make, zip(*columns, strict=True))


def columns_of(rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the numbers of recorded rows by column, each of shape (n_rows,); without the observations' readings."""
    columns = {}
    for name, field in FIELDS.items():
        if name == "observation" or name not in (rows.dtype.names or ()):
            continue
        if not field.shape:
            columns[name] = rows[name]
            continue
        for i, column in enumerate(field.columns):
            columns[column] = rows[name][:, i]
    return columns
