"""The settings of `horde learn`: flags, the TOML file with their defaults, and their checks."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import tyro

from horde_agent import features
from horde_agent.features import Features, features_of, shown
from horde_agent.life import backends, behaviours
from horde_agent.life.backends import (
    ONE_AT_A_TIME,
    SIMULATED,
    default_physics,
    environment_of,
    rules_of_robot,
)
from horde_agent.life.behaviours import behaviour_of
from horde_agent.life.wrapping import parse_wraps
from horde_agent.refusals import (
    BadInput,
    InvalidArgument,
    Rule,
    check_one_of,
    checked_epsilon,
    checked_repeat,
    did_you_mean,
)
from horde_agent.scoring.rates import seconds_between
from horde_agent.toml import read_toml, typed

if TYPE_CHECKING:
    from horde_agent.learning.rules import LearnerConfig
    from horde_agent.life.excursions import ExcursionConfig

BACKENDS = ("simulator", "serial", "drops", "replay", "emulated", "gymnasium", "data")
RECORDED = ("replay", "data")
"""Backends that cannot act."""
FAMILIES = ("excursions", "policies", "nexting", "values")
DEFAULT_STEPS = 60_000
MOST_ROBOTS = 1_000
MOST_STEPS = 10**12  # 3,000 years at 10 Hz
MOST_HORIZON = MOST_PASSES = 10**6
MOST_SEED = 2**63 - 1
KEEP_ALL = "all"
"""`--keep` of a resume that removes no further rows."""
NO_OFFSET = "0"
NO_AVERAGE = 0.0
STANDARD_INPUT = Path("-")
IN_PYTHON = "python"
"""`questions` in the settings of a run whose questions are Python objects."""
GIVEN_IN_PYTHON = "the questions of this run were given in Python: learn from its data by `horde_agent.learn_from`"


def _shown(metavar: str, default: str | None = None, help: str | None = None) -> Any:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=default, help=help)


_UNITS_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS_BYTES = {"MB": 1e6, "GB": 1e9, "TB": 1e12}


def seconds(text: str) -> float | None:
    """Parse a duration such as 10min and return seconds; None for "never". Raise BadInput if it is none."""
    if text == "never":
        return None
    duration_s = _quantity(text, _UNITS_S)
    if duration_s is None:
        raise BadInput(f"--snapshot-every {text} is not a duration; write 30s, 10min, 2h or never")
    return duration_s


def _quantity(text: str, units: Mapping[str, float]) -> float | None:
    """Return a positive number times its unit; None if the text is none."""
    match = re.fullmatch(rf"(\d+(?:\.\d*)?)\s*({'|'.join(units)})", text)
    if match is None or not float(match[1]):
        return None
    return float(match[1]) * units[match[2]]


class Keep(NamedTuple):
    """How much of a recording stays: one of the two is set.

    Attributes:
        duration_s: Of the newest rows, in seconds of the robot's time.
        n_bytes: Of the files of rows.
    """

    duration_s: float | None = None
    n_bytes: float | None = None

    @classmethod
    def of(cls, text: str) -> Keep:
        """Parse `30d` or `10GB`; raise BadInput if it is neither."""
        keep = cls(_quantity(text, _UNITS_S), _quantity(text, _UNITS_BYTES))
        if keep == cls():
            raise BadInput(
                f"--keep {text} is neither a duration nor a size; write 12h, 30d, 500MB or 10GB"
            )
        return keep


@dataclass(frozen=True, kw_only=True)
class LearnConfig:
    """Run a robot or replay a recording, and learn predictions; the results go to a new folder.

    Attributes:
        robot: The robot, as in `life.backends`.
        backend: The body: `simulator` (the robot in its pen), `serial` (the robot), `drops` (the
            robot over its on-board driver), `emulated` (the simulator behind the robot's own
            bytes), `replay` (a recorded log), `gymnasium` (any environment, named by `--env`) or a
            data set, `data` (named by `--data`).
        env: Id of a Gymnasium environment to use instead of a robot, for example CartPole-v1 or
            package:Id-v0, with flat Box or discrete observations and Discrete actions. Packages of
            the current folder are found, too.
        wrap: Wrappers of that environment, the innermost first, as
            keep:KEY+KEY,flatten,float,discretize:N,limit:N.
        port: Port of a real robot, unless its file names one (`horde-robot check --save`): for
            serial a device (/dev/serial/by-id/...), socket://HOST:PORT or rfc2217://HOST:PORT; for
            drops HOST:2330.
        parity: Parity of a real Critterbot's serial line, unless its file names one: `odd`, `even`
            or `none` (a pseudo terminal supports only `none`). The Create 2 has none.
        log: The log to replay; or the folder of a run, to learn from again, off-policy, with its
            recorded action probabilities; or, with --columns, any table, as --data.
        data: Table of observations and actions to learn from, off-policy if their probabilities are
            known: a Parquet, Feather, CSV, JSON-lines or npz file, a folder of Parquet files, a robot's
            bag, or a folder of bags, described by --columns; or the folder of a LeRobot data set, the
            name of a Minari data set, NAMESPACE/NAME-v0, or the folder of a run, as --log. The name `-`
            means rows from standard input, as `horde learn -`: CSV below a header or a JSON object per
            line, learned from as they come.
        minari: Name of a Minari data set, as --data.
        columns: TOML file that maps the columns of --data or --log to channels; `horde columns
            FILE` writes one.
        follow: Go on with the rows that are written to the file of --data, CSV or a JSON object per
            line, also after it was renamed and another one took its place; or with those of the
            Parquet files or bags that a folder gets, by the order of their names.
        compare_frozen: Score the tests from the first time on that --follow waits for rows also by the
            weights of that time, so that the report shows what it is worth to go on learning.
        predictions: Where to write the predictions at each row of a stream before the next one is
            read, a line of JSON each: `-`, standard output; a file; or the path of a Unix socket.
        predict: Shell pattern of the names of the questions whose predictions are written.
        steps: Number of steps, of 100 ms with a robot, including excursions and drives.
        questions: What to predict: `excursions` (the paper's 795 questions), `policies` (1000
            random Gibbs policies), `nexting` (159 questions about the behaviour itself), `values` (of
            the reward under each action, the uniform policy and the behaviour), or a TOML file.
        trace_rule: How the eligibility trace is bounded: `clipped`, `capped`, `plain` (the paper's
            pseudo-code), `tree-backup` or `abtd`.
        w_rule: When the secondary weights decay: `every-step` or `importance-weighted`.
        algorithm: Update rule, with its parameters: `gtd`, `td`, `tdrc:beta=0.5` and others, or
            `module:name`.
        step_size: Step size alpha of the primary weights, before the division by the number of
            active features.
        offset: Zero point of the predictions: `reading`, which follows a share of the reading; or
            the `mean`, estimated by each demon from its first 500 transitions; or a number for all.
        average: Learning steps that the averaged weights reach back, from which predictions are
            read; 0 for none.
        rarity: Give features that are seldom active larger step sizes; only rules with the fast
            engine can.
        lstd: Random features of the least-squares solution on the readings that predictions are mixed
            with; 0 for none.
        features: Its tilings, as in `horde_agent.features`.
        paper: Learn as White, Modayil & Sutton (2012): offset 0, no averages, no rarity, no LSTD,
            step size 0.1.
        secondary_ratio: Step size of the secondary weights, as a multiple of alpha.
        behaviour: What the robot does, as in `life.behaviours`.
        epsilon: Probability of a random action with `--behaviour greedy:NAME`, and of the random
            behaviour at a decision with `curious`.
        repeat: Probability that the random behaviour repeats its last action; otherwise it draws
            one uniformly.
        excursions: Make test excursions in the environment of `--env`, which then scores questions
            about other policies than the behaviour: it follows the target policy for `--horizon`
            steps from where it is, learning nothing, and goes on. Robots always make them.
        excursion_probability: Probability of a test excursion before each action of the behaviour.
        horizon: Steps of a test excursion, and terms of the return it measures; a gamma of 0.99 needs
            some 300.
        passes: Number of passes over the data, or, without actions and `surprise`, over the first 70 %
            of them.
        realtime: Take one step per 100 ms, like the real robot.
        snapshot_every: Time between two snapshots for `horde resume`: `30s`, `10min`, `2h`; `never`
            writes only the one at the end. Learning does not wait for them.
        keep: Rows of the record that stay, a duration or a size, as `30d` or `10GB`. Older files are
            removed after a snapshot; what needs the whole record is then refused.
        archive: With --keep, write these files to Parquet in the run's `archive/` before.
        on_alarm: Command to call with the name of an alarm and a sentence. Names are `diverged`,
            `overheating`, `deadline`, `disk`, `silent`, `sensor_lost`, `surprise` (docs/runs.md).
        lost_after: Seconds without a reading, by the time of the rows, after which a sensor is lost.
        surprise: Raise the alarm `surprise` when predictions no longer fit, with so many false alarms
            at most per hour, day, week, month or year: `1/month` (docs/runs.md).
        physics: Physics engine of a simulated robot: `planar` (runs everywhere, many times faster)
            or `bullet` (PyBullet; the Critterbot only). Their measured behaviour agrees, but not
            bit for bit.
        watch: Show the run on a page in the browser, served by another process (`horde watch` shows
            any run).
        shards: Number of processes for the demons, on Ray, or `auto`, one per processor. The
            weights are the same, bit for bit (docs/cluster.md).
        ray: Address of a Ray cluster for the shards, HOST:PORT; else one is started on this machine
            for the run.
        robots: Number of simulated robots that take turns and learn one set of weights; robot k has
            the seed `--seed` + k. `--steps` counts the steps of all.
        seed: Seed of all random numbers: same seed, same run.
        config: TOML file that fills these settings by name; flags override it.
        out: New folder for the results.
    """

    robot: Annotated[str, _shown("NAME", help=backends.HELP)] = "critterbot"
    backend: Annotated[str, _shown("NAME")] = "simulator"
    env: Annotated[str | None, _shown("ID", "(default: none)")] = None
    wrap: Annotated[str | None, _shown("NAMES", "(default: none)")] = None
    port: Annotated[str | None, _shown("PORT", "(default: none)")] = None
    parity: Annotated[str | None, _shown("NAME", "(default: odd, or from the robot's file)")] = None
    log: Annotated[Path | None, _shown("FILE", "(default: none)")] = None
    data: Annotated[Path | None, _shown("FILE", "(default: none)")] = None
    minari: Annotated[str | None, _shown("NAME", "(default: none)")] = None
    columns: Annotated[Path | None, _shown("FILE.toml", "(default: the Critterbot's)")] = None
    follow: bool = False
    compare_frozen: bool = False
    predictions: Annotated[str | None, _shown("FILE", "(default: none)")] = None
    predict: Annotated[str | None, _shown("PATTERN", "(default: all)")] = None
    steps: Annotated[int | None, _shown("N", "(default: 60000; replay, data: all)")] = None
    questions: Annotated[
        str | None, _shown("NAME|FILE.toml", "(default: excursions; without b: nexting)")
    ] = None
    trace_rule: Annotated[str, _shown("NAME")] = "clipped"
    w_rule: Annotated[str, _shown("NAME")] = "every-step"
    algorithm: Annotated[str, _shown("NAME")] = "gtd"
    step_size: Annotated[
        float | None, _shown("FLOAT", "(default: the rule's, 0.05 for most, 0.1 with --paper)")
    ] = None
    offset: Annotated[str | None, _shown("reading|mean|FLOAT", "(default: reading)")] = None
    average: Annotated[float | None, _shown("FLOAT", "(default: 10000)")] = None
    rarity: Annotated[
        bool | None,
        _shown("| --no-rarity", "(default: on if the rule has the fast engine)"),
    ] = None
    lstd: Annotated[
        int | None, _shown("N", "(default: 192 for 300 questions that it can answer)")
    ] = None
    features: Annotated[
        str | None, _shown(features.METAVAR, "(default: chosen)", features.HELP)
    ] = None
    paper: bool = False
    secondary_ratio: Annotated[
        float | None, _shown("FLOAT", "(default: the rule's, 0.001 for gtd)")
    ] = None
    behaviour: Annotated[str, _shown(behaviours.METAVAR, help=behaviours.HELP)] = "random"
    epsilon: float = 0.1
    repeat: float = 0.5
    excursions: bool = False
    excursion_probability: float = 0.02
    horizon: int = 50
    passes: int = 1
    realtime: bool = False
    snapshot_every: Annotated[str, _shown("DURATION")] = "10min"
    keep: Annotated[str | None, _shown("30d|10GB", "(default: all)")] = None
    archive: bool = False
    on_alarm: Annotated[str | None, _shown("COMMAND", "(default: none)")] = None
    lost_after: float = 60.0
    surprise: Annotated[str | None, _shown("RATE", "(default: none)")] = None
    physics: Annotated[
        str | None, _shown("NAME", "(default: bullet if PyBullet is installed, else planar)")
    ] = None
    watch: bool = False
    shards: Annotated[
        str | None, _shown("N|auto", "(default: none, one Horde in this process)")
    ] = None
    ray: Annotated[str | None, _shown("HOST:PORT", "(default: none)")] = None
    robots: int = 1
    seed: int = 0
    config: Annotated[Path | None, _shown("FILE", "(default: none)")] = None
    out: Annotated[Path | None, _shown("DIR", "(default: the next free runs/BACKEND-N)")] = None

    @property
    def is_real_time(self) -> bool:
        """True if steps must meet deadlines."""
        return self.realtime or self.backend in (*ONE_AT_A_TIME, "emulated")

    @property
    def is_streamed(self) -> bool:
        """True if rows are learned from as they come."""
        return is_streamed(vars(self))

    @property
    def of_one_horde(self) -> LearnConfig:
        """The settings for one Horde: it learns the same weights as shards, bit for bit."""
        return replace(self, shards=None, ray=None)

    def replaying(self, recorded: LearnConfig) -> LearnConfig:
        """Return these settings for learning from the recording of a run with the settings `recorded`.

        The horizon is taken from that run; so are questions and seed, unless these settings name
        questions, and the offset, the averages, no rarity, LSTD and the features, unless these name
        them: the recording gives the weights that its run had.

        Raises:
            BadInput: If the questions of that run were given in Python, and these name none.
        """
        config = self
        if config.questions is None:
            question_source = recorded.questions or "excursions"
            if question_source == IN_PYTHON:
                raise BadInput(f"{GIVEN_IN_PYTHON}, or name other --questions")
            config = replace(config, questions=question_source, seed=recorded.seed)
        if config.offset is None and not config.paper:
            config = replace(config, offset=recorded.offset)
        if config.average is None and not config.paper:
            config = replace(config, average=recorded.average)
        if config.lstd is None and not config.paper:
            config = replace(config, lstd=recorded.lstd)
        if config.rarity is None and not recorded.rarity:
            config = replace(config, rarity=False)
        if config.features is None and not config.paper:
            config = replace(config, features=recorded.features)
        # There is no live page of a recording
        return replace(config, horizon=recorded.horizon, watch=False)


def is_streamed(settings: Mapping[str, Any]) -> bool:
    """Return whether the rows of a run came one by one, by its settings, as in config.toml."""
    return str(settings.get("data")) == str(STANDARD_INPUT) or bool(settings.get("follow"))


def time_name(settings: Mapping[str, Any], period_s: float) -> str:
    """Return what the steps of a run times its period are called: the robot's time, or that of the data.

    It is "" for an environment without a period of its own, whose steps have no duration; Interface
    gives it one of 1 s. `settings` are those of the run, as in config.toml.
    """
    backend = settings.get("backend")
    if backend == "gymnasium" and period_s == 1.0:
        return ""
    if backend in ("gymnasium", "data"):
        return "time"
    return "robot time"


def written_settings(config: LearnConfig) -> dict[str, Any]:
    """Return the settings for config.toml, without a robot if there is none."""
    settings = asdict(config)
    if config.backend in ("gymnasium", "data"):
        del settings["robot"]
    return settings


def resolve(config: LearnConfig) -> LearnConfig:
    """Check what can be checked without the robot, and fill in defaults; raise BadInput if a setting is invalid."""
    config = with_backend(config)
    questions = _questions_of(config)
    refuse_early(config)
    physics = config.physics
    if physics is None and config.backend in SIMULATED:
        physics = default_physics(config.robot)
    steps = config.steps
    if steps is None and config.backend not in RECORDED:
        steps = DEFAULT_STEPS
    chosen_features = config.features
    if chosen_features is None and config.paper:
        chosen_features = Features.WRITE
    config = replace(config, features=features_of(chosen_features).resolved(config.seed))
    with _naming_flags():
        excursion_config(config)
    config = _with_learner(config)
    return replace(config, questions=questions, steps=steps, physics=physics)


def refuse_early(config: LearnConfig) -> None:
    """Raise BadInput if a setting is invalid that can be checked without the robot and without the compiler."""
    config = with_backend(config)
    for is_broken, sentence in _rules(config, _questions_of(config)):
        if is_broken:
            raise BadInput(sentence)
    seconds(config.snapshot_every)


def with_retention(config: LearnConfig, keep: str | None, *, archive: bool) -> LearnConfig:
    """Return the settings of a run that keeps another part of its record from now on.

    Args:
        config: The settings until now.
        keep: As of `horde learn`, or "all"; None for what it was.
        archive: Whether files are written to Parquet before they are removed; it stays so.

    Raises:
        BadInput: If it does not fit the run.
    """
    if keep is None and not archive:
        return config
    if keep is None:
        changed = replace(config, archive=True)
    elif keep == KEEP_ALL:
        changed = replace(config, keep=None, archive=archive)
    else:
        changed = replace(config, keep=keep, archive=archive)
    for is_broken, sentence in _rules_of_keeping(changed):
        if is_broken:
            raise BadInput(sentence)
    return changed


def refuse_out_of_range(name: str, value: int | None) -> None:
    """Raise BadInput if a whole number is outside the range of the setting `name`; None is not set."""
    least, most = _RANGES[name]
    if value is not None and not least <= value <= most:
        raise BadInput(f"--{name} must be at least {least} and at most {most:,}, got {value}")


def with_backend(config: LearnConfig) -> LearnConfig:
    """Fill in the backend that the source implies, and name a source in one way, however it was spelled.

    --data RUN is --backend replay --log RUN, and --backend replay --log TABLE --columns FILE is --data TABLE.
    """
    has_other = config.env is not None or config.data is not None or config.minari is not None
    if config.backend == "replay" and config.log is not None and not has_other:
        run = run_of(config.log)
        if is_life(run):
            return replace(config, log=run)
        if config.columns is not None:
            return replace(config, backend="data", data=config.log, log=None)
    if config.backend != LearnConfig.backend:
        return config
    if config.env is not None:
        return replace(config, backend="gymnasium")
    run = run_of(config.data)
    if is_life(run) and config.log is None and config.minari is None:
        return replace(config, backend="replay", log=run, data=None)
    if config.data or config.minari:
        return replace(config, backend="data")
    return config


def _questions_of(config: LearnConfig) -> str:
    is_on_policy = config.backend in ("replay", "gymnasium", "data")
    if config.questions is not None:
        return config.questions
    if is_on_policy and not config.excursions:
        return "nexting"
    return "excursions"


@contextmanager
def _naming_flags() -> Iterator[None]:
    """Raise a component's refusal of a setting as BadInput, with the flag for the argument."""
    try:
        yield
    except InvalidArgument as error:
        flag = error.argument.replace("_", "-").replace(" ", "-")
        raise BadInput(f"--{flag} {error.problem}") from error
    except ValueError as error:
        raise BadInput(str(error)) from error


