"""Alarms of a life that nobody watches: a command is called, with the alarm's name and a sentence.

    diverged    a demon was set aside              overheating   a motor is too hot
    deadline    a step came more than 50 ms late   disk          the disk is nearly full
    silent      a sensor that varied has stood still for ten minutes

Each is told once, and again when it comes anew after an hour. To look costs no step: nothing is learned sooner or later
for it, so that a life is the same with alarms and without.
"""

from __future__ import annotations

import logging
import shlex
import shutil
import subprocess
import threading
import time
from collections import deque
from pathlib import Path

import numpy as np

from horde_agent.life.life import LifeHooks, StepEvent

EVERY = 10  # steps between two looks
SILENT_S = 600.0
LOW_BYTES = 1_000_000_000
AGAIN_S = 3600.0
LONGEST_S = 60.0  # that the command may take
MOST_RAISED = 100  # that are held in memory

_log = logging.getLogger(__name__)


class Alarms(LifeHooks):
    """An observer of a life that calls a command.

    Args:
        command: Words of a command line; two more are put after them, the alarm's name and a sentence.
        folder: Whose disk is watched.
        channels: Names of the observation's channels.
        period_s: Duration of a step, in seconds.

    Attributes:
        raised: Names and sentences, the newest ones.
    """

    def __init__(self, command: str, folder: Path, channels: list[str], period_s: float) -> None:
        self._command, self._folder, self._channels = shlex.split(command), folder, channels
        self._hot = channels.index("overheating") if "overheating" in channels else None
        self._patience = round(SILENT_S / period_s)
        self._last = np.full(len(channels), np.nan, dtype=np.float32)
        self._changed_at, self._has_varied = (
            np.zeros(len(channels), dtype=np.int64),
            np.zeros(len(channels), dtype=bool),
        )
        self._n_late = 0
        self._told_at: dict[str, float] = {}
        self.raised: deque[tuple[str, str]] = deque(maxlen=MOST_RAISED)

    def after_step(self, event: StepEvent) -> None:
        """Look whether there is something to be told of."""
        life, row = event.life, event.row
        if row.step % EVERY:
            return
        if self._hot is not None and row.observation[self._hot] > 0.5:
            self._raise("overheating", f"step {row.step:,}: a motor is too hot")
        if life.deadlines_missed > self._n_late:
            self._n_late = life.deadlines_missed
            self._raise("deadline", f"step {row.step:,}: {self._n_late:,} deadlines were missed so far")
        self._look_for_silence(row.step, row.observation)
        if row.step % (100 * EVERY) == 0 and (free := shutil.disk_usage(self._folder).free) < LOW_BYTES:
            self._raise("disk", f"step {row.step:,}: {free / 1e6:,.0f} MB are left on the disk of {self._folder}")
        if not life.horde.n_waiting and life.horde.n_diverged:
            gone = life.horde.diverged
            self._raise("diverged", f"step {row.step:,}: {len(gone)} demons are set aside, the last one {gone[-1]}")

    def _look_for_silence(self, step: int, observation: np.ndarray) -> None:
        """Note which channels changed; tell of one that did and has not for long."""
        moves = observation != self._last
        self._has_varied |= moves & ~np.isnan(self._last)
        self._changed_at[moves], self._last = step, observation.copy()
        silent = np.flatnonzero(self._has_varied & (step - self._changed_at >= self._patience))
        for i in silent.tolist():
            self._has_varied[i] = False
            self._raise(
                "silent", f"step {step:,}: {self._channels[i]} has stood still for {SILENT_S:.0f} s", again_s=0.0
            )

    def _raise(self, name: str, sentence: str, again_s: float = AGAIN_S) -> None:
        """Call the command, unless it was called for the same not long ago; nobody waits for it."""
        now = time.monotonic()
        if now - self._told_at.get(name, -np.inf) < again_s:
            return
        self._told_at[name] = now
        self.raised.append((name, sentence))
        threading.Thread(target=self._call, args=(name, sentence), name="alarm", daemon=True).start()

    def _call(self, name: str, sentence: str) -> None:
        try:
            subprocess.run([*self._command, name, sentence], timeout=LONGEST_S, check=True, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("the alarm %r (%s) could not be handed on: %s", name, sentence, error)
