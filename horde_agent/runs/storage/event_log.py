"""The events of a run, JSON lines in log/events.jsonl, of which each ends with its CRC-32 (kinds: `events`)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from horde_agent.record.kinds import EVENTS, STAMP, Content
from horde_agent.record.segments import is_sealed
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.files import unwritable

IMPORTED = "imported"
"""The event after the last row of a data set or a log was written to the recording.

`row` is the number of rows; `position` is where further ones would continue (`tables.Position`), None if
they cannot.
"""
STREAMED = "streamed"
"""The event before a run on data continues with rows that come one by one."""


class RecordedEvents(NamedTuple):
    """The lines of an event log.

    Attributes:
        name: Of the file.
        events: Those that match their CRC-32, in their order.
        damaged: Numbers of the other lines, from 1.
    """

    name: str
    events: list[dict[str, Any]]
    damaged: list[int]

    @classmethod
    def of(cls, name: str, content: bytes) -> RecordedEvents:
        """Return the events in the content of a file; raise NewerFormat if one has a newer format."""
        recorded = cls(name, events=[], damaged=[])
        for number, line in enumerate(content.splitlines(), 1):
            if is_sealed(line):
                event = json.loads(line)
                version = EVENTS.version_of(event, name)
                stored = Content({key: event[key] for key in event if key not in STAMP})
                recorded.events.append(EVENTS.read(version, stored).head)
            else:
                recorded.damaged.append(number)
        return recorded

    @property
    def fault(self) -> str:
        """A sentence, without a full stop, about the damaged lines; "" if there are none."""
        if not self.damaged:
            return ""
        numbers = ", ".join(map(str, self.damaged[:3]))
        if len(self.damaged) > 3:
            numbers += ", ..."
        return (
            f"{self.name} is damaged: {len(self.damaged)} of its lines (number {numbers}) do not match their CRC-32, "
            "and are left out"
        )

    @property
    def n_resumes(self) -> int:
        """Number of resumes; a damaged line counts as one, so that no number is used twice."""
        resumes = [event for event in self.events if event.get("event") == "resumed"]
        return len(self.damaged) + len(resumes)

    @property
    def is_imported(self) -> bool:
        """Whether the recording was imported, as a whole, from a data set or a log.

        The first event of such a run says so: if that line is damaged, the import was over.
        """
        return 1 in self.damaged or any(event.get("event") == IMPORTED for event in self.events)

    def first(self, kind: str) -> dict[str, Any] | None:
        """Return the first event of a kind; None without one."""
        events = [event for event in self.events if event.get("event") == kind]
        if events:
            return events[0]
        return None

    @property
    def imported(self) -> dict[str, Any] | None:
        """The last event about imported rows; None without one."""
        events = [event for event in self.events if event.get("event") == IMPORTED]
        if events:
            return events[-1]
        return None

    @property
    def is_streamed(self) -> bool:
        """Whether the run continued with rows that came one by one."""
        return any(event.get("event") == STREAMED for event in self.events)

    @property
    def began(self) -> datetime:
        """The time at which the run began (UTC); 1970 if it is unknown."""
        if 1 not in self.damaged:
            with suppress(LookupError, TypeError, ValueError):
                return datetime.fromisoformat(self.events[0]["time"])
        return datetime.fromtimestamp(0, UTC)


def encode_event(event: Mapping[str, Any]) -> str:
    """Return an event as its line: with a stamp after format 1, and with its CRC-32."""
    stamp: dict[str, Any] = {}
    if EVENTS.version > 1:
        stamp = EVENTS.stamp()
        del stamp["format"]
    entry = {**event, **stamp}
    return json.dumps({**entry, "crc": crc32(json.dumps(entry).encode())}) + "\n"


class EventLog:
    """Writes and reads the events of a run.

    Each has `step`, `event` (its kind), `time` (UTC), further values, and `crc`, the CRC-32 of these
    as JSON.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: Mapping[str, Any], *, is_needed: bool = False) -> None:
        """Append an event, unless the disk is full; one that is needed is synced to it.

        Raises:
            BadInput: If an event that is needed cannot be written.
        """
        entry = {**event, "time": datetime.now(UTC).isoformat(timespec="seconds")}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(encode_event(entry))
                file.flush()
                if is_needed:
                    os.fsync(file.fileno())
        except OSError as error:
            if is_needed:
                raise BadInput(unwritable(self.path, error)) from None

    def read(self) -> RecordedEvents:
        """Return the events; none without the file, or if it cannot be read."""
        content = b""
        with suppress(OSError):
            content = self.path.read_bytes()
        return RecordedEvents.of(self.path.name, content)