def _with_learner(config: LearnConfig) -> LearnConfig:
    """Fill in offset, averages, rarity, LSTD and step sizes, which config.toml then states; raise BadInput if wrong."""
    with _naming_flags():
        learner = learner_config(config)
    offset = config.offset
    if offset is None:
        offset = NO_OFFSET
        if isinstance(learner.offset, str):
            offset = learner.offset
    return replace(
        config,
        offset=offset,
        average=learner.average,
        rarity=learner.rarity,
        lstd=learner.lstd,
        step_size=learner.step_size,
        secondary_ratio=learner.secondary_ratio,
    )


def learner_config(config: LearnConfig) -> LearnerConfig:
    """Return the options of the Horde: those that are set, others as in `LearnerConfig`, or in the paper's.

    Raises:
        ValueError: If they do not fit together.
    """
    from horde_agent.learning.rules import LearnerConfig

    settings: dict[str, Any] = {}
    for name in ("step_size", "secondary_ratio", "average", "rarity", "lstd"):
        if getattr(config, name) is not None:
            settings[name] = getattr(config, name)
    if config.offset is not None:
        settings["offset"] = _offset_of(config.offset)
    default: Any = LearnerConfig
    if config.paper:
        default = LearnerConfig.paper
    learner: LearnerConfig = default(
        algorithm=config.algorithm,
        trace_rule=config.trace_rule,
        w_rule=config.w_rule,
        **settings,
    )
    return learner


