"""`horde learn` and `horde resume`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from rich.console import Console

from horde_agent.cli.errors import Fault, is_of_body, sentence, user_errors
from horde_agent.cli.settings import ResumeConfig
from horde_agent.cluster import ShardLost
from horde_agent.formats.fit import NothingToLearn
from horde_agent.formats.format import TableFile
from horde_agent.formats.registry import format_of
from horde_agent.interface import Interface
from horde_agent.life.arranging import (
    NO_CHANGES,
    ArrangedBody,
    consequences,
    with_recorded_layouts,
)
from horde_agent.life.backends import default_physics
from horde_agent.life.bodies import ONE_AT_A_TIME, make_body
from horde_agent.life.counts import UnfitResult
from horde_agent.life.life import BodyDisobeys
from horde_agent.policies import StickyRandom
from horde_agent.record import RecordLost, header_of
from horde_agent.record.segments import number_of
from horde_agent.refusals import BadInput
from horde_agent.runs.config import (
    RECORDED,
    STANDARD_INPUT,
    LearnConfig,
    is_life,
    refuse_no_command,
    resolve,
    with_backend,
    with_retention,
)
from horde_agent.runs.exit_reason import Ended, SignalHandler
from horde_agent.runs.reporting.report import (
    NEARLY_CONSTANT_IS,
    NMSRE_IS,
    discarded,
    unscored,
    write_report,
)
from horde_agent.runs.session import Session, Unwritten
from horde_agent.runs.sources.arranged_rows import NO_ROW_CHANGES, RowChanges
from horde_agent.runs.sources.data_set import data_session, open_data, resumed_data_session
from horde_agent.runs.sources.log import PlayedLog
from horde_agent.runs.sources.predictions import STANDARD_OUTPUT
from horde_agent.runs.sources.recorded_rows import replay_session
from horde_agent.runs.sources.robot import RobotSource
from horde_agent.runs.sources.streamed_rows import (
    ResumedStream,
    UnreadableRows,
    followed_session,
    followed_table,
    piped_session,
    resumed_followed_session,
    resumed_streamed_session,
    stream_table,
)
from horde_agent.runs.storage.files import read_json
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.one_place import lived_once
from horde_agent.runs.storage.question_changes import RequestedChanges
from horde_agent.runs.storage.resume import (
    NEW,
    Resumption,
    refuse_other_body,
    refuse_over,
    resume_settings,
    resumption,
)
from horde_agent.runs.storage.run import HeaderEnv, make_run, record_header
from horde_agent.runs.warm import CompileNotice
from horde_agent.scoring.nmsre import nmsre_text
from horde_agent.scoring.trace_growth import unsafe_rules
from horde_agent.watch.server import LivePage, need_extras, open_beside

Prepare = Callable[[LearnConfig, RunFolder, Console, SignalHandler], Session]

_FAULTS = (BodyDisobeys, RecordLost, UnfitResult, UnreadableRows)
"""Errors that end a run, and are no bugs."""
_MENTIONED_SHARE = 0.1  # of excursions or tests that were lost


def learn(config: LearnConfig, signals: SignalHandler) -> None:
    """Learn in a new folder and print a summary; without a step, no folder is left."""
    config = with_backend(config)
    if _is_own_log(config):
        config = replace(config, backend="replay", log=config.data, data=None)
    is_run = config.backend == "replay" and is_life(config.log)
    if is_run:
        config = config.replaying(RunFolder(Path(str(config.log))).sound_settings())
    is_open = config.questions is None
    config = resolve(config)
    prepare: Prepare = _robot
    if is_run:
        prepare = replay_session
    elif config.backend == "data" and config.is_streamed:
        if config.follow:
            prepare_stream = followed_session
            table = followed_table(Path(str(config.data)), config.columns)
        else:
            prepare_stream = piped_session
            table = stream_table(config.columns)
        if is_open and table.header["b_known"] and len(table.header["actions"]) > 1:
            config = replace(config, questions="excursions")
        prepare = partial(prepare_stream, table)
    elif config.backend == "data":
        with user_errors():
            table = open_data(config)
        if is_open and table.header["b_known"] and len(table.header["actions"]) > 1:
            config = replace(config, questions="excursions")
        prepare = partial(data_session, table)
    elif config.backend == "replay":
        prepare = _log
    if config.watch:
        need_extras()
    folder = RunFolder.create(config)
    session = None
    config = replace(config, out=folder.path)
    with folder.locked():
        try:
            session = _begin_session(prepare, config, folder, signals)
            with lived_once(folder):
                finish(session)
        except BaseException as error:
            if session is None or isinstance(error, BadInput):
                folder.give_back()
            if isinstance(error, NothingToLearn):
                raise Fault(f"{error}.") from None
            raise


def resume(command: ResumeConfig, signals: SignalHandler) -> None:
    """Resume a run in its folder, which an error leaves as it is."""
    folder = RunFolder(command.run)
    config = resume_settings(folder, command.steps)
    config = with_retention(config, command.keep, archive=command.archive)
    if config.watch:
        need_extras()
    if command.on_alarm is not None:
        refuse_no_command(command.on_alarm)
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    if config.on_alarm not in (None, command.on_alarm):
        console.print(
            f"{folder.config} names a command for alarms, which is not run: --on-alarm {config.on_alarm!r}"
        )
    if config.env is not None:
        console.print(f"importing the environment {config.env}, which {folder.config} names")
    config = replace(config, on_alarm=command.on_alarm)
    if command.port is not None:
        if config.backend not in ONE_AT_A_TIME:
            raise BadInput(
                f"--port {command.port} belongs to a real robot; {command.run} has the backend {config.backend}: "
                "omit it"
            )
        config = replace(config, port=command.port)
    prepare = _prepare_to_resume(command, config)
    with folder.locked(), lived_once(folder):
        session = _begin_session(prepare, config, folder, signals, is_resumed=True)
        try:
            finish(session)
        except BadInput as error:  # by now files of the run were written
            raise Fault(sentence(error)) from error


def _prepare_to_resume(command: ResumeConfig, config: LearnConfig) -> Prepare:
    """Return what makes the session of a resumed run; raise BadInput if the command does not fit it."""
    more = command.data
    has_stream = more == STANDARD_INPUT or (
        more is not None and config.backend == "data" and RunFolder(command.run).is_streamed
    )
    if not has_stream and (command.predictions or command.predict):
        raise BadInput(
            "--predictions and --predict are for rows from standard input: --data -; omit them"
        )
    if command.compare_frozen and command.data is None:
        raise BadInput(
            "--compare-frozen compares with the weights before further rows: give them by --data, or omit it"
        )
    if command.predict is not None and command.predictions is None:
        raise BadInput(f"--predict {command.predict} needs --predictions, where to write them")
    changes = RowChanges.of(
        columns=command.columns,
        channels=command.channels,
        actions=command.actions,
        tilings=command.tilings,
        add=command.add,
        remove=command.remove,
        learns=command.learn_from_record,
    )
    if config.backend not in RECORDED and command.columns is not None:
        raise BadInput(
            f"--columns {command.columns} describes rows of data; {command.run} has the backend {config.backend}: "
            "omit it"
        )
    if command.compare_frozen and changes != NO_ROW_CHANGES:
        raise BadInput(
            "--compare-frozen compares with weights that have no other columns or questions: omit it, or resume twice"
        )
    if config.backend != "data" and command.data is not None:
        raise BadInput(
            f"--data {command.data}: {command.run} has the backend {config.backend}, and only a run on data continues "
            "with further rows; omit it"
        )
    if has_stream:
        if more == STANDARD_INPUT:
            more = None
        stream = ResumedStream(
            more=more,
            predictions=command.predictions,
            predict=command.predict,
            compares_frozen=command.compare_frozen,
            changes=changes,
        )
        return partial(resumed_streamed_session, stream)
    if config.follow and command.data is None:
        return partial(resumed_followed_session, changes)
    if config.backend == "data" and RunFolder(command.run).is_streamed:
        raise BadInput(
            f"the rows of {command.run} came one by one: continue with further ones by --data, a file, a folder or -"
        )
    if config.backend in RECORDED:
        if changes.is_of_rows and command.data is None:
            raise BadInput(
                f"--channels, --actions, --tilings and --columns are about further rows: give those of {command.run} "
                "by --data"
            )
        return partial(
            resumed_data_session,
            more=command.data,
            compares_frozen=command.compare_frozen,
            changes=changes,
        )
    return partial(_resuming, command, changes)


def _begin_session(
    prepare: Prepare,
    config: LearnConfig,
    folder: RunFolder,
    signals: SignalHandler,
    *,
    is_resumed: bool = False,
) -> Session:
    """Make a session and begin it; print a line if kernels are compiled."""
    console = Console(stderr=True)
    with CompileNotice(console).installed():
        with user_errors():
            session = prepare(config, folder, console, signals)
        with _errors_of_reset(is_resumed=is_resumed):
            session.begin()
    return session


def _errors_of_reset(*, is_resumed: bool) -> AbstractContextManager[None]:
    """Raise errors of a robot that the user can correct as bad input.

    Those of a resumed run are faults: its robot was there when it began, and it has learned from its
    recording before its first reset.
    """
    if is_resumed:
        return user_errors(Fault)
    return user_errors(BadInput)


def _resuming(
    command: ResumeConfig,
    changes: RowChanges,
    config: LearnConfig,
    folder: RunFolder,
    console: Console,
    signals: SignalHandler,
) -> Session:
    """Return a session that continues the life of a robot, with other questions if the command says so."""
    resumed = resumption(folder)
    if command.steps is None and resumed.steps is not None:
        config = replace(config, steps=resumed.steps)
    config = replace(config, shards=resumed.shards or config.shards, ray=command.ray or config.ray)
    if command.shards is not None and (
        config.shards is None or command.shards not in ("auto", config.shards)
    ):
        where = "one Horde"
        if config.shards is not None:
            where = f"{config.shards} shards"
        raise BadInput(
            f"--shards {command.shards}: the demons of {folder.path} are in {where}, which cannot change; omit it"
        )
    if command.ray is not None and config.shards is None:
        raise BadInput(
            f"--ray {command.ray}: the demons of {folder.path} are not in shards; omit it"
        )
    refuse_over(folder, resumed, config.steps)
    requested = changes.questions
    header = header_of(folder.life)
    if changes.body == NO_CHANGES and not header.get("arranged"):
        arrange = partial(_as_recorded, folder, header)
        return _robot(config, folder, console, signals, resumed, requested, arrange=arrange)
    if config.shards is not None or config.robots > 1:
        raise BadInput(
            "--channels, --actions and --tilings are for one robot and one Horde; omit them"
        )
    resumed = resumed._replace(notes=[*resumed.notes, *consequences(changes.body.actions)])
    return _robot(
        config,
        folder,
        console,
        signals,
        resumed,
        requested,
        arrange=partial(ArrangedBody, recorded=header, changes=changes.body),
    )


def _as_recorded(
    folder: RunFolder, header: dict[str, Any], env: gymnasium.Env[Any, Any]
) -> gymnasium.Env[Any, Any]:
    """Return the body of a recording with the layouts of then; raise BadInput if it is another body."""
    refuse_other_body(folder, header, record_header(env, Interface.of(env)))
    return with_recorded_layouts(env, header)


def _robot(
    config: LearnConfig,
    folder: RunFolder,
    console: Console,
    signals: SignalHandler,
    resumed: Resumption = NEW,
    requested: RequestedChanges | None = None,
    *,
    arrange: Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]] | None = None,
) -> Session:
    """Return a session of one robot or several, with warnings about its update rules.

    `arrange` makes a body of the present one that its record describes.
    """
    with ExitStack() as undo:
        envs = [make_env(config) for _ in range(config.robots)]
        for env in envs:
            undo.callback(env.close)
        # To report errors of the port before compiling, which delays commands
        if config.backend in ONE_AT_A_TIME:
            with _errors_of_reset(is_resumed=resumed.number > 0):
                envs[0].reset(options={"manoeuvre": "stay"})
            envs[0].close()
        if arrange is not None:
            envs = [arrange(env) for env in envs]
        run = make_run(envs[0], config, folder)
        undo.callback(run.close)
        behaviour = StickyRandom(len(run.interface.actions), config.repeat)
        for warning in unsafe_rules(
            run.horde.questions, config.algorithm, config.trace_rule, behaviour
        ):
            console.print(warning, highlight=False)
        source = RobotSource(run, envs, resumed, requested)
        undo.pop_all()
    return Session(source, console, signals)


def _is_own_log(config: LearnConfig) -> bool:
    """Return whether --data is a table without --columns that the robot reads as its own log."""
    if config.backend != "data" or config.data is None or config.columns is not None:
        return False
    if config.is_streamed:
        return False
    if not isinstance(format_of(config.data), TableFile):
        return False
    try:
        with closing(make_env(replace(config, backend="replay", log=config.data))) as env:
            env.reset()
    except Exception as error:
        if is_of_body(error):
            return False
        raise
    return True


def _log(
    config: LearnConfig, folder: RunFolder, console: Console, signals: SignalHandler
) -> Session:
    """Return a session of the Critterbot's own log."""
    with closing(make_env(config)) as env:
        return data_session(PlayedLog(env), config, folder, console, signals)


