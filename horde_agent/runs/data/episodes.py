"""The transitions that a run learned from, as episodes for other formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.life.flags import are_broken
from horde_agent.record import Flag, Phase, Stream
from horde_agent.types import Floats

Predict = Callable[[Stream], Floats]
"""Returns the predictions at each row of a stream, shape (n_rows, n_demons)."""


class Episode(NamedTuple):
    """Consecutive transitions of which each was learned from: n of them, and n + 1 rows."""

    step: NDArray[np.int64]  # number of the step, shape (n + 1,)
    observation: NDArray[np.float32]  # shape (n + 1, n_channels)
    action: NDArray[np.int64]  # action taken from each row but the last, shape (n,)
    b: Floats  # its probability, NaN in the last row, shape (n + 1,)
    is_terminated: bool  # whether the last observation is terminal
    predictions: NDArray[np.float32] | None  # shape (n + 1, n_demons); None if they are unknown


def episodes_of(parts: Iterable[Stream], predict: Predict | None = None) -> Iterator[Episode]:
    """Yield the episodes of a recording; an excursion, a drive, a gap and a termination end one."""
    left: NDArray[Any] | None = None
    for part in parts:
        rows = part.rows if left is None else np.concatenate([left, part.rows])
        is_end = (rows["phase"][:-1] != Phase.BEHAVE) | are_broken(rows["flags"][1:])
        first = 0
        for end in (np.flatnonzero(is_end) + 1).tolist():
            if end - first > 1:
                yield _episode(rows[first:end], predict)
            first = end
        left = rows[first:]
    if left is not None and len(left) > 1:
        yield _episode(left, predict)


def _episode(rows: NDArray[Any], predict: Predict | None) -> Episode:
    return Episode(
        step=rows["step"].copy(),
        observation=rows["observation"].copy(),
        action=rows["action"][:-1].astype(np.int64),
        b=np.append(rows["b"][:-1], np.nan),
        is_terminated=bool(rows["flags"][-1] & Flag.TERMINATED),
        predictions=None if predict is None else predict(Stream(rows)).astype(np.float32),
    )
