"""Interface: channels, actions, period and tile coder of a robot, read from its Gymnasium environment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation
from numpy.typing import NDArray

from horde_agent.gvf import GVF, named
from horde_agent.interface.advice import flat_box
from horde_agent.interface.feedback import Feedback
from horde_agent.interface.held import HeldReadings
from horde_agent.interface.pairs import INTERVALS, draw_pairs
from horde_agent.interface.tabular import TabularNumbers, TabularObservation, flattener, readable
from horde_agent.refusals import real_number, whole_number
from horde_agent.tiles import MOST_FEATURES, TileCoder
from horde_agent.types import Bools, Floats, Tiles, listed

__all__ = [
    "ChannelInfo",
    "HeldReadings",
    "Interface",
    "Scaler",
    "TabularObservation",
    "readable",
]

_NOT_ONE = (
    "Interface.of needs one Gymnasium environment, not a {}: a Horde has one stream of experience, so create one "
    "environment with gymnasium.make"
)

HOLD_S = 1.0
"""`ChannelInfo.hold_s`, unless a channel has another."""
SPEED = "speed"
REQUEST = "request"
ROLES = ("", SPEED, REQUEST)
"""Values of `ChannelInfo.role`."""

_UNBOUNDED_FROM = 1e30  # larger bounds, such as float32's largest number, mean that there is none


class ChannelInfo(NamedTuple):
    """One number of the observation.

    Attributes:
        name, group, unit: As in the environment's metadata.
        is_sensor: True if families of questions include it.
        step: Quantisation step of the observation, in its own unit; None if unknown.
        hold_s: For how long the last reading stands for a missing one in the features, in seconds; at
            least one period.
        role: SPEED of a part that moves the body, REQUEST of a motion, "" for all others. Both are at the middle of
            their range at rest; from them follows whether the body stands although it is driven (`Standstill`).
    """

    name: str
    group: str
    unit: str
    is_sensor: bool
    step: float | None = None
    hold_s: float = HOLD_S
    role: str = ""


@dataclass(frozen=True, slots=True)
class Scaler:
    """Scales each channel to [0, 1]: linearly if it is bounded, otherwise by 0.5 + atan(x / s) / pi.

    Args:
        low, high: Bounds of the observation space, each of shape (n_inputs,).
        spread: s, the reading of an unbounded channel that is mapped to 0.75.

    Attributes:
        bounded: Mask of the channels with two finite bounds, shape (n_inputs,).
    """

    low: Floats
    high: Floats
    spread: float = 1.0
    bounded: Bools = field(init=False, repr=False, compare=False)
    _origin: Floats = field(init=False, repr=False, compare=False)
    _span: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute what each call needs."""
        bounded = np.asarray(
            (np.abs(self.low) < _UNBOUNDED_FROM)
            & (np.abs(self.high) < _UNBOUNDED_FROM)
            & (self.high > self.low)
        )
        origin = np.where(bounded, self.low, 0.0)
        # Frozen: attributes cannot be assigned
        object.__setattr__(self, "bounded", bounded)
        object.__setattr__(self, "_origin", origin)
        object.__setattr__(self, "_span", np.where(bounded, self.high - origin, 1.0))

    def __call__(self, observation: NDArray[Any]) -> Floats:
        """Return the observation scaled and clipped, float64, shape (n_inputs,), which it must have; NaN stays NaN."""
        x = np.asarray(observation, dtype=np.float64)
        if x.shape != self.low.shape:
            raise ValueError(f"observation must have shape {self.low.shape}, not {x.shape}")
        scaled = (x - self._origin) / self._span
        if not self.bounded.all():
            scaled = np.where(self.bounded, scaled, 0.5 + np.arctan(x / self.spread) / math.pi)
        return np.clip(scaled, 0.0, 1.0)


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
        pairs: The two channels of each tiling of `with_pairs`, by name.
        chosen_coder: Coder of the chosen layout (`with_chosen_layout`); None without one.
        n_later_actions: Number of actions, the last ones, that the body got during a life: families of
            questions do not ask about them.
        flatten: Turns the environment's discrete observations into flat arrays of these channels;
            None if they are flat arrays.

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
    pairs: tuple[tuple[str, str], ...] = ()
    chosen_coder: TileCoder | None = None
    n_later_actions: int = 0

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any]) -> Interface:
        """Read the interface from an environment's spaces and metadata.

        `metadata` may have "channels" (list of {name, group, unit, sensor}), "actions", "period_s",
        "tile_layout" and "chosen_layout". The defaults are obs_0.., action_0.., 1 s, a layout made
        from the space, and none. A channel's "range", [low, high] in its unit, is stored with a recording and must be
        the same to resume it; its "step" is the quantisation step of the observation, which
        determines the nearly constant returns; "hold_s" and "role" are as in `ChannelInfo`. A wrapper that changes
        the observation may set its own `metadata`. Frames stacked by `FrameStackObservation` are
        supported: channels of the frame before the newest are "light_0@-1" in group "light@-1", and so
        on. They have the same tiles, and no questions. Discrete observations are those of
        `TabularObservation`: one tile per state.

        Raises:
            ValueError: If the observation is neither a flat Box of floats nor discrete, the action
                space not Discrete from 0, or the metadata does not fit them. The message names a
                wrapper that converts the space.
        """
        if not isinstance(env, gymnasium.Env):
            raise ValueError(_NOT_ONE.format(type(env).__name__))
        flatten = flattener(env.observation_space)
        env = readable(env)
        box = flat_box(env)
        discrete = _discrete(env.action_space)
        metadata: Mapping[str, Any] = env.metadata
        channels, ages = _channels(metadata.get("channels"), int(box.shape[0]), _n_frames(env))
        layout = metadata.get("tile_layout")
        described = [channel._asdict() for channel in channels]
        if layout is None:
            coder = TileCoder.default(len(channels))
        else:
            coder = TileCoder.from_layout(layout, described, ages)
        chosen_coder = None
        chosen_layout = metadata.get("chosen_layout")
        if chosen_layout:
            chosen_coder = TileCoder.from_layout(chosen_layout, described, ages)
        actions = _actions(metadata.get("actions"), env, int(discrete.n))
        scaler = Scaler(box.low.astype(np.float64), box.high.astype(np.float64))
        return cls(
            channels,
            actions,
            period_s=float(metadata.get("period_s", 1.0)),
            coder=coder,
            scaler=scaler,
            flatten=flatten,
            chosen_coder=chosen_coder,
            n_later_actions=int(metadata.get("later_actions", 0)),
        )

    def __repr__(self) -> str:
        facts = [
            f"{len(self.channels)} channels: {listed(self.names)}",
            f"{len(self.actions)} actions: {listed(self.actions)}",
            f"period_s={self.period_s}",
            f"coder={self.coder!r}",
        ]
        if self.feedback is not None:
            facts.append(f"feedback={self.feedback!r}")
        return f"Interface({'; '.join(facts)})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the channels, in order."""
        return tuple(channel.name for channel in self.channels)

    @property
    def steps(self) -> Floats:
        """Quantisation step of each channel, in its own unit, shape (n_channels,); NaN if unknown."""
        return np.array(
            [np.nan if channel.step is None else channel.step for channel in self.channels]
        )

    @property
    def sensors(self) -> tuple[int, ...]:
        """Indices of the channels that families of questions include."""
        return tuple(i for i, channel in enumerate(self.channels) if channel.is_sensor)

    def with_first_actions(self, n: int | None = None) -> Interface:
        """Return an interface with the first `n` actions alone; with those of the beginning of a life when None."""
        if n is None:
            n = len(self.actions) - self.n_later_actions
        return replace(self, actions=self.actions[:n], n_later_actions=0)

    def index(self, name: str) -> int:
        """Return the position of a channel in the observation; raise ValueError if there is no such channel."""
        if name not in self.names:
            raise ValueError(f"unknown channel {name!r}; there are {', '.join(self.names)}")
        return self.names.index(name)

    @property
    def varying(self) -> tuple[str, ...]:
        """Names of the channels that the tile layout reads and whose bounds are not one number."""
        tilings = self.coder.tilings
        # A channel with one interval has one tile
        is_read = np.isin(np.arange(len(self.channels)), tilings.channel[tilings.intervals > 1])
        is_constant = self.scaler.low == self.scaler.high
        return tuple(np.array(self.names, dtype=object)[is_read & ~is_constant])

    def with_chosen_layout(self) -> Interface:
        """Return an interface with the robot's chosen layout in place of its layout; this one without such a layout.

        A chosen layout has features that the errors of a Horde's predictions chose, as `horde
        features` does. The Critterbot has one.

        Raises:
            ValueError: If pairs, or predictions fed back, were added already.
        """
        if self.chosen_coder is None:
            return self
        if self.feedback is not None or self.pairs:
            raise ValueError(
                "this interface has pairs or feedback already; choose the layout first"
            )
        return replace(self, coder=self.chosen_coder)

    def with_pairs(self, n: int, seed: int = 0) -> Interface:
        """Return an interface with `n` further tilings, each over two random channels.

        A tiling is 8 x 8 with a random offset; the channels are two of `varying`. Each has one
        active tile: n_features grows by 64 n and n_active by n. The other tiles keep their numbers,
        the bias stays last. `coder.layout` has the result as text.

        Args:
            n: Number of tilings.
            seed: Seed of the pairs: same seed, same pairs; the first do not depend on `n`.

        Raises:
            ValueError: If predictions are fed back or pairs were added already, fewer than two
                channels vary, or there are too many features.
        """
        n = whole_number("n", n, least=1)
        seed = whole_number("seed", seed, least=0)
        if self.feedback is not None or self.pairs:
            raise ValueError(
                "this interface has pairs or feedback already; add pairs first, and once"
            )
        n_features = self.coder.n_features + n * INTERVALS**2
        if n_features > MOST_FEATURES:
            raise ValueError(
                f"{n:,} pairs make {n_features:,} features, more than {MOST_FEATURES:,}; ask for fewer"
            )
        channels = self.varying
        if len(channels) < 2:
            raise ValueError(
                f"pairs need at least two channels that vary and have tiles, and there are {len(channels)}"
            )
        tables = draw_pairs(channels, n, seed)
        where = [f"pair number {number}" for number in range(1, n + 1)]
        coder = self.coder.extended(tables, groups=(), where=where, names=self.names)
        pairs = tuple((table["channels"][0], table["channels"][1]) for table in tables)
        return replace(self, coder=coder, pairs=pairs)

    def with_tilings(self, tables: Sequence[Mapping[str, Any]]) -> Interface:
        """Return an interface with further tilings, such as pairs of channels that `horde features` chooses.

        The other tiles keep their numbers, the bias stays last.

        Args:
            tables: `[[tiling]]` tables, as of `TileCoder`.

        Raises:
            ValueError: If predictions are fed back already, a table is wrong, or there are too many
                features.
        """
        if self.feedback is not None:
            raise ValueError("this interface has feedback already; add tilings first")
        coder = self.coder.extended(tables, groups=(), names=self.names)
        return replace(self, coder=coder)

    def with_unknown(self) -> Interface:
        """Return an interface whose tilings have a tile more, "unknown", for missing readings (`held`).

        n_features grows by the number of tilings; all other tiles and the bias keep their numbers.
        """
        return replace(self, coder=self.coder.with_unknown())

    def feeding_back(
        self, questions: Sequence[GVF], tables: Sequence[Mapping[str, Any]]
    ) -> Interface:
        """Return an interface that also codes the predictions of the previous step: n_features and n_active grow.

        Create questions about Gibbs policies, which depend on n_features, from the returned
        interface.

        Args:
            questions: The questions of the Horde, or at least those that are fed back.
            tables: `[[feedback]]` tables, as in `Feedback.of`: tilings and range of each
                prediction.

        Raises:
            ValueError: If predictions are fed back already, or a table is wrong.

        Source: White, Modayil & Sutton (2012), figure 1.
        """
        if self.feedback is not None:
            raise ValueError(
                "this interface has feedback already; pass all [[feedback]] tables at once"
            )
        bounds = np.where(
            self.scaler.bounded, [self.scaler.low, self.scaler.high], [[-np.inf], [np.inf]]
        )
        feedback = Feedback.of(named(questions, self.names), tables, bounds)
        coder = self.coder.extended(
            feedback.tilings, feedback.groups, [table["group"] for table in feedback.tilings]
        )
        return replace(self, coder=coder, feedback=feedback)

    def encode(self, observation: NDArray[Any], predictions: NDArray[Any] | None = None) -> Tiles:
        """Return the active tiles of an (unscaled) observation, shape (n_active,).

        Args:
            observation: The observation, shape (n_channels,), or a discrete one as the environment
                returns it. NaN, a missing reading, needs `with_unknown`; `HeldReadings.fill` before it
                holds the last one.
            predictions: Predictions of the previous step that are fed back,
                `horde.predictions[interface.feedback.demons(horde.names)]`; None at the beginning
                of a stream.

        Raises:
            ValueError: If an argument has a wrong shape, or predictions are given without feedback.
        """
        is_flat = isinstance(observation, np.ndarray) and observation.shape == (len(self.channels),)
        if self.flatten is not None and not is_flat:
            observation = self.flatten(observation, reward=0.0)
        scaled = self.scaler(observation)
        if self.feedback is not None:
            scaled = np.concatenate([scaled, self.feedback.scaled(predictions)])
        elif predictions is not None:
            raise ValueError(
                "predictions were given, but this interface has no feedback: see feeding_back"
            )
        return self.coder.encode(scaled)


