"""TileCoder: binary features of an observation, by a layout in TOML.

A layout has a `[[tiling]]` table for each kind of tiling, over every channel of a group or over one
or two channels by name, and a `bias`. Tiles are numbered in the order table, channel, tiling, cell
(row-major); the bias follows. With `unknown = true` each tiling has one tile more, which is active where
a reading is missing; these come last, in the order of the tilings. Tilings of a table with `later = true`,
which was added during a life, are numbered behind all these, each with its tile "unknown" behind its cells.

Source: White, Modayil & Sutton (2012), section 4; Modayil, White & Sutton (2011).
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import tiles as kernels
from horde_agent.kernels.vectors import bind
from horde_agent.refusals import whole_number
from horde_agent.toml import parsed_toml
from horde_agent.types import Tiles, listed

_KEYS = ("group", "channels", "intervals", "tilings", "neighbour", "offset", "later")

MOST_INTERVALS = 2**24  # float32 resolves no more values in [0, 1)
MOST_TILINGS = 10_000
MOST_FEATURES = 10**8


class Tiling(NamedTuple):
    """One tiling: a grid over one or two channels.

    Attributes:
        channels: Positions of its two channels; twice the same for a grid over one.
        intervals: Intervals along each; the second is 1 for a grid over one channel.
        offset: Shift of the grid along each channel, in intervals, from 0 to below 1.
        is_later: Whether its tiles are numbered behind those of all others.
    """

    channels: tuple[int, int]
    intervals: tuple[int, int]
    offset: float
    is_later: bool = False


class TileCoder:
    """Finds the one active tile of every tiling.

    Args:
        tables: `[[tiling]]` tables: `group`, `intervals` (one or two), `tilings`, and `neighbour =
            k` to pair channel i with channel i + k of its group, as a ring. Instead of `group`,
            `channels` names one or two channels. `offset` shifts the first tiling, in intervals,
            and the others with it (0 by default). `later` numbers their tiles behind all others.
        groups: Group of each channel, in the order of the observation.
        names: Name of each channel; needed for tables with `channels`.
        bias: True to add a feature that is always active, behind the tiles.
        unknown: True to add a tile to each tiling that is active where one of its readings is NaN, behind
            the bias: the other tiles keep their numbers.
        where: Name of each table in error messages; by default "[[tiling]] number 1" and so on.

    Attributes:
        n_inputs: Length of an observation.
        n_features: Number of tiles, including the bias and the tiles "unknown".
        n_active: Number of tilings, including the bias.
        has_unknown: Whether each tiling has a tile "unknown".

    Raises:
        ValueError: If a table has an unknown group, channel or key, or a number out of range.

    Examples:
        >>> coder = TileCoder.default(2)
        >>> coder.n_features, coder.n_active, coder.encode(np.array([0.2, 0.7])).shape
        (257, 25, (25,))
    """

    def __init__(
        self,
        tables: Sequence[Mapping[str, Any]],
        groups: Sequence[str],
        *,
        names: Sequence[str] = (),
        bias: bool = True,
        unknown: bool = False,
        where: Sequence[str] | None = None,
    ) -> None:
        if where is None:
            where = _numbered(tables)
        tilings = [
            tiling
            for table, words in zip(tables, where, strict=True)
            for tiling in _tilings(table, groups, names, words)
        ]
        if not tilings and not bias:
            raise ValueError("a tile layout needs at least one [[tiling]] or bias = true")
        n_tiles = sum(tiling.intervals[0] * tiling.intervals[1] for tiling in tilings)
        if n_tiles > MOST_FEATURES:
            raise ValueError(
                f"the tiles of {where[-1]} and before are {n_tiles:,}, more than {MOST_FEATURES:,}"
            )
        intervals = np.array([t.intervals for t in tilings], dtype=np.int64).reshape(-1, 2)
        channels = np.array([t.channels for t in tilings], dtype=np.int64).reshape(-1, 2)
        sizes = intervals.prod(axis=1)
        is_later = np.array([t.is_later for t in tilings], dtype=np.bool_)
        n_first = int(sizes[~is_later].sum())
        unknown_of = n_first + bool(bias) + np.cumsum(~is_later) - 1
        n_before_later = n_first + bool(bias) + bool(unknown) * int(np.count_nonzero(~is_later))
        blocks = sizes[is_later] + bool(unknown)
        first = np.zeros(len(tilings), dtype=np.int64)
        first[~is_later] = np.cumsum(sizes[~is_later]) - sizes[~is_later]
        first[is_later] = n_before_later + np.cumsum(blocks) - blocks
        unknown_of[is_later] = first[is_later] + sizes[is_later]
        self._tilings = kernels.Tilings(
            first=first,
            channel=channels,
            intervals=intervals,
            offset=np.array([t.offset for t in tilings], dtype=np.float64),
        )
        self._has_bias = bool(bias)
        self.has_unknown = bool(unknown)
        self._bias = n_first
        self._unknown = unknown_of
        self._tables = tuple(tables)
        self._groups = tuple(groups)
        self._names = tuple(names)
        self._where = tuple(where)
        self.n_inputs = len(groups)
        self.n_features = n_before_later + int(blocks.sum())
        self.n_active = len(tilings) + bool(bias)

    @classmethod
    def from_layout(
        cls, text: str, channels: Sequence[Mapping[str, Any]], endings: Sequence[str] = ("",)
    ) -> TileCoder:
        """Build a coder from a layout's TOML text.

        Args:
            text: The layout.
            channels: The channels of an observation in order; each has a "group", and a "name" if
                the layout names channels.
            endings: The layout is applied once for each of these suffixes, to the groups and
                channels with that suffix.

        Raises:
            ValueError: If the text is not TOML, or has an unknown key, group or channel.
        """
        try:
            table = parsed_toml(text)
        except ValueError as error:
            raise ValueError(f"the tile layout is not valid TOML: {error}") from None
        foreign = sorted(set(table) - {"bias", "unknown", "tiling"})
        if foreign:
            raise ValueError(
                f"the tile layout has an unknown key {foreign[0]!r}; it may hold bias, unknown and [[tiling]]"
            )
        tilings = table.get("tiling", [])
        if not isinstance(tilings, list) or not all(isinstance(t, dict) for t in tilings):
            raise ValueError("the tile layout: tiling must be [[tiling]] tables")
        bias = table.get("bias", True)
        unknown = table.get("unknown", False)
        for key, value in (("bias", bias), ("unknown", unknown)):
            if not isinstance(value, bool):
                raise ValueError(f"the tile layout: {key} must be true or false, not {value!r}")
        tables = [_with_ending(tiling, ending) for ending in endings for tiling in tilings]
        return cls(
            tables,
            [str(c["group"]) for c in channels],
            names=[str(c.get("name", "")) for c in channels],
            bias=bias,
            unknown=unknown,
            where=_numbered(tilings) * len(endings),
        )

    @classmethod
    def default(cls, n_inputs: int) -> TileCoder:
        """Build a coder for any observation: 8 tilings of 8 intervals per input, 4 of 4 x 4 per pair of neighbours.

        Raises:
            ValueError: If `n_inputs` is less than 1.
        """
        whole_number("n_inputs", n_inputs, 1)
        tables: list[dict[str, Any]] = [{"group": "obs", "intervals": [8], "tilings": 8}]
        if n_inputs > 1:
            tables.append({"group": "obs", "neighbour": 1, "intervals": [4, 4], "tilings": 4})
        return cls(tables, ["obs"] * n_inputs)

    @classmethod
    def default_of(cls, names: Sequence[str]) -> TileCoder:
        """Build the default coder of named channels, whose layout fits observations with further ones behind them."""
        tables: list[dict[str, Any]] = [
            {"channels": [name], "intervals": [8], "tilings": 8} for name in names
        ]
        if len(names) > 1:
            neighbours = [*names[1:], names[0]]
            tables += [
                {"channels": list(pair), "intervals": [4, 4], "tilings": 4}
                for pair in zip(names, neighbours, strict=True)
            ]
        return cls(tables, ["obs"] * len(names), names=names)

    def __repr__(self) -> str:
        return f"TileCoder(n_inputs={self.n_inputs}, n_features={self.n_features}, n_active={self.n_active})"

    @property
    def tilings(self) -> kernels.Tilings:
        """The tilings without the bias, for kernels that call `kernels.tiles.encode`."""
        return self._tilings

    @property
    def layout(self) -> str:
        """The layout as TOML text, which `from_layout` reads."""
        lines = [f"bias = {json.dumps(self._has_bias)}"]
        if self.has_unknown:
            lines.append("unknown = true")
        for table in self._tables:
            lines += ["", "[[tiling]]"]
            lines += [f"{key} = {_toml(value)}" for key, value in table.items()]
        return "\n".join(lines) + "\n"

    def extended(
        self,
        tables: Sequence[Mapping[str, Any]],
        groups: Sequence[str],
        where: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
    ) -> TileCoder:
        """Return a coder with further tilings or inputs, with their tiles inserted before the bias.

        Args:
            tables: Further `[[tiling]]` tables.
            groups: Group of each further input.
            where: Name of each further table in error messages; by default "[[tiling]] number 1"
                and so on.
            names: Name of each channel that the coder has, if its tables name none.

        Raises:
            ValueError: As the constructor does.
        """
        all_tables = [*self._tables, *tables]
        all_groups = [*self._groups, *groups]
        if where is None:
            where = _numbered(tables)
        if names is None:
            names = self._names
        return TileCoder(
            all_tables,
            all_groups,
            names=names,
            bias=self._has_bias,
            unknown=self.has_unknown,
            where=[*self._where, *where],
        )

    def with_unknown(self) -> TileCoder:
        """Return a coder whose tilings have a tile "unknown"; the other tiles keep their numbers."""
        return TileCoder(
            self._tables,
            self._groups,
            names=self._names,
            bias=self._has_bias,
            unknown=True,
            where=self._where,
        )

    def encode(self, observation: NDArray[np.floating[Any]]) -> Tiles:
        """Return the active features in the order of the tilings, the bias last.

        Args:
            observation: Scaled readings, each in [0, 1], shape (n_inputs,); with tiles "unknown" also NaN.

        Raises:
            ValueError: If `observation` has a wrong shape, or a reading is not in [0, 1].
        """
        observation = np.asarray(observation, dtype=np.float64, order="C")
        if observation.shape != (self.n_inputs,):
            raise ValueError(
                f"observation must have shape ({self.n_inputs},), not {observation.shape}"
            )
        out = np.empty(self.n_active, dtype=np.int64)
        outside = _bound_encode()(observation, self._tilings, out)
        if outside >= 0 and self.has_unknown:
            outside = self._encode_missing(observation, out)
        if outside >= 0:
            raise ValueError(
                f"observation must lie in [0, 1]; channel {outside} is {float(observation[outside])!r}"
            )
        if self._has_bias:
            out[-1] = self._bias
        return out

    def _encode_missing(self, observation: NDArray[np.floating[Any]], out: Tiles) -> int:
        """Write the active tiles of an observation with missing readings, as the kernel does of a whole one."""
        is_missing = np.isnan(observation)
        outside = int(_bound_encode()(np.where(is_missing, 0.0, observation), self._tilings, out))
        is_unknown = is_missing[self._tilings.channel].any(axis=1)
        numbers = np.flatnonzero(is_unknown)
        out[numbers] = self._unknown[numbers]
        return outside


@functools.cache
def _bound_encode() -> Any:
    """Return the kernel that finds the active tiles, compiled for the arrays of `TileCoder.encode`."""
    numbers = np.zeros(1, dtype=np.int64)
    pairs = np.zeros((1, 2), dtype=np.int64)
    tilings = kernels.Tilings(first=numbers, channel=pairs, intervals=pairs, offset=np.zeros(1))
    return bind(kernels.encode, like=(np.zeros(1), tilings, numbers))


def check_keys(
    table: Mapping[str, Any], where: str, known: Sequence[str], needed: Sequence[str] = ()
) -> None:
    """Raise ValueError if a table, called `where`, has an unknown key or lacks one that it needs."""
    unknown = sorted(set(table) - set(known))
    missing = [key for key in needed if key not in table]
    if unknown:
        raise ValueError(
            f"{where} has an unknown key {unknown[0]!r}; it may hold {', '.join(known)}"
        )
    if missing:
        raise ValueError(f"{where} needs {missing[0]!r}")


def _numbered(tables: Sequence[object]) -> list[str]:
    return [f"[[tiling]] number {number}" for number in range(1, len(tables) + 1)]


def _toml(value: object) -> str:
    # JSON of strings, numbers and lists is TOML
    return json.dumps(value, ensure_ascii=False, default=operator.index)


def _with_ending(table: Mapping[str, Any], ending: str) -> dict[str, Any]:
    """Return a [[tiling]] table about the group or the channels with this suffix."""
    table = dict(table)
    if "group" in table:
        table["group"] = f"{table['group']}{ending}"
    if ending and isinstance(table.get("channels"), list):
        table["channels"] = [f"{name}{ending}" for name in table["channels"]]
    return table


def _tilings(
    table: Mapping[str, Any], groups: Sequence[str], names: Sequence[str], where: str
) -> list[Tiling]:
    """Expand one [[tiling]] table."""
    check_keys(table, where, _KEYS)
    if "channels" in table:
        check_keys(table, where, _KEYS, ("intervals", "tilings"))
        pairs = [_named_channels(table, names, where)]
        n_dims = len(table["channels"])
    else:
        check_keys(table, where, _KEYS, ("group", "intervals", "tilings"))
        pairs = _channels_of_group(table, groups, where)
        n_dims = 1
        if "neighbour" in table:
            n_dims = 2
    intervals = table["intervals"]
    if not isinstance(intervals, list | tuple) or len(intervals) != n_dims:
        raise ValueError(
            f"{where}: intervals must be {n_dims} whole number(s) in a list, not {intervals!r}"
        )
    _check_whole(table, "intervals", intervals, (1, MOST_INTERVALS), where)
    n_tilings = table["tilings"]
    _check_whole(table, "tilings", [n_tilings], (1, MOST_TILINGS), where)
    cells = (intervals[0], intervals[-1])
    if n_dims == 1:
        cells = (intervals[0], 1)
    offset = _offset(table, where)
    is_later = table.get("later", False)
    if not isinstance(is_later, bool):
        raise ValueError(f"{where}: later must be true or false, not {is_later!r}")
    return [
        Tiling(channels, cells, offset=(offset + j / n_tilings) % 1.0, is_later=is_later)
        for channels in pairs
        for j in range(n_tilings)
    ]


def _channels_of_group(
    table: Mapping[str, Any], groups: Sequence[str], where: str
) -> list[tuple[int, int]]:
    """Return each channel of a table's group, with its neighbour."""
    members = [i for i, group in enumerate(groups) if group == table["group"]]
    if not members:
        choices = ", ".join(dict.fromkeys(groups))
        raise ValueError(f"{where} names the unknown group {table['group']!r}; there are {choices}")
    step = table.get("neighbour", 0)
    _check_whole(table, "neighbour", [step], (-len(members), len(members)), where)
    return [(channel, members[(i + step) % len(members)]) for i, channel in enumerate(members)]


