"""The entry points behind `gymnasium.make`: each imports its body only when it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from horde_env.clock import Clock, RealTimeClock, SimulatedClock
from horde_env.env import PenEnv
from horde_env.robot import RobotSpec, critterbot

if TYPE_CHECKING:
    from horde_env.hardware.backend import SerialBody
    from horde_env.hardware.latch import EmergencyLatch
    from horde_env.hardware.link import LinkSettings
    from horde_env.hardware.settings import PortConfig


def make_simulator_env(*, realtime: bool = False, battery_scale: float = 1.0, **kwargs: Any) -> PenEnv:
    """Return the Critterbot in the simulated pen ("CritterbotPen-v0").

    Args:
        realtime: Let 0.1 s pass per step instead of running as fast as the machine can.
        battery_scale: Capacity of the batteries, a share of the robot's own (12 h); smaller ones show charging sooner.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        BackendUnavailable: If PyBullet is not installed here.
        ValueError: If an argument is out of range or unknown.
    """
    from horde_env.sim.backend import SimulatedBody

    spec = critterbot()
    body = SimulatedBody(spec, battery_scale=battery_scale)
    return PenEnv(body, _clock(spec, realtime), spec=spec, pen=body.pen, **kwargs)


def make_replay_env(*, log: str | Path, realtime: bool = False, **kwargs: Any) -> PenEnv:
    """Return a recorded life as an environment ("CritterbotReplay-v0"): its steps ignore the action.

    Args:
        log: The recording, a CSV file, gzipped or not (`horde_env.replay`).
        realtime: Let 0.1 s pass per step.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        BackendUnavailable: If there is no such file.
    """
    from horde_env.replay import RecordedLife

    spec = critterbot()
    return PenEnv(RecordedLife(log, spec), _clock(spec, realtime), spec=spec, **kwargs)


def make_serial_env(
    *,
    port: str,
    parity: Literal["odd", "even", "none"] = "odd",
    baudrate: int = 115_200,
    latch: EmergencyLatch | None = None,
    settings: LinkSettings | None = None,
    **kwargs: Any,
) -> PenEnv:
    """Return the real Critterbot at the end of a serial line ("CritterbotSerial-v0"). It is opened by the first reset.

    Args:
        port: A device ("/dev/serial/by-id/..."), "socket://HOST:PORT" or "rfc2217://HOST:PORT".
        parity: The robot's is odd; a pseudo terminal may take "none" alone.
        baudrate: Bits per second.
        latch: The emergency stop; the Critterbot's own (`horde_env.hardware.latch`) when None.
        settings: How long commands are held and reconnection is tried.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        ValueError: If an argument is out of range or unknown.
    """
    from horde_env.hardware.backend import SerialBody
    from horde_env.hardware.settings import PortConfig

    return _physical_env(SerialBody, PortConfig(port, baudrate, parity), latch, settings, kwargs)


def make_drops_env(
    *, port: str, latch: EmergencyLatch | None = None, settings: LinkSettings | None = None, **kwargs: Any
) -> PenEnv:
    """Return the real Critterbot behind its on-board driver ("CritterbotDrops-v0"). It is opened by the first reset.

    Args:
        port: "HOST:PORT"; the driver's own port, 2330, where none is said. The original simulator's is 2324.
        latch: The emergency stop; the Critterbot's own when None.
        settings: How long commands are held and reconnection is tried.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        ValueError: If an argument is out of range or unknown.
    """
    from horde_env.hardware.backend import DropsBody
    from horde_env.hardware.drops import url_of
    from horde_env.hardware.settings import PortConfig

    return _physical_env(DropsBody, PortConfig(url_of(port)), latch, settings, kwargs)


def make_emulated_env(
    *,
    link: Literal["serial", "drops"] = "serial",
    realtime: bool = False,
    speed: float = 1.0,
    faults: str = "",
    seed: int = 0,
    battery_scale: float = 1.0,
    latch: EmergencyLatch | None = None,
    settings: LinkSettings | None = None,
    **kwargs: Any,
) -> PenEnv:
    """Return an emulated Critterbot, reached as the real one is ("CritterbotEmulated-v0"): its bytes, a real port.

    Robot and environment share one virtual clock, as fast as the machine can; the same seed gives the same life.

    Args:
        link: "serial" or "drops".
        realtime: Let 0.1 s pass per step, with the robot in a thread of its own.
        speed: As `realtime`, so many times as fast.
        faults: Rates per second of faults, as "loss=0.5,unplug=0.01".
        seed: Of the faults and of the noise, beside the seed of `reset`.
        battery_scale: Capacity of the batteries, a share of the robot's own.
        latch: An emergency stop; none when None.
        settings: How long commands are held and reconnection is tried.
        **kwargs: action_type, render_mode and task of `PenEnv`.

    Raises:
        BackendUnavailable: If PyBullet is not installed here.
        ValueError: If an argument is out of range or unknown.
    """
    from horde_env.emulated import EmulatedBody

    body = EmulatedBody(
        link=link,
        speed=speed if realtime or speed != 1.0 else None,
        faults=faults,
        seed=seed,
        battery_scale=battery_scale,
        settings=settings,
        latch=latch,
    )
    return PenEnv(body, body.clock, spec=body.spec, pen=body.pen, **kwargs)


def _physical_env(
    kind: type[SerialBody],
    config: PortConfig,
    latch: EmergencyLatch | None,
    settings: LinkSettings | None,
    kwargs: dict[str, Any],
) -> PenEnv:
    from horde_env.hardware.latch import EmergencyLatch

    spec = critterbot()
    clock = RealTimeClock(spec.period_s)
    body = kind(config, clock, spec, latch=latch or EmergencyLatch(), settings=settings)
    return PenEnv(body, clock, spec=spec, **kwargs)


def _clock(spec: RobotSpec, realtime: bool) -> Clock:
    return RealTimeClock(spec.period_s) if realtime else SimulatedClock()
