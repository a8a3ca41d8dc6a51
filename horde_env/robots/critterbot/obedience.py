"""VoltageObedience: whether the Critterbot follows its commands, judged by the voltages of its motors.

Two things that a sound robot never shows:

    idle      some wheel was asked for 10 units (0.18 m/s) or more in 6 steps, and neither in them nor in any step
              between them did a motor show a voltage
    adrift    nothing had been asked for 1.2 s in 6 steps, and neither in them nor in any between them was there a step
              without a voltage

motor_voltage is the output of the motors' own controllers, before stalling or a full battery limit it, and without
noise: exactly 0 if a wheel is to stand, and anything else if it is to turn, against a wall or not, whatever the current
limit leaves of it. While a wheel is asked for 10 units all three are at 0 for one step, rarely two, when a ramp crosses
zero. And no ramp is longer than 1.0 s (100 units at one per 10 ms), no way to the motors than 0.1 s.

So a robot that does nothing is noticed after 0.6 s of asking it to move. Speeds and currents are not used: a wheel
rolls on without its motor, and one that has pushed a wall for some seconds neither turns nor draws a current.

Source: the Critterbot's firmware of June 2011 (lib_motor.c, avr_motor.c).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from horde_env.backend import Floats, Frame
from horde_env.drives.obedience import Obedience
from horde_env.robot import RobotSpec

MOVING_UNITS = 10.0  # asked of some wheel, from which on it must show a voltage
STANDING_UNITS = 0.5  # below it nothing is asked
LONGEST_RAMP_S = 1.2  # its way to the motors included
CERTAIN_S = 0.6

IDLE = (
    f"the robot does not follow its commands: in {CERTAIN_S} s in which its wheels were to turn no motor showed a "
    "voltage. Is its wire for commands cut, or does its firmware ignore them?"
)
ADRIFT = (
    f"the robot does not follow its commands: at a request to stand it drove its motors for {CERTAIN_S} s after the "
    "longest ramp. Does another program drive it? If not, switch it off."
)


class VoltageObedience(Obedience):
    """Judges every frame of a life; a finding holds until a frame shows the contrary.

    Args:
        spec: The robot, with a channel group motor_voltage.
    """

    saved: ClassVar = ("complaint", "_n_idle", "_n_standing", "_n_adrift")

    def __init__(self, spec: RobotSpec) -> None:
        self._voltage = spec.group("motor_voltage")
        self._to_wheels: list[list[float]] = _to_wheels(spec)
        self._n_certain = round(CERTAIN_S / spec.period_s)
        self._n_ramp = round(LONGEST_RAMP_S / spec.period_s)
        super().__init__(spec)

    def forget(self) -> None:
        """Begin a life without a complaint."""
        super().forget()
        self._n_idle = self._n_standing = self._n_adrift = 0  # steps

    def judge(self, request: Floats, frame: Frame) -> str:
        """Take the frame that ended a step under `request` (m/s, m/s, rad/s; shape (3,)) and return `complaint`.

        A step of which the body itself says that it was kept from the request, or that broke the sequence, proves
        nothing: counting begins again after it. One without a new frame is passed over.
        """
        if frame.stale:
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


def _to_wheels(spec: RobotSpec) -> list[list[float]]:
    """Return the matrix that makes units of the wheels, of the wire, from a request (m/s, m/s, rad/s)."""
    drive = spec.drive
    units = np.array([drive["translation_unit"], -drive["translation_unit"], drive["rotation_unit"]])  # y right
    matrix: list[list[float]] = (np.array(drive["kinematics_1024"]) / 1024.0 / units).tolist()
    return matrix
