"""`horde-robot stop`: the emergency stop is set, and the robot is told, whichever of the two is possible."""

from __future__ import annotations

import argparse
import time
from datetime import datetime

from horde_env.commands.running import UNWELL, WELL, BadInput, answered
from horde_env.commands.target import ON_A_PORT, Target
from horde_env.commands.terminal import complain
from horde_env.errors import BackendUnavailable, PortLost
from horde_env.hardware import robot_file
from horde_env.hardware.folders import ROBOT
from horde_env.hardware.latch import EmergencyLatch, default_path

PATIENCE_S = 1.0  # with a program that drives the robot: it looks for the stop in every step


def stop_robot(words: argparse.Namespace) -> int:
    """Set the emergency stop and send a stop where there is a port; or clear it."""
    with answered():
        path = default_path(words.robot)
        if words.clear:
            if words.port or words.parity or words.reason or words.backend:
                raise BadInput("--clear goes with --robot alone: clearing sends nothing to the robot")
            return _clear(EmergencyLatch(path))
    code, latch = WELL, EmergencyLatch(path)
    try:
        latch.set(words.reason or f"horde-robot stop, {datetime.now():%Y-%m-%d %H:%M:%S}")
        named = "" if words.robot == ROBOT else f" --robot {words.robot}"
        print(f"the emergency stop of {words.robot} is set; `horde-robot stop --clear{named}` ends it")
    except BackendUnavailable as error:  # then the robot itself is told all the more
        code = complain(str(error), UNWELL)
    with answered():
        file = robot_file.known(words.robot)
        backend = words.backend or (file.backend if file.backend in ON_A_PORT else "serial")
        port = words.port or (file.port if backend == file.backend else "")
        parity = words.parity or file.parity
        target = Target(
            words.robot, backend, robot_file.RobotFile(backend, port, parity, file.baudrate, kind=file.kind)
        )
    if not port:
        print("no port is known, so only programs that drive the robot from here will see it")
        return code
    send = _send_create_stop if target.kind == "create2" else _send_critterbot_stop
    return max(code, send(target, latch))


def _clear(latch: EmergencyLatch) -> int:
    reason = latch.clear()
    print(f"cleared; it was set: {reason}" if reason else "no emergency stop was set")
    return WELL


def _send_critterbot_stop(target: Target, latch: EmergencyLatch) -> int:
    """Send a Critterbot a stop over a port of our own, and say what it then does; or who else has stopped it."""
    from horde_env.robot import critterbot
    from horde_env.robots.critterbot.body import DROPS, SERIAL, is_driven, send_stop, turns

    spec, port, dialect = critterbot(), target.file.port, DROPS if target.backend == "drops" else SERIAL
    try:
        state = send_stop(target.config, dialect, time.monotonic, time.sleep)
        failure = f"a stop was sent to {port}, but nothing answers there (nor does a robot at its console)."
    except (BackendUnavailable, PortLost) as error:
        state, failure = None, f"nothing was sent to the robot: {error}"
    if state is None:
        advice = "No program of this package has answered the emergency stop either: stop any other by its own means"
        return _left_to_others(latch, f"{failure} {advice}, or switch the robot off")
    if is_driven(state, spec):
        return complain(f"a stop was sent to {port}, but its motors are still driven: switch the robot off", UNWELL)
    rest = "its motors are off, but a wheel still turns" if turns(state, spec) else "its wheels are at rest"
    print(f"a stop was sent to {port}; the robot answers, and {rest}")
    return WELL


def _send_create_stop(target: Target, latch: EmergencyLatch) -> int:
    """Send a Create 2 its stop and START, and say what it then does; or who else has stopped it."""
    from horde_env.robots.create2.body import send_stop

    port = target.file.port
    try:
        state = send_stop(target.config, time.monotonic, time.sleep)
        failure = f"a stop was sent to {port}, but nothing answers there: is it asleep or off?"
    except (BackendUnavailable, PortLost) as error:
        # A port's loss speaks of the Critterbot's timeout, which this robot has not.
        reason = f"{error.url} was lost: {error.reason}." if isinstance(error, PortLost) else str(error)
        state, failure = None, f"nothing was sent to the robot: {reason}"
    if state is None:
        return _left_to_others(latch, f"{failure} If its wheels turn, lift the robot")
    if state.raw[4] or state.raw[5]:
        return complain(f"a stop was sent to {port}, but its wheels still turn: lift it", UNWELL)
    print(f"a stop was sent to {port}; the robot answers, let go of, and its wheels are at rest")
    return WELL


def _left_to_others(latch: EmergencyLatch, complaint: str) -> int:
    """Say which program has stopped the robot, where one has; else complain."""
    if driver := _who_answered(latch):
        print(f"{driver}, which drives the robot, has stopped it and keeps it still")
        return WELL
    return complain(complaint, UNWELL)


def _who_answered(latch: EmergencyLatch) -> str:
    """Wait for the program that drives the robot to say that it has stopped it; "" if none does."""
    end = time.monotonic() + PATIENCE_S
    while not (driver := latch.answered_by) and time.monotonic() < end:
        time.sleep(0.02)
    return driver
