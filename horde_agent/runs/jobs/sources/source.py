"""What the sources of a run share: their methods, their outcome, and how a life and a recording begin.

Recorded rows are any iterable of consecutive `Stream`s that can be iterated again, such as `Recording`, or a table that
is read in chunks. Memory holds one of them at a time, so it does not grow with the length of a recording.
"""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from rich.console import Console

from horde_agent.horde import Horde
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life
from horde_agent.life.observers import Progress, Sample, Sampler
from horde_agent.life.robots import Robots
from horde_agent.life.student import Student
from horde_agent.life.timing import Durations
from horde_agent.life.worker import InPlace
from horde_agent.policies import BehaviourPolicy, EpsilonGreedy, Follow, StickyRandom
from horde_agent.record import Phase, Recorder, Stream, read_in_parts, row_dtype
from horde_agent.runs.config import BadInput
from horde_agent.runs.data.behaviour import Rows
from horde_agent.runs.ending import Cause, End
from horde_agent.runs.jobs.holdout import Holdout
from horde_agent.runs.keeping.folder import IMPORTED, unwritable
from horde_agent.runs.keeping.run import HeaderEnv, Run, record_header
from horde_agent.saving import inner

STEPS = (Phase.BEHAVE, Phase.EXCURSION)
NOT_RECORDED: dict[str, Any] = dict.fromkeys(("deadlines_missed", "crc_errors", "link_losses", "s_without_link"))
"""Values of the summary that a recording does not contain."""

FEW_DEMONS = 1_000  # that learn in less time than two threads need to hand over a job

_ANY_DURATION = 1e12  # of an imported file in seconds: only its size is limited
_TABLES_BYTES = 2_000_000  # of tables, report and pictures, approximately
_OF_WORLD = re.compile(r"life/(robot\d+/)?world/")  # state of a robot's body, in a snapshot


class Stopped(Exception):
    """A request to stop ended the learning from recorded rows."""


class Outcome(NamedTuple):
    """Facts of a finished source for the tables, besides its student."""

    steps: int  # the last step
    end: End  # what ended the stream
    robot: Mapping[str, Any]  # the summary's gaps and faults of the robot
    details: Mapping[str, Any] = {}  # further facts for details.json
    fault: BaseException | None = None  # the exception to raise after the tables were written; None without one
    samples: Sequence[Sample] = ()  # of the MSPBE; empty for a log
    cycle_s: Durations = Durations()  # durations of the robot's cycles
    lived_before_s: float = 0.0  # duration of the run in earlier processes, in seconds
    has_tests: bool = False  # whether the environment supports test excursions
    score: Holdout | None = None  # on the held-out part of a log; None for a life
    passes: float = 0.0  # number of passes over the other part


class Source(ABC):
    """A stream that a student learns from."""

    total: int | None = None  # number of steps, for the progress; None if it is unknown

    def __init__(self, run: Run, student: Student, console: Console) -> None:
        self.run, self.student, self._console = run, student, console
        self.stopped_by: Cause | None = None  # the first request to stop

    def begin(self) -> None:  # noqa: B027  most have nothing to open
        """Open the stream, after the kernels were compiled."""

    @abstractmethod
    def learn(self, progress: Progress) -> None:
        """Pass the whole stream to the student, and show the progress."""

    def stop(self, cause: Cause) -> None:
        """Request an orderly end; safe in a signal handler. The cause is recorded unless an earlier request has one."""
        self.stopped_by = self.stopped_by or cause
        self.say("stopping after this step; press Ctrl-C again to abort")

    def emergency_stop(self, reason: str) -> bool:  # noqa: ARG002
        """Set the robot's emergency stop; return whether it has one."""
        return False

    def close(self) -> None:  # noqa: B027
        """Stop and close the robot. Closing twice does nothing."""

    def abandon(self) -> None:
        """Close everything; the run does not start."""
        self.close()

    @abstractmethod
    def finish(self, fault: BaseException | None) -> Outcome:
        """Finish the files and return what the tables need; raise the fault of `learn` if there can be none."""

    def say(self, words: str) -> None:
        """Print a message."""
        self._console.print(words, highlight=False, soft_wrap=True)


# ---- a life ----------------------------------------------------------------------------------------------------------


def new_life(envs: Sequence[gymnasium.Env[Any, Any]], run: Run) -> tuple[Life, Sampler]:
    """Return a life of one robot or several with a run's settings, at its start, and its samples."""
    config = run.config
    excursions = ExcursionConfig(config.excursion_probability, config.horizon)
    options: dict[str, Any] = {"interface": run.interface, "excursions": excursions}
    rngs = [np.random.default_rng(config.seed + k) for k in range(len(envs))]
    behaviours = [_behaviour_of(run) for _ in envs]
    if len(envs) == 1:
        # No thread where to switch to it takes longer than to learn.
        worker = None if config.is_real_time or run.horde.n_demons > FEW_DEMONS else InPlace()
        life = Life(envs[0], run.horde, behaviours[0], rngs[0], worker=worker, **options)
    else:
        assert isinstance(run.horde, Horde), "--shards is refused"
        life = Robots(envs, run.horde, behaviours, rngs, **options)
    sampler = Sampler()
    life.observers += [run.watch, sampler]
    return life, sampler


