"""Observation spaces that cannot be read, and which wrapper helps."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation

from horde_agent.interface.tabular import (
    MOST_NUMBERS,
    TabularObservation,
    UnreadableSpace,
    parts_of,
    readable,
)


def flat_box(env: gymnasium.Env[Any, Any]) -> spaces.Box:
    """Return the flat Box of floats that an environment's observation space is.

    Raises:
        ValueError: If it is none; the message names a wrapper that helps.
    """
    space = env.observation_space
    if (
        isinstance(space, spaces.Box)
        and len(space.shape) == 1
        and np.issubdtype(space.dtype, np.floating)
    ):
        return space
    raise ValueError(
        f"the observation space must be a flat Box of floats or discrete, not {space}; {_advice(env)}"
    )


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
    content = repr(unreadable.name)
    if isinstance(unreadable.space, spaces.Box):
        content = f"the {math.prod(unreadable.space.shape):,} numbers of an image"
    return (
        f"tiles cannot code {content}: make features of it, at most {MOST_NUMBERS:,} numbers, by "
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
        if isinstance(env, FlattenObservation) and isinstance(
            readable(env.env), TabularObservation
        ):
            return True
        env = env.env
    return False
