"""How the mean curves of the chain's runs follow the true one: shape, area, peak."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.reproduce.chain import learning as world
from horde_agent.reproduce.chain.learning import CHANGE_AFTER, N_EPISODES, N_RUNS, TAU, TAUS
from horde_agent.reproduce.parallel import OnProgress
from horde_agent.types import Floats

# The windows in which curves are compared, in episodes: all before the change, the rise of w, after it, the change.
BEFORE, RISE, SETTLED = slice(1, CHANGE_AFTER + 1), slice(1, 200), slice(200, CHANGE_AFTER + 1)
CHANGED = slice(CHANGE_AFTER + 1, N_EPISODES + 1)
ONLINE = ("vector", "scalar")


class Curves(NamedTuple):
    """The mean of 100 runs and its standard error, by measure; (E + 1,) or, for those that have a tau, (E + 1, K)."""

    mean: dict[str, Floats]
    error: dict[str, Floats]
    starts_at_zero: bool  # both online estimates, in every run, before anything was learned

    def at(self, measure: str, tau: int = TAU) -> Floats:
        """Return a measure's mean curve, (E + 1,)."""
        return _of_tau(self.mean[measure], tau)

    def error_at(self, measure: str, tau: int = TAU) -> Floats:
        """Return the standard error of a measure's mean curve, (E + 1,)."""
        return _of_tau(self.error[measure], tau)


def _of_tau(values: Floats, tau: int) -> Floats:
    return values[:, TAUS.index(tau)] if values.ndim == 2 else values


class Fit(NamedTuple):
    """How a curve follows the true one."""

    correlation: float  # after the rise
    area: float  # ratio, after the rise
    area_in_rise: float  # ratio, in the first 200 episodes
    correlation_changed: float
    area_changed: float
    peak: float  # the largest value after the change
    peak_after: int  # episodes after the change
    error: float  # root mean square difference in episodes 1 to 1000, over the root mean square of the true curve
    error_changed: float


def fit(curve: Floats, true: Floats) -> Fit:
    """Compare a mean curve with the true one, both of shape (E + 1,), after 0 to E episodes."""
    changed = curve[CHANGED]
    return Fit(
        *likeness(curve[SETTLED], true[SETTLED]),
        likeness(curve[RISE], true[RISE])[1],
        *likeness(changed, true[CHANGED]),
        float(changed.max()),
        int(changed.argmax()) + 1,
        *(_relative_error(curve[part], true[part]) for part in (BEFORE, CHANGED)),
    )


def likeness(curve: Floats, true: Floats) -> tuple[float, float]:
    """Return the correlation of two curves, both of shape (n_episodes,), and the ratio of the areas under them."""
    return float(np.corrcoef(curve, true)[0, 1]), float(curve.sum() / true.sum())


def _relative_error(curve: Floats, true: Floats) -> float:
    return float(np.sqrt(((curve - true) ** 2).mean() / (true**2).mean()))


def mean_curves(on_progress: OnProgress, seed: int, gamma: float, n_runs: int = N_RUNS) -> Curves:
    """Learn in independent runs and return their means; a job for a process of its own."""
    del on_progress  # it takes seconds
    runs = world.learn(seed, gamma, n_runs)
    mean = {name: values.mean(axis=0) for name, values in runs._asdict().items()}
    error = {name: values.std(axis=0, ddof=1) / np.sqrt(n_runs) for name, values in runs._asdict().items()}
    return Curves(mean, error, not any(getattr(runs, name)[:, 0].any() for name in ONLINE))
