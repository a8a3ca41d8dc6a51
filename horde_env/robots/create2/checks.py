"""The Create 2's part of `horde-robot`."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from horde_env.backend import Floats
from horde_env.errors import BackendUnavailable, PortLost
from horde_env.hardware.checks import Line, RobotChecks, StepEvent, StopReport, Verdict
from horde_env.hardware.port import Port
from horde_env.hardware.settings import PortConfig
from horde_env.robot import RobotSpec, create2
from horde_env.robots.create2 import wire
from horde_env.robots.create2.safety import LOW_V, CreateSupervisor
from horde_env.robots.create2.stream import FrameParser

SOON_EMPTY_V = 14.0
CERTAIN = 0.5  # of a requested speed


def judge_power(events: Sequence[StepEvent], spec: RobotSpec) -> Line:
    """Judge the battery by its mean voltage; the charge that it reports is an estimate."""
    mean = np.mean([event.values for event in events], axis=0)
    volts = float(mean[spec.index("battery_voltage")])
    charge = float(mean[spec.index("battery_charge")])
    text = f"battery {volts:.1f} V, {charge:.2f} A h by its own estimate"
    if volts < LOW_V:
        return Line(Verdict.FAIL, "power", f"{text}: too low to move; put it on its dock")
    if volts < SOON_EMPTY_V:
        return Line(Verdict.WARN, "power", f"{text}: charge it soon")
    return Line(Verdict.OK, "power", text)


def expected_wheels(request: Floats, spec: RobotSpec) -> Floats:
    """Return the speeds of the left and the right wheel, m/s, forward positive."""
    half = 0.5 * float(spec.drive["wheel_base_m"]) * float(request[2])
    return np.array([request[0] - half, request[0] + half])


def explain(measured: Floats, requested: Floats) -> str:
    """Return that the encoders are swapped if, in a turn on the spot, each shows the other wheel's speed."""
    if requested[0] * requested[1] < 0.0 and (measured * requested < -CERTAIN * requested**2).all():
        return (
            "left and right encoder are swapped, as on some Roomba 500; the same command with `--save` stores that, "
            "and they are corrected from then on"
        )
    return ""


# Between two stops; until a state is read
APART_S = 0.02
ANSWER_S = 0.5


def send_stop(config: PortConfig, backend: str) -> StopReport:  # noqa: ARG001
    """Stop the robot, set Passive mode, and report what the wheels do half a second later."""
    period_s = create2().packet_period_s
    parser = FrameParser()
    try:
        with Port(
            config, time.monotonic, parser=parser, fill=wire.FILL, packet_period_s=period_s
        ) as port:
            port.write(wire.FILL + wire.STOP_BYTES)
            time.sleep(APART_S)
            port.write(wire.STOP_BYTES + bytes([wire.Op.START]) + wire.STREAM_ALL)
            time.sleep(ANSWER_S)
            reading = port.newest()
            port.write(bytes([wire.Op.PAUSE_STREAM, 0]))
    except (BackendUnavailable, PortLost) as error:
        # The text of a lost port speaks of a timeout that this robot does not have.
        if isinstance(error, PortLost):
            reason = f"{error.url} was lost: {error.reason}."
        else:
            reason = str(error)
        return StopReport(
            None, f"nothing was sent to the robot: {reason} If its wheels turn, lift the robot"
        )
    sent = f"a stop was sent to {config.url}"
    if reading is None:
        text = f"{sent}, but nothing answers there: is it asleep or off? If its wheels turn, lift the robot"
        return StopReport(None, text)
    if reading.state.raw[create2().group("wheel_velocity")].any():
        return StopReport(False, f"{sent}, but its wheels still turn: lift it")
    return StopReport(True, f"{sent}; the robot answers, is released, and its wheels are at rest")


# In a flat room cliffs, drops, brushes and dirt never change, and a light bumper far from
# everything reads 0.
CHECKS = RobotChecks(
    wheels="wheel_velocity",
    motors=("wheel_current",),
    lively=("battery_current", "light_bump", "cliff_signal"),
    may_rest=("light_bump",),
    voltages=("battery_voltage",),
    expected_wheels=expected_wheels,
    judge_power=judge_power,
    supervisor=CreateSupervisor,
    send_stop=send_stop,
    explain=explain,
)
