"""The robot's two programs in integers: the ARM (requests, slew, timeout) and a motor AVR per wheel (speed).

Both run at 100 Hz here. The motor AVR's real period is 10.11 ms; a click is scaled with it, so four
clicks a period are one wheel unit, 0.0176 m/s. They have the faults of the real ones, for which a
host must be prepared:

    ramp             continues after a duty command or an unknown mode, with its units taken as duties
    same target      is ignored, even if duties have changed the wheels' setpoints meanwhile
    unknown mode     requests duty 0, but does not restart the timeout of 0.5 s
    current limit    returns its reduction unit by unit even if the setpoint is smaller by then: the wheel is driven
                     backwards, or forwards if the setpoint fell to 0 at once

Source: the published sources of the Critterbot's firmware (2011) (lib_motor.c, lib_monitor.c,
avr_motor.c), compiled for a host and compared with this file cycle by cycle.

The state is two integer arrays that the kernels change in place: `arm`, shape (N_WORDS,), and
`wheels`, shape (N_ROWS, 3), one column per wheel in the order 100, 220, 340 degrees. A host sends
`command`, in wire units.
"""

from __future__ import annotations

import numpy as np

from horde_env._jit import kernel
from horde_env.backend import Ints

# Motor modes of a control packet; any other requests duty 0.
WHEEL_SPACE = 0
XYTHETA_SPACE = 1
WHEEL_VOLTAGE = 2
# Exit, charging, reference voltage, amplifier: no effect on the motors
NOT_MOTOR_MODES = (0x68, 0x6E)

# Words of `arm`.
MODE = 0  # of the last request
SILENT = 1  # cycles since the last command
SLEW_STEP = 2  # of the ramp, next
SLEW_STEPS = 3  # of the ramp, in all
BURN_IN = 4  # cycles since it was switched on, at most BURN_IN_CYCLES
OVERHEATED = 5  # 1 after a temperature byte fell below 65, until all three are at 85, else 0
HUNG = 6  # 0 while it runs, then 1 + cycles
N_WORDS = 7

# Rows of `wheels`. State of the ARM:
REQUEST = 0  # wheel units
SLEW_TARGET = 1  # wheel units
SLEW_AT = 2  # wheel units << FRACTION_BITS
SETPOINT = 3  # wheel units, or duty
SLEW_INTERVAL = 4  # per cycle, wheel units << FRACTION_BITS
# Readings of the sensors:
CLICKS = 5  # encoder edges in the last cycle
CURRENT = 6  # byte
TEMPERATURE = 7  # byte, lower is hotter
# State of the motor AVR:
INTEGRAL = 8  # of the error, clicks
LAST_ERROR = 9  # clicks
REDUCTION = 10  # by the current limit, units of the setpoint
CAP = 11  # largest duty
STOOD = 12  # periods
STALL_PERIODS = 13
LAST_CAPPED = 14  # duty
# Outputs of the motor AVR:
OUTPUT = 15  # before the cap, of 127
DUTY = 16  # after it, of 127
N_ROWS = 17

TIMEOUT_CYCLES = 50  # without a command, after which the motor event begins the stop
# Without a message from the ARM, after which a motor AVR sets its setpoint to 0
AVR_TIMEOUT_PERIODS = 61
ARM_LIMIT = 100  # wheel units the ARM accepts
AVR_LIMIT = 25  # wheel units the AVR regulates to
FRACTION_BITS = 16  # of SLEW_AT and SLEW_INTERVAL
INTEGRAL_LIMIT = 1000
FULL_DUTY = 127
BUS_TOO_HIGH = 185  # 0.1 V: above it the motors get nothing
CURRENT_LIMIT = 30
STALL_CURRENT = 2
STALL_PERIODS_PER_STEP = 6
MOST_STOOD = 255
BURN_IN_CYCLES = 100
# Temperature bytes: lower is hotter
TOO_HOT = 65
COOL_AGAIN = 85


