"""Observers of a life: samples, validity of the MSPBE estimates, progress on a terminal, and a second student."""

from __future__ import annotations

import logging
import threading
import time
from array import array
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from horde_agent.learner import Learner
from horde_agent.learning.rules import config_of, rules_of
from horde_agent.life.counts import duration
from horde_agent.life.learner import StreamLearner
from horde_agent.life.life import LifeHooks, StepEvent
from horde_agent.record import Flag, Row
from horde_agent.saving import State
from horde_agent.scoring import excursion_table
from horde_agent.scoring.mspbe import effective_sample_size, has_estimate, updates_until_valid
from horde_agent.scoring.nmsre import are_nearly_constant, nmsre_text, quantisation_steps
from horde_agent.scoring.return_errors import ReturnErrors
from horde_agent.scoring.two_pass_nmsre import are_kept
from horde_agent.types import Floats, Integers

MOST_WAITING = 36_000  # rows of a follower: an hour at 10 Hz, some 30 MB

_log = logging.getLogger(__name__)

"""Called with the student and the step after each row of a record that is learned from."""


class Sample(NamedTuple):
    """Measures at one step. The mean estimate is over the demons that have one and have not diverged."""

    step: int
    learning_steps: int
    mspbe_scalar_mean: float
    max_trace: float
    n_diverged: int


def sound_demons(horde: Learner) -> np.ndarray:
    """Return which demons have not diverged, bool of shape (n_demons,)."""
    diverged = set(horde.diverged)
    return np.array([name not in diverged for name in horde.names])


