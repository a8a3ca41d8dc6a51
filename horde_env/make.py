"""The entry points behind `gymnasium.make`: each imports its body only when called."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import numpy as np

from horde_env.clock import Clock, RealTimeClock, SimulatedClock
from horde_env.env import PenEnv
from horde_env.robot import RobotSpec, create2, critterbot

if TYPE_CHECKING:
    from horde_env.hardware.backend import PhysicalBody
    from horde_env.hardware.latch import EmergencyLatch
    from horde_env.hardware.robot_file import RobotFile
    from horde_env.hardware.settings import LinkSettings, PortConfig

P = ParamSpec("P")


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_row(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _is_move(value: Any) -> bool:
    if not (_is_row(value) and len(value) == 3 and _is_number(value[0]) and _is_text(value[1]) and _is_row(value[2])):
        return False
    return len(value[2]) == 3 and all(map(_is_number, value[2]))


def _is_latch(value: Any) -> bool:
    from horde_env.hardware.latch import EmergencyLatch

    return isinstance(value, EmergencyLatch)


def _is_settings(value: Any) -> bool:
    from horde_env.hardware.settings import LinkSettings

    return isinstance(value, LinkSettings)


_FLAG: tuple[Callable[[Any], bool], str] = (lambda v: isinstance(v, bool | np.bool_), "True or False")
_POSITIVE = (_is_positive, "a positive, finite number")
_TEXT = (_is_text, "a string")
_PATH: tuple[Callable[[Any], bool], str] = (lambda v: isinstance(v, str | Path), "a path")
_EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "realtime": _FLAG,
    "guarded": _FLAG,
    "battery_scale": _POSITIVE,
    "speed": _POSITIVE,
    "seed": (lambda v: _is_whole(v) and v >= 0, "a whole number from 0 on"),
    "baudrate": (lambda v: _is_whole(v) and v > 0, "a positive whole number of bits per second"),
    **dict.fromkeys(("physics", "port", "parity", "robot", "link", "faults"), _TEXT),
    **dict.fromkeys(("action_type", "task", "render_mode"), _TEXT),
    "log": _PATH,
    "layout": _PATH,
    "lamp_moves": (
        lambda v: _is_row(v) and all(map(_is_move, v)),
        "a sequence of (seconds, name of a lamp, (x, y, z) in metres)",
    ),
    "signs": (
        lambda v: isinstance(v, Mapping) and all(_is_text(name) and sign in (1, -1) for name, sign in v.items()),
        "a mapping from channel names to 1 or -1",
    ),
    "latch": (_is_latch, "an EmergencyLatch"),
    "settings": (_is_settings, "a LinkSettings"),
}


def _checked(make: Callable[P, PenEnv]) -> Callable[P, PenEnv]:
    """Check the type of each argument of a factory before anything is opened; None passes if it is the default."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(make).parameters.items()}

    @wraps(make)
    def checked(*args: P.args, **kwargs: P.kwargs) -> PenEnv:
        for name, value in kwargs.items():
            if name not in _EXPECTED or (value is None and defaults.get(name) is None and name != "action_type"):
                continue
            is_fine, expected = _EXPECTED[name]
            if not is_fine(value):
                raise ValueError(f"{name} must be {expected}, not {value!r}")
        return make(*args, **kwargs)

    return checked


