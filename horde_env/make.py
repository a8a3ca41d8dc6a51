"""`make_env`: a robot's environment by the name of its backend; what `gymnasium.make` calls.

Each id has a class of its own, whose docstring has tables of its channels, actions and info:

    help(gymnasium.make("horde_env:ID").unwrapped)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv

from horde_env import registry
from horde_env.backend import Backend, InfoKey
from horde_env.clock import RealTimeClock
from horde_env.env import RobotEnv
from horde_env.hardware import robot_file
from horde_env.hardware.latch import EmergencyLatch, default_path
from horde_env.hardware.settings import LinkSettings
from horde_env.registry import BodyKind, Environment, Robot
from horde_env.robot import DEFAULT_ROBOT, RobotSpec
from horde_env.spaces import AXES
from horde_env.vector import PenVectorEnv, check_vector_arguments

ENV_ARGUMENTS = ("action_type", "render_mode", "task")  # of RobotEnv


def make_env(kind: str, backend: str, **arguments: Any) -> RobotEnv:
    """Return an environment of a robot. A robot behind a port is opened by the first reset.

    Args:
        kind: The robot, one of `robot.ROBOTS`.
        backend: One of its backends, "simulator", "serial", ...; `Robot.environments` lists the
            arguments of each.
        **arguments: action_type, render_mode and task of `RobotEnv`, and those that the backend has
            of these:

            realtime: Take 0.1 s per step instead of running at full speed.
            battery_scale: Capacity of the batteries, a share of the robot's own; smaller ones show
                charging sooner.
            physics: Physics engine: "bullet" (PyBullet) or "planar" (numba, the same poses,
                faster). When None, PyBullet if it is installed and the robot has it.
            lamp_moves: Changes of the pen during each run: robot time in seconds, name of a lamp in
                `assets/pen.toml`, its new position (x, y, z in metres). Pictures show the pen
                before them.
            friction_changes: Changes of the robot during each run: robot time in seconds,
                "clockwise" or "counterclockwise", factor on the friction of the wheels' axles while
                the robot turns that way.
            layout: The room's file; `assets/room.toml` when None.
            log: A log of the robot, a CSV file, gzipped or not; or the folder of a run of `horde
                learn`.
            port: A device ("/dev/serial/by-id/..."), "socket://HOST:PORT" or "rfc2217://HOST:PORT";
                for drops "HOST:PORT" or "HOST" (port 2330). When None, the port in the robot's file
                (`horde_env.hardware.robot_file`), as for parity and baudrate.
            parity: The robot's is "odd"; a pseudo terminal may take "none" alone.
            baudrate: Bits per second.
            robot: Name of the robot; that of its kind by default.
            signs: Channel -> -1 if its readings run against the specification; those of the robot's
                file when None.
            latch: The emergency stop (`horde_env.hardware.latch`); the robot's own when None, and
                none for an emulated robot.
            settings: Time limits of commands and of reconnection.
            guarded: Open the port in a watchdog process, which stops the robot if this program ends
                or hangs.
            link: How an emulated robot is reached, "serial" or "drops".
            speed: As `realtime`, faster by this factor, with the emulated robot in its own thread.
            faults: Rates per second of faults, as "loss=0.5,unplug=0.01".
            seed: Seed of faults and noise, in addition to that of `reset`.

    Raises:
        BackendUnavailable: If `physics` is "bullet" and PyBullet is not installed, or if there is
            no such recording.
        TypeError: If the backend has no such argument.
        ValueError: If there is no such robot or backend, or an argument is out of range.

    Examples:
        A function for each backend makes the default robot; none opens anything before the first reset.

        >>> simulated = make_simulator_env(physics="planar", action_type="velocity")
        >>> simulated.action_space.shape
        (3,)
        >>> emulated = make_emulated_env(faults="loss=0.5")  # its firmware, over a serial line
        >>> real = make_serial_env(port="/dev/ttyUSB0")
        >>> on_board = make_drops_env(port="robot.local")
        >>> make_replay_env(log="no/such.csv")
        Traceback (most recent call last):
        horde_env.errors.BackendUnavailable: there is no recorded life at no/such.csv; give the path of its CSV file
        >>> for env in (simulated, emulated, real, on_board):
        ...     env.close()
    """
    maker = registry.robot(kind)
    entry = maker.environment(backend)
    _check(entry.id, arguments, entry.arguments)
    env_arguments = {name: arguments.pop(name) for name in ENV_ARGUMENTS if name in arguments}
    realtime = bool(arguments.pop("realtime", False))
    body = _make_body(maker, backend, realtime=realtime, arguments=arguments)
    clock = getattr(body, "clock", None)
    if clock is None and realtime:
        clock = RealTimeClock(maker.spec.period_s)
    env = environment_class(kind, backend)(body, clock, spec=maker.spec, **env_arguments)
    document_info(env)
    return env


def _make_body(maker: Robot, backend: str, *, realtime: bool, arguments: dict[str, Any]) -> Backend:
    """Return the body behind an environment; nothing is opened."""
    match maker.environment(backend).body_kind:
        case BodyKind.SIMULATED:
            return maker.simulate(**arguments)
        case BodyKind.EMULATED:
            speed = arguments.pop("speed", 1.0)
            if not realtime and speed == 1.0:
                speed = None  # in lockstep
            return maker.emulate(speed=speed, **arguments)
        case BodyKind.RECORDED:
            return maker.replay(**arguments)
        case BodyKind.PHYSICAL:
            return _physical_body(maker, backend, **arguments)


# The default robot's environments, by `make_env`.
make_simulator_env = partial(make_env, DEFAULT_ROBOT, "simulator")
make_replay_env = partial(make_env, DEFAULT_ROBOT, "replay")
make_serial_env = partial(make_env, DEFAULT_ROBOT, "serial")
make_drops_env = partial(make_env, DEFAULT_ROBOT, "drops")
make_emulated_env = partial(make_env, DEFAULT_ROBOT, "emulated")

VECTOR_ONLY = ("num_envs", "max_episode_steps", "autoreset_mode")


def make_vector_env(kind: str, backend: str, **arguments: Any) -> VectorEnv[Any, Any, Any]:
    """Return many simulated robots as a vector environment; what `gymnasium.make_vec` calls.

    A robot without a kernel for many of them is stepped one after the other, by Gymnasium's
    `SyncVectorEnv`.

    Args:
        kind: As in `make_env`.
        backend: As in `make_env`.
        **arguments: num_envs, max_episode_steps and autoreset_mode of `PenVectorEnv`; action_type,
            task, battery_scale and physics as in `make_env`. Only the planar engine can step many
            robots in a kernel: `physics` is then "planar" or None. A robot without such a kernel
            has all arguments of `make_env`.

    Raises:
        TypeError: If it has no such argument.
        ValueError: If an argument is out of range.
    """
    maker = registry.robot(kind)
    entry = maker.environment(backend)
    vector_arguments = {name: arguments.pop(name) for name in VECTOR_ONLY if name in arguments}
    check_vector_arguments(**vector_arguments)
    if not entry.steps_many:
        n_robots = vector_arguments.pop("num_envs", 1)
        make_one = partial(
            gymnasium.make,
            entry.id,
            max_episode_steps=vector_arguments.pop("max_episode_steps", None),
            **arguments,
        )
        return SyncVectorEnv([make_one] * n_robots, **vector_arguments)
    known_names = ("action_type", "task", "battery_scale", "physics")
    unknown = [name for name in arguments if name not in known_names]
    if unknown:
        raise TypeError(
            f"the vector environment has no argument {unknown[0]!r}; it has "
            f"{', '.join((*VECTOR_ONLY, *known_names))}. "
            f'For others use vectorization_mode="sync" or "async"'
        )
    physics = arguments.pop("physics", None)
    if physics not in (None, "planar"):
        raise ValueError(
            f'physics must be "planar" to step many robots, not {physics!r}; or vectorization_mode="sync"'
        )
    env = make_env(kind, backend, physics="planar", **arguments)
    return PenVectorEnv(env, maker.make_batch, **vector_arguments)


def _physical_body(
    maker: Robot,
    backend: str,
    *,
    port: str | None = None,
    robot: str | None = None,
    signs: Mapping[str, int] | None = None,
    latch: EmergencyLatch | None = None,
    settings: LinkSettings | None = None,
    **line: Any,
) -> Backend:
    """Return the body of a robot behind a port; defaults come from the robot's file."""
    spec = maker.spec
    robot = robot or spec.name
    file = robot_file.known(robot, spec)
    if not port and file.backend == backend:
        port = file.port
    if not port:
        raise ValueError(
            f"no port is known for the robot {robot!r}: give it as port (--port), or save it with `horde-robot check "
            f"--robot {robot} --backend {backend} --port ... --save`"
        )
    if latch is None:
        latch = EmergencyLatch(default_path(robot))
    if signs is None:
        signs = file.signs
    make_body = maker.connect(backend)
    config, body_arguments = make_body.line_of(port, file, latch, **line)
    body = make_body(
        config,
        RealTimeClock(spec.period_s),
        latch=latch,
        settings=settings,
        signs=signs,
        **body_arguments,
    )
    if latch.path == default_path(robot):  # the command sets no other latch
        body.stop_options = {"robot": robot, "backend": backend, "port": port}
        if line.get("parity"):
            body.stop_options["parity"] = line["parity"]
    return body


