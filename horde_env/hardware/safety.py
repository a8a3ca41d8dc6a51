"""Who keeps a robot from moving, judged from what it senses; each robot has one of its own."""

from __future__ import annotations

from typing import Protocol

from horde_env.backend import Floats


class Supervising(Protocol):
    """What a body needs of its supervisor."""

    def judge(self, values: Floats, charge_state: int, t: float) -> str:
        """Return "" while the robot may move, else why not: words that stay the same while the reason does.

        Args:
            values: All channels in SI units, shape (n_channels,).
            charge_state: The robot's own number.
            t: Time of the frame in seconds.
        """