@_checked
def make_simulator_env(
    *,
    realtime: bool = False,
    battery_scale: float = 1.0,
    physics: str | None = None,
    lamp_moves: Sequence[tuple[float, str, tuple[float, float, float]]] = (),
    **kwargs: Any,
) -> PenEnv:
    """Return the Critterbot in the simulated pen ("CritterbotPen-v0").

    Args:
        realtime: Take 0.1 s per step instead of running at full speed.
        battery_scale: Capacity of the batteries, a share of the robot's own (12 h); smaller ones show charging sooner.
        physics: Physics engine: "bullet" (PyBullet) or "planar" (numba, the same poses, faster). When None, PyBullet if
            it is installed.
        lamp_moves: Changes of the pen during each run (`LampMove`): robot time in seconds, name
            of a lamp in `assets/pen.toml`, its new position (x, y, z in metres). Pictures show the pen before them.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        BackendUnavailable: If `physics` is "bullet" and PyBullet is not installed.
        ValueError: If an argument is out of range or unknown.
    """
    from horde_env.robots.critterbot.place import load_pen
    from horde_env.robots.critterbot.safety import VoltageObedience
    from horde_env.robots.critterbot.simulator.backend import SimulatedBody
    from horde_env.robots.critterbot.simulator.sensors import ChangingSenses, LampMove

    spec, pen = critterbot(), load_pen()
    senses = ChangingSenses(spec, pen, [LampMove(*move) for move in lamp_moves]) if len(lamp_moves) else None
    rule = VoltageObedience
    body = SimulatedBody(spec, pen=pen, battery_scale=battery_scale, physics=physics, senses=senses, obedience=rule)
    return PenEnv(body, _clock(spec, realtime), spec=spec, pen=body.pen, **kwargs)


@_checked
def make_replay_env(*, log: str | Path, realtime: bool = False, **kwargs: Any) -> PenEnv:
    """Return a recorded life as an environment ("CritterbotReplay-v0"): its steps ignore the action.

    Args:
        log: A log of the robot, a CSV file, gzipped or not (`RecordedLife`); or the folder of a run of
            `horde learn` with the record of a Critterbot's life (`horde_env.replay.run`).
        realtime: Let 0.1 s pass per step.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        BackendUnavailable: If there is no such recording, or it is of another robot.
    """
    from horde_env.replay import RecordedRun, is_run
    from horde_env.robots.critterbot.log import RecordedLife

    spec = critterbot()
    body = RecordedRun(log, spec) if is_run(log) else RecordedLife(log, spec)
    return PenEnv(body, _clock(spec, realtime), spec=spec, **kwargs)


@_checked
def make_serial_env(
    *,
    port: str | None = None,
    parity: Literal["odd", "even", "none"] | None = None,
    baudrate: int | None = None,
    robot: str = "critterbot",
    signs: Mapping[str, int] | None = None,
    latch: EmergencyLatch | None = None,
    settings: LinkSettings | None = None,
    **kwargs: Any,
) -> PenEnv:
    """Return the real Critterbot at the end of a serial line ("CritterbotSerial-v0"). It is opened by the first reset.

    Args:
        port: A device ("/dev/serial/by-id/..."), "socket://HOST:PORT" or "rfc2217://HOST:PORT". This and the next two
            are those of the robot's file (`horde_env.hardware.robot_file`) when None.
        parity: The robot's is odd; a pseudo terminal may take "none" alone.
        baudrate: Bits per second.
        robot: Name of the robot.
        signs: Channel -> -1 where its readings run against the specification; those of its file when None.
        latch: The emergency stop; the robot's own (`horde_env.hardware.latch`) when None.
        settings: Time limits of commands and of reconnection.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        ValueError: If an argument is out of range or unknown.
    """
    from horde_env.hardware import robot_file
    from horde_env.hardware.settings import PortConfig
    from horde_env.robots.critterbot.body import SerialBody

    file = robot_file.known(robot)
    parity = parity or file.parity or "odd"  # type: ignore[assignment]
    config = PortConfig(_port_of("serial", port, robot, file), baudrate or file.baudrate, parity)  # type: ignore[arg-type]
    return _physical_env(SerialBody, config, critterbot(), _common(robot, file, signs, latch, settings), kwargs)


