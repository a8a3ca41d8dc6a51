"""What a page shows, read from a run's folder: of a life that goes on (`live/`), and of one that is over."""

from __future__ import annotations

import csv
import difflib
import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.life.feed import FOLDER, FORMAT, VERSION, slot_dtype
from horde_agent.record import Stream, read, snapshots
from horde_agent.record.segments import parts
from horde_agent.runs.config import BadInput
from horde_agent.runs.run_folder import read_curve

MOST_POINTS = 2000  # of a curve
FORGOTTEN = 0.02  # of a return: what lies further ahead than gamma^n = this is left out
_NEWEST = 4096  # rows of the record that a page may look at
SILENT_S = 10.0  # after which a life that said nothing is shown as silent

Table = dict[str, Any]


class RunReader:
    """Reads a run; keeps nothing but what was read last.

    Args:
        folder: The run's folder.

    Raises:
        BadInput: If it holds no run, or one of another version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.live = folder, folder / FOLDER
        if not folder.is_dir():
            raise BadInput(f"there is no folder {folder}; name the folder of a run, as runs/simulator-1")
        if not (folder / "config.toml").is_file():
            raise BadInput(f"{folder} holds no run (no config.toml); name the folder that `horde learn` made")
        self._facts: Table = {}
        self._facts_at = -1.0
        self._record: Stream | None = None
        self._sizes: tuple[int, ...] = ()  # of its files, when it was read
        self._curves: dict[
            tuple[str, str], tuple[int, list[list[float | None]]]
        ] = {}  # by file, with its time of change
        if not self.facts()["channels"]:
            raise BadInput(f"{folder} holds neither a live feed nor a record of its life yet; try again in a moment")

    # ---- what does not change ----------------------------------------------------------------------------------------

    def facts(self) -> Table:
        """Return channels, actions, questions and the picture; read again when the life replaced them."""
        path = self.live / "facts.json"
        if path.is_file():
            changed = path.stat().st_mtime
            if changed != self._facts_at:
                facts = json.loads(path.read_text(encoding="utf-8"))
                if (facts.get("format"), facts.get("version")) != (FORMAT, VERSION):
                    raise BadInput(f"{path} is of another version than this program ({FORMAT} {VERSION})")
                self._facts, self._facts_at = facts, changed
                self._dtype = slot_dtype(len(facts["channels"]))
        elif not self._facts:
            self._facts = self._from_record()
        return self._facts

    def _from_record(self) -> Table:
        """Return the facts of a run that left no feed: its record's header, and the names in its table."""
        header, names = {}, [row["name"] for row in self._csv("questions.csv")]
        if (self.folder / "log" / "life.rec").is_file():
            header = self.record().header
        return {
            "channels": header.get("channels", []),
            "actions": header.get("actions", []),
            "period_s": header.get("period_s", 1.0),
            "total_steps": None,
            "picture": {},
            "questions": [{"name": name} for name in names],
        }

    def record(self) -> Stream:
        """Return the end of the life's record, as far as it is on the disk: _NEWEST rows, if there are so many.

        Raises:
            BadInput: If it cannot be read.
        """
        path = self.folder / "log" / "life.rec"
        sizes = tuple(file.stat().st_size for file in parts(path))
        if self._record is None or sizes != self._sizes:
            try:
                self._record, self._sizes = read(path, newest=_NEWEST), sizes
            except (OSError, ValueError) as error:
                raise BadInput(f"{path} cannot be read: {error}") from error
        return self._record

    # ---- the moment --------------------------------------------------------------------------------------------------

    def status(self) -> Table:
        """Return counts and times of the moment, and the disk; of a run that is over from its summary."""
        status = self._json(self.live / "status.json")
        summary = self._json(self.folder / "summary.json")
        if summary:
            keys = ("deadlines_missed", "gaps", "crc_errors", "cycle_ms", "learning_steps", "n_excursions")
            status |= {key: summary.get(key) for key in keys}
            status |= {"state": "over", "step": summary.get("steps"), "t": summary.get("robot_time_s")}
            status["n_diverged"] = len(summary.get("diverged") or [])
        elif status and status.get("state") == "living":
            silent_s = time.time() - (self.live / "status.json").stat().st_mtime
            if silent_s > SILENT_S:
                status |= {"state": "silent", "silent_s": silent_s}
        disk = shutil.disk_usage(self.folder)
        status["disk"] = {"free": disk.free, "total": disk.total, "run": _size(self.folder)}
        status["snapshots"] = sum(1 for _ in snapshots.found(self.folder / "checkpoint"))
        return {"state": "unknown", "step": 0, **status}

    def rows(self, after: int = 0, most: int = 600) -> list[Table]:
        """Return the newest rows with a number above `after`, oldest first: number, t, step, pose, action, values.

        Those of a life that is over come from its record, which has all of them: a fast life left few in the ring.
        """
        slots, has_record = self._slots(), (self.folder / "log" / "life.rec").is_file()
        if slots is None or (has_record and (self.folder / "summary.json").is_file()):
            if not has_record:
                return []
            rows = self.record().rows[-most:]
            numbers = 1 + np.arange(len(rows))
        else:
            slots = slots[slots["number"] > 0]
            slots = slots[np.argsort(slots["number"])]
            rows, numbers = slots["row"], slots["number"]
        chosen = numbers > after
        return [_row(n, row) for n, row in zip(numbers[chosen][-most:], rows[chosen][-most:], strict=True)]

    def _slots(self) -> NDArray[Any] | None:
        """Return the ring as it is, a slot that is being written left out; None where there is none."""
        path = self.live / "ring.rec"
        if not path.is_file():
            return None
        self.facts()
        with path.open("rb") as file:
            offset = json.loads(file.readline(1 << 20))["offset"]
            file.seek(offset)
            return np.frombuffer(file.read(), dtype=self._dtype)

    # ---- demons ------------------------------------------------------------------------------------------------------

    def measures(self) -> NDArray[np.float64]:
        """Return NMSRE, MSPBE and whether set aside (0, 1) of each demon, shape (3, n_demons); nan where unknown."""
        n = len(self.facts()["questions"])
        table = self._csv("questions.csv")
        if len(table) == n and n:
            columns = [[_number(row.get(key)) for row in table] for key in ("nmsre", "mspbe_scalar", "diverged")]
            return np.array(columns)
        path = self.live / "measures.f32"
        values = np.fromfile(path, dtype=np.float32) if path.is_file() else np.zeros(0, np.float32)
        if len(values) != 3 * n:
            return np.full((3, n), np.nan)
        return values.reshape(3, n).astype(np.float64)

    def demons(self, find: str, sort: str, descending: bool, offset: int, limit: int) -> Table:
        """Return a part of the table of demons: those whose names hold every word of `find`, sorted.

        Raises:
            BadInput: If `sort` is no column.
        """
        columns = {"name": None, "nmsre": 0, "mspbe": 1, "diverged": 2}
        if sort not in columns:
            raise BadInput(f"the demons cannot be sorted by {sort!r}; there are {', '.join(columns)}")
        names, measures = [q["name"] for q in self.facts()["questions"]], self.measures()
        words = find.lower().split()
        found = [i for i, name in enumerate(names) if all(word in name.lower() for word in words)]
        if sort == "name":
            found.sort(key=lambda i: names[i], reverse=descending)
        else:
            values = measures[columns[sort] or 0]
            sign = -1.0 if descending else 1.0
            found.sort(
                key=lambda i: (not math.isfinite(values[i]), sign * values[i] if math.isfinite(values[i]) else 0)
            )
        part = found[offset : offset + limit]
        rows = [{"i": i, "name": names[i], **_measures(measures[:, i])} for i in part]
        return {"n": len(names), "n_found": len(found), "rows": rows}

    def at(self, i: int) -> Table:
        """Return the row of demon `i` alone.

        Raises:
            BadInput: If there is none.
        """
        names = [q["name"] for q in self.facts()["questions"]]
        if not 0 <= i < len(names):
            raise BadInput(f"there is no question number {i}; there are {len(names)}")
        return {"n": len(names), "n_found": 1, "rows": [{"i": i, "name": names[i], **_measures(self.measures()[:, i])}]}

    def demon(self, name: str) -> Table:
        """Return a demon's predictions over time, and the returns that then came, where they are known.

        Raises:
            BadInput: If there is no such demon.
        """
        questions = self.facts()["questions"]
        names = [q["name"] for q in questions]
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.3)
            raise BadInput(f"there is no question {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        i = names.index(name)
        told = {"name": name, **_measures(self.measures()[:, i]), "unit": self._unit(questions[i])}
        slots, path = self._slots(), self.live / "predictions.f32"
        if (self.folder / "summary.json").is_file() and (traced := self._traced(name))["t"]:
            return told | traced
        if slots is None or not path.is_file():
            return told | self._traced(name)
        kept = np.memmap(path, dtype=np.float32, mode="r").reshape(-1, len(names))[:, i]
        known = np.flatnonzero(slots["number"] > 0)
        known = known[np.argsort(slots["number"][known])]
        rows = slots["row"][known]
        returns = self._returns(questions[i], rows["step"], slots["row"][slots["number"] > 0])
        return told | {"t": _list(_times(rows, self.facts())), "prediction": _list(kept[known]), "return": returns}

    def _unit(self, question: Table) -> str:
        channel = question.get("channel")
        return "" if channel is None else str(self.facts()["channels"][channel].get("unit", ""))

    def _traced(self, name: str) -> Table:
        """Return what the report kept of a demon, if it is one of those."""
        rows = [row for row in self._csv("traces.csv") if row["question"] == name]
        if not rows:
            return {"t": [], "prediction": [], "return": [], "why": "this run kept no predictions of this question"}
        columns = {"t": "t_s", "prediction": "prediction", "return": "actual"}
        return {key: [_or_none(_number(row[column])) for row in rows] for key, column in columns.items()}

    def _returns(self, question: Table, steps: NDArray[Any], ring: NDArray[Any]) -> list[float | None]:
        """Return sum gamma^k c_{t+1+k} from each of `steps`, where the body did what the policy does so long."""
        gamma, channel, action = question.get("gamma"), question.get("channel"), question.get("action")
        if gamma is None or channel is None or (action is None and not question.get("is_behaviour")):
            return [None] * len(steps)
        rows = self._neighbours(steps, ring)
        n_ahead = 1 if gamma == 0.0 else math.ceil(math.log(FORGOTTEN) / math.log(gamma))
        weights, place = gamma ** np.arange(n_ahead), {int(step): k for k, step in enumerate(rows["step"])}
        broken = (rows["flags"] & 1).astype(bool)
        followed = rows["action"] == action if action is not None else rows["phase"] == 0
        returns: list[float | None] = []
        for step in steps.tolist():
            k = place.get(step, len(rows))
            ahead = slice(k + 1, k + 1 + n_ahead)
            is_known = (
                k + n_ahead < len(rows)
                and rows["step"][k + n_ahead] == step + n_ahead
                and followed[k : k + n_ahead].all()
                and not broken[ahead].any()
            )
            returns.append(float(weights @ rows["observation"][ahead, channel]) if is_known else None)
        return returns

    def _neighbours(self, steps: NDArray[Any], ring: NDArray[Any]) -> NDArray[Any]:
        """Return the rows from the first of `steps` on, each step once: those on the disk, then those of the ring."""
        ring = ring[np.argsort(ring["step"])]
        path = self.folder / "log" / "life.rec"
        if not path.is_file() or not len(steps):
            return ring
        rows = self.record().rows
        first = np.searchsorted(rows["step"], steps.min()) if len(rows) else 0
        rows = np.asarray(rows[first:])
        last = rows["step"][-1] if len(rows) else -1
        newer = ring[ring["step"].astype(np.int64) > int(last)]
        both = np.concatenate([rows.astype(ring.dtype), newer]) if len(rows) else newer
        return both[np.unique(both["step"], return_index=True)[1]]

    # ---- curves ------------------------------------------------------------------------------------------------------

    def curves(self) -> Table:
        """Return mean NMSRE and mean MSPBE over the steps, some MOST_POINTS of each."""
        nmsre = self._curve("learning_curve.csv", "mean_nmsre_online")
        mspbe = self._curve("mspbe_curve.csv", "mspbe_scalar_mean")
        if nmsre[0] or mspbe[0]:
            return {"nmsre": nmsre, "mspbe": mspbe}
        live, head = f"{FOLDER}/curve.csv", ["step", "nmsre", "mspbe", "aside"]
        return {name: self._curve(live, name, head) for name in ("nmsre", "mspbe")}

    def _curve(self, name: str, column: str, head: list[str] | None = None) -> list[list[float | None]]:
        """Return steps and values of a curve's file; it is read again only where it has changed."""
        path = self.folder / name
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        if self._curves.get((name, column), (0, []))[0] != changed:
            points = read_curve(path, ("step", column), MOST_POINTS, head)
            self._curves[name, column] = (changed, [[_or_none(value) for value in values] for values in points])
        return self._curves[name, column][1] if changed else [[], []]

    def _csv(self, name: str) -> list[dict[str, str]]:
        path = self.folder / name
        if not path.is_file():
            return []
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    @staticmethod
    def _json(path: Path) -> Table:
        """Return a JSON table; an empty one where there is none."""
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return table if isinstance(table, dict) else {}


def _times(rows: NDArray[Any], facts: Table) -> NDArray[np.float64]:
    """Return the robot's time of each row, seconds; counted from the steps where the body has no clock."""
    t = np.asarray(rows["t"], dtype=np.float64)
    return np.where(np.isfinite(t), t, rows["step"] * float(facts["period_s"]))


def _row(number: Any, row: Any) -> Table:
    pose = [_or_none(float(v)) for v in row["pose"]]
    values = [_or_none(round(float(v), 5)) for v in row["observation"]]
    t = _or_none(float(row["t"]))
    return {
        "number": int(number),
        "step": int(row["step"]),
        "t": t,
        "pose": None if None in pose else pose,
        "action": int(row["action"]),
        "phase": int(row["phase"]),
        "flags": int(row["flags"]),
        "values": values,
    }


def _measures(values: NDArray[np.float64]) -> Table:
    nmsre, mspbe, diverged = (float(v) for v in values)
    return {"nmsre": _or_none(nmsre), "mspbe": _or_none(mspbe), "diverged": diverged == 1.0}


def _number(text: str | None) -> float:
    try:
        return float(text) if text else math.nan
    except ValueError:
        return math.nan


def _or_none(value: float) -> float | None:
    """Return what JSON can hold: None for nan and the infinite."""
    return value if math.isfinite(value) else None


def _list(values: NDArray[Any]) -> list[float | None]:
    return [_or_none(float(v)) for v in values]


def _size(folder: Path) -> int:
    """Return the bytes of the files in a run's folder, two levels deep."""
    total = 0
    for pattern in ("*", "*/*"):
        for path in folder.glob(pattern):
            try:
                total += path.stat().st_size if path.is_file() else 0
            except OSError:
                continue
    return total
