"""Obedience: whether a body follows its commands. Each robot has its own rule; a body names it as `obedience`.

A robot acknowledges no command. If its wire for commands is cut, or its firmware ignores them, it senses and sends as
before, and a learner would take its motion for the outcome of actions that were never done.
"""

from __future__ import annotations

from typing import ClassVar

from horde_env.backend import Floats, Frame
from horde_env.robot import RobotSpec


class Obedience:
    """The rule of a robot that reports which commands it accepted: its body compares them, in `Frame.refusal`.

    Args:
        spec: The robot.

    Attributes:
        complaint: The fault, in one or two sentences; "" while the body follows its commands. It stays until a frame
            shows the contrary.
        saved: Names of the attributes that a saved environment keeps.
    """

    saved: ClassVar[tuple[str, ...]] = ("complaint",)

    def __init__(self, spec: RobotSpec) -> None:  # noqa: ARG002  other rules need it
        self.forget()

    def forget(self) -> None:
        """Begin a life without a complaint."""
        self.complaint = ""

    def judge(self, request: Floats, frame: Frame) -> str:  # noqa: ARG002
        """Take the frame that ended a step under `request` (m/s, m/s, rad/s; shape (3,)) and return `complaint`."""
        if not frame.stale:
            self.complaint = frame.refusal
        return self.complaint

    def info(self) -> dict[str, int]:
        """Return `obeyed`, 0 or 1."""
        return {"obeyed": int(not self.complaint)}


class Unjudged(Obedience):
    """The rule of a body that names none, such as a recorded life: nothing is judged."""

    def judge(self, request: Floats, frame: Frame) -> str:  # noqa: ARG002
        """Return ""."""
        return ""

    def info(self) -> dict[str, int]:
        """Return nothing."""
        return {}


def obedience_of(backend: object, spec: RobotSpec) -> Obedience:
    """Return the rule that a body names as `obedience`, for this robot."""
    rule: type[Obedience] | None = getattr(backend, "obedience", None)
    return (rule or Unjudged)(spec)