@_checked
def make_drops_env(
    *,
    port: str | None = None,
    robot: str = "critterbot",
    signs: Mapping[str, int] | None = None,
    latch: EmergencyLatch | None = None,
    settings: LinkSettings | None = None,
    **kwargs: Any,
) -> PenEnv:
    """Return the real Critterbot behind its on-board driver ("CritterbotDrops-v0"). It is opened by the first reset.

    Args:
        port: "HOST:PORT" or "HOST", then with the driver's port 2330 (the original simulator has 2324). When None, the
            port in the robot's file.
        robot: Name of the robot.
        signs: As for `make_serial_env`.
        latch: The emergency stop; `default_path(robot)` when None.
        settings: Time limits of commands and of reconnection.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        ValueError: If an argument is out of range or unknown.
    """
    from horde_env.hardware import robot_file
    from horde_env.hardware.settings import PortConfig
    from horde_env.robots.critterbot.body import DropsBody
    from horde_env.robots.critterbot.stream import url_of

    file = robot_file.known(robot)
    config = PortConfig(url_of(_port_of("drops", port, robot, file)))
    return _physical_env(DropsBody, config, critterbot(), _common(robot, file, signs, latch, settings), kwargs)


@_checked
def make_emulated_env(
    *,
    link: Literal["serial", "drops"] = "serial",
    realtime: bool = False,
    speed: float = 1.0,
    faults: str = "",
    seed: int = 0,
    battery_scale: float = 1.0,
    physics: str | None = None,
    latch: EmergencyLatch | None = None,
    settings: LinkSettings | None = None,
    **kwargs: Any,
) -> PenEnv:
    """Return an emulated Critterbot, reached as the real one is ("CritterbotEmulated-v0"): its bytes, a real port.

    Robot and environment share one virtual clock at full speed; the same seed gives the same run.

    Args:
        link: "serial" or "drops".
        realtime: Take 0.1 s per step, with the robot in its own thread.
        speed: As `realtime`, faster by this factor.
        faults: Rates per second of faults, as "loss=0.5,unplug=0.01".
        seed: Seed of faults and noise, in addition to that of `reset`.
        battery_scale: Capacity of the batteries, a share of the robot's own.
        physics: As for `make_simulator_env`.
        latch: An emergency stop; none when None.
        settings: Time limits of commands and of reconnection.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        BackendUnavailable: If `physics` is "bullet" and PyBullet is not installed.
        ValueError: If an argument is out of range or unknown.
    """
    from horde_env.robots.critterbot.emulator.emulator import EmulatedBody

    body = EmulatedBody(
        link=link,
        speed=speed if realtime or speed != 1.0 else None,
        faults=faults,
        seed=seed,
        battery_scale=battery_scale,
        physics=physics,
        settings=settings,
        latch=latch,
    )
    return PenEnv(body, body.clock, spec=body.spec, pen=body.pen, **kwargs)


@_checked
def make_create_env(
    *,
    realtime: bool = False,
    battery_scale: float = 1.0,
    physics: str | None = None,
    layout: str | Path | None = None,
    **kwargs: Any,
) -> PenEnv:
    """Return the Create 2 in its simulated room ("CreatePen-v0").

    Args:
        realtime: Take 0.1 s per step instead of running at full speed.
        battery_scale: Capacity of the battery, a share of the robot's own (four hours of wandering).
        physics: As for `make_simulator_env`.
        layout: The room's file; `assets/room.toml` when None.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        BackendUnavailable: If `physics` is "bullet" and PyBullet is not installed.
        ValueError: If an argument is out of range or unknown, or the layout is wrong.
    """
    from horde_env.robots.create2.place import load_room
    from horde_env.robots.create2.simulator.backend import SimulatedCreate

    spec = create2()
    body = SimulatedCreate(spec, room=load_room(layout), battery_scale=battery_scale, physics=physics)
    return PenEnv(body, _clock(spec, realtime), spec=spec, **kwargs)


