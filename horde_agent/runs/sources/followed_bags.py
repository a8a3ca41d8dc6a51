"""Rows of the bags of a folder that gets further ones, as of one bag that goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from horde_agent.formats.bag_files import Bag, Message, bags_in, open_bag, order_of_bag
from horde_agent.formats.bags import BagTable
from horde_agent.refusals import BadInput
from horde_agent.runs.sources.arriving_files import ArrivingFiles
from horde_agent.runs.sources.line_reader import Line


class BagPlace(NamedTuple):
    """A place between two rows of the bags of a folder.

    Attributes:
        n_rows: Number of rows before it.
        n_bags: Number of bags that were opened before it.
        digest: SHA-256 of their names and sizes.
    """

    n_rows: int = 0
    n_bags: int = 0
    digest: str = ""


class FollowedBags:
    """Reads the messages of bags in the order of their names, and yields each row when it is complete.

    A row depends on messages of earlier bags: values hold for a while. So a resumed run reads all bags
    again, and passes over the rows that were yielded. A row is complete when a message came that is
    more than a second later.

    A bag without its end is awaited, as it is being recorded, until the next one is there; then it is
    read to its cut.

    Args:
        path: The folder.
        table: The bags that are there, which describe the messages.
        place: Where to begin; before the first row when None.

    Attributes:
        fault, blocked_s: As of `Lines`: a folder has none, and rows wait in its files.

    Raises:
        BadInput: If bags before the place have changed or are gone.
    """

    def __init__(self, path: Path, table: BagTable, place: BagPlace | None = None) -> None:
        self._files = ArrivingFiles(path, bags_in, order_of_bag)
        self._table = table
        self._n_passed = 0
        self._opened = BagPlace()  # its number of rows is not counted
        self._faults: list[Line] = []
        self._start = self._end = place or BagPlace()
        self.fault: OSError | None = None
        self.blocked_s = 0.0
        first_bags = self._files.listed()[: self._end.n_bags]
        if self._end.digest != _digest(first_bags):
            raise BadInput(
                f"the {self._end.n_bags} bags of {path} that were read have changed or are gone, and rows depend on "
                "them: put them back, or start a new run"
            )

    @property
    def has_waited(self) -> bool:
        """Whether all rows that were there had been read once."""
        return self._files.has_waited

    def stop(self) -> None:
        """End the rows; safe in a signal handler."""
        self._files.stop()

    def close(self) -> None:
        """Do nothing: files are closed when they were read."""

    def place(self, *, is_behind: bool) -> BagPlace:
        """Return the place before the newest row, or behind it."""
        if is_behind:
            return self._end
        return self._start

    def __iter__(self) -> Iterator[Line]:
        """Yield each row behind the place, until `stop`; once."""
        n_rows = 0
        for cells in self._table.rows_of(self._messages()):
            if self._files.is_stopped:
                return
            n_rows += 1
            if n_rows <= self._end.n_rows:
                self._faults.clear()
                continue
            yield from self._faults
            self._faults.clear()
            self._start = self._end
            self._end = self._opened._replace(n_rows=n_rows)
            yield Line(f"{self._files.path}, row {n_rows}".encode(), cells=cells)

    def _messages(self) -> Iterator[Message]:
        """Yield the messages of each bag, until `stop`."""
        name = ""
        n_bags = 0
        while not self._files.is_stopped:
            file = self._files.first_behind(name)
            if file is None:
                self._files.wait()
                continue
            try:
                bag = self._whole_bag(file)
                messages = self._table.messages_of(bag)
            except BadInput as error:
                self._faults.append(Line(self._files.name_of(file).encode(), fault=error))
                messages = iter(())
            name = self._files.name_of(file)
            n_bags += 1
            first_bags = self._files.listed()[:n_bags]
            self._opened = BagPlace(n_bags=n_bags, digest=_digest(first_bags))
            yield from messages

    def _whole_bag(self, file: Path) -> Bag:
        """Return a bag once it has its end, or another one is behind it; raise BadInput if it is none."""
        while True:
            try:
                bag = open_bag(file)
                if not bag.cut:
                    return bag
            except BadInput:
                bag = None
            is_newest = self._files.first_behind(self._files.name_of(file)) is None
            may_change = is_newest or self._files.may_change(file)
            if not may_change or self._files.is_stopped:
                break
            self._files.wait()
        return bag or open_bag(file)


def _digest(files: Iterable[Path]) -> str:
    """Return a digest of the names and sizes of files; "" of none."""
    facts = [f"{file.name} {file.stat().st_size}" for file in files]
    if not facts:
        return ""
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()