# ---- a class per id, with a docstring --------------------------------------------------------------------------------

INDENT = "    "


def class_name(id_: str) -> str:
    """Return the name of an id's class: "Robot-v0" is `Robot_v0`."""
    return id_.replace("-", "_")


@cache
def environment_class(kind: str, backend: str) -> type[RobotEnv]:
    """Return the class of a robot's environment.

    Args:
        kind: The robot, one of `robot.ROBOTS`.
        backend: One of its backends, "simulator", "serial", ...
    """
    robot = registry.robot(kind)
    entry = robot.environment(backend)
    attributes = {
        "__module__": __name__,
        "__qualname__": class_name(entry.id),
        "__doc__": _introduction(robot.spec, entry),
    }
    return type(class_name(entry.id), (RobotEnv,), attributes)


def document_info(env: RobotEnv) -> None:
    """Append the table of its info to the docstring of an environment's class, once.

    The keys depend on the body, which the first environment of the class brings.
    """
    env_class = type(env)
    heading = "Info, the same keys after every reset and step:"
    introduction = env_class.__doc__ or ""
    if heading not in introduction:
        table = _info_table(env.info_keys)
        env_class.__doc__ = f"{introduction}\n{heading}\n\n{table}"


def __getattr__(name: str) -> Any:
    # For pickle, which looks a class up by its name in this module
    for robot in registry.all_robots():
        for backend, entry in robot.environments.items():
            if class_name(entry.id) == name:
                return environment_class(robot.name, backend)
    raise AttributeError(f"there is no environment class {name!r}")


