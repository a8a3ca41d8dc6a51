"""Where the reference data lie, and small streams that several tests learn from."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent import horde
from horde_agent.interface import ChannelInfo, Interface, Scaler
from horde_agent.learning import LearnerConfig, PlainEngine, Signals, SpanEngine
from horde_agent.tiles import TileCoder
from horde_env.robot import critterbot

REFERENCE = Path(__file__).resolve().parents[2].parent / "shared"

Floats = NDArray[np.float64]


def reference(name: str) -> dict[str, Any]:
    """Return the arrays of a reference file by name, or skip the test where the folder is not there."""
    path = REFERENCE / "golden" / name
    if not path.exists():
        pytest.skip(f"needs {path.name} of the reference data")
    with np.load(path) as file:
        return dict(file)  # an open file would be unpacked anew at each access


def robot_interface() -> Interface:
    """Return what an agent knows of the Critterbot, without making an environment."""
    spec = critterbot()
    channels = tuple(ChannelInfo(c.name, c.group, c.unit, c.is_sensor) for c in spec.channels)
    coder = TileCoder.from_layout(spec.tile_layout, [c._asdict() for c in channels])
    scaler = Scaler(np.zeros(len(channels)), np.ones(len(channels)))
    return Interface(channels, tuple(a.name for a in spec.actions), spec.period_s, coder, scaler)


class RandomStream(NamedTuple):
    """A stream of T transitions for D demons in G groups over n features."""

    group: NDArray[np.int64]  # (D,)
    tiles: NDArray[np.int64]  # (T + 1, active)
    rho: Floats  # (T, G)
    gamma: Floats  # (T + 1, G)
    lam: Floats  # (T + 1, G)
    c: Floats  # (T + 1, D)
    z: Floats  # (T + 1, D)

    def signals(self, t: int) -> Signals:
        """Return what the transition from t to t + 1 tells."""
        return Signals(self.rho[t], self.gamma[t + 1], self.lam[t + 1], self.c[t + 1], self.z[t + 1])


def random_stream(seed: int, n_steps: int, group: list[int], n_features: int = 30, n_active: int = 5) -> RandomStream:
    """Return a stream with everything that may vary varying: rho (often 0), gamma, lambda, cumulant, outcome."""
    rng = np.random.default_rng(seed)
    n_groups, n_demons = max(group) + 1, len(group)
    tiles = [rng.choice(n_features, n_active, replace=False) for _ in range(n_steps + 1)]
    return RandomStream(
        np.array(group),
        np.array(tiles),
        rng.choice([0.0, 0.3, 1.0, 1.6, 5.0], (n_steps, n_groups), p=[0.4, 0.2, 0.1, 0.2, 0.1]),
        rng.choice([0.0, 0.5, 0.9], (n_steps + 1, n_groups)),
        rng.choice([0.0, 0.4, 0.9], (n_steps + 1, n_groups)),
        rng.normal(size=(n_steps + 1, n_demons)),
        rng.normal(size=(n_steps + 1, n_demons)),
    )


def write_every(period: int | None, monkeypatch: pytest.MonkeyPatch, *, widest: int | None = None) -> None:
    """Have Hordes that are made from now on write what is pending after so many steps, in blocks of so many lanes."""
    pace = {name: n for name, n in (("period", period), ("widest", widest)) if n is not None}
    monkeypatch.setattr(horde, "SpanEngine", functools.partial(SpanEngine, **pace))


def learn_all(stream: RandomStream, config: LearnerConfig) -> PlainEngine:
    """Return a plain engine after the whole stream."""
    n_features = int(stream.tiles.max()) + 1
    engine = PlainEngine(stream.group, n_features, 0.02, 0.01, config)
    engine.begin(stream.tiles[0], stream.gamma[0], stream.lam[0])
    for t in range(len(stream.rho)):
        engine.learn(stream.tiles[t + 1], stream.signals(t))
    return engine


def binary(tiles: NDArray[np.int64], n_features: int) -> Floats:
    """Return a feature vector in full; a tile that is there twice counts 2."""
    return np.bincount(tiles, minlength=n_features).astype(np.float64)