def _discrete(space: spaces.Space[Any]) -> spaces.Discrete:
    must = "the action space must be Discrete from 0"
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return space
    if isinstance(space, spaces.Box):
        raise ValueError(
            f"{must}, not {space}; wrap the environment: gymnasium.wrappers.DiscretizeAction(env, bins=3), "
            "or --wrap discretize:3; for SAC, horde_agent.sb3.ChoiceByNumber of an environment with discrete actions"
        )
    like = "its_action"
    if isinstance(space, spaces.Discrete):
        like = "lambda a: a + start"
    raise ValueError(
        f"{must}, not {space}; wrap the environment: gymnasium.wrappers.TransformAction(env, {like}, Discrete(n))"
    )


def _actions(
    described: Sequence[str] | None, env: gymnasium.Env[Any, Any], n: int
) -> tuple[str, ...]:
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
            str(c["name"]),
            str(c["group"]),
            str(c.get("unit", "1")),
            bool(c.get("sensor", True)),
            c.get("step"),
            _hold_s(c),
            _role(c),
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


def _role(channel: Mapping[str, Any]) -> str:
    """Return the `role` of a channel's metadata."""
    role = channel.get("role") or ""
    if role not in ROLES:
        raise ValueError(
            f"role of the channel {channel['name']!r} must be one of {', '.join(map(repr, ROLES))}, not {role!r}"
        )
    return str(role)


def _hold_s(channel: Mapping[str, Any]) -> float:
    """Return the `hold_s` of a channel's metadata."""
    value = channel.get("hold_s")
    if value is None:
        return HOLD_S
    name = f"hold_s of the channel {channel['name']!r}"
    hold_s = real_number(name, value)
    if not 0.0 <= hold_s < math.inf:
        raise ValueError(f"{name} must be finite and not negative, in seconds, not {hold_s!r}")
    return hold_s
