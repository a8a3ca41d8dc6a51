"""Learn again from the recording of a run: in a new folder, or for the tables that it lacks.

Tables are missing after a kill, a power failure or a full disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from horde_agent.life.life import Life
from horde_agent.life.observers import Sampler
from horde_agent.record.segments import record_files
from horde_agent.runs.config import RECORDED, BadInput, LearnConfig
from horde_agent.runs.exit_reason import Cause, SignalHandler
from horde_agent.runs.session import Job, Unwritten
from horde_agent.runs.sources.recorded_rows import (
    Log,
    Recording,
    Replay,
    as_bad_input,
    last_row,
    rebuilt_run,
    recorded_facts,
)
from horde_agent.runs.storage.folder import IMPORTED, RunFolder, lived_steps, write_whole
from horde_agent.runs.storage.resume import change, recorded_config, recorded_life, resumption
from horde_agent.runs.storage.run import (
    GIVEN_IN_PYTHON,
    IN_PYTHON,
    HeaderEnv,
    Run,
    make_run,
    new_life,
    restore,
)
from horde_agent.runs.warm import CompileNotice


def recorded_settings(config: LearnConfig) -> LearnConfig:
    """Return the settings completed from the recorded run in the folder `log`; raise BadInput without them.

    The horizon is taken from the run; so are questions and seed, unless `config` names questions,
    and the offset,
    unless `config` names one: the recording of an older run gives the weights that it had.
    """
    recorded = RunFolder(Path(str(config.log)))
    recorded_run = recorded_config(recorded)
    if config.questions is None:
        question_source = recorded_run.questions or "excursions"
        if question_source == IN_PYTHON:
            raise BadInput(f"{GIVEN_IN_PYTHON}, or name other --questions")
        question_file = question_source
        if question_source.endswith(".toml"):
            question_file = str(recorded.question_file)
        config = replace(config, questions=question_file, seed=recorded_run.seed)
    if config.offset is None and not config.paper:
        config = replace(config, offset=recorded_run.offset)
    # There is no live page of a recording
    return replace(config, horizon=recorded_run.horizon, watch=False)


def relearning(
    config: LearnConfig, folder: RunFolder, console: Console, signals: SignalHandler
) -> Replay:
    """Return a job that learns from a recorded run at full speed, with the same or other questions.

    Its actions have probabilities, so questions about any policy are learned off-policy. It is
    linked into the new folder, or copied. Raise BadInput if it cannot be read, or was of several
    robots and is to be learned from in shards.
    """
    recorded = RunFolder(Path(str(config.log)))
    recorded_run = recorded_config(recorded)
    recorded_run = recorded_life(recorded, recorded_run) or recorded_run
    if recorded_run.robots > 1 and config.shards is not None:
        raise BadInput(
            f"--shards cannot learn from {config.log}, a run of {recorded_run.robots} robots; omit it"
        )
    header, n_rows, end = recorded_facts(recorded)
    run = make_run(HeaderEnv(header), config, folder, lived=recorded_run)
    for path in record_files(recorded.life):
        try:
            os.link(path, folder.log / path.name)
        except OSError:
            shutil.copy2(path, folder.log / path.name)
    folder.log_event({"step": 0, "event": IMPORTED, "row": n_rows})
    rows = Recording(recorded.life, config.steps)
    if config.steps is None:
        cause = Cause.LOG_END
    else:
        cause = Cause.STEPS
    job = Replay(run, rows, console, header, end=cause, total=config.steps or end, signals=signals)
    job.student.errors.table.record_to(folder.excursions)
    return job


# ---- missing tables --------------------------------------------------------------------------------------------------


def missing_tables(folder: RunFolder) -> list[Path]:
    """Return the missing tables of a run: all if it has no summary, which is written last, or has further steps."""
    always = [
        folder.details,
        folder.questions,
        folder.mspbe_curve,
        folder.traces,
        folder.learning_curve,
    ]
    if not folder.summary.is_file() or has_gone_on(folder):
        return [*always, folder.summary]
    if not folder.questions.is_file():
        return [folder.questions]
    is_life = folder.mspbe_curve.is_file()  # a replayed log has none
    if is_life and not folder.learning_curve.is_file():
        return [folder.learning_curve]
    return []


def has_gone_on(folder: RunFolder) -> bool:
    """Return whether the log has steps after the summary (still running, or killed after a resume)."""
    summarised = lived_steps(folder)
    if summarised is None or not folder.mspbe_curve.is_file():
        return False
    try:
        # Recorded rows are in the log before learning begins: how far a run learned from them is in
        # its summary alone.
        return folder.settings().get("backend") not in RECORDED and last_row(folder)[1] > summarised
    # An unreadable log cannot be learned from
    except (ValueError, LookupError, TypeError, OSError):
        return False


def complete(folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from a run's log again, write the missing tables, and return the summary.

    Learning starts from the newest suitable snapshot, with the same bits as from the beginning, or
    else from the beginning. Raise BadInput if there is no log or another necessary file, OSError if
    the tables cannot be written.
    """
    config = one_horde(folder)
    with tempfile.TemporaryDirectory() as elsewhere:
        header, n_rows, end = recorded_facts(folder)
        run = _rebuilt_elsewhere(folder, Path(elsewhere), config, header)
        rebuilt = run.folder
        why = "lacks tables"
        if has_gone_on(folder):
            why = "has steps after its tables were written"
        console.print(
            f"{folder.path} {why}: learning from its log again", highlight=False, soft_wrap=True
        )
        job: Job
        if config.backend == "replay" and recorded_life(folder, config) is None:
            job = Log(run, console)
        else:
            passes = 1
            if config.backend == "data":
                passes = config.passes or 1
            end *= passes
            if config.backend in RECORDED:
                end = min(end, config.steps or end)
            restored = _restored(run, folder, header, n_rows * passes, console)
            if restored is None:
                run = rebuilt_run(folder, rebuilt, config, header)
            rows = Recording(folder.life, end, restored[2] if restored else None, passes)
            life = None
            if restored:
                life = restored[:2]
            job = Replay(run, rows, console, header, end=Cause.CUT_OFF, total=end, restored=life)
            if restored is None:
                # Excursions that the run recorded itself are kept; neither table fits in memory
                # after months.
                job.student.errors.table.record_to(
                    rebuilt.excursions if folder.excursions.is_file() else folder.excursions
                )
        job.is_rebuilt = True
        try:
            with CompileNotice(console).installed():
                job.begin()
            with as_bad_input(folder):
                summary = job.learn()
        except Unwritten as error:
            raise error.why from None
        for path in missing_tables(folder):
            table = rebuilt.path / path.name
            if table.is_file():
                write_whole(path, table.read_text(encoding="utf-8"))
        folder.seal()
    return summary