_BODIES = {
    BodyKind.SIMULATED: "a simulated robot",
    BodyKind.EMULATED: "the driver of the real robot, connected to an emulated one",
    BodyKind.PHYSICAL: "the real robot",
    BodyKind.RECORDED: "a recorded life, whose actions are the recorded ones",
}


def _introduction(spec: RobotSpec, entry: Environment) -> str:
    """Return a docstring without the table of info."""
    return f"""The environment horde_env:{entry.id}: {_BODIES[entry.body_kind]} ({spec.name}).

One step is {spec.period_s:g} s. Arguments of gymnasium.make, which horde_env.make.make_env describes:
{", ".join((*entry.arguments, "action_type", "render_mode", "task"))}.

Observation: Box(0, 1, ({spec.n_channels},), float32), a channel each, scaled from its range to 0 .. 1:

{_channel_table(spec)}
Actions: Discrete({len(spec.actions)}), velocities of the body; with action_type="velocity"
Box(-1, 1, ({len(spec.axes)},)), shares of the largest velocity along {", ".join(AXES[i] for i in spec.axes)}:

{_action_table(spec)}"""


def _channel_table(spec: RobotSpec) -> str:
    rows = [("", "channel", "unit", "range", "")]
    for index, channel in enumerate(spec.channels):
        kind = "sensor"
        if not channel.is_sensor:
            kind = "state"
        span = f"{channel.low:g} .. {channel.high:g}"
        rows.append((str(index), channel.name, channel.unit, span, kind))
    return _table(rows)


