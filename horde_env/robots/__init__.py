"""The robots, one folder each, in which shared modules look, by `robot.part` and `robot.environments`, for these.

    __init__   ENVIRONMENTS: backend -> `robot.Environment`, registered with Gymnasium
    drives     DRIVES: the drive to the middle and the stay at the dock (`drives.Drives`)
    place      place_of(body), plan(spec, place): where the robot is, for pictures and drives
    drawing    painter(spec, place): the painter of its frames (`view.render`)
    checks     CHECKS: what `horde-robot` must know of it (`hardware.checks.RobotChecks`)
    emulator   emulator.EMULATOR: its `RobotEmulator`, for `horde-robot emulate`

Its numbers are `assets/NAME.toml` and `assets/layouts/NAME.toml`. No robot imports another.
"""
