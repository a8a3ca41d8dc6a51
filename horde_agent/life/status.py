"""The status of a life, in files of the run's folder `live/` for the live page.

facts.json      channels, actions, questions, picture of the robot; written once, and after demons are added or removed
now.json        counts, times, measures and a line for each shard; replaced at most five times a second
demons.npz      NMSRE, MSPBE and divergence of each demon, its predictions of the last minute; replaced every 2 s
curve.csv       step, median and mean of the online NMSRE, mean MSPBE, diverged demons; a line every 10 s
surprise.json   evidence over time and alarms, if surprise is watched for; replaced every 5 s

Observations and actions are not repeated here: the page reads the end of the record. A file is
replaced as a whole, so a reader never sees half of it. If a file cannot be written, for example on
a full disk, the updates end.
"""

from __future__ import annotations

import io
import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel
from horde_agent.interface import Interface
from horde_agent.learner import Learner
from horde_agent.life.life import Life, LifeHooks, StepEvent
from horde_agent.life.observers import sound_demons
from horde_agent.policies import Behaviour
from horde_agent.questions import question_columns, variance_questions
from horde_agent.record.kinds import LIVE
from horde_agent.scoring.surprise import surprise_table
from horde_agent.types import Integers

FOLDER = "live"
SURPRISE = "surprise.json"
NOW_EVERY_S = 0.2
DEMONS_EVERY_S = 2.0
MEASURES_EVERY_S = 5.0
CURVE_EVERY_S = 10.0
CURVE_COLUMNS = ("step", "median_nmsre", "mean_nmsre", "mean_mspbe", "n_diverged")
_LATEST_STEPS = 600  # over which cycle times and the reward are averaged
# Of predictions: a minute, of up to 3,495 demons
_MOST_SAMPLES = 300
_MOST_BYTES = 4 << 20
_LEAST_SAMPLES = 8  # of more demons

_log = logging.getLogger(__name__)


