"""A run, from its source to the tables in its folder.

`horde learn` and `horde resume` run a robot or read a log; `relearning` learns from a recorded run in a new folder, and
`complete` learns the missing tables of a run again, after a kill, a power failure or a full disk. A recording contains
all observations and actions, and the behaviour does not depend on the weights, so the results are the same, bit for
bit. Timings are not in it and stay unknown.

When a run ends, for any reason, the robot is stopped and closed first; then the tables are written.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
from rich.console import Console

from horde_agent.interface import Interface
from horde_agent.life.bodies import ONE_AT_A_TIME
from horde_agent.life.life import Life
from horde_agent.life.observers import Progress, Sampler
from horde_agent.policies import Policy
from horde_agent.record import FORMAT
from horde_agent.record.segments import read_header, read_segment, record_files, started_files
from horde_agent.runs.config import BadInput, LearnConfig, is_life
from horde_agent.runs.data.behaviour import Rows, WithBehaviour, estimate_behaviour
from horde_agent.runs.data.columns import ESTIMATE, Columns
from horde_agent.runs.data.files import open_table
from horde_agent.runs.data.lerobot import is_lerobot, open_lerobot
from horde_agent.runs.data.minari import open_minari
from horde_agent.runs.data.tables import Table
from horde_agent.runs.ending import Cause, Ended, SignalHandler
from horde_agent.runs.jobs.sources.recorded import DataSet, Log, Replay
from horde_agent.runs.jobs.sources.source import Recording, Source, import_table, new_life, restore
from horde_agent.runs.jobs.tables import write_tables
from horde_agent.runs.jobs.warm import CompileNotice, warm_up
from horde_agent.runs.keeping.folder import RunFolder, lived_steps, write_whole
from horde_agent.runs.keeping.resume import change, recorded_config, refuse_part, resumption
from horde_agent.runs.keeping.run import GIVEN_IN_PYTHON, IN_PYTHON, HeaderEnv, Questions, Run, make_run


class Unwritten(Exception):
    """The tables were not written, but the log was; `why` is the error or signal that ended writing."""

    def __init__(self, why: OSError | Ended) -> None:
        self.why = why
        reason = "writing was interrupted"
        if isinstance(why, OSError):
            reason = f"{why.filename} cannot be written ({why.strerror})"
        super().__init__(f"The tables were not written: {reason}.")


class Session:
    """Learns from a source and writes the tables of the run, with durations if it `is_timed`.

    `signals` handles the signals of the command; None leaves them alone. `notice` announces that kernels are compiled.
    """

    def __init__(
        self,
        run: Run,
        source: Source,
        console: Console,
        signals: SignalHandler | None = None,
        notice: CompileNotice | None = None,
        *,
        is_timed: bool = True,
    ) -> None:
        self.run, self.source, self.console = run, source, console
        self.signals, self._notice, self._is_timed = signals or SignalHandler(), notice, is_timed
        self._is_stopped_for_good = False

    def begin(self) -> None:
        """Compile, then open the source.

        In this order, because a robot may drive in its first reset and compiling would delay its commands. A signal
        during that drive requests the end of the run. If it fails, everything is closed.
        """
        try:
            with (self._notice or CompileNotice(self.console)).installed():
                compile_s = warm_up(self.run.horde, self.run.interface, self.run.config.robots)
            self.run.compile_s = compile_s if self._is_timed else None
            self.signals.call_at_first(lambda: self.source.stop(Cause.of_signal(self.signals.seen[-1])))
            self.source.begin()
        except BaseException:
            self.source.abandon()
            self.run.close()
            raise

    def learn(self) -> dict[str, Any]:
        """Learn from the source to its end, and write the tables; return the summary.

        Raises:
            BadInput: If the source is too short or damaged.
            Unwritten: If the tables could not be written; its cause is the exception that ended the run early, if any.
            BaseException: The exception that ended the run early, after the tables were written.
        """
        progress = Progress(self.source.total, self.run.interface.period_s, self.console)
        progress.watch, progress.steps = self.run.watch, self.run.interface.steps
        progress.start()
        began, fault = time.perf_counter(), None
        # The robot is stopped at once: learning from the last observation may take seconds while it moves.
        try:
            try:
                self.source.learn(progress)
            finally:
                self.close_source()
        except BaseException as error:
            fault = error
            self.close_source()  # again: a signal may have interrupted its first statement
        progress.stop()
        outcome = self.source.finish(fault)
        fault, self.run.end = outcome.fault, outcome.end
        wall_s = time.perf_counter() - began + outcome.lived_before_s if self._is_timed else None
        try:
            summary = write_tables(self.run, self.source.student, outcome, wall_s)
        except (OSError, Ended) as error:
            raise Unwritten(error) from fault or error
        except Exception as error:
            if fault is None:
                raise
            raise fault from error  # the fault may have left the learner in an inconsistent state
        if fault is not None:
            raise fault
        return summary

    def close_source(self) -> None:
        """Stop and close the robot, deferring signals; only file writing remains. Idempotent."""
        self.signals.record_only()
        self.obey_second_ctrl_c()
        self.source.close()
        self.signals.call_at_first(
            lambda: self.source.say("the robot is stopped; writing the tables; press Ctrl-C again to skip that")
        )

    def obey_second_ctrl_c(self) -> None:
        """Set the robot's emergency stop, if it has one, after a second Ctrl-C."""
        if self.signals.seen.count(signal.SIGINT) < 2 or self._is_stopped_for_good:
            return
        self._is_stopped_for_good = True
        if self.source.emergency_stop("Ctrl-C was pressed twice"):
            self.source.say("the emergency stop is set; clear it by `horde-robot stop --clear`")


