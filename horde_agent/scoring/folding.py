"""Fold the oldest excursions of a table: what scores need of them is written, and their files are removed.

That is a snapshot, complete or absent, in the folder "NAME-past": the `Past` of whole blocks, and the
bands. It is written before the files go and before an older one goes, so a kill at any moment leaves
the same scores. A reader leaves files out whose excursions are folded.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from horde_agent.record import snapshots
from horde_agent.record.segments import (
    number_of,
    read_header,
    read_pieces,
    record_files,
    started_files,
    sync_folder,
)
from horde_agent.saving import nested
from horde_agent.scoring import bands, excursion_table, two_pass_nmsre
from horde_agent.scoring.excursion_table import ExcursionTable, folded_place


class Foldable(NamedTuple):
    """The oldest excursions of a table that may be folded.

    Attributes:
        n_parts: Number of the last file that has some of them.
        n: Their number.
    """

    n_parts: int
    n: int


def foldable(path: Path, n: int, step: int) -> Foldable | None:
    """Return the oldest whole blocks that may be folded; None if there are none.

    Args:
        path: The table's first file.
        n: Number of its excursions that no resume takes back: a block of them stays.
        step: Excursions that begin after it stay.
    """
    last = None
    for file in started_files(path)[1:]:
        header = read_header(file, excursion_table.FORMAT)
        first = header.get("first")  # not in files of earlier versions
        if first is None or first % excursion_table.BLOCK:
            continue
        if first + excursion_table.BLOCK > n or _first_step(file) > step:
            break
        last = Foldable(number_of(file, path) - 1, int(first))
    return last


def _first_step(file: Path) -> float:
    """Return the step of the first sound excursion of a file; infinity without one."""
    for piece in read_pieces(file, excursion_table.FORMAT):
        if piece.is_sound.any():
            return int(piece.records["step"][np.argmax(piece.is_sound)])
    return float("inf")


def fold(path: Path, old: Foldable) -> None:
    """Fold the oldest excursions of a table.

    Raises:
        RecordLost: If it cannot be written; nothing has changed.
        ValueError: If a file contains no excursions.
    """
    table = ExcursionTable.read(path, old.n_parts)
    folded = table.folded
    if folded is not None and folded.facts["n_excursions"] >= old.n:  # a kill left the files
        remove_folded(path, old.n_parts)
        return
    past = two_pass_nmsre.past_of(table, old.n)
    state = {
        two_pass_nmsre.IN_FOLDED: past.state(),
        bands.IN_FOLDED: bands.bands_of(table).state(),
    }
    facts = {
        "n_excursions": old.n,
        "n_parts": old.n_parts,
        "n_demons": table.n_demons,
        "policies": [{"name": policy.name} for policy in table.policies],
    }
    place = folded_place(path)
    newest = snapshots.write(place, old.n, nested(**state), facts)
    for earlier in list(snapshots.found(place)):
        if earlier != newest:
            snapshots.remove(earlier)
    remove_folded(path, old.n_parts)


def remove_folded(path: Path, n_parts: int) -> None:
    """Remove the files of a table whose excursions are folded."""
    for file in record_files(path):
        if number_of(file, path) <= n_parts:
            file.unlink()
    sync_folder(path.parent)
