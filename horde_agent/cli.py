"""The command `horde`: learn, report, reproduce, warm, bench. Bad input is answered by one sentence, exit code 2."""

from __future__ import annotations

import io
import itertools
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import tyro
from rich.console import Console

from horde_agent import questions as families
from horde_agent.apart import EnvironmentGone
from horde_agent.bench import BenchConfig
from horde_agent.bodies import make_body
from horde_agent.config import BadInput, LearnConfig, read_config, resolve
from horde_agent.excursions import ExcursionConfig
from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig, Mode
from horde_agent.interface import Interface
from horde_agent.jobs import Job, learn_from_log, live
from horde_agent.loop import BodyDisobeys
from horde_agent.policies import Behaviour, ConstantAction, StickyRandom, trace_growth
from horde_agent.report import write_report
from horde_agent.reproduce import ReproduceConfig
from horde_agent.run_folder import own_version

# SIGHUP comes where the terminal goes away; Windows has none.
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
BODY_GONE, BAD_INPUT, BROKEN_OFF = 1, 2, 130


@dataclass(frozen=True)
class ReportConfig:
    """Draw the report of a run again from the files in its folder.

    Attributes:
        run: The run's folder.
    """

    run: tyro.conf.Positional[Path]


@dataclass(frozen=True)
class WarmConfig:
    """Compile now what a life in the simulator uses, so that `horde learn` starts within seconds from then on."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 done, 1 the body was lost, 2 bad input, 130 broken off.

    Other errors are raised.

    Args:
        arguments: Words after `horde`; those of the process when None.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        print(own_version())
        return 0
    try:
        command = _parse(words)
        if isinstance(command, ReportConfig):
            print(write_report(command.run))
        elif isinstance(command, BenchConfig):
            _bench(command)
        elif isinstance(command, ReproduceConfig):
            _reproduce(command)
        elif isinstance(command, WarmConfig):
            _warm()
        else:
            _learn(resolve(command))
    except BadInput as error:
        print(f"horde: {error}", file=sys.stderr)
        return BAD_INPUT
    except BodyGone as error:
        print(f"horde: {error}", file=sys.stderr)
        return BODY_GONE
    except KeyboardInterrupt:
        print("horde: broken off", file=sys.stderr)
        return BROKEN_OFF
    return 0


def _bench(config: BenchConfig) -> None:
    """Measure; what measures is imported for this command alone."""
    from horde_agent.bench.command import run

    run(config)


def _reproduce(config: ReproduceConfig) -> None:
    """Do the paper's experiments; they are imported for this command alone."""
    from horde_agent.reproduce.command import run

    print(run(config))


def _warm() -> None:
    """Compile by a short life, which is thrown away."""
    from horde_agent.warm import warm

    with answered():
        env = _make_env(LearnConfig())
    try:
        with answered():
            took_s = warm(env)
    finally:
        env.close()
    print(f"compiled in {took_s:.1f} s; the next `horde learn` finds it in numba's cache")