def _offset_of(offset: str) -> float | str:
    """Return the offset as `LearnerConfig` takes or refuses it: a number, or the text."""
    try:
        return float(offset)
    except ValueError:
        return offset


def excursion_config(config: LearnConfig) -> ExcursionConfig:
    """Return when a life makes test excursions; raise ValueError if the settings are out of range."""
    from horde_agent.life.excursions import ExcursionConfig

    return ExcursionConfig(
        config.excursion_probability, config.horizon, without_drive=config.excursions
    )


def read_settings(path: Path) -> dict[str, Any]:
    """Return the tables and values of a settings file, unchecked; those of a run's, of any format, without its stamp.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not TOML, or has a newer format.
    """
    table = read_toml(path)
    if "format" in table:  # of a run
        from horde_agent.record.kinds import SETTINGS  # here, because it imports NumPy

        return SETTINGS.read_table(table, path)
    return table


def read_config(path: Path) -> LearnConfig:
    """Read settings from a TOML file; missing settings keep their defaults.

    In a run's `config.toml`, of any format, tables (versions), `out` and `config` are ignored. Raise
    BadInput if the file is missing, is not TOML, has a newer format, or an unknown or wrongly typed
    setting.
    """
    try:
        settings = read_settings(path)
    except FileNotFoundError:
        raise BadInput(f"there is no config file {path}") from None
    except BadInput:
        raise
    except OSError as error:
        raise BadInput(f"the config file {path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise BadInput(f"the config file {path} cannot be read: {error}") from error
    if "versions" in settings:  # of a run
        for name, value in list(settings.items()):
            if name in ("out", "config") or isinstance(value, dict):
                del settings[name]
    types = {name: kind for name, kind in get_type_hints(LearnConfig).items() if name != "config"}
    for name, value in settings.items():
        if name not in types:
            raise BadInput(f"unknown setting {name!r} in {path}{did_you_mean(name, types)}")
        try:
            settings[name] = typed(value, types[name])
        except ValueError as error:
            raise BadInput(f"{name} in {path} {error}") from None
    return LearnConfig(**settings)


def refuse_no_run(path: Path) -> None:
    """Raise BadInput if the path is not the folder of a run, or one of a newer program."""
    example = "name the folder of a run, for example runs/simulator-1"
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
        has_run = any((path / name).exists() for name in ("config.toml", "log", "summary.json"))
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"there is no folder {path}; {example}") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte
        reason = str(error)
        if isinstance(error, OSError):
            reason = str(error.strerror)
        raise BadInput(f"{path} cannot be read ({reason}); {example}") from None
    if not is_folder:
        raise BadInput(f"{path} is a file, not a folder; {example}")
    if not has_run:
        raise BadInput(f"{path} contains no run: it has neither config.toml nor log/; {example}")
    from horde_agent.record.stamps import refuse_newer  # here, because it imports NumPy

    refuse_newer(path)


