"""Obedience: whether the body does what it is asked, judged by what its motors show.

A robot answers no command. One whose wire for commands is cut, or whose firmware ignores them, senses and tells as
before, and a learner would take its standing still for the outcome of actions that were never done. Two things that a
sound robot never shows give it away:

    idle      some wheel was asked for 10 units (0.18 m/s) or more in 6 steps, and neither in them nor in any step
              between them did a motor show a voltage
    adrift    nothing had been asked for 1.2 s in 6 steps, and neither in them nor in any between them was there a step
              without a voltage

motor_voltage is the output of the motors' own controllers, before stalling or a full battery limit it, and without
noise: exactly 0 where a wheel is to stand, and anything else where it is to turn, against a wall or not, whatever the
current limit leaves of it. While a wheel is asked for 10 units all three are at 0 for one step, rarely two, where a
ramp crosses zero. And no ramp is longer than 1.0 s (100 units at one per 10 ms), no way to the motors than 0.1 s.

So who obeys nothing is noticed after 0.6 s of asking it to move. Speeds and currents are not looked at: a wheel rolls
on without its motor, and one that has pushed a wall for some seconds neither turns nor draws a current.

Source: the Critterbot's firmware of June 2011 (lib_motor.c, avr_motor.c).
"""

from __future__ import annotations

import numpy as np

from horde_env.backend import Floats, Frame
from horde_env.robot import RobotSpec

MOVING_UNITS = 10.0  # asked of some wheel, from which on it must show a voltage
STANDING_UNITS = 0.5  # below it nothing is asked
LONGEST_RAMP_S = 1.2  # its way to the motors included
CERTAIN_S = 0.6

IDLE = (
    f"the robot does not do what it is asked: in {CERTAIN_S} s in which its wheels were to turn no motor showed a "
    "voltage. Is its wire for commands cut, or does its firmware ignore them?"
)
ADRIFT = (
    f"the robot does not do what it is asked: told to stand, it went on driving its motors for {CERTAIN_S} s after the "
    "longest ramp. Does somebody else drive it? If not, switch it off."
)


class Obedience:
    """Judges every frame of a life; what it found holds until a frame shows the contrary.

    Args:
        spec: The robot; nothing is judged where its motors do not show their voltage.
        is_asked: False for a body that ignores requests by nature (a recorded life); nothing is judged there either.

    Attributes:
        is_known: Whether anything is judged.
        complaint: What is wrong, in a sentence or two; "" while the body obeys.
    """

    def __init__(self, spec: RobotSpec, *, is_asked: bool = True) -> None:
        shows = "motor_voltage" in spec.groups
        self.is_known = shows and is_asked
        self._voltage = spec.group("motor_voltage") if shows else slice(0)
        self._to_wheels: list[list[float]] = _to_wheels(spec) if shows else []
        self._n_certain = round(CERTAIN_S / spec.period_s)
        self._n_ramp = round(LONGEST_RAMP_S / spec.period_s)
        self.forget()

    def forget(self) -> None:
        """Begin a life: nothing is known of the body."""
        self.complaint = ""
        self._n_idle = self._n_standing = self._n_adrift = 0  # steps

    def judge(self, request: Floats, frame: Frame) -> str:
        """Take the frame that ended a step under `request` (m/s, m/s, rad/s; shape (3,)) and return `complaint`.

        A step of which the body itself says that it was kept from the request, or that broke the sequence, proves
        nothing: counting begins again after it. One without a new frame is passed over.
        """
        if not self.is_known or frame.stale:
            return self.complaint
        if frame.gap or not frame.applied:
            self._n_standing = 0
            if not self.complaint:
                self._n_idle = self._n_adrift = 0
            return self.complaint
        x, y, yaw = request.tolist()
        asked = max([abs(a * x + b * y + c * yaw) for a, b, c in self._to_wheels])
        self._n_standing = self._n_standing + 1 if asked < STANDING_UNITS else 0
        if any(frame.values[self._voltage].tolist()):
            self._n_idle = 0
            self._n_adrift += self._n_standing > self._n_ramp
        else:
            self._n_idle += asked >= MOVING_UNITS
            self._n_adrift = 0
        is_idle, is_adrift = self._n_idle >= self._n_certain, self._n_adrift >= self._n_certain
        self.complaint = IDLE if is_idle else ADRIFT if is_adrift else ""
        return self.complaint

    def info(self) -> dict[str, int]:
        """Return `obeyed`, 0 or 1, or nothing where nothing is judged."""
        return {"obeyed": int(not self.complaint)} if self.is_known else {}


def _to_wheels(spec: RobotSpec) -> list[list[float]]:
    """Return the matrix that makes units of the wheels, of the wire, from a request (m/s, m/s, rad/s)."""
    drive = spec.drive
    units = np.array([drive["translation_unit"], -drive["translation_unit"], drive["rotation_unit"]])  # y right
    matrix: list[list[float]] = (np.array(drive["kinematics_1024"]) / 1024.0 / units).tolist()
    return matrix