@kernel
def truncated(a: int, b: int) -> int:
    """Divide as C does, toward zero; b > 0."""
    if a >= 0:
        return a // b
    return -((-a) // b)


@kernel
def clamped(value: int, limit: int) -> int:
    """Clip `value` to +-limit."""
    return min(max(value, -limit), limit)


@kernel
def to_wheels(matrix: Ints, x: int, y: int, theta: int, out: Ints) -> None:
    """Write the wheel units of a request (x forward, y RIGHT, theta ccw; wire units) into `out`, shape (3,).

    Integer matrix / 1024 truncated toward zero; if a wheel exceeds 100, all three are scaled down.
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

    The return for an unchanged target is in the firmware, with its fault: after duties the target
    may be zero already, and zeros then do not stop the wheels. A ramp without steps (the wheels are
    at the new target) divides by zero in the firmware; that processor's division returns 0.
    """
    arm[MODE] = WHEEL_SPACE
    arm[SILENT] = 0
    if wheels[SLEW_TARGET, 0] == a and wheels[SLEW_TARGET, 1] == b and wheels[SLEW_TARGET, 2] == c:
        return
    wheels[SLEW_TARGET, 0] = a
    wheels[SLEW_TARGET, 1] = b
    wheels[SLEW_TARGET, 2] = c
    steps = 0
    for i in range(3):
        steps = max(steps, abs(wheels[SLEW_TARGET, i] - wheels[SETPOINT, i]))
    for i in range(3):
        change = (wheels[SLEW_TARGET, i] - wheels[SETPOINT, i]) << FRACTION_BITS
        if steps > 0:
            wheels[SLEW_INTERVAL, i] = truncated(change, steps)
        else:
            wheels[SLEW_INTERVAL, i] = 0
        wheels[SLEW_AT, i] = wheels[SETPOINT, i] << FRACTION_BITS
    arm[SLEW_STEP] = 0
    arm[SLEW_STEPS] = steps


@kernel
def continue_slew(arm: Ints, wheels: Ints) -> None:
    """Take a ramp's next step, rounded down; one cycle after the last one the target itself."""
    if arm[SLEW_STEP] > arm[SLEW_STEPS]:
        return
    for i in range(3):
        if arm[SLEW_STEP] == arm[SLEW_STEPS]:
            wheels[SETPOINT, i] = wheels[SLEW_TARGET, i]
        else:
            wheels[SLEW_AT, i] += wheels[SLEW_INTERVAL, i]
            wheels[SETPOINT, i] = wheels[SLEW_AT, i] >> FRACTION_BITS
    arm[SLEW_STEP] += 1


@kernel
def set_duties(arm: Ints, wheels: Ints, a: int, b: int, c: int) -> None:
    """Set the three duties at once; a ramp in progress continues in the next cycle, with its units as duties."""
    arm[MODE] = WHEEL_VOLTAGE
    wheels[SETPOINT, 0] = a
    wheels[SETPOINT, 1] = b
    wheels[SETPOINT, 2] = c


@kernel
def command(arm: Ints, wheels: Ints, matrix: Ints, mode: int, a: int, b: int, c: int) -> None:
    """Process one control packet: a motor mode and three integers, signed bytes on the wire.

    `mode` is 0 for wheel units (100, 220, 340), 1 for units of x, y (right), theta, 2 for duties;
    0x68..0x6E have no effect, others set duty 0. `matrix` has the kinematics in 1/1024, shape (3,
    3).
    """
    if NOT_MOTOR_MODES[0] <= mode <= NOT_MOTOR_MODES[1]:
        return
    if mode == XYTHETA_SPACE:
        request = wheels[REQUEST]
        to_wheels(matrix, a, b, c, request)
        a = request[0]
        b = request[1]
        c = request[2]
    a = clamped(a, ARM_LIMIT)
    b = clamped(b, ARM_LIMIT)
    c = clamped(c, ARM_LIMIT)
    if mode in (WHEEL_SPACE, XYTHETA_SPACE):
        begin_slew(arm, wheels, a, b, c)
    elif mode == WHEEL_VOLTAGE:
        arm[SILENT] = 0
        set_duties(arm, wheels, a, b, c)
    else:
        set_duties(arm, wheels, 0, 0, 0)


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
    if arm[SILENT] == TIMEOUT_CYCLES:
        arm[SILENT] = 0
        if arm[MODE] == WHEEL_VOLTAGE:
            set_duties(arm, wheels, 0, 0, 0)
        else:
            begin_slew(arm, wheels, 0, 0, 0)
    continue_slew(arm, wheels)


@kernel
def limit_current(wheels: Ints, i: int, setpoint: int) -> int:
    """Return wheel i's setpoint, in units or duty, less the current limit's reduction: 1 per period above the limit.

    While it grows, the reduction leaves at least 1 of the setpoint. It shrinks by 1 per period,
    whatever the setpoint is then: a reduction of 20 makes a setpoint of 5 -15, and of 0, which
    counts as negative, +20.
    """
    size = abs(setpoint)
    if wheels[CURRENT, i] > CURRENT_LIMIT:
        wheels[REDUCTION, i] = max(min(wheels[REDUCTION, i] + 1, size - 1), 0)
    else:
        wheels[REDUCTION, i] = max(wheels[REDUCTION, i] - 1, 0)
    reduced = size - wheels[REDUCTION, i]
    if setpoint > 0:
        return int(reduced)
    return int(-reduced)


@kernel
def limit_duty(wheels: Ints, i: int, setpoint: int, bus: int) -> None:
    """Update wheel i's CAP, its largest duty; `bus` in 0.1 V.

    It grows by 1 per period, from 0 at power-up, to the bus's limit. A motor with a setpoint that
    stands still under current loses 1 every six periods, until it has turned for as long as it
    stood.
    """
    if setpoint != 0:
        if wheels[CLICKS, i] == 0:
            stood = wheels[STOOD, i] + 1
        else:
            stood = wheels[STOOD, i] - 1
        wheels[STOOD, i] = min(max(stood, 0), MOST_STOOD)
    if wheels[STOOD, i] > 0 and wheels[CURRENT, i] > STALL_CURRENT:
        wheels[STALL_PERIODS, i] += 1
        if wheels[STALL_PERIODS, i] == STALL_PERIODS_PER_STEP:
            wheels[STALL_PERIODS, i] = 0
            if wheels[CAP, i] > 1:
                wheels[CAP, i] -= 1
    else:
        wheels[CAP, i] = min(wheels[CAP, i] + 1, FULL_DUTY)
    bus_cap = FULL_DUTY
    if bus > BUS_TOO_HIGH:
        bus_cap = 0
    elif bus > 120:
        bus_cap = FULL_DUTY - truncated(3 * (bus - 120), 4)
    wheels[CAP, i] = min(wheels[CAP, i], bus_cap)


@kernel
def speed_control(wheels: Ints, i: int, setpoint: int) -> int:
    """Return wheel i's output for a setpoint in wheel units: a leaky PI plus D on clicks. Setpoint 0 coasts.

    A coasting wheel keeps its error and integral for its next setpoint.
    """
    if setpoint == 0:
        return 0
    error = 4 * clamped(setpoint, AVR_LIMIT) - wheels[CLICKS, i]
    wheels[INTEGRAL, i] = clamped(truncated(wheels[INTEGRAL, i] * 63, 64) + error, INTEGRAL_LIMIT)
    change = error - wheels[LAST_ERROR, i]
    wheels[LAST_ERROR, i] = error
    return int(clamped(8 * error + 8 * wheels[INTEGRAL, i] + 16 * change, 64 * FULL_DUTY) >> 6)


@kernel
def drive_bridge(wheels: Ints, i: int, output: int) -> None:
    """Write wheel i's DUTY: its output within the cap, or 0 for the one period in which the bridge changes sides.

    0 counts as the forward side; a change is one of the output, not of the duty.
    """
    capped = clamped(output, wheels[CAP, i])
    changes = (capped >= 0) != (wheels[LAST_CAPPED, i] >= 0)
    wheels[LAST_CAPPED, i] = capped
    if changes:
        wheels[DUTY, i] = 0
    else:
        wheels[DUTY, i] = capped


@kernel
def avr_cycle(wheels: Ints, i: int, voltage_mode: bool, blocked: bool, bus: int) -> None:
    """Run wheel i's motor AVR for one period: OUTPUT before the cap, DUTY after it, both of 127."""
    if blocked:
        setpoint = 0
    else:
        setpoint = wheels[SETPOINT, i]
    limited = limit_current(wheels, i, setpoint)
    limit_duty(wheels, i, setpoint, bus)
    if voltage_mode:
        output = clamped(limited, ARM_LIMIT)
    else:
        output = speed_control(wheels, i, limited)
    wheels[OUTPUT, i] = output
    drive_bridge(wheels, i, output)


@kernel
def cycle(arm: Ints, wheels: Ints, bus: int, charging: bool) -> None:
    """Run everything for 10 ms, from the bytes in CLICKS, CURRENT, TEMPERATURE to OUTPUT and DUTY.

    `bus` is in 0.1 V; `charging`: the charger holds the motors still. While the ARM hangs
    (`Firmware.hang`) the AVRs continue with its last message for 0.6 s.
    """
    if arm[HUNG] == 0:
        arm_cycle(arm, wheels)
    else:
        arm[HUNG] += 1
    blocked = charging or arm[OVERHEATED] == 1 or arm[HUNG] > AVR_TIMEOUT_PERIODS + 1
    for i in range(3):
        avr_cycle(wheels, i, arm[MODE] == WHEEL_VOLTAGE, blocked, bus)


class Firmware:
    """The firmware's state, `arm` and `wheels` (this module's constants), and the host's commands."""

    def __init__(self, matrix: Ints, arm: Ints | None = None, wheels: Ints | None = None) -> None:
        if arm is None:
            arm = np.zeros(N_WORDS, dtype=np.int64)
        if wheels is None:
            wheels = np.zeros((N_ROWS, 3), dtype=np.int64)
        self.arm: Ints = arm
        self.wheels: Ints = wheels
        self.matrix = np.ascontiguousarray(matrix, dtype=np.int64)
        self.boot()

    def boot(self) -> None:
        """Switch off and on again: at rest, in velocity mode, with the duty cap at 0."""
        self.wheels[:] = 0
        self.reset_arm()

    def reset_arm(self) -> None:
        """Switch the ARM off and on, but not the motor AVRs, which keep their state."""
        self.arm[:] = 0
        self.arm[SLEW_STEP] = 1  # of no steps: no ramp is in progress
        self.wheels[:CLICKS] = 0

    def hang(self) -> None:
        """Freeze the ARM until it is reset: from the next cycle on it sends nothing to the motor AVRs."""
        self.arm[HUNG] = max(self.arm[HUNG], 1)

    @property
    def hung_cycles(self) -> int:
        """Number of cycles since the ARM hung; 0 while it runs."""
        return max(int(self.arm[HUNG]) - 1, 0)

    def command(self, mode: int, a: int, b: int, c: int) -> None:
        """Process one control packet (see the kernel `command`)."""
        command(self.arm, self.wheels, self.matrix, mode, a, b, c)

    def cycle(self, bus: int, charging: bool) -> None:
        """Run both programs for 10 ms."""
        cycle(self.arm, self.wheels, bus, charging)
