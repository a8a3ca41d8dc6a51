"""Action spaces, requests, reset options and metadata of a robot's environment."""

from __future__ import annotations

import math
import operator
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from horde_env.backend import Backend, Floats, Restorable
from horde_env.docking import CHARGE_LIMIT_S, MANOEUVRES
from horde_env.robot import RobotSpec

ActionType = Literal["discrete", "velocity"]
AXES = ("x", "y", "yaw")
NUMBERS = ("no", "one", "two", "three")
OPTIONS = ("manoeuvre", "charge_s")


def action_space(spec: RobotSpec, action_type: str) -> spaces.Space[Any]:
    """Return Discrete(n_actions), or Box(-1, 1, (n_axes,)) for "velocity": shares of the largest request.

    Raises:
        ValueError: If `action_type` is neither.
    """
    if action_type == "discrete":
        return spaces.Discrete(len(spec.actions))
    if action_type == "velocity":
        return spaces.Box(-1.0, 1.0, (len(spec.axes),), np.float32)
    raise ValueError(f'unknown action_type {action_type!r}; choose "discrete" or "velocity"')


def checked_request(command: Floats) -> tuple[float, float, float]:
    """Return a request of shape (3,), m/s, m/s, rad/s, as floats; ValueError unless it is three finite numbers."""
    numbers = np.asarray(command, dtype=np.float64)
    if numbers.shape != (3,):
        numbers = np.full(3, math.nan)
    x, y, yaw = numbers.tolist()
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(yaw)):
        raise ValueError(f"a request is three finite numbers (m/s, m/s, rad/s), not {command!r}")
    return x, y, yaw


def discrete_request(action: Any, requests: Floats) -> Floats:
    """Return the request (m/s, m/s, rad/s) of a discrete action; `requests` has shape (n_actions, 3).

    An array of one integer is accepted, too: vector environments and policies of other libraries
    return such.

    Raises:
        ValueError: If `action` is not an integer from 0 to n_actions - 1.
    """
    if isinstance(action, np.ndarray) and action.size == 1:
        action = action.item()
    try:
        index = operator.index(action)
    except TypeError:
        index = -1
    if not 0 <= index < len(requests):
        raise ValueError(f"action must be an integer from 0 to {len(requests) - 1}, not {action!r}")
    return np.asarray(requests[index])


def velocity_request(action: Any, largest: Floats, n: int | None = None) -> Floats:
    """Return the request (m/s, m/s, rad/s) of shares of the largest one along its nonzero axes, shape (3,).

    `action` has shares in [-1, 1], shape (n_axes,); of `n` robots (n, n_axes), for requests of
    shape (n, 3).

    Raises:
        ValueError: If `action` is not n_axes numbers in [-1, 1] per robot.
    """
    axes = np.flatnonzero(largest)
    shape: tuple[int, ...] = axes.shape
    if n is not None:
        shape = (n, axes.size)
    try:
        shares = np.asarray(action, dtype=np.float64)
    except (TypeError, ValueError):
        shares = np.full(shape, np.nan)
    # Written so that NaN fails it.
    if shares.shape != shape or not (np.abs(shares) <= 1.0).all():
        if n is None:
            number = NUMBERS[axes.size]
        else:
            number = f"{n} times {NUMBERS[axes.size]}"
        raise ValueError(
            f"action must be {number} shares of the largest request in [-1, 1], not {action!r}"
        )
    request = np.zeros((*shape[:-1], largest.size))
    request[..., axes] = shares * largest[axes]
    return request


def discrete_requests(actions: Any, n: int, requests: Floats) -> Floats:
    """Return the requests of the discrete actions of `n` robots, as `discrete_request`; shape (n, 3).

    Raises:
        ValueError: If `actions` are not n integers from 0 to n_actions - 1.
    """
    numbers = np.asarray(actions)
    is_fine = (
        numbers.shape == (n,)
        and numbers.dtype.kind in "iu"
        and ((numbers >= 0) & (numbers < len(requests))).all()
    )
    if not is_fine:
        raise ValueError(
            f"actions must be {n} integers from 0 to {len(requests) - 1}, not {actions!r}"
        )
    return np.asarray(requests[numbers])


