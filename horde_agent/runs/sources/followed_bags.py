"""Rows of the bags of a folder that gets further ones, as of one bag that goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from horde_agent.formats.bag_files import Bag, Message, bags_in, open_bag, order_of_bag
from horde_agent.formats.bags import BagTable
from horde_agent.refusals import BadInput
from horde_agent.runs.sources.arriving_files import ArrivingFiles, FollowedFiles, PlacedLine
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


def followed_bags(
    path: Path, table: BagTable, place: BagPlace | None = None
) -> FollowedFiles[BagPlace]:
    """Return the rows of bags in the order of their names, each when it is complete.

    A row depends on messages of earlier bags: values hold for a while. So a resumed run reads all bags
    again, and passes over the rows that were yielded. A row is complete when a message came that is
    more than a second later.

    A bag without its end is awaited, as it is being recorded, until the next one is there; then it is
    read to its cut.

    Args:
        path: The folder.
        table: The bags that are there, which describe the messages.
        place: Where to begin; before the first row when None.

    Raises:
        BadInput: If bags before the place have changed or are gone.
    """
    place = place or BagPlace()
    files = ArrivingFiles(path, bags_in, order_of_bag)
    if place.digest != _digest(files.listed()[: place.n_bags]):
        raise BadInput(
            f"the {place.n_bags} bags of {path} that were read have changed or are gone, and rows depend on them: put "
            "them back, or start a new run"
        )
    return FollowedFiles(files, _Rows(files, table, place), place)


class _Rows:
    """Reads the rows behind a place; arguments as of `followed_bags`."""

    def __init__(self, files: ArrivingFiles, table: BagTable, place: BagPlace) -> None:
        self._files = files
        self._table = table
        self._place = place
        self._opened = BagPlace()  # its number of rows is not counted
        self._faults: list[Line] = []

    def __iter__(self) -> Iterator[PlacedLine[BagPlace]]:
        """Yield each row, until a stop; once."""
        place = self._place
        start = place
        n_rows = 0
        for cells in self._table.rows_of(self._messages()):
            if self._files.is_stopped:
                return
            n_rows += 1
            if n_rows <= place.n_rows:
                self._faults.clear()
                continue
            for fault in self._faults:
                yield PlacedLine(fault, start, place)
            self._faults.clear()
            start = place
            place = self._opened._replace(n_rows=n_rows)
            yield PlacedLine(
                Line(f"{self._files.path}, row {n_rows}".encode(), cells=cells), start, place
            )

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
