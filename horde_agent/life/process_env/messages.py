"""What passes between the two processes where the block of memory cannot hold it."""

from __future__ import annotations

from typing import Any, NamedTuple

from gymnasium import spaces


class Request(NamedTuple):
    """A call: "make" (id, settings), "reset" (seed, options), "step" (action,), "save_state" (), "restore_state"."""

    name: str
    arguments: tuple[Any, ...]


class DriveFrame(NamedTuple):
    """What a life reads of one frame of a drive: see the environment's own frames."""

    t: float
    crc_errors: int
    stale: bool
    applied: bool
    extras: dict[str, Any]


class Drives(NamedTuple):
    """The frames of the last reset's drive, what they look like, and at which of its steps each came."""

    frames: list[DriveFrame]
    observations: list[Any] | None
    at: list[int] | None


class Hello(NamedTuple):
    """What the agent may know of the environment: spaces, metadata, and drives, which are None where it has none."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    metadata: dict[str, Any]
    drives: Drives | None


class Answer(NamedTuple):
    """What a step or a reset returned."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: dict[str, Any]
    drives: Drives | None = None