def is_life(path: Path | None) -> bool:
    """Return whether the path is a run's folder with a recording."""
    if path is None:
        return False
    if is_file(path / "log" / "life.rec"):
        return True
    try:
        return any((path / "log").glob("life-[0-9]*.rec"))  # the oldest files may have been removed
    except OSError:
        return False


def run_of(path: Path | None) -> Path | None:
    """Return the run's folder if the path is a file of its recording; else the path."""
    is_record = path is not None and path.suffix == ".rec" and path.parent.name == "log"
    if path is not None and is_record:
        return path.parent.parent
    return path


def is_file(path: Path) -> bool:
    """Return whether the path is a file; False for invalid names, for example with 300 letters."""
    try:
        return path.is_file()
    except OSError:
        return False


_RANGES = {
    "steps": (1, MOST_STEPS),
    "horizon": (1, MOST_HORIZON),
    "passes": (1, MOST_PASSES),
    "robots": (1, MOST_ROBOTS),
    "seed": (0, MOST_SEED),
}
"""Whole numbers of a run, with the least and the most; components check other numbers."""


def _rules(config: LearnConfig, questions: str) -> Iterator[Rule]:
    """Yield the rules of the settings, with `questions` as their default; raise BadInput at an unknown name."""
    for name, value in vars(config).items():
        text = f"--{name.replace('_', '-')} {os.fsencode(str(value))!r}"
        yield not _is_utf8(value), f"{text} is not UTF-8; choose another name"
    yield from _rules_of_streams(config)
    yield from _rules_of_source(config)
    yield from _rules_of_body(config)
    yield from _rules_of_recorded_rows(config)
    for name in _RANGES:
        refuse_out_of_range(name, getattr(config, name))
    with _naming_flags():
        checked_epsilon(config.epsilon)
        checked_repeat(config.repeat)
    yield from _rules_of_behaviour(config)
    yield from _unused(config)
    yield (
        not 0.0 < config.lost_after < math.inf,
        f"--lost-after must be a finite number of seconds above 0, got {config.lost_after:g} s",
    )
    if config.on_alarm is not None:
        refuse_no_command(config.on_alarm)
    yield from _rules_of_keeping(config)
    if config.surprise is not None:
        try:
            seconds_between(config.surprise)
        except BadInput as error:
            yield True, f"--surprise {config.surprise}: {error}"
    yield from _rules_of_shards_and_robots(config)
    yield from _rules_of_learner(config, questions)


