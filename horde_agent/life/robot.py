"""The interface between a life and its robot: everything a life uses beyond Gymnasium's own methods.

Any Gymnasium environment will do. One that lacks these attributes cannot drive, dock or be restored.
What its `info` may report is in `counts.RobotInfo`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import gymnasium

from horde_agent.life.counts import RobotInfo


class RobotBody:
    """What a robot's environment offers beyond Gymnasium's methods.

    Args:
        env: Any environment. These attributes of `env.unwrapped` are used if they are there:
            `manoeuvre_frames`, `manoeuvre_observations` and `manoeuvre_at` (of the drive in the
            last reset), `save_state()`, `restore_state(state)`, `end_manoeuvre()`,
            `emergency_stop(reason)`, `wait_for_rest(limit_s)` and `disobedience`. Keys of its
            `metadata`: "manoeuvres", "restorable", "picture", "ranges" of channels, "tile_layout",
            "notes" and "stop_options", the options of the command `horde-robot stop` that stops it
            from another process, by name. With that key, `emergency_stop` and `wait_for_rest` may
            be called in any thread.

    Attributes:
        can_drive: Whether it drives to the centre after a test excursion.
        can_dock: Whether it has a dock.
        is_restorable: Whether it can be put back to a saved state, as a simulated robot can.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._body: Any = env.unwrapped
        self.can_drive = hasattr(self._body, "manoeuvre_frames")
        self.can_dock = "dock" in self.metadata.get("manoeuvres", ())
        self.is_restorable = bool(self.metadata.get("restorable"))
        self.stop_options: dict[str, str] = dict(self.metadata.get("stop_options", {}))

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of `env.unwrapped`."""
        return cast("Mapping[str, Any]", self._body.metadata)

    @property
    def n_drive_frames(self) -> int:
        """Number of frames of the drive in the last reset."""
        if self.can_drive:
            return len(self._body.manoeuvre_frames)
        return 0

    def drive_frames(self) -> Iterator[tuple[int, RobotInfo, Any]]:
        """Yield the frames of the drive in the last reset, without the last one, which the reset returned.

        Each has the period of the drive in which it was sampled, from 1 on, its info, and its
        observation as the environment returns it, None if it does not keep them.
        """
        frames = []
        if self.can_drive:
            frames = self._body.manoeuvre_frames[:-1]
        observations = getattr(self._body, "manoeuvre_observations", None) or [None] * len(frames)
        at = getattr(self._body, "manoeuvre_at", range(1, len(frames) + 1))
        for period, frame, observation in zip(at, frames, observations, strict=False):
            frame_info = {"t": frame.t, "gap": 0, "applied": getattr(frame, "applied", True)}
            frame_info |= {"crc_errors": frame.crc_errors, "stale": frame.stale}
            yield period, RobotInfo.of({**frame.extras, **frame_info}), observation

    def save_state(self) -> dict[str, Any]:
        """Return everything that the robot's future depends on, if it is restorable."""
        return cast("dict[str, Any]", self._body.save_state())

    def restore_state(self, state: dict[str, Any]) -> None:
        """Restore the robot to a saved state."""
        self._body.restore_state(state)

    def end_manoeuvre(self) -> None:
        """End a drive or a stay at the dock early, if the robot can; safe in a signal handler."""
        if hasattr(self._body, "end_manoeuvre"):
            self._body.end_manoeuvre()

    def emergency_stop(self, reason: str) -> bool:
        """Set the robot's emergency stop; return whether it has one."""
        return hasattr(self._body, "emergency_stop") and bool(self._body.emergency_stop(reason))

    def wait_for_rest(self, limit_s: float) -> bool:
        """Wait until the robot reports that it stands; return whether it did within `limit_s` s. True if it cannot."""
        return not hasattr(self._body, "wait_for_rest") or bool(self._body.wait_for_rest(limit_s))

    @property
    def disobedience(self) -> str:
        """Why the robot does not carry out commands, in a sentence; "" if unknown."""
        return getattr(self._body, "disobedience", "")
