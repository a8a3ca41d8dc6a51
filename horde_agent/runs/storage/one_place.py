"""A life goes on in one place: copies of its folder have the number of its `began` event.

A process that lives it holds a name of the operating system's with that number, so that a copy
on the same computer is refused meanwhile. Copies that went on apart are found by their events.
"""

from __future__ import annotations

import socket
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from horde_agent.refusals import BadInput
from horde_agent.runs.storage.folder import RunFolder

_HAS_NAMES = sys.platform == "linux"  # of sockets, without files: they end with their process


def began_event() -> dict[str, Any]:
    """Return the first event of a life, with a number that no other life has."""
    return {"step": 0, "event": "began", "row": 0, "life": uuid.uuid4().hex}


@contextmanager
def lived_once(folder: RunFolder) -> Iterator[None]:
    """Be the one process of this computer that lives a life, in this context; raise BadInput if another one does.

    A life without a number, of an earlier version, is not held.
    """
    number = _number_of(folder)
    if number is None or not _HAS_NAMES:
        yield
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as name:
        try:
            name.bind(f"\0horde-life-{number}")
        except OSError:
            raise BadInput(
                f"{folder.path} is a copy of a life that goes on in another folder of this computer; end it there first"
            ) from None
        yield


def parted_at(one: RunFolder, other: RunFolder) -> int | None:
    """Return the step from which on two copies of a life went on apart; None if they did not, or are two lives."""
    number = _number_of(one)
    if number is None or number != _number_of(other):
        return None
    events = one.events.read().events
    other_events = other.events.read().events
    n_shared = 0
    for event, another in zip(events, other_events, strict=False):
        if event != another:
            break
        n_shared += 1
    if n_shared == min(
        len(events), len(other_events)
    ):  # one of them ended before, and stays as it was
        return None
    return max(int(event["step"]) for event in events[:n_shared])


def _number_of(folder: RunFolder) -> str | None:
    began = folder.events.read().first("began") or {}
    number = began.get("life")
    if isinstance(number, str):
        return number
    return None
