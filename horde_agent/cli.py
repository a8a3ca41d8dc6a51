"""The command `horde`: learn, resume, report, doctor, export, reproduce, warm, bench.

Bad input is answered by one sentence, exit code 2.

Exit codes: 0 done; 1 the body was lost, or the disk took no more; 2 bad input, nothing was written; 128 + the signal
(130 Ctrl-C, 143 SIGTERM, 129 SIGHUP) where somebody ended it, also where it ended in good order, with its report.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import tyro
from rich.console import Console

from horde_agent.bench import BenchConfig
from horde_agent.gvf import GVF
from horde_agent.life.bodies import make_body
from horde_agent.life.life import BodyDisobeys
from horde_agent.life.process_env import EnvironmentGone
from horde_agent.life.table import TableBody
from horde_agent.measures.nmsre import nmsre_text
from horde_agent.policies import ConstantAction, StickyRandom, trace_growth
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
from horde_agent.runs.doctor import examine
from horde_agent.runs.ending import Ended, Signals, heard
from horde_agent.runs.jobs import Job, Unwritten, learn_from_log, live, try_port
from horde_agent.runs.reliving import as_lived, relive
from horde_agent.runs.resuming import Resumption, refuse_over, resumption, settings
from horde_agent.runs.run import make_run
from horde_agent.runs.run_folder import RunFolder, own_version
from horde_agent.runs.showing.report import NEARLY_CONSTANT_IS, NMSRE_IS, unscored, write_report
from horde_agent.runs.stdio import unfailing
from horde_agent.runs.warm import CompileNotice, warm
from horde_agent.watch.command import LivePage, WatchConfig, need_extras, open_beside, watch

FAULT, BAD_INPUT, BROKEN_OFF = 1, 2, 130
SCALARS = "tensorboard"  # of `export`


@dataclass(frozen=True)
class ReportConfig:
    """Draw the report of a run again from the files in its folder; where its tables are missing, from its log.

    Of two runs and more, draw a page that compares them: comparison-N.html in this folder.

    Attributes:
        run: The run's folder.
        others: Further runs, to be compared with the first.
    """

    run: tyro.conf.Positional[Path]
    others: tyro.conf.Positional[tuple[Path, ...]] = ()


@dataclass(frozen=True, kw_only=True)
class ResumeConfig:
    """Go on with a life that was stopped, by whatever: from its newest snapshot, and from its record since then.

    In the simulator it is then the life that never stopped, bit for bit. A real robot goes on after a gap.

    Attributes:
        run: The run's folder.
        steps: Steps that the life is to have in all; those that it was asked for when None.
        add: TOML file of further questions, asked from where the life stopped.
        remove: Shell pattern of the names of questions that are dropped there.
        learn_from_record: Let the further questions learn from what was recorded so far, before the life goes on.
        shards: As many as the demons are in; they stay so, and another number is refused.
        ray: Address of the Ray cluster that holds the shards now, where it is another than before.
    """

    run: tyro.conf.Positional[Path]
    steps: Annotated[int | None, WHOLE, tyro.conf.arg(metavar="N", help_behavior_hint="(default: as asked before)")] = (
        None
    )
    add: Annotated[Path | None, tyro.conf.arg(metavar="FILE.toml", help_behavior_hint="(default: none)")] = None
    remove: Annotated[str | None, tyro.conf.arg(metavar="PATTERN", help_behavior_hint="(default: none)")] = None
    learn_from_record: bool = False
    shards: Annotated[str | None, tyro.conf.arg(metavar="N|auto", help_behavior_hint="(default: as before)")] = None
    ray: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT", help_behavior_hint="(default: as before)")] = None


@dataclass(frozen=True)
class DoctorConfig:
    """Read every file of a run, say what is sound and name what is not, and mend what can be mended.

    Attributes:
        run: The run's folder.
    """

    run: tyro.conf.Positional[Path]


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Write a life in a format that other programs read: its record, or its curves for TensorBoard.

    Attributes:
        run: The run's folder.
        to: `parquet` (a file a day, for DuckDB, polars and pandas), `mcap` (for robots' own viewers) or `tensorboard`
            (scalars: NMSRE, MSPBE, cycle times, faults).
        out: Folder or file to write; `export` in the run's folder when None.
        follow: With `tensorboard`: go on until the life is over; the life knows nothing of it.
    """

    run: tyro.conf.Positional[Path]
    to: Annotated[str, tyro.conf.arg(metavar="FORMAT")] = "parquet"
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="(default: RUN/export)")] = None
    follow: bool = False


