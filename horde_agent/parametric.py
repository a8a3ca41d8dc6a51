"""Policies with parameters: a softmax over features, and normal distributions over continuous actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horde_agent.kernels.policies import gibbs_probabilities
from horde_agent.types import Floats, Integers, RNGLike, Tiles, generator


@dataclass(frozen=True, slots=True, eq=False)
class Gaussian:
    """A target policy over a continuous action: independent normal distributions, for data with the density b.

    Such data have the numbers of the action and its density under the behaviour as channels; their
    only discrete action is 0, with probability 1. The ratio is rho = pi(a|s) / b.

    Args:
        mean: Mean of each number, shape (n,), or a function of (observation, tiles) that returns
            it.
        std: Standard deviation of each number, > 0, shape (n,).
        channels: Channels of the action's numbers, shape (n,).
        b: Channel of the density of the action under the behaviour.

    Raises:
        ValueError: If the shapes differ, or a standard deviation is not > 0.

    Source: Degris, Pilarski & Sutton (2012), Gaussian policies; Precup, Sutton & Dasgupta (2001),
        ratios of densities.

    Examples:
        >>> policy = Gaussian(mean=[0.0], std=[1.0], channels=[1], b=2)
        >>> round(policy.ratio(np.array([7.0, 0.0, 0.3989422804]), np.array([0])), 6)
        1.0
    """

    mean: ArrayLike | Callable[[NDArray[Any], Tiles], ArrayLike]
    std: ArrayLike
    channels: ArrayLike
    b: int
    n_actions: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        std = np.array(self.std, dtype=np.float64)
        channels = np.array(self.channels, dtype=np.int64)
        mean: Any = self.mean
        if not callable(mean):
            mean = np.array(mean, dtype=np.float64)
        shapes = {std.shape, channels.shape, std.shape if callable(mean) else mean.shape}
        if std.ndim != 1 or len(shapes) > 1:
            raise ValueError(
                "mean, std and channels must have the same shape (n,), with n numbers of the action"
            )
        if not ((std > 0.0) & np.isfinite(std)).all():
            raise ValueError(f"std must be > 0, not {std}")
        for name, value in (("mean", mean), ("std", std), ("channels", channels)):
            object.__setattr__(self, name, value)

    def ratio(self, observation: NDArray[Any], tiles: Tiles) -> float:
        """Return pi(a|s) / b of the action in an observation, shape (n_channels,); NaN if b is not > 0."""
        if callable(self.mean):
            mean = self.mean(observation, tiles)
        else:
            mean = self.mean
        std = np.asarray(self.std)
        z = (observation[np.asarray(self.channels)] - np.asarray(mean)) / std
        density = np.exp(-0.5 * (z @ z)) / np.prod(np.sqrt(2.0 * np.pi) * std)
        if observation[self.b] > 0.0:
            return float(density / observation[self.b])
        return np.nan

    def probabilities(self, observation: NDArray[Any], tiles: Tiles) -> Floats:  # noqa: ARG002
        """Return [1.0], shape (1,): these data have one discrete action."""
        return np.ones(1)


@dataclass(frozen=True, slots=True, eq=False)
class Gibbs:
    """A softmax policy over features, pi(a) = softmax_a(-u_a.phi), with few nonzero parameters.

    Args:
        n_actions: Number of actions; psi_a contains a copy of phi at offset a * n_features.
        n_features: Length of phi.
        index: Positions of the nonzero parameters, in 0..n_actions * n_features - 1, shape (k,).
        value: The nonzero parameters, shape (k,).

    Raises:
        ValueError: If the shapes differ, a position is out of range, or a parameter is not finite.

    Source: White, Modayil & Sutton (2012), section 6, https://arxiv.org/abs/1206.6262: 60 of 30,325
    parameters, each U[0, 1]. The minus sign is the paper's.

    Examples:
        >>> policy = Gibbs(n_actions=2, n_features=10, index=np.array([3]), value=np.array([1.0]))
        >>> policy.probabilities(np.zeros(1), np.array([3])).round(3)
        array([0.269, 0.731])
    """

    n_actions: int
    n_features: int
    index: Integers
    value: Floats
    # Features, actions and values, sorted by feature; computed on first use, because a Horde reads
    # index and value.
    _by_feature: tuple[Integers, Integers, Floats] | None = field(
        init=False, repr=False, default=None
    )

    def __post_init__(self) -> None:
        index = np.array(self.index, dtype=np.int64)
        value = np.array(self.value, dtype=np.float64)
        if index.shape != value.shape or index.ndim != 1:
            raise ValueError(
                f"index and value must be one-dimensional and alike, not {index.shape} and {value.shape}"
            )
        if index.size and not 0 <= index.min() <= index.max() < self.n_actions * self.n_features:
            raise ValueError(f"index must lie in 0..{self.n_actions * self.n_features - 1}")
        if not np.isfinite(value).all():
            raise ValueError("value must be finite")
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "value", value)

    @classmethod
    def random(cls, rng: RNGLike, n_actions: int, n_features: int, n_nonzero: int = 60) -> Gibbs:
        """Draw a policy with `n_nonzero` parameters U[0, 1] at random positions."""
        n_nonzero = min(n_nonzero, n_actions * n_features)
        rng = generator(rng)
        index = rng.choice(n_actions * n_features, n_nonzero, replace=False)
        return cls(n_actions, n_features, index, rng.uniform(0.0, 1.0, n_nonzero))

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if it is one of another number of features."""
        if self.n_features != n_features:
            raise ValueError(
                f"n_features of its Gibbs policy, {self.n_features:,}, differs from the Horde's {n_features:,}"
            )

    def probabilities(self, observation: NDArray[Any], tiles: Tiles) -> Floats:  # noqa: ARG002
        """Return softmax(-u_a.phi) over the actions, shape (n_actions,)."""
        if self._by_feature is None:
            action, feature = np.divmod(self.index, self.n_features)
            order = np.argsort(feature, kind="stable")
            object.__setattr__(
                self, "_by_feature", (feature[order], action[order], self.value[order])
            )
        assert self._by_feature is not None
        out = np.empty(self.n_actions)
        gibbs_probabilities(*self._by_feature, tiles, out)
        return out
