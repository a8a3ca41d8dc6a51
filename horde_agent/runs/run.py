"""Run: what learns in a run, built from its settings and from what is known of the body, and where its results go.

A record says of its body all that this takes, so that a Horde can be built again, and learn again, without the body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np

from horde_agent import questions as families
from horde_agent.cluster import AnyHorde, ShardedHorde
from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig, Mode
from horde_agent.interface import Interface
from horde_agent.life.feed import shards_of
from horde_agent.life.observers import MspbeWatch
from horde_agent.life.robot import RobotBody
from horde_agent.life.student import Student
from horde_agent.policies import Behaviour
from horde_agent.runs import holdout, results
from horde_agent.runs.config import BadInput, LearnConfig
from horde_agent.runs.ending import Cause, End
from horde_agent.runs.run_folder import RunFolder


@dataclass
class Run:
    """What learns, and where its results go.

    Attributes:
        config: Resolved settings.
        interface: What the agent knows of its body.
        horde: Learns.
        folder: For the results.
        notes: What a reader of the results must know of the body.
        compile_s: How long compiling took, in seconds.
        end: What ended the run.
        is_unfinished: Whether its tables had to be made from its log.
        watch: Knows whose MSPBE estimates are valid.
    """

    config: LearnConfig
    interface: Interface
    horde: AnyHorde
    folder: RunFolder
    notes: Sequence[str] = ()
    compile_s: float | None = None
    end: End = field(default_factory=lambda: End.of(Cause.STEPS))
    is_unfinished: bool = False
    watch: MspbeWatch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = MspbeWatch(self.horde)

    def close(self) -> None:
        """Let go of the processes that learn, where there are any; nothing can be asked of the demons after it."""
        if isinstance(self.horde, ShardedHorde):
            self.horde.close()

    def learned(self, student: Student) -> dict[str, Any]:
        """Return what the summary says of learning."""
        coder, n = self.interface.coder, student.learning_steps
        return {
            **results.horde_summary(self.horde, coder.n_features, coder.n_active),
            "learning_steps": n,
            "n_updated_per_step": student.n_updated / n if n else None,
            "backend": self.config.backend,
            "seed": self.config.seed,
            "stopped_early": self.end.is_early,
        }

    def details(self, **further: Any) -> dict[str, Any]:
        """Return what details.json says, beside the further facts."""
        return {
            "compile_s": self.compile_s,
            "channels": [channel.name for channel in self.interface.channels],
            "actions": list(self.interface.actions),
            "set_aside_because": self.horde.divergence_reason,
            "skipped_because": self.horde.skipped_because,
            "stopped_early": self.end.is_early,
            "stopped_by": self.end.why,
            "ended_by": self.end.cause.code,
            "unfinished": self.is_unfinished,
            "mspbe": self.watch.facts(),
            "shards": [shard._asdict() for shard in shards_of(self.horde)],
            **further,
        }


def make_run(
    env: gymnasium.Env[Any, Any],
    config: LearnConfig,
    folder: RunFolder,
    file: Path | None = None,
    lived: LearnConfig | None = None,
) -> Run:
    """Build the Horde that was asked for.

    Args:
        env: The body, or what is known of it (`Described`).
        config: Resolved settings.
        folder: For the results.
        file: Where the questions are, if they are one's own; where `config` says when None.
        lived: Settings of the recorded life that is learned from, where it is one: it knows its choices, and steps are
            taken as they were there.

    Raises:
        BadInput: If a replayed log cannot answer the questions.
        ValueError: If the question file is wrong, or the environment does not fit.
    """
    interface = Interface.of(env)
    file = file or Path(str(config.questions))
    questions = asked(config if lived is None else replace(config, backend=lived.backend), interface, file)
    if file.suffix == ".toml":
        interface = families.feeding_back(file, interface, questions)
    horde = _make_horde(questions, config, interface, _mode(lived or config, interface), folder)
    if config.backend == "replay" and lived is None:
        holdout.known_returns(horde)
    return Run(config, interface, horde, folder, tuple(RobotBody(env).metadata.get("notes", ())))


def _make_horde(
    questions: Sequence[GVF], config: LearnConfig, interface: Interface, mode: Mode, folder: RunFolder
) -> AnyHorde:
    """Return the demons: in this process, or spread over others."""
    learner = LearnerConfig(
        step_size=config.step_size,
        secondary_ratio=config.secondary_ratio,
        trace_rule=config.trace_rule,  # type: ignore[arg-type]
        w_rule=config.w_rule,  # type: ignore[arg-type]
    )
    coder = interface.coder
    known: dict[str, Any] = {"n_features": coder.n_features, "n_active": coder.n_active, "config": learner}
    if config.shards is None:
        return Horde(questions, mode=mode, **known)
    shards: int | Literal["auto"] = "auto" if config.shards == "auto" else int(config.shards)
    return ShardedHorde(questions, mode=mode, **known, shards=shards, address=config.ray, folder=folder.shards)


def asked(config: LearnConfig, interface: Interface, file: Path) -> list[GVF]:
    """Return the questions asked for; one's own are in `file`."""
    match config.questions:
        case "excursions":
            return families.excursions(interface)
        case "nexting":
            return families.nexting(interface)
        case "policies":
            # A generator of its own: the life of a seed is the same whatever is asked about it.
            return families.policies(interface, np.random.default_rng([config.seed, 1]))
    questions = families.from_file(file, interface)
    other = [q.name for q in questions if not isinstance(q.target_policy, Behaviour)]
    if config.backend == "replay" and other:
        raise BadInput(
            f"a replayed log was not driven by known choices, so it answers questions about the policy 'behaviour' "
            f"alone, and {other[0]!r} in {config.questions} is not one"
        )
    return questions


def _mode(config: LearnConfig, interface: Interface) -> Mode:
    """Return how steps are taken: many together, unless a body moves in real time or predictions are fed back."""
    return "eager" if config.is_real_time or interface.feedback is not None else "deferred"


def described(env: gymnasium.Env[Any, Any], interface: Interface) -> dict[str, Any]:
    """Return what the record of a life says of its body: enough to learn from it again without the body."""
    box, metadata = env.observation_space, RobotBody(env).metadata
    assert isinstance(box, gymnasium.spaces.Box), "an interface was made of it"
    return {
        "channels": [channel._asdict() for channel in interface.channels],
        "actions": list(interface.actions),
        "period_s": interface.period_s,
        "ranges": {c["name"]: list(c["range"]) for c in metadata.get("channels", []) if "range" in c},
        "low": [float(bound) if np.isfinite(bound) else None for bound in box.low],
        "high": [float(bound) if np.isfinite(bound) else None for bound in box.high],
        "tile_layout": metadata.get("tile_layout"),
        "notes": list(metadata.get("notes", [])),
    }


class Described(gymnasium.Env[Any, Any]):
    """A body that is known by the header of a record alone: it says what it is and can do nothing.

    Raises:
        KeyError: If the header does not describe a robot.
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        low = np.array([-np.inf if bound is None else bound for bound in header["low"]], dtype=np.float32)
        high = np.array([np.inf if bound is None else bound for bound in header["high"]], dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(low, high)
        self.action_space = gymnasium.spaces.Discrete(len(header["actions"]))
        channels = [{**channel, "sensor": channel["is_sensor"]} for channel in header["channels"]]
        known = {name: header[name] for name in ("actions", "period_s", "tile_layout", "notes")}
        self.metadata = {"channels": channels, **known}
        if header.get("tests_excursions"):  # it could drive to the centre, so that one may be under way
            self.manoeuvre_frames: list[Any] = []
