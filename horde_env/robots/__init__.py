"""The robots, one folder each. Shared modules load these from it, by `robot.part` and `robot.environments`.

    __init__   ENVIRONMENTS: backend -> `robot.Environment`, registered with Gymnasium
    drives     DRIVES: the drive to the middle and the stay at the dock (`drives.Drives`)
    place      place_of(body), plan(spec, place): where the robot is, for pictures and drives
    checks     CHECKS: its part of `horde-robot` (`hardware.checks.RobotChecks`)
    emulator   emulator.EMULATOR: its `RobotEmulator`, for `horde-robot emulate`

Its numbers are `assets/NAME.toml` and `assets/layouts/NAME.toml`. No robot imports another.
"""
