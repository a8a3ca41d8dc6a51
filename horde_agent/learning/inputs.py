"""The states and actions that a caller passes: checked and copied, and the current one of each stream."""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel
from horde_agent.kernels import checks
from horde_agent.kernels.vectors import bind
from horde_agent.learning.engine import NO_TILES
from horde_agent.learning.ratios import n_actions_of
from horde_agent.learning.stored import copies, restored_streams
from horde_agent.learning.values import AgentState, Observation
from horde_agent.saving import State, nested
from horde_agent.types import Tiles

_RAREST = 1e-30  # smallest probability of an action: its inverse is finite in float32


@functools.cache
def _bound_check() -> Any:
    """Return the kernel that checks a state, compiled for the arrays that `InputChecker` makes."""
    return bind(checks.first_wrong, like=(np.zeros(1), NO_TILES, NO_TILES))


class InputChecker:
    """Checks and copies the inputs of a Horde.

    Args:
        n_features, n_active: Numbers of features and of active tiles of a state.
        n_channels: Least number of channels of an observation.
        n_actions: Number of actions, 0 if no policy defines it.
        real_valued: True if a state is given by all feature values, False if by its active tiles.
    """

    def __init__(
        self,
        n_features: int,
        n_active: int,
        n_channels: int,
        n_actions: int,
        *,
        real_valued: bool = False,
    ) -> None:
        self.n_features = n_features
        self.n_active = n_active
        self.n_channels = n_channels
        self.n_actions = n_actions
        self.real_valued = real_valued
        self._seen = np.zeros(n_features + 1, dtype=np.int64)

    def action(self, action: Any, probability: Any) -> tuple[int, float]:
        """Return an action and its probability as plain numbers; accept arrays of one element."""
        n = self.n_actions
        a: float = action
        b: float = probability
        is_whole = True
        # The common case needs no conversion; NaN and infinity are refused below
        if type(action) is not int or type(probability) is not float:
            a = _the_one(action)
            b = _the_one(probability)
            is_whole = not isinstance(action, bool) and a >= 0 and a == math.floor(a)
        if not is_whole or a < 0 or (n and a >= n):
            expected = "from 0"
            if n:
                expected = f"in 0..{n - 1}"
            raise ValueError(f"action must be a whole number {expected}, not {action!r}")
        if not _RAREST <= b <= 1.0:
            raise ValueError(
                f"probability must be in (0, 1], and at least {_RAREST:g}, not {probability!r}"
            )
        return int(a), b

    def checked(self, observation: Observation, tiles: Tiles) -> AgentState:
        """Return validated copies of an observation, (n_sensors,), float64, and its tiles, (n_active,), int64."""
        observation = np.array(observation, dtype=np.float64)
        n = self.n_channels
        if observation.ndim != 1 or observation.size < n:
            raise ValueError(
                f"observation must be flat with at least {n} channels, not {observation.shape}"
            )
        features: NDArray[Any] = np.asarray(tiles)
        if self.real_valued:
            features = self._copied_phi(features)
            indices = NO_TILES
        elif features.shape != (self.n_active,) or features.dtype.kind not in "iu":
            raise ValueError(
                f"tiles must be integers of shape ({self.n_active},), not {features.dtype} {features.shape}"
            )
        else:
            indices = np.array(features, dtype=np.int64)
            features = indices
        wrong = _bound_check()(observation, indices, self._seen)
        if wrong != -1:
            self._refuse(wrong, observation, indices)
        return observation, features

    def tiles(self, tiles: Tiles) -> Tiles:
        """Return a validated copy of the tiles, (n_active,), as int64."""
        return self.checked(np.zeros(self.n_channels), tiles)[1]

    def _copied_phi(self, phi: NDArray[Any]) -> NDArray[Any]:
        """Return a validated copy of real-valued features, (n_features,), as float64."""
        if phi.shape != (self.n_features,) or phi.dtype.kind != "f":
            raise ValueError(
                f"phi must be floats of shape ({self.n_features},), not {phi.dtype} {phi.shape}"
            )
        if not np.isfinite(phi).all():
            raise ValueError(
                f"phi must be finite; feature {np.flatnonzero(~np.isfinite(phi))[0]} is not"
            )
        return np.array(phi, dtype=np.float64)

    def _refuse(self, wrong: int, observation: Observation, tiles: Tiles) -> None:
        """Raise ValueError about the place `wrong`, from `checks.first_wrong`, of a state."""
        if wrong >= 0:
            raise ValueError(
                f"observation must be finite, or NaN for a missing reading; channel {wrong} is {observation[wrong]}"
            )
        if wrong <= -2 - tiles.size:
            twice = tiles[-2 - tiles.size - wrong]
            raise ValueError(f"tiles must be different features; {twice} is there more than once")
        raise ValueError(
            f"tiles must lie in 0..{self.n_features - 1}; number {-2 - wrong} is {tiles[-2 - wrong]}"
        )


def input_limits(questions: Sequence[GVF]) -> tuple[int, int]:
    """Return the least number of channels of an observation, and the number of actions, 0 if no policy defines it."""
    channels = [
        int(question.cumulant.index)
        for question in questions
        if isinstance(question.cumulant, Channel)
    ]
    n_actions = n_actions_of(question.target_policy for question in questions)
    return max(channels, default=-1) + 1, n_actions


class CurrentStates:
    """The state, an observation and its tiles, in which the next transition of each stream begins.

    Attributes:
        stream: Number of the selected stream.
        state: Its current state; None before it begins and after it has ended.
    """

    def __init__(self) -> None:
        self.stream = 0
        self.state: AgentState | None = None
        self._other_states: dict[int, AgentState | None] = {}

    def select(self, stream: int) -> None:
        """Select another stream."""
        self._other_states[self.stream] = self.state
        self.state = self._other_states.pop(stream, None)
        self.stream = stream

    def tiles(self) -> dict[int, Tiles]:
        """Return the current tiles, (n_active,), of each stream that has begun."""
        states = {**self._other_states, self.stream: self.state}
        return {stream: state[1] for stream, state in states.items() if state is not None}

    def saved(self) -> State:
        """Return the number of the selected stream, and copies of the states of all streams that have begun."""
        states: dict[int, State] = {}
        for stream, state in {**self._other_states, self.stream: self.state}.items():
            if state is not None:
                states[stream] = {"observation": state[0], "tiles": state[1]}
        in_all = {f"stream{k}": copies(state) for k, state in states.items()}
        return {"stream": np.array(self.stream), **nested(**in_all)}

    def restore(self, saved: State) -> None:
        """Restore the result of `saved`."""
        self.stream, states = restored_streams(saved)
        self._other_states = {
            stream: (arrays["observation"], arrays["tiles"]) for stream, arrays in states.items()
        }
        self.state = self._other_states.pop(self.stream, None)


def _the_one(value: Any) -> float:
    """Return a finite number, also from an array of one element as in vector environments; otherwise NaN."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    is_finite = isinstance(value, numbers.Real) and math.isfinite(value)
    return float(value) if is_finite else math.nan