def _rebuilt_elsewhere(
    folder: RunFolder, elsewhere: Path, config: LearnConfig, header: dict[str, Any]
) -> Run:
    rebuilt = RunFolder(elsewhere)
    rebuilt.life = folder.life
    rebuilt.log.mkdir()
    return rebuilt_run(folder, rebuilt, config, header)


def restored_run(
    folder: RunFolder,
    elsewhere: Path,
    config: LearnConfig,
    header: dict[str, Any],
    console: Console,
) -> Run | None:
    """Return a run with the weights of its newest snapshot, in the folder `elsewhere`; None without a snapshot."""
    run = _rebuilt_elsewhere(folder, elsewhere, config, header)
    if _restored(run, folder, header, None, console) is not None:
        return run
    return None


def _restored(
    run: Run, folder: RunFolder, header: dict[str, Any], n_rows: int | None, console: Console
) -> tuple[Life, Sampler, int] | None:
    """Return a life and its samples, restored from the newest suitable snapshot, and its rows; None without one.

    Later excursions are scored again and recorded in a copy: the run's own files do not change.
    """
    try:
        resumed = resumption(folder)
        if (
            not resumed.state
            or resumed.shards is not None
            or (n_rows is not None and n_rows < resumed.n_rows)
        ):
            return None
        life, sampler = new_life([HeaderEnv(header)] * run.config.robots, run)
        change(life, run.interface, folder, resumed.changes)
        copied = run.folder.log / "copied"
        copied.mkdir()
        for path in record_files(folder.excursions):
            shutil.copy(path, copied)
        life.student.errors.table.resume_in(copied / folder.excursions.name)
        restore(life, run, sampler, resumed.state)
    except (BadInput, ValueError, LookupError, OSError) as error:
        console.print(f"not from its snapshot: {error}", highlight=False, soft_wrap=True)
        return None
    resumed.state.clear()
    progress = ""
    if n_rows is not None:
        progress = f" on: {n_rows - resumed.n_rows:,} rows"
    for note in (*resumed.notes, f"from its snapshot at step {resumed.step:,}{progress}"):
        console.print(note, highlight=False, soft_wrap=True)
    return life, sampler, resumed.n_rows


def one_horde(folder: RunFolder) -> LearnConfig:
    """Return the settings of a run, for one Horde: it learns the same weights as shards, bit for bit."""
    return replace(recorded_config(folder), out=folder.path, shards=None, ray=None)
