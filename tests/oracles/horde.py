"""A slow Horde: all signals of every demon on every step, one demon at a time, over the dense GTD(lambda).

Slow, obvious, float64. It marks no demon as diverged, and has no groups, engines or batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.policies import Behaviour
from tests.oracles.gtd import DenseGTD

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]

_LEARNED = ("theta", "w", "e", "m", "s", "delta", "max_e")


class DenseHorde:
    """The demons that answer `questions`. Arguments as of `Horde` and of `DenseGTD`.

    Attributes:
        rho: Of the last step, shape (n_demons,), 0 if it was unknown, NaN before a demon's first.
        n_skipped: Steps that were gaps for a demon alone, shape (n_demons,).
    """

    def __init__(
        self, questions: Sequence[GVF], n_features: int, alpha: float, alpha_w: float, **rules: Any
    ) -> None:
        self.questions: list[GVF] = []
        self._make: Callable[[int], DenseGTD] = lambda n: DenseGTD(
            n, n_features, alpha, alpha_w, **rules
        )
        self.demons = self._make(0)
        self.n_features = n_features
        self.rho = np.zeros(0)
        self.n_skipped = np.zeros(0, dtype=np.int64)
        self._held: tuple[Floats, Tiles] | None = None
        self.add(questions)

    def _phi(self, tiles: Tiles) -> Floats:
        return np.bincount(tiles, minlength=self.n_features).astype(np.float64)

    def _each(self, ask: Callable[[GVF], float]) -> Floats:
        return np.array([ask(q) for q in self.questions], dtype=np.float64)

    def begin(self, observation: Floats, tiles: Tiles) -> Floats:
        self._held = observation.copy(), tiles.copy()
        nothing = np.zeros(len(self.questions))
        return self.demons.begin(self._phi(tiles), nothing, nothing)

    def learn(
        self, action: int, b: float, observation: Floats, tiles: Tiles, *, terminated: bool = False
    ) -> Floats:
        previous_step = self._held
        observation = observation.copy()
        tiles = tiles.copy()
        phi = self._phi(tiles)

        def value(of: Any, low: float, high: float) -> float:
            number: float = of
            if isinstance(of, Feature):
                number = float(phi[of.index]) * value(of.factor, -np.inf, np.inf)
            elif callable(of):
                number = float(of(observation, tiles))
            if low <= number <= high:
                return number
            return np.nan

        def rho(q: GVF) -> float:
            policy = q.target_policy
            if isinstance(policy, Behaviour):
                return 1.0
            return float(policy.probabilities(*previous_step)[action]) / b

        def cumulant(q: GVF) -> float:
            match q.cumulant:
                case Channel(index):
                    return float(observation[index])
                case Prediction(name):
                    return float(
                        self.demons.theta[[p.name for p in self.questions].index(name)] @ phi
                    )
                case part:
                    return value(part, -np.inf, np.inf)

        signals = (
            self._each(rho),
            self._each(lambda q: 0.0 if terminated else value(q.continuation, 0.0, 1.0)),
            self._each(lambda q: 0.0 if terminated else value(q.lam, 0.0, 1.0)),
            self._each(cumulant),
            self._each(lambda q: value(q.outcome, -np.inf, np.inf)),
        )
        is_broken = ~np.isfinite(signals).all(axis=0)
        self.n_skipped += is_broken
        self.rho = np.where(np.isfinite(signals[0]), signals[0], 0.0)
        v = self.demons.learn(phi, *signals)
        if terminated:
            self._held = None
        else:
            self._held = (observation, tiles)
        return v

    @property
    def predictions(self) -> Floats:
        return self.demons.theta @ self.demons.phi

    def reset_weights(self, theta: Floats | None = None) -> None:
        if theta is None:
            self.demons.theta = np.zeros_like(self.demons.theta)
        else:
            self.demons.theta = theta.copy()

    def add(self, questions: Sequence[GVF]) -> None:
        self._change([*self.questions, *questions])

    def remove(self, names: Sequence[str]) -> None:
        self._change([q for q in self.questions if q.name not in names])

    def _change(self, questions: list[GVF]) -> None:
        old = self.demons
        new = self._make(len(questions))
        was = {q.name: i for i, q in enumerate(self.questions)}
        new_rows = [i for i, q in enumerate(questions) if q.name in was]
        old_rows = [was[questions[i].name] for i in new_rows]
        for name in _LEARNED:
            getattr(new, name)[new_rows] = getattr(old, name)[old_rows]
        new.phi = old.phi
        new.gamma_t = np.zeros(len(questions))
        new.lam_t = np.zeros(len(questions))
        n_skipped = np.zeros(len(questions), dtype=np.int64)
        rho = np.full(len(questions), np.nan)
        if new_rows:
            new.gamma_t[new_rows] = old.gamma_t[old_rows]
            new.lam_t[new_rows] = old.lam_t[old_rows]
            n_skipped[new_rows] = self.n_skipped[old_rows]
            rho[new_rows] = self.rho[old_rows]
        self.questions = questions
        self.demons = new
        self.n_skipped = n_skipped
        self.rho = rho