def _rules_of_source(config: LearnConfig) -> Iterator[Rule]:
    """Yield the rules of what a run learns from: one robot, environment or data set."""
    backend = config.backend
    env = config.env
    data = config.data or config.minari
    check_one_of("backend", backend, BACKENDS)
    wrong = "--backend gymnasium needs --env ID"
    if env:
        wrong = f"--backend {backend} has its own body"
    yield (
        (backend == "gymnasium") != (env is not None),
        f"{wrong}; name the environment by --env alone",
    )
    names_two_sources = config.data is not None and config.minari is not None
    yield (
        names_two_sources,
        f"--minari {config.minari} and --data {config.data} are two data sets: give one",
    )
    named = f"--{'data' if config.data else 'minari'} {data}"
    yield (
        bool(data) and env is not None,
        f"{named} and --env {env} are two sources of steps: give one",
    )
    yield (
        bool(data) and backend != "data",
        f"{named} stands in the robot's place; leave out --backend {backend}",
    )


def _rules_of_body(config: LearnConfig) -> Iterator[Rule]:
    """Yield the rules of the robot or environment."""
    robot = config.robot
    backend = config.backend
    env = config.env
    if env is not None:
        has_none = "an environment of --env has no clock to keep"
        yield config.realtime, f"--realtime belongs to a robot or its simulator; {has_none}"
        yield (
            robot != LearnConfig.robot,
            f"--env {env} stands in the robot's place; leave out --robot {robot}",
        )
    elif backend != "data":
        environment_of(robot, backend)
    if config.wrap is not None:
        yield env is None, f"--wrap {config.wrap} belongs to an environment of --env; leave it out"
        try:
            parse_wraps(config.wrap)
        except ValueError as error:
            yield True, str(error)
    yield from rules_of_robot(
        robot,
        backend,
        body=f"the body of {env or f'{robot} with the backend {backend}'}",
        port=config.port,
        parity=config.parity,
        physics=config.physics,
    )