def _behaviour_of(run: Run) -> BehaviourPolicy:
    """Return the behaviour of a run's settings.

    Raises:
        BadInput: If it is greedy in the action values of a question that finds no policy.
    """
    config, horde, n_actions = run.config, run.horde, len(run.interface.actions)
    if config.behaviour == "random":
        return StickyRandom(n_actions, config.repeat)
    name = config.behaviour.removeprefix("greedy:")
    found = [question.name for question in horde.questions if question.finds_policy]
    if name not in found:
        raise BadInput(
            f"--behaviour greedy:{name}: no question finds this policy; there are {', '.join(found) or 'none'}: add a "
            f"[[control]] table to a question file (docs/questions.md)"
        )
    return Follow(EpsilonGreedy(lambda _, tiles: horde.action_values(name, tiles), n_actions, config.epsilon))


def restore(life: Life, run: Run, sampler: Sampler, state: dict[str, Any]) -> None:
    """Restore a life and its observers from a snapshot; without the robot's own state if only its rows are there.

    Raises:
        ValueError: If they do not fit the snapshot.
    """
    if not life.body.is_restorable:
        state = {k: v for k, v in state.items() if not _OF_WORLD.match(k)}
    sampler.restore(inner(state, "sampler"))
    run.watch.restore(inner(state, "watch"))
    life.restore(inner(state, "life"))


# ---- a recording -----------------------------------------------------------------------------------------------------


def new_recorder(run: Run, env: gymnasium.Env[Any, Any], *, has_tests: bool, **segments: Any) -> Recorder:
    """Create the recording of a run, with a description of its robot, `env`, in the header.

    `segments` are `Recorder`'s `segment_s` or `segment_bytes`.

    Raises:
        BadInput: If the disk has too little free space, or the folder cannot be written.
    """
    config, interface, folder = run.config, run.interface, run.folder
    needed = _TABLES_BYTES + (config.steps or 0) * row_dtype(len(interface.channels), config.robots).itemsize
    if (free := shutil.disk_usage(folder.path).free) < needed:
        raise BadInput(
            f"--out {folder.path} has {free / 1e6:.1f} MB free, but this run needs {needed / 1e6:.1f} MB; choose "
            "another disk, or fewer --steps"
        )
    facts = record_header(env, interface) | {"tests_excursions": has_tests}
    facts |= {"robots": config.robots} if config.robots > 1 else {}
    try:
        return Recorder(len(interface.channels), folder.life, facts, **segments)
    except OSError as error:
        raise BadInput(unwritable(folder.path, error)) from None


def import_table(table: Rows, run: Run) -> None:
    """Write the rows of a table, up to the requested step, to the recording of a run, before it learns from any.

    Raises:
        BadInput: If a row is invalid, the disk has too little free space, or the folder cannot be written.
        RecordLost: If the disk is full.
    """
    up_to, has_tests = run.config.steps, bool(table.header["tests_excursions"])
    with new_recorder(run, HeaderEnv(table.header), has_tests=has_tests, segment_s=_ANY_DURATION) as recorder:
        for part in table:
            steps = part.rows["step"]
            recorder.append(part.rows if up_to is None else part.rows[steps <= up_to])
            if up_to is not None and steps[-1] > up_to:
                break
    run.notes = table.notes
    run.folder.log_event({"step": 0, "event": IMPORTED, "row": recorder.n_rows})


class Recording:
    """The rows of a recording from row `since` up to step `up_to`, file by file; a run may still append more.

    With several passes, rows and steps are counted on from pass to pass.
    """

    def __init__(self, path: Path, up_to: int | None = None, since: int | None = None, passes: int = 1) -> None:
        self.path, self.up_to, self.since, self.passes = path, up_to, since, passes

    def __iter__(self) -> Iterator[Stream]:
        for part in read_in_parts(self.path, self.since) if self.passes == 1 else self._passes():
            yield part if self.up_to is None else part[: np.count_nonzero(part.rows["step"] <= self.up_to)]

    def _passes(self) -> Iterator[Stream]:
        n_skipped, before, last = self.since or 0, 0, 0
        for _ in range(self.passes):
            for part in read_in_parts(self.path):
                part.rows["step"] += before
                last = int(part.rows["step"][-1]) if len(part) else last
                yield part[n_skipped:]
                n_skipped = max(n_skipped - len(part), 0)
            before = last
