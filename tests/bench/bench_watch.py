"""What the live page costs the life: the feed's share of a core at 10 Hz, with 10,000 demons."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent.interface import Interface
from horde_agent.life.life import Life, StepEvent
from horde_agent.life.status import LiveStatusWriter
from horde_agent.policies import StickyRandom
from tests.agent.doubles import ToyBody, horde_of
from tests.agent.test_watch import questions


def main(n_demons: int = 10_000, n_steps: int = 600) -> dict[str, Any]:
    """Return the feed's time per step (mean, p99, ms), all that is due within a minute at 10 Hz included."""
    took: list[float] = []
    now_s = 0.0
    env = ToyBody()
    interface = Interface.of(env)
    horde = horde_of(questions(n_demons), interface)
    with tempfile.TemporaryDirectory() as folder:
        feed = LiveStatusWriter(Path(folder), interface, horde, clock=lambda: now_s)

        def timed(event: StepEvent) -> None:
            nonlocal now_s
            now_s += 0.1
            began = time.perf_counter()
            feed(event)
            took.append(time.perf_counter() - began)

        with Life(
            env,
            horde,
            StickyRandom(3),
            np.random.default_rng(0),
            interface=interface,
            observers=[timed],
        ) as life:
            life.run(n_steps)
        feed.close()
    return {
        "n_demons": n_demons,
        "feed_ms_mean": round(1e3 * float(np.mean(took)), 3),
        "feed_ms_p99": round(1e3 * float(np.percentile(took, 99)), 3),
        "share_of_a_core_at_10_hz": round(float(np.mean(took)) / 0.1, 5),
    }