def finish(session: Session) -> None:
    """Learn, stop the robot in any case, write the report and print a summary; the live page ends after it."""
    physics = session.run.config.physics
    if physics is not None:
        why = ": PyBullet is not installed, nor needed"
        if "bullet" in (physics, default_physics()):
            why = ""
        session.say(f"physics {physics}{why}")
    with ExitStack() as at_end:
        try:
            if session.run.config.watch:
                page = _open_page(session)
                at_end.push(lambda error, *_: _end_page(page, session, is_error=error is not None))
            summary = _learn_to_end(session)
        finally:
            session.close()
        _print_results(session, summary)


def _open_page(session: Session) -> LivePage:
    """Open the live page; if that fails, close the session with its recording."""
    try:
        return open_beside(session.run.folder.path, session.say)
    except BaseException:
        session.abandon()
        raise


def _end_page(page: LivePage, session: Session, *, is_error: bool) -> None:
    """End the live page: at Ctrl-C in a terminal, at once after an error or a signal or without a terminal."""

    def stay() -> None:
        session.say(f"the page stays at {page.address} until Ctrl-C")
        page.wait()

    try:
        if not is_error and not session.signals.seen and _is_at_terminal():
            # Which prints too: Ctrl-C right after the line ends the page
            session.signals.wait_after_end(stay)
    finally:
        page.close()


