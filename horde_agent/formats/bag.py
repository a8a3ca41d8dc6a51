"""Robots' bags, which a columns file with topics and fields describes."""

from __future__ import annotations

from pathlib import Path

from horde_agent.formats.bag_draft import draft_bag_columns
from horde_agent.formats.bag_files import SUFFIXES, is_bag
from horde_agent.formats.bags import open_bag_table
from horde_agent.formats.format import Format
from horde_agent.formats.tables import Table


class Bag(Format):
    """A bag or a folder of bags."""

    described = f"a robot's bag *{', *'.join(SUFFIXES)}, a folder of bags"

    def matches(self, path: Path) -> bool:
        """Return whether a path is a file with the name of a bag, or a folder with bags."""
        return path.exists() and is_bag(path)

    def open(self, path: Path, columns: Path | None, *, is_log: bool = False) -> Table:
        """Return a bag as a table; raise BadInput if it cannot be read, or does not fit the columns file."""
        return open_bag_table(path, columns, is_log=is_log)

    def draft(self, path: Path) -> str:
        """Return a columns file, by the first messages of the topics."""
        return draft_bag_columns(path)


FORMAT = Bag()
