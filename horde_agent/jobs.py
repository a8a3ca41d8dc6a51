"""The main jobs: a life, or the reading of a log, from the first observation to the files of the run folder."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from rich.console import Console

from horde_agent import holdout, results, traces
from horde_agent.config import LearnConfig
from horde_agent.excursions import ExcursionConfig
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.loop import Life
from horde_agent.nmsre import NO_VARIANCE
from horde_agent.policies import StickyRandom
from horde_agent.record import Recorder, read
from horde_agent.run_folder import SUMMARY_KEYS, RunFolder, write_csv, write_json
from horde_agent.student import Student, encoder
from horde_agent.telemetry import Durations, MspbeWatch, Progress, Sample, Sampler, sample, sound_demons

_SHARED_WORK = 100_000  # weights read per step, from which on every engine uses its threads


class Job:
    """What `horde learn` has built and checked before it writes anything.

    Args:
        config: Resolved settings.
        env: The robot.
        interface: What the agent knows of it.
        horde: Learns.
        excursions: When test excursions begin and how long they last.
        console: Where progress is shown.

    Attributes:
        life: The life to be lived; it has its own generator, so that one seed is one life.
        watch: Knows whose MSPBE estimates are valid.
        is_stopped: True once somebody asked the job to end.
        compile_s: How long compiling took, in seconds.
    """

    def __init__(
        self,
        config: LearnConfig,
        env: gymnasium.Env[Any, Any],
        interface: Interface,
        horde: Horde,
        excursions: ExcursionConfig,
        console: Console,
    ) -> None:
        assert config.out is not None, "a job needs a resolved config"
        self.config, self.env, self.interface, self.horde, self.console = config, env, interface, horde, console
        self.folder_path: Path = config.out
        self.is_stopped, self.compile_s = False, 0.0
        behaviour = StickyRandom(len(interface.actions), config.repeat)
        rng = np.random.default_rng(config.seed)
        self.life = Life(env, horde, behaviour, rng, interface=interface, excursions=excursions)
        self.watch = MspbeWatch(horde)

    def begin(self) -> None:
        """Compile, then bring the body to its first observation: a body that cannot be opened shows now.

        In this order, since a robot may drive in its first reset, and compiling would keep it waiting for a command.
        """
        self.compile_s = warm_up(self.horde, self.interface)
        if self.config.backend == "replay":
            self.env.reset()
        else:
            self.life.begin()

    def emergency_stop(self, reason: str) -> bool:
        """Stop the body for good, until somebody clears it, where it can be; return whether it can."""
        stop = getattr(self.env.unwrapped, "emergency_stop", None)
        return stop is not None and bool(stop(reason))

    def stop(self) -> None:
        """Ask the job to end cleanly; safe to call from a signal handler."""
        self.is_stopped = True
        self.life.stop()

    def recorder(self, folder: RunFolder) -> Recorder:
        """Return the writer of the run's stream, its header describing the body."""
        facts = {
            "channels": [channel._asdict() for channel in self.interface.channels],
            "actions": list(self.interface.actions),
            "period_s": self.interface.period_s,
        }
        return Recorder(len(self.interface.channels), folder.life, facts)

    def details(self, **further: Any) -> dict[str, Any]:
        """Return what details.json says beside the further facts."""
        return {
            "compile_s": self.compile_s,
            "channels": [channel.name for channel in self.interface.channels],
            "actions": list(self.interface.actions),
            "set_aside_because": self.horde.set_aside_because,
            "skipped_because": self.horde.skipped_because,
            "stopped_early": self.is_stopped,
            "mspbe": self.watch.facts(),
            **further,
        }