def _is_at_terminal() -> bool:
    """Return whether Ctrl-C reaches this process: it is in the foreground of a terminal."""
    try:
        return (
            os.isatty(0)
            and os.isatty(2)
            and (os.name != "posix" or os.tcgetpgrp(0) == os.getpgrp())
        )
    except OSError:
        return False


def _learn_to_end(session: Session) -> dict[str, Any]:
    """Learn and return the summary; raise Fault if the robot or the disk fails."""
    folder = session.run.folder
    try:
        return session.learn()
    except Unwritten as error:
        fault = error.__cause__  # what had ended the life, if not the writing itself
        first = ""
        if isinstance(fault, Exception) and fault is not error.why:
            first = f"{sentence(fault)} "
        more = f"The log is in {folder.log}: `horde report {folder.path}` learns from it again."
        raise Fault(f"{first}{error} {more}") from error
    except Ended as error:
        if folder.summary.is_file():
            error.add_note(f"The run until then is in {_write_report(folder)}")
        raise
    except ShardLost as error:
        raise Fault(
            f"shard {error.number} with {error.n_demons:,} demons is lost ({error.why}): `horde resume {folder.path}` "
            "continues from the last snapshot and the recording."
        ) from error
    except Exception as error:
        if not (is_of_body(error) or isinstance(error, _FAULTS)):
            raise
        raise Fault(
            f"{sentence(error)}{_missing_rows(folder, error)} The run until then is in {_write_report(folder)}"
        ) from error


