"""Interface: channels, actions, period and tile coder of a robot, read from its Gymnasium environment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, FrameStackObservation
from numpy.typing import NDArray

from horde_agent.feedback import Feedback
from horde_agent.gvf import GVF, named
from horde_agent.tiles import TileCoder
from horde_agent.types import Bools, Floats, Tiles

_NOT_ONE = (
    "Interface.of needs one Gymnasium environment, not a {}: a Horde has one stream of experience, so create one "
    "environment with gymnasium.make"
)

_UNBOUNDED_FROM = 1e30  # larger bounds, such as float32's largest number, mean that there is none


class ChannelInfo(NamedTuple):
    """One number of the observation.

    Attributes:
        name, group, unit: As in the environment's metadata.
        is_sensor: True if families of questions include it.
        step: Quantisation step of the observation, in its own unit; None if unknown.
    """

    name: str
    group: str
    unit: str
    is_sensor: bool
    step: float | None = None


@dataclass(frozen=True, slots=True)
class Scaler:
    """Scales each channel to [0, 1]: linearly if it is bounded, otherwise by 0.5 + atan(x / s) / pi.

    Args:
        low, high: Bounds of the observation space, each of shape (n_inputs,).
        spread: s, the reading of an unbounded channel that is mapped to 0.75.
    """

    low: Floats
    high: Floats
    spread: float = 1.0

    def __call__(self, observation: NDArray[Any]) -> Floats:
        """Return the observation scaled and clipped, float64, shape (n_inputs,), which it must have; NaN stays NaN."""
        x = np.asarray(observation, dtype=np.float64)
        if x.shape != self.low.shape:
            raise ValueError(f"observation must have shape {self.low.shape}, not {x.shape}")
        bounded = self.bounded
        span = np.where(bounded, self.high - np.where(bounded, self.low, 0.0), 1.0)
        linear = (x - np.where(bounded, self.low, 0.0)) / span
        return np.clip(np.where(bounded, linear, 0.5 + np.arctan(x / self.spread) / math.pi), 0.0, 1.0)

    @property
    def bounded(self) -> Bools:
        """Mask of the channels with two finite bounds, shape (n_inputs,)."""
        return np.asarray(
            (np.abs(self.low) < _UNBOUNDED_FROM) & (np.abs(self.high) < _UNBOUNDED_FROM) & (self.high > self.low)
        )


@dataclass(frozen=True)
class Interface:
    """Description of a robot for the agent.

    Attributes:
        channels: The channels of an observation, in order.
        actions: Names of the discrete actions, in order.
        period_s: Duration of a step, in seconds.
        coder: Tile coder of the scaled observation, followed by the scaled predictions fed back.
        scaler: Scaling of the observation to [0, 1].
        feedback: The predictions that are fed back as features, if any.
        flatten: Turns the environment's discrete observations into flat arrays of these channels; None
            if they are flat arrays.

    Examples:
        >>> interface = Interface.of(gymnasium.make("CartPole-v1"))
        >>> interface.names, interface.actions
        (('obs_0', 'obs_1', 'obs_2', 'obs_3'), ('action_0', 'action_1'))
    """

    channels: tuple[ChannelInfo, ...]
    actions: tuple[str, ...]
    period_s: float
    coder: TileCoder
    scaler: Scaler
    feedback: Feedback | None = None
    flatten: TabularNumbers | None = None

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any]) -> Interface:
        """Read the interface from an environment's spaces and metadata.

        `metadata` may have "channels" (list of {name, group, unit, sensor}), "actions", "period_s" and "tile_layout".
        The defaults are obs_0.., action_0.., 1 s, and a layout made from the space. A channel's "range", [low, high] in
        its unit, is stored with a recording and must be the same to resume it; its "step" is the quantisation step of
        the observation, which determines the nearly constant returns. A wrapper that changes the observation may set
        its own `metadata`. Frames stacked by `FrameStackObservation` are supported: channels of the frame before the
        newest are "light_0@-1" in group "light@-1", and so on. They have the same tiles, and no questions. Discrete
        observations are those of `TabularObservation`: one tile per state.

        Raises:
            ValueError: If the observation is neither a flat Box of floats nor discrete, the action space not Discrete
                from 0, or the metadata does not fit them. The message names a wrapper that converts the space.
        """
        if not isinstance(env, gymnasium.Env):
            raise ValueError(_NOT_ONE.format(type(env).__name__))
        is_flat = isinstance(env.observation_space, spaces.Box)
        flatten = None if is_flat else _flattener(env.observation_space)
        env = readable(env)
        box, discrete = _flat_box(env), _discrete(env.action_space)
        metadata: Mapping[str, Any] = env.metadata
        channels, ages = _channels(metadata.get("channels"), int(box.shape[0]), _n_frames(env))
        layout = metadata.get("tile_layout")
        if layout is None:
            coder = TileCoder.default(len(channels))
        else:
            coder = TileCoder.from_layout(layout, [channel._asdict() for channel in channels], ages)
        actions = _actions(metadata.get("actions"), env, int(discrete.n))
        scaler = Scaler(box.low.astype(np.float64), box.high.astype(np.float64))
        return cls(
            channels,
            actions,
            period_s=float(metadata.get("period_s", 1.0)),
            coder=coder,
            scaler=scaler,
            flatten=flatten,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the channels, in order."""
        return tuple(channel.name for channel in self.channels)

    @property
    def steps(self) -> Floats:
        """Quantisation step of each channel, in its own unit, shape (n_channels,); NaN if unknown."""
        return np.array([np.nan if channel.step is None else channel.step for channel in self.channels])

    @property
    def sensors(self) -> tuple[int, ...]:
        """Indices of the channels that families of questions include."""
        return tuple(i for i, channel in enumerate(self.channels) if channel.is_sensor)

    def index(self, name: str) -> int:
        """Return the position of a channel in the observation; raise ValueError if there is no such channel."""
        if name not in self.names:
            raise ValueError(f"unknown channel {name!r}; there are {', '.join(self.names)}")
        return self.names.index(name)

    def feeding_back(self, questions: Sequence[GVF], tables: Sequence[Mapping[str, Any]]) -> Interface:
        """Return an interface that also codes the predictions of the previous step: n_features and n_active grow.

        Create questions about Gibbs policies, which depend on n_features, from the returned interface.

        Args:
            questions: The questions of the Horde, or at least those that are fed back.
            tables: `[[feedback]]` tables, as in `Feedback.of`: tilings and range of each prediction.

        Raises:
            ValueError: If predictions are fed back already, or a table is wrong.

        Source: White, Modayil & Sutton (2012), figure 1.
        """
        if self.feedback is not None:
            raise ValueError("this interface has feedback already; pass all [[feedback]] tables at once")
        bounds = np.where(self.scaler.bounded, [self.scaler.low, self.scaler.high], [[-np.inf], [np.inf]])
        feedback = Feedback.of(named(questions, self.names), tables, bounds)
        coder = self.coder.extended(feedback.tilings, feedback.groups, [table["group"] for table in feedback.tilings])
        return replace(self, coder=coder, feedback=feedback)

    def encode(self, observation: NDArray[Any], predictions: NDArray[Any] | None = None) -> Tiles:
        """Return the active tiles of an (unscaled) observation, shape (n_active,).

        Args:
            observation: The observation, shape (n_channels,), or a discrete one as the environment returns it.
            predictions: Predictions of the previous step that are fed back,
                `horde.predictions[interface.feedback.demons(horde.names)]`; None at the beginning of a stream.

        Raises:
            ValueError: If an argument has a wrong shape, or predictions are given without feedback.
        """
        if self.flatten is not None and not _is_array_of(observation, len(self.channels)):
            observation = self.flatten(observation, reward=0.0)
        scaled = self.scaler(observation)
        if self.feedback is not None:
            scaled = np.concatenate([scaled, self.feedback.scaled(predictions)])
        elif predictions is not None:
            raise ValueError("predictions were given, but this interface has no feedback: see feeding_back")
        return self.coder.encode(scaled)