def try_port(env: gymnasium.Env[Any, Any], config: LearnConfig) -> None:
    """Open and close a robot's port without driving, to report errors before compiling.

    It is not kept open, because compiling would delay its commands.
    """
    if config.backend in ONE_AT_A_TIME:
        env.reset(options={"manoeuvre": "stay"})
        env.close()


# ---- learning from a recorded run in a new folder --------------------------------------------------------------------


def recorded_settings(config: LearnConfig) -> tuple[LearnConfig, LearnConfig]:
    """Return the settings completed from the recorded run, and the settings of that run.

    The horizon is taken from the run; so are questions and seed, unless `config` names questions.

    Raises:
        BadInput: If the run's settings are missing, or its questions were given in Python.
    """
    assert is_life(config.log), "the log is a run's folder"
    recorded = RunFolder(Path(str(config.log)))
    lived = recorded_config(recorded)
    if config.questions is None:
        asked = lived.questions or "excursions"
        if asked == IN_PYTHON:
            raise BadInput(f"{GIVEN_IN_PYTHON}, or name other --questions")
        own = str(recorded.question_file) if asked.endswith(".toml") else asked
        config = replace(config, questions=own, seed=lived.seed)
    return replace(config, horizon=lived.horizon, watch=False), lived  # there is no live page of a recording


def relearning(config: LearnConfig, lived: LearnConfig, folder: RunFolder, console: Console) -> Session:
    """Return a session that learns from a recorded run at full speed, with the same or other questions.

    The recording contains the actions and their probabilities, so questions about any policy are learned off-policy. It
    is linked into the new folder, or copied if the file system has no links. `lived` are the settings of the run.

    Raises:
        BadInput: If the recording cannot be read, or is to be learned from in shards, and has several robots.
        ValueError: If it does not fit the settings.
    """
    if lived.robots > 1 and config.shards is not None:
        raise BadInput(f"--shards cannot learn from {config.log}, a run of {lived.robots} robots; omit it")
    recorded = RunFolder(Path(str(config.log)))
    header, _, end = recorded_facts(recorded)
    run = make_run(HeaderEnv(header), config, folder, Path(str(config.questions)), lived=lived)
    for path in record_files(recorded.life):
        try:
            os.link(path, folder.log / path.name)
        except OSError:
            shutil.copy2(path, folder.log / path.name)
    rows, cause = Recording(recorded.life, config.steps), Cause.LOG_END if config.steps is None else Cause.STEPS
    source = Replay(run, rows, console, header, end=cause, total=config.steps or end)
    source.student.errors.record_to(folder.excursions)
    return Session(run, source, console)


# ---- learning from a data set ----------------------------------------------------------------------------------------


