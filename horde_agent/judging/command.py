"""`horde evaluate`, and `evaluate` in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro

from horde_agent.refusals import BadInput

if TYPE_CHECKING:
    from horde_agent.judging.recorded import RecordedData
    from horde_agent.scoring.judgement import Evaluation


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Judge policies from recorded data: their values, how sure they are, and whether the data can tell.

    Attributes:
        data: A table (Parquet, CSV, npz, described by --columns), the folder of a LeRobot data set
            or of a run. The reward is its `next_reward` or `reward`, or a channel `reward` whose
            key `transition` is true.
        minari: Name of a Minari data set, NAMESPACE/NAME-v0, instead of DATA.
        columns: TOML file that maps the columns of DATA to channels; `horde columns FILE` writes
            one.
        policy: Policies to judge: `uniform`, `constant:N` (a number or an action's name), the
            function of a `FILE.py:function` (returns the probabilities of the actions for an observation and its
            tiles), or `MODEL.zip` of stable-baselines3, at most 512 MiB unpacked. Both kinds of
            files run code: name only your own.
        gamma: Discount per step; 1 is the undiscounted return of an episode.
        truncated: What follows a truncation: `stretch` (nothing: the return is that of the stretch)
            or `fitted` (the fitted Q's value).
        horizon: Cut the rows into stretches of so many steps, as a life without an end needs.
        estimators: Which estimates, with blanks between.
        level: Probability of the intervals.
        resamples: Number of resampled sets of episodes, 50 to 100,000.
        seed: Seed of the intervals.
        out: New folder for result.json and report.html.
    """

    data: Annotated[
        tyro.conf.Positional[Path | None],
        tyro.conf.arg(metavar="[DATA]", help_behavior_hint="(or --minari)"),
    ] = None
    minari: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: none)")
    ] = None
    columns: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE.toml", help_behavior_hint="(default: none)")
    ] = None
    policy: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME")
    ] = ()
    gamma: float = 1.0
    truncated: Annotated[str, tyro.conf.arg(metavar="stretch|fitted")] = "stretch"
    horizon: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: episodes)")
    ] = None
    estimators: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAMES", help_behavior_hint="(default: all)")
    ] = ()
    level: float = 0.95
    resamples: int = 2000
    seed: int = 0
    out: Annotated[
        Path | None,
        tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: the next runs/evaluate-N)"),
    ] = None


def run(command: EvaluateConfig) -> None:
    """Judge the policies, print a table of each with its verdict, and write the results."""
    from rich.console import Console

    from horde_agent.judging.result import remarks, terminal_table, write_result

    _check(command)
    evaluated = _evaluated(
        Path(str(command.data or command.minari)),
        columns=command.columns,
        policies=dict.fromkeys(command.policy),
        horizon=command.horizon,
        options=_options(command),
    )
    page = write_result(evaluated.evaluation, evaluated.data, _new_folder(command.out))
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for judgement in evaluated.evaluation.judgements:
        console.print(terminal_table(evaluated.evaluation, judgement))
        console.print(f"{judgement.policy}: {judgement.verdict}")
        for remark in remarks(judgement):
            console.print(remark)
        console.print()
    for note in evaluated.data.notes:
        console.print(note)
    console.print(str(page))


def _check(command: EvaluateConfig) -> None:
    """Raise BadInput if a flag is missing or contradicts another one."""
    if (command.data is None) == (command.minari is None):
        raise BadInput("name one set of data: DATA, or --minari NAME")
    if not command.policy:
        raise BadInput(
            "name a policy to judge: --policy uniform, constant:N, FILE.py:function or MODEL.zip"
        )
    for number, policy in enumerate(command.policy):
        if policy in command.policy[:number]:
            raise BadInput(f"--policy {policy} is there twice: name each policy once")
    if command.out is not None and command.out.exists():
        raise BadInput(f"--out {command.out} exists; name a new folder")


def _options(command: EvaluateConfig) -> dict[str, Any]:
    """Return the settings of the evaluation by name."""
    options: dict[str, Any] = {
        "gamma": command.gamma,
        "truncated": command.truncated,
        "level": command.level,
        "n_resamples": command.resamples,
        "seed": command.seed,
    }
    if command.estimators:
        options["estimators"] = command.estimators
    return options


def _new_folder(out: Path | None) -> Path:
    """Create the folder of the results; raise BadInput if it cannot be written."""
    from horde_agent.runs.storage.files import next_free, writable

    if out is not None:
        return writable(out)
    return next_free(writable(Path("runs")) / "evaluate")


class _Evaluated(NamedTuple):
    """An evaluation and its data."""

    evaluation: Evaluation
    data: RecordedData


