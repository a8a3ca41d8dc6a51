"""When the Critterbot's packets come: every 10 ms, a little late."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.random import Generator

from horde_env.sim.motors import TICK_S

# When packets come, in ms after their 10 ms instants, fitted to the gaps in the real robot's log: most a little late,
# some late by half a cycle (the log's host was busy), and none sooner after the last than the line can carry it.
# Log against this model: p1 7 | 8, p5 8 | 8, median 10 | 10, p95 14 | 14, p99 18 | 18.
LATE_SD_MS, LATE_SHARE, LATE_MS, LINE_MS = 0.7, 0.06, (4.0, 10.0), 7.93


def packet_delays(rng: Generator) -> Iterator[float]:
    """Yield how long after its 10 ms instant each packet comes, in seconds, for ever; jitter as in the log."""
    last_ms = 0.0  # since the instant of the packet before
    while True:
        usual_ms, late_ms = np.abs(rng.normal(0.0, LATE_SD_MS, 256)), rng.uniform(*LATE_MS, 256)
        for wait_ms in np.where(rng.random(256) < LATE_SHARE, late_ms, usual_ms).tolist():
            last_ms = max(wait_ms, last_ms + LINE_MS - 1e3 * TICK_S)
            yield 1e-3 * last_ms
