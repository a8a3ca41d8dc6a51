"""Gymnasium's wrappers by short names, as `horde learn --wrap` takes them: "keep:position+speed,flatten,discretize:5".

The text has no character that a shell interprets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from horde_agent.refusals import one_line

if TYPE_CHECKING:
    import gymnasium

SYNTAX = "write names with commas between, such as keep:direction+image,flatten,discretize:5"


def _flatten(env: gymnasium.Env[Any, Any], _: str) -> gymnasium.Env[Any, Any]:
    from gymnasium.wrappers import FlattenObservation

    return FlattenObservation(env)


def _to_float(env: gymnasium.Env[Any, Any], _: str) -> gymnasium.Env[Any, Any]:
    import numpy as np
    from gymnasium.wrappers import DtypeObservation

    return DtypeObservation(env, np.float32)


def _keep(env: gymnasium.Env[Any, Any], keys: str) -> gymnasium.Env[Any, Any]:
    from gymnasium.wrappers import FilterObservation

    return FilterObservation(env, keys.split("+"))


def _discretize(env: gymnasium.Env[Any, Any], n_bins: str) -> gymnasium.Env[Any, Any]:
    from gymnasium.wrappers import DiscretizeAction

    return DiscretizeAction(env, bins=int(n_bins))


def _limit(env: gymnasium.Env[Any, Any], n_steps: str) -> gymnasium.Env[Any, Any]:
    from gymnasium.wrappers import TimeLimit

    return TimeLimit(env, max_episode_steps=int(n_steps))


class Wrapping(NamedTuple):
    """A wrapper of `--wrap`.

    Attributes:
        argument: What follows its name and a colon: "" for nothing, "N" for a whole number, "KEYS"
            for keys with plus signs between.
        wrap: Wraps an environment, given the argument's text.
    """

    argument: str
    wrap: Callable[[gymnasium.Env[Any, Any], str], gymnasium.Env[Any, Any]]


WRAPPINGS = {
    "flatten": Wrapping("", _flatten),
    "float": Wrapping("", _to_float),
    "keep": Wrapping("KEYS", _keep),
    "discretize": Wrapping("N", _discretize),
    "limit": Wrapping("N", _limit),
}
"""FlattenObservation, DtypeObservation to float32, FilterObservation, DiscretizeAction and TimeLimit."""


class Wrap(NamedTuple):
    """One word of `--wrap`."""

    name: str
    argument: str


def parse_wraps(text: str) -> list[Wrap]:
    """Return the words of `--wrap`, the innermost wrapper first.

    Raises:
        ValueError: If a name is unknown, or its argument is missing, wrong or not expected.
    """
    wraps = []
    for word in text.split(","):
        name, colon, argument = word.strip().partition(":")
        if name not in WRAPPINGS:
            raise ValueError(
                f"--wrap {text}: there is no wrapper {name!r} but {', '.join(WRAPPINGS)}; {SYNTAX}"
            )
        expected = WRAPPINGS[name].argument
        if expected == "" and colon:
            raise ValueError(f"--wrap {text}: {name} takes no argument, not {argument!r}; {SYNTAX}")
        if expected == "N" and not (
            argument.isascii() and argument.isdecimal() and int(argument) > 0
        ):
            raise ValueError(
                f"--wrap {text}: {name} needs a whole number above 0, as in {name}:5; {SYNTAX}"
            )
        if expected == "KEYS" and not all(argument.split("+")):
            raise ValueError(
                f"--wrap {text}: {name} needs keys of a Dict, as in {name}:direction+image; {SYNTAX}"
            )
        wraps.append(Wrap(name, argument))
    return wraps


def wrapped(env: gymnasium.Env[Any, Any], text: str) -> gymnasium.Env[Any, Any]:
    """Return the environment in the wrappers of `--wrap`.

    Raises:
        ValueError: If the text is wrong, or the environment does not fit a wrapper.
    """
    for name, argument in parse_wraps(text):
        try:
            env = WRAPPINGS[name].wrap(env, argument)
        except Exception as error:  # Gymnasium checks with assertions and many kinds of errors
            raise ValueError(
                f"--wrap {name} does not fit the environment: {one_line(error)}"
            ) from error
    return env
