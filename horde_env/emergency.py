"""`horde-robot stop`: the emergency stop is set, and the robot is told, whichever of the two is possible."""

from __future__ import annotations

import argparse
import time
from datetime import datetime

from horde_env.errors import BackendUnavailable, PortLost
from horde_env.hardware import robot_file
from horde_env.hardware.folders import ROBOT
from horde_env.hardware.latch import EmergencyLatch, default_path
from horde_env.running import UNWELL, WELL, BadInput, answered
from horde_env.target import ON_A_PORT, Target
from horde_env.terminal import complain


def stop_robot(words: argparse.Namespace) -> int:
    """Set the emergency stop and send a stop where there is a port; or clear it."""
    with answered():
        path = default_path(words.robot)
        if words.clear:
            if words.port or words.parity or words.reason or words.backend:
                raise BadInput("--clear goes with --robot alone: clearing sends nothing to the robot")
            return _clear(EmergencyLatch(path))
    code = WELL
    try:
        EmergencyLatch(path).set(words.reason or f"horde-robot stop, {datetime.now():%Y-%m-%d %H:%M:%S}")
        named = "" if words.robot == ROBOT else f" --robot {words.robot}"
        print(f"the emergency stop of {words.robot} is set; `horde-robot stop --clear{named}` ends it")
    except BackendUnavailable as error:  # then the robot itself is told all the more
        code = complain(str(error), UNWELL)
    with answered():
        file = robot_file.known(words.robot)
        backend = words.backend or (file.backend if file.backend in ON_A_PORT else "serial")
        port = words.port or (file.port if backend == file.backend else "")
        parity = words.parity or file.parity
        target = Target(words.robot, backend, robot_file.RobotFile(backend, port, parity, file.baudrate))
    if not port:
        print("no port is known, so only programs that drive the robot from here will see it")
        return code
    return max(code, _send_stop(target))


def _clear(latch: EmergencyLatch) -> int:
    reason = latch.clear()
    print(f"cleared; it was set: {reason}" if reason else "no emergency stop was set")
    return WELL


def _send_stop(target: Target) -> int:
    """Send a stop over a port of our own, and say what the robot then does."""
    from horde_env.hardware.dialect import DROPS, SERIAL
    from horde_env.hardware.halt import send_stop, turns
    from horde_env.robot import critterbot

    port, dialect = target.file.port, DROPS if target.backend == "drops" else SERIAL
    try:
        state = send_stop(target.config, dialect, time.monotonic, time.sleep)
    except (BackendUnavailable, PortLost) as error:
        ours = "A program of this package that drives the robot has stopped it by now; stop any other by its own means"
        return complain(f"nothing was sent to the robot: {error} {ours}, or switch the robot off", UNWELL)
    if state is None:
        return complain(
            f"a stop was sent to {port}, but nothing answers there (nor does a robot at its console)", UNWELL
        )
    if turns(state, critterbot()):
        return complain(f"a stop was sent to {port}, but its wheels still turn: switch the robot off", UNWELL)
    print(f"a stop was sent to {port}; the robot answers, and its wheels are at rest")
    return WELL