@dataclass(frozen=True)
class WarmConfig:
    """Compile now what a life in the simulator uses, so that `horde learn` starts within seconds from then on."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; see above. Other errors are bugs and are raised.

    Nothing that is printed ends a command: a terminal may be closed while a life goes on.

    Args:
        arguments: Words after `horde`; those of the process when None.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with unfailing(), heard() as signals:
        try:
            _do(words, signals)
        except BadInput as error:
            return _complain(str(error), BAD_INPUT)
        except Fault as error:
            return _complain(str(error), signals.exit_code or FAULT)
        except (Ended, KeyboardInterrupt) as error:  # the latter where no signal can be heard, in another thread
            return _complain(
                " ".join(["broken off.", *getattr(error, "__notes__", [])]), signals.exit_code or BROKEN_OFF
            )
        return signals.exit_code


def _complain(sentence: str, code: int) -> int:
    print(f"horde: {sentence}", file=sys.stderr)
    return code


def _do(words: list[str], signals: Signals) -> None:
    """Do what the words say."""
    if words == ["--version"]:
        print(own_version())
        return
    match command := _parse(words):
        case ReportConfig():
            print(_compared([command.run, *command.others]) if command.others else write_report(command.run))
        case BenchConfig():
            _bench(command)
        case ReproduceConfig():
            _reproduce(command)
        case WarmConfig():
            _warm()
        case ResumeConfig():
            _resume(command, signals)
        case DoctorConfig():
            _doctor(command)
        case ExportConfig():
            _export(command)
        case LearnConfig(backend="replay") if is_life(run_of(command.log)):
            asked, lived = as_lived(replace(command, log=run_of(command.log)))
            _relive(resolve(asked), lived)
        case WatchConfig():
            watch(command)
        case _:
            _learn(resolve(command), signals)


def _doctor(command: DoctorConfig) -> None:
    """Say what is found of a run; what is damaged and cannot be mended is a fault."""
    found = examine(command.run)
    for finding in found:
        print(finding)
    damaged = [finding.what for finding in found if not (finding.is_sound or finding.is_mended)]
    if damaged:
        raise Fault(f"damaged, and nothing knows better: {', '.join(damaged)}.")


def _export(command: ExportConfig) -> None:
    """Write a record in another format; the libraries that do it are imported for this command alone."""
    from horde_agent.runs.export import export

    if command.follow and command.to != SCALARS:
        raise BadInput(f"--follow goes with --to {SCALARS}: what {command.to} holds of a living run is told once")
    with answered():
        if command.to == SCALARS:
            from horde_agent.watch.scalars import export_scalars

            say = Console(stderr=True, highlight=False, soft_wrap=True).print
            print(export_scalars(command.run, command.out, follow=command.follow, say=say))
        else:
            print(export(command.run, command.to, command.out))


def _compared(runs: Sequence[Path]) -> Path:
    """Compare runs; what does it is imported for this alone."""
    from horde_agent.runs.showing.compare import write_comparison

    return write_comparison(runs)


def _bench(config: BenchConfig) -> None:
    """Measure; what measures is imported for this command alone."""
    from horde_agent.bench.command import run

    run(config)


def _reproduce(config: ReproduceConfig) -> None:
    """Do the paper's experiments; they are imported for this command alone."""
    from horde_agent.reproduce.command import run

    try:
        page = run(config)
    except OSError as error:
        more = "What is done is kept: the same command goes on where this was broken off."
        raise Fault(f"{_sentence(error)} {more}") from error
    print(page)


