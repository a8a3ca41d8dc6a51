"""Tables that a run never wrote, or has lost: what they held is learned again from the log, bit for bit.

A life that was killed, a machine that lost its power, a full disk: the log has what was seen and done, and behaviour
does not depend on what is learned. How long anything took a log cannot tell; that stays unknown.
"""

from __future__ import annotations

import tempfile
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.observers import Progress, Sampler
from horde_agent.life.student import Student, relearn
from horde_agent.life.timing import Durations
from horde_agent.record import DRIVES, Flag, Phase, Stream, read
from horde_agent.runs import compiling, results
from horde_agent.runs.config import BadInput, LearnConfig, read_config
from horde_agent.runs.jobs import NOT_TIMED, read_again, warm_up
from horde_agent.runs.run import Described, Run, make_run
from horde_agent.runs.run_folder import RunFolder, write_whole
from horde_agent.runs.tables import write_life, write_reading


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

    Raises:
        BadInput: If there is no log to learn from, or something else that it takes is missing.
        OSError: If the tables cannot be written.
    """
    with tempfile.TemporaryDirectory() as elsewhere:
        made = RunFolder(Path(elsewhere))
        made.life = folder.life
        run, stream = _run(folder, made)
        run.stopped_by, run.is_unfinished = "it was cut off", True
        console.print(f"{folder.path} lacks tables: learning from its log again", highlight=False, soft_wrap=True)
        with compiling.shown(console):
            warm_up(run.horde, run.interface)
        summary = (_read if run.config.backend == "replay" else _live)(run, stream, folder, console)
        for path in lacks(folder):
            table = made.path / path.name
            if table.is_file():
                write_whole(path, table.read_text(encoding="utf-8"))
        folder.seal()
    return summary


def _run(folder: RunFolder, made: RunFolder) -> tuple[Run, Stream]:
    """Return what is to learn, into `made`, and what from."""
    # One Horde learns what shards did, to the bit, and what is left of a run is to be read without a cluster.
    config = replace(_config(folder), out=folder.path, shards=None, ray=None)
    try:
        stream = read(folder.life)
    except FileNotFoundError:
        raise BadInput(f"{folder.path} holds no finished run: there are neither tables nor a log in it") from None
    except (ValueError, LookupError, TypeError, OSError) as error:
        raise BadInput(f"{folder.life} cannot be read, so that nothing can be learned from it again: {error}") from None
    if not len(stream):
        raise BadInput(f"{folder.path} holds no finished run: nothing was lived in it, for its log is empty")
    file = folder.question_file if str(config.questions).endswith(".toml") else None
    try:
        return make_run(Described(stream.header), config, made, file), stream
    except KeyError as error:
        raise BadInput(
            f"{folder.life} does not tell {error} of its body, as logs of the first version: without the body it "
            "cannot be learned from again"
        ) from None
    except (ValueError, TypeError) as error:
        raise BadInput(f"{folder.life} cannot be learned from again: {error}") from None


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
    return _live(run, stream, folder, console, is_timed=True)


def _live(run: Run, stream: Stream, folder: RunFolder, console: Console, *, is_timed: bool = False) -> dict[str, Any]:
    """Learn from the log of a life and write its tables; where it is timed, they tell how long learning took."""
    began = time.perf_counter()
    rows, config, sampler = stream.rows, run.config, Sampler()
    tests = ExcursionConfig(config.excursion_probability, config.horizon)
    student = Student(run.horde, run.interface, tests)
    if not folder.excursions.is_file():
        student.errors.record_to(folder.excursions)
    unseen = set(rows["step"][within_drives(rows["phase"])].tolist())
    progress, reached, notes = Progress(int(rows["step"][-1]), run.interface.period_s, console), 0, []

    def observe(student: Student, step: int) -> None:
        nonlocal reached
        reached = step
        if step in unseen:
            return
        sampler.see(student, step)
        if progress.is_due(run.horde):
            progress.show(step, run.horde, student.errors)

    progress.start()
    try:
        relearn(stream, run.horde, run.interface, student=student, observer=observe)
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
    has_tests = bool(stream.header.get("tests_excursions", student.errors.policies))
    return write_life(run, student, sampler.samples, facts, counts, has_tests=has_tests)


def _read(run: Run, stream: Stream, folder: RunFolder, console: Console) -> dict[str, Any]:  # noqa: ARG001
    """Learn from the log that was replayed and write its tables."""
    student, score, passes = read_again(run, stream, console, lambda: False)
    facts = _not_timed(stream.n_steps, run) | {"gaps": n_broken(stream.rows, Flag.GAP)}
    return write_reading(run, student, score, passes, facts)


def _not_timed(steps: int, run: Run) -> dict[str, Any]:
    """Return what a summary says of the time, as far as it is known."""
    facts = results.time_summary(steps, run.interface.period_s, 0.0, Durations(), Durations())
    return facts | NOT_TIMED | {"wall_s": None}


def within_drives(phase: np.ndarray) -> np.ndarray:
    """Return which rows lie within a drive: recorded for the pictures, not seen by who learns. Shape (n_rows,)."""
    goes_on = np.r_[False, phase[1:] == phase[:-1]]
    return np.asarray(goes_on & np.isin(phase, list(DRIVES)))


def n_broken(rows: np.ndarray, flag: Flag) -> int:
    """Return how many rows that a step led to have a flag: resets and drives are no faults."""
    from_step = np.isin(rows["phase"][:-1], [Phase.BEHAVE, Phase.EXCURSION])
    return int(np.count_nonzero(from_step & ((rows["flags"][1:] & flag) > 0)))
