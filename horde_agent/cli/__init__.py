"""The command `horde`: learn, resume, report, evaluate, doctor, upgrade, export, warm, bench, watch, columns, features.

Exit codes: 0 done; 1 the robot was lost or the disk is full; 2 bad input, nothing was written; 128
+ the signal (130 Ctrl-C, 143 SIGTERM, 129 SIGHUP) after a signal, also if the run then ended in
order and has its report.

Each command imports its modules when it is run, so that help and refusals need no compiler and
answer at once, except for those of a learner's options, which `LearnerConfig` checks.
"""

from __future__ import annotations

import argparse
import errno
import operator
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import tyro

from horde_agent.bench import BenchConfig
from horde_agent.cli.errors import Fault, user_errors
from horde_agent.cli.parsing import parse, parse_command
from horde_agent.cli.settings import (
    ColumnsConfig,
    DoctorConfig,
    ExportConfig,
    FeaturesConfig,
    ReportConfig,
    ResumeConfig,
    UpgradeConfig,
    WarmConfig,
)
from horde_agent.judging.command import EvaluateConfig
from horde_agent.refusals import BadInput, check_one_of
from horde_agent.runs.config import (
    LearnConfig,
    read_config,
    refuse_early,
    refuse_no_run,
    refuse_out_of_range,
)
from horde_agent.runs.exit_reason import Ended, SignalHandler, handling_signals, unfailing
from horde_agent.scoring.rates import seconds_between
from horde_agent.watch import WatchConfig