def _parse(words: list[str]) -> LearnConfig | ReportConfig | BenchConfig | ReproduceConfig | WarmConfig:
    """Turn words into a command; a --config file gives the defaults that flags override."""
    default = LearnConfig()
    if words[:1] == ["learn"] and (file := _config_file(words)) is not None:
        default = replace(read_config(file), config=file)
    errors = io.StringIO()
    learn = Annotated[LearnConfig, tyro.conf.subcommand("learn", default=default)]
    report = Annotated[ReportConfig, tyro.conf.subcommand("report")]
    bench = Annotated[BenchConfig, tyro.conf.subcommand("bench")]
    reproduce = Annotated[ReproduceConfig, tyro.conf.subcommand("reproduce")]
    warm = Annotated[WarmConfig, tyro.conf.subcommand("warm")]
    try:
        with redirect_stderr(errors):
            return tyro.cli(
                learn | report | bench | reproduce | warm,
                args=words,
                prog="horde",
                description="A robot's life of learning: hundreds of predictions at once, off-policy, by GTD(lambda).",
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


def _learn(config: LearnConfig) -> None:
    """Check everything, then do the job in a folder of its own, and say what came of it."""
    with answered():
        env = _make_env(config)
    try:
        with answered():
            job = _make_job(env, config)
        run = learn_from_log if config.backend == "replay" else live
        with stop_on_interrupt(job), reported(job):
            summary = run(job)
    finally:
        env.close()
    report = write_report(job.folder_path)
    _say(job.console, summary, report)


def _make_env(config: LearnConfig) -> gymnasium.Env[Any, Any]:
    """Make the robot's environment."""
    return make_body(config.backend, config.port, log=config.log, realtime=config.realtime, apart=True)


def _mode(config: LearnConfig, interface: Interface) -> Mode:
    """Return how steps are taken: many together, unless a body moves in real time or predictions are fed back."""
    is_real = config.realtime or config.backend in ("serial", "drops", "emulated")
    return "eager" if is_real or interface.feedback is not None else "deferred"


def _make_job(env: gymnasium.Env[Any, Any], config: LearnConfig) -> Job:
    """Build the Horde and bring the body to its first observation, so that what cannot be done shows now."""
    interface = Interface.of(env)
    questions = _questions(config, interface)
    if str(config.questions).endswith(".toml"):
        interface = families.feeding_back(Path(str(config.questions)), interface, questions)
    horde = Horde(
        questions,
        n_features=interface.coder.n_features,
        n_active=interface.coder.n_active,
        config=LearnerConfig(
            step_size=config.step_size,
            secondary_ratio=config.secondary_ratio,
            trace_rule=config.trace_rule,  # type: ignore[arg-type]
            w_rule=config.w_rule,  # type: ignore[arg-type]
        ),
        mode=_mode(config, interface),
    )
    excursions = ExcursionConfig(config.excursion_probability, config.horizon)
    job = Job(config, env, interface, horde, excursions, Console(stderr=True))
    if config.trace_rule == "plain":
        for warning in heavy_traces(horde.questions, StickyRandom(len(interface.actions), config.repeat)):
            job.console.print(f"trace rule plain: {warning}")
    job.begin()
    return job


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


def _questions(config: LearnConfig, interface: Interface) -> list[GVF]:
    """Return the questions asked for.

    Raises:
        BadInput: If a replayed log cannot answer them.
        ValueError: If the question file is wrong.
    """
    match config.questions:
        case "excursions":
            return families.excursions(interface)
        case "nexting":
            return families.nexting(interface)
        case "policies":
            # A generator of its own: the life of a seed is the same whatever is asked about it.
            return families.policies(interface, np.random.default_rng([config.seed, 1]))
    questions = families.from_file(Path(str(config.questions)), interface)
    other = [q.name for q in questions if not isinstance(q.target_policy, Behaviour)]
    if config.backend == "replay" and other:
        raise BadInput(
            f"a replayed log was not driven by known choices, so it answers questions about the policy 'behaviour' "
            f"alone, and {other[0]!r} in {config.questions} is not one"
        )
    return questions


@contextmanager
def answered() -> Iterator[None]:
    """Turn what the user can put right into BadInput; everything else is a bug and keeps its traceback."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        if _is_of_body(error) or isinstance(error, ValueError | ImportError | OSError | gymnasium.error.Error):
            raise BadInput(" ".join(str(error).split())) from error
        raise


def _is_of_body(error: BaseException) -> bool:
    """Whether the robot's package raised it; that is not imported here, so its errors are known by name."""
    return any(kind.__name__ == "HordeEnvError" for kind in type(error).__mro__)


class BodyGone(Exception):
    """The body stopped answering in the middle of a job; the report of what was lived until then is written."""


@contextmanager
def reported(job: Job) -> Iterator[None]:
    """Write the report of what was lived before the body was lost, or before somebody broke off, then go on raising."""
    try:
        yield
    except KeyboardInterrupt:
        if job.emergency_stop("Ctrl-C was pressed twice"):
            job.console.print("the emergency stop is set; clear it by `horde-robot stop --clear`", soft_wrap=True)
        raise
    except Exception as error:
        if not _is_of_body(error) and not isinstance(error, EnvironmentGone | BodyDisobeys):
            raise
        report = write_report(job.folder_path)
        raise BodyGone(f"{' '.join(str(error).split())} What was lived until then is in {report}") from error


@contextmanager
def stop_on_interrupt(job: Job) -> Iterator[None]:
    """Let the first Ctrl-C, SIGTERM or SIGHUP end the job cleanly, with its report; a second one breaks it off."""

    def stop(signum: int, frame: object) -> None:  # noqa: ARG001
        if job.is_stopped:
            raise KeyboardInterrupt
        job.stop()
        job.console.print("stopping after this step; press Ctrl-C again to break off")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(console: Console, summary: dict[str, Any], report: Path) -> None:
    """Print the outcome in a few lines."""
    nmsre = "not scored"
    if summary["mean_nmsre"] is not None:
        nmsre = (
            f"NMSRE mean {summary['mean_nmsre']:.3f}, median {summary['median_nmsre']:.3f}, "
            f"{summary['share_nmsre_below_1']:.0%} below 1"
        )
    console.print(
        f"{summary['steps']:,} steps in {summary['wall_s']:.1f} s · {summary['n_questions']} questions · {nmsre} · "
        f"{len(summary['diverged'])} diverged",
        highlight=False,
        soft_wrap=True,
    )
    print(report)


if __name__ == "__main__":
    sys.exit(main())