@_checked
def make_create_serial_env(
    *,
    port: str | None = None,
    baudrate: int | None = None,
    robot: str = "create2",
    signs: Mapping[str, int] | None = None,
    latch: EmergencyLatch | None = None,
    settings: LinkSettings | None = None,
    guarded: bool = True,
    **kwargs: Any,
) -> PenEnv:
    """Return the real Create 2 at the end of a serial line ("CreateSerial-v0"). It is opened by the first reset.

    Args:
        port: A device ("/dev/serial/by-id/...") or "socket://HOST:PORT"; when None, the port in the robot's file.
        baudrate: Bits per second; 115200 unless the robot's file says otherwise.
        robot: Name of the robot.
        signs: Channel -> -1 where its readings run against the specification; those of its file when None.
        latch: The emergency stop; `default_path(robot)` when None.
        settings: Time limits of commands and of reconnection.
        guarded: Open the port in a guardian process, which stops the robot if this program ends or hangs.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        ValueError: If an argument is out of range or unknown.
    """
    from horde_env.hardware import robot_file
    from horde_env.hardware.settings import PortConfig
    from horde_env.robots.create2.body import CreateBody
    from horde_env.robots.create2.guardian import connect_guarded

    spec = create2()
    file = robot_file.known(robot, spec)
    config = PortConfig(_port_of("serial", port, robot, file), baudrate or file.baudrate, "none")
    body = _common(robot, file, signs, latch, settings) | {"swapped_encoders": file.swapped_encoders}
    if guarded:
        body["connect"] = partial(connect_guarded, emergency=str(body["latch"].path))
    return _physical_env(CreateBody, config, spec, body, kwargs)


@_checked
def make_create_emulated_env(
    *,
    realtime: bool = False,
    speed: float = 1.0,
    faults: str = "",
    seed: int = 0,
    battery_scale: float = 1.0,
    physics: str | None = None,
    layout: str | Path | None = None,
    latch: EmergencyLatch | None = None,
    settings: LinkSettings | None = None,
    **kwargs: Any,
) -> PenEnv:
    """Return an emulated Create 2, reached as the real one is ("CreateEmulated-v0"): its bytes, a real port.

    Args:
        realtime: Take 0.1 s per step, with the robot in its own thread, instead of running at full speed.
        speed: As `realtime`, faster by this factor.
        faults: Rates per second of faults, as "loss=0.5,lift=0.01".
        seed: Seed of faults and noise, in addition to that of `reset`.
        battery_scale: Capacity of the battery, a share of the robot's own.
        physics: As for `make_simulator_env`.
        layout: The room's file; `assets/room.toml` when None.
        latch: An emergency stop; none when None.
        settings: Time limits of commands and of reconnection.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        BackendUnavailable: If `physics` is "bullet" and PyBullet is not installed.
        ValueError: If an argument is out of range or unknown.
    """
    from horde_env.robots.create2.emulator.emulator import EmulatedCreate
    from horde_env.robots.create2.place import load_room

    body = EmulatedCreate(
        room=load_room(layout),
        speed=speed if realtime or speed != 1.0 else None,
        faults=faults,
        seed=seed,
        battery_scale=battery_scale,
        physics=physics,
        settings=settings,
        latch=latch,
    )
    return PenEnv(body, body.clock, spec=body.spec, **kwargs)


def _port_of(backend: str, port: str | None, robot: str, file: RobotFile) -> str:
    """Return the port of a robot: the argument, else the one in its file for this backend."""
    port = port or (file.port if file.backend == backend else "")
    if not port:
        raise ValueError(
            f"no port is known for the robot {robot!r}: say where it is (--port), or let `horde-robot check --backend "
            f"{backend} --port ... --save` keep it"
        )
    return port


def _common(
    robot: str,
    file: RobotFile,
    signs: Mapping[str, int] | None,
    latch: EmergencyLatch | None,
    settings: LinkSettings | None,
) -> dict[str, Any]:
    """Return the arguments of every physical body; defaults come from the robot's file."""
    from horde_env.hardware.latch import EmergencyLatch, default_path

    latch = EmergencyLatch(default_path(robot)) if latch is None else latch
    return {"latch": latch, "settings": settings, "signs": file.signs if signs is None else signs}


def _physical_env(
    kind: type[PhysicalBody], config: PortConfig, spec: RobotSpec, body: dict[str, Any], kwargs: dict[str, Any]
) -> PenEnv:
    clock = RealTimeClock(spec.period_s)
    return PenEnv(kind(config, clock, spec, **body), clock, spec=spec, **kwargs)


def _clock(spec: RobotSpec, realtime: bool) -> Clock:
    return RealTimeClock(spec.period_s) if realtime else SimulatedClock()