def _missing_rows(folder: RunFolder, error: Exception) -> str:
    """Return how to get rows back that were not recorded, as a sentence; "" for another error."""
    if not isinstance(error, RecordLost) or not number_of(Path(str(error.filename)), folder.life):
        return ""
    return f" Free disk space, then `horde resume {folder.path}` takes the steps again whose rows are missing."


def _write_report(folder: RunFolder, signals: SignalHandler | None = None) -> Path:
    """Write the report and return its path; after SIGTERM, when that would take too long, return the folder."""
    if signals is not None and signals.seen[:1] == [signal.SIGTERM]:
        return folder.path
    try:
        return write_report(folder.path)
    except BadInput as error:
        raise Fault(str(error)) from error


def make_env(config: LearnConfig) -> gymnasium.Env[Any, Any]:
    """Make the robot or the environment of resolved settings."""
    return make_body(
        config.backend,
        config.port,
        parity=config.parity,
        env_id=config.env,
        wrap=config.wrap,
        robot=config.robot,
        log=config.log,
        realtime=config.realtime,
        physics=config.physics,
    )


def described_env(config: LearnConfig) -> gymnasium.Env[Any, Any]:
    """Return the robot of resolved settings, or a description of the robot whose rows are learned from.

    Raises:
        BadInput: If the settings name an environment: a folder of somebody else may name any
            module.
    """
    if config.env is not None:
        raise BadInput(f"the environment {config.env} is not imported to describe it")
    if config.backend == "replay" and is_life(config.log):
        life = RunFolder(Path(str(config.log))).life
        return HeaderEnv(header_of(life))
    if config.backend == "data":
        return HeaderEnv(open_data(config).header)
    if config.backend == "replay":
        with closing(make_env(config)) as env:
            return HeaderEnv(PlayedLog(env).header)
    return make_env(config)