class LiveStatusWriter(LifeHooks):
    """Write what the live page shows; an observer of a life.

    Args:
        folder: The run's folder; `live/` is created in it.
        interface, horde: Of the life.
        picture: The body from above ("walls", "outline", "rays"; metres), and the values that 0 and
            1 of each channel stand for ("ranges"); empty if unknown.
        total: Steps of the life, or None.
        time_name: What the time of its steps is called; "" if they have no duration.
        clock: Seconds, of a monotonic clock.

    Attributes:
        is_off: Whether the updates have ended; after a file could not be written, with one warning.
    """

    def __init__(
        self,
        folder: Path,
        interface: Interface,
        horde: Learner,
        *,
        picture: Mapping[str, Any] | None = None,
        total: int | None = None,
        time_name: str = "robot time",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.path = folder / FOLDER
        self._interface = interface
        self._picture = dict(picture or {})
        self._total = total
        self._time_name = time_name
        self._clock = clock
        self._began = clock()
        self._now_at = self._demons_at = self._measures_at = self._curve_at = -math.inf
        self.is_off = False
        self._rewards: deque[float] = deque(maxlen=_LATEST_STEPS)
        try:
            self.path.mkdir(exist_ok=True)
            self._describe(horde)
        except OSError as error:
            self._give_up(error)

    def after_step(self, event: StepEvent) -> None:
        """Write the files that are due.

        Deferred steps are not flushed for this: flushing at other steps would change the rounding.
        """
        if math.isfinite(event.row.reward):
            self._rewards.append(event.row.reward)
        now_s = self._clock()
        life = event.life
        if now_s - self._now_at < NOW_EVERY_S or self.is_off or life.horde.n_waiting:
            return
        self._now_at = now_s
        try:
            if self._is_stale:
                self._describe(life.horde)
            row = event.row
            self._times.append(
                (row.step, row.step * self._interface.period_s if math.isnan(row.t) else row.t)
            )
            self._predictions.append(np.array(life.student.predictions, dtype=np.float32))
            if now_s - self._measures_at >= MEASURES_EVERY_S:
                self._measures_at = now_s
                self._measure(life, now_s)
                self._write_surprise(life)
            self._write_now(life, "living")
            if now_s - self._demons_at >= DEMONS_EVERY_S:
                self._demons_at = now_s
                self._write_demons()
        except OSError as error:
            self._give_up(error)

    def rearrange(self, old_index: Integers) -> None:  # noqa: ARG002
        """Write facts.json again before the next update; `old_index`, shape (n_demons,), is not needed."""
        self._is_stale = True

    def close(self, life: Life | None = None) -> None:
        """Write the final state of the life, if one is given, and end the updates. Closing twice does nothing."""
        try:
            if life is not None and not self.is_off:
                life.student.catch_up()
                life.horde.catch_up()
                self._write_now(life, "over")
                self._write_surprise(life)
                if not self._is_stale:
                    self._write_demons()
        except OSError as error:
            self._give_up(error)
        self.is_off = True

    # ---- files -------------------------------------------------------------------------------------------------------

    def _describe(self, horde: Learner) -> None:
        """Write facts.json for these demons, and forget all predictions and measures."""
        names = [question.name for question in horde.questions]
        n_samples = max(_LEAST_SAMPLES, min(_MOST_SAMPLES, _MOST_BYTES // (4 * len(names))))
        self._times: deque[tuple[int, float]] = deque(maxlen=n_samples)
        self._predictions: deque[NDArray[np.float32]] = deque(maxlen=n_samples)
        self._nmsre = self._mspbe = np.full(len(names), np.nan, np.float32)
        self._is_sound = np.ones(len(names), np.bool_)
        self._checksum = checksum_of(names)
        self._is_stale = False
        self._measures_at = self._demons_at = -math.inf
        facts = {
            **LIVE.stamp(),
            "channels": [channel._asdict() for channel in self._interface.channels],
            "actions": list(self._interface.actions),
            "period_s": self._interface.period_s,
            "total_steps": self._total,
            "time_name": self._time_name,
            "picture": self._picture,
            "questions": described(horde.questions, self._interface),
        }
        _replace(self.path / "facts.json", json.dumps(facts).encode())

    def _measure(self, life: Life, now: float) -> None:
        self._is_sound = sound_demons(life.horde)
        self._mspbe = np.asarray(life.horde.mspbe_scalar, dtype=np.float32)
        self._nmsre = life.student.errors.online().astype(np.float32)
        if now - self._curve_at >= CURVE_EVERY_S:
            self._curve_at = now
            with (self.path / "curve.csv").open("a", encoding="utf-8") as file:
                facts = {"step": life.steps} | self._summary()
                file.write(
                    ",".join(
                        "" if facts[name] is None else f"{facts[name]}" for name in CURVE_COLUMNS
                    )
                    + "\n"
                )

    def _summary(self) -> dict[str, Any]:
        """Return measures over the demons that have not diverged; None if there is no value."""
        nmsre, mspbe = (
            values[self._is_sound & np.isfinite(values)] for values in (self._nmsre, self._mspbe)
        )
        return {
            "median_nmsre": float(np.median(nmsre)) if len(nmsre) else None,
            "mean_nmsre": float(nmsre.mean()) if len(nmsre) else None,
            "share_nmsre_below_1": float((nmsre < 1.0).mean()) if len(nmsre) else None,
            "mean_mspbe": float(mspbe.mean()) if len(mspbe) else None,
            "n_diverged": int(np.count_nonzero(~self._is_sound)),
        }

    def _write_now(self, life: Life, state: str) -> None:
        cycles = 1e3 * life.cycle_s.latest(_LATEST_STEPS)
        p50, p99, top = (
            np.percentile(cycles, [50, 99, 100]).tolist() if len(cycles) else (None, None, None)
        )
        reward = None
        if self._rewards:
            reward = sum(self._rewards) / len(self._rewards)
        facts = {
            "state": state,
            "step": life.steps,
            "t": None if math.isnan(life.t) else life.t,
            "wall_s": self._clock() - self._began,
            "learning_steps": life.student.learning_steps,
            "cycle_ms": {"p50": p50, "p99": p99, "max": top},
            "deadlines_missed": life.counts.deadlines_missed,
            "gaps": life.counts.gaps,
            "crc_errors": life.counts.crc_errors,
            "n_not_applied": life.counts.n_not_applied,
            "link_losses": life.counts.link_losses,
            "n_excursions": life.student.errors.n_excursions,
            "n_discarded": life.student.errors.n_discarded,
            "discarded_by": life.student.errors.discarded_by(),
            "reward": reward,
            "missing": [one._asdict() for one in life.student.missing_readings()],
            **self._summary(),
            "n_diverged": life.horde.n_diverged,
            "shards": [shard._asdict() for shard in life.horde.shards],
        }
        _replace(self.path / "now.json", json.dumps(facts).encode())

    def _write_demons(self) -> None:
        file = io.BytesIO()
        np.savez(
            file,
            nmsre=self._nmsre,
            mspbe=self._mspbe,
            diverged=~self._is_sound,
            steps=np.array([step for step, _ in self._times], dtype=np.int64),
            t=np.array([t for _, t in self._times]),
            predictions=np.array(self._predictions, dtype=np.float32).reshape(
                len(self._times), len(self._nmsre)
            ),
            checksum=np.uint32(self._checksum),
        )
        _replace(self.path / "demons.npz", file.getvalue())

    def _write_surprise(self, life: Life) -> None:
        surprise = life.student.surprise
        if surprise is not None:
            table = surprise_table(surprise)
            _replace(self.path / SURPRISE, json.dumps(table).encode())

    def _give_up(self, error: OSError) -> None:
        self.is_off = True
        _log.warning("live page updates stopped (%s); the run continues", error.strerror or error)


def checksum_of(names: Sequence[str]) -> int:
    """Return the CRC-32 of the questions' names; files about the same questions have the same."""
    return crc32("\n".join(names).encode())


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(data)
    beside.replace(path)


def described(questions: Sequence[GVF], interface: Interface) -> list[dict[str, Any]]:
    """Return what facts.json says of each question; gamma, channel and action are None if not constant.

    `variance` is the index of the question about the variance of its return, None without one.
    """
    facts = []
    variances = variance_questions(questions)
    all_columns = question_columns(questions, interface)
    for number, (question, columns) in enumerate(zip(questions, all_columns, strict=True)):
        channel = None
        cumulant = question.cumulant
        if isinstance(cumulant, Channel) and isinstance(cumulant.index, int):
            channel = cumulant.index
        gamma = None
        if not math.isnan(columns.gamma):
            gamma = columns.gamma
        policy = question.target_policy
        facts.append(
            {
                "name": question.name,
                "gamma": gamma,
                "channel": channel,
                "action": getattr(policy, "action", None),
                "is_behaviour": isinstance(policy, Behaviour),
                "family": columns.family,
                "policy": columns.policy,
                "variance": variances.get(number),
            }
        )
    return facts
