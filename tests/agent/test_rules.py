"""Update rules: known answers of two independent implementations (reference data), identities and fixed points."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent.kernels import rules
from horde_agent.learning import LearnerConfig, PlainEngine, Signals
from tests.agent.shared import REFERENCE

ONE = np.zeros(1, dtype=np.int64)
VARIANTS = {  # entries of the reference data that are a rule with other parameters
    "etd_interest": "etd",
    "vtrace_both": "vtrace",
    "intentional_td_realised": "intentional_td",
}


def golden() -> Any:
    """Return the module that checks a learner against the known answers, or skip the test without it."""
    path = REFERENCE / "golden" / "verify_rules_golden.py"
    if not path.exists():
        pytest.skip(f"needs {path.name} of the reference data")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class OneDemon:
    """A demon of the plain engine in float64 that learns from the steps of the reference data.

    Feature vectors are given in full, because a tile that is named twice counts twice.
    """

    def __init__(self, entry: str, parameters: dict[str, float], n: int) -> None:
        self.entry, self.n, self.is_first = entry, n, True
        given = {key: value for key, value in parameters.items() if key not in ("alpha", "alpha_w")}
        given |= {"realised": 1.0} if entry == "intentional_td_realised" else {}
        algorithm = VARIANTS.get(entry, entry)
        trace_rule: Any = rules.rule(algorithm).TRACE_RULE or "plain"
        if entry.startswith("vtrace"):
            trace_rule = "clipped"
        config = LearnerConfig(trace_rule=trace_rule, algorithm=algorithm, parameters=given, dtype="float64")
        self.engine = PlainEngine(ONE, n, parameters.get("alpha", 0.0), parameters.get("alpha_w", 0.0), config)

    def phi(self, tiles: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the feature vector of some tiles."""
        return np.bincount(tiles, minlength=self.n).astype(np.float64)

    def learn(self, step: Any) -> None:
        """Take a step; a trace rule changes lambda_{t+1} as the setting already did."""
        if self.is_first:
            self.engine.begin(self.phi(step.tiles_t), np.full(1, step.gamma_t), np.full(1, step.lam_t))
            self.is_first = False
        interest = step.interest_t if self.entry == "etd_interest" else 1.0
        numbers = (step.rho, step.gamma_tp1, step.lam_tp1, step.c_tp1, step.z_tp1, step.b)
        signals = Signals(*(np.full(1, x) for x in numbers), interest_t=np.full(1, interest))
        self.engine.learn(self.phi(step.tiles_tp1), signals)

    @property
    def theta(self) -> Any:
        """Primary weights."""
        return self.engine.weights()[0][0]

    @property
    def w(self) -> Any:
        """Secondary weights."""
        return self.engine.weights()[1][0]

    @property
    def step_sizes(self) -> Any:
        """Step size of each weight."""
        return self.engine.step_sizes()[0]


@pytest.mark.parametrize("entry", [*(name for name in rules.names()), *VARIANTS])
def test_a_rule_gives_the_known_answers_in_every_setting(entry: str) -> None:
    """Eleven settings of policy, lambda and state-dependent gamma, with episode ends, outcomes and interest."""
    reference = golden()
    worst = reference.check(OneDemon, rules=[entry], tolerance=1e-9)
    assert worst[entry] < 1e-9