def _warm() -> None:
    """Compile by a short life, which is thrown away."""
    with answered():
        env = _make_env(LearnConfig())
    try:
        with answered(), CompileNotice(Console(stderr=True)).installed():
            took_s = warm(env)
    finally:
        env.close()
    print(f"compiled in {took_s:.1f} s; the next `horde learn` finds it in numba's cache")


Command = (
    LearnConfig
    | ResumeConfig
    | ReportConfig
    | DoctorConfig
    | ExportConfig
    | BenchConfig
    | ReproduceConfig
    | WarmConfig
    | WatchConfig
)


def _parse(words: list[str]) -> Command:
    """Turn words into a command; a --config file gives the defaults that flags override."""
    default = LearnConfig()
    if words[:1] == ["learn"] and (file := _config_file(words)) is not None:
        default = replace(read_config(file), config=file)
    errors = io.StringIO()
    doctor = Annotated[DoctorConfig, tyro.conf.subcommand("doctor")]
    export = Annotated[ExportConfig, tyro.conf.subcommand("export")]
    learn = Annotated[LearnConfig, tyro.conf.subcommand("learn", default=default)]
    resume = Annotated[ResumeConfig, tyro.conf.subcommand("resume")]
    report = Annotated[ReportConfig, tyro.conf.subcommand("report")]
    bench = Annotated[BenchConfig, tyro.conf.subcommand("bench")]
    reproduce = Annotated[ReproduceConfig, tyro.conf.subcommand("reproduce")]
    warm = Annotated[WarmConfig, tyro.conf.subcommand("warm")]
    page = Annotated[WatchConfig, tyro.conf.subcommand("watch")]
    try:
        with redirect_stderr(errors):
            return tyro.cli(
                learn | report | resume | doctor | export | bench | reproduce | warm | page,
                args=words,
                prog="horde",
                description="A robot's life of learning: hundreds of predictions at once, off-policy, by GTD(lambda). "
                "Exit codes: 0 done; 1 the body was lost, or the disk took no more; 2 bad input, nothing was written; "
                "128 + the signal (130 Ctrl-C, 143 SIGTERM, 129 SIGHUP) where somebody ended it.",
                config=(tyro.conf.OmitSubcommandPrefixes,),
            )
    except SystemExit as end:
        if end.code in (0, None):
            raise
        raise BadInput(one_sentence(errors.getvalue())) from None


def one_sentence(box: str) -> str:
    """Return what a framed message of the argument parser says, without its frame and its advice."""
    lines = [line.strip(" │╭╮╰╯─") for line in box.splitlines()[1:]]
    said = itertools.takewhile(bool, lines)
    return " ".join(said).rstrip(".") + "; see horde --help"


def _config_file(words: Sequence[str]) -> Path | None:
    """Return what --config names, the last time that it does."""
    file = None
    for k, word in enumerate(words):
        if word == "--config" and k + 1 < len(words):
            file = Path(words[k + 1])
        elif word.startswith("--config="):
            file = Path(word.removeprefix("--config="))
    return file


def _learn(config: LearnConfig, signals: Signals) -> None:
    """Check everything, then do the job in a folder of its own, and say what came of it."""
    if config.watch:
        need_extras()
    folder = RunFolder.create(config)
    with ExitStack() as at_end, folder.locked():
        try:
            job = _prepared(replace(config, out=folder.path), folder, signals)
        except BaseException:
            folder.give_back()
            raise
        try:
            summary = _finished(job, at_end)
        except BadInput:
            folder.give_back()
            raise
        _say(job.console, summary, folder, _drawn(folder, signals))


def _relive(config: LearnConfig, lived: LearnConfig) -> None:
    """Learn from the record of a life, in a folder of its own."""
    console, folder = Console(stderr=True), RunFolder.create(config)
    with folder.locked():
        try:
            with answered():
                summary = relive(replace(config, out=folder.path), lived, folder, console)
        except BadInput:
            folder.give_back()
            raise
        _say(console, summary, folder, _drawn(folder))


