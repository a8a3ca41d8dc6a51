"""Feed: an observer that leaves what a page shows of a life in files of a fixed size, in the run's folder `live/`.

facts.json          channels, actions, questions, what the body looks like; written once, and when demons come or go
status.json         counts and times of the moment, and a line for each shard, replaced about twice a second
ring.rec            the latest rows, a ring: record k lies in slot k % n_slots; `number` is written last
predictions.f32     what all demons predicted at each of them, float32, shape (n_slots, n_demons)
measures.f32        of each demon: NMSRE online, MSPBE (scalar), set aside (0, 1); float32, shape (3, n_demons)
curve.csv           step, mean NMSRE online, mean MSPBE, set aside; a line in ten seconds
stop-asked          made by the page: a person asks the body to stop

All is written to open files, not to mapped memory: a full disk is an OSError then, and ends the feed, not the life.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from horde_agent.cluster import AnyHorde, ShardedHorde, ShardStatus
from horde_agent.gvf import GVF, Channel
from horde_agent.interface import Interface
from horde_agent.life.life import Life, Moment
from horde_agent.life.observers import sound_demons
from horde_agent.record import row_dtype
from horde_agent.record.segments import encode_header
from horde_agent.types import Integers

FOLDER = "live"
FORMAT, VERSION = "horde-live", 1
ROW_EVERY_S, STATUS_EVERY_S, MEASURES_EVERY_S, CURVE_EVERY_S = 0.05, 0.5, 5.0, 10.0
MOST_SLOTS, MOST_BYTES = 600, 64 << 20  # of ring and predictions: a minute at 10 Hz, of fewer demons than 28,000

_log = logging.getLogger(__name__)


def slot_dtype(n_inputs: int) -> np.dtype[Any]:
    """Return the type of a slot: its number from 1 on (0: empty, or being written), and a row."""
    return np.dtype([("number", "<u8"), ("row", row_dtype(n_inputs))])


class Feed:
    """Writes what a page shows; an observer of a life. Where the disk takes no more, it ends, with one warning.

    Args:
        folder: The run's folder; `live/` is made in it.
        interface: What is known of the body.
        horde: The demons.
        picture: Of the body from above ("walls", "outline", "rays"; metres), and what 0 and 1 of each channel stand for
            ("ranges"); empty where unknown.
        total: Steps to live, or None.
        ask_to_stop: Called once when a person asked on the page.
        clock: Seconds, of a monotonic clock.
    """

    def __init__(
        self,
        folder: Path,
        interface: Interface,
        horde: AnyHorde,
        *,
        picture: Mapping[str, Any] | None = None,
        total: int | None = None,
        ask_to_stop: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.path = folder / FOLDER
        self._interface, self._picture, self._total = interface, dict(picture or {}), total
        self._ask_to_stop, self._clock = ask_to_stop, clock
        self._slot = np.zeros(1, slot_dtype(len(interface.channels)))
        self._began = clock()
        self._row_at = self._status_at = self._measures_at = self._curve_at = -math.inf
        self._files: dict[str, BinaryIO] = {}
        self.is_off = False
        try:
            self.path.mkdir(exist_ok=True)
            (self.path / "stop-asked").unlink(missing_ok=True)  # of an earlier life
            self._describe(horde)
        except OSError as error:
            self._give_up(error)

    def __call__(self, moment: Moment) -> None:
        """Observe a life: write what is due. A disk that takes no more ends the feed, with one warning.

        Steps that wait to be taken together are not taken for the sake of a look: that would change the rounding.
        """
        now = self._clock()
        if now - self._row_at < ROW_EVERY_S or self.is_off or moment.life.horde.n_waiting:
            return
        self._row_at = now
        try:
            self._write_row(moment)
            if now - self._status_at >= STATUS_EVERY_S:
                self._status_at = now
                self._write_status(moment.life, "living")
                self._obey_stop()
            if now - self._measures_at >= MEASURES_EVERY_S:
                self._measures_at = now
                self._write_measures(moment.life, now)
        except OSError as error:
            self._give_up(error)

    def rearrange(self, stays: Integers) -> None:  # noqa: ARG002  as every observer has it
        """Go on after demons came or went: what was kept of them is not theirs any more.

        Args:
            stays: Which demon each of now was, shape (n_demons,); not read here.
        """
        self._is_stale = True

    def close(self, life: Life | None = None) -> None:
        """Say that the life is over and let go of the files. Closing twice does nothing."""
        try:
            if life is not None and not self.is_off:
                life.student.catch_up()
                if isinstance(life.horde, ShardedHorde):
                    life.horde.wait()
                self._write_status(life, "over")
        except OSError as error:
            self._give_up(error)
        self.is_off = True
        for file in self._files.values():
            file.close()

    # ---- files -------------------------------------------------------------------------------------------------------

    def _describe(self, horde: AnyHorde) -> None:
        """Make all files anew for these demons."""
        for file in self._files.values():
            file.close()
        questions = horde.questions
        n_slots = max(16, min(MOST_SLOTS, MOST_BYTES // (4 * len(questions))))
        header = {"format": FORMAT, "version": VERSION, "n_slots": n_slots, "dtype": self._slot.dtype["row"].descr}
        line = encode_header(header)
        self._offset, self._n_slots, self._number, self._n_demons = len(line), n_slots, 0, len(questions)
        sizes = {
            "ring.rec": len(line) + n_slots * self._slot.itemsize,
            "predictions.f32": 4 * n_slots * len(questions),
            "measures.f32": 12 * len(questions),
        }
        for name, size in sizes.items():
            file = (self.path / name).open("w+b", buffering=0)
            self._files[name] = file
            file.truncate(size)
        self._files["ring.rec"].write(line)
        self._put("measures.f32", np.full(3 * len(questions), np.nan, np.float32).tobytes(), 0)
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "n_slots": n_slots,
            "channels": [channel._asdict() for channel in self._interface.channels],
            "actions": list(self._interface.actions),
            "period_s": self._interface.period_s,
            "total_steps": self._total,
            "picture": self._picture,
            "questions": [described(question) for question in questions],
        }
        replace_text(self.path / "facts.json", json.dumps(facts))
        self._is_stale = False

    def _put(self, name: str, data: bytes, offset: int) -> None:
        file = self._files[name]
        file.seek(offset)
        file.write(data)

    def _write_row(self, moment: Moment) -> None:
        life, row, slot = moment.life, moment.row, self._slot[0]
        if self._is_stale:
            self._describe(life.horde)
        at = self._number % self._n_slots
        place = self._offset + at * self._slot.itemsize
        to = slot["row"]
        to["t"], to["b"], to["observation"], to["pose"] = row.t, row.b, row.observation, row.pose
        to["step"], to["policy"], to["action"] = row.step, row.policy, row.action
        to["phase"], to["flags"] = row.phase, row.flags
        slot["number"] = 0  # until all of it is there
        self._put("ring.rec", self._slot.tobytes(), place)
        predictions = np.asarray(life.student.predictions, dtype=np.float32)
        self._put("predictions.f32", predictions.tobytes(), at * predictions.nbytes)
        self._number += 1
        self._put("ring.rec", self._number.to_bytes(8, "little"), place)

    def _write_status(self, life: Life, state: str) -> None:
        cycles = 1e3 * life.cycle_s.latest(600)
        p50, p99, top = np.percentile(cycles, [50, 99, 100]).tolist() if len(cycles) else (None, None, None)
        seconds = self._clock() - self._began
        status = {
            "state": state,
            "pid": os.getpid(),
            "step": life.steps,
            "t": None if math.isnan(life.t) else life.t,
            "wall_s": seconds,
            "learning_steps": life.student.learning_steps,
            "cycle_ms": {"p50": p50, "p99": p99, "max": top},
            "deadlines_missed": life.deadlines_missed,
            "gaps": life.gaps,
            "crc_errors": life.crc_errors,
            "n_not_applied": life.n_not_applied,
            "link_losses": life.link_losses,
            "n_excursions": life.student.errors.n_excursions,
            "n_diverged": life.horde.n_diverged,
            "number": self._number,
            "shards": [shard._asdict() for shard in shards_of(life.horde)],
        }
        replace_text(self.path / "status.json", json.dumps(status))

    def _write_measures(self, life: Life, now: float) -> None:
        sound = sound_demons(life.horde)
        mspbe = np.asarray(life.horde.mspbe_scalar, dtype=np.float32)
        nmsre = life.student.errors.online().astype(np.float32)
        self._put("measures.f32", np.concatenate([nmsre, mspbe, (~sound).astype(np.float32)]).tobytes(), 0)
        if now - self._curve_at >= CURVE_EVERY_S:
            self._curve_at = now
            means = [_mean(nmsre[sound]), _mean(mspbe[sound]), int(np.count_nonzero(~sound))]
            with (self.path / "curve.csv").open("a", encoding="utf-8") as file:
                file.write(",".join(map(str, [life.steps, *means])) + "\n")

    def _obey_stop(self) -> None:
        if (self.path / "stop-asked").exists():
            _log.warning("the live page asked for a stop")
            self._ask_to_stop()

    def _give_up(self, error: OSError) -> None:
        self.is_off = True
        for file in self._files.values():
            file.close()
        _log.warning("the live page is told no more (%s); the life goes on", error.strerror or error)


def shards_of(horde: AnyHorde) -> list[ShardStatus]:
    """Return what is known of the shards; none where there is one Horde, in this process."""
    return horde.shards if isinstance(horde, ShardedHorde) else []


def described(question: GVF) -> dict[str, Any]:
    """Return what a page says of a question: its numbers, where they are constant."""
    policy, cumulant = question.target_policy, question.cumulant
    channel = cumulant.index if isinstance(cumulant, Channel) and isinstance(cumulant.index, int) else None
    return {
        "name": question.name,
        "gamma": question.continuation if not callable(question.continuation) else None,
        "channel": channel,
        "action": getattr(policy, "action", None),
        "is_behaviour": type(policy).__name__ == "Behaviour",
    }


def replace_text(path: Path, text: str) -> None:
    """Replace a file as a whole: whoever reads finds the old text or the new one."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _mean(values: NDArray[np.float32]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")