# ---- discrete observations -------------------------------------------------------------------------------------------

MOST_STATES = 100_000  # one tile each
MOST_CODES = 256  # values of a whole number in a Box, one tile each
MOST_NUMBERS = 1_000  # of a Box that is read number by number


class Part(NamedTuple):
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


def parts_of(space: spaces.Space[Any], name: str = "") -> list[Part]:
    """Return the parts of an observation space, in the order of its numbers.

    Raises:
        UnreadableSpace: If a part is no Discrete, MultiDiscrete, MultiBinary or Box, or a Box of more than
            `MOST_NUMBERS` numbers.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        items = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
        prefix = f"{name}_" if name else ""
        if isinstance(space, spaces.Tuple) and not name:
            prefix = "obs_"
        return [part for key, inner in items for part in parts_of(inner, f"{prefix}{key}")]
    name = name or "obs"
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


def _whole_numbers(name: str, low: NDArray[Any], n_values: NDArray[Any]) -> Part:
    low = low.astype(np.float64)
    high = low + n_values - 1
    return Part(name, low, high, n_values.astype(np.int64))


def _numbers_of_box(name: str, box: spaces.Box) -> Part:
    low = box.low.ravel().astype(np.float64)
    high = box.high.ravel().astype(np.float64)
    if np.issubdtype(box.dtype, np.integer) and (high - low < MOST_CODES).all():
        return _whole_numbers(name, low, high - low + 1)
    return Part(name, low, high, np.zeros(low.size, dtype=np.int64))


def _flat_numbers(space: spaces.Space[Any], observation: Any) -> list[float]:
    """Return the numbers of an observation, in the order of `parts_of`."""
    if isinstance(space, spaces.Dict):
        return [number for key, inner in space.items() for number in _flat_numbers(inner, observation[key])]
    if isinstance(space, spaces.Tuple):
        pairs = zip(space, observation, strict=True)
        return [number for inner, value in pairs for number in _flat_numbers(inner, value)]
    return [float(number) for number in np.ravel(observation)]


class TabularNumbers:
    """Turns discrete observations into flat ones: each number, the number of the joint state, the last reward.

    A single Discrete space has the number of the state alone. The joint state is left out if a part is real-valued, or
    if there are more than `MOST_STATES`.

    Attributes:
        space: The flat observation space.
        metadata: "channels" and "tile_layout" for `Interface.of`.
    """

    def __init__(self, space: spaces.Space[Any], parts: Sequence[Part]) -> None:
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
            channels.append({"name": name, "group": name, "unit": "1", "sensor": False, "step": 1.0})
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
        bias = "false" if self._has_state else "true"
        self.metadata = {"channels": channels, "tile_layout": f"bias = {bias}\n{''.join(tables)}"}

    def __call__(self, observation: Any, reward: float) -> NDArray[np.float32]:
        """Return the flat observation, shape (n_channels,), of an observation of the space and the last reward."""
        numbers = _flat_numbers(self._space, observation)
        state = [float(self._place_values @ (np.array(numbers) - self._low))] if self._has_state else []
        own = [] if self._is_state_alone else numbers
        return np.array([*own, *state, reward], dtype=np.float32)


def _groups_of(part: Part) -> list[str]:
    """Return the group of each number: one for all of a part, unless they differ in their number of values."""
    if len(set(part.n_values.tolist())) == 1:
        return [part.name] * part.low.size
    return part.names


def _channels_of(part: Part) -> list[dict[str, Any]]:
    channels: list[dict[str, Any]] = []
    for name, group, n_values in zip(part.names, _groups_of(part), part.n_values, strict=True):
        channel: dict[str, Any] = {"name": name, "group": group, "unit": "1", "sensor": True}
        if n_values:
            channel["step"] = 1.0
        channels.append(channel)
    return channels


def _tables_of(part: Part) -> list[str]:
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
    pairs = "neighbour = 1\n" if len(intervals) == 2 else ""
    quoted = json.dumps(group)
    return f"[[tiling]]\ngroup = {quoted}\nintervals = {list(intervals)}\ntilings = {n_tilings}\n{pairs}"


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

    The channels are each number of the observation by name, then "state", the number of the joint state, which alone
    has tiles, one per state, so that a Horde's weights are a table; and "reward", the last reward, 0 after a reset. A
    single Discrete space has "state" and "reward" only. Beyond `MOST_STATES` states, or with real-valued parts, each
    number has its own tiles: one per value, or those of `TileCoder.default`.

    `Interface.of`, `Life` and `horde learn --env` wrap discrete environments themselves.

    Args:
        env: The environment.

    Raises:
        ValueError: If the observation contains something else than numbers, or a Box of more than `MOST_NUMBERS`.

    Examples:
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

    def step(self, action: Any) -> tuple[NDArray[np.float32], SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._numbers(observation, float(reward)), reward, terminated, truncated, info


def readable(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Return the environment, in a `TabularObservation` if its observations are discrete or have discrete parts."""
    if isinstance(env.observation_space, spaces.Box) or _flattener(env.observation_space) is None:
        return env
    return TabularObservation(env)