def _print_results(session: Session, summary: dict[str, Any]) -> None:
    """Write the report, and print the results and the path of the report."""
    folder = session.run.folder
    report = _write_report(folder, session.signals)
    nmsre = "not scored"
    lines = []
    if summary["mean_nmsre"] is not None:
        median = nmsre_text(summary["median_nmsre"])
        mean = nmsre_text(summary["mean_nmsre"])
        nmsre = f"NMSRE median {median}, mean {mean}, {summary['share_nmsre_below_1']:.0%} below 1"
        better = summary["share_better_than_persistence"]
        nmsre += f", {better:.0%} better than persistence"
        lines = [NMSRE_IS]
        flat = summary["n_nearly_constant"]
        if flat:
            nmsre += f", {flat:,} nearly constant"
            lines = [f"{NMSRE_IS} {NEARLY_CONSTANT_IS}"]
    with suppress(OSError, ValueError):
        details = read_json(folder.details)
        lines += discarded(details, summary["n_excursions"], _MENTIONED_SHARE)
        lines += unscored(details.get("not_scored", []))
    lost_s = summary["s_without_link"]
    if lost_s:
        share = lost_s / summary["robot_time_s"]
        lines.append(
            f"no link to the robot for {lost_s:.1f} s ({share:.0%} of the run): nothing was learned"
        )
    first = (
        f"{summary['steps']:,} steps in {summary['wall_s']:.1f} s · {summary['n_questions']} questions · {nmsre} · "
        f"{len(summary['diverged'])} diverged"
    )
    for line in (first, *lines):
        session.say(line)
    if session.run.config.predictions == STANDARD_OUTPUT:
        session.say(str(report))
    else:
        print(report)