def _named_channels(table: Mapping[str, Any], names: Sequence[str], where: str) -> tuple[int, int]:
    """Return the positions of a table's one or two channels."""
    chosen = table["channels"]
    for key in ("group", "neighbour"):
        if key in table:
            raise ValueError(f"{where} has {key!r} beside 'channels'; leave one out")
    if not isinstance(chosen, list | tuple) or len(chosen) not in (1, 2):
        raise ValueError(f"{where}: channels must be one or two names in a list, not {chosen!r}")
    for name in chosen:
        if name not in names:
            choices = listed(names) or "none with a name"
            raise ValueError(f"{where} names the unknown channel {name!r}; there are {choices}")
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"{where} names the channel {chosen[0]!r} twice; name another one")
    positions = [list(names).index(name) for name in chosen]
    return positions[0], positions[-1]


def _check_whole(
    table: Mapping[str, Any], key: str, values: Sequence[Any], limits: tuple[int, int], where: str
) -> None:
    """Raise ValueError if one of a key's values is not whole or not within the limits."""
    least, most = limits
    for value in values:
        is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
        if not is_whole or not least <= value <= most:
            raise ValueError(
                f"{where}: {key} must be whole, from {least} to {most:,}, not {table[key]!r}"
            )


def _offset(table: Mapping[str, Any], where: str) -> float:
    """Return the shift of a table's first tiling, in intervals."""
    offset = table.get("offset", 0.0)
    is_number = isinstance(offset, int | float) and not isinstance(offset, bool)
    if not is_number or not 0.0 <= offset < 1.0:
        raise ValueError(f"{where}: offset must be a number from 0 to below 1, not {offset!r}")
    return float(offset)