def _flattener(space: spaces.Space[Any]) -> TabularNumbers | None:
    """Return what makes a space's observations flat if they have discrete parts; else None."""
    try:
        parts = parts_of(space)
    except UnreadableSpace:
        return None  # which `_flat_box` explains
    is_discrete = any(part.n_values.any() for part in parts)
    return TabularNumbers(space, parts) if is_discrete else None


def _is_array_of(observation: Any, n: int) -> bool:
    return isinstance(observation, np.ndarray) and observation.shape == (n,)


# ---- spaces that are refused -----------------------------------------------------------------------------------------


def _flat_box(env: gymnasium.Env[Any, Any]) -> spaces.Box:
    """Return the flat Box of floats that an environment's observation space is.

    Raises:
        ValueError: If it is none; the message names a wrapper that helps.
    """
    space = env.observation_space
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating):
        return space
    raise ValueError(f"the observation space must be a flat Box of floats or discrete, not {space}; {_advice(env)}")


def _advice(env: gymnasium.Env[Any, Any]) -> str:
    """Return what to do about an observation space that cannot be read."""
    space = env.observation_space
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        if _flattens_discrete(env):
            without = "leave out FlattenObservation (--wrap flatten)"
            return f"{without}: discrete observations are read as they are, with one tile per state"
        return "wrap the environment: gymnasium.wrappers.DtypeObservation(env, numpy.float32), or --wrap float"
    try:
        parts_of(space)
    except UnreadableSpace as error:
        return _advice_about(space, error)
    return "wrap the environment: gymnasium.wrappers.FlattenObservation(env), or --wrap flatten"


