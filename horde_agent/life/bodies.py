"""Environments of a life: robots by backend, and logs as CSV or Parquet files."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from horde_agent.life.process_env import ProcessEnv, is_worthwhile
from horde_agent.types import Bools, Floats

LampMove = tuple[float, str, tuple[float, float, float]]
"""Robot time in seconds, name of the lamp, and its new position (x, y, z in metres)."""

ONE_AT_A_TIME = ("serial", "drops")
"""Backends that are a physical robot: one life at a time."""

_LATE = 1.5  # periods after which a row of a log follows a gap

_NAMES = {
    ("critterbot", "simulator"): "CritterbotPen",
    ("critterbot", "emulated"): "CritterbotEmulated",
    ("critterbot", "replay"): "CritterbotReplay",
    ("critterbot", "serial"): "CritterbotSerial",
    ("critterbot", "drops"): "CritterbotDrops",
    ("create2", "simulator"): "CreatePen",
    ("create2", "emulated"): "CreateEmulated",
    ("create2", "serial"): "CreateSerial",
}


def make_body(
    backend: str,
    port: str | None = None,
    *,
    parity: str | None = None,
    env_id: str | None = None,
    robot: str = "critterbot",
    log: Path | None = None,
    realtime: bool = False,
    physics: str | None = None,
    lamp_moves: Sequence[LampMove] = (),
    in_process: bool = False,
) -> gymnasium.Env[Any, Any]:
    """Make an environment.

    Args:
        backend: As in `horde learn --backend`.
        port: Of a physical robot.
        parity: Of its serial line; None uses the robot's file.
        env_id: Of the environment, with the backend "gymnasium".
        robot: As in `horde learn --robot`.
        log: Read by the backend "replay".
        realtime: Keep 100 ms between two steps, if the backend does not do so by itself.
        physics: Engine of a simulator; the installed one when None.
        lamp_moves: Changes of the pen during the life, in the simulator only.
        in_process: Run the simulator in a separate process, if that is faster.

    Raises:
        ValueError: If `lamp_moves` is not supported, or the robot has no such backend.
    """
    if lamp_moves and (robot, backend) != ("critterbot", "simulator"):
        raise ValueError(f"lamp_moves needs the simulator of the critterbot, not the backend {backend!r} of {robot}")
    if backend == "gymnasium":
        return gymnasium.make(str(env_id), disable_env_checker=True)
    if (robot, backend) not in _NAMES:
        raise ValueError(f"the robot {robot!r} has no backend {backend!r}")
    name = f"horde_env:{_NAMES[robot, backend]}-v0"
    settings: dict[str, Any] = {"disable_env_checker": True}
    if backend in ONE_AT_A_TIME:
        if parity is not None:
            settings["parity"] = parity
        return gymnasium.make(name, port=port, **settings)
    settings["realtime"] = realtime
    if backend == "replay":
        return gymnasium.make(name, log=str(log), **settings)
    if physics is not None:
        settings["physics"] = physics
    if lamp_moves:
        return gymnasium.make(name, lamp_moves=tuple(lamp_moves), **settings)
    if backend == "simulator" and in_process and not realtime and is_worthwhile():
        return ProcessEnv(name, **settings)
    return gymnasium.make(name, **settings)


# ---- logs ------------------------------------------------------------------------------------------------------------


class TableBody(gymnasium.Env[NDArray[np.float32], int]):
    """Any robot's log as an environment: `step` ignores its action, and truncates with the last row.

    A TOML file maps the log's columns to channels:

        period_s = 0.1                # between two rows
        time = "stamp"                # optional column of seconds: a late row follows a gap

        [[channel]]
        column = "Light0"
        name = "light_0"              # optional, like the rest; default: the column's name
        group = "light"               # default: the name
        unit = "V"                    # default: "1"
        low = 0.0                     # default of low and high: the range in the file
        high = 5.0

    A row without a number in one of these columns is dropped, and the next one follows a gap. Actions are unknown, so
    the log gives predictions about the behaviour only.

    Args:
        log: The CSV file, with a header, or the Parquet file (`pip install -e '.[log]'`).
        columns: TOML file that maps columns to channels.

    Raises:
        ValueError: If a file cannot be read, a column is missing, or no row is complete.
    """

    def __init__(self, log: Path, columns: Path) -> None:
        period_s, time, channels = _map_of(columns)
        names = [channel["column"] for channel in channels]
        table = _read(log, [*names, *([time] if time else [])])
        is_complete: Bools = np.asarray(np.isfinite(table).all(axis=1))
        if not is_complete.any():
            raise ValueError(f"{log} has no row with a number in each of the columns {', '.join(names)}")
        self._t = table[:, -1] if time else period_s * np.arange(len(table))
        since = np.diff(self._t, prepend=np.nan)  # NaN for the first row, and after one without a time
        follows = np.concatenate([[False], is_complete[:-1]]) & (since > 0) & (since <= _LATE * period_s)
        self._gap = ~follows[is_complete]
        self._t, self._rows = self._t[is_complete], table[is_complete][:, : len(names)].astype(np.float32)
        low = [channel.get("low", float(x.min())) for channel, x in zip(channels, self._rows.T, strict=True)]
        high = [channel.get("high", float(x.max())) for channel, x in zip(channels, self._rows.T, strict=True)]
        high = [b if b > a else a + 1.0 for a, b in zip(low, high, strict=True)]
        bounds = np.array([low, high], dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(bounds[0], bounds[1], dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(1)  # type: ignore[assignment]
        n_dropped = np.count_nonzero(~is_complete)
        notes = [f"{n_dropped:,} of {len(table):,} rows have no number in one of the columns and are dropped."]
        self.metadata = {
            "channels": [_described(channel) for channel in channels],
            "actions": ["unknown"],
            "period_s": period_s,
            "notes": notes if n_dropped else [],
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
        """Return the next row, whatever the action."""
        self._k += 1
        return self._rows[self._k].copy(), 0.0, False, self._k == len(self._rows) - 1, self._info()

    def _info(self) -> dict[str, Any]:
        return {"t": float(self._t[self._k]), "gap": int(self._gap[self._k])}


def _described(channel: dict[str, Any]) -> dict[str, Any]:
    name = channel.get("name", channel["column"])
    return {"name": name, "group": channel.get("group", name), "unit": channel.get("unit", "1"), "sensor": True}


def _map_of(file: Path) -> tuple[float, str | None, list[dict[str, Any]]]:
    """Return period, column of the time and channels from a file.

    Raises:
        ValueError: If it cannot be read, or lacks one of them.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        channels = table["channel"]
        if not (float(table["period_s"]) > 0 and channels and all(isinstance(c["column"], str) for c in channels)):
            raise ValueError("period_s must be > 0, and each channel needs a column")
        return float(table["period_s"]), table.get("time"), channels
    except (OSError, LookupError, TypeError, ValueError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else f"{error}"
        raise ValueError(f"the columns in {file} cannot be read: {reason}") from None


def _read(log: Path, names: list[str]) -> Floats:
    """Return columns of a table, shape (n_rows, n_names), with NaN for a missing number.

    Raises:
        ValueError: If it cannot be read, or a column is missing.
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
