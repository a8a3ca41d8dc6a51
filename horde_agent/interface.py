"""Interface: what the agent knows of its body, read from a Gymnasium environment and from nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from horde_agent.feedback import Feedback
from horde_agent.gvf import GVF
from horde_agent.tiles import TileCoder

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]

# A bound of float32's own size says only that there is none.
_UNBOUNDED_FROM = 1e30


class ChannelInfo(NamedTuple):
    """One number of the observation; a sensor is one that questions are asked about."""

    name: str
    group: str
    unit: str
    is_sensor: bool


@dataclass(frozen=True, slots=True)
class Scaler:
    """Brings each channel into [0, 1]: a bounded one linearly, an unbounded one through 0.5 + atan(x / s) / pi.

    Args:
        low, high: Bounds of the observation space, shape (n_inputs,).
        spread: s, the size of reading of an unbounded channel that is mapped to 0.75; one number for all.
    """

    low: Floats
    high: Floats
    spread: float = 1.0

    def __call__(self, observation: NDArray[Any]) -> Floats:
        """Return the observation scaled and clipped, float64, shape (n_inputs,); NaN stays NaN.

        Raises:
            ValueError: If `observation` has a wrong shape.
        """
        x = np.asarray(observation, dtype=np.float64)
        if x.shape != self.low.shape:
            raise ValueError(f"observation must have shape {self.low.shape}, not {x.shape}")
        bounded = self.bounded
        span = np.where(bounded, self.high - np.where(bounded, self.low, 0.0), 1.0)
        linear = (x - np.where(bounded, self.low, 0.0)) / span
        return np.clip(np.where(bounded, linear, 0.5 + np.arctan(x / self.spread) / math.pi), 0.0, 1.0)

    @property
    def bounded(self) -> NDArray[np.bool_]:
        """Which channels have two finite bounds, shape (n_inputs,)."""
        return np.asarray(
            (np.abs(self.low) < _UNBOUNDED_FROM) & (np.abs(self.high) < _UNBOUNDED_FROM) & (self.high > self.low)
        )


@dataclass(frozen=True)
class Interface:
    """What the agent knows of its body.

    Attributes:
        channels: The numbers of an observation, in order.
        actions: Names of the discrete actions, in order.
        period_s: Duration of a step, in seconds.
        coder: From scaled observation, followed by the scaled predictions fed back, to tiles.
        scaler: From observation to [0, 1].
        feedback: Which predictions are fed back as features, if any are.
    """

    channels: tuple[ChannelInfo, ...]
    actions: tuple[str, ...]
    period_s: float
    coder: TileCoder
    scaler: Scaler
    feedback: Feedback | None = None

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any]) -> Interface:
        """Read an environment's spaces and the metadata of the instance.

        `metadata` may hold "channels" (list of {name, group, unit, sensor}), "actions", "period_s" and "tile_layout";
        without them channels are obs_0.., actions action_0.., the period 1 s, and the layout a default one.

        Raises:
            ValueError: If the observation is not a flat Box, the action space not Discrete from 0, or the metadata
                does not fit them.
        """
        box, discrete = env.observation_space, env.action_space
        if not isinstance(box, spaces.Box) or len(box.shape) != 1 or not np.issubdtype(box.dtype, np.floating):
            raise ValueError(f"the observation space must be a flat Box of floats, not {box}")
        if not isinstance(discrete, spaces.Discrete) or discrete.start != 0:
            raise ValueError(f"the action space must be Discrete from 0, not {discrete}")
        metadata: Mapping[str, Any] = env.unwrapped.metadata
        channels = _channels(metadata.get("channels"), int(box.shape[0]))
        actions = tuple(metadata.get("actions") or (f"action_{a}" for a in range(int(discrete.n))))
        if len(actions) != discrete.n:
            raise ValueError(f"metadata names {len(actions)} actions, the action space has {discrete.n}")
        layout = metadata.get("tile_layout")
        if layout is None:
            coder = TileCoder.default(len(channels))
        else:
            coder = TileCoder.from_layout(layout, [channel._asdict() for channel in channels])
        scaler = Scaler(box.low.astype(np.float64), box.high.astype(np.float64))
        return cls(channels, actions, float(metadata.get("period_s", 1.0)), coder, scaler)

    @property
    def sensors(self) -> tuple[int, ...]:
        """Indices of the channels that questions are asked about."""
        return tuple(i for i, channel in enumerate(self.channels) if channel.is_sensor)

    def index(self, name: str) -> int:
        """Return the position of a channel in the observation.

        Raises:
            ValueError: If there is no such channel.
        """
        names = [channel.name for channel in self.channels]
        if name not in names:
            raise ValueError(f"unknown channel {name!r}; there are {', '.join(names)}")
        return names.index(name)

    def feeding_back(self, questions: Sequence[GVF], tables: Sequence[Mapping[str, Any]]) -> Interface:
        """Return an interface whose tiles also code the predictions of the step before: n_features and n_active grow.

        Questions about Gibbs policies, which depend on n_features, are to be made from the interface returned.

        Args:
            questions: The questions of the Horde to come, or at least those that are fed back.
            tables: `[[feedback]]` tables, as in `Feedback.of`; each prediction's tilings and scale.

        Raises:
            ValueError: If predictions are fed back already, or a table is wrong.

        Source: White, Modayil & Sutton (2012), figure 1.
        """
        if self.feedback is not None:
            raise ValueError("this interface feeds predictions back already; give all [[feedback]] tables at once")
        bounds = np.where(self.scaler.bounded, [self.scaler.low, self.scaler.high], [[-np.inf], [np.inf]])
        feedback = Feedback.of(questions, tables, bounds)
        coder = self.coder.extended(feedback.tilings, feedback.groups)
        return replace(self, coder=coder, feedback=feedback)

    def encode(self, observation: NDArray[Any], predictions: NDArray[Any] | None = None) -> Tiles:
        """Return the active tiles of an (unscaled) observation, shape (n_active,).

        Args:
            observation: What is seen, shape (n_channels,).
            predictions: What the questions fed back predicted one step before, in their order, as in
                `horde.predictions[interface.feedback.demons(horde.names)]`; None where a stream begins.

        Raises:
            ValueError: If an argument has a wrong shape, or predictions are given where none are fed back.
        """
        scaled = self.scaler(observation)
        if self.feedback is not None:
            scaled = np.concatenate([scaled, self.feedback.scaled(predictions)])
        elif predictions is not None:
            raise ValueError("predictions were given, but this interface feeds none back: see feeding_back")
        return self.coder.encode(scaled)


def _channels(described: Sequence[Mapping[str, Any]] | None, n: int) -> tuple[ChannelInfo, ...]:
    """Return the channels as described, or obs_0.. in one group "obs"."""
    if described is None:
        return tuple(ChannelInfo(f"obs_{i}", "obs", "1", is_sensor=True) for i in range(n))
    if len(described) != n:
        raise ValueError(f"metadata describes {len(described)} channels, the observation has {n}")
    return tuple(
        ChannelInfo(str(c["name"]), str(c["group"]), str(c.get("unit", "1")), bool(c.get("sensor", True)))
        for c in described
    )
