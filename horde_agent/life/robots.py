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

from horde_agent.learner import Learner
from horde_agent.life.life import Life
from horde_agent.life.robot_stream import RobotStream
from horde_agent.policies import BehaviourPolicy
from horde_agent.record import Flag, Phase
from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.types import Integers

TURN = 128  # steps; a change of robots takes about 3 ms of processor time for 795 questions


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
        horde: Learner,
        behaviours: Sequence[BehaviourPolicy],
        rngs: Sequence[np.random.Generator],
        **options: Any,
    ) -> None:
        if not len(envs) == len(behaviours) == len(rngs) > 0:
            raise ValueError(
                f"each robot needs an environment, a behaviour and random numbers, not {len(envs)}, {len(behaviours)} "
                f"and {len(rngs)} of them"
            )
        super().__init__(envs[0], horde, behaviours[0], rngs[0], **options)
        arguments = zip(envs[1:], behaviours[1:], rngs[1:], strict=True)
        for number, (env, behaviour, rng) in enumerate(arguments, 1):
            robot_stream = RobotStream(
                env,
                behaviour,
                rng,
                interface=self.interface,
                excursions=options.get("excursions"),
                docking=options.get("docking"),
                counts=self.counts,
                number=number,
            )
            self.robots.append(robot_stream)
        self._set_excursion_policies()
        # In finished turns
        self._steps_of = np.zeros(len(envs), dtype=np.int64)
        self._turn_began = 0

    @property
    def steps_of(self) -> Integers:
        """Steps of each robot so far, shape (n_robots,)."""
        steps_of = self._steps_of.copy()
        steps_of[self.robot] += self.steps - self._turn_began
        return steps_of

    def _before_step(self) -> None:
        """Select the robot whose turn it is."""
        if self.steps - self._turn_began >= TURN and self.excursions.phase is not Phase.EXCURSION:
            self._begin_turn()
        super()._before_step()

    def _begin_turn(self) -> None:
        self._steps_of = self.steps_of
        self._turn_began = self.steps
        self.robot = (self.robot + 1) % len(self.robots)
        self.student.select_robot(self.robot)
        self.begin()
        self.robot_stream.flags |= Flag.TURN

    def state(self) -> State:
        """Return everything that the future of these robots depends on: `Life.state`."""
        life_state = super().state()
        turns = attributes(self, "robot", "_steps_of", "_turn_began")
        robot_states = {
            f"robot{k}": robot_stream.state()
            for k, robot_stream in enumerate(self.robots)
            if k != self.robot
        }
        return life_state | nested(turns=turns, **robot_states)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned: `Life.restore`."""
        turns = inner(state, "turns")
        put_back(self, turns, "robot", "_steps_of", "_turn_began")
        for k, robot_stream in enumerate(self.robots):
            if k != self.robot:
                robot_stream.restore(inner(state, f"robot{k}"))
        super().restore(state)

    def draw_from(self, rngs: Sequence[np.random.Generator]) -> None:
        """Continue with other random numbers: `Life.draw_from`."""
        for robot_stream, rng in zip(self.robots, rngs, strict=True):
            robot_stream.rng = rng
