"""Events of a run, recorded in log/events.jsonl, and its alarms, which call a command.

Events are JSON lines with the `step`, the `row` of the recording if it applies, and the `time`
(UTC):

    began          the run started
    resumed        it was resumed from a snapshot and its recording, for the `number`-th time; `exact`: the robot was
                   restored, otherwise it continues after a gap with the random numbers of
                   [seed, 2, number]
    snapshot       a snapshot was written         questions   questions were added or removed
    removed        rows before `row` were removed, as --keep asks
    gap            frames were lost, the link was lost, or the robot was reset; drives do not count
    disobeyed      an action was not applied: a safety stop or a fault; recorded once, at its first step
    late           a step was more than 50 ms late
    clock          the wall clock jumped `by_s` seconds; nothing but the record has it. Of a jump back while the
                   computer was off, which a resume finds (`stopped`), it is the least amount
    suspended      the computer was suspended for `by_s` seconds
    surprise       predictions do not fit since `began`; `signals`, what each does, `policies`, `sentence`
    fits           predictions of these signals fit again
    diverged       a demon diverged               ended       the run ended: `cause` (a code), `why` (in words)

Alarms are for an unattended run: the command is called with the alarm's name and a sentence.

    diverged       a demon diverged               overheating a motor is too hot
    deadline       steps were more than 50 ms late, after the first ten seconds of the process
    disk           the disk is nearly full
    silent         a sensor that varied has been constant for ten minutes
    sensor_lost    a sensor's reading has been missing for --lost-after (60 s); once until it returns
    surprise       predictions do not fit any more (--surprise)

An alarm is repeated after an hour, or once the problem is ten times as large: ten times as many late
steps or diverged demons, a tenth of the free space. Neither events nor alarms change when or what
the Horde learns.
"""

from __future__ import annotations

import logging
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.life.life import LifeHooks, StepEvent
from horde_agent.record import Flag, Recorder
from horde_agent.record.segments import Records
from horde_agent.runs.storage.event_log import EventLog
from horde_agent.scoring.surprise import SurpriseEvent
from horde_agent.types import Integers

EVERY = 10  # steps between two checks
SILENT_S = 600.0
LOW_BYTES = 1_000_000_000
AGAIN_S = 3600.0
SETTLING_S = (
    10.0  # in which a process that has just begun may be late, because it loads and compiles
)
GROWTH = 10.0  # of a problem, after which its alarm is repeated at once
LONGEST_S = 60.0  # timeout of the command
JUMP_S = 0.5  # of a clock, which a leap second exceeds and a corrected drift does not
SAME_TIME_S = 0.1  # between readings of two clocks
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger(__name__)


class Events(LifeHooks):
    """Observe a life and record its events; steps replayed after a resume are skipped."""

    def __init__(self, log: EventLog, recorder: Recorder) -> None:
        self._log = log
        self._recorder = recorder
        self._counts: dict[str, int] | None = None

    def after_step(self, event: StepEvent) -> None:
        """Record the counts that increased in this step; the Horde is read only without pending updates."""
        life = event.life
        n_diverged = (self._counts or {}).get("diverged", 0)
        if not life.horde.n_waiting:
            n_diverged = life.horde.n_diverged
        counts = {
            "gap": life.counts.gaps,
            "disobeyed": int(bool(event.row.flags & Flag.NOT_APPLIED)),
            "late": life.counts.deadlines_missed,
            "diverged": n_diverged,
        }
        previous = self._counts or counts
        self._counts = counts
        if counts == previous or self._recorder.is_redoing:
            return
        for name, count in counts.items():
            if count > previous[name]:
                self._log.append(
                    {"step": event.row.step, "event": name, "row": self._recorder.n_rows - 1}
                )


def _boot_time() -> float:
    """Return the seconds since the computer was started, those of suspensions included where the system counts them."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return time.monotonic()
    return time.clock_gettime(clock)


def _boot_id() -> str:
    """Return the name of the present run of the computer; "" where the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class Clocks(NamedTuple):
    """Clocks of the computer, in seconds.

    Attributes:
        unix: Wall clock, since 1970 in UTC, so that time zones do not move it; people and servers do.
        boot: Since the start of the computer, suspensions included.
        monotonic: Likewise, without suspensions.
        boot_id: Name of the time since that start, "" if it has none.
    """

    unix: Callable[[], float] = time.time
    boot: Callable[[], float] = _boot_time
    monotonic: Callable[[], float] = time.monotonic
    boot_id: Callable[[], str] = _boot_id


