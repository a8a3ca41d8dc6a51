"""Lives that learn an option, the model of another, and plan with it, saved as they go and continued after a kill."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent import ConstantAction, Horde, LearnerConfig, questions
from horde_agent.options.option import Option, StopAt, Subtask
from horde_agent.options.planner import OptionModel, Planner, model_in
from horde_agent.record import snapshots
from horde_agent.saving import (
    State,
    attributes,
    generator_state,
    inner,
    nested,
    put_back,
    restore_generator,
)
from tests.agent.kills import FORKS

N_STATES = 5
GAMMA = 0.9
RIGHT = ConstantAction(1, n_actions=2)
TO_THE_END = Option("to the end", RIGHT, StopAt((4,)), GAMMA)
ONE_STEP = Option("right", RIGHT, gamma=GAMMA)
OPTIONS = (TO_THE_END, ONE_STEP)
PLAIN: dict[str, Any] = {"algorithm": "td", "step_size": 0.5, "dtype": "float64"}
PLAN_EVERY = 50


class Corridor:
    """Five states in a row; action 0 goes left, 1 right; the reward is -1, and 1 in the last state, which has no end.

    One feature is active in each state, so that weights are tables.
    """

    def __init__(self, horde: Horde) -> None:
        self.horde = horde
        self.rng = np.random.default_rng(0)
        self.state = 0
        self.horde.begin(np.zeros(1), np.array([0]))

    @classmethod
    def of(cls, model: list[Any], engine: str = "span", mode: Any = "eager") -> Corridor:
        """Return one with a Horde of these questions."""
        config = LearnerConfig.paper(engine=engine, **PLAIN)
        return cls(Horde(model, n_features=N_STATES, n_active=1, config=config, mode=mode))

    def run(self, n_steps: int) -> Corridor:
        for _ in range(n_steps):
            action = int(self.rng.integers(2))
            self.state = int(np.clip(self.state + 2 * action - 1, 0, N_STATES - 1))
            reward = -1.0
            if self.state == N_STATES - 1:
                reward = 1.0
            self.horde.learn(action, 0.5, np.zeros(1), np.array([self.state]), reward=reward)
        return self


class PlannedLife:
    """A life in the corridor that learns an option and the models of two, and plans now and then.

    Attributes:
        n_steps: Steps so far.
    """

    def __init__(self) -> None:
        subtask = Subtask(feature=3, bonus=20.0, weights=np.zeros(N_STATES))
        demons = [questions.control_of("reach 3", subtask, n_actions=2, gamma=GAMMA)]
        for option in OPTIONS:
            demons += questions.model_of(option, range(N_STATES), n_features=N_STATES)
        config = LearnerConfig(step_size=0.5)
        self.horde = Horde(demons, n_features=N_STATES, n_active=1, config=config)
        self.corridor = Corridor(self.horde)
        self.planner = Planner(self._models(), renew_every=3, n_remembered=40)
        self.n_steps = 0

    def _models(self) -> list[OptionModel]:
        return [model_in(self.horde, option, range(N_STATES)) for option in OPTIONS]

    def run(self, n_steps: int) -> PlannedLife:
        """Continue until this step; every 50 steps take the models and plan."""
        while self.n_steps < n_steps:
            self.corridor.run(1)
            self.n_steps += 1
            self.planner.remember(np.array([self.corridor.state]))
            if self.n_steps % PLAN_EVERY == 0:
                self.planner.take(self._models())
                self.planner.plan(self.corridor.rng, n_look_ahead=40)
        return self

    def results(self) -> dict[str, Any]:
        """Return what must be the same to the bit: all weights, and what later steps depend on."""
        return {
            "weights": self.horde.weights_sha256(),
            "plan": self.planner.weights.tolist(),
            "look-aheads": self.planner.n_look_ahead,
            "steps": self.n_steps,
            "next draw": self.corridor.rng.random(),
        }

    def state(self) -> State:
        """Return everything."""
        return nested(
            horde=self.horde.state(),
            planner=self.planner.state(),
            rng=generator_state(self.corridor.rng),
            corridor=attributes(self.corridor, "state"),
            life=attributes(self, "n_steps"),
        )

    def restore(self, state: State) -> PlannedLife:
        """Continue from a state, with the models of its step."""
        self.horde.restore(inner(state, "horde"))
        self.planner.take(self._models())
        self.planner.restore(inner(state, "planner"))
        restore_generator(self.corridor.rng, inner(state, "rng"))
        put_back(self.corridor, inner(state, "corridor"), "state")
        put_back(self, inner(state, "life"), "n_steps")
        return self


def live(folder: Path, n_steps: int) -> None:
    """Live from the newest snapshot in a folder on, with a snapshot at each plan; write the results at the end."""
    life = PlannedLife()
    for path in snapshots.found(folder):
        life.restore(snapshots.read(path).state)
        break
    while life.n_steps < n_steps:
        life.run(life.n_steps + PLAN_EVERY)
        path = snapshots.write(folder, life.n_steps, life.state(), {})
        snapshots.prune(path, snapshots.read)
    (folder / "results.json").write_text(json.dumps(life.results()))


def newest(folder: Path) -> str:
    """Return the name of the newest snapshot, "" without one."""
    return max((path.name for path in snapshots.found(folder)), default="")


def live_with_kills(folder: Path, n_steps: int, kills: int) -> tuple[int, dict[str, Any]]:
    """Live, with a SIGKILL soon after a new snapshot, `kills` times; return how many there were, and the results."""
    rng = np.random.default_rng(0)
    n_kills = 0
    while not (folder / "results.json").exists():
        previous = newest(folder)
        process = FORKS.Process(target=live, args=(folder, n_steps))
        process.start()
        if n_kills < kills:
            while process.is_alive() and newest(folder) <= previous:
                time.sleep(0.002)
            process.join(rng.uniform(0.0, 0.1))
            if process.is_alive():
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
                n_kills += 1
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
    return n_kills, json.loads((folder / "results.json").read_text())
