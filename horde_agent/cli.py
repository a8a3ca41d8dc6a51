"""The command `horde`: learn, resume, report, doctor, export, reproduce, warm, bench, watch.

Exit codes: 0 done; 1 the robot was lost or the disk is full; 2 bad input, nothing was written; 128 + the signal (130
Ctrl-C, 143 SIGTERM, 129 SIGHUP) after a signal, also if the run then ended in order and has its report.
"""

from __future__ import annotations

import io
import itertools
import json
import operator
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import tyro
from rich.console import Console

from horde_agent.bench import BenchConfig
from horde_agent.cluster import ShardLost
from horde_agent.gvf import GVF
from horde_agent.kernels.rules import rule
from horde_agent.learning.rules import PAPER_CONFIG, parse_algorithm
from horde_agent.life.bodies import make_body
from horde_agent.life.life import BodyDisobeys
from horde_agent.life.process_env import EnvironmentGone
from horde_agent.measures.nmsre import nmsre_text
from horde_agent.measures.trace_growth import trace_growth
from horde_agent.policies import ConstantAction, StickyRandom
from horde_agent.record import RecordLost
from horde_agent.reproduce import ReproduceConfig
from horde_agent.runs.config import (
    WHOLE,
    BadInput,
    LearnConfig,
    default_physics,
    is_life,
    read_config,
    resolve,
    run_of,
)
from horde_agent.runs.ending import Ended, SignalHandler, handling_signals, unfailing
from horde_agent.runs.jobs.session import (
    Session,
    Unwritten,
    learning_from,
    opened,
    recorded_settings,
    relearning,
    resuming_data,
    try_port,
)
from horde_agent.runs.jobs.sources.recorded import Log, play_log
from horde_agent.runs.jobs.sources.robot import Robot
from horde_agent.runs.jobs.sources.source import import_table
from horde_agent.runs.jobs.warm import CompileNotice, warm
from horde_agent.runs.keeping.doctor import examine
from horde_agent.runs.keeping.folder import RunFolder, own_version
from horde_agent.runs.keeping.resume import Resumption, refuse_over, resumption, settings
from horde_agent.runs.keeping.run import HeaderEnv, Run, make_run
from horde_agent.runs.showing.report import NEARLY_CONSTANT_IS, NMSRE_IS, unscored, write_report
from horde_agent.watch.server import LivePage, WatchConfig, need_extras, open_beside, watch

FAULT, BAD_INPUT, BROKEN_OFF = 1, 2, 130
SCALARS = "tensorboard"  # of `export`


@dataclass(frozen=True)
class ReportConfig:
    """Regenerate a run's report; rebuild missing tables from its log.

    With two or more runs, write a page that compares them: comparison-N.html in the current folder.

    Attributes:
        run: The run's folder.
        others: Further runs to compare with the first.
    """

    run: tyro.conf.Positional[Path]
    others: tyro.conf.Positional[tuple[Path, ...]] = ()


@dataclass(frozen=True, kw_only=True)
class ResumeConfig:
    """Resume an interrupted run from its latest snapshot and recording.

    In simulation the result equals that of an uninterrupted run, bit for bit. A real robot continues after a gap.

    Attributes:
        run: The run's folder.
        steps: Total number of steps of the run; as requested before when None.
        add: TOML file of further questions, added at the step where the run stopped.
        remove: Shell pattern of the names of questions to remove at that step.
        learn_from_record: Train the further questions on the recording first.
        shards: The number of shards of the run; it cannot be changed.
        ray: Address of the Ray cluster, if it differs from before.
    """

    run: tyro.conf.Positional[Path]
    steps: Annotated[int | None, WHOLE, tyro.conf.arg(metavar="N", help_behavior_hint="(default: as before)")] = None
    add: Annotated[Path | None, tyro.conf.arg(metavar="FILE.toml", help_behavior_hint="(default: none)")] = None
    remove: Annotated[str | None, tyro.conf.arg(metavar="PATTERN", help_behavior_hint="(default: none)")] = None
    learn_from_record: bool = False
    shards: Annotated[str | None, tyro.conf.arg(metavar="N|auto", help_behavior_hint="(default: as before)")] = None
    ray: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT", help_behavior_hint="(default: as before)")] = None