def _evaluated(
    data: Path,
    *,
    columns: Path | None,
    policies: Mapping[str, Any],
    horizon: int | None,
    options: Mapping[str, Any],
) -> _Evaluated:
    """Judge policies by name; a value of None stands for the policy that the name describes."""
    from horde_agent.judging.policies import check_forms, target_of
    from horde_agent.judging.recorded import read_recorded
    from horde_agent.scoring.judgement import FITTED, EvaluationConfig, judge

    try:
        config = EvaluationConfig(**options)
    except (TypeError, ValueError) as error:
        raise BadInput(str(error)) from None
    described_by_name = {name: name for name, policy in policies.items() if policy is None}
    policy_of = {**policies, **described_by_name}
    check_forms(policy_of.values())
    recorded = read_recorded(data, columns, horizon)
    if config.truncated == FITTED and recorded.n_unknown_ends:
        raise BadInput(
            f"{recorded.name} does not have the state after the last action of {recorded.n_unknown_ends:,} truncated "
            "episodes, of which --truncated fitted needs the value: use --truncated stretch, or add a row with that "
            "state"
        )
    is_endless = not recorded.episodes.is_terminated.any()
    if config.truncated == FITTED and config.gamma == 1.0 and is_endless:
        raise BadInput(
            f"no episode of {recorded.name} terminates, so a value after a truncation is infinite at gamma = 1: choose "
            "--gamma below 1, or --truncated stretch"
        )
    targets = [target_of(policy, recorded, name) for name, policy in policy_of.items()]
    return _Evaluated(judge(targets, config), recorded)


def evaluate(
    data: str | Path,
    policies: Any,
    *,
    columns: str | Path | None = None,
    horizon: int | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Evaluation:
    """Judge policies from recorded data: their values with intervals, and a verdict each.

    Args:
        data: Path of a table, of the folder of a LeRobot data set or of a run; or the name of a
            Minari data set.
        policies: A policy, a list of them, or a dict of them by name. A policy is a text (`uniform`,
            `constant:N`, `FILE.py:function`, `MODEL.zip`), an object with `probabilities`, a trained
            controller of stable-baselines3, or a function of (observation, tiles).
        columns: TOML file that describes the columns of a table.
        horizon: Number of steps of the stretches into which the rows are cut; None: episodes.
        out: New folder for result.json and report.html; nothing is written when None.
        options: Of `EvaluationConfig`: gamma, truncated, estimators, level, n_resamples, seed.

    Returns:
        `judgements`, one per policy, each with `lines`, `verdict` and `can_judge`; and `behaviour`,
        the mean logged return. A notebook shows it as tables.

    Raises:
        BadInput: If rewards, actions or their probabilities are missing, or a policy does not fit
            the data.

    Source: Precup, Sutton & Singh (2000); Jiang & Li (2016); Thomas & Brunskill (2016).

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from horde_agent import evaluate
        >>> actions = np.random.default_rng(0).integers(2, size=400)
        >>> rows = [f"{i // 4},{i % 4},{a},0.5,{a}" for i, a in enumerate(actions)]  # action 1 pays 1
        >>> columns = ["period_s = 1.0", "action = 'a'", "b = 'b'", "next_reward = 'r'", "episode = 'e'"]
        >>> columns += ["[[channel]]", "column = 'x'"]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = Path(folder, "log.csv")
        ...     size = log.write_text(chr(10).join(["e,x,a,b,r", *rows]))
        ...     size = Path(folder, "columns.toml").write_text(chr(10).join(columns))
        ...     judged = evaluate(log, "constant:1", columns=f"{folder}/columns.toml", estimators=["wdr"])
        >>> round(judged.judgements[0].lines[0].value)  # four steps, each pays 1
        4
    """
    from horde_agent.judging.result import write_result

    if out is not None and Path(out).exists():
        raise BadInput(f"out={out} exists; name a new folder")
    columns_file = None
    if columns is not None:
        columns_file = Path(columns)
    evaluated = _evaluated(
        Path(data),
        columns=columns_file,
        policies=_by_name(policies),
        horizon=horizon,
        options=options,
    )
    if out is not None:
        write_result(evaluated.evaluation, evaluated.data, _new_folder(Path(out)))
    return evaluated.evaluation


def _by_name(policies: Any) -> dict[str, Any]:
    """Return policies by name: those of a dict, or of one policy or a list by their own names."""
    from horde_agent.judging.policies import name_of

    if isinstance(policies, Mapping):
        return dict(policies)
    listed = [policies]
    if isinstance(policies, list | tuple):
        listed = list(policies)
    by_name: dict[str, Any] = {}
    for policy in listed:
        name = name_of(policy)
        if name in by_name:
            name = f"{name} ({len(by_name) + 1})"
        by_name[name] = policy
    return by_name
