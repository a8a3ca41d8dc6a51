"""GTD(lambda) against step-by-step arrays that two independent implementations agree on (reference data)."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import pytest

from horde_agent.learning import LearnerConfig, PlainEngine, Signals, SpanEngine
from tests.agent.shared import reference
from tests.oracles.evaluation import SampleMSPBE, true_mspbe

TOLERANCE = {"float64": 1e-9, "float32": 1e-5}


class Variant(NamedTuple):
    """How a set of arrays was made."""

    alpha_w: float
    trace_rule: Any = "plain"
    w_rule: Any = "every-step"
    gap_at: int = -1
    reset_at: int = -1
    file: str = "gtd_golden.npz"


VARIANTS = {
    "full": Variant(0.02),
    "paperalpha": Variant(0.001 * 0.1 / 8),
    "wrho": Variant(0.002, w_rule="importance-weighted"),
    "cap1": Variant(0.02, "capped"),
    "interrupt": Variant(0.02, gap_at=250),
    "thetareset": Variant(0.02, reset_at=300),
    "clipped": Variant(0.02, "clipped", file="gtd_golden_clipped.npz"),
    "clipped_wrho": Variant(0.002, "clipped", "importance-weighted", file="gtd_golden_clipped.npz"),
}


def assert_close(got: Any, want: Any, tolerance: float, what: str) -> None:
    """Compare the largest difference with the largest entry."""
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max(), what


ENGINES: dict[str, Any] = {
    "plain": PlainEngine,
    "span": SpanEngine,
    "often": functools.partial(SpanEngine, period=7, widest=16),
}
SETUPS = [(name, "float64", engine) for name in VARIANTS for engine in ("plain", "often")]
SETUPS.remove(("cap1", "float64", "often"))  # the span engine has no trace rule "capped"
SETUPS += [(name, "float32", engine) for name in ("full", "clipped_wrho") for engine in ("plain", "span")]


@pytest.mark.parametrize(("name", "dtype", "engine"), SETUPS)
def test_the_golden_arrays(name: str, dtype: Any, engine: str) -> None:
    """Twelve demons, 500 steps: constant, uniform and Gibbs targets, pi = b, state gamma, outcomes, lambda 0 to 1."""
    variant, stream = VARIANTS[name], reference("gtd_golden.npz")
    want = reference(variant.file)
    config = LearnerConfig(
        trace_rule=variant.trace_rule, w_rule=variant.w_rule, dtype=dtype, mspbe_tau=float(stream["tau"])
    )
    alpha, active = float(stream["alpha_v"]), stream["active"].astype(np.int64)
    learner = ENGINES[engine](np.arange(12), 40, alpha, variant.alpha_w, config)
    learner.begin(active[0])
    for t in range(500):
        if t == variant.gap_at:
            learner.begin(active[t])
        if t == variant.reset_at:
            learner.reset_weights()
        is_compared = t + 1 in stream["checkpoints"]
        w_before = learner.weights()[1] if is_compared else None
        signals = Signals(
            stream["rho"][t], stream["gamma"][t + 1], stream["lam"], stream["cumulant"][t + 1], stream["z"][t + 1]
        )
        learner.learn(active[t + 1], signals)
        if name == "full":
            assert_close(learner.td_error, stream["delta_full"][t], 10 * TOLERANCE[dtype], f"delta at {t}")
        if is_compared:
            k = int(np.flatnonzero(stream["checkpoints"] == t + 1)[0])
            theta, w = learner.weights()
            m = learner.mspbe_trace()
            got = {
                "theta": theta,
                "w": w,
                "v_A": m,
                "s_A": learner.mspbe_scalar,
                "vecpost_A": learner.mspbe_vector(),
                "vecpre_A": (m.astype(np.float64) * w_before).sum(axis=1),
            }
            if engine == "plain":
                got["e"] = learner._vector("e")
            for key, value in got.items():
                assert_close(value, want[f"{name}/{key}"][k], TOLERANCE[dtype], f"{key} after {t + 1}")


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_the_golden_chain(gamma: float) -> None:
    """The chain of the paper's first figure, with features that are 1/2 instead of 1.

    Halving phi is the same as binary features with both step sizes quartered: theta.phi and the MSPBE do not change,
    and the weights come out halved. So the learner's theta is half of the array's.
    """
    chain = reference("chain_golden.npz")
    states, actions, ends = chain["states"], chain["actions"], chain["episode_end"]
    tiles = [np.flatnonzero(row) for row in chain["Phi"]]
    rules: dict[str, Any] = {"trace_rule": "plain", "dtype": "float64"}
    learners = {
        tau: PlainEngine(np.zeros(1, np.int64), 5, 0.05 / 4, 0.1 / 4, LearnerConfig(mspbe_tau=tau, **rules))
        for tau in (10, 100)
    }
    samples = {tau: SampleMSPBE(5, tau) for tau in (10, 100)}
    step, worst = 0, 0.0
    for episode, end in enumerate(ends):
        for learner in learners.values():
            learner.begin(tiles[states[step]])
        while step < end:
            state, right = int(states[step]), int(actions[step])
            reached = state + 2 * right - 1
            rho = (0.05, 0.95)[right] / (0.8, 0.2)[right]
            over = not 0 <= reached < 5
            signals = Signals(
                np.array([rho]),
                np.array([0.0 if over else gamma]),
                np.zeros(1),
                np.array([float(reached == 5)]),
                np.zeros(1),
            )
            for tau, learner in learners.items():
                learner.learn(tiles[0 if over else reached], signals)
                samples[tau].update(chain["Phi"][state], learner.td_error[0], learner._vector("e")[0] / 2)
            step += 1
        theta = 2 * learners[10].weights()[0][0]
        row = [true_mspbe(theta, chain[f"A_{gamma}"], chain[f"b_{gamma}"], chain["C"])]
        for tau in (10, 100):
            row += [samples[tau].value(), learners[tau].mspbe_vector()[0], learners[tau].mspbe_scalar[0]]
        worst = max(worst, np.abs(np.array(row) - chain[f"curves_{gamma}"][episode][:7]).max())
        assert_close(2 * learners[10].weights()[1][0], chain[f"w_{gamma}"][episode], 1e-9, "w")
        if episode + 1 == chain["reset_after_episode"]:
            for learner in learners.values():
                learner.reset_weights(chain["theta_after_reset"][None, :] / 2)
        else:
            assert_close(theta, chain[f"theta_{gamma}"][episode], 1e-9, "theta")
    assert worst < 1e-9
