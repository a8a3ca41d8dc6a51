"""Learn missing tables of a run again from its log, bit for bit: after a kill, a power failure or a full disk.

The log contains all observations and actions, and the behaviour does not depend on what is learned. Timings are not in
the log and stay unknown.
"""

from __future__ import annotations

import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life
from horde_agent.life.observers import Progress, RowObserver, Sampler, outside_drives
from horde_agent.life.student import Student, relearn
from horde_agent.life.timing import Durations
from horde_agent.policies import StickyRandom
from horde_agent.record import FORMAT, Flag, Phase, Stream, read, read_in_parts
from horde_agent.record.segments import read_header, read_segment, started_files
from horde_agent.runs.config import BadInput, LearnConfig, read_config
from horde_agent.runs.ending import Cause, End
from horde_agent.runs.jobs import tables as results
from horde_agent.runs.jobs.session import NOT_TIMED, read_again
from horde_agent.runs.jobs.tables import write_life, write_reading
from horde_agent.runs.jobs.warm import CompileNotice, warm_up
from horde_agent.runs.keeping.folder import RunFolder, lived_steps, write_whole
from horde_agent.runs.keeping.resume import Resumption, change, replay_rows, resumption
from horde_agent.runs.keeping.run import HeaderEnv, Run, make_run
from horde_agent.saving import inner

Log = Callable[[], Iterable[Stream]]
"""Begins a pass over a log and yields its parts in order."""


def missing_tables(folder: RunFolder) -> list[Path]:
    """Return the missing tables of a run: all if it has no summary, which is written last, or has further steps."""
    always = [folder.details, folder.questions, folder.mspbe_curve, folder.traces, folder.learning_curve]
    if not folder.summary.is_file() or has_gone_on(folder):
        return [*always, folder.summary]
    if not folder.questions.is_file():
        return [folder.questions]
    is_life = folder.mspbe_curve.is_file()  # a replayed log has none
    return [folder.learning_curve] if is_life and not folder.learning_curve.is_file() else []


def has_gone_on(folder: RunFolder) -> bool:
    """Return whether the log has steps after the summary (still running, or killed after a resume)."""
    summarised = lived_steps(folder)
    if summarised is None or not folder.mspbe_curve.is_file():
        return False
    try:
        return _end(folder)[1] > summarised
    except (ValueError, LookupError, TypeError, OSError):  # an unreadable log cannot be learned from
        return False


