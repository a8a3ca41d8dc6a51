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
    sensor_lost    a `channel` has had no reading for --lost-after (60 s), by the time of the rows; `sentence`
    sensor_back    it has one again
    surprise       predictions do not fit since `began`; `signals`, what each does, `policies`, `sentence`
    spreads        those of other signals do not fit either, soon after such an alarm
    fits           predictions of these signals fit again
    stands         the body stands although it is driven, for a minute
    begins         the tests for surprise begin again: an earlier form of them saved the snapshot
    diverged       a demon diverged               ended       the run ended: `cause` (a code), `why` (in words)

Alarms are for an unattended run, of a robot or of rows that another program writes: the command is
called with the alarm's name and a sentence.

    diverged       a demon diverged               overheating a motor is too hot
    deadline       steps were more than 50 ms late, after the first ten seconds of the process
    disk           the disk is nearly full
    silent         a sensor that varied has been constant for ten minutes and 600 steps
    sensor_lost    the event; once until the sensor is back
    surprise       predictions do not fit any more (--surprise)

An alarm is repeated after an hour, or once the problem is ten times as large: ten times as many late
steps or diverged demons, a tenth of the free space. Neither events nor alarms change when or what
the Horde learns.
"""

from __future__ import annotations

import logging
import math
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from horde_agent.life.life import LifeHooks, StepEvent
from horde_agent.life.stream import LearnedStream
from horde_agent.record import Flag, Recorder, Row
from horde_agent.record.segments import Records
from horde_agent.runs.storage.event_log import EventLog

EVERY = 10  # steps between two checks
SILENT_S = 600.0
LOW_BYTES = 1_000_000_000
LEAST_SILENT = 600
"""Steps for which a sensor is constant before it is silent, if ten minutes have fewer."""
MINUTE_S = 60.0
MOST_A_MINUTE = 60  # sentences and calls of the command about events
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


class SaidEvent(Protocol):
    """An event that is said when it occurs."""

    @property
    def step(self) -> int:
        """Its step."""

    @property
    def sentence(self) -> str:
        """The event as a sentence, without a full stop."""

    def entry(self) -> dict[str, Any]:
        """Return it as an event of a run."""


class Announcer:
    """Records events that are said when they occur, such as surprises, and calls the alarm command.

    Steps that are learned from again after a resume have the same events: those in the log are left out.
    A recording that is learned from fast may have many in a minute: all are in the log.

    Args:
        log: The events of the run.
        say: Prints a sentence.
        command: Called at each alarm; None for nothing.
        clock: Time in seconds, from any point on.
    """

    def __init__(
        self,
        log: EventLog,
        say: Callable[[str], None],
        command: AlarmCommand | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._say = say
        self._command = command
        self._clock = clock
        self._recorded = {_key(entry) for entry in log.read().events}
        self._minute_began_s = -math.inf
        self._n_said = 0  # since then

    def add(self, event: SaidEvent, alarm: str | None) -> None:
        """Record an event, say it and raise an alarm, unless that was done; `alarm` is its name, None for no alarm."""
        entry = event.entry()
        key = _key(entry)
        if key in self._recorded:
            return
        self._recorded.add(key)
        self._log.append(entry)
        now_s = self._clock()
        if now_s - self._minute_began_s >= MINUTE_S:
            self._minute_began_s = now_s
            self._n_said = 0
        self._n_said += 1
        if self._n_said > MOST_A_MINUTE:
            return
        self._say(event.sentence)
        if self._n_said == MOST_A_MINUTE:
            self._say(f"further ones of this minute are in {self._log.path} alone")
        if self._command is not None and alarm is not None:
            self._command.call(alarm, event.sentence, again_s=0.0)


def _key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what makes two entries of the log the same event."""
    return entry.get("event"), entry.get("step"), entry.get("channel")


class Constancy:
    """For how long each channel of a robot has been constant, in its own steps."""

    def __init__(self, n_channels: int) -> None:
        self._last = np.full(n_channels, np.nan, dtype=np.float32)
        self._n_steps = np.zeros(n_channels, dtype=np.int64)  # since the latest change
        self._has_varied = np.zeros(n_channels, dtype=bool)

    def add(self, observation: np.ndarray, n_steps: int) -> None:
        """Add an observation, (n_channels,), `n_steps` after the preceding one."""
        is_missing = np.isnan(observation)
        moves = ~is_missing & (observation != self._last)
        self._has_varied |= moves & ~np.isnan(self._last)
        self._n_steps = np.where(moves | is_missing, 0, self._n_steps + n_steps)
        self._last = np.where(is_missing, self._last, observation)

    def silent(self, patience: int) -> list[int]:
        """Return the channels that varied and then were constant for `patience` steps; each once."""
        is_silent = self._has_varied & (self._n_steps >= patience)
        self._has_varied &= ~is_silent
        return np.flatnonzero(is_silent).tolist()


class Alarms(LifeHooks):
    """Call a command at each alarm of a life, which it observes, or of another stream.

    Args:
        command: The command.
        folder: The run's folder, whose disk may be full.
        channels: Names of the channels.
        period_s: Duration of a step in seconds; it is looked at once a second, or each ten steps.
    """

    def __init__(
        self,
        command: AlarmCommand,
        folder: Path,
        channels: Sequence[str],
        period_s: float,
    ) -> None:
        self._command = command
        self._folder = folder
        self._channels = channels
        self._hot: int | None = None
        if "overheating" in channels:
            self._hot = channels.index("overheating")
        self._every = min(max(round(1.0 / period_s), 1), EVERY)
        self._patience = max(round(SILENT_S / period_s), LEAST_SILENT)
        self._silent_s = self._patience * period_s
        self._constancy: dict[int, Constancy] = {}  # of each robot, by its number
        self._settling = round(SETTLING_S / period_s)
        self._first_step: int | None = None
        self._n_late_at_first = 0  # steps that were late while the process began
        self._n_late = 0

    def after_step(self, event: StepEvent) -> None:
        """Check for alarms at a step of a life, unless it is simulated again after a resume."""
        recorder = event.life.recorder
        if recorder is None or not recorder.is_redoing:
            self.check(event.row, event.life)

    def check(self, row: Row, stream: LearnedStream) -> None:
        """Check for alarms at the newest row of a stream, unless it was done less than a second ago."""
        if row.step % self._every:
            return
        horde = stream.student.horde
        if self._hot is not None and row.observation[self._hot] > 0.5:
            self._command.call("overheating", f"step {row.step:,}: a motor is too hot")
        self._check_deadlines(row.step, stream.counts.deadlines_missed)
        self._check_silence(row)
        if row.step % (100 * self._every) == 0:
            self._check_disk(row.step)
        if not horde.n_waiting and horde.n_diverged:
            diverged = horde.diverged
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

    def _check_silence(self, row: Row) -> None:
        """Raise an alarm for each channel of a robot that varied and then was constant for a while."""
        constancy = self._constancy.setdefault(row.robot, Constancy(len(self._channels)))
        constancy.add(row.observation, self._every)
        owner = ""
        if len(self._constancy) > 1:
            owner = f" of robot {row.robot}"
        for i in constancy.silent(self._patience):
            message = f"{self._channels[i]}{owner} has been constant for {self._silent_s:,.0f} s"
            self._command.call("silent", f"step {row.step:,}: {message}", again_s=0.0)