class Sampler(LifeHooks):
    """Sample the MSPBE, the largest trace and the number of diverged demons every `every` steps.

    If there are many, all new samples stay and some of the older ones (`are_kept`).
    """

    def __init__(self, every: int = 1000) -> None:
        self.every = every
        self._numbers = array("d")  # of all samples, one after another
        self._next = every

    @property
    def samples(self) -> list[Sample]:
        """The samples in the order of time."""
        return [
            Sample(int(row[0]), int(row[1]), row[2], row[3], int(row[4]))
            for row in self._rows().tolist()
        ]

    def _rows(self) -> np.ndarray:
        return np.array(self._numbers, dtype=np.float64).reshape(-1, len(Sample._fields))

    def after_step(self, event: StepEvent) -> None:
        """Sample if it is due."""
        self.update(event.life.student, event.life.steps)

    def state(self) -> State:
        """Return the samples, and the step of the next one."""
        return {"samples": self._rows(), "next": np.array(self._next)}

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        self._numbers = array("d", state["samples"].ravel().tolist())
        self._next = int(state["next"])

    def update(self, student: StreamLearner, step: int) -> None:
        """Sample if it is due."""
        if step >= self._next:
            self._next = step - step % self.every + self.every
            student.catch_up()
            self._numbers.extend(sample(step, student.learning_steps, student.horde))
            self._thin()

    def _thin(self) -> None:
        """Thin the older samples when a further block is whole."""
        steps = self._numbers[:: len(Sample._fields)][-2:]
        blocks = [int(step) // self.every // excursion_table.BLOCK for step in steps]
        n_past = (blocks[-1] - 1) * excursion_table.BLOCK
        if n_past <= 0 or blocks[0] == blocks[-1]:
            return
        rows = self._rows()
        numbers = rows[:, 0].astype(np.int64) // self.every - 1
        is_old = numbers < n_past
        is_kept = ~is_old
        is_kept[is_old] = are_kept(numbers[is_old], n_past)
        self._numbers = array("d", rows[is_kept].ravel().tolist())


def sample(step: int, learning_steps: int, horde: Learner) -> Sample:
    """Return the measures of a Horde now."""
    sound = sound_demons(horde)
    mspbe = mean_estimate(horde.mspbe_scalar[sound])
    if mspbe is None:
        mspbe = float("nan")
    return Sample(
        step=step,
        learning_steps=learning_steps,
        mspbe_scalar_mean=mspbe,
        max_trace=float(horde.max_trace),
        n_diverged=int(np.count_nonzero(~sound)),
    )


def mean_estimate(estimates: Floats) -> float | None:
    """Return the mean of MSPBE estimates, shape (n,), without those of rules that have none (NaN); None if all are."""
    numbers = estimates[~np.isnan(estimates)]
    if not numbers.size:
        return None
    return float(numbers.mean())


class MspbeWatch(LifeHooks):
    """Determine which MSPBE estimates are valid: those after `updates_needed` updates of w with rho > 0, from now on.

    Attributes:
        updates_needed: Updates of each question's w that its estimate needs, by the step sizes of
            its own update rule, shape (n_demons,); inf if the rule has no w and so no estimate.

    Raises:
        RuntimeError: When it is read, if demons were added or removed, but not by `Life.add` or
            `Life.remove`.
    """

    def __init__(self, horde: Learner) -> None:
        self._horde = horde
        self._before = horde.ratio_totals()
        self._set_questions()

    def _set_questions(self) -> None:
        """Set what depends on the questions: which have an estimate, and the updates that it needs."""
        horde = self._horde
        self._questions = horde.questions
        algorithms = rules_of(horde.questions, horde.config)
        configs = {name: config_of(horde.config, name) for name in set(algorithms)}
        self._has_estimate = np.array(
            [has_estimate(configs[name]) for name in algorithms], dtype=bool
        )
        self.updates_needed: Floats = np.array(
            [updates_until_valid(configs[name]) for name in algorithms]
        )

    def _totals(self) -> Floats:
        """Return `ratio_totals` since the watch began, shape (3, n_demons)."""
        if self._horde.questions is not self._questions:
            raise RuntimeError(
                "demons were added or removed: use Life.add and Life.remove, or make a new MspbeWatch for this Horde"
            )
        return self._horde.ratio_totals() - self._before

    def rearrange(self, old_index: Integers) -> None:
        """Continue after demons were added or removed; the counts of new ones begin at 0.

        Args:
            old_index: For each demon, its number before, or -1 for a new one, shape (n_demons,).
        """
        self._set_questions()
        self._before = np.where(old_index >= 0, self._before[:, old_index], 0.0)

    def state(self) -> State:
        """Return the counts before the watch began."""
        return {"before": np.array(self._before)}

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        self._before = np.array(state["before"])

    @property
    def n_updates(self) -> np.ndarray:
        """Updates with rho > 0, int64 of shape (n_demons,)."""
        return np.asarray(self._totals()[0], dtype=np.int64)

    @property
    def is_valid(self) -> np.ndarray:
        """Demons with valid estimates, not diverged, bool of shape (n_demons,)."""
        return np.asarray((self.n_updates >= self.updates_needed) & sound_demons(self._horde))

    def effective_sample_size(self) -> np.ndarray:
        """Return the effective number of on-policy steps, shape (n_demons,)."""
        return effective_sample_size(*self._totals()[1:])

    def facts(self) -> dict[str, float | int | None]:
        """Return the MSPBE entries of a run's details.json."""
        valid = self.is_valid
        sound = sound_demons(self._horde)
        needed = self.updates_needed[np.isfinite(self.updates_needed)]
        least_needed = most_needed = None
        if needed.size:
            least_needed = float(needed.min())
            most_needed = float(needed.max())
        facts: dict[str, float | int | None] = {
            "tau_steps": self._horde.config.mspbe_tau,
            "valid_after_updates": most_needed,
            "valid_after_updates_least": least_needed,
            "n_valid": int(np.count_nonzero(valid)),
            "n_not_yet_valid": int(np.count_nonzero(~valid & sound & self._has_estimate)),
            "n_without_estimate": int(np.count_nonzero(~self._has_estimate)),
            "effective_sample_size_mean": float(self.effective_sample_size().mean()),
            "scalar_mean_of_valid": mean_estimate(self._horde.mspbe_scalar[valid]),
        }
        if self._horde.config.vector_mspbe:
            facts["vector_mean_of_valid"] = mean_estimate(
                np.asarray(self._horde.mspbe_vector())[valid]
            )
        return facts


class Progress(LifeHooks):
    """Show the progress of a life: a live table on a terminal, else a line every 10 s.

    Args:
        total: Steps of the life, or None if unknown.
        period_s: Duration of one step of the robot, in seconds.
        console: Standard error when None.

    Attributes:
        watch: Counts the valid MSPBE estimates; None if they are not counted.
        steps: Quantisation step of each channel, shape (n_channels,); None if no return is tested.
    """

    def __init__(self, total: int | None, period_s: float, console: Console | None = None) -> None:
        self.total = total
        self.period_s = period_s
        self.console = console or Console(stderr=True)
        if self.console.is_terminal:
            self.every_s = 0.25
        else:
            self.every_s = 10.0
        self.time_name = "robot time"
        self.watch: MspbeWatch | None = None
        self.steps: Floats | None = None
        self._live: Live | None = None
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._began = self._last = 0.0

    def start(self) -> None:
        """Start the clock."""
        self._began = self._last = time.perf_counter()
        if self._live is not None:
            self._live.start()

    def after_step(self, event: StepEvent) -> None:
        """Show the state if it is due."""
        life = event.life
        if self.is_due(life.horde):
            self.show(life.steps, life.horde, life.student.errors)

    def is_due(self, horde: Learner) -> bool:
        """Return whether it is time for an update and no step is deferred.

        Flushing deferred steps for it would change the batches and so the rounding: weights would
        depend on the clock.
        """
        return horde.n_waiting == 0 and time.perf_counter() - self._last >= self.every_s

    def show(self, steps: int, horde: Learner, errors: ReturnErrors | None = None) -> None:
        """Show the state after `steps`."""
        self._last = time.perf_counter()
        facts = self.facts(steps, self._last - self._began, horde, errors)
        if self._live is not None:
            table = Table(show_header=False, box=None, pad_edge=False)
            table.add_column(style="bold")
            table.add_column()
            for name, value in facts:
                table.add_row(name, value)
            self._live.update(table, refresh=True)
        else:
            self.console.print(
                " · ".join(f"{k} {v}" for k, v in facts), highlight=False, soft_wrap=True
            )

    def stop(self) -> None:
        """Remove the live table."""
        if self._live is not None:
            self._live.stop()

    def facts(
        self, steps: int, elapsed_s: float, horde: Learner, errors: ReturnErrors | None
    ) -> list[tuple[str, str]]:
        """Return pairs of name and value."""
        speed = 0.0
        if elapsed_s > 0:
            speed = steps / elapsed_s
        share = ""
        if self.total:
            share = f" of {self.total:,} ({100 * steps / self.total:.0f} %)"
        facts = [("steps", f"{steps:,}{share}")]
        speed_text = f"{speed:,.0f} steps/s"
        if self.time_name:
            facts.append((self.time_name, duration(steps * self.period_s)))
            speed_text += f", {speed * self.period_s:,.0f} x real time"
        facts.append(("speed", speed_text))
        if errors is not None and errors.policies:
            facts.append(("NMSRE (online)", _nmsre(errors, horde, self.steps)))
            discarded = ""
            if errors.n_discarded:
                discarded = f", {errors.n_discarded:,} more discarded"
            facts.append(("tests", f"{errors.n_excursions:,}{discarded}"))
        if self.watch is not None:
            facts.append(("mean MSPBE (online)", _mspbe(horde, self.watch)))
        facts.append(("max trace", f"{horde.max_trace:.3g}"))
        shards = horde.shards
        if shards:
            lag = max(shard.lag for shard in shards)
            facts.append(("shards", f"{len(shards)}, at most {lag:,} steps behind"))
        names = horde.diverged
        first = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        facts.append(("diverged", f"{len(names)} ({first})" if names else "0"))
        if self.total and speed > 0:
            facts.append(("time left", duration((self.total - steps) / speed)))
        return facts


def _nmsre(errors: ReturnErrors, horde: Learner, steps: Floats | None) -> str:
    """Return median and mean online NMSRE and the number of nearly constant returns, or why there is no NMSRE yet."""
    if not (errors.n_tests >= 2).any():
        return "not yet: no question was tested twice"
    if np.isnan(errors.online()).all():
        return "none: the horizon is too short for these questions"
    diverged: list[int] = []
    if horde.diverged:
        diverged = np.flatnonzero(~sound_demons(horde)).tolist()
    nmsre = errors.online(diverged)
    scored = nmsre[~np.isnan(nmsre)]
    median = float("nan")
    mean = float("nan")
    if len(scored):
        median = float(np.median(scored))
        mean = float(scored.mean())
    shown = (
        f"median {nmsre_text(median)}, mean {nmsre_text(mean)} (1: no better than the mean return)"
    )
    if steps is None:
        return shown
    are_flat = are_nearly_constant(
        errors.online_variance(), quantisation_steps(errors.policies, errors.n_demons, steps)
    )
    are_flat[list(diverged)] = False
    if are_flat.any():
        return f"{shown}, {are_flat.sum():,} nearly constant"
    return shown


def _mspbe(horde: Learner, watch: MspbeWatch) -> str:
    """Return the mean scalar estimate of the sound demons, and how many of the estimates are valid."""
    sound = sound_demons(horde)
    if not sound.any():
        return "none: every demon diverged"
    mean = mean_estimate(horde.mspbe_scalar[sound])
    if mean is None:
        return "none: no update rule of these questions has w"
    return f"{mean:.3g} ({np.count_nonzero(watch.is_valid):,} of {horde.n_demons:,} valid yet)"


# ---- a second student ------------------------------------------------------------------------------------------------


class Follower(LifeHooks):
    """Passes the rows of a life to a second student, which learns in a separate thread.

        local = Horde(few, ...)                                 # used by the robot's policies
        with ShardedHorde(many, ..., mode="deferred") as remote:  # all other questions, on other machines
            follower = Follower(StreamLearner(remote, interface))
            with Life(env, local, behaviour, rng, observers=[follower]) as life:
                life.run(steps)
            follower.close()                                    # waits until every row was learned from

    The life never waits. The student's weights are those of learning from the record, to the bit.
    Rows that exceed a queue of `most_waiting` are dropped, and the next row follows a gap. If the
    student raises, the life continues; `close` raises the exception. Do not use the student
    elsewhere until `close` has returned.

    Attributes:
        student: As given.
        n_left_out: Rows that were dropped.
    """

    def __init__(self, student: StreamLearner, most_waiting: int = MOST_WAITING) -> None:
        self.student = student
        self.n_left_out = 0
        self._most_waiting = most_waiting
        self._rows = SimpleQueue[Row | None]()
        self._is_gap = self._is_over = False
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, name="following", daemon=True)
        self._thread.start()

    def after_step(self, event: StepEvent) -> None:
        """Append the row to the queue; takes microseconds."""
        if self._is_over or self._rows.qsize() >= self._most_waiting:
            self.n_left_out += 1
            self._is_gap = True
            return
        row = event.row
        self._rows.put(row._replace(flags=row.flags | Flag.GAP) if self._is_gap else row)
        self._is_gap = False

    @property
    def n_waiting(self) -> int:
        """Rows in the queue."""
        return self._rows.qsize()

    def close(self) -> None:
        """Wait until every row was learned from, and end the thread. Closing twice does nothing more.

        Raises:
            BaseException: The student's, if it failed.
        """
        self._is_over = True
        self._rows.put(None)
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def _follow(self) -> None:
        try:
            for row in iter(self._rows.get, None):
                self.student.take_row(row)
        except BaseException as error:
            self._fault = error
            self._is_over = True
            while self._rows.qsize():
                self.n_left_out += self._rows.get() is not None
            _log.warning("follower stopped (%s); the run continues", error)