def _action_table(spec: RobotSpec) -> str:
    rows: list[tuple[str, ...]] = [("", "action", "x, m/s", "y, m/s", "yaw, rad/s")]
    for index, action in enumerate(spec.actions):
        velocity = [f"{number:.3g}" for number in action.request]
        rows.append((str(index), action.name, *velocity))
    largest = [f"{number:.3g}" for number in spec.largest_request]
    rows.append(("", "(largest)", *largest))
    return _table(rows)


def _info_table(keys: Sequence[InfoKey]) -> str:
    rows = [("key", "unit", "meaning")]
    rows += [(key.name, key.unit, key.meaning) for key in keys]
    return _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines of text with aligned columns; the first row is the heading."""
    n_columns = len(rows[0])
    widths = [max(len(row[column]) for row in rows) for column in range(n_columns)]
    text = ""
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        text += INDENT + "  ".join(cells).rstrip() + "\n"
    return text


# ---- types of arguments ----------------------------------------------------------------------------------------------


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)
    )


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


_FLAG = _is(bool, np.bool_), "True or False"
_POSITIVE = lambda v: _is(Real)(v) and 0 < float(v) < math.inf, "a positive, finite number"
_TEXT = (_is(str), "a string")
_PATH = (_is(str, Path), "a path")
_EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("realtime", "guarded"), _FLAG),
    **dict.fromkeys(("battery_scale", "speed"), _POSITIVE),
    **dict.fromkeys(
        ("robot", "link", "faults", "action_type", "physics", "port", "parity", "task"), _TEXT
    ),
    **dict.fromkeys(("log", "layout"), _PATH),
    "render_mode": _TEXT,
    "seed": (lambda v: _is(Integral)(v) and v >= 0, "a whole number from 0 on"),
    "baudrate": (
        lambda v: _is(Integral)(v) and v >= 1,
        "a positive whole number of bits per second",
    ),
    "lamp_moves": (_is_sequence, "a sequence of (seconds, name of a lamp, (x, y, z) in metres)"),
    "friction_changes": (
        _is_sequence,
        "a sequence of (seconds, 'clockwise' or 'counterclockwise', factor)",
    ),
    "signs": (
        lambda v: (
            isinstance(v, Mapping)
            and all(isinstance(n, str) and sign in (1, -1) for n, sign in v.items())
        ),
        "a mapping from channel names to 1 or -1",
    ),
    "latch": (_is(EmergencyLatch), "an EmergencyLatch"),
    "settings": (_is(LinkSettings), "a LinkSettings"),
}
"""The test of each argument, and the words that an error says it must be."""
_HAVE_DEFAULT = (
    "render_mode",
    "task",
    "physics",
    "port",
    "parity",
    "baudrate",
    "layout",
    "signs",
    "latch",
    "settings",
)


def _check(id_: str, arguments: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Check names and types of all arguments before anything is opened."""
    for name, value in arguments.items():
        if name not in known and name not in ENV_ARGUMENTS:
            raise TypeError(
                f"{id_} has no argument {name!r}; it has {', '.join((*known, *ENV_ARGUMENTS))}"
            )
        is_fine, expected = _EXPECTED[name]
        if not (is_fine(value) or (value is None and name in _HAVE_DEFAULT)):
            raise ValueError(f"{name} must be {expected}, not {value!r}")
