"""CommandMonitor: judges from the frames whether a body follows its commands."""

from __future__ import annotations

from typing import ClassVar

from horde_env.backend import Floats, Frame, InfoKey
from horde_env.robot import RobotSpec
from horde_env.sim.saving import Saved

OBEYED_KEY = InfoKey("obeyed", "1", "0 while the robot does not follow its commands")


class CommandMonitor(Saved):
    """The monitor of a robot that reports which commands it accepted: its body compares them, in `Frame.refusal`.

    `complaint` describes the fault in one or two sentences until a frame shows the contrary; ""
    without a fault.
    """

    name: ClassVar[str] = "commands"  # in saved states
    saved: ClassVar[tuple[str, ...]] = ("complaint",)
    info_keys: ClassVar[tuple[InfoKey, ...]] = (OBEYED_KEY,)

    def __init__(self, spec: RobotSpec) -> None:  # noqa: ARG002  other monitors need it
        self.forget()

    def forget(self) -> None:
        """Begin a life without a complaint."""
        self.complaint = ""

    def judge(self, request: Floats, frame: Frame) -> str:  # noqa: ARG002
        """Take the frame that ended a step under `request` (m/s, m/s, rad/s; shape (3,)) and return `complaint`."""
        if not frame.stale:
            self.complaint = frame.refusal
        return self.complaint


class NoCommandMonitor(CommandMonitor):
    """The monitor of a body that names none, such as a recorded life: its frames have no refusal."""

    info_keys: ClassVar[tuple[InfoKey, ...]] = ()
