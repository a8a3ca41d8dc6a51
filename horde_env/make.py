"""The entry points behind `gymnasium.make`: each imports its body only when it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from horde_env.clock import Clock, RealTimeClock, SimulatedClock
from horde_env.env import PenEnv
from horde_env.robot import RobotSpec, critterbot


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


def _clock(spec: RobotSpec, realtime: bool) -> Clock:
    return RealTimeClock(spec.period_s) if realtime else SimulatedClock()
