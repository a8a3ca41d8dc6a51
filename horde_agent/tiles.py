"""TileCoder: binary features of an observation, by a layout in TOML.

A layout has a `[[tiling]]` table for each kind of tiling, over every channel of a group, and a
`bias`. Tiles are numbered in the order table, channel, tiling, cell (row-major); the bias comes
last.

Source: White, Modayil & Sutton (2012), section 4; Modayil, White & Sutton (2011).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import tiles as kernels
from horde_agent.types import Tiles, parsed_toml

_KEYS = ("group", "intervals", "tilings", "neighbour")

MOST_INTERVALS = 2**24  # float32 resolves no more values in [0, 1)
MOST_TILINGS = 10_000
MOST_FEATURES = 10**8


class TileCoder:
    """Finds the one active tile of every tiling.

    Args:
        tables: `[[tiling]]` tables: group, intervals (one or two), tilings, and `neighbour = k` to
            pair channel i with channel i + k of its group, as a ring.
        groups: Group of each channel, in the order of the observation.
        bias: True to add a feature that is always active, the last one.
        where: Name of each table in error messages; by default "[[tiling]] number 1" and so on.

    Attributes:
        n_inputs: Length of an observation.
        n_features: Number of tiles, including the bias.
        n_active: Number of tilings, including the bias.

    Raises:
        ValueError: If a table has an unknown group or key, or a number out of range.

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
        bias: bool = True,
        where: Sequence[str] | None = None,
    ) -> None:
        if where is None:
            where = _numbered(tables)
        rows = [
            row
            for table, words in zip(tables, where, strict=True)
            for row in _tilings(table, groups, words)
        ]
        channel, intervals, offset = ([row[column] for row in rows] for column in range(3))
        if not rows and not bias:
            raise ValueError("a tile layout needs at least one [[tiling]] or bias = true")
        n_tiles = sum(one * other for _, (one, other), _ in rows)
        if n_tiles > MOST_FEATURES:
            raise ValueError(
                f"the tiles of {where[-1]} and before are {n_tiles:,}, more than {MOST_FEATURES:,}"
            )
        sizes = np.array(intervals, dtype=np.int64).reshape(-1, 2).prod(axis=1)
        self._tilings = kernels.Tilings(
            first=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)[: len(rows)],
            channel=np.array(channel, dtype=np.int64).reshape(-1, 2),
            intervals=np.array(intervals, dtype=np.int64).reshape(-1, 2),
            offset=np.array(offset, dtype=np.float64),
        )
        self._has_bias = bool(bias)
        self._tables = tuple(tables)
        self._groups = tuple(groups)
        self._where = tuple(where)
        self.n_inputs = len(groups)
        self.n_features = n_tiles + bool(bias)
        self.n_active = len(rows) + bool(bias)

    @classmethod
    def from_layout(
        cls, text: str, channels: Sequence[Mapping[str, Any]], endings: Sequence[str] = ("",)
    ) -> TileCoder:
        """Build a coder from a layout's TOML text.

        Args:
            text: The layout.
            channels: The channels of an observation in order; each has a "group".
            endings: The layout is applied once for each of these suffixes, to the groups with that
                suffix.

        Raises:
            ValueError: If the text is not TOML, or has an unknown key or group.
        """
        try:
            table = parsed_toml(text)
        except ValueError as error:
            raise ValueError(f"the tile layout is not valid TOML: {error}") from None
        unknown = sorted(set(table) - {"bias", "tiling"})
        if unknown:
            raise ValueError(
                f"the tile layout has an unknown key {unknown[0]!r}; it may hold bias and [[tiling]]"
            )
        tilings = table.get("tiling", [])
        bias = table.get("bias", True)
        if not isinstance(tilings, list) or not all(isinstance(t, dict) for t in tilings):
            raise ValueError("the tile layout: tiling must be [[tiling]] tables")
        if not isinstance(bias, bool):
            raise ValueError(f"the tile layout: bias must be true or false, not {bias!r}")
        tables = [
            {**tiling, "group": f"{tiling['group']}{ending}"} if "group" in tiling else tiling
            for ending in endings
            for tiling in tilings
        ]
        return cls(
            tables,
            [str(c["group"]) for c in channels],
            bias=bias,
            where=_numbered(tilings) * len(endings),
        )

    @classmethod
    def default(cls, n_inputs: int) -> TileCoder:
        """Build a coder for any observation: 8 tilings of 8 intervals per input, 4 of 4 x 4 per pair of neighbours.

        Raises:
            ValueError: If `n_inputs` is less than 1.
        """
        if n_inputs < 1:
            raise ValueError(f"n_inputs must be at least 1, not {n_inputs}")
        tables: list[dict[str, Any]] = [{"group": "obs", "intervals": [8], "tilings": 8}]
        if n_inputs > 1:
            tables.append({"group": "obs", "neighbour": 1, "intervals": [4, 4], "tilings": 4})
        return cls(tables, ["obs"] * n_inputs)

    def __repr__(self) -> str:
        return f"TileCoder(n_inputs={self.n_inputs}, n_features={self.n_features}, n_active={self.n_active})"

    @property
    def tilings(self) -> kernels.Tilings:
        """The tilings without the bias, for kernels that call `kernels.tiles.encode`."""
        return self._tilings

    def extended(
        self,
        tables: Sequence[Mapping[str, Any]],
        groups: Sequence[str],
        where: Sequence[str] | None = None,
    ) -> TileCoder:
        """Return a coder with further inputs, with their tiles inserted before the bias.

        Args:
            tables: `[[tiling]]` tables of the further inputs.
            groups: Group of each further input.
            where: Name of each further table in error messages; by default "[[tiling]] number 1"
                and so on.

        Raises:
            ValueError: As the constructor does.
        """
        all_tables = [*self._tables, *tables]
        all_groups = [*self._groups, *groups]
        if where is None:
            where = _numbered(tables)
        return TileCoder(all_tables, all_groups, bias=self._has_bias, where=[*self._where, *where])

    def encode(self, observation: NDArray[np.floating[Any]]) -> Tiles:
        """Return the active features, in increasing order.

        Args:
            observation: Scaled readings, each in [0, 1], shape (n_inputs,).

        Raises:
            ValueError: If `observation` has a wrong shape, or a reading is not in [0, 1].
        """
        observation = np.asarray(observation)
        if observation.shape != (self.n_inputs,):
            raise ValueError(
                f"observation must have shape ({self.n_inputs},), not {observation.shape}"
            )
        out = np.empty(self.n_active, dtype=np.int64)
        outside = kernels.encode(observation, self._tilings, out)
        if outside >= 0:
            raise ValueError(
                f"observation must lie in [0, 1]; channel {outside} is {float(observation[outside])!r}"
            )
        if self._has_bias:
            out[-1] = self.n_features - 1
        return out


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


