"""Compliance: whether a Create 2 follows its commands, by its own packets.

The robot acknowledges no command, but it reports the wheel speeds that it last accepted (packets 41 and 42), its mode
(35) and its wheel drops (7). Two things that a sound robot never shows:

    deaf          in Safe, its speeds differed from those that it was sent in 6 steps, and in no step between them did
                  they change to those
    wrong mode    for 3 s it was not in the mode that it was set to: Safe to drive, Passive on the way to the dock

A robot that drives on with an unread command agrees with every request for the same action, which proves nothing: only
a change, of its speeds or of its mode, to the command proves that it reads. A wheel that drops, a cliff ahead or a
charger ends Safe: a robot that is lifted for 2 s is back after 2.7 s. At a cliff, on its dock, or if it is kept still
(heat, an emergency stop), the mode is not judged.

Source: iRobot Create 2 Open Interface Specification based on the Roomba 600 (2016), packets 7, 35, 41 and 42.
"""

from __future__ import annotations

from horde_env.robots.create2.commands import Wheels
from horde_env.robots.create2.stream import CreateState
from horde_env.robots.create2.wire import SAFE, Sensors

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
