"""Reference data, engines and small streams that several tests share."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent.interface import ChannelInfo, Interface, Scaler
from horde_agent.learning import LearnerConfig, PlainEngine, Signals, SpanEngine, mixed
from horde_agent.tiles import TileCoder
from horde_env.robot import critterbot

REFERENCE = Path(__file__).resolve().parents[2].parent / "shared"

Floats = NDArray[np.float64]


def reference(name: str) -> dict[str, Any]:
    """Return the arrays of a reference file by name; skip the test if the folder is missing."""
    path = REFERENCE / "golden" / name
    if not path.exists():
        pytest.skip(f"needs {path.name} of the reference data")
    with np.load(path) as file:
        return dict(file)  # an open file unpacks at each access


def robot_interface() -> Interface:
    """Return the Critterbot's interface without making an environment."""
    spec = critterbot()
    channels = tuple(ChannelInfo(c.name, c.group, c.unit, c.is_sensor) for c in spec.channels)
    described = [c._asdict() for c in channels]
    return Interface(
        channels,
        actions=tuple(a.name for a in spec.actions),
        period_s=spec.period_s,
        coder=TileCoder.from_layout(spec.tile_layout, described),
        scaler=Scaler(np.zeros(len(channels)), np.ones(len(channels))),
        chosen_coder=TileCoder.from_layout(spec.chosen_layout, described),
    )


class Setup(NamedTuple):
    """An engine under test: its kind, its batch size in steps, and the update rule."""

    engine: Literal["span", "plain"] = "span"
    batch: int = 1
    algorithm: str = "gtd"


# Parameters that matter
PARAMETERS: dict[str, dict[str, float]] = {"vtrace": {"rho_bar": 1.2}, "tdrc": {"beta": 2.0}}


def config_of(algorithm: str, **settings: Any) -> LearnerConfig:
    """Return a rule in float64, with parameters that matter."""
    options: dict[str, Any] = {
        "algorithm": algorithm,
        "dtype": "float64",
        "mspbe_tau": 20.0,
        "parameters": PARAMETERS.get(algorithm, {}),
    }
    return LearnerConfig.paper(**options | settings)


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
        """Return the signals of the transition from t to t + 1."""
        return Signals(
            self.rho[t], self.gamma[t + 1], self.lam[t + 1], self.c[t + 1], self.z[t + 1]
        )


def random_stream(
    seed: int,
    n_steps: int,
    group: list[int],
    n_features: int = 30,
    n_active: int = 5,
    n_new: int = 0,
) -> RandomStream:
    """Return a stream in which rho (often 0), gamma, lambda, cumulant and outcome vary.

    With `n_new`, feature 0 is always active and only `n_new` active features change per step;
    otherwise all do.
    """
    rng = np.random.default_rng(seed)
    n_groups = max(group) + 1
    n_demons = len(group)
    tiles = [rng.choice(n_features, n_active, replace=False) for _ in range(n_steps + 1)]
    if n_new:
        active = np.arange(n_active)
        for t in range(n_steps + 1):
            off = rng.choice(np.arange(1, n_active), n_new, replace=False)
            active = active.copy()
            active[off] = rng.choice(
                np.setdiff1d(np.arange(n_features), active), n_new, replace=False
            )
            tiles[t] = active
    return RandomStream(
        np.array(group),
        np.array(tiles),
        rng.choice([0.0, 0.3, 1.0, 1.6, 5.0], (n_steps, n_groups), p=[0.4, 0.2, 0.1, 0.2, 0.1]),
        rng.choice([0.0, 0.5, 0.9], (n_steps + 1, n_groups)),
        rng.choice([0.0, 0.4, 0.9], (n_steps + 1, n_groups)),
        rng.normal(size=(n_steps + 1, n_demons)),
        rng.normal(size=(n_steps + 1, n_demons)),
    )


def new_engine(
    setup: Setup,
    group: Sequence[int] | NDArray[np.int64],
    n_features: int = 30,
    alpha: Any = 0.02,
    alpha_w: Any = 0.01,
    *,
    policy: NDArray[np.int64] | None = None,
    pace: Mapping[str, Any] | None = None,
    **rules: Any,
) -> Any:
    """Return an engine in float64 unless `rules`, settings of LearnerConfig, say otherwise; `pace` is for span only."""
    config = LearnerConfig.paper(
        **{"dtype": "float64", "mspbe_tau": 20.0, "algorithm": setup.algorithm} | rules
    )
    args = (np.asarray(group), n_features, alpha, alpha_w, config)
    if setup.engine == "plain":
        return PlainEngine(*args, policy=policy)
    return SpanEngine(*args, policy=policy, batch=setup.batch, **(pace or {}))


def learn_all(engine: Any, stream: RandomStream) -> Any:
    """Learn from the whole stream, and return the engine."""
    engine.begin(stream.tiles[0])
    for t in range(len(stream.rho)):
        engine.learn(stream.tiles[t + 1], stream.signals(t))
    engine.catch_up()
    return engine


def write_every(period: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make further Hordes flush every `period` steps."""
    monkeypatch.setattr(mixed, "SpanEngine", functools.partial(SpanEngine, period=period))


def binary(tiles: NDArray[np.int64], n_features: int) -> Floats:
    """Return the dense feature vector; a repeated tile counts twice."""
    return np.bincount(tiles, minlength=n_features).astype(np.float64)
