"""Old name of `wire`, which compiled kernels in numba's cache still refer to."""

from horde_env.robots.critterbot.wire import Control, LedMode, MotorMode

__all__ = ["Control", "LedMode", "MotorMode"]