def _finished(job: Job, at_end: ExitStack) -> dict[str, Any]:
    """Do a job, stop its body whatever happens, and return its summary; its page, if any, ends with `at_end`."""
    try:
        if job.run.config.watch:
            page = open_beside(job.run.folder.path, lambda line: job.console.print(line, highlight=False))
            at_end.push(lambda error, *_: _end_page(page, job, is_error=error is not None))
        return _done(job)
    finally:
        try:
            job.stop_body()
            job.obey_second_ctrl_c()
        finally:
            job.run.close()


def _end_page(page: LivePage, job: Job, *, is_error: bool) -> None:
    """End the live page: at Ctrl-C in a terminal, at once after an error or a signal or without a terminal."""
    try:
        if not is_error and not job.signals.seen and _is_at_terminal():
            job.console.print(f"the page stays at {page.address} until Ctrl-C", highlight=False, soft_wrap=True)
            job.signals.wait_after_end(page.wait)
    finally:
        page.close()


def _is_at_terminal() -> bool:
    """Return whether this process is in the foreground of a terminal, so that Ctrl-C reaches it."""
    try:
        return os.isatty(0) and os.isatty(2) and (os.name != "posix" or os.tcgetpgrp(0) == os.getpgrp())
    except OSError:
        return False


def _resume(command: ResumeConfig, signals: Signals) -> None:
    """Go on with a life in its folder, which no fault on the way changes or removes."""
    folder = RunFolder(command.run)
    config = settings(folder, command.steps)
    if config.watch:
        need_extras()
    with ExitStack() as at_end, folder.locked():
        resumed = resumption(folder)
        if command.steps is None and resumed.facts.get("steps") is not None:
            config = replace(config, steps=resumed.facts["steps"])
        config = replace(config, shards=resumed.shards or config.shards, ray=command.ray or config.ray)
        if command.shards is not None and (config.shards is None or command.shards not in ("auto", config.shards)):
            where = "one Horde" if config.shards is None else f"{config.shards} shards"
            raise BadInput(
                f"--shards {command.shards}: the demons of {folder.path} are in {where}, and stay there; leave it out"
            )
        if command.ray is not None and config.shards is None:
            raise BadInput(f"--ray {command.ray}: the demons of {folder.path} are not in shards; leave it out")
        refuse_over(folder, resumed, config.steps)
        job = _prepared(config, folder, signals, resumed)
        if command.add is not None or command.remove is not None:
            job.keeper.pending = lambda: job.change(command.add, command.remove, learns=command.learn_from_record)
        summary = _finished(job, at_end)
        _say(job.console, summary, folder, _drawn(folder, signals))


def _prepared(config: LearnConfig, folder: RunFolder, signals: Signals, resumed: Resumption | None = None) -> Job:
    """Return a job whose body has made its first observation, so that what cannot be done shows now."""
    console = Console(stderr=True)
    notice = CompileNotice(console)
    with answered():
        env, run = _make_env(config), None
        try:
            try_port(env, config)
            with notice.installed():
                own = folder.question_file if resumed is not None and folder.question_file.is_file() else None
                run = make_run(env, config, folder, own)
            if config.trace_rule == "plain":
                behaviour = StickyRandom(len(run.interface.actions), config.repeat)
                for warning in heavy_traces(run.horde.questions, behaviour):
                    console.print(f"trace rule plain: {warning}")
            job = Job(run, env, console, signals, notice, resumed)
        except BaseException:
            env.close()
            if run is not None:
                run.close()
            raise
        try:
            job.begin()
        except BaseException:
            job.abandon()
            raise
    if config.physics is not None:
        console.print(_physics_line(config.physics), highlight=False)
    return job