def _rules_of_recorded_rows(config: LearnConfig) -> Iterator[Rule]:
    """Yield the rules of logs and their columns."""
    backend = config.backend
    log = config.log
    columns = config.columns
    if backend == "replay":
        yield log is None, "--backend replay needs --log FILE, the log to replay"
        is_table = log is not None and is_file(log)
        yield not is_table and not is_life(log), f"there is no log {log}"
        yield (
            columns is not None,
            f"--columns {columns} must be a file that describes the columns of --log, a table",
        )
    else:
        is_lone = columns is not None and backend != "data"
        yield (
            is_lone,
            "--columns requires --backend replay or --data; omit it or choose one of them",
        )
        yield log is not None, "--log requires --backend replay; omit it or choose that backend"


def _rules_of_streams(config: LearnConfig) -> Iterator[Rule]:
    """Yield the rules of rows that come one by one."""
    yield (
        config.compare_frozen and not config.follow,
        "--compare-frozen needs a history and further rows: give it with --follow, or in horde resume RUN --data MORE",
    )
    if not config.is_streamed:
        for name in ("predictions", "predict"):
            value = getattr(config, name)
            yield (
                value is not None,
                f"--{name} {value} is for a stream: horde learn -, or --follow; omit it",
            )
        return
    yield (
        config.follow and config.data in (None, STANDARD_INPUT),
        "--follow needs --data FILE, a file that grows: standard input goes on by itself",
    )
    yield (
        config.predict is not None and config.predictions is None,
        f"--predict {config.predict} needs --predictions, where to write them",
    )
    yield config.passes != 1, f"--passes {config.passes}: a stream passes once; omit it"


