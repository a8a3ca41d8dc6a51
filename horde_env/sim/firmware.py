"""The robot's two programs in their own integers: the ARM (requests, slew, timeout) and a motor AVR per wheel (speed).

Both run at 100 Hz here. The motor AVR's own period is 10.11 ms; a click is scaled with it, so that four clicks a period
stay one wheel unit, 0.0176 m/s. Source: the published sources of the Critterbot's firmware (2011)
(lib_motor.c, lib_monitor.c, avr_motor.c).

The state is two integer arrays that the kernels change in place: `arm`, shape (N_WORDS,), and `wheels`, shape
(N_ROWS, 3), one column per wheel in the order 100, 220, 340 degrees. A host speaks to it by `command`, in wire units.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_env._jit import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Motor modes of a control packet; any other below STOPS stops the motors.
WHEEL_SPACE, XYTHETA_SPACE, WHEEL_VOLTAGE = 0, 1, 2
NOT_MOTOR_MODES = (0x68, 0x6E)  # exit, charging, reference voltage, amplifier: they leave the motors alone

# Words of `arm`.
MODE, SILENT, SLEW_STEP, SLEW_STEPS, BURN_IN, OVERHEATED, N_WORDS = range(7)

# Rows of `wheels`: what the ARM keeps, what the sensors give (bytes), what the AVR keeps, what the AVR says.
REQUEST, SLEW_START, SLEW_TARGET, SETPOINT = 0, 1, 2, 3
CLICKS, CURRENT, TEMPERATURE = 4, 5, 6
INTEGRAL, LAST_ERROR, REDUCTION, POWER_UP_CAP, STALL_CAP, STALL_PERIODS = 7, 8, 9, 10, 11, 12
OUTPUT, DUTY, N_ROWS = 13, 14, 15

TIMEOUT_CYCLES = 50  # the motor event that counts so many since the last command begins the stop
ARM_LIMIT = 100  # wheel units the ARM accepts
AVR_LIMIT = 25  # wheel units the AVR goes for
INTEGRAL_LIMIT = 1000
FULL_DUTY = 127
BUS_TOO_HIGH = 185  # 0.1 V: above it the motors get nothing
CURRENT_LIMIT = 30
STALL_CURRENT = 2
STALL_PERIODS_PER_STEP = 6
BURN_IN_CYCLES = 100
TOO_HOT, COOL_AGAIN = 65, 85  # temperature bytes: lower is hotter


@kernel
def truncated(a: int, b: int) -> int:
    """Divide as C does, toward zero; b > 0."""
    return a // b if a >= 0 else -((-a) // b)


@kernel
def clamped(value: int, limit: int) -> int:
    """Keep `value` within +-limit."""
    return min(max(value, -limit), limit)


@kernel
def to_wheels(matrix: Ints, x: int, y: int, theta: int, out: Ints) -> None:
    """Write the wheel units of a request (x forward, y RIGHT, theta ccw; wire units) into `out`, shape (3,).

    Integer matrix / 1024 truncated toward zero; where a wheel would exceed 100 all three are scaled down.
    """
    largest = 0
    for i in range(3):
        out[i] = truncated(matrix[i, 0] * x + matrix[i, 1] * y + matrix[i, 2] * theta, 1024)
        largest = max(largest, abs(out[i]))
    if largest > ARM_LIMIT:
        for i in range(3):
            out[i] = truncated(out[i] * ARM_LIMIT, largest)


@kernel
def begin_slew(arm: Ints, wheels: Ints, a: int, b: int, c: int) -> None:
    """Start a ramp to new wheel units; the wheel with the largest change moves one unit per cycle.

    The return for an unchanged target is the firmware's own, with its fault: after a voltage request the target may
    be zero already, and zeros then do not stop the wheels.
    """
    if wheels[SLEW_TARGET, 0] == a and wheels[SLEW_TARGET, 1] == b and wheels[SLEW_TARGET, 2] == c:
        return
    wheels[SLEW_TARGET, 0], wheels[SLEW_TARGET, 1], wheels[SLEW_TARGET, 2] = a, b, c
    steps = 0
    for i in range(3):
        wheels[SLEW_START, i] = wheels[SETPOINT, i]
        steps = max(steps, abs(wheels[SLEW_TARGET, i] - wheels[SLEW_START, i]))
    arm[SLEW_STEP], arm[SLEW_STEPS] = 0, steps


@kernel
def set_voltages(arm: Ints, wheels: Ints, a: int, b: int, c: int) -> None:
    """Set the three duties at once, without a ramp."""
    arm[MODE], arm[SLEW_STEP], arm[SLEW_STEPS] = WHEEL_VOLTAGE, 0, 0
    wheels[SETPOINT, 0], wheels[SETPOINT, 1], wheels[SETPOINT, 2] = a, b, c


@kernel
def command(arm: Ints, wheels: Ints, matrix: Ints, mode: int, a: int, b: int, c: int) -> None:
    """Take one control packet: a motor mode and three integers, signed bytes on the wire.

    Args:
        arm: The ARM's words, changed in place.
        wheels: The wheels' rows, changed in place.
        matrix: The kinematics in 1/1024, shape (3, 3).
        mode: 0 wheel units, 1 (x, y right, theta) units, 2 duties; 0x68..0x6E leave the motors alone; others stop them.
        a: First number: wheel 100, or x.
        b: Second number: wheel 220, or y.
        c: Third number: wheel 340, or theta.
    """
    if NOT_MOTOR_MODES[0] <= mode <= NOT_MOTOR_MODES[1]:
        return
    arm[SILENT] = 0
    if mode == XYTHETA_SPACE:
        request = wheels[REQUEST]
        to_wheels(matrix, a, b, c, request)
        a, b, c = request[0], request[1], request[2]
    a, b, c = clamped(a, ARM_LIMIT), clamped(b, ARM_LIMIT), clamped(c, ARM_LIMIT)
    if mode in (WHEEL_SPACE, XYTHETA_SPACE):
        arm[MODE] = WHEEL_SPACE
        begin_slew(arm, wheels, a, b, c)
    elif mode == WHEEL_VOLTAGE:
        set_voltages(arm, wheels, a, b, c)
    else:
        set_voltages(arm, wheels, 0, 0, 0)


@kernel
def arm_cycle(arm: Ints, wheels: Ints) -> None:
    """Run the ARM's motor event: the overheat latch, the 0.5 s timeout, one unit of the ramp."""
    arm[BURN_IN] = min(arm[BURN_IN] + 1, BURN_IN_CYCLES)
    if arm[BURN_IN] == BURN_IN_CYCLES:
        hottest = min(wheels[TEMPERATURE, 0], wheels[TEMPERATURE, 1], wheels[TEMPERATURE, 2])
        if hottest < TOO_HOT:
            arm[OVERHEATED] = 1
        elif hottest >= COOL_AGAIN:
            arm[OVERHEATED] = 0
    arm[SILENT] += 1
    if arm[SILENT] >= TIMEOUT_CYCLES:
        if arm[MODE] == WHEEL_VOLTAGE:
            wheels[SETPOINT] = 0
        else:
            begin_slew(arm, wheels, 0, 0, 0)
    if arm[SLEW_STEP] < arm[SLEW_STEPS]:
        arm[SLEW_STEP] += 1
        for i in range(3):
            change = (wheels[SLEW_TARGET, i] - wheels[SLEW_START, i]) * arm[SLEW_STEP]
            wheels[SETPOINT, i] = wheels[SLEW_START, i] + truncated(change, arm[SLEW_STEPS])