def warm_up(horde: Horde, interface: Interface) -> float:
    """Compile the kernels by a small Horde of the same kind, and return how long it took in seconds."""
    began = time.perf_counter()
    # A question of each policy, and enough of them for the threads to share the work: both choose the kernels.
    n = -(-_SHARED_WORK // interface.coder.n_active)
    few = [*{id(q.target_policy): q for q in horde.questions}.values()][:8]
    few += horde.questions[:: max(horde.n_demons // n, 1)]
    few = [replace(q, name=f"{i}", cumulant=lambda *_: 0.0) for i, q in enumerate(few)]
    small = Horde(few, n_features=interface.coder.n_features, n_active=interface.coder.n_active, config=horde.config)
    middle = np.full(len(interface.channels), 0.5, dtype=np.float32)
    tiles = encoder(interface)(middle)
    small.begin(middle, tiles)
    small.learn(0, 1.0, middle, tiles)
    small.predict(tiles)
    small.weights()  # what reads the estimates reads these too
    return time.perf_counter() - began


def live(job: Job) -> dict[str, Any]:
    """Live in the body, learn, test, and write the run folder; return the summary.

    A fault of the body ends the life, but what was learned until then is written before it is raised.
    """
    assert job.config.steps is not None
    life, sampler = job.life, Sampler()
    folder = RunFolder.create(job.folder_path, job.config)
    life.recorder = job.recorder(folder)
    life.student.errors.record_to(folder.excursions)
    progress = Progress(job.config.steps, job.interface.period_s, job.console)
    progress.watch = job.watch
    life.observers += [job.watch, sampler, progress]
    progress.start()
    began = time.perf_counter()
    try:
        with life:
            life.run(max(job.config.steps - life.steps, 0))  # a robot has driven to the middle already
    finally:
        wall_s = time.perf_counter() - began
        progress.stop()
        summary = _write_life(job, folder, wall_s, sampler.samples)
    return summary


def _write_life(job: Job, folder: RunFolder, wall_s: float, samples: list[Sample]) -> dict[str, Any]:
    """Write the tables of a life and return its summary."""
    life, horde, student = job.life, job.horde, job.life.student
    student.catch_up()
    errors, sound, actions = student.errors, sound_demons(horde), job.interface.actions
    nmsre = errors.nmsre()
    has_tests = bool(life.excursions.actions)
    facts = {
        **results.time_summary(life.steps, job.interface.period_s, wall_s, student.learn_s, life.cycle_s),
        **_learning(job, student.learning_steps, student.n_updated),
        **results.nmsre_summary(nmsre, sound),
        "n_excursions": errors.n_excursions if has_tests else None,
        "deadlines_missed": life.deadlines_missed,
        "gaps": life.gaps,
        "crc_errors": life.crc_errors,
    }
    counts = {
        "n_discarded": errors.n_discarded,
        "n_tested_less_than_twice": int((errors.n_tests < 2).sum()),
        "n_clipped": life.n_clipped,
        "sensor_age_ms": life.sensor_age_s.summary_ms(),
        "overrun_ms": life.overrun_s.summary_ms(),
        "n_not_applied": life.n_not_applied,
        "n_dockings": life.dockings.n_done,
        "n_dockings_failed": life.dockings.n_failed,
    }
    outcomes = list(errors.outcomes())
    variance = results.variances(outcomes, horde.n_demons)
    lines = results.question_lines(horde, nmsre, variance, errors.n_tests, job.watch)
    write_csv(folder.questions, results.QUESTION_COLUMNS, lines)
    curve = results.curve_lines(errors, sound, actions, job.interface.period_s)
    write_csv(folder.learning_curve, results.CURVE_COLUMNS, curve)
    samples = [*samples, sample(life.steps, student.learning_steps, horde)]
    write_csv(folder.mspbe_curve, Sample._fields, samples)
    if errors.n_excursions:
        shown = traces.excursion_traces(read(folder.life), horde, job.interface, outcomes, student.horizon)
        write_csv(folder.traces, traces.COLUMNS, shown)
    write_json(folder.details, job.details(**counts))
    return _write_summary(folder, facts)


def learn_from_log(job: Job) -> dict[str, Any]:
    """Learn from the first part of a log, score on the rest, and write the run folder; return the summary."""
    horde, interface, config = job.horde, job.interface, job.config
    folder = RunFolder.create(job.folder_path, config)
    began = time.perf_counter()
    with job.recorder(folder) as recorder:
        n_gaps = holdout.read_log(job.env, recorder, config.steps)
    stream, student = read(folder.life), Student(horde, interface)
    progress = Progress(None, interface.period_s, job.console)
    progress.watch = job.watch

    def observe(student: Student, step: int) -> None:
        job.watch.see(student, step)
        if progress.is_due(horde):
            progress.show(student.learning_steps, horde)

    progress.start()
    try:
        score = holdout.learn_and_score(stream, student, passes=config.passes, observer=observe)
    finally:
        progress.stop()
    return _write_reading(job, folder, student, score, stream.n_steps, n_gaps, time.perf_counter() - began)


def _write_reading(
    job: Job,
    folder: RunFolder,
    student: Student,
    score: holdout.Holdout,
    steps: int,
    n_gaps: int,
    wall_s: float,
) -> dict[str, Any]:
    """Write the tables of a log that was learned from and return the summary."""
    horde, period_s, sound = job.horde, job.interface.period_s, sound_demons(job.horde)
    facts = {
        **results.time_summary(steps, period_s, wall_s, student.learn_s, Durations()),
        **_learning(job, student.learning_steps, student.n_updated),
        **results.nmsre_summary(score.nmsre, sound),
        "n_excursions": None,
        "deadlines_missed": None,
        "gaps": n_gaps,
        "crc_errors": None,
    }
    n_held_out = len(score.returns)
    of_mean = results.nmsre_summary(score.nmsre_of_mean, sound)
    n_constant = int((score.variance < NO_VARIANCE).sum())
    n_tests = np.full(horde.n_demons, n_held_out)
    lines = results.question_lines(horde, score.nmsre, score.variance, n_tests, job.watch)
    lines = [[*line, float(of_mean)] for line, of_mean in zip(lines, score.nmsre_of_mean, strict=True)]
    write_csv(folder.questions, [*results.QUESTION_COLUMNS, "nmsre_of_mean_predictor"], lines)
    names = [channel.name for channel in job.interface.channels]
    write_csv(folder.traces, traces.COLUMNS, traces.holdout_traces(score, horde, names, period_s))
    better = float((score.nmsre < score.nmsre_of_mean).mean())
    note = (
        f"Learned in {job.config.passes} passes over the first {holdout.LEARNED_SHARE:.0%} of the log; scored on the "
        f"last {n_held_out} steps against the log's own returns, truncated where the log ends. NMSRE here is the mean "
        f"squared error over the variance of the held-out returns; always predicting the mean return of the learned "
        f"part scores {_said(of_mean['mean_nmsre'])} in the mean and {_said(of_mean['median_nmsre'])} in the median; "
        f"{better:.0%} of the questions do better than that. "
        f"{n_constant} of {horde.n_demons} questions have returns that do not vary there: their NMSRE is 1."
    )
    notes = [note, *job.env.unwrapped.metadata.get("notes", [])]
    details = {"notes": notes, "passes": job.config.passes, "n_held_out": n_held_out, "mean_predictor": of_mean}
    write_json(folder.details, job.details(**details, share_better_than_mean_predictor=better))
    return _write_summary(folder, facts)


def _said(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.3f}"


def _learning(job: Job, learning_steps: int, n_updated: int) -> dict[str, Any]:
    """Return what the summary says of learning."""
    coder = job.interface.coder
    return {
        **results.horde_summary(job.horde, coder.n_features, coder.n_active),
        "learning_steps": learning_steps,
        "n_updated_per_step": n_updated / learning_steps if learning_steps else None,
        "backend": job.config.backend,
        "seed": job.config.seed,
    }


def _write_summary(folder: RunFolder, facts: dict[str, Any]) -> dict[str, Any]:
    """Write summary.json with its fixed keys in their order, and return it."""
    assert set(facts) == set(SUMMARY_KEYS), set(facts) ^ set(SUMMARY_KEYS)
    summary = {key: facts[key] for key in SUMMARY_KEYS}
    write_json(folder.summary, summary)
    return summary
