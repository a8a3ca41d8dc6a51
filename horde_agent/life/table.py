"""TableBody: any robot's log, a CSV or Parquet file, as an environment that does what was once done.

Which columns are channels says a TOML file:

    period_s = 0.1                # between two rows
    time = "stamp"                # column of seconds, where there is one: a row that comes late follows a gap

    [[channel]]
    column = "Light0"
    name = "light_0"              # all that follows may be left out: the column's name,
    group = "light"               # the name,
    unit = "V"                    # "1",
    low = 0.0                     # and the range of what is in the file
    high = 5.0

A row in which one of these columns holds no number is left out, and the one after it follows a gap. What was done is
not known, so that the log gives predictions about the behaviour itself.
"""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from horde_agent.types import Bools, Floats

_LATE = 1.5  # periods after which a row does not follow from the one before


class TableBody(gymnasium.Env[NDArray[np.float32], int]):
    """A log as an environment: `step` ignores its action, and truncates with the last row.

    Args:
        log: The CSV file, with a header, or the Parquet file (`pip install -e '.[log]'`).
        columns: TOML file that says which columns are channels; see above.

    Raises:
        ValueError: If a file cannot be read, names what is not there, or leaves no row.
    """

    def __init__(self, log: Path, columns: Path) -> None:
        period_s, time, channels = _map_of(columns)
        names = [channel["column"] for channel in channels]
        table = _read(log, [*names, *([time] if time else [])])
        whole: Bools = np.asarray(np.isfinite(table).all(axis=1))
        if not whole.any():
            raise ValueError(f"{log} holds no row with a number in each of the columns {', '.join(names)}")
        self._t = table[:, -1] if time else period_s * np.arange(len(table))
        since = np.diff(self._t, prepend=np.nan)  # not known of the first row, nor after one without a time
        follows = np.concatenate([[False], whole[:-1]]) & (since > 0) & (since <= _LATE * period_s)
        self._gap = ~follows[whole]
        self._t, self._rows = self._t[whole], table[whole][:, : len(names)].astype(np.float32)
        low = [channel.get("low", float(x.min())) for channel, x in zip(channels, self._rows.T, strict=True)]
        high = [channel.get("high", float(x.max())) for channel, x in zip(channels, self._rows.T, strict=True)]
        high = [b if b > a else a + 1.0 for a, b in zip(low, high, strict=True)]
        bounds = np.array([low, high], dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(bounds[0], bounds[1], dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(1)  # type: ignore[assignment]
        notes = [f"{(~whole).sum():,} of {len(whole):,} rows hold no number in one of the columns, and are left out."]
        self.metadata = {
            "channels": [_described(channel) for channel in channels],
            "actions": ["unknown"],
            "period_s": period_s,
            "notes": notes if not whole.all() else [],
        }
        self._k = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin at the first row."""
        super().reset(seed=seed, options=options)
        self._k = 0
        return self._rows[0].copy(), self._info()

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        """Go on to the next row, whatever the action."""
        self._k += 1
        return self._rows[self._k].copy(), 0.0, False, self._k == len(self._rows) - 1, self._info()

    def _info(self) -> dict[str, Any]:
        return {"t": float(self._t[self._k]), "gap": int(self._gap[self._k])}


def _described(channel: dict[str, Any]) -> dict[str, Any]:
    """Return a channel as an environment's metadata have it."""
    name = channel.get("name", channel["column"])
    return {"name": name, "group": channel.get("group", name), "unit": channel.get("unit", "1"), "sensor": True}


def _map_of(file: Path) -> tuple[float, str | None, list[dict[str, Any]]]:
    """Return period, column of the time and channels, as a file says them.

    Raises:
        ValueError: If it cannot be read, or lacks one of them.
    """
    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
        channels = said["channel"]
        if not (float(said["period_s"]) > 0 and channels and all(isinstance(c["column"], str) for c in channels)):
            raise ValueError("period_s must be above 0, and each channel have a column")
        return float(said["period_s"]), said.get("time"), channels
    except (OSError, LookupError, TypeError, ValueError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else f"{error}"
        raise ValueError(f"the columns of {file} cannot be read: {why}") from None


def _read(log: Path, names: list[str]) -> Floats:
    """Return columns of a table, shape (n_rows, n_names), NaN where there is no number.

    Raises:
        ValueError: If it cannot be read, or a column is not there.
    """
    try:
        columns = _read_parquet(log, names) if log.suffix == ".parquet" else _read_csv(log, names)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{log} cannot be read: {error}") from None
    except KeyError as error:
        raise ValueError(f"{log} has no column {error}") from None
    return np.column_stack([np.array([_number(x) for x in column]) for column in columns])


def _read_csv(log: Path, names: list[str]) -> list[list[Any]]:
    with log.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    return [[row[name] for row in rows] for name in names]


def _read_parquet(log: Path, names: list[str]) -> list[list[Any]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ValueError("Parquet needs pyarrow: pip install -e '.[log]'") from None
    table = parquet.read_table(log)
    return [table[name].to_pylist() for name in names]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