@kernel
def speed_control(wheels: Ints, i: int, setpoint: int) -> int:
    """Return wheel i's output for a setpoint in wheel units: a leaky PI plus D on clicks. Setpoint 0 coasts.

    The integral goes on while the wheel coasts: a wheel that others turn is first braked when it is wanted again (the
    log shows the dip: from 10 units to 2 in 0.2 s).
    """
    limited = clamped(setpoint, AVR_LIMIT)
    if wheels[CURRENT, i] > CURRENT_LIMIT:
        wheels[REDUCTION, i] = min(wheels[REDUCTION, i] + 1, abs(limited))
    else:
        wheels[REDUCTION, i] = max(wheels[REDUCTION, i] - 1, 0)
    size = max(abs(limited) - wheels[REDUCTION, i], 0)
    limited = size if limited > 0 else -size
    error = 4 * limited - wheels[CLICKS, i]
    wheels[INTEGRAL, i] = clamped(truncated(wheels[INTEGRAL, i] * 63, 64) + error, INTEGRAL_LIMIT)
    change = error - wheels[LAST_ERROR, i]
    wheels[LAST_ERROR, i] = error
    if limited == 0:
        return 0
    return int(clamped(truncated(8 * error + 8 * wheels[INTEGRAL, i] + 16 * change, 64), FULL_DUTY))


