"""Test doubles: a scripted body, and a Horde that records its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from horde_agent.gvf import GVF
from horde_agent.horde import Horde, Mode
from horde_agent.interface import Interface
from horde_agent.learner import Learner
from horde_agent.learning import LearnerConfig
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life, LifeHooks
from horde_agent.policies import BehaviourPolicy, ConstantAction, StickyRandom
from horde_agent.questions import QuestionColumns, excursions
from horde_agent.runs.storage.files import write_csv
from horde_agent.runs.storage.question_table import SCORE_COLUMNS
from horde_agent.saving import State

N_ACTIONS = 3
PERIOD_S = 0.1
SCALE = 10_000.0
SAW = 1
"""The channel whose reading is the reward of `PaidBody`."""


class ToyBody(gymnasium.Env[np.ndarray, int]):
    """A body of three channels in [0, 1]: its age in steps / 10,000, a sawtooth, and the action that led here.

    Args:
        faults: Age to flags of info at that age, such as {7: {"gap": 1}}.
        drive_steps: Frames of a drive to the centre.
        tells_observations: Whether it has the observations of a drive.
        on_step: Called on entering a step, after the action "left".
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        faults: Mapping[int, Mapping[str, Any]] | None = None,
        drive_steps: int = 4,
        tells_observations: bool = True,
        on_step: Callable[[int], None] | None = None,
    ) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(N_ACTIONS)
        self.metadata = {
            "channels": [
                {"name": n, "group": "obs", "unit": "1", "sensor": True}
                for n in ("age", "saw", "last")
            ],
            "actions": ["left", "right", "stay"],
            "period_s": PERIOD_S,
        }
        self.faults = faults or {}
        self.drive_steps = drive_steps
        self.on_step = on_step
        self.age = 0
        self.last_action = 0
        self.manoeuvre_frames: list[Any] = []
        self.actions: list[tuple[int, int]] = []
        self.drives: list[int] = []
        if tells_observations:
            self.manoeuvre_observations: list[np.ndarray] = []

    def channel_values(self) -> np.ndarray:
        return np.array(
            [self.age / SCALE, (self.age % 7) / 7, self.last_action / N_ACTIONS], np.float32
        )

    def info_of_step(self) -> dict[str, Any]:
        return {"t": self.age * PERIOD_S, "gap": 0, "applied": 1, "x_m": 0.0, "y_m": 0.1} | dict(
            self.faults.get(self.age, {})
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Stay, or drive to the centre."""
        super().reset(seed=seed)
        self.manoeuvre_frames = []
        observations = []
        if options == {"manoeuvre": "centre"}:
            self.drives.append(self.age)
            for _ in range(self.drive_steps):
                self.age += 1
                extras = {"x_m": 0.5, "y_m": 0.5, "heading_rad": 0.0}
                self.manoeuvre_frames.append(
                    SimpleNamespace(t=self.age * PERIOD_S, stale=False, crc_errors=1, extras=extras)
                )
                observations.append(self.channel_values())
        if hasattr(self, "manoeuvre_observations"):
            self.manoeuvre_observations = observations
        return self.channel_values(), self.info_of_step() | {
            "gap": 1,
            "manoeuvre_steps": len(self.manoeuvre_frames),
        }

    def step(self, action: int) -> Any:
        self.actions.append((self.age, int(action)))
        if self.on_step is not None:
            self.on_step(self.age)
        self.age += 1
        self.last_action = int(action)
        info = self.info_of_step()
        return (
            self.channel_values(),
            0.0,
            bool(info.pop("terminated", 0)),
            bool(info.pop("truncated", 0)),
            info,
        )


class PaidBody(ToyBody):
    """The toy body; its reward is the reading of the sawtooth at the state reached."""

    def step(self, action: int) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float(observation[SAW]), terminated, truncated, info


class PaidWithoutDrive(PaidBody):
    """It cannot drive to a centre."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(tells_observations=False, **arguments)
        del self.manoeuvre_frames

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert options is None
        observation, info = super().reset(seed=seed)
        del self.manoeuvre_frames
        return observation, info


class RestorablePaidBody(PaidBody):
    """It can be put back to a saved state."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.metadata["restorable"] = True

    def save_state(self) -> State:
        """Return its age and last action."""
        return {"numbers": np.array([self.age, self.last_action])}

    def restore_state(self, state: State) -> None:
        """Take age and last action of a state."""
        self.age, self.last_action = state["numbers"].tolist()


def age_of(observation: np.ndarray) -> int:
    return round(float(observation[0]) * SCALE)


class SpyHorde:
    """Has the methods of a Horde and records its calls: ("begin", age) and ("learn", age, action, b, age, end).

    Its predictions are 1000 x updates + age at the observation.
    """

    def __init__(self, questions: list[GVF], on_learn: Callable[[], None] | None = None) -> None:
        self.questions = tuple(questions)
        self.names = [q.name for q in questions]
        self.n_demons = len(questions)
        self.calls: list[tuple[Any, ...]] = []
        self.on_learn = on_learn
        coder = Interface.of(ToyBody()).coder
        self.n_features = coder.n_features
        self.n_active = coder.n_active
        self.shards: list[Any] = []
        self.max_trace = 0.0
        self.diverged = []
        self.mspbe_scalar = np.zeros(self.n_demons)
        self.predictions = np.zeros(self.n_demons)
        self.n_waiting = 0
        self._held: int | None = None
        self.n_updates = 0

    def catch_up(self) -> None:
        """Do nothing: no step is deferred."""

    def begin(self, observation: np.ndarray, tiles: np.ndarray) -> np.ndarray:
        self._held = age_of(observation)
        self.calls.append(("begin", self._held))
        self.predictions = self._predict()
        return self.predictions

    def learn(
        self,
        action: int,
        probability: float,
        observation: np.ndarray,
        tiles: np.ndarray,
        *,
        terminated: bool = False,
        reward: float = np.nan,
    ) -> np.ndarray:
        assert self._held is not None, "learn without begin"
        if self.on_learn is not None:
            self.on_learn()
        age = age_of(observation)
        self.calls.append(("learn", self._held, action, probability, age, terminated))
        self._held = None if terminated else age
        self.n_updates += 1
        self.predictions = np.full(self.n_demons, 1000.0 * self.n_updates + age)
        return self.predictions

    def predict(self, tiles: np.ndarray, observation: np.ndarray) -> np.ndarray:
        return np.full(self.n_demons, 1000.0 * self.n_updates + age_of(observation))

    def _predict(self) -> np.ndarray:
        return np.full(self.n_demons, 1000.0 * self.n_updates + (self._held or 0))

    @property
    def learned(self) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] == "learn"]


def toy_questions() -> list[GVF]:
    """Return 3 policies x gamma {0, .5} x 3 channels = 18 questions about the toy body."""
    return excursions(Interface.of(ToyBody()), (0.0, 0.5))


def horde_of(
    questions: Sequence[GVF], interface: Interface, mode: Mode = "eager", **config: Any
) -> Horde:
    """Return a Horde with the features of an interface; `config` are settings of LearnerConfig."""
    coder = interface.coder
    rules = LearnerConfig.paper(**config)
    return Horde(
        questions, n_features=coder.n_features, n_active=coder.n_active, config=rules, mode=mode
    )


def constant(action: int) -> ConstantAction:
    """Return the policy that always takes one of the toy body's actions."""
    return ConstantAction(action, N_ACTIONS)


def toy_life(body: gymnasium.Env[Any, Any], horde: Any, seed: int = 0, **further: Any) -> Life:
    """Return a life with a sticky behaviour, and without excursions unless others are given."""
    settings = {"excursions": ExcursionConfig(probability=0.0), **further}
    return Life(body, horde, StickyRandom(N_ACTIONS), np.random.default_rng(seed), **settings)


def live(steps: int, body: gymnasium.Env[Any, Any], horde: Any, **further: Any) -> Life:
    """Run a `toy_life`, and return it closed."""
    with toy_life(body, horde, **further) as life:
        life.run(steps)
    return life


def life_of(
    bodies: Sequence[gymnasium.Env[Any, Any]],
    horde: Learner,
    behaviours: Sequence[BehaviourPolicy],
    rngs: Sequence[np.random.Generator],
    **settings: Any,
) -> Life:
    """Return a life of one robot or several, each with a body, a behaviour and random numbers."""
    life = Life(bodies[0], horde, behaviours[0], rngs[0], **settings)
    for robot in zip(bodies[1:], behaviours[1:], rngs[1:], strict=True):
        life.add_robot(*robot)
    return life


class BeforeStep(LifeHooks):
    """Calls a function before each step of a life; it has no state."""

    def __init__(self, function: Callable[[Life], None]) -> None:
        self._function = function

    def before_step(self, life: Life) -> None:
        self._function(life)

    def state(self) -> State:
        """Return nothing."""
        return {}

    def restore(self, state: State) -> None:
        """Do nothing."""


def write_question_table(path: Path, scores: Sequence[Mapping[str, object]]) -> None:
    """Write questions.csv with these cells by column; counts are 0 and other cells empty if they are not given."""
    names = [*SCORE_COLUMNS, *QuestionColumns._fields]
    lines = [[{"n_tests": 0, **score}.get(name, "") for name in names] for score in scores]
    write_csv(path, names, lines)