def _rules_of_behaviour(config: LearnConfig) -> Iterator[Rule]:
    """Yield the rules of what the robot does."""
    if config.behaviour == LearnConfig.behaviour:
        return
    behaviour = behaviour_of(config.behaviour)
    yield (
        config.backend in RECORDED,
        f"--behaviour requires a robot that can act; omit it with --backend {config.backend}",
    )
    yield from behaviour.rules(
        is_paper=config.paper,
        questions=_questions_of(config),
    )


_LEAST_KEPT = Keep(duration_s=7200.0, n_bytes=128e6)
"""Two files of rows, which are removed as a whole: that being written, and the one before it."""


def _rules_of_keeping(config: LearnConfig) -> Iterator[Rule]:
    """Yield the rules of how many rows stay."""
    if config.keep is None:
        yield config.archive, "--archive writes what --keep removes: give --keep, or omit it"
        return
    keep = Keep.of(config.keep)
    flag = f"--keep {config.keep}"
    yield (
        config.backend in RECORDED and not config.is_streamed,
        f"{flag} is for rows that are recorded as they come: those of a log or a data set are learned from again; "
        "omit it",
    )
    every_s = seconds(config.snapshot_every)
    yield (
        every_s is None,
        f"{flag} removes the rows before a snapshot, and --snapshot-every never takes one: choose a duration",
    )
    least_s = _LEAST_KEPT.duration_s or 0.0
    why = "two files of an hour"
    if config.is_real_time and 2.0 * (every_s or 0.0) > least_s:
        least_s = 2.0 * (every_s or 0.0)
        why = f"the rows since the last snapshot but one (--snapshot-every {config.snapshot_every})"
    yield (
        keep.duration_s is not None and keep.duration_s < least_s,
        f"{flag} is less than a resume needs, {why}: choose at least {least_s / 3600.0:g}h",
    )
    least_bytes = _LEAST_KEPT.n_bytes or 0.0
    yield (
        keep.n_bytes is not None and keep.n_bytes < least_bytes,
        f"{flag} is less than a resume needs, two files of 64 MB: choose at least {least_bytes / 1e6:g}MB",
    )
    yield (
        config.archive and find_spec("pyarrow") is None,
        "--archive needs pyarrow: pip install -e '.[log]'",
    )


