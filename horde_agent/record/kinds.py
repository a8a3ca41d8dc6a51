"""Kinds of files in a run's folder: the number of each format, and the readers of older ones.

Every folder that a released version wrote is read by every later one of the same major version
(docs/format.md). Each file has a stamp, where a reader looks first:

    format     the name of its kind
    version    the number of its format, from 1
    program    the version of horde-gvf that wrote it

It is in the first line of a recording, the manifest of a snapshot, the settings and the question
files; an event has it only after format 1.

A new format is a `Reader`, appended to the `readers` of its kind: it makes the content of a file of
the latest format one of the new format, which the program writes from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from horde_agent.processes import own_version
from horde_agent.refusals import BadInput

STAMP = ("format", "version", "program")


class NewerFormat(BadInput):
    """A file has a newer format than this program reads; the message names the version that it needs."""


class Content(NamedTuple):
    """What a file holds.

    Attributes:
        head: A recording's first line, a snapshot's facts, an event, or a table of TOML.
        body: Records, shape (n_records,), or a snapshot's arrays by name; None of other files.
            It is empty where the head alone is read.
    """

    head: dict[str, Any]
    body: Any = None


class Reader(NamedTuple):
    """Reads files of a format as the next one.

    Attributes:
        convert: Makes the content of the one that of the other. Records keep their number and
            order, and a last field for the CRC-32.
        loses: What the next format cannot hold, for `horde upgrade`; "" for nothing.
    """

    convert: Callable[[Content], Content]
    loses: str = ""


@dataclass(eq=False)
class Kind:
    """A kind of file.

    Attributes:
        name: Of its format.
        places: Patterns of its files in a run's folder.
        readers: Of format 1, format 2, and so on.
    """

    name: str
    places: tuple[str, ...]
    readers: list[Reader] = field(default_factory=list)

    @property
    def version(self) -> int:
        """Number of the format that this program writes."""
        return 1 + len(self.readers)

    def stamp(self) -> dict[str, Any]:
        """Return the stamp of a file that this program writes."""
        return {"format": self.name, "version": self.version, "program": own_version()}

    def version_of(self, stamped: Mapping[str, Any], file: str | Path) -> int:
        """Return the format's number in a stamp, 1 without one; raise NewerFormat if it is too new.

        `file` is its name for the message.
        """
        version = stamped.get("version", 1)
        if not isinstance(version, int) or version < 1:
            raise ValueError(f"{file} has the version {version!r} of the format {self.name}")
        if version > self.version:
            writer = ""
            if "program" in stamped:
                writer = f", {stamped['program']},"
            raise NewerFormat(
                f"{file} has version {version} of the format {self.name}, and horde-gvf {own_version()} reads versions "
                f"up to {self.version}: install the version that wrote it{writer} or a later one"
            )
        return version

    def read(self, version: int, content: Content) -> Content:
        """Return the content of a file of a format as one of the present format."""
        for reader in self.readers[version - 1 :]:
            content = reader.convert(content)
        return content

    def read_table(self, table: dict[str, Any], file: Path) -> dict[str, Any]:
        """Return a file's table in the present format, without its stamp.

        A table without a stamp, written by hand, is in the present format. Raise NewerFormat if
        it is too new.
        """
        if table.get("format") != self.name:
            return table
        version = self.version_of(table, file)
        settings = {name: value for name, value in table.items() if name not in STAMP}
        return self.read(version, Content(settings)).head


LIFE = Kind("horde-life", ("log/life*.rec",))
EXCURSIONS = Kind("horde-excursions", ("log/excursions*.rec",))
EVENTS = Kind("horde-event", ("log/events.jsonl",))
SNAPSHOT = Kind(
    "horde-snapshot",
    (
        "checkpoint/[0-9]*/manifest.json",
        "frozen/[0-9]*/manifest.json",
        "log/excursions-past/[0-9]*/manifest.json",
        "shards/*/shard-*/[0-9]*/manifest.json",
    ),
)
SETTINGS = Kind("horde-settings", ("config.toml",))
QUESTIONS = Kind("horde-questions", ("questions.toml", "questions-[0-9]*.toml"))
COLUMNS = Kind("horde-columns", ("columns.toml", "columns-[0-9]*.toml"))
LIVE = Kind("horde-live", ("live/facts.json",))
KINDS = (SETTINGS, QUESTIONS, COLUMNS, LIFE, EXCURSIONS, EVENTS, SNAPSHOT, LIVE)