def _done(job: Job) -> dict[str, Any]:
    """Do a job and return its summary; what ends it before its time is told in a sentence, with what is left of it.

    Raises:
        Fault: If the body or the disk ended it.
        Ended: If a second signal did; a note says where what was lived is.
    """
    folder = job.run.folder
    try:
        return (learn_from_log if job.run.config.backend == "replay" else live)(job)
    except Unwritten as error:
        fault = error.__cause__  # what had ended the life, if not the writing itself
        first = f"{_sentence(fault)} " if isinstance(fault, Exception) and fault is not error.why else ""
        more = f"The log is in {folder.log}: `horde report {folder.path}` learns from it again."
        raise Fault(f"{first}{error} {more}") from error
    except Ended as error:
        error.add_note(f"What was lived until then is in {_drawn(folder)}")
        raise
    except Exception as error:
        if not (_is_of_body(error) or isinstance(error, BodyDisobeys | EnvironmentGone | RecordLost)):
            raise
        raise Fault(f"{_sentence(error)} What was lived until then is in {_drawn(folder)}") from error


def _sentence(error: BaseException) -> str:
    """Return what an error says, on one line."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be written ({error.strerror})."
    said = " ".join(str(error).split())
    return said if said.endswith(".") else f"{said}."


def _drawn(folder: RunFolder, signals: Signals | None = None) -> Path:
    """Draw the report of a run whose tables were just written, and return its path.

    Whoever sent SIGTERM, as an init system does, waits for an end, and for no pictures, which take longer than all the
    rest: then the folder is returned, and `horde report` draws them.

    Raises:
        Fault: If it cannot be drawn.
    """
    if signals is not None and signals.seen[:1] == [signal.SIGTERM]:
        return folder.path
    try:
        return write_report(folder.path)
    except BadInput as error:
        raise Fault(str(error)) from error


def _make_env(config: LearnConfig) -> gymnasium.Env[Any, Any]:
    """Make the robot's environment."""
    if config.columns is not None:
        assert config.log is not None, "it was checked"
        return TableBody(config.log, config.columns)
    return make_body(
        config.backend,
        config.port,
        parity=config.parity,
        env_id=config.env,
        robot=config.robot,
        log=config.log,
        realtime=config.realtime,
        physics=config.physics,
        in_process=True,
    )


def _physics_line(physics: str) -> str:
    """Return a line that says what moves the simulated body, and why, where that was not asked for."""
    why = "" if physics == "bullet" or default_physics() == "bullet" else ": PyBullet is not installed, nor needed"
    return f"physics {physics}{why}"


def heavy_traces(questions: Sequence[GVF], behaviour: StickyRandom) -> list[str]:
    """Return a sentence for each time scale whose "plain" trace has heavy tails or infinite variance.

    Only constant-action targets and constant gamma and lambda are judged: the others' ratios depend on the state.
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
def answered() -> Iterator[None]:
    """Turn what the user can put right into BadInput; everything else is a bug and keeps its traceback."""
    try:
        yield
    except BadInput:
        raise
    except EnvironmentGone as error:
        raise Fault(f"{error}; what it said, if anything, stands above") from error
    except Exception as error:
        if _is_of_body(error) or isinstance(error, ValueError | ImportError | OSError | gymnasium.error.Error):
            raise BadInput(" ".join(str(error).split())) from error
        raise


def _is_of_body(error: BaseException) -> bool:
    """Whether the robot's package raised it; that is not imported here, so its errors are known by name."""
    return any(kind.__name__ == "HordeEnvError" for kind in type(error).__mro__)


class Fault(Exception):
    """What ended a job before its time, in a sentence, and where what was lived until then is."""


def _say(console: Console, summary: dict[str, Any], folder: RunFolder, report: Path) -> None:
    """Print the outcome in a few lines."""
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
        lines.append(f"without a link to the robot for {lost_s:.1f} s ({share:.0%} of the life): nothing was learned")
    first = (
        f"{summary['steps']:,} steps in {summary['wall_s']:.1f} s · {summary['n_questions']} questions · {nmsre} · "
        f"{len(summary['diverged'])} diverged"
    )
    for line in (first, *lines):
        console.print(line, highlight=False, soft_wrap=True)
    print(report)


if __name__ == "__main__":
    sys.exit(main())