def _rules_of_shards_and_robots(config: LearnConfig) -> Iterator[Rule]:
    """Yield the rules of several processes and of several robots."""
    backend = config.backend
    shards = config.shards
    yield (
        shards is None and config.ray is not None,
        "--ray requires --shards, the number of processes",
    )
    if shards is not None:
        is_number = shards == "auto" or (shards.isdecimal() and int(shards) > 0)
        yield not is_number, f"--shards {shards}: write a number of processes, 1 or more, or auto"
        yield backend in RECORDED, f"--shards cannot be combined with --backend {backend}; omit it"
        yield find_spec("ray") is None, "--shards needs the extra `ray`: pip install -e '.[ray]'"
    if config.robots != 1:  # they take turns: each must be simulated, and wait
        several = f"--robots {config.robots} needs --backend simulator and cannot be combined with"
        yield backend != "simulator", f"{several} --backend {backend}"
        yield config.realtime, f"{several} --realtime"
        yield shards is not None, f"{several} --shards"


def _rules_of_learner(config: LearnConfig, questions: str) -> Iterator[Rule]:
    """Yield the rules of offset, averages and rarity, the questions, the columns file and the output folder."""
    backend = config.backend
    columns = config.columns
    yield (
        config.paper and config.offset not in (None, NO_OFFSET),
        f"--paper learns without an offset, and --offset {config.offset} is one: omit one of them",
    )
    average = config.average
    yield (
        config.paper and average not in (None, NO_AVERAGE),
        f"--paper learns without averages, and --average {average} is one: omit one of them",
    )
    yield (
        config.paper and bool(config.rarity),
        "--paper learns without rarity, and --rarity is on: omit one of them",
    )
    has_others = config.features is not None and features_of(config.features) != Features()
    yield (
        config.paper and has_others,
        "--paper learns from the tilings of the layout alone, and --features "
        f"{shown(config.features)} adds others: omit one of them",
    )
    is_own = questions.endswith(".toml")
    yield is_own and not is_file(Path(questions)), f"there is no question file {questions}"
    remedy = f"choose {', '.join(FAMILIES)} or a .toml file{did_you_mean(questions, FAMILIES)}"
    yield not is_own and questions not in FAMILIES, f"unknown questions {questions!r}: {remedy}"
    if backend == "replay" and not is_life(config.log):
        remedy_of_log = (
            "nexting (or a file of questions about the behaviour) can be learned from it"
        )
        yield (
            questions in ("excursions", "policies", "values"),
            f"the action probabilities of a replayed log are unknown, so only --questions {remedy_of_log}, "
            f"not {questions!r}",
        )
    yield (
        config.excursions and backend != "gymnasium",
        "--excursions is for an environment of --env: robots make test excursions without it, and recorded data "
        "cannot make any; omit it",
    )
    is_missing = columns is not None and not is_file(columns)
    yield is_missing, f"there is no columns file {columns}"
    if config.out is not None:
        yield _is_taken(config.out)


_OF_ACTING = ("repeat", "excursion_probability", "realtime")
"""Settings of a body that acts: they have no effect on recorded rows."""


def _unused(config: LearnConfig) -> Iterator[Rule]:
    """Yield whether a setting differs from its default but has no effect, and the sentence about it."""
    behaviour = behaviour_of(config.behaviour)
    is_lone = config.epsilon != LearnConfig.epsilon and not behaviour.uses_epsilon
    yield (
        is_lone,
        f"--epsilon {config.epsilon:g} requires --behaviour greedy:NAME or curious; omit it or name the behaviour",
    )
    is_lone = config.repeat != LearnConfig.repeat and not behaviour.uses_repeat
    yield is_lone, f"--repeat {config.repeat:g} belongs to --behaviour random; omit it"
    if config.passes != LearnConfig.passes:
        passes = f"--passes {config.passes}"
        is_other = config.backend not in RECORDED
        yield (
            is_other,
            f"{passes} requires a log or a data set; omit it with --backend {config.backend}",
        )
        yield (
            is_life(config.log),
            f"{passes}: a recorded run is learned from once; omit it",
        )
    if config.backend in RECORDED:
        for name in _OF_ACTING:
            is_given = getattr(config, name) != getattr(LearnConfig, name)
            flag = f"--{name.replace('_', '-')}"
            yield (
                is_given,
                f"{flag} requires a robot that can act; omit it with --backend {config.backend}",
            )


def _is_utf8(value: object) -> bool:
    """Return whether a text can be written to config.toml."""
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_no_command(command: str) -> None:
    """Raise BadInput if the command of --on-alarm does not exist."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"--on-alarm {command!r} is no command line: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise BadInput(f"--on-alarm {command!r}: there is no such command")


def _is_taken(out: Path) -> tuple[bool, str]:
    try:
        place = out.resolve()  # so that `x/..` makes no folder x
        if place.exists() and not place.is_dir():
            return True, f"--out {out} is a file; name a new folder"
        is_full = place.is_dir() and any(place.iterdir())
    except OSError as error:
        return True, f"--out {out} cannot be read ({error.strerror}); name another folder"
    return is_full, f"--out {out} already contains a run (or other files); name a new folder"