@dataclass(frozen=True)
class DoctorConfig:
    """Check every file of a run and repair those that can be repaired.

    Attributes:
        run: The run's folder.
    """

    run: tyro.conf.Positional[Path]


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Export a run's recording, or its curves for TensorBoard.

    Attributes:
        run: The run's folder.
        to: `parquet` (a file a day, for DuckDB, polars and pandas), `mcap` (for robots' own viewers), `minari` or
            `lerobot` (a data set of what was learned from) or `tensorboard` (scalars: NMSRE, MSPBE, cycle times,
            faults).
        out: Folder or file to write; `export` in the run's folder when None.
        follow: With `tensorboard`: continue until the run ends.
    """

    run: tyro.conf.Positional[Path]
    to: Annotated[str, tyro.conf.arg(metavar="FORMAT")] = "parquet"
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="(default: RUN/export)")] = None
    follow: bool = False


@dataclass(frozen=True)
class WarmConfig:
    """Compile all kernels now, so that `horde learn` starts within seconds.

    Attributes:
        algorithm: Update rule, with its parameters, whose kernels are compiled too.
    """

    algorithm: str = PAPER_CONFIG.algorithm


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, the words after `horde`, and return the exit code.

    Errors without an exit code are bugs and are raised. Output errors never end a command: a terminal may be closed
    during a run.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with unfailing(), handling_signals() as signals:
        try:
            _run(words, signals)
        except BadInput as error:
            return _complain(str(error), BAD_INPUT)
        except Fault as error:
            return _complain(str(error), signals.exit_code or FAULT)
        except (Ended, KeyboardInterrupt) as error:  # KeyboardInterrupt: outside the main thread
            return _complain(
                " ".join(["interrupted.", *getattr(error, "__notes__", [])]), signals.exit_code or BROKEN_OFF
            )
        return signals.exit_code


def _complain(sentence: str, code: int) -> int:
    print(f"horde: {sentence}", file=sys.stderr)
    return code


def _run(words: list[str], signals: SignalHandler) -> None:
    if words == ["--version"]:
        print(own_version())
        return
    match command := _parse(words):
        case ReportConfig(others=()):
            print(write_report(command.run))
        case ReportConfig():
            from horde_agent.runs.showing.compare import write_comparison

            print(write_comparison([command.run, *command.others]))
        case BenchConfig():
            from horde_agent.bench.command import run

            run(command)
        case ReproduceConfig():
            _reproduce(command)
        case WarmConfig():
            _warm(command)
        case ResumeConfig():
            _resume(command, signals)
        case DoctorConfig():
            _doctor(command)
        case ExportConfig():
            _export(command)
        case LearnConfig(backend="replay") if is_life(run_of(command.log)):
            asked, lived = recorded_settings(replace(command, log=run_of(command.log)))
            _learn(resolve(asked), signals, lambda config, into, console, _: relearning(config, lived, into, console))
        case LearnConfig() if command.data or command.minari or command.backend == "data":
            _learn_data(command, signals)
        case WatchConfig():
            watch(command)
        case _:
            _learn(resolve(command), signals, _prepared)


def _doctor(command: DoctorConfig) -> None:
    found = examine(command.run)
    for finding in found:
        print(finding)
    damaged = [finding.what for finding in found if not (finding.is_sound or finding.is_repaired)]
    if damaged:
        raise Fault(f"damaged and not repairable: {', '.join(damaged)}.")


def _export(command: ExportConfig) -> None:
    if command.follow and command.to != SCALARS:
        raise BadInput(f"--follow requires --to {SCALARS}: {command.to} exports a run once")
    with user_errors():
        if command.to == SCALARS:
            from horde_agent.watch.reader import export_scalars

            say = Console(stderr=True, highlight=False, soft_wrap=True).print
            print(export_scalars(command.run, command.out, follow=command.follow, say=say))
        else:
            from horde_agent.runs.jobs.exporting import export

            print(export(command.run, command.to, command.out))


def _reproduce(config: ReproduceConfig) -> None:
    from horde_agent.reproduce.command import run

    try:
        page = run(config)
    except OSError as error:
        more = "Finished parts are kept: the same command continues from here."
        raise Fault(f"{_sentence(error)} {more}") from error
    print(page)


def _warm(command: WarmConfig) -> None:
    with user_errors():
        env = _make_env(LearnConfig())
    try:
        with user_errors(), CompileNotice(Console(stderr=True)).installed():
            took_s = warm(env, command.algorithm)
    finally:
        env.close()
    print(f"compiled in {took_s:.1f} s; the next `horde learn` finds it in numba's cache")


_COMMANDS: dict[str, type] = {
    "learn": LearnConfig,
    "report": ReportConfig,
    "resume": ResumeConfig,
    "doctor": DoctorConfig,
    "export": ExportConfig,
    "bench": BenchConfig,
    "reproduce": ReproduceConfig,
    "warm": WarmConfig,
    "watch": WatchConfig,
}


def _parse(words: list[str]) -> Any:
    """Turn words into a command; a --config file gives the defaults that flags override."""
    default = LearnConfig()
    if words[:1] == ["learn"] and (file := _config_file(words)) is not None:
        default = replace(read_config(file), config=file)
    settings: dict[str, Any] = {"learn": {"default": default}}
    kinds: list[Any] = [Annotated[k, tyro.conf.subcommand(n, **settings.get(n, {}))] for n, k in _COMMANDS.items()]
    any_of: Any = reduce(operator.or_, kinds)
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):
            return tyro.cli(
                any_of,
                args=words,
                prog="horde",
                description="A robot's life of learning: hundreds of predictions at once, off-policy, by GTD(lambda). "
                "Exit codes: 0 done; 1 the robot was lost or the disk is full; 2 bad input, nothing was written; "
                "128 + the signal (130 Ctrl-C, 143 SIGTERM, 129 SIGHUP) after a signal.",
                config=(tyro.conf.OmitSubcommandPrefixes,),
            )
    except SystemExit as end:
        if end.code in (0, None):
            raise
        raise BadInput(one_sentence(errors.getvalue())) from None


def one_sentence(box: str) -> str:
    """Return the text of a framed message of the argument parser, without its frame and advice."""
    lines = [line.strip(" │╭╮╰╯─") for line in box.splitlines()[1:]]
    said = itertools.takewhile(bool, lines)
    return " ".join(said).rstrip(".") + "; see horde --help"


def _config_file(words: Sequence[str]) -> Path | None:
    file = None
    for k, word in enumerate(words):
        if word == "--config" and k + 1 < len(words):
            file = Path(words[k + 1])
        elif word.startswith("--config="):
            file = Path(word.removeprefix("--config="))
    return file


def _learn(
    config: LearnConfig,
    signals: SignalHandler,
    prepare: Callable[[LearnConfig, RunFolder, Console, SignalHandler], Session],
) -> None:
    """Learn in a new folder, by a session for it, and print a summary; without a step, no folder is left."""
    if config.watch:
        need_extras()
    folder, is_begun = RunFolder.create(config), False
    config = replace(config, out=folder.path)
    with folder.locked():
        try:
            with user_errors():
                session = prepare(config, folder, Console(stderr=True), signals)
                session.begin()
            is_begun = True
            _finish(session, signals)
        except BaseException as error:
            if not is_begun or isinstance(error, BadInput):
                folder.give_back()
            raise


def _learn_data(config: LearnConfig, signals: SignalHandler) -> None:
    asked = resolve(config)
    with user_errors():
        table = opened(asked)
    if config.questions is None and table.header["b_known"] and len(table.header["actions"]) > 1:
        asked = replace(asked, questions="excursions")
    _learn(asked, signals, partial(learning_from, table))


def _finish(session: Session, signals: SignalHandler) -> None:
    """Learn, stop the robot in any case, write the report and print a summary; the live page ends after it."""
    folder, physics = session.run.folder, session.run.config.physics
    if physics is not None:
        why = "" if "bullet" in (physics, default_physics()) else ": PyBullet is not installed, nor needed"
        session.console.print(f"physics {physics}{why}", highlight=False)
    with ExitStack() as at_end:
        try:
            if session.run.config.watch:
                page = open_beside(folder.path, lambda line: session.console.print(line, highlight=False))
                at_end.push(lambda error, *_: _end_page(page, session, is_error=error is not None))
            summary = _completed(session)
        finally:
            try:
                session.close_source()
                session.obey_second_ctrl_c()
            finally:
                session.run.close()
        _say(session.console, summary, folder, _drawn(folder, signals))


def _end_page(page: LivePage, session: Session, *, is_error: bool) -> None:
    """End the live page: at Ctrl-C in a terminal, at once after an error or a signal or without a terminal."""
    try:
        if not is_error and not session.signals.seen and _is_at_terminal():
            session.console.print(f"the page stays at {page.address} until Ctrl-C", highlight=False, soft_wrap=True)
            session.signals.wait_after_end(page.wait)
    finally:
        page.close()


def _is_at_terminal() -> bool:
    """Return whether this process is in the foreground of a terminal, so that Ctrl-C reaches it."""
    try:
        return os.isatty(0) and os.isatty(2) and (os.name != "posix" or os.tcgetpgrp(0) == os.getpgrp())
    except OSError:
        return False


def _resume(command: ResumeConfig, signals: SignalHandler) -> None:
    """Resume a run in its folder, which an error leaves as it is."""
    folder = RunFolder(command.run)
    config = settings(folder, command.steps)
    if config.watch:
        need_extras()
    with folder.locked():
        with user_errors():
            if config.backend == "data":
                session = resuming_data(config, folder, Console(stderr=True), signals)
            else:
                session = _resuming(command, config, folder, signals)
            session.begin()
        _finish(session, signals)


def _resuming(command: ResumeConfig, config: LearnConfig, folder: RunFolder, signals: SignalHandler) -> Session:
    """Return a session that continues the life of a robot, with other questions if the command says so."""
    resumed = resumption(folder)
    if command.steps is None and resumed.facts.get("steps") is not None:
        config = replace(config, steps=resumed.facts["steps"])
    config = replace(config, shards=resumed.shards or config.shards, ray=command.ray or config.ray)
    if command.shards is not None and (config.shards is None or command.shards not in ("auto", config.shards)):
        where = "one Horde" if config.shards is None else f"{config.shards} shards"
        raise BadInput(
            f"--shards {command.shards}: the demons of {folder.path} are in {where}, which cannot change; omit it"
        )
    if command.ray is not None and config.shards is None:
        raise BadInput(f"--ray {command.ray}: the demons of {folder.path} are not in shards; omit it")
    refuse_over(folder, resumed, config.steps)
    session = _prepared(config, folder, Console(stderr=True), signals, resumed)
    robot = session.source
    if isinstance(robot, Robot) and (command.add is not None or command.remove is not None):
        learns = command.learn_from_record
        robot.snapshot_writer.pending = lambda: robot.change(command.add, command.remove, learns=learns)
    return session


def _prepared(
    config: LearnConfig,
    folder: RunFolder,
    console: Console,
    signals: SignalHandler,
    resumed: Resumption | None = None,
) -> Session:
    """Return a session of a robot or a log, with warnings about its update rules."""
    notice = CompileNotice(console)
    is_log, table = config.backend == "replay", None if config.columns is None else opened(config)
    envs = [_make_env(config) for _ in range(config.robots)] if table is None else [HeaderEnv(table.header)]
    run: Run | None = None
    try:
        try_port(envs[0], config)
        with notice.installed():
            own = folder.question_file if resumed is not None and folder.question_file.is_file() else None
            run = make_run(envs[0], config, folder, own)
        if run.interface.actions:
            behaviour = StickyRandom(len(run.interface.actions), config.repeat)
            for warning in unsafe_rules(run.horde.questions, config.algorithm, config.trace_rule, behaviour):
                console.print(warning, highlight=False)
        source = Log(run, console) if is_log else Robot(run, envs, console, resumed)
        if table is not None:
            import_table(table, run)
        elif is_log:
            play_log(envs[0], run)
    except BaseException:
        for env in envs:
            env.close()
        if run is not None:
            run.close()
        raise
    return Session(run, source, console, signals, notice)


def _completed(session: Session) -> dict[str, Any]:
    """Learn and return the summary; turn a failure of the robot or the disk into Fault."""
    folder = session.run.folder
    try:
        return session.learn()
    except Unwritten as error:
        fault = error.__cause__  # what had ended the life, if not the writing itself
        first = f"{_sentence(fault)} " if isinstance(fault, Exception) and fault is not error.why else ""
        more = f"The log is in {folder.log}: `horde report {folder.path}` learns from it again."
        raise Fault(f"{first}{error} {more}") from error
    except Ended as error:
        if folder.summary.is_file():
            error.add_note(f"The run until then is in {_drawn(folder)}")
        raise
    except ShardLost as error:
        raise Fault(
            f"shard {error.number} with {error.n_demons:,} demons is lost ({error.why}): `horde resume {folder.path}` "
            "continues from the last snapshot and the recording."
        ) from error
    except Exception as error:
        if not (_is_of_body(error) or isinstance(error, BodyDisobeys | EnvironmentGone | RecordLost)):
            raise
        raise Fault(f"{_sentence(error)} The run until then is in {_drawn(folder)}") from error


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be written ({error.strerror})."
    said = " ".join(str(error).split())
    return said if said.endswith(".") else f"{said}."


def _drawn(folder: RunFolder, signals: SignalHandler | None = None) -> Path:
    """Write the report and return its path; after SIGTERM, when that would take too long, return the folder."""
    if signals is not None and signals.seen[:1] == [signal.SIGTERM]:
        return folder.path
    try:
        return write_report(folder.path)
    except BadInput as error:
        raise Fault(str(error)) from error


def _make_env(config: LearnConfig) -> gymnasium.Env[Any, Any]:
    return make_body(
        config.backend,
        config.port,
        parity=config.parity,
        env_id=config.env,
        robot=config.robot,
        log=config.log,
        realtime=config.realtime,
        physics=config.physics,
        in_process=config.robots == 1,
    )


def unsafe_rules(questions: Sequence[GVF], algorithm: str, trace_rule: str, behaviour: StickyRandom) -> list[str]:
    """Return a warning for each update rule whose traces or steps are too large under the behaviour.

    Questions without an update rule learn by `algorithm`.
    """
    by_rule: dict[str, list[GVF]] = {}
    for question in questions:
        by_rule.setdefault(question.algorithm or algorithm, []).append(question)
    said = []
    for name, asked in by_rule.items():
        key, given = parse_algorithm(name)
        of = rule(key)
        if "has_interest" in (of.SPAN or ()):  # emphases grow as traces of lambda 1
            heavy = heavy_traces([replace(question, lam=1.0) for question in asked], behaviour)
        else:
            heavy = heavy_traces(asked, behaviour) if trace_rule == "plain" else []
        said += [f"algorithm {name}, trace rule {trace_rule}: {warning}" for warning in heavy]
        others = [question for question in asked if isinstance(question.target_policy, ConstantAction)]
        least = float(behaviour.transition_probabilities().min())
        size = given.get(of.TIMES_RHO, getattr(of.parameters(), of.TIMES_RHO, 0.0)) if of.TIMES_RHO else 0.0
        if others and size > least:
            said.append(
                f"algorithm {name}: {of.TIMES_RHO} = {size:g} times the largest ratio of {others[0].name!r} and "
                f"{len(others) - 1} others, {1.0 / least:g}, is above 1: set {of.TIMES_RHO} to at most {least:g}"
            )
    return said


def heavy_traces(questions: Sequence[GVF], behaviour: StickyRandom) -> list[str]:
    """Return a warning for each time scale at which "plain" traces have heavy tails or infinite variance.

    Only targets of one action with constant gamma and lambda are checked: other ratios depend on the state.
    """
    counts: Counter[tuple[float, float, int]] = Counter()
    for question in questions:
        policy, gamma, lam = question.target_policy, question.continuation, question.lam
        if isinstance(policy, ConstantAction) and not callable(gamma) and not callable(lam):
            counts[float(gamma), float(lam), policy.n_actions] += 1
    said = []
    for (gamma, lam, n_actions), n in sorted(counts.items()):
        growth = trace_growth(np.eye(n_actions)[0], behaviour.transition_probabilities(), gamma, lam)
        if growth.warning:
            said.append(f"the traces of {n} questions at gamma {gamma:g}, lambda {lam:g} have {growth.warning}")
    return said


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors that the user can correct into BadInput; all others are bugs and keep their traceback."""
    try:
        yield
    except BadInput:
        raise
    except EnvironmentGone as error:
        raise Fault(f"{error}; its output, if any, is above") from error
    except Exception as error:
        if _is_of_body(error) or isinstance(error, ValueError | ImportError | OSError | gymnasium.error.Error):
            raise BadInput(" ".join(str(error).split())) from error
        raise


def _is_of_body(error: BaseException) -> bool:
    """Return whether the robot's package, which is not imported here, raised the error."""
    return any(kind.__name__ == "HordeEnvError" for kind in type(error).__mro__)


class Fault(Exception):
    """An error that ended a job, in a sentence that names the run's files."""


def _say(console: Console, summary: dict[str, Any], folder: RunFolder, report: Path) -> None:
    nmsre, lines = "not scored", []
    if summary["mean_nmsre"] is not None:
        median, mean = nmsre_text(summary["median_nmsre"]), nmsre_text(summary["mean_nmsre"])
        nmsre = f"NMSRE median {median}, mean {mean}, {summary['share_nmsre_below_1']:.0%} below 1"
        lines = [NMSRE_IS]
        if flat := summary["n_nearly_constant"]:
            nmsre += f", {flat:,} nearly constant"
            lines = [f"{NMSRE_IS} {NEARLY_CONSTANT_IS}"]
    with suppress(OSError, ValueError):
        lines += unscored(json.loads(folder.details.read_text(encoding="utf-8")).get("not_scored", []))
    if lost_s := summary["s_without_link"]:
        share = lost_s / summary["robot_time_s"]
        lines.append(f"no link to the robot for {lost_s:.1f} s ({share:.0%} of the run): nothing was learned")
    first = (
        f"{summary['steps']:,} steps in {summary['wall_s']:.1f} s · {summary['n_questions']} questions · {nmsre} · "
        f"{len(summary['diverged'])} diverged"
    )
    for line in (first, *lines):
        console.print(line, highlight=False, soft_wrap=True)
    print(report)


if __name__ == "__main__":
    sys.exit(main())