def _tilings(
    table: Mapping[str, Any], groups: Sequence[str], where: str
) -> list[tuple[tuple[int, int], tuple[int, int], float]]:
    """Expand one [[tiling]] table to (channels, intervals, offset) of each of its tilings."""
    check_keys(table, where, _KEYS, _KEYS[:3])
    members = [i for i, group in enumerate(groups) if group == table["group"]]
    if not members:
        choices = ", ".join(dict.fromkeys(groups))
        raise ValueError(f"{where} names the unknown group {table['group']!r}; there are {choices}")
    n_dims = 2 if "neighbour" in table else 1
    intervals = table["intervals"]
    n_tilings = table["tilings"]
    step = table.get("neighbour", 0)
    if not isinstance(intervals, list | tuple) or len(intervals) != n_dims:
        raise ValueError(
            f"{where}: intervals must be {n_dims} whole number(s) in a list, not {intervals!r}"
        )
    for key, values, least, most in (
        ("intervals", intervals, 1, MOST_INTERVALS),
        ("tilings", [n_tilings], 1, MOST_TILINGS),
        ("neighbour", [step], -len(members), len(members)),
    ):
        if not all(
            hasattr(n, "__index__") and not isinstance(n, bool) and least <= n <= most
            for n in values
        ):
            raise ValueError(
                f"{where}: {key} must be whole, from {least} to {most:,}, not {table[key]!r}"
            )
    cells = (intervals[0], intervals[1] if n_dims == 2 else 1)
    return [
        ((channel, members[(i + step) % len(members)]), cells, j / n_tilings)
        for i, channel in enumerate(members)
        for j in range(n_tilings)
    ]
