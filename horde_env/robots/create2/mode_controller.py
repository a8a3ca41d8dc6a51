"""ModeController: keeps the robot in the required mode, and detects ignored commands; without a port or threads.

    drive     The robot leaves Safe without a message: 131 is sent again 0.5 s after the cause has ended, at most once a
              second, and not while a wheel has dropped
    charge    Passive (128), then its own docking (143); neither 131 nor 132 while it is on the dock
    leave     Safe; if the powered dock ends Safe, Full for at most 2 s, in which the robot backs off and a dropped
              wheel or a cliff stops it at once; then Safe. With a low battery it stays in Passive
              and charges

The real, the emulated and the simulated robot share it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from horde_env.backend import State
from horde_env.robot import RobotSpec
from horde_env.robots.create2.stream import CreateState
from horde_env.robots.create2.wire import (
    FULL,
    HALT,
    OFF,
    PASSIVE,
    SAFE,
    STREAM_ALL,
    Op,
    Sensors,
    Wheels,
    drive_direct,
)
from horde_env.sim.saving import Saved, text, untext

# ---- commands --------------------------------------------------------------------------------------------------------

ECHO_FRAMES = 3  # until the robot must report a command's speeds
# Of 0.1 s
DEAF_STEPS = 6
MODE_STEPS = 30
MODES = ("Off", "Passive", "Safe", "Full")

_DEAF = (
    "the robot does not follow its commands: in {} steps its requested wheel speeds (packets 41 and 42: right {}, left "
    "{} mm/s) differed from those sent. Is the wire to its RXD cut, or does another program drive it? It keeps those "
    "speeds: lift it to stop it."
)
_DROPPED = (
    "the robot does not follow its commands: a wheel has dropped (packet 7), which ends Safe mode and stops the "
    "motors. Put it on the floor."
)
_WRONG_MODE = (
    "the robot does not follow its commands: for {:g} s it has been in {} mode (packet 35), not in {}. Is the "
    "wire to its RXD cut? Press Clean, or take its battery out for ten seconds."
)


GONE_S = 0.5
AGAIN_S = 1.0
TRIES_AT_DOCK = 2  # of Safe, before Full
FULL_S = 2.0
BACKWARDS = Wheels(-199, -199)


class Judgement(NamedTuple):
    """The evaluation of a step's newest state."""

    applied: bool  # the robot executes the request
    came_back: bool  # it has just returned to Safe: the frame is a gap
    refusal: str  # why it ignores its commands, in two sentences; "" unless that lasts


