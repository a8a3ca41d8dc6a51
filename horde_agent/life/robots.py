"""Several robots that share a Horde and take turns, each with its own body, behaviour and random numbers.

A robot behaves and learns for TURN steps, then the next one continues where it stopped, in a fixed
order. An excursion and the drive after it belong to one turn. So the recording is the sequence of
all transitions in the order in which they are learned from, and learning from it again gives the
same weights, to the bit. Steps are those of all robots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from horde_agent.horde import Horde
from horde_agent.life.experience import Experience
from horde_agent.life.life import Life
from horde_agent.policies import BehaviourPolicy
from horde_agent.record import Flag, Phase
from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.types import Integers

TURN = 128  # steps; a change of robots takes about 3 ms of processor time for 795 questions

_OF_ROBOT = (
    *(
        "env",
        "body",
        "behaviour",
        "rng",
        "excursions",
        "dockings",
        "t",
        "_n_not_applied_in_a_row",
        "_has_begun",
    ),
    *("_flags", "_is_observed", "_observation", "_pose", "_tiles", "_process_env"),
    *("_follows_not_finite", "_is_resumed"),
)


class Robots(Life):
    """A life of several robots that take turns: see `Life`, whose counts are those of all robots.

    Attributes of a single robot, such as `env`, `t` and `dockings`, are those of the robot whose
    turn it is.

    Args:
        envs: An environment for each robot, all of one kind.
        horde: Learns from all robots: `Horde.select_stream`.
        behaviours: A behaviour policy for each robot.
        rngs: Random numbers of each robot; robot k begins as a life of one robot with the same
            numbers.
        **options: As of `Life`.

    Attributes:
        robot: Number of the robot whose turn it is, from 0.

    Raises:
        ValueError: If there is no robot, or a robot lacks a behaviour or random numbers.
    """

    def __init__(
        self,
        envs: Sequence[gymnasium.Env[Any, Any]],
        horde: Horde,
        behaviours: Sequence[BehaviourPolicy],
        rngs: Sequence[np.random.Generator],
        **options: Any,
    ) -> None:
        if not len(envs) == len(behaviours) == len(rngs) > 0:
            raise ValueError(
                f"each robot needs an environment, a behaviour and random numbers, not {len(envs)}, {len(behaviours)} "
                f"and {len(rngs)} of them"
            )
        self._others: dict[int, dict[str, Any]] = {}
        super().__init__(envs[0], horde, behaviours[0], rngs[0], **options)
        settings = self.interface, options.get("excursions"), options.get("docking")
        robots = zip(envs, behaviours, rngs, strict=True)
        self._others = {
            k: _part_of(Experience(*robot, *settings)) for k, robot in enumerate(robots) if k
        }
        self._set_excursion_policies()
        # In finished turns
        self._steps_of = np.zeros(len(envs), dtype=np.int64)
        self._turn_began = 0

    @property
    def steps_of(self) -> Integers:
        """Steps of each robot so far, shape (n_robots,)."""
        of_turn = (self.steps - self._turn_began) * (np.arange(self._steps_of.size) == self.robot)
        return np.asarray(self._steps_of + of_turn)

    def _take_turn(self) -> None:
        if self.steps - self._turn_began < TURN or self.excursions.phase is Phase.EXCURSION:
            return
        self._steps_of, self._turn_began = self.steps_of, self.steps
        self._load((self.robot + 1) % self._steps_of.size)
        self.student.select_robot(self.robot)
        self.begin()
        self._flags |= Flag.TURN

    def _load(self, robot: int) -> None:
        """Make the attributes of one robot those of another one."""
        self._others[self.robot] = _part_of(self)
        vars(self).update(self._others.pop(robot))
        self.robot = robot

    def state(self) -> State:
        """Return everything that the future of these robots depends on: `Life.state`."""
        life_state = super().state()
        robot = self.robot
        robot_states = {}
        for k in sorted(self._others):
            self._load(k)
            robot_states[f"robot{k}"] = self._state_of_robot()
        self._load(robot)
        return life_state | nested(
            turns=attributes(self, "robot", "_steps_of", "_turn_began"), **robot_states
        )

    def restore(self, state: State) -> None:
        """Continue from what `state` returned: `Life.restore`."""
        turns = inner(state, "turns")
        for k in range(self._steps_of.size):
            if k != int(turns["robot"]):
                self._load(k)
                self._restore_robot(inner(state, f"robot{k}"))
        self._load(int(turns["robot"]))
        put_back(self, turns, "robot", "_steps_of", "_turn_began")
        super().restore(state)

    def draw_from(self, rngs: Sequence[np.random.Generator]) -> None:
        """Continue with other random numbers: `Life.draw_from`."""
        self.rng = rngs[self.robot]
        for robot, part in self._others.items():
            part["rng"] = rngs[robot]

    def _set_excursion_policies(self) -> None:
        super()._set_excursion_policies()
        for of_robot in self._others.values():
            of_robot["excursions"].rearrange(self.excursions.policies)


def _part_of(life: Experience) -> dict[str, Any]:
    return {name: getattr(life, name) for name in _OF_ROBOT}