def _advice_about(space: spaces.Space[Any], unreadable: UnreadableSpace) -> str:
    """Return what to do about a part that is no number, or an image."""
    if isinstance(space, spaces.Dict):
        keys = [key for key, inner in space.items() if _is_readable(inner)]
        if keys:
            flag = f"--wrap keep:{'+'.join(map(str, keys))}"
            return f"leave {unreadable.name!r} out: gymnasium.wrappers.FilterObservation(env, {keys}), or {flag}"
    what = f"{unreadable.name!r}"
    if isinstance(unreadable.space, spaces.Box):
        what = f"the {math.prod(unreadable.space.shape):,} numbers of an image"
    return (
        f"tiles cannot code {what}: make features of it, at most {MOST_NUMBERS:,} numbers, by "
        "gymnasium.wrappers.TransformObservation(env, features, Box(0.0, 1.0, (n,)))"
    )


def _is_readable(space: spaces.Space[Any]) -> bool:
    try:
        parts_of(space)
    except UnreadableSpace:
        return False
    return True


def _flattens_discrete(env: gymnasium.Env[Any, Any]) -> bool:
    """Return whether a wrapper made one number per value of a discrete observation."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, FlattenObservation) and isinstance(readable(env.env), TabularObservation):
            return True
        env = env.env
    return False


def _discrete(space: spaces.Space[Any]) -> spaces.Discrete:
    must = "the action space must be Discrete from 0"
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return space
    if isinstance(space, spaces.Box):
        raise ValueError(
            f"{must}, not {space}; wrap the environment: gymnasium.wrappers.DiscretizeAction(env, bins=3), "
            "or --wrap discretize:3; for SAC, horde_agent.sb3.ChoiceByNumber of an environment with discrete actions"
        )
    like = "lambda a: a + start" if isinstance(space, spaces.Discrete) else "its_action"
    raise ValueError(
        f"{must}, not {space}; wrap the environment: gymnasium.wrappers.TransformAction(env, {like}, Discrete(n))"
    )


def _actions(described: Sequence[str] | None, env: gymnasium.Env[Any, Any], n: int) -> tuple[str, ...]:
    """Return the actions as described, or action_0.. without a description or if a wrapper changed their number."""
    unknown = tuple(f"action_{a}" for a in range(n))
    if not described or (len(described) != n and env.action_space != env.unwrapped.action_space):
        return unknown
    if len(described) != n:
        raise ValueError(f"metadata names {len(described)} actions, the action space has {n}")
    return tuple(described)


def _n_frames(env: gymnasium.Env[Any, Any]) -> int:
    """Return the number of frames that the environment's wrappers stack into one observation."""
    n = 1
    while isinstance(env, gymnasium.Wrapper):
        n *= env.stack_size if isinstance(env, FrameStackObservation) else 1
        env = env.env
    return n


def _channels(
    described: Sequence[Mapping[str, Any]] | None, n: int, n_frames: int
) -> tuple[tuple[ChannelInfo, ...], tuple[str, ...]]:
    """Return the channels, obs_0.. in the group "obs" by default, and the suffix of group names by age of the frame."""
    if described is None:
        return tuple(ChannelInfo(f"obs_{i}", "obs", "1", is_sensor=True) for i in range(n)), ("",)
    one = [
        ChannelInfo(
            str(c["name"]), str(c["group"]), str(c.get("unit", "1")), bool(c.get("sensor", True)), c.get("step")
        )
        for c in described
    ]
    ages = tuple(f"@-{age}" if age else "" for age in range(n_frames))
    if len(one) * n_frames == n:  # a stack begins with the oldest frame
        stacked = (
            c._replace(name=c.name + age, group=c.group + age, is_sensor=c.is_sensor and not age)
            for age in reversed(ages)
            for c in one
        )
        return tuple(stacked), ages
    if len(one) == n:  # a wrapper with its own metadata
        return tuple(one), ("",)
    raise ValueError(
        f"metadata describes {len(one)} channels, the observation has {n}; set metadata in the wrapper that "
        f'changes it, with "channels" and a "tile_layout" that fit'
    )
