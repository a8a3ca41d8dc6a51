"""Discrete observations as flat arrays with one tile per state: `TabularObservation`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from horde_agent.types import Floats

MOST_STATES = 100_000  # one tile each
MOST_CODES = 256  # values of a whole number in a Box, one tile each
MOST_NUMBERS = 1_000  # of a Box that is read number by number


class SpacePart(NamedTuple):
    """A Discrete, MultiDiscrete, MultiBinary or Box space within an observation, as numbers.

    Attributes:
        name: Name of the part, and of its number if it has one; others are "name_0", "name_1", ...
        low, high: Bounds of the numbers, shape (n_numbers,).
        n_values: Number of values of each whole number, shape (n_numbers,); 0 for real numbers.
    """

    name: str
    low: Floats
    high: Floats
    n_values: NDArray[np.int64]

    @property
    def names(self) -> list[str]:
        """Names of the numbers."""
        if self.low.size == 1:
            return [self.name]
        return [f"{self.name}_{index}" for index in range(self.low.size)]


class UnreadableSpace(ValueError):
    """A space within an observation is not made of numbers; `space` and its `name` say which."""

    def __init__(self, name: str, space: spaces.Space[Any]) -> None:
        super().__init__(f"{name or 'the observation'} is {space}")
        self.name = name
        self.space = space


def parts_of(space: spaces.Space[Any], name: str = "") -> list[SpacePart]:
    """Return the parts of an observation space, in the order of its numbers.

    Raises:
        UnreadableSpace: If a part is no Discrete, MultiDiscrete, MultiBinary or Box, or a Box of
            more than `MOST_NUMBERS` numbers.
    """
    if isinstance(space, spaces.Dict):
        prefix = name and f"{name}_"
        return _parts_within(space.items(), prefix)
    name = name or "obs"
    if isinstance(space, spaces.Tuple):
        return _parts_within(enumerate(space), f"{name}_")
    if isinstance(space, spaces.Discrete):
        return [_whole_numbers(name, np.array([space.start]), np.array([space.n]))]
    if isinstance(space, spaces.MultiDiscrete):
        return [_whole_numbers(name, space.start.ravel(), space.nvec.ravel())]
    if isinstance(space, spaces.MultiBinary):
        n_bits = math.prod(space.shape)
        return [_whole_numbers(name, np.zeros(n_bits), np.full(n_bits, 2))]
    if isinstance(space, spaces.Box) and 0 < math.prod(space.shape) <= MOST_NUMBERS:
        return [_numbers_of_box(name, space)]
    raise UnreadableSpace(name, space)


def _parts_within(items: Iterable[tuple[Any, spaces.Space[Any]]], prefix: str) -> list[SpacePart]:
    parts: list[SpacePart] = []
    for key, space in items:
        parts += parts_of(space, f"{prefix}{key}")
    return parts


def _whole_numbers(name: str, low: NDArray[Any], n_values: NDArray[Any]) -> SpacePart:
    low = low.astype(np.float64)
    high = low + n_values - 1
    return SpacePart(name, low, high, n_values.astype(np.int64))


def _numbers_of_box(name: str, box: spaces.Box) -> SpacePart:
    low = box.low.ravel().astype(np.float64)
    high = box.high.ravel().astype(np.float64)
    if np.issubdtype(box.dtype, np.integer) and (high - low < MOST_CODES).all():
        return _whole_numbers(name, low, high - low + 1)
    return SpacePart(name, low, high, np.zeros(low.size, dtype=np.int64))


def _flat_numbers(space: spaces.Space[Any], observation: Any) -> list[float]:
    """Return the numbers of an observation, in the order of `parts_of`."""
    numbers: list[float] = []
    if isinstance(space, spaces.Dict):
        for key, inner_space in space.items():
            numbers += _flat_numbers(inner_space, observation[key])
    elif isinstance(space, spaces.Tuple):
        for inner_space, value in zip(space, observation, strict=True):
            numbers += _flat_numbers(inner_space, value)
    else:
        numbers += [float(number) for number in np.ravel(observation)]
    return numbers


class TabularNumbers:
    """Turns discrete observations into flat ones: each number, the number of the joint state, the last reward.

    A single Discrete space has the number of the state alone. The joint state is left out if a part
    is real-valued, or if there are more than `MOST_STATES`.

    Attributes:
        space: The flat observation space.
        metadata: "channels" and "tile_layout" for `Interface.of`.
    """

    def __init__(self, space: spaces.Space[Any], parts: Sequence[SpacePart]) -> None:
        self._space = space
        n_values = np.concatenate([part.n_values for part in parts])
        n_states = math.prod(n_values.tolist())
        self._has_state = 0 < n_states <= MOST_STATES
        self._is_state_alone = self._has_state and n_values.size == 1
        self._low = np.concatenate([part.low for part in parts])
        self._place_values = np.ones(n_values.size, dtype=np.int64)
        if self._has_state:  # the last number changes fastest
            self._place_values[:-1] = np.cumprod(n_values[:0:-1])[::-1]

        channels: list[dict[str, Any]] = []
        tables: list[str] = []
        low: list[float] = []
        high: list[float] = []
        if not self._is_state_alone:
            for part in parts:
                channels += _channels_of(part)
                low += part.low.tolist()
                high += part.high.tolist()
        used_names = [channel["name"] for channel in channels]
        if self._has_state:
            name = unused_name("state", used_names)
            channels.append(
                {"name": name, "group": name, "unit": "1", "sensor": False, "step": 1.0}
            )
            low.append(0.0)
            high.append(n_states - 1.0)
            tables.append(_table(name, [n_states], 1))
        else:
            for part in parts:
                tables += _tables_of(part)
        name = unused_name("reward", [*used_names, "state"])
        channels.append({"name": name, "group": name, "unit": "1", "sensor": True})
        low.append(-np.inf)
        high.append(np.inf)
        self.space = spaces.Box(np.array(low, dtype=np.float32), np.array(high, dtype=np.float32))
        has_bias = str(not self._has_state).lower()
        self.metadata = {
            "channels": channels,
            "tile_layout": f"bias = {has_bias}\n{''.join(tables)}",
        }

    def __call__(self, observation: Any, reward: float) -> NDArray[np.float32]:
        """Return the flat observation, shape (n_channels,), of an observation of the space and the last reward."""
        numbers = _flat_numbers(self._space, observation)
        channels: list[float] = []
        if not self._is_state_alone:
            channels += numbers
        if self._has_state:
            channels.append(float(self._place_values @ (np.array(numbers) - self._low)))
        channels.append(reward)
        return np.array(channels, dtype=np.float32)


def _groups_of(part: SpacePart) -> list[str]:
    """Return the group of each number: one for all of a part, unless they differ in their number of values."""
    if len(set(part.n_values.tolist())) == 1:
        return [part.name] * part.low.size
    return part.names


def _channels_of(part: SpacePart) -> list[dict[str, Any]]:
    channels: list[dict[str, Any]] = []
    for name, group, n_values in zip(part.names, _groups_of(part), part.n_values, strict=True):
        channel: dict[str, Any] = {"name": name, "group": group, "unit": "1", "sensor": True}
        if n_values:
            channel["step"] = 1.0
        channels.append(channel)
    return channels


def _tables_of(part: SpacePart) -> list[str]:
    """Return the tilings of a part: a tile per value of a whole number, those of `TileCoder.default` for real ones."""
    tables = []
    n_values_of_group = dict(zip(_groups_of(part), part.n_values.tolist(), strict=True))
    for group, n_values in n_values_of_group.items():
        if n_values:
            tables.append(_table(group, [n_values], 1))
            continue
        tables.append(_table(group, [8], 8))
        if part.low.size > 1:
            tables.append(_table(group, [4, 4], 4))
    return tables


def _table(group: str, intervals: Sequence[int], n_tilings: int) -> str:
    table = f"[[tiling]]\ngroup = {json.dumps(group)}\nintervals = {list(intervals)}\ntilings = {n_tilings}\n"
    if len(intervals) == 2:
        table += "neighbour = 1\n"
    return table


def unused_name(name: str, used_names: Sequence[str]) -> str:
    """Return the name, with "_2", "_3", ... appended if it is in use."""
    candidate = name
    number = 1
    while candidate in used_names:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


class TabularObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Discrete, MultiDiscrete, MultiBinary, or Tuple and Dict observations with such parts, as a flat Box.

    The channels are each number of the observation by name, then "state", the number of the joint
    state, which alone has tiles, one per state, so that a Horde's weights are a table; and
    "reward", the last reward, 0 after a reset. A single Discrete space has "state" and "reward"
    only. Beyond `MOST_STATES` states, or with real-valued parts, each number has its own tiles: one
    per value, or those of `TileCoder.default`.

    `Interface.of`, `Life` and `horde learn --env` wrap discrete environments themselves.

    Args:
        env: The environment.

    Raises:
        ValueError: If the observation contains something else than numbers, or a Box of more than
            `MOST_NUMBERS`.

    Examples:
        >>> from horde_agent import Interface
        >>> env = TabularObservation(gymnasium.make("FrozenLake-v1"))
        >>> interface = Interface.of(env)
        >>> interface.names, interface.coder.n_features, interface.coder.n_active
        (('state', 'reward'), 16, 1)
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._numbers = TabularNumbers(env.observation_space, parts_of(env.observation_space))
        self.observation_space = self._numbers.space
        self.metadata = {**env.metadata, **self._numbers.metadata}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Reset the environment; the last reward is then 0."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._numbers(observation, 0.0), info

    def step(
        self, action: Any
    ) -> tuple[NDArray[np.float32], SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._numbers(observation, float(reward)), reward, terminated, truncated, info


def readable(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Return the environment, in a `TabularObservation` if its observations are discrete or have discrete parts."""
    if flattener(env.observation_space) is None:
        return env
    return TabularObservation(env)


def flattener(space: spaces.Space[Any]) -> TabularNumbers | None:
    """Return what makes a space's observations flat, if they are discrete or have discrete parts; else None."""
    if isinstance(space, spaces.Box):
        return None
    try:
        parts = parts_of(space)
    except UnreadableSpace:
        return None
    if not any(part.n_values.any() for part in parts):
        return None
    return TabularNumbers(space, parts)
