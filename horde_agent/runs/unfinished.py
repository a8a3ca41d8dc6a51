"""Tables that a run never wrote, or has lost: what they held is learned again from the log, bit for bit.

A life that was killed, a machine that lost its power, a full disk: the log has what was seen and done, and behaviour
does not depend on what is learned. How long anything took a log cannot tell; that stays unknown.
"""

from __future__ import annotations

import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life
from horde_agent.life.observers import Progress, Sampler
from horde_agent.life.student import Student, relearn
from horde_agent.life.timing import Durations
from horde_agent.policies import StickyRandom
from horde_agent.record import FORMAT, Flag, Phase, Stream, read, read_in_parts
from horde_agent.record.segments import begun, read_header, read_segment
from horde_agent.runs import compiling, results
from horde_agent.runs.config import BadInput, LearnConfig, read_config
from horde_agent.runs.jobs import NOT_TIMED, read_again, warm_up
from horde_agent.runs.resuming import Resumption, change, redo, resumption
from horde_agent.runs.run import Described, Run, make_run
from horde_agent.runs.run_folder import RunFolder, write_whole
from horde_agent.runs.tables import write_life, write_reading
from horde_agent.saving import inner


def lacks(folder: RunFolder) -> list[Path]:
    """Return which tables a run lacks: all of them where there is no summary, for that is written last."""
    always = [folder.details, folder.questions, folder.mspbe_curve, folder.traces, folder.learning_curve]
    if not folder.summary.is_file():
        return [*always, folder.summary]
    if not folder.questions.is_file():
        return [folder.questions]
    is_life = folder.mspbe_curve.is_file()  # of a log that was read there is none
    return [folder.learning_curve] if is_life and not folder.learning_curve.is_file() else []


