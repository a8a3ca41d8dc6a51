"""Target policies by name: uniform, constant:N, FILE.py:function, MODEL.zip; or as Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent.judging.programs import RAISED, Function, Model, reason_of
from horde_agent.judging.recorded import RecordedData
from horde_agent.policies import ConstantAction, Policy, PolicyFunction, Uniform, is_policy
from horde_agent.refusals import BadInput
from horde_agent.scoring.episodes import Target
from horde_agent.types import Floats, can_be_called

FORMS = "uniform, constant:N, FILE.py:function or MODEL.zip"
_CONSTANT = "constant:"


def target_of(policy: Any, data: RecordedData, name: str | None = None) -> Target:
    """Return a policy on the episodes of a data set.

    Args:
        policy: One of `FORMS`, a policy with `probabilities`, a trained controller of
            stable-baselines3, or a function of (observation, tiles) or of the observation alone.
        data: The data.
        name: For tables; made from `policy` when None.

    Raises:
        BadInput: If it cannot be read, or its observations or actions are others.
    """
    label = name
    if label is None:
        label = name_of(policy)
    n_actions = len(data.actions)
    if isinstance(policy, str | Path):
        policy = _named(str(policy), data)
    if hasattr(policy, "action_space") and hasattr(policy, "predict"):
        policy = _controller(policy, label, data)
    if not is_policy(policy):
        policy = _function(policy, label, n_actions)
    if policy.n_actions != n_actions:
        raise BadInput(
            f"the policy {label} has {policy.n_actions} actions, but the data have {n_actions}: "
            f"{', '.join(data.actions)}"
        )
    probabilities = _on_rows(policy, label, data)
    try:
        return Target(label, data.episodes, probabilities)
    except ValueError as error:
        raise BadInput(str(error)) from None


def name_of(policy: Any) -> str:
    """Return what tables call a policy."""
    if isinstance(policy, str | Path):
        return str(policy)
    if isinstance(policy, ConstantAction | Uniform):
        return repr(policy)
    return str(getattr(policy, "__name__", type(policy).__name__))


def check_forms(policies: Iterable[Any]) -> None:
    """Raise BadInput if a text among policies is none of `FORMS`, or names a file that cannot be one; runs nothing."""
    for policy in policies:
        if isinstance(policy, str | Path):
            program = _program(str(policy))
            if program is not None:
                program.check()


def _program(text: str) -> Function | Model | None:
    """Return what runs code among `FORMS`, None for the others; raise BadInput if it is no form."""
    file, _, name = text.rpartition(":")
    if file.endswith(".py"):
        return Function(Path(file), name)
    if text.endswith(".zip"):
        return Model(Path(text))
    if text == "uniform" or text.startswith(_CONSTANT):
        return None
    raise BadInput(f"--policy must be {FORMS}, not {text!r}")


def _named(text: str, data: RecordedData) -> Any:
    """Return the policy of one of `FORMS`."""
    program = _program(text)
    if isinstance(program, Model):
        program.check_spaces(data.channels, len(data.actions))
    if program is not None:
        return program.load()
    if text == "uniform":
        return Uniform(len(data.actions))
    return _constant(text.removeprefix(_CONSTANT), data)


def _constant(text: str, data: RecordedData) -> Policy:
    """Return the policy that always takes an action, by its number or name."""
    actions = list(data.actions)
    if text in actions:
        return ConstantAction(actions.index(text), len(actions))
    if text.isdecimal() and int(text) < len(actions):
        return ConstantAction(int(text), len(actions))
    raise BadInput(
        f"constant:{text} names none of the {len(actions)} actions of the data: "
        f"{', '.join(actions)}"
    )


def _controller(model: Any, name: str, data: RecordedData) -> Policy:
    """Return the policy of a trained controller; raise BadInput if it observes something else."""
    from horde_agent.sb3 import ControllerPolicy

    shape = model.observation_space.shape
    if shape != (len(data.channels),):
        raise BadInput(
            f"the model {name} observes {model.observation_space}, but the data have "
            f"{len(data.channels)} channels: {', '.join(data.channels)}"
        )
    try:
        return ControllerPolicy(model)
    except ValueError as error:
        raise BadInput(f"the model {name}: {error}") from None


def _function(function: Any, name: str, n_actions: int) -> Policy:
    """Return the policy of a function of (observation, tiles), or of the observation alone."""
    if can_be_called(function, 2):
        return PolicyFunction(function, n_actions)
    if can_be_called(function, 1):
        called: Callable[[Any], Any] = function
        return PolicyFunction(lambda observation, tiles: called(observation), n_actions)  # noqa: ARG005
    raise BadInput(
        f"the policy {name} must be {FORMS}, or return the probabilities of the {n_actions} actions "
        "for (observation, tiles)"
    )


def _on_rows(policy: Policy, name: str, data: RecordedData) -> Floats:
    """Return pi(a|s) in each row, shape (n_rows, n_actions); raise BadInput if they have another shape."""
    at_once = getattr(policy, "probabilities_at", None)
    if at_once is not None:
        try:
            return np.asarray(at_once(data.observations))
        except RAISED as error:
            raise BadInput(f"the policy {name} fails: {reason_of(error)}") from None
    n_actions = len(data.actions)
    table = np.empty((len(data.observations), n_actions))
    rows = zip(data.observations.astype(np.float64), data.episodes.tiles, strict=True)
    for k, (observation, tiles) in enumerate(rows):
        try:
            probabilities = np.asarray(policy.probabilities(observation, tiles), dtype=np.float64)
        except RAISED as error:
            raise BadInput(f"the policy {name} fails in row {k}: {reason_of(error)}") from None
        if probabilities.shape != (n_actions,):
            raise BadInput(
                f"the policy {name} has probabilities of shape {probabilities.shape}, but the data "
                f"have {n_actions} actions: {', '.join(data.actions)}"
            )
        table[k] = probabilities
    return table