@kernel
def voltage_cap(wheels: Ints, i: int, setpoint: int, bus: int) -> int:
    """Return the largest duty wheel i may have, from the bus voltage in 0.1 V.

    It is the least of three: what the bus allows, what has grown by 1 per period since power-up, and what stalling has
    left: a motor that stands still under current loses 1 every six periods, and wins 1 back per period once it turns.
    """
    of_bus = FULL_DUTY
    if bus > BUS_TOO_HIGH:
        of_bus = 0
    elif bus > 120:
        of_bus = FULL_DUTY - truncated(3 * (bus - 120), 4)
    wheels[POWER_UP_CAP, i] = min(wheels[POWER_UP_CAP, i] + 1, FULL_DUTY)
    if wheels[CLICKS, i] != 0:
        wheels[STALL_CAP, i] = min(wheels[STALL_CAP, i] + 1, FULL_DUTY)
        wheels[STALL_PERIODS, i] = 0
    elif setpoint != 0 and wheels[CURRENT, i] > STALL_CURRENT:
        # A motor that stalls starts from what the bus allows, not from a cap that it never had.
        wheels[STALL_CAP, i] = min(wheels[STALL_CAP, i], max(of_bus, 1))
        wheels[STALL_PERIODS, i] += 1
        if wheels[STALL_PERIODS, i] == STALL_PERIODS_PER_STEP:
            wheels[STALL_PERIODS, i] = 0
            wheels[STALL_CAP, i] = max(wheels[STALL_CAP, i] - 1, 1)
    return int(min(of_bus, wheels[POWER_UP_CAP, i], wheels[STALL_CAP, i]))


@kernel
def avr_cycle(wheels: Ints, i: int, voltage_mode: bool, blocked: bool, bus: int) -> None:
    """Run wheel i's motor AVR for one period: OUTPUT before the cap, DUTY after it, both of 127."""
    setpoint = 0 if blocked else wheels[SETPOINT, i]
    output = clamped(setpoint, ARM_LIMIT) if voltage_mode else speed_control(wheels, i, setpoint)
    duty = clamped(output, voltage_cap(wheels, i, setpoint, bus))
    if duty * wheels[DUTY, i] < 0:
        duty = 0  # one dead period lets the bridge change sides
    wheels[OUTPUT, i], wheels[DUTY, i] = output, duty


@kernel
def cycle(arm: Ints, wheels: Ints, bus: int, charging: bool) -> None:
    """Run everything for 10 ms, from the bytes in CLICKS, CURRENT, TEMPERATURE to OUTPUT and DUTY.

    Args:
        arm: The ARM's words, changed in place.
        wheels: The wheels' rows, changed in place.
        bus: Bus voltage in 0.1 V.
        charging: True where the charger holds the motors still.
    """
    arm_cycle(arm, wheels)
    blocked = charging or arm[OVERHEATED] == 1
    for i in range(3):
        avr_cycle(wheels, i, arm[MODE] == WHEEL_VOLTAGE, blocked, bus)


class Firmware:
    """Owner of the firmware's state, and the host's side of the wire.

    Attributes:
        arm, wheels: The state as the kernels know it (the rows and words are this module's constants).
    """

    def __init__(self, matrix: Ints) -> None:
        self.arm = np.zeros(N_WORDS, dtype=np.int64)
        self.wheels = np.zeros((N_ROWS, 3), dtype=np.int64)
        self._matrix = np.ascontiguousarray(matrix, dtype=np.int64)
        self.boot()

    def boot(self) -> None:
        """Switch off and on again: at rest, in velocity mode, the voltage cap to grow from 0."""
        self.arm[:] = 0
        self.wheels[:] = 0
        self.wheels[STALL_CAP] = FULL_DUTY

    def command(self, mode: int, a: int, b: int, c: int) -> None:
        """Hand over one control packet (see the kernel of that name)."""
        command(self.arm, self.wheels, self._matrix, mode, a, b, c)

    def cycle(self, bus: int, charging: bool) -> None:
        """Run both programs for 10 ms."""
        cycle(self.arm, self.wheels, bus, charging)

    @property
    def overheated(self) -> bool:
        """Whether a motor below 65 keeps the drive off until all three are at 85."""
        return bool(self.arm[OVERHEATED])