class ClockEvents(LifeHooks):
    """Observe a life, and record jumps of the wall clock and suspensions of the computer.

    Jumps while no process lives it are found by what a snapshot has of the clocks (`reading`).
    """

    def __init__(self, log: EventLog, recorder: Recorder, clocks: Clocks | None = None) -> None:
        self._log = log
        self._recorder = recorder
        self._clocks = clocks or Clocks()
        self._previous: dict[str, float] | None = None
        jumps = [event for event in log.read().events if event.get("event") == "clock"]
        self._jumped_s = sum(float(event["by_s"]) for event in jumps)  # in the whole log

    def reading(self) -> dict[str, Any]:
        """Return what a later process compares its clocks with, in JSON types."""
        unix_s = self._clocks.unix()
        ahead_s = unix_s - self._clocks.boot()
        if self._previous is not None:  # what jumped since then is not in the log yet
            ahead_s = self._previous["clock"]
        return {
            "unix_s": unix_s,
            "ahead_s": ahead_s - self._jumped_s,
            "boot_id": self._clocks.boot_id(),
        }

    def compare_with(self, former: Mapping[str, Any] | None, rows: Records, step: int) -> None:
        """Record a jump of the wall clock since a reading, but for those in the log.

        After a start of the computer only a jump back is seen, of which the wall clock of the record says
        the least amount.

        Args:
            former: The reading; None if there is none.
            rows: Those recorded since then, shape (n_rows,).
            step: At which the life is resumed.
        """
        if former is None:
            return
        present = self.reading()
        if present["boot_id"] and present["boot_id"] == former["boot_id"]:
            by_s = present["ahead_s"] - former["ahead_s"]
        else:
            known_s = float(np.nanmax(np.append(rows["unix_s"], former["unix_s"])))
            by_s = min(present["unix_s"] - known_s, 0.0)
        if abs(by_s) > JUMP_S:
            self._append(step, "clock", by_s, stopped=True)

    def _append(self, step: int, name: str, by_s: float, **further: Any) -> None:
        by_s = round(by_s, 3)
        if name == "clock":
            self._jumped_s += by_s
        row = max(self._recorder.n_rows - 1, 0)
        self._log.append({"step": step, "event": name, "row": row, "by_s": by_s, **further})

    def after_step(self, event: StepEvent) -> None:
        """Compare the clocks every `EVERY` steps."""
        if event.row.step % EVERY == 0:
            self.compare(event.row.step)

    def compare(self, step: int) -> None:
        """Compare the clocks at a step."""
        boot_s = self._clocks.boot()
        unix_s = self._clocks.unix()
        monotonic_s = self._clocks.monotonic()
        if self._clocks.boot() - boot_s > SAME_TIME_S:  # another process ran between two readings
            return
        ahead = {"clock": unix_s - boot_s, "suspended": boot_s - monotonic_s}
        previous = self._previous or ahead
        self._previous = ahead
        for name, ahead_s in ahead.items():
            by_s = ahead_s - previous[name]
            if abs(by_s) > JUMP_S:
                self._append(step, name, by_s)


class RaisedAlarm(NamedTuple):
    """When an alarm was raised, and how large the problem was."""

    time_s: float  # of a monotonic clock
    size: float