class ModeController(Saved):
    """Keeps a robot in the required mode; see the module."""

    saved = (
        "is_charging",
        "_clear_since",
        "_asked_t",
        "_was_clear",
        "_tries",
        "_full_t",
        "_was_safe",
        "_is_low",
        "_refusal",
        "_n_deaf",
        "_n_wrong_mode",
    )

    def __init__(self, spec: RobotSpec) -> None:
        self._low_v = float(spec.battery["low_v"])
        self._full_v = float(spec.battery["full_v"])
        self.reset()

    def reset(self) -> None:
        """Start a run, driving."""
        self.is_charging = False  # docking or docked
        self.override: Wheels | None = None  # sent instead of the request
        self._queued = b""
        self._clear_since = self._asked_t = -math.inf
        self._was_clear = False
        self._tries = 0
        self._full_t = -math.inf
        self._was_safe = True
        self._is_low = False
        self._refusal = ""  # holds until a state refutes it
        self._n_deaf = self._n_wrong_mode = 0  # steps
        self._echo: Wheels | None = None
        self._cause: tuple[int, bool] | None = None

    def save(self) -> State:
        """Return everything that later commands and judgements depend on."""
        program = {
            "override": self.override,
            "queued": self._queued.hex(),
            "echo": self._echo,
            "cause": self._cause,
        }
        return super().save() | {"program": text(program)}

    def restore(self, state: State) -> None:
        """Restore a state from `save`."""
        super().restore(state)
        program = untext(state["program"])
        self.override = _wheels_of(program["override"])
        self._queued = bytes.fromhex(program["queued"])
        self._echo = _wheels_of(program["echo"])
        self._cause = None
        if program["cause"] is not None:
            mode, is_held = program["cause"]
            self._cause = (mode, is_held)

    def charge(self, enabled: bool) -> None:
        """Start (or restart) docking, or leave the dock."""
        self.is_charging = enabled
        self.override = None
        self._tries = 0
        self._was_clear = False
        self._asked_t = -math.inf
        # Passive in both cases: it must not continue to dock.
        if enabled:
            self._queued = bytes([Op.START, Op.DOCK])
        else:
            self._queued = bytes([Op.START])

    def state_commands(self, state: CreateState, t: float) -> bytes:
        """Return the commands to send now, by the newest state and the time in seconds; b"" if there are none."""
        threshold_v = self._low_v
        if self._is_low:
            threshold_v = self._full_v
        self._is_low = 1e-3 * state.sensors.voltage < threshold_v
        queued = self._queued
        self._queued = b""
        if queued:
            return queued
        if state.mode == OFF:
            if self._may_ask(t):
                return bytes([Op.START]) + STREAM_ALL
            return b""
        if self.is_charging:  # a new connection has ended docking
            is_docked = state.sensors.charging_sources & 2
            if is_docked:
                words = [Op.START]
            else:
                words = [Op.START, Op.DOCK]
            if state.mode in (SAFE, FULL) and self._may_ask(t):
                return bytes(words)
            return b""
        if state.mode == FULL:
            return self._come_off(state.sensors, t)
        self.override = None
        if state.mode == SAFE:
            self._tries = 0
            self._was_clear = False
            return b""
        return self._recover(state.sensors, t)

    def judge(
        self, state: CreateState, asked: Wheels | None, n_since: int, *, is_kept_still: bool
    ) -> Judgement:
        """Return the evaluation of the newest state, `n_since` frames after the newest command, if any, was sent.

        `is_kept_still` says whether the supervisor or the latch keeps the robot still.
        """
        sensors = state.sensors
        is_safe = state.mode == SAFE
        came_back = is_safe and not self._was_safe
        self._was_safe = is_safe
        echo = Wheels(sensors.requested_right, sensors.requested_left)
        applied = is_safe and self.override is None and (echo == asked or n_since < ECHO_FRAMES)
        mode = SAFE
        if self.is_charging:
            mode = PASSIVE
        if state.mode != mode:
            # A lifted robot reports cliffs too.
            is_at_cliff = is_over_a_cliff(sensors) and not is_held_up(sensors)
            is_excused = is_kept_still or is_at_cliff or bool(sensors.charging_sources & 2)
            self._judge_mode(state, mode, is_excused=is_excused)
        else:
            self._n_wrong_mode = 0
            self._cause = None
            if not is_safe or asked is None or self.override is not None:
                self._refusal = ""
            elif n_since >= ECHO_FRAMES:
                self._judge_echo(echo, asked)
        return Judgement(applied, came_back, self._refusal)

    def _judge_mode(self, state: CreateState, mode: int, *, is_excused: bool) -> None:
        """Count the steps in another mode than `mode`; `is_excused` if that has a known reason."""
        # A return to `mode` will show that it receives
        self._n_deaf = 0
        self._echo = None
        cause = state.mode, is_held_up(state.sensors)
        if is_excused or cause != self._cause:
            self._n_wrong_mode = 0
        else:
            self._n_wrong_mode = self._n_wrong_mode + 1
        self._cause = cause
        if is_excused:
            self._refusal = ""
        elif self._n_wrong_mode >= MODE_STEPS:
            if 0 <= state.mode < len(MODES):
                reported = MODES[state.mode]
            else:
                reported = f"an unknown ({state.mode})"
            wrong_mode = _WRONG_MODE.format(MODE_STEPS / 10, reported, MODES[mode])
            if is_held_up(state.sensors):
                self._refusal = _DROPPED
            else:
                self._refusal = wrong_mode

    def _judge_echo(self, echo: Wheels, asked: Wheels) -> None:
        """Count the steps in which the robot reports other speeds than were sent."""
        if echo != asked:
            self._n_deaf += 1
        elif echo != self._echo:
            self._n_deaf = 0
            self._refusal = ""
        self._echo = echo
        if self._n_deaf == DEAF_STEPS:
            self._refusal = _DEAF.format(DEAF_STEPS, *echo)

    def _may_ask(self, t: float) -> bool:
        if abs(t - self._asked_t) < AGAIN_S:
            return False
        self._asked_t = t
        return True

    def _recover(self, sensors: Sensors, t: float) -> bytes:
        is_docked = sensors.charging_sources & 2
        if is_held_up(sensors) or (is_docked and self._is_low):
            self._was_clear = False
            return b""
        if not self._was_clear:
            self._was_clear = True
            self._clear_since = t
        if t - self._clear_since < GONE_S or not self._may_ask(t):
            return b""
        self._tries += 1
        if is_docked and self._tries > TRIES_AT_DOCK and not is_over_a_cliff(sensors):
            self._full_t = t
            self.override = BACKWARDS
            return bytes([Op.FULL]) + drive_direct(BACKWARDS)
        return bytes([Op.SAFE])

    def _come_off(self, sensors: Sensors, t: float) -> bytes:
        """Return the commands that end Full; none while it may continue."""
        if is_held_up(sensors) or is_over_a_cliff(sensors):
            self.override = None
            return drive_direct(HALT) + bytes([Op.START])
        if self.override is not None and t - self._full_t < FULL_S:
            return b""
        self.override = None
        self._tries = 0
        return drive_direct(HALT) + bytes([Op.SAFE])


def _wheels_of(speeds: list[int] | None) -> Wheels | None:
    """Return wheel speeds from a saved state."""
    if speeds is None:
        return None
    return Wheels(*speeds)


def is_held_up(sensors: Sensors) -> bool:
    """Return whether a wheel has dropped."""
    return bool(sensors.bumps & 12)


def is_over_a_cliff(sensors: Sensors) -> bool:
    """Return whether one of the four cliff sensors is set."""
    s = sensors
    return bool(s.cliff_left or s.cliff_front_left or s.cliff_front_right or s.cliff_right)
