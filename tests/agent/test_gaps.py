"""Gaps of single demons: a demon with a signal that is not finite skips the step, and learns from the next one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Prediction
from horde_agent.policies import ConstantAction, PolicyFunction
from tests.agent.hordes import (
    IN_ALL,
    N_ACTIONS,
    RandomLife,
    ask,
    assert_finite,
    assert_same_weights,
    breaking,
    constant,
    leaning,
    make,
    nan_policy,
    siblings,
)

AT = (11, 12, 30)
BROKEN: dict[str, tuple[GVF, GVF, str]] = {
    "a cumulant": (ask("x", cumulant=breaking(AT, np.nan)), ask("x", cumulant=constant), "cumulant was nan"),
    "an infinite cumulant": (ask("x", cumulant=breaking(AT, -np.inf)), ask("x", cumulant=constant), "was -inf"),
    "an outcome": (ask("x", outcome=breaking(AT, np.inf)), ask("x", outcome=constant), "outcome was inf"),
    "a continuation": (ask("x", None, None, breaking(AT, 1.5)), ask("x", None, None, constant), "continuation was 1.5"),
    "a trace decay": (ask("x", lam=breaking(AT, np.nan)), ask("x", lam=constant), "lam was nan"),
    "a policy": (ask("x", nan_policy(AT)), ask("x", PolicyFunction(leaning, N_ACTIONS)), "rho = .* was nan"),
}


@IN_ALL
@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_signal_is_a_gap_for_that_demon_alone(what: str, engine: Any, mode: Any) -> None:
    """A Horde with this question alone that calls `begin` at those states learns the same; siblings change no bit."""
    broken, sound, words = BROKEN[what]
    horde = make([broken, *siblings()], engine, mode)
    with_sound, alone = make([sound, *siblings()], engine, mode), make([sound])
    RandomLife(horde, with_sound, alone).run(50, begin=alone, at=AT)
    assert horde.n_skipped.tolist() == [3] + [0] * 10
    assert not horde.diverged
    np.testing.assert_allclose(horde.weights()[0][0], alone.weights()[0][0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(horde.weights()[1][0], alone.weights()[1][0], rtol=1e-9, atol=1e-13)
    assert_same_weights(horde, with_sound, first=1)
    assert_finite(horde)
    assert list(horde.skipped_because) == ["x"]
    assert re.match(f"3 x.*{words} at learning step 11", horde.skipped_because["x"])


@IN_ALL
def test_a_sensor_may_return_after_a_thousand_steps(engine: Any, mode: Any) -> None:
    at = tuple(range(20, 1_020))
    horde = make([ask("x", cumulant=breaking(at, np.nan)), *siblings()], engine, mode)
    life = RandomLife(horde)
    life.run(19)
    before = horde.weights()
    life.run(1_000)
    np.testing.assert_allclose(horde.weights()[0][0], before[0][0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(horde.weights()[1][0], before[1][0], rtol=0, atol=1e-15)
    assert horde.td_error[0] == 0
    life.run(20)
    assert np.abs(horde.weights()[0][0] - before[0][0]).max() > 1e-3
    assert horde.n_skipped.tolist() == [1_000] + [0] * 10
    assert "step 20" in horde.skipped_because["x"]
    assert not horde.diverged


@IN_ALL
def test_a_demon_that_skips_is_not_counted_as_updated(engine: Any, mode: Any) -> None:
    questions = [ask("x", cumulant=breaking((1, 3), np.nan)), ask("y"), ask("off", ConstantAction(0, 3))]
    horde = make(questions, engine, mode)
    horde.begin(np.zeros(4), np.arange(4))
    for t, n in ((1, 1), (2, 2), (3, 1), (4, 2)):
        horde.learn(1, 0.5, np.full(4, float(t)), np.arange(4))
        assert horde.n_updated == n
        assert horde.n_skipped[0] == (t + 1) // 2


@IN_ALL
def test_a_termination_needs_no_continuation(engine: Any, mode: Any) -> None:
    """At a termination the continuation is 0 whatever its function returns, so the step is learned from."""
    bad = {"continuation": breaking((5,), np.nan), "lam": breaking((5,), 7.0)}
    horde = make([ask("x", **bad), ask("y")], engine, mode)
    horde.begin(np.zeros(4), np.arange(4))
    horde.learn(1, 0.5, np.full(4, 5.0), np.arange(3, 7), terminated=True)
    assert horde.td_error[0] == 5.0
    assert horde.n_skipped[0] == 0


@IN_ALL
def test_a_stream_may_begin_at_a_broken_continuation(engine: Any, mode: Any) -> None:
    """A continuation decays the trace of the step before; at the first state there is none."""
    bad = {"continuation": breaking((0,), np.nan), "lam": breaking((0,), -1.0, 0.9)}
    horde, twin = make([ask("x", **bad)], engine, mode), make([ask("x", continuation=constant, lam=0.9)], engine, mode)
    RandomLife(horde, twin).run(20)
    np.testing.assert_allclose(horde.weights()[0], twin.weights()[0], rtol=1e-12, atol=1e-15)
    assert horde.n_skipped[0] == 0


@IN_ALL
def test_the_prediction_of_a_diverged_demon_is_no_cumulant(engine: Any, mode: Any) -> None:
    """It is frozen at zero: a demon that learned from it would unlearn."""
    base, above = ask("base", cumulant=breaking((10,), 1e300)), ask("above", cumulant=Prediction("base"))
    horde = make([base, above, ask("y")], engine, mode)
    life = RandomLife(horde)
    life.run(11)  # the step with the 1e300, and one more in case the batch was not yet full
    assert horde.diverged == ["base"]
    before, n_before = horde.weights()[0][1], horde.n_skipped[1]
    life.run(20)
    np.testing.assert_allclose(horde.weights()[0][1], before, rtol=0, atol=1e-15)
    assert np.abs(before).max() > 0
    assert horde.n_skipped[1] == n_before + 20


@IN_ALL
def test_counts_of_skips_follow_the_demons_that_stay(engine: Any, mode: Any) -> None:
    horde = make([ask("a"), ask("x", cumulant=breaking((4, 5), np.nan)), ask("b")], engine, mode)
    life = RandomLife(horde)
    life.run(8)
    horde.remove(["a"])
    horde.add([ask("new", cumulant=breaking((10,), np.nan))])
    assert horde.n_skipped.tolist() == [2, 0, 0]
    life.run(4)
    assert horde.n_skipped.tolist() == [2, 0, 1]
    horde.remove(["x"])
    horde.add([ask("x")])
    assert horde.n_skipped.tolist() == [0, 1, 0]
    assert list(horde.skipped_because) == ["new"]
