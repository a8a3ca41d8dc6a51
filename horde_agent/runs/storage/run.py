"""Run: the Horde of a run, its life and its recording, built from its settings and the interface of its robot.

The header of a recording describes the robot, so the Horde of a folder can be made and learn again
without the robot (`open_run`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np

from horde_agent import questions as families
from horde_agent.cluster import ShardedHorde
from horde_agent.features import features_of, shown
from horde_agent.gvf import GVF, Reward, named
from horde_agent.horde import DEFERRED_STEPS, Horde, Mode
from horde_agent.interface import Interface, readable
from horde_agent.learner import Learner
from horde_agent.learning.rules import config_of, rules_of
from horde_agent.life.behaviours import Exploration, behaviour_of
from horde_agent.life.life import Life
from horde_agent.life.observers import MspbeWatch, Sampler
from horde_agent.life.robot import RobotBody
from horde_agent.life.status import LiveStatusWriter
from horde_agent.life.worker import Worker
from horde_agent.policies import Behaviour
from horde_agent.record import Recorder, row_dtype
from horde_agent.refusals import BadInput
from horde_agent.runs.config import (
    GIVEN_IN_PYTHON,
    IN_PYTHON,
    LearnConfig,
    excursion_config,
    learner_config,
    time_name,
)
from horde_agent.runs.storage.files import unwritable
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.scoring.surprise import block_steps

Questions = Sequence[GVF] | Callable[[Interface], Sequence[GVF]]

_TABLES_BYTES = 2_000_000  # of tables, report and pictures, approximately
# Keys of a data set's header, and of a body whose sensors or actions changed
_OF_DATA = (
    "has_actions",
    "b_known",
    "b_estimate",
    "reward_known",
    "shifts",
    "lost",
    "lost_actions",
    "later_actions",
    "later_tilings",
    "arranged",
)


@dataclass
class Run:
    """A Horde and the folder for its results."""

    config: LearnConfig  # resolved settings
    interface: Interface  # channels and actions of the robot
    horde: Learner  # the demons
    folder: RunFolder  # for the results
    notes: Sequence[str] = ()  # remarks on the robot, for the report
    shards: ShardedHorde | None = None  # the same demons, if they are in shards
    header: Mapping[str, Any] = field(default_factory=dict)  # of a recording of its robot
    recorded: LearnConfig | None = None  # settings of the recorded run that it learns from
    own: Questions | None = None  # those that were given in Python
    watch: MspbeWatch = field(init=False)  # determines whose MSPBE estimates are valid

    def __post_init__(self) -> None:
        self.watch = MspbeWatch(self.horde)

    @property
    def time_name(self) -> str:
        """What the time of its steps is called; "" if they have no duration."""
        return time_name(vars(self.config), self.interface.period_s)

    @property
    def later_tilings(self) -> Sequence[Mapping[str, Any]]:
        """`[[tiling]]` tables of tilings that were added since the run began."""
        tables: Sequence[Mapping[str, Any]] = self.header.get("later_tilings", [])
        return tables

    def with_later_tilings(self, tables: Sequence[Mapping[str, Any]]) -> Run:
        """Return the run at its start with other tilings that were added since it began."""
        env = HeaderEnv({**self.header, "later_tilings": tables})
        return make_run(env, self.config, self.folder, recorded=self.recorded, own=self.own)

    def end_live_page(self) -> None:
        """Describe the run for its live page, which shows no steps of recorded rows."""
        LiveStatusWriter(
            self.folder.path, self.interface, self.horde, time_name=self.time_name
        ).close()

    def close(self) -> None:
        """End the shards, if there are any; the demons cannot be used afterwards."""
        if self.shards is not None:
            self.shards.close()


def open_run(
    folder: RunFolder,
    header: dict[str, Any] | None = None,
    own: Questions | None = None,
    surprise: str | None = None,
) -> Run:
    """Return the run of a folder at its start, as one Horde and without its robot; nothing is written.

    A command for alarms in its settings is not run.

    Args:
        folder: Its folder.
        header: Of its recording; read when None, from one with rows.
        own: Its questions if they were given in Python.
        surprise: Rate of false alarms with which to watch for surprises; its own when None.

    Raises:
        BadInput: If its settings, its recording or its questions cannot be read or were changed.
    """
    config = replace(folder.sound_settings().of_one_horde, on_alarm=None)
    if surprise is not None:
        config = replace(config, surprise=surprise)
    header = header or folder.extent().header
    try:
        env = HeaderEnv(header)
        return make_run(env, config, folder, recorded=folder.acting_settings(), own=own)
    except KeyError as error:
        raise BadInput(
            f"the header of {folder.life} lacks {error}, which learning from it requires"
        ) from None
    except (ValueError, TypeError) as error:
        raise BadInput(f"{folder.life} cannot be learned from again: {error}") from None


def make_run(
    env: gymnasium.Env[Any, Any],
    config: LearnConfig,
    folder: RunFolder,
    recorded: LearnConfig | None = None,
    own: Questions | None = None,
) -> Run:
    """Build the Horde for resolved settings and a robot, or its description in a recording (`HeaderEnv`).

    `own` replaces the questions of `config`. `recorded` are the settings of the recorded run to
    learn from: its action probabilities are known, and its mode is used.

    Raises:
        BadInput: If a question is about another policy than the behaviour and action probabilities
            are unknown, a question is about the reward and that is unknown, or `features` do not
            fit the robot.
        ValueError: If the questions do not fit.
    """
    interface = _with_features(Interface.of(env), config)
    file = Path(str(config.questions))
    first_interface = interface.with_first_actions()
    if own is None:
        questions = build_questions(config, first_interface, file)
    else:
        gvfs = own(first_interface) if callable(own) else own
        questions = list(named(gvfs, interface.names))
    later_tilings = env.metadata.get("later_tilings", ())
    if later_tilings:
        interface = interface.with_tilings(later_tilings)
        questions = families.with_further_features(questions, interface.coder.n_features)
    questions = families.with_further_actions(questions, len(interface.actions))
    settings_of_robot = recorded or config
    is_b_known = env.metadata.get("b_known", settings_of_robot.backend != "replay")
    if not is_b_known:
        _refuse_off_policy(questions, config)
    if not env.metadata.get("reward_known", True):
        refuse_rewards(
            questions,
            "these data have no rewards: name their column (next_reward in a columns file, rewards in learn_from), or "
            "ask other questions",
        )
    is_density = any(
        (channel.name, channel.group) == ("b", "action") for channel in interface.channels
    )
    if is_density or not is_b_known:
        _refuse_rules_with_b(questions, config)
    if file.suffix == ".toml":
        interface = families.feeding_back(file, interface, questions)
    reads_each_step = settings_of_robot.predictions is not None
    is_eager = settings_of_robot.is_real_time or reads_each_step or interface.feedback is not None
    if config.surprise is not None:
        # A block ends where no step is queued
        is_eager |= block_steps(interface.period_s) < DEFERRED_STEPS
    mode: Mode = "deferred"
    if is_eager:
        mode = "eager"
    options: dict[str, Any] = {
        "n_features": interface.coder.n_features,
        "n_active": interface.coder.n_active,
        "config": learner_config(config),
        "mode": mode,
    }
    shards = None
    horde: Learner
    if config.shards is None:
        horde = Horde(questions, **options)
    else:
        n_shards: int | Literal["auto"] = "auto"
        if config.shards != "auto":
            n_shards = int(config.shards)
        horde = shards = ShardedHorde(
            questions, **options, shards=n_shards, address=config.ray, folder=folder.shards
        )
    notes = list(RobotBody(env).metadata.get("notes", ()))
    n_robots = settings_of_robot.robots
    if n_robots > 1:
        notes.append(
            f"{n_robots} robots took turns. Steps and times are those of all of them together."
        )
    return Run(
        config=config,
        interface=interface,
        horde=horde,
        folder=folder,
        notes=notes,
        shards=shards,
        header=record_header(env, interface),
        recorded=recorded,
        own=own,
    )


def _with_features(interface: Interface, config: LearnConfig) -> Interface:
    """Return the interface with the features of the settings."""
    try:
        return features_of(config.features).added_to(interface, config.seed)
    except ValueError as error:
        raise BadInput(f"--features {shown(config.features)}: {error}") from error


def build_questions(config: LearnConfig, interface: Interface, file: Path) -> list[GVF]:
    """Return the questions of `config`; custom ones are read from `file`."""
    match config.questions:
        case "excursions":
            return families.excursions(interface)
        case "nexting":
            return families.nexting(interface)
        case "values":
            return families.values(interface)
        case "policies":
            # A separate generator: the life does not depend on the questions.
            return families.policies(interface, np.random.default_rng([config.seed, 1]))
        case str(name) if name == IN_PYTHON:
            raise BadInput(GIVEN_IN_PYTHON)
    return families.from_file(file, interface)


def _refuse_off_policy(questions: Sequence[GVF], config: LearnConfig) -> None:
    off_policy = [q.name for q in questions if not isinstance(q.target_policy, Behaviour)]
    if off_policy:
        source = "this data set"
        if config.backend == "replay":
            source = "a replayed log"
        raise BadInput(
            f"the action probabilities of {source} are unknown, so only questions about the policy 'behaviour' can be "
            f"learned from it; {off_policy[0]!r} in {config.questions} has another policy"
        )


def refuse_rewards(questions: Sequence[GVF], why: str) -> None:
    """Raise BadInput, with the reason `why`, if a question is about the reward."""
    for question in questions:
        if isinstance(question.cumulant, Reward):
            raise BadInput(f"{question.name!r} is about the reward, but {why}")


def _refuse_rules_with_b(questions: Sequence[GVF], config: LearnConfig) -> None:
    """Raise BadInput if a question's trace is multiplied by b, which data without probabilities do not have."""
    learner = learner_config(config)
    for question, algorithm in zip(questions, rules_of(questions, learner), strict=True):
        rule = config_of(learner, algorithm)
        if rule.cuts_trace_by_b:
            raise BadInput(
                f"the data have no action probabilities b, by which the trace rule {rule.trace_rule!r} of "
                f"{question.name!r} multiplies the trace: give b, or choose another trace rule or algorithm"
            )