class AlarmCommand:
    """A command line that is called at each alarm, with the alarm's name and a sentence."""

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)
        self._raised: dict[str, RaisedAlarm] = {}

    def call(
        self, name: str, sentence: str, *, size: float = 1.0, again_s: float = AGAIN_S
    ) -> None:
        """Call the command in a thread.

        Not if the same alarm was raised less than `again_s` ago, unless the problem has grown since.
        """
        time_s = time.monotonic()
        last = self._raised.get(name)
        if last is not None and time_s - last.time_s < again_s and size < GROWTH * last.size:
            return
        self._raised[name] = RaisedAlarm(time_s, size)
        threading.Thread(target=self._run, args=(name, sentence), name="alarm", daemon=True).start()

    def _run(self, name: str, sentence: str) -> None:
        try:
            subprocess.run(
                [*self._command, name, sentence],
                timeout=LONGEST_S,
                check=True,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("the command failed for alarm %r (%s): %s", name, sentence, error)


class SurpriseLog:
    """Records alarms about predictions, and when they fit again, as events; calls the alarm command.

    Steps that are learned from again after a resume raise the same alarms: those in the log are left out.

    Args:
        log: The events of the run.
        say: Prints a sentence.
        command: Called at each alarm; None for nothing.
    """

    def __init__(
        self, log: EventLog, say: Callable[[str], None], command: AlarmCommand | None
    ) -> None:
        self._log = log
        self._say = say
        self._command = command
        events = log.read().events
        self._recorded = {(event.get("event"), event.get("step")) for event in events}

    def add(self, event: SurpriseEvent) -> None:
        """Record an alarm, or its end, unless that was done."""
        if (event.name, event.step) in self._recorded:
            return
        self._recorded.add((event.name, event.step))
        self._log.append(event.entry())
        self._say(event.sentence)
        if self._command is not None:
            self._command.call("surprise", event.sentence, again_s=0.0)


class Alarms(LifeHooks):
    """Observe a life and call a command at each alarm."""

    def __init__(
        self,
        command: AlarmCommand,
        folder: Path,
        channels: list[str],
        period_s: float,
        *,
        lost_after_s: float = 60.0,
    ) -> None:
        self._command = command
        self._folder = folder
        self._channels = channels
        self._hot: int | None = None
        if "overheating" in channels:
            self._hot = channels.index("overheating")
        self._patience = round(SILENT_S / period_s)
        self._last = np.full(len(channels), np.nan, dtype=np.float32)
        self._changed_at = np.zeros(len(channels), dtype=np.int64)
        self._has_varied = np.zeros(len(channels), dtype=bool)
        self._lost_after_s = lost_after_s
        self._lost_after = max(round(lost_after_s / period_s), 1)
        self._read_at: Integers | None = None
        self._is_lost = np.zeros(len(channels), dtype=bool)
        self._settling = round(SETTLING_S / period_s)
        self._first_step: int | None = None
        self._n_late_at_first = 0  # steps that were late while the process began
        self._n_late = 0

    def after_step(self, event: StepEvent) -> None:
        """Check for alarms every `EVERY` steps."""
        life = event.life
        row = event.row
        if row.step % EVERY:
            return
        if self._hot is not None and row.observation[self._hot] > 0.5:
            self._command.call("overheating", f"step {row.step:,}: a motor is too hot")
        self._check_deadlines(row.step, life.counts.deadlines_missed)
        self._check_silence(row.step, row.observation)
        self._check_lost(row.step, row.observation)
        if row.step % (100 * EVERY) == 0:
            self._check_disk(row.step)
        if not life.horde.n_waiting and life.horde.n_diverged:
            diverged = life.horde.diverged
            self._command.call(
                "diverged",
                f"step {row.step:,}: {len(diverged)} demons diverged, the last one is {diverged[-1]}",
                size=len(diverged),
            )

    def _check_deadlines(self, step: int, n_late: int) -> None:
        """Raise an alarm if further steps were late, after the first ones of this process."""
        if self._first_step is None:
            self._first_step = step
        if step - self._first_step < self._settling:
            self._n_late_at_first = n_late
            self._n_late = n_late
        if n_late > self._n_late:
            self._n_late = n_late
            size = n_late - self._n_late_at_first
            self._command.call("deadline", f"step {step:,}: {size:,} deadlines missed", size=size)

    def _check_disk(self, step: int) -> None:
        """Raise an alarm if the disk of the run's folder is nearly full."""
        free = shutil.disk_usage(self._folder).free
        if free < LOW_BYTES:
            self._command.call(
                "disk",
                f"step {step:,}: {free / 1e6:,.0f} MB free on the disk of {self._folder}",
                size=LOW_BYTES / max(free, 1),
            )

    def _check_silence(self, step: int, observation: np.ndarray) -> None:
        """Raise an alarm for each channel that varied and then was constant for `SILENT_S`."""
        moves = observation != self._last
        self._has_varied |= moves & ~np.isnan(self._last)
        self._changed_at[moves] = step
        self._last = observation.copy()
        silent = np.flatnonzero(self._has_varied & (step - self._changed_at >= self._patience))
        for i in silent.tolist():
            self._has_varied[i] = False
            message = f"{self._channels[i]} has been constant for {SILENT_S:.0f} s"
            self._command.call("silent", f"step {step:,}: {message}", again_s=0.0)

    def _check_lost(self, step: int, observation: np.ndarray) -> None:
        """Raise an alarm for each channel whose reading has been missing for `lost_after_s`."""
        if self._read_at is None:
            self._read_at = np.full(observation.size, step)
        is_missing = np.isnan(observation)
        self._read_at[~is_missing] = step
        is_lost = is_missing & (step - self._read_at >= self._lost_after)
        for i in np.flatnonzero(is_lost & ~self._is_lost).tolist():
            message = f"{self._channels[i]} has had no reading for {self._lost_after_s:g} s"
            self._command.call("sensor_lost", f"step {step:,}: {message}", again_s=0.0)
        self._is_lost = is_lost
