"""Pilot: what is said to the robot beside the wheels' commands, and whether it obeys; no port, no threads.

    drive     it falls out of Safe in silence: said again (131) when the cause has been gone for 0.5 s, once a second at
              most. While it is held up, or stands on its dock, nothing helps
    charge    Passive (128), then its own way to the dock (143); neither 131 nor 132 while it stands there
    leave     Safe; if the powered dock ends Safe, Full for 2 s at most, in which it backs off by itself and its
              wheel-drop and cliff bits end that at once; then Safe. With a low battery it stays in Passive and charges

The same for a real robot, an emulated one and a simulated one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from horde_env.robot import RobotSpec
from horde_env.robots.create2.stream import CreateState
from horde_env.robots.create2.wire import FULL, HALT, OFF, PASSIVE, SAFE, STREAM_ALL, Op, Sensors, Wheels, drive_direct

# ---- obedience -------------------------------------------------------------------------------------------------------

ECHO_FRAMES = 3  # after a command, within which the robot must show that it took it
DEAF_STEPS, MODE_STEPS = 6, 30  # of 0.1 s
MODES = ("Off", "Passive", "Safe", "Full")

_DEAF = (
    "the robot does not follow its commands: in {} steps its requested wheel speeds (packets 41 and 42: right {}, left "
    "{} mm/s) were not those that it was sent. Is the wire to its RXD cut, or does another program drive it? It goes "
    "on with those speeds: lift it to stop it."
)
_DROPPED = (
    "the robot does not follow its commands: a wheel has dropped (packet 7), which ends Safe mode and stops the "
    "motors. Put it on the floor."
)
_WRONG_MODE = (
    "the robot does not follow its commands: for {:g} s it has been in {} mode (packet 35), not in {}. Is the "
    "wire to its RXD cut? Press Clean, or take its battery out for ten seconds."
)


class Compliance:
    """Judges each step's newest state; a finding holds until a state shows the contrary.

    Attributes:
        refusal: The fault, in two sentences; "" while the robot follows its commands.
    """

    def __init__(self) -> None:
        self.refusal = ""
        self._n_deaf = self._n_wrong_mode = 0  # steps
        self._echo: Wheels | None = None
        self._cause: tuple[int, bool] | None = None

    def judge(self, state: CreateState, mode: int, asked: Wheels | None, n_since: int, *, is_excused: bool) -> str:
        """Return `refusal` after a step.

        Args:
            state: The newest.
            mode: The one that the robot was set to.
            asked: The newest speeds sent; None if none were.
            n_since: Frames since they were sent.
            is_excused: True if there is a known reason for another mode.
        """
        if state.mode != mode:
            return self._judge_mode(state, mode, is_excused=is_excused)
        self._n_wrong_mode, self._cause = 0, None
        if mode != SAFE or asked is None:
            self.refusal = ""
        elif n_since >= ECHO_FRAMES:
            self._judge_echo(Wheels(state.sensors.requested_right, state.sensors.requested_left), asked)
        return self.refusal

    def _judge_mode(self, state: CreateState, mode: int, *, is_excused: bool) -> str:
        self._n_deaf, self._echo = 0, None  # its return to `mode` will prove that it reads
        cause = state.mode, is_held_up(state.sensors)
        self._n_wrong_mode = 0 if is_excused or cause != self._cause else self._n_wrong_mode + 1
        self._cause = cause
        if is_excused:
            self.refusal = ""
        elif self._n_wrong_mode >= MODE_STEPS:
            reported = MODES[state.mode] if 0 <= state.mode < len(MODES) else f"an unknown ({state.mode})"
            wrong_mode = _WRONG_MODE.format(MODE_STEPS / 10, reported, MODES[mode])
            self.refusal = _DROPPED if is_held_up(state.sensors) else wrong_mode
        return self.refusal

    def _judge_echo(self, echo: Wheels, asked: Wheels) -> None:
        if echo != asked:
            self._n_deaf += 1
        elif echo != self._echo:
            self._n_deaf, self.refusal = 0, ""
        self._echo = echo
        if self._n_deaf == DEAF_STEPS:
            self.refusal = _DEAF.format(DEAF_STEPS, *echo)


def is_held_up(sensors: Sensors) -> bool:
    """Return whether a wheel has dropped."""
    return bool(sensors.bumps & 12)


GONE_S, AGAIN_S = 0.5, 1.0
TRIES_AT_DOCK = 2  # of Safe, before Full
FULL_S, BACK_M = 2.0, 0.3
BACKWARDS = Wheels(-199, -199)


class Verdict(NamedTuple):
    """What a step's newest state shows.

    Attributes:
        obeys: Whether the robot does what was asked.
        came_back: Whether it has just come back to Safe, so that the frame does not follow from the last one.
        refusal: Why it does not do what it was sent (`obedience.Compliance`); "" unless that lasts.
    """

    obeys: bool
    came_back: bool
    refusal: str


class Pilot:
    """Keeps a robot in the mode that is wanted.

    Args:
        spec: The robot: `low_v` and `full_v` of its battery.

    Attributes:
        is_charging: Whether it is at its dock, or on its way there.
        override: What the wheels are told in place of any request; None where nothing is.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self._low_v, self._full_v = float(spec.battery["low_v"]), float(spec.battery["full_v"])
        self.reset()

    def reset(self) -> None:
        """Begin a life: drive."""
        self.is_charging = False
        self.override: Wheels | None = None
        self._queued = b""
        self._clear_since = self._asked_t = -math.inf
        self._was_clear = False
        self._tries = 0
        self._full_t = -math.inf
        self._was_safe = True
        self._is_low = False
        self._compliance = Compliance()

    def charge(self, enabled: bool) -> None:
        """Send it to its dock, once more if it is on its way already; or let it come away."""
        self.is_charging = enabled
        self.override = None
        self._tries = 0
        self._was_clear = False
        self._asked_t = -math.inf
        # Passive either way: it must not drive on to the dock while it is called back.
        self._queued = bytes([Op.START, Op.DOCK]) if enabled else bytes([Op.START])

    def state_commands(self, state: CreateState, t: float) -> bytes:
        """Return what must be said now, by the newest state and the time in seconds; b"" where nothing must."""
        self._is_low = 1e-3 * state.sensors.voltage < (self._full_v if self._is_low else self._low_v)
        said, self._queued = self._queued, b""
        if said:
            return said
        if state.mode == OFF:
            return bytes([Op.START]) + STREAM_ALL if self._may_ask(t) else b""
        if self.is_charging:  # a new connection has ended its way there
            is_docked = state.sensors.charging_sources & 2
            words = [Op.START] if is_docked else [Op.START, Op.DOCK]
            return bytes(words) if state.mode in (SAFE, FULL) and self._may_ask(t) else b""
        if state.mode == FULL:
            return self._come_off(state.sensors, t)
        self.override = None
        if state.mode == SAFE:
            self._tries, self._was_clear = 0, False
            return b""
        return self._recover(state.sensors, t)

    def judge(self, state: CreateState, asked: Wheels | None, n_since: int, *, is_kept_still: bool) -> Verdict:
        """Return what a step's newest state shows.

        Args:
            state: The newest.
            asked: The newest command; None if nothing was asked for.
            n_since: Frames since it was sent.
            is_kept_still: Whether the host keeps the robot from moving, and said why.
        """
        is_safe = state.mode == SAFE
        came_back, self._was_safe = is_safe and not self._was_safe, is_safe
        echo = Wheels(state.sensors.requested_right, state.sensors.requested_left)
        obeys = is_safe and self.override is None and (echo == asked or n_since < ECHO_FRAMES)
        mode = PASSIVE if self.is_charging else SAFE
        # A robot that is lifted sees no floor either.
        is_at_cliff = is_over_a_cliff(state.sensors) and not is_held_up(state.sensors)
        is_excused = is_kept_still or is_at_cliff or bool(state.sensors.charging_sources & 2)
        asked = asked if self.override is None else None
        refusal = self._compliance.judge(state, mode, asked, n_since, is_excused=is_excused)
        return Verdict(obeys, came_back, refusal)

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
            self._was_clear, self._clear_since = True, t
        if t - self._clear_since < GONE_S or not self._may_ask(t):
            return b""
        self._tries += 1
        if is_docked and self._tries > TRIES_AT_DOCK and not is_over_a_cliff(sensors):
            self._full_t, self.override = t, BACKWARDS
            return bytes([Op.FULL]) + drive_direct(BACKWARDS)
        return bytes([Op.SAFE])

    def _come_off(self, sensors: Sensors, t: float) -> bytes:
        """Say what ends Full; nothing while it may go on."""
        if is_held_up(sensors) or is_over_a_cliff(sensors):
            self.override = None
            return drive_direct(HALT) + bytes([Op.START])
        if self.override is not None and t - self._full_t < FULL_S:
            return b""
        self.override, self._tries = None, 0
        return drive_direct(HALT) + bytes([Op.SAFE])


def is_over_a_cliff(sensors: Sensors) -> bool:
    """Tell whether one of the four sees no floor."""
    s = sensors
    return bool(s.cliff_left or s.cliff_front_left or s.cliff_front_right or s.cliff_right)