def opened(config: LearnConfig) -> Rows:
    """Return the rows of `--data`, of `--minari`, or of `--log` with `--columns`.

    Raises:
        BadInput: If it cannot be read.
    """
    file = config.data or config.log
    if config.minari is not None:
        table = open_minari(config.minari, config.columns)
    elif file is None:
        raise BadInput("--backend data needs --data FILE or --minari NAME, the data set to learn from")
    elif is_lerobot(file):
        table = open_lerobot(file, config.columns)
    elif config.columns is None:
        raise BadInput("--data needs --columns FILE.toml, which describes the columns of the table (docs/data.md)")
    else:
        columns = Columns.read(config.columns)
        if config.backend == "replay":
            columns = replace(columns, missing="gap", action=None, b=None)
        table = open_table(file, columns)
    return with_behaviour(table, ESTIMATE if table.columns.b == ESTIMATE else None)


def with_behaviour(table: Table, policy: Policy | str | None) -> Rows:
    """Return a table with the action probabilities of a policy; of an estimated one for "estimate".

    Raises:
        BadInput: If a row is invalid, or there are too few to estimate a policy.
    """
    if policy is None:
        return table
    interface = Interface.of(HeaderEnv(table.header))
    if isinstance(policy, str):
        estimated, facts = estimate_behaviour(table, interface)
        return WithBehaviour(table, estimated, interface, facts)
    return WithBehaviour(table, policy, interface)


def learning_from(
    table: Rows,
    config: LearnConfig,
    folder: RunFolder,
    console: Console,
    signals: SignalHandler | None = None,
    questions: Questions | None = None,
) -> Session:
    """Import a data set, and return a session that learns from it; `questions` replace those in the settings.

    Raises:
        BadInput: If the folder cannot be written, or the questions need unknown action probabilities.
        ValueError: If the questions do not fit the data set.
    """
    run = make_run(HeaderEnv(table.header), config, folder, own=questions)
    try:
        import_table(table, run)
        return Session(run, DataSet(run, console), console, signals)
    except BaseException:
        run.close()
        raise


def resuming_data(config: LearnConfig, folder: RunFolder, console: Console, signals: SignalHandler) -> Session:
    """Return a session that continues to learn from a data set, from its snapshot or from the first row.

    Raises:
        BadInput: If the run is complete, or its files cannot be read.
    """
    header, n_rows, _ = recorded_facts(folder)
    resumed = resumption(folder)
    n_left = n_rows * (config.passes or 1) - resumed.n_rows
    if folder.summary.is_file() and not n_left:
        raise BadInput(f"{folder.path} has learned from all {n_rows:,} rows of its data set")
    run = _rebuilt(folder, folder, config, header)
    run.is_unfinished = False
    for note in (*resumed.notes, f"resumed at row {resumed.n_rows:,}; {n_left:,} rows follow"):
        console.print(note, highlight=False, soft_wrap=True)
    return Session(run, DataSet(run, console, resumed), console, signals)


# ---- missing tables --------------------------------------------------------------------------------------------------


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
        # A data set is in the log before learning begins: how far a run learned from it is in its summary alone.
        return not folder.is_imported() and _end(folder)[1] > summarised
    except (ValueError, LookupError, TypeError, OSError):  # an unreadable log cannot be learned from
        return False


