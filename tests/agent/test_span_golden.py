"""The span engine against the step-by-step reference arrays, in every variant whose rule it has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from horde_agent.kernels.gtd_arrays import Signals

from horde_agent.learning.rules import LearnerConfig
from horde_agent.learning.span import SpanGTD
from tests.agent.shared import reference
from tests.agent.test_golden import TOLERANCE, VARIANTS, assert_close


@pytest.mark.parametrize(("period", "tail"), [(7, 5), (64, 192)], ids=["carried", "kept"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", [n for n, v in VARIANTS.items() if v.trace_rule != "capped"])
def test_the_golden_arrays(name: str, dtype: Any, period: int, tail: int) -> None:
    """Twelve demons, 500 steps: constant, uniform and Gibbs targets, pi = b, state gamma, outcomes, lambda 0 to 1."""
    variant, stream = VARIANTS[name], reference("gtd_golden.npz")
    want = reference(variant.file)
    config = LearnerConfig(
        trace_rule=variant.trace_rule, w_rule=variant.w_rule, dtype=dtype, mspbe_tau=float(stream["tau"])
    )
    alpha, active = float(stream["alpha_v"]), stream["active"].astype(np.int64)
    engine = SpanGTD(np.arange(12), 40, alpha, variant.alpha_w, config, period=period, tail=tail)
    engine.begin(active[0], stream["gamma"][0], stream["lam"])
    for t in range(500):
        if t == variant.gap_at:
            engine.begin(active[t], stream["gamma"][t], stream["lam"])
        if t == variant.reset_at:
            engine.reset_weights()
        signals = Signals(
            stream["rho"][t], stream["gamma"][t + 1], stream["lam"], stream["cumulant"][t + 1], stream["z"][t + 1]
        )
        engine.learn(active[t + 1], signals)
        if name == "full":
            assert_close(engine.td_error, stream["delta_full"][t], 10 * TOLERANCE[dtype], f"delta at {t}")
        if t + 1 in stream["checkpoints"]:
            k = int(np.flatnonzero(stream["checkpoints"] == t + 1)[0])
            theta, w = engine.weights()
            got = {
                "theta": theta,
                "w": w,
                "v_A": engine.mspbe_trace(),
                "s_A": engine.mspbe_scalar,
                "vecpost_A": engine.mspbe_vector(),
            }
            for key, value in got.items():
                assert_close(value, want[f"{name}/{key}"][k], TOLERANCE[dtype], f"{key} after {t + 1}")