def reset_options(options: dict[str, Any] | None, can_do: list[str]) -> tuple[str | None, float]:
    """Return the manoeuvre requested from a reset, or None, and the longest time to charge, in seconds.

    Raises:
        ValueError: If an option is unknown or invalid, or this body cannot do the manoeuvre.
    """
    if options is None:
        options = {}
    if not isinstance(options, dict):
        raise ValueError(
            f'options must be a dict like {{"manoeuvre": "centre"}}, or None, not {options!r}'
        )
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise ValueError(
            f"unknown reset option {unknown[0]!r} in options; choose from {', '.join(map(repr, OPTIONS))}"
        )
    manoeuvre = options.get("manoeuvre")
    if manoeuvre is not None and manoeuvre not in MANOEUVRES:
        raise ValueError(f"unknown manoeuvre {manoeuvre!r}; choose one of {', '.join(MANOEUVRES)}")
    if manoeuvre is not None and manoeuvre not in can_do:
        raise ValueError("manoeuvre 'dock' is not possible: this body has no dock; leave it out")
    charge_s = options.get("charge_s", CHARGE_LIMIT_S)
    if "charge_s" in options and manoeuvre != "dock":
        raise ValueError("charge_s is an option of the manoeuvre 'dock' only; leave it out")
    if (
        isinstance(charge_s, bool)
        or not isinstance(charge_s, int | float)
        or not 0.0 <= charge_s < math.inf
    ):
        raise ValueError(f"charge_s must be a finite number of seconds >= 0, not {charge_s!r}")
    return manoeuvre, float(charge_s)


def picture(spec: RobotSpec, plan: dict[str, Any]) -> dict[str, Any]:
    """Return the data for drawing robot and arena from above, as lists; metres and radians.

    `plan` is that of the robot (`registry.Robot.plan`), which may leave out any of these but "ranges":

    "walls" are segments (x0, y0, x1, y1), "outline" the corners of the body, "rays" (x, y, angle,
    channel) position, direction and channel index of each reflectance sensor; "lights" are (x, y,
    "lamp" or "beacon"), "ranges" the values at 0 and 1 of each channel, in its unit.
    """
    ranges = np.column_stack([spec.low, spec.high]).tolist()
    return {
        "walls": [],
        "outline": spec.body.get("outline_m", []),
        "rays": [],
        "lights": [],
        "ranges": ranges,
    } | plan


def robot_metadata(spec: RobotSpec, action_type: str, render_modes: list[str]) -> dict[str, Any]:
    """Return an environment's metadata: its channels, actions, period (s), tile layouts and render modes."""
    if action_type == "discrete":
        actions = [action.name for action in spec.actions]
    else:
        actions = [AXES[i] for i in spec.axes]
    return {
        "render_modes": render_modes,
        "render_fps": round(1.0 / spec.period_s),
        "channels": [
            {
                "name": c.name,
                "group": c.group,
                "unit": c.unit,
                "sensor": c.is_sensor,
                "range": [c.low, c.high],
                "step": c.step,
                "role": c.role,
            }
            for c in spec.channels
        ],
        "actions": actions,
        "period_s": spec.period_s,
        "tile_layout": spec.tile_layout,
        "chosen_layout": spec.chosen_layout,
    }


def body_metadata(backend: Backend) -> dict[str, Any]:
    """Return the metadata of a body: "notes" on its results, whether it can be saved, how a command stops it."""
    facts: dict[str, Any] = {
        "notes": list(getattr(backend, "notes", ())),
        "restorable": isinstance(backend, Restorable),
        "stop_options": dict(getattr(backend, "stop_options", {})),
    }
    physics = getattr(backend, "physics", None)
    if physics:
        facts["physics"] = physics
    return facts