def record_header(env: gymnasium.Env[Any, Any], interface: Interface) -> dict[str, Any]:
    """Return the header of a recording: it describes the robot, so that learning from it does not need the robot."""
    env = readable(env)
    box = env.observation_space
    metadata = env.metadata
    assert isinstance(box, gymnasium.spaces.Box), "Interface.of checks this"
    return {
        "channels": [channel._asdict() for channel in interface.channels],
        "actions": list(interface.actions),
        "period_s": interface.period_s,
        "ranges": {
            c["name"]: list(c["range"]) for c in metadata.get("channels", []) if "range" in c
        },
        "low": [float(bound) if np.isfinite(bound) else None for bound in box.low],
        "high": [float(bound) if np.isfinite(bound) else None for bound in box.high],
        "tile_layout": metadata.get("tile_layout"),
        "chosen_layout": metadata.get("chosen_layout"),
        "notes": list(metadata.get("notes", [])),
        **{name: metadata[name] for name in _OF_DATA if name in metadata},
    }


def has_actions(header: Mapping[str, Any]) -> bool:
    """Return whether the rows of a recording have actions, by its header: a log or a data set may have none."""
    return bool(header.get("has_actions", True))


def learns_all_rows(config: LearnConfig, header: Mapping[str, Any]) -> bool:
    """Return whether a run learns from all rows of a recording, by its header, and scores its predictions meanwhile.

    So it does if they have actions, or if it watches for surprises. Other rows are learned from up to 70 %, and the
    rest scores them.
    """
    return has_actions(header) or config.surprise is not None