def learn_again(folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from a run's log again, write the missing tables, and return the summary.

    Learning starts from the newest sound snapshot, with the same bits as from the beginning; without a suitable one, it
    starts from the beginning.

    Raises:
        BadInput: If there is no log, or another necessary file is missing.
        OSError: If the tables cannot be written.
    """
    with tempfile.TemporaryDirectory() as elsewhere:
        made = RunFolder(Path(elsewhere))
        made.life = folder.life
        made.log.mkdir()
        run = _run(folder, made)
        why = "has steps after its tables were written" if has_gone_on(folder) else "lacks tables"
        console.print(f"{folder.path} {why}: learning from its log again", highlight=False, soft_wrap=True)
        with CompileNotice(console).installed():
            warm_up(run.horde, run.interface)
        if run.config.backend == "replay":
            summary = _read(run, folder, console)
        else:
            n_rows, end = _end(folder)
            summary = _from_snapshot(run, folder, console, n_rows, end) or _from_the_beginning(
                _run(folder, made), partial(recorded_rows, folder, end), end, folder, console
            )
        for path in missing_tables(folder):
            table = made.path / path.name
            if table.is_file():
                write_whole(path, table.read_text(encoding="utf-8"))
        folder.seal()
    return summary


def _run(folder: RunFolder, made: RunFolder) -> Run:
    """Return a run with a new Horde that writes to `made`."""
    # One Horde learns the same weights as shards, bit for bit, and needs no cluster.
    config = replace(_config(folder), out=folder.path, shards=None, ray=None)
    with _read_or_refused(folder):
        header, (n_rows, _) = read_header(started_files(folder.life)[0], FORMAT), _end(folder)
    if not n_rows:
        raise BadInput(f"{folder.path} contains no finished run: its log is empty")
    file = folder.question_file if str(config.questions).endswith(".toml") else None
    try:
        run = make_run(HeaderEnv(header), config, made, file)
    except KeyError as error:
        raise BadInput(f"the header of {folder.life} lacks {error}, which learning from it requires") from None
    except (ValueError, TypeError) as error:
        raise BadInput(f"{folder.life} cannot be learned from again: {error}") from None
    run.end, run.is_unfinished = End.of(Cause.CUT_OFF), True
    return run


def _end(folder: RunFolder) -> tuple[int, int]:
    """Return the number of rows of a log up to the last sound one, and its step; both 0 for an empty log."""
    for file in reversed(started_files(folder.life)):
        segment = read_segment(file, FORMAT)
        if n := segment.n_whole:
            return int(segment.header.get("first", 0)) + n, int(segment.records["step"][n - 1])
    return 0, 0


def recorded_rows(folder: RunFolder, end: int, since: int | None = None) -> Iterator[Stream]:
    """Yield the rows of a recording file by file, from row `since` up to step `end`; a run may still append more."""
    for part in read_in_parts(folder.life, since):
        yield part[: np.count_nonzero(part.rows["step"] <= end)]


@contextmanager
def _read_or_refused(folder: RunFolder) -> Iterator[None]:
    """Turn errors of reading a log into BadInput."""
    try:
        yield
    except FileNotFoundError:
        raise BadInput(f"{folder.path} contains no finished run: there are neither tables nor a log in it") from None
    except (ValueError, LookupError, TypeError, OSError) as error:
        raise BadInput(f"{folder.life} cannot be read, so it cannot be learned from again: {error}") from None


def _config(folder: RunFolder) -> LearnConfig:
    """Return the settings of a run.

    Raises:
        BadInput: If they are missing or truncated: a missing setting would silently get its default.
    """
    if not folder.config.is_file():
        raise BadInput(f"{folder.path} contains no finished run: neither summary.json nor config.toml is in it")
    config = read_config(folder.config)
    if "versions" not in tomllib.loads(folder.config.read_text(encoding="utf-8")):
        raise BadInput(
            f"{folder.config} is cut off before its versions, so settings for learning from the log again may be "
            "missing"
        )
    return config


def relearned(run: Run, log: Log, end: int, folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from a recorded run, write the tables, and return the summary; `end` is the step of its last row."""
    return _from_the_beginning(run, log, end, folder, console, is_timed=True)


def _from_the_beginning(
    run: Run, log: Log, end: int, folder: RunFolder, console: Console, *, is_timed: bool = False
) -> dict[str, Any]:
    """Learn from a whole log and write the tables.

    Args:
        run: With a new Horde.
        log: The log.
        end: Step of its last row.
        folder: The run's.
        console: For progress.
        is_timed: True to write the durations of learning to the tables.
    """
    began, sampler, student = time.perf_counter(), Sampler(), Student(run.horde, run.interface, _tests(run))
    # Excursions that the run recorded itself are kept; neither table fits in memory after months.
    is_there = folder.excursions.is_file()
    student.errors.record_to(run.folder.excursions if is_there else folder.excursions)

    def learn(observer: RowObserver) -> None:
        relearn(log(), run.horde, run.interface, student=student, observer=observer)

    reached, notes = _gone_through(learn, run, student, sampler, end, folder, console)
    n_gaps, n_not_applied = n_broken(log(), reached)
    facts = _not_timed(reached, run) | {"gaps": n_gaps}
    if is_timed:
        wall_s = time.perf_counter() - began
        facts |= results.time_summary(reached, run.interface.period_s, wall_s, student.learn_s, Durations())
    counts = {"n_not_applied": n_not_applied, "notes": notes}
    return write_life(run, student, sampler.samples, facts, counts, has_tests=_has_tests(folder, student))


def _gone_through(
    learn: Callable[[RowObserver], None],
    run: Run,
    student: Student,
    sampler: Sampler,
    end: int,
    folder: RunFolder,
    console: Console,
) -> tuple[int, list[str]]:
    """Learn from a log; return the last step learned from, and warnings.

    Args:
        learn: Learns from the log and calls its argument after each row.
        run: With the Horde.
        student: The learner.
        sampler: Samples as in the run.
        end: Step of the log's last row.
        folder: The run's.
        console: For progress.

    Raises:
        BadInput: If no step could be learned from.
    """
    progress, reached = Progress(end, run.interface.period_s, console), 0
    progress.steps = run.interface.steps
    sample = outside_drives(sampler.update, student)

    def observe(student: Student, step: int) -> None:
        nonlocal reached
        reached = step
        sample(student, step)
        if progress.is_due(run.horde):
            progress.show(step, run.horde, student.errors)

    progress.start()
    try:
        learn(observe)
    except (ValueError, LookupError, RuntimeError) as error:  # an invalid row
        if not student.learning_steps:
            raise BadInput(f"{folder.life} cannot be learned from again: {error}") from error
        where = f"{folder.life.name} is damaged after step {reached:,}"
        return reached, [f"{where}, and learned from up to there: {error}."]
    finally:
        progress.stop()
    return end, []


def _tests(run: Run) -> ExcursionConfig:
    """Return the settings of the run's excursions."""
    return ExcursionConfig(run.config.excursion_probability, run.config.horizon)


def _has_tests(folder: RunFolder, student: Student) -> bool:
    """Return whether the environment supported test excursions."""
    header = read_header(started_files(folder.life)[0], FORMAT)
    return bool(header.get("tests_excursions", student.errors.policies))


def n_broken(log: Iterable[Stream], up_to: int) -> tuple[int, int]:
    """Return the number of steps that led to a gap, and of those whose action was not applied.

    Resets and drives are not counted.

    Args:
        log: The rows, in consecutive parts.
        up_to: Step of the last row to count.
    """
    last, found = int(Phase.END), np.zeros(2, np.int64)
    for part in log:
        rows = part.rows[part.rows["step"] <= up_to]
        from_step = np.isin(np.append(last, rows["phase"])[:-1], [Phase.BEHAVE, Phase.EXCURSION])
        found += [np.count_nonzero(from_step & ((rows["flags"] & flag) > 0)) for flag in (Flag.GAP, Flag.NOT_APPLIED)]
        last = int(rows["phase"][-1]) if len(rows) else last
    return int(found[0]), int(found[1])


# ---- from a snapshot -------------------------------------------------------------------------------------------------


def _from_snapshot(run: Run, folder: RunFolder, console: Console, n_rows: int, end: int) -> dict[str, Any] | None:
    """Learn from the newest sound snapshot to the end of the log and write the tables; None without such a snapshot.

    Args:
        run: With a new Horde.
        folder: The run's.
        console: For progress.
        n_rows: Number of rows of the log, damaged ones included.
        end: Step of the last one.
    """
    try:
        kept = resumption(folder)
        if not kept.state or kept.shards is not None or n_rows < kept.n_rows:
            return None
        life, sampler = _restored(run, kept, folder)
    except (BadInput, ValueError, LookupError, OSError) as error:
        console.print(f"not from its snapshot: {error}", highlight=False, soft_wrap=True)
        return None
    kept.state.clear()
    for note in (*kept.notes, f"from its snapshot at step {kept.step:,} on: {n_rows - kept.n_rows:,} rows"):
        console.print(note, highlight=False, soft_wrap=True)

    student, since = life.student, partial(recorded_rows, folder, end, kept.n_rows)
    n_before = life.gaps, life.n_not_applied  # includes the first row
    with life:
        learn = partial(replay_rows, life, since())
        reached, notes = _gone_through(learn, run, student, sampler, end, folder, console)
    n_gaps, n_not_applied = np.add(n_before, n_broken(since(), reached)).tolist()
    facts, counts = _not_timed(reached, run) | {"gaps": n_gaps}, {"n_not_applied": n_not_applied, "notes": notes}
    return write_life(run, student, sampler.samples, facts, counts, has_tests=_has_tests(folder, student))


def _restored(run: Run, kept: Resumption, folder: RunFolder) -> tuple[Life, Sampler]:
    """Return the run restored from a snapshot, with the environment described in its log.

    Later excursions are scored again and recorded in another file: the run's own files do not change.

    Raises:
        ValueError: If the table of excursions has fewer records than the snapshot.
    """
    behaviour, rng = StickyRandom(len(run.interface.actions), run.config.repeat), np.random.default_rng(0)
    header = read_header(started_files(folder.life)[0], FORMAT)
    life = Life(HeaderEnv(header), run.horde, behaviour, rng, interface=run.interface, excursions=_tests(run))
    sampler = Sampler()
    life.observers += [run.watch, sampler]
    change(life, run.interface, folder, kept.changes)
    life.student.errors.table.resume_in(folder.excursions, copy_to=run.folder.log / "since.rec")
    sampler.restore(inner(kept.state, "sampler"))
    run.watch.restore(inner(kept.state, "watch"))
    has_no_world = {name: part for name, part in kept.state.items() if not name.startswith("life/world/")}
    life.restore(inner(has_no_world, "life"))
    return life, sampler


# ---- a log that was replayed -----------------------------------------------------------------------------------------


def _read(run: Run, folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from a replayed log and write its tables."""
    with _read_or_refused(folder):
        stream = read(folder.life)
    student, score, passes = read_again(run, stream, console, lambda: False)
    n_gaps, _ = n_broken([stream], stream.n_steps)
    facts = _not_timed(stream.n_steps, run) | {"gaps": n_gaps}
    return write_reading(run, student, score, passes, facts)


def _not_timed(steps: int, run: Run) -> dict[str, Any]:
    """Return the summary's values of time without durations."""
    facts = results.time_summary(steps, run.interface.period_s, 0.0, Durations(), Durations())
    return facts | NOT_TIMED | {"wall_s": None}
