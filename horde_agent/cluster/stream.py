"""The stream as it is sent to shards: entries of a fixed size, collected until a message is full.

An entry is a row: what happened, and for a transition the action, its probability, the observation and the tiles. An
entry of the paper's stream has 1.4 KB. A change of the demons or of their weights is carried beside its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from horde_agent.types import Floats, Tiles

BEGIN, LEARN, LEARN_LAST, TAKE, CHANGE = range(5)
"""A stream begins; a transition; the last one of a stream; waiting steps are taken; a `Change` is made."""

BATCH = 64
"""Entries in a message at most."""


def row_type(n_channels: int, n_active: int, n_features: int) -> np.dtype[Any]:
    """Return the dtype of an entry: the observation in float64, tiles in as few bytes as they need."""
    tile = np.uint16 if n_features <= 1 << 16 else np.uint32
    return np.dtype(
        [
            ("verb", np.uint8),
            ("action", np.int32),
            ("probability", np.float64),
            ("observation", np.float64, (n_channels,)),
            ("tiles", tile, (n_active,)),
        ]
    )


@dataclass(frozen=True)
class Change:
    """A change that shards make between two steps.

    Attributes:
        what: "add", "remove", "reset" or "save".
        of: Argument for each shard concerned, by its number: pickled questions; names; theta of shape (n, n_features),
            or None for zeros; the folder of the snapshot.
    """

    what: str
    of: Mapping[int, Any]

    def part(self, number: int) -> Change:
        """Return the part of one shard."""
        return Change(self.what, {number: self.of[number]} if number in self.of else {})


class Entry(NamedTuple):
    """One entry of the stream; fields that its verb does not use are zero.

    Attributes:
        verb: BEGIN, ..., CHANGE.
        action: Action taken.
        probability: b(action).
        observation: Of the state reached, shape (n_channels,).
        tiles: Of the state reached, shape (n_active,).
    """

    verb: int
    action: int = 0
    probability: float = 0.0
    observation: Floats | None = None
    tiles: Tiles | None = None


class Outbox:
    """Entries that are not sent yet.

    Args:
        n_channels, n_active, n_features: As in `row_type`.

    Attributes:
        n_channels: As given.
        n: Entries in it.
    """

    def __init__(self, n_channels: int, n_active: int, n_features: int) -> None:
        self.n_channels, self.n = n_channels, 0
        self._rows = np.zeros(BATCH, dtype=row_type(n_channels, n_active, n_features))

    def append(self, entry: Entry) -> None:
        """Add an entry; there must be room."""
        rows, place = self._rows, self.n
        rows[place] = np.zeros((), dtype=rows.dtype)
        rows["verb"][place], rows["action"][place] = entry.verb, entry.action
        rows["probability"][place] = entry.probability
        if entry.observation is not None:
            rows["observation"][place], rows["tiles"][place] = entry.observation, entry.tiles
        self.n += 1

    def take(self) -> bytes:
        """Return the rows as bytes, and empty the outbox."""
        n, self.n = self.n, 0
        return self._rows[:n].tobytes()