class HeaderEnv(gymnasium.Env[Any, Any]):
    """An environment without steps, described by a recording's header; raise KeyError if that lacks a part."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        low = np.array(
            [-np.inf if bound is None else bound for bound in header["low"]], dtype=np.float32
        )
        high = np.array(
            [np.inf if bound is None else bound for bound in header["high"]], dtype=np.float32
        )
        self.observation_space = gymnasium.spaces.Box(low, high)
        self.action_space = gymnasium.spaces.Discrete(len(header["actions"]))
        channels = [{**channel, "sensor": channel["is_sensor"]} for channel in header["channels"]]
        known_keys = {
            name: header[name] for name in ("actions", "period_s", "tile_layout", "notes")
        }
        self.metadata = {
            "channels": channels,
            **known_keys,
            "chosen_layout": header.get("chosen_layout"),  # not before version 0.3
            **{name: header[name] for name in _OF_DATA if name in header},
        }
        if header.get("tests_excursions"):  # a recording may start during a drive
            self.manoeuvre_frames: list[Any] = []


# ---- its life and its recording --------------------------------------------------------------------------------------


def new_life(
    envs: Sequence[gymnasium.Env[Any, Any]],
    run: Run,
    unix_clock: Callable[[], float] = time.time,
) -> tuple[Life, Sampler]:
    """Return a life of one robot or several with a run's settings, at its start, and its samples.

    `unix_clock` is as in `Life`.
    """
    config = run.config
    options: dict[str, Any] = {
        "interface": run.interface,
        "excursions": excursion_config(config),
        "unix_clock": unix_clock,
    }
    rngs = [np.random.default_rng(config.seed + k) for k in range(len(envs))]
    behaviours = behaviour_of(config.behaviour).policies(
        run.horde,
        n_actions=len(run.interface.actions),
        n_robots=len(envs),
        exploration=Exploration(
            config.epsilon, config.repeat, lost=lost_actions(envs[0], run.interface)
        ),
    )
    if config.is_real_time:
        options["worker"] = Worker()
    life = Life(envs[0], run.horde, behaviours[0], rngs[0], **options)
    for robot in zip(envs[1:], behaviours[1:], rngs[1:], strict=True):
        life.add_robot(*robot)
    sampler = Sampler()
    life.observers += [run.watch, sampler]
    return life, sampler


def lost_actions(env: gymnasium.Env[Any, Any], interface: Interface) -> tuple[int, ...]:
    """Return the actions that a body has lost during its life."""
    names = env.metadata.get("lost_actions", ())
    return tuple(interface.actions.index(name) for name in names)


def recording_facts(run: Run, env: gymnasium.Env[Any, Any], *, has_tests: bool) -> dict[str, Any]:
    """Return the header of a run's recording: the robot `env`, and whether it makes test excursions."""
    facts = record_header(env, run.interface) | {"tests_excursions": has_tests}
    if run.config.robots > 1:
        facts["robots"] = run.config.robots
    return facts


def new_recorder(
    run: Run, env: gymnasium.Env[Any, Any], *, has_tests: bool, **segments: Any
) -> Recorder:
    """Create the recording of a run of the robot `env`; raise BadInput if the disk is full or cannot be written."""
    config = run.config
    interface = run.interface
    folder = run.folder
    needed = (
        _TABLES_BYTES
        + (config.steps or 0) * row_dtype(len(interface.channels), config.robots).itemsize
    )
    free = shutil.disk_usage(folder.path).free
    if free < needed:
        raise BadInput(
            f"--out {folder.path} has {free / 1e6:.1f} MB free, but this run needs {needed / 1e6:.1f} MB; choose "
            "another disk, or fewer --steps"
        )
    facts = recording_facts(run, env, has_tests=has_tests)
    try:
        return Recorder(len(interface.channels), folder.life, facts, **segments)
    except OSError as error:
        raise BadInput(unwritable(folder.path, error)) from None