def learn_again(folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from a run's log again, write the tables that it lacks, and return the summary of what was learned.

    A life goes on from its newest sound snapshot, to the bit what learning from the beginning would come to; where
    there is none that fits, it is learned from the beginning.

    Raises:
        BadInput: If there is no log to learn from, or something else that it takes is missing.
        OSError: If the tables cannot be written.
    """
    with tempfile.TemporaryDirectory() as elsewhere:
        made = RunFolder(Path(elsewhere))
        made.life = folder.life
        made.log.mkdir()
        run = _run(folder, made)
        console.print(f"{folder.path} lacks tables: learning from its log again", highlight=False, soft_wrap=True)
        with compiling.shown(console):
            warm_up(run.horde, run.interface)
        if run.config.backend == "replay":
            summary = _read(run, folder, console)
        else:
            summary = _from_snapshot(run, folder, console) or _from_the_beginning(_run(folder, made), folder, console)
        for path in lacks(folder):
            table = made.path / path.name
            if table.is_file():
                write_whole(path, table.read_text(encoding="utf-8"))
        folder.seal()
    return summary


def _run(folder: RunFolder, made: RunFolder) -> Run:
    """Return what is to learn, into `made`."""
    # One Horde learns what shards did, to the bit, and what is left of a run is to be read without a cluster.
    config = replace(_config(folder), out=folder.path, shards=None, ray=None)
    with _read_or_refused(folder):
        header, is_empty = read_header(begun(folder.life)[0], FORMAT), _n_rows(folder) == 0
    if is_empty:
        raise BadInput(f"{folder.path} holds no finished run: nothing was lived in it, for its log is empty")
    file = folder.question_file if str(config.questions).endswith(".toml") else None
    try:
        run = make_run(Described(header), config, made, file)
    except KeyError as error:
        raise BadInput(
            f"{folder.life} does not tell {error} of its body, as logs of the first version: without the body it "
            "cannot be learned from again"
        ) from None
    except (ValueError, TypeError) as error:
        raise BadInput(f"{folder.life} cannot be learned from again: {error}") from None
    run.stopped_by, run.is_unfinished = "it was cut off", True
    return run


@contextmanager
def _read_or_refused(folder: RunFolder) -> Iterator[None]:
    """Say in a sentence why a log cannot be read.

    Raises:
        BadInput: If it cannot.
    """
    try:
        yield
    except FileNotFoundError:
        raise BadInput(f"{folder.path} holds no finished run: there are neither tables nor a log in it") from None
    except (ValueError, LookupError, TypeError, OSError) as error:
        raise BadInput(f"{folder.life} cannot be read, so that nothing can be learned from it again: {error}") from None


def _config(folder: RunFolder) -> LearnConfig:
    """Return the settings of a run, which must be whole: a missing one would silently take its default.

    Raises:
        BadInput: If they are not there, or not whole.
    """
    if not folder.config.is_file():
        raise BadInput(f"{folder.path} holds no finished run: there is neither a summary.json nor a config.toml in it")
    config = read_config(folder.config)
    if "versions" not in tomllib.loads(folder.config.read_text(encoding="utf-8")):
        raise BadInput(
            f"{folder.config} is cut off before its versions, so that the log cannot be learned from again under the "
            "same settings"
        )
    return config


def relearned(run: Run, stream: Stream, folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from the record of a life, write the tables of the run, and return the summary."""
    return _live(run, [stream], stream.rows, folder, console, is_timed=True)


def _from_the_beginning(run: Run, folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from all of a life's log, a file after another, and write its tables."""
    with _read_or_refused(folder):
        told = read(folder.life, columns=("step", "phase", "flags")).rows
    return _live(run, read_in_parts(folder.life), told, folder, console)


def _live(
    run: Run, parts: Iterable[Stream], rows: np.ndarray, folder: RunFolder, console: Console, *, is_timed: bool = False
) -> dict[str, Any]:
    """Learn from the log of a life and write its tables; where it is timed, they tell how long learning took.

    Args:
        run: What learns.
        parts: The log, in parts that follow one another.
        rows: Of all of it, the columns `step`, `phase` and `flags` at least, shape (n_rows,).
        folder: Of the life.
        console: Where progress is shown.
        is_timed: Whether it is.
    """
    began = time.perf_counter()
    sampler, student = Sampler(), Student(run.horde, run.interface, _tests(run))
    # What a life has recorded itself stays as it is; and of months neither fits in memory.
    is_there = folder.excursions.is_file()
    student.errors.record_to(run.folder.excursions if is_there else folder.excursions)
    progress, reached, notes = Progress(int(rows["step"][-1]), run.interface.period_s, console), 0, []

    def observe(student: Student, step: int) -> None:
        nonlocal reached
        reached = step
        sampler.see(student, step)
        if progress.is_due(run.horde):
            progress.show(step, run.horde, student.errors)

    progress.start()
    try:
        relearn(parts, run.horde, run.interface, student=student, observer=observe)
        reached = int(rows["step"][-1])
    except (ValueError, LookupError, RuntimeError) as error:  # a row that no body can have sent
        if not student.learning_steps:
            raise BadInput(f"{folder.life} cannot be learned from again: {error}") from error
        notes.append(f"{folder.life.name} is damaged after step {reached:,}, and learned from up to there: {error}.")
        rows = rows[rows["step"] <= reached]
    finally:
        progress.stop()
    facts = _not_timed(reached, run) | {"gaps": n_broken(rows, Flag.GAP)}
    if is_timed:
        wall_s = time.perf_counter() - began
        facts |= results.time_summary(reached, run.interface.period_s, wall_s, student.learn_s, Durations())
    counts = {"n_not_applied": n_broken(rows, Flag.NOT_APPLIED), "notes": notes}
    return write_life(run, student, sampler.samples, facts, counts, has_tests=_has_tests(folder, student))


def _tests(run: Run) -> ExcursionConfig:
    """Return how a life tested its demons."""
    return ExcursionConfig(run.config.excursion_probability, run.config.horizon)


def _has_tests(folder: RunFolder, student: Student) -> bool:
    """Say whether the body could be tested by excursions."""
    told = read_header(begun(folder.life)[0], FORMAT)
    return bool(told.get("tests_excursions", student.errors.policies))


# ---- from a snapshot -------------------------------------------------------------------------------------------------


def _from_snapshot(run: Run, folder: RunFolder, console: Console) -> dict[str, Any] | None:
    """Go on from the newest sound snapshot to the end of the log, and write the tables; None where none fits."""
    with ExitStack() as ours:
        try:
            ours.enter_context(folder.locked())  # a life that is lived writes to the file of excursions itself
            kept = resumption(folder)
            if not kept.state or kept.shards is not None or _n_rows(folder) < kept.n_rows:
                return None
            since = read(folder.life, since=kept.n_rows)
            life, sampler = _restored(run, kept, folder, since.header)
        except (BadInput, ValueError, LookupError, OSError) as error:
            console.print(f"not from its snapshot, for {error}", highlight=False, soft_wrap=True)
            return None
        for note in (*kept.notes, f"from its snapshot at step {kept.step:,} on: {len(since):,} rows"):
            console.print(note, highlight=False, soft_wrap=True)
        return _gone_on(run, folder, kept, since, life, sampler)


def _gone_on(
    run: Run, folder: RunFolder, kept: Resumption, since: Stream, life: Life, sampler: Sampler
) -> dict[str, Any]:
    """Learn what was recorded since a snapshot, write the tables, and return the summary."""
    n_gaps, n_not_applied = life.gaps, life.n_not_applied  # the first row's are among them
    with life:
        redo(life, since, sampler.see)
    reached = int(since.rows["step"][-1]) if len(since) else kept.step
    facts = _not_timed(reached, run) | {"gaps": n_gaps + n_broken(since.rows, Flag.GAP)}
    counts = {"n_not_applied": n_not_applied + n_broken(since.rows, Flag.NOT_APPLIED), "notes": []}
    has_tests = _has_tests(folder, life.student)
    return write_life(run, life.student, sampler.samples, facts, counts, has_tests=has_tests)


def _n_rows(folder: RunFolder) -> int:
    """Return how many rows a life's log has, be they sound or not."""
    last = read_segment(begun(folder.life)[-1], FORMAT)
    return int(last.header.get("first", 0)) + last.n_whole


def _restored(run: Run, kept: Resumption, folder: RunFolder, header: dict[str, Any]) -> tuple[Life, Sampler]:
    """Return the life as it was when a snapshot was kept, in a body that is only known by what the log says of it.

    Excursions since then are cut off their file: they are taken in once more.

    Raises:
        ValueError: If the file holds fewer than there were then.
    """
    behaviour, rng = StickyRandom(len(run.interface.actions), run.config.repeat), np.random.default_rng(0)
    life = Life(Described(header), run.horde, behaviour, rng, interface=run.interface, excursions=_tests(run))
    sampler = Sampler()
    life.observers += [run.watch, sampler]
    change(life, run.interface, folder, kept.changes)
    life.student.errors.go_on_in(folder.excursions)
    sampler.restore(inner(kept.state, "sampler"))
    run.watch.restore(inner(kept.state, "watch"))
    has_no_world = {name: part for name, part in kept.state.items() if not name.startswith("life/world/")}
    life.restore(inner(has_no_world, "life"))
    return life, sampler


# ---- a log that was replayed -----------------------------------------------------------------------------------------


def _read(run: Run, folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from the log that was replayed and write its tables."""
    with _read_or_refused(folder):
        stream = read(folder.life)
    student, score, passes = read_again(run, stream, console, lambda: False)
    facts = _not_timed(stream.n_steps, run) | {"gaps": n_broken(stream.rows, Flag.GAP)}
    return write_reading(run, student, score, passes, facts)


def _not_timed(steps: int, run: Run) -> dict[str, Any]:
    """Return what a summary says of the time, as far as it is known."""
    facts = results.time_summary(steps, run.interface.period_s, 0.0, Durations(), Durations())
    return facts | NOT_TIMED | {"wall_s": None}


def n_broken(rows: np.ndarray, flag: Flag) -> int:
    """Return how many rows that a step led to have a flag: resets and drives are no faults."""
    from_step = np.isin(rows["phase"][:-1], [Phase.BEHAVE, Phase.EXCURSION])
    return int(np.count_nonzero(from_step & ((rows["flags"][1:] & flag) > 0)))
