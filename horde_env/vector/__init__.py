"""PenVectorEnv: many simulated robots as a Gymnasium vector environment, stepped in one call of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from horde_env.backend import Floats, Observation
from horde_env.env import RobotEnv
from horde_env.spaces import discrete_requests, velocity_request

Bools = NDArray[np.bool_]
Step = tuple[Observation, Floats, Bools, Bools, dict[str, Any]]


def check_vector_arguments(
    num_envs: int = 1,
    max_episode_steps: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
) -> None:
    """Raise ValueError if a number is not a positive integer, or the mode is unknown."""
    for name, number in (("num_envs", num_envs), ("max_episode_steps", max_episode_steps)):
        is_whole = (
            isinstance(number, int | np.integer) and not isinstance(number, bool) and number >= 1
        )
        if not is_whole and not (number is None and name == "max_episode_steps"):
            raise ValueError(f"{name} must be a positive integer, not {number!r}")
    try:
        AutoresetMode(autoreset_mode)
    except ValueError:
        modes = ", ".join(repr(mode.value) for mode in AutoresetMode)
        raise ValueError(f"autoreset_mode must be one of {modes}, not {autoreset_mode!r}") from None


class PenVectorEnv(VectorEnv[Observation, Any, Any]):
    """Many robots, each bit for bit as in a `RobotEnv` with the same seed; a step is one call of a parallel kernel.

    Observations, rewards, flags and infos are those of `gymnasium.vector.SyncVectorEnv` over such
    environments. An episode ends by `max_episode_steps` alone. The number of threads is numba's
    (NUMBA_NUM_THREADS); results do not depend on it.

    Args:
        env: An environment of one robot; the robots start in it one after the other.
        make_batch: Returns the state of n robots, from the environment after a reset; see
            `robots.critterbot.simulator.batch.BatchState`.
        num_envs: Number of robots.
        max_episode_steps: Truncates an episode after this number of steps; never if None.
        autoreset_mode: NEXT_STEP (the step after an episode's end resets and ignores its action),
            SAME_STEP (the step that ends it resets too, and puts the last observation and info
            under final_obs and final_info), or DISABLED (reset it with `options={"reset_mask":
            mask}`).

    Raises:
        ValueError: If `num_envs` or `max_episode_steps` is not a positive integer, or the mode is
            unknown.
    """

    def __init__(
        self,
        env: RobotEnv,
        make_batch: Any,
        *,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        check_vector_arguments(num_envs, max_episode_steps, autoreset_mode)
        self._mode = AutoresetMode(autoreset_mode)
        self.num_envs = int(num_envs)
        self.env = env
        self.metadata = env.metadata | {
            "autoreset_mode": self._mode,
            "restorable": False,
            "manoeuvres": [],
        }
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.observation_space = batch_space(env.observation_space, self.num_envs)
        self.action_space = batch_space(env.action_space, self.num_envs)
        if max_episode_steps is None:
            self._max_episode_steps = np.iinfo(np.int64).max
        else:
            self._max_episode_steps = int(max_episode_steps)
        # Counts and flags, of unit "1", are integers
        self._units = {key.name: key.unit for key in env.info_keys}
        self._make_batch = make_batch
        self._batch: Any = None
        self._generators: list[Any] = [None] * self.num_envs
        self._observations = np.zeros((self.num_envs, env.robot.n_channels), np.float32)
        self._n_steps = np.zeros(self.num_envs, np.int64)
        self._is_over = np.zeros(self.num_envs, np.bool_)
        self._was_begun = np.zeros(self.num_envs, np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode of every robot, or of those in a mask.

        Args:
            seed: Of robot i: seed + i, or seed[i]; None continues its random numbers.
            options: None, or {"reset_mask": array of bool, shape (num_envs,), at least one True}.

        Returns:
            The observations of all robots, and the infos of those that begin.

        Raises:
            ValueError: If `seed` or `options` is invalid.
        """
        n = self.num_envs
        seeds: list[int | None]
        if isinstance(seed, int | None):
            seeds = [None] * n
            if seed is not None:
                seeds = [seed + i for i in range(n)]
        else:
            seeds = list(seed)
        if len(seeds) != n:
            raise ValueError(
                f"seed must be an integer, None, or a list of {n}, one per robot; not {len(seeds)}"
            )
        mask = self._mask(options)
        self._observations = self._observations.copy()
        self._begin(mask, seeds)
        return self._observations.copy(), self._infos(mask)

    def step(self, actions: Any) -> Step:
        """Take a step of every robot; a robot whose episode is over begins the next one, in NEXT_STEP mode.

        Raises:
            ValueError: If the actions are not of the action space; no robot has moved.
            gymnasium.error.ResetNeeded: Before the first reset, after close, and without autoreset
                after an episode.
        """
        if self._batch is None or not self._was_begun.all():
            raise ResetNeeded("not every robot has begun an episode: call reset() before step()")
        # NEXT_STEP: robots whose episode ended in the last step are reset now; the others move.
        waits_for_reset = self._is_over
        moves = ~waits_for_reset
        if self._mode == AutoresetMode.DISABLED and waits_for_reset.any():
            first = np.flatnonzero(waits_for_reset)[0]
            raise ResetNeeded(
                f"the episode of robot {first} is over: reset(options={{'reset_mask': mask}}) first"
            )
        requests = self._requests(actions)
        previous = self._observations
        observations = np.empty_like(previous)
        self._batch.exchange(requests, moves, observations)

        task_rewards = self.env.task(previous, requests, observations, self.env.robot)
        rewards = np.where(moves, task_rewards, 0.0)
        self._n_steps += moves
        truncations = moves & (self._n_steps >= self._max_episode_steps)
        self._observations = observations
        self._is_over = truncations.copy()

        infos: dict[str, Any] = {}
        to_reset = waits_for_reset
        if self._mode == AutoresetMode.SAME_STEP and truncations.any():
            to_reset = truncations
            infos = self._final_infos(observations, truncations)
        if to_reset.any():
            self._begin(to_reset, [None] * self.num_envs)
        infos |= self._infos(np.ones(self.num_envs, np.bool_))

        terminations = np.zeros(self.num_envs, np.bool_)
        return self._observations.copy(), rewards, terminations, truncations, infos

    def close_extras(self, **_: Any) -> None:
        """Free the simulation."""
        self._batch = None
        self.env.close()

    def _mask(self, options: dict[str, Any] | None) -> Bools:
        """Return which robots a reset begins."""
        if not options:
            return np.ones(self.num_envs, np.bool_)
        mask = None
        if isinstance(options, dict) and len(options) == 1:
            mask = options.get("reset_mask")
        is_mask = (
            isinstance(mask, np.ndarray)
            and mask.dtype == np.bool_
            and mask.shape == (self.num_envs,)
        )
        if not isinstance(mask, np.ndarray) or not is_mask or not mask.any():
            raise ValueError(
                f'options must be None or {{"reset_mask": array of {self.num_envs} bool, at least one True}}, not '
                f"{options!r}; manoeuvres are those of an environment of one robot"
            )
        return mask

    def _begin(self, mask: Bools, seeds: list[int | None]) -> None:
        """Begin an episode of each robot in the mask."""
        for i in np.flatnonzero(mask).tolist():
            if seeds[i] is not None or self._generators[i] is None:
                self._generators[i], _ = seeding.np_random(seeds[i])
            self.env.np_random = self._generators[i]
            self._observations[i], info = self.env.reset()
            if self._batch is None:
                self._batch = self._make_batch(self.env, self.num_envs)
            self._batch.store(i, self._generators[i], info)
        self._n_steps[mask] = 0
        self._is_over[mask] = False
        self._was_begun[mask] = True

    def _requests(self, actions: Any) -> Floats:
        """Return each robot's request, m/s, m/s, rad/s, shape (num_envs, 3)."""
        if self.env.action_type == "discrete":
            return discrete_requests(actions, self.num_envs, self.env.robot.requests)
        return velocity_request(actions, self.env.robot.largest_request, self.num_envs)

    def _final_infos(self, observations: Observation, mask: Bools) -> dict[str, Any]:
        """Return the last observations and infos of the robots in the mask, whose episodes ended."""
        final = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(mask):
            final[i] = observations[i].copy()
        infos = _masked("final_obs", final, mask)
        return infos | _masked("final_info", self._infos(mask), mask)

    def _infos(self, mask: Bools) -> dict[str, Any]:
        """Return the infos of the robots in the mask, in Gymnasium's form."""
        columns = np.where(mask, self._batch.numbers.T, 0.0)
        masks = np.tile(mask, (len(self._batch.names), 1))
        whole = columns.astype(np.int64)
        infos: dict[str, Any] = {}
        for k, name in enumerate(self._batch.names):
            if self._units[name] == "1":
                infos[name] = whole[k]
            else:
                infos[name] = columns[k]
            infos[f"_{name}"] = masks[k]
        return infos


def _masked(name: str, values: Any, mask: Bools) -> dict[str, Any]:
    """Return an info and its mask, as `SyncVectorEnv` names them."""
    return {name: values, f"_{name}": mask.copy()}