FAULT = 1
BAD_INPUT = 2
BROKEN_OFF = 130
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
SCALARS = "tensorboard"  # of `export`
EXPERIMENTS_ARE_ELSEWHERE = (
    "the experiments are in a clone of the repository: run python -m examples.reproduce NAME there"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `horde` with these words, by default the program's own, and return the exit code.

    Errors of the program (bugs) are raised. A closed terminal or a broken pipe does not end a
    command.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    return exit_code_of("horde", lambda signals: _run(words, signals))


def exit_code_of(program: str, action: Callable[[SignalHandler], None]) -> int:
    """Run an action of a program and return its exit code; print what ended it as one sentence.

    Args:
        program: The name that begins the sentence.
        action: Gets the handler of the operating system's signals. It may raise BadInput, Fault,
            Ended or KeyboardInterrupt; other errors are bugs, and are raised.
    """
    with unfailing(), handling_signals() as signals:
        try:
            action(signals)
        except BadInput as error:
            return _complain(program, str(error), BAD_INPUT)
        except Fault as error:
            return _complain(program, str(error), signals.exit_code or FAULT)
        except (Ended, KeyboardInterrupt) as error:  # KeyboardInterrupt: outside the main thread
            signals.record_only()
            message = "interrupted."
            if isinstance(error, Ended):
                message = error.message
            notes = getattr(error, "__notes__", [])
            return _complain(program, " ".join([message, *notes]), signals.exit_code or BROKEN_OFF)
        return signals.exit_code


def _complain(program: str, message: str, code: int) -> int:
    print(f"{program}: {message}", file=sys.stderr)
    return code


def _run(words: list[str], signals: SignalHandler) -> None:
    """Run the command in words; a --config file gives `learn` the defaults that flags override."""
    if words == ["--version"]:
        from horde_agent.processes import own_version

        print(own_version())
        return
    if not words:
        raise BadInput(f"name a command: {', '.join(_COMMANDS)}; see horde --help")
    name = words[0]
    if name == "reproduce":
        raise BadInput(EXPERIMENTS_ARE_ELSEWHERE)
    if name.startswith("-"):
        _show_help(words)
        return
    check_one_of("command", name, _COMMANDS)
    file = None
    if name == "learn":
        file = _config_file(words)
    defaults: dict[str, Any] = {}
    if file is not None:
        defaults["default"] = replace(read_config(file), config=file)
    kind, run = _COMMANDS[name]
    arguments = words[1:]
    if name == "learn":
        arguments = _with_standard_input(arguments)
    run(parse_command(kind, arguments, f"horde {name}", **defaults), signals)


def _with_standard_input(words: Sequence[str]) -> list[str]:
    """Return the words with `--data -` for a lone `-`, which is not the value of a flag."""
    named: list[str] = []
    for word in words:
        is_value = bool(named) and named[-1].startswith("--")
        if word == "-" and not is_value:
            named.append("--data")
        named.append(word)
    return named


def _learn(command: LearnConfig, signals: SignalHandler) -> None:
    refuse_early(command)
    from horde_agent.cli.learn import learn

    learn(command, signals)


def _resume(command: ResumeConfig, signals: SignalHandler) -> None:
    refuse_no_run(command.run)
    refuse_out_of_range("steps", command.steps)
    from horde_agent.cli.learn import resume

    resume(command, signals)


def _report(command: ReportConfig, _: SignalHandler) -> None:
    for run in (command.run, *command.others):
        refuse_no_run(run)
    if command.surprise is not None:
        _find_surprises(command)
    if command.others:
        from horde_agent.runs.reporting.compare import write_comparison

        print(write_comparison([command.run, *command.others]))
        return
    from horde_agent.runs.reporting.report import write_report

    print(write_report(command.run))


def _find_surprises(command: ReportConfig) -> None:
    """Find the surprises of a run, for its report."""
    rate = str(command.surprise)
    if command.others:
        raise BadInput("--surprise is for the report of one run, without further ones")
    try:
        seconds_between(rate)
    except BadInput as error:
        raise BadInput(f"--surprise {rate}: {error}") from None
    from rich.console import Console

    from horde_agent.runs.sources.relearn import find_surprises
    from horde_agent.runs.storage.folder import RunFolder

    find_surprises(RunFolder(command.run), rate, Console(stderr=True))


def _bench(command: BenchConfig, _: SignalHandler) -> None:
    from horde_agent.bench.command import run

    run(command)


def _doctor(command: DoctorConfig, _: SignalHandler) -> None:
    refuse_no_run(command.run)
    from horde_agent.cli.learn import described_env
    from horde_agent.runs.storage.verify import examine

    findings = examine(command.run, described_env)
    for finding in findings:
        print(finding)
    damaged = [finding.what for finding in findings if finding.state == "DAMAGED"]
    if damaged:
        raise Fault(f"damaged and not repairable: {', '.join(dict.fromkeys(damaged))}.")


def _upgrade(command: UpgradeConfig, _: SignalHandler) -> None:
    refuse_no_run(command.run)
    from horde_agent.runs.storage.upgrade import upgrade

    def say(sentence: str) -> None:
        print(f"{sentence}.", file=sys.stderr)

    try:
        with user_errors():
            files = upgrade(command.run, say)
    except BadInput as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in DISK_FULL:
            raise Fault(
                f"{command.run} cannot be upgraded ({os.strerror(cause.errno)}); it is as it was."
            ) from error
        raise
    if not files:
        print(f"{command.run} has the formats of this version")
    for file in files:
        print(f"upgraded {file}")


def _columns(command: ColumnsConfig, _: SignalHandler) -> None:
    from horde_agent.formats.registry import format_of

    print(format_of(command.file).draft(command.file), end="")


def _features(command: FeaturesConfig, _: SignalHandler) -> None:
    refuse_no_run(command.run)
    from horde_agent.runs.chosen_pairs import chosen_pairs

    with user_errors():
        print(chosen_pairs(command.run, command.pairs), end="")


def _evaluate(command: EvaluateConfig, _: SignalHandler) -> None:
    from horde_agent.judging.command import run

    with user_errors():
        run(command)


def _export(command: ExportConfig, _: SignalHandler) -> None:
    if command.follow and command.to != SCALARS:
        raise BadInput(f"--follow requires --to {SCALARS}: {command.to} exports a run once")
    refuse_no_run(command.run)
    from horde_agent.runs.reporting.exporting import export, refuse_predictions

    with user_errors():
        if command.to == SCALARS:
            if command.predictions:
                refuse_predictions(command.to)
            from rich.console import Console

            from horde_agent.watch.reader import export_scalars

            say = Console(stderr=True, highlight=False, soft_wrap=True).print
            print(export_scalars(command.run, command.out, follow=command.follow, say=say))
        else:
            try:
                path = export(command.run, command.to, command.out, predictions=command.predictions)
            except OSError as error:
                if error.errno in DISK_FULL:
                    place = command.out or command.run / "export"
                    why = os.strerror(error.errno)
                    raise Fault(
                        f"the export to {place} cannot be written ({why}); nothing of it is left."
                    ) from error
                raise
            print(path)


def _warm(command: WarmConfig, _: SignalHandler) -> None:
    from rich.console import Console

    from horde_agent.cli import learn
    from horde_agent.learning.rules import LearnerConfig
    from horde_agent.runs.warm import CompileNotice, warm

    with user_errors():
        LearnerConfig(algorithm=command.algorithm)  # before a robot is made
    with (
        user_errors(),
        CompileNotice(Console(stderr=True)).installed(),
        closing(learn.make_env(LearnConfig())) as env,
    ):
        took_s = warm(env, command.algorithm)
    print(f"compiled in {took_s:.1f} s; the next `horde learn` finds it in numba's cache")


def _watch(command: WatchConfig, _: SignalHandler) -> None:
    refuse_no_run(command.run)
    from horde_agent.watch.server import watch

    watch(command)


_COMMANDS: dict[str, tuple[type, Callable[[Any, SignalHandler], None]]] = {
    "learn": (LearnConfig, _learn),
    "report": (ReportConfig, _report),
    "resume": (ResumeConfig, _resume),
    "doctor": (DoctorConfig, _doctor),
    "upgrade": (UpgradeConfig, _upgrade),
    "export": (ExportConfig, _export),
    "bench": (BenchConfig, _bench),
    "warm": (WarmConfig, _warm),
    "watch": (WatchConfig, _watch),
    "columns": (ColumnsConfig, _columns),
    "features": (FeaturesConfig, _features),
    "evaluate": (EvaluateConfig, _evaluate),
}


def _show_help(words: list[str]) -> None:
    """Answer words that begin with a flag: --help lists the commands; others are refused."""
    kinds: list[Any] = [
        Annotated[kind, tyro.conf.subcommand(name)] for name, (kind, _) in _COMMANDS.items()
    ]
    parse(
        reduce(operator.or_, kinds),
        words,
        "horde",
        description="A robot's life of learning: hundreds of predictions at once, off-policy, by GTD(lambda). "
        "Exit codes: 0 done; 1 the robot was lost or the disk is full; 2 bad input, nothing was written; "
        "128 + the signal (130 Ctrl-C, 143 SIGTERM, 129 SIGHUP) after a signal.",
        config=(tyro.conf.OmitSubcommandPrefixes,),
    )


def _config_file(words: Sequence[str]) -> Path | None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    # Without a value, the other parser complains
    parser.add_argument("--config", nargs="?", type=Path)
    config: Path | None = parser.parse_known_args(words)[0].config
    return config