def complete(folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from a run's log again, write the missing tables, and return the summary.

    Learning starts from the newest sound snapshot, with the same bits as from the beginning; without a suitable one, it
    starts from the beginning.

    Raises:
        BadInput: If there is no log, another necessary file is missing, or a data set was not imported as a whole.
        OSError: If the tables cannot be written.
    """
    config = one_horde(folder)
    refuse_part(folder, config)
    with tempfile.TemporaryDirectory() as elsewhere:
        made = RunFolder(Path(elsewhere))
        made.life = folder.life
        made.log.mkdir()
        header, n_rows, end = recorded_facts(folder)
        run = _rebuilt(folder, made, config, header)
        why = "has steps after its tables were written" if has_gone_on(folder) else "lacks tables"
        console.print(f"{folder.path} {why}: learning from its log again", highlight=False, soft_wrap=True)
        source: Source
        if config.backend == "replay":
            source = Log(run, console)
        else:
            passes = (config.passes or 1) if config.backend == "data" else 1
            end *= passes
            restored = _restored(run, folder, header, n_rows * passes, console)
            if restored is None:
                run = _rebuilt(folder, made, config, header)
            rows = Recording(folder.life, end, restored[2] if restored else None, passes)
            life = restored[:2] if restored else None
            source = Replay(run, rows, console, header, end=Cause.CUT_OFF, total=end, restored=life)
            if restored is None:
                # Excursions that the run recorded itself are kept; neither table fits in memory after months.
                source.student.errors.record_to(made.excursions if folder.excursions.is_file() else folder.excursions)
        session = Session(run, source, console, is_timed=False)
        session.begin()
        try:
            with _as_bad_input(folder):
                summary = session.learn()
        except Unwritten as error:
            raise error.why from None
        for path in missing_tables(folder):
            table = made.path / path.name
            if table.is_file():
                write_whole(path, table.read_text(encoding="utf-8"))
        folder.seal()
    return summary


def restored_run(
    folder: RunFolder, elsewhere: Path, config: LearnConfig, header: dict[str, Any], console: Console
) -> Run | None:
    """Return a run with the weights of its newest snapshot; None without one. It writes to the folder `elsewhere`.

    Raises:
        BadInput: If its Horde cannot be created.
    """
    made = RunFolder(elsewhere)
    made.log.mkdir()
    run = _rebuilt(folder, made, config, header)
    return run if _restored(run, folder, header, 1 << 62, console) is not None else None


def _rebuilt(folder: RunFolder, made: RunFolder, config: LearnConfig, header: dict[str, Any]) -> Run:
    file = folder.question_file if str(config.questions).endswith(".toml") else None
    try:
        run = make_run(HeaderEnv(header), config, made, file)
    except KeyError as error:
        raise BadInput(f"the header of {folder.life} lacks {error}, which learning from it requires") from None
    except (ValueError, TypeError) as error:
        raise BadInput(f"{folder.life} cannot be learned from again: {error}") from None
    run.is_unfinished = True
    return run


def _restored(
    run: Run, folder: RunFolder, header: dict[str, Any], n_rows: int, console: Console
) -> tuple[Life, Sampler, int] | None:
    """Return a life and its samples, restored from the newest suitable snapshot, and its rows; None without one.

    Later excursions are scored again and recorded in a copy: the run's own files do not change.
    """
    try:
        kept = resumption(folder)
        if not kept.state or kept.shards is not None or n_rows < kept.n_rows:
            return None
        life, sampler = new_life([HeaderEnv(header)] * run.config.robots, run)
        change(life, run.interface, folder, kept.changes)
        (copied := run.folder.log / "copied").mkdir()
        for path in record_files(folder.excursions):
            shutil.copy(path, copied)
        life.student.errors.table.resume_in(copied / folder.excursions.name)
        restore(life, run, sampler, kept.state)
    except (BadInput, ValueError, LookupError, OSError) as error:
        console.print(f"not from its snapshot: {error}", highlight=False, soft_wrap=True)
        return None
    kept.state.clear()
    for note in (*kept.notes, f"from its snapshot at step {kept.step:,} on: {n_rows - kept.n_rows:,} rows"):
        console.print(note, highlight=False, soft_wrap=True)
    return life, sampler, kept.n_rows


def recorded_facts(folder: RunFolder) -> tuple[dict[str, Any], int, int]:
    """Return the header of a recording, its number of rows, and its last step; raise BadInput if it has no row."""
    with _as_bad_input(folder):
        header, (n_rows, end) = read_header(started_files(folder.life)[0], FORMAT), _end(folder)
    if not n_rows:
        raise BadInput(f"{folder.path} contains no finished run: its log is empty")
    return header, n_rows, end


def _end(folder: RunFolder) -> tuple[int, int]:
    """Return the number of rows of a log up to the last sound one, and its step; both 0 for an empty log."""
    for file in reversed(started_files(folder.life)):
        segment = read_segment(file, FORMAT)
        if n := segment.n_whole:
            return int(segment.header.get("first", 0)) + n, int(segment.records["step"][n - 1])
    return 0, 0


@contextmanager
def _as_bad_input(folder: RunFolder) -> Iterator[None]:
    try:
        yield
    except BadInput:
        raise
    except FileNotFoundError:
        raise BadInput(f"{folder.path} contains no finished run: there are neither tables nor a log in it") from None
    except (ValueError, LookupError, TypeError, OSError) as error:
        raise BadInput(f"{folder.life} cannot be read, so it cannot be learned from again: {error}") from None


def one_horde(folder: RunFolder) -> LearnConfig:
    """Return the settings of a run, for one Horde: it learns the same weights as shards, bit for bit.

    Raises:
        BadInput: If they are missing or truncated.
    """
    return replace(recorded_config(folder), out=folder.path, shards=None, ray=None)
