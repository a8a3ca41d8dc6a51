"""A restored Horde learns the same as the saved one, bit for bit; test_rules.py and test_cluster.py have more."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde, LearnerConfig, Mode
from horde_agent.policies import ConstantAction, Gibbs, Uniform
from tests.agent.hordes import BEHAVIOUR, N_ACTIONS, N_ACTIVE, N, RandomLife, ask


def family() -> list[GVF]:
    policies = [*(ConstantAction(a, N_ACTIONS) for a in range(N_ACTIONS)), Uniform(N_ACTIONS), BEHAVIOUR]
    return [
        ask(f"{i}/{c}/{g}", p, Channel(c), g)
        for i, p in enumerate(policies)
        for c in range(4)
        for g in (0.0, 0.8, 0.97)
    ]


def new_horde(questions: list[GVF], n_features: int = N, mode: Mode = "eager", **config: Any) -> Horde:
    return Horde(questions, n_features=n_features, n_active=N_ACTIVE, config=LearnerConfig(**config), mode=mode)


def answers(horde: Horde) -> list[Any]:
    found = [*horde.weights(), horde.predictions, horde.mspbe_scalar, horde.mspbe_vector(), horde.max_traces, horde.rho]
    found += [horde.ratio_totals(), horde.n_skipped]
    return [array.tobytes() for array in found] + [horde.divergence_reason, horde.skipped_because, horde.n_updated]


def test_a_state_that_was_copied_over_many_steps_by_an_earlier_version_is_refused() -> None:
    """It has blocks of weights of different steps: nothing may learn on from them."""
    horde = new_horde(family())
    old = {name: array for name, array in horde.state().items() if not name.startswith("engine/")}
    with pytest.raises(ValueError, match="replay"):
        horde.restore(old | {"engine/put_in_at": np.zeros((3, 3))})


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_rows_used_after_the_snapshot_are_cleared_by_restore(mode: Mode) -> None:
    """A state contains only the rows in use, 512 of 1,300; the restored Horde had used all of them."""
    n_features, rng = 1_300, np.random.default_rng(5)
    widest = np.minimum(100 + 4 * np.arange(400), n_features).tolist()
    steps = [(int(rng.integers(3)), 0.6, rng.random(4), rng.choice(n, N_ACTIVE, replace=False)) for n in widest]

    def live(horde: Horde, steps: list[Any]) -> None:
        for step in steps:
            horde.learn(*step)

    whole, again = (new_horde(family(), n_features, mode) for _ in range(2))
    whole.begin(*steps[0][2:])
    live(whole, steps[1:70])
    state = whole.state()
    assert state["engine/theta"].size * 2 < again.weights()[0].size, "of all features it holds less than half"
    live(whole, steps[70:])
    again.begin(*steps[-1][2:])
    live(again, steps[::-1])
    again.restore(state)
    live(again, steps[70:])
    assert answers(again) == answers(whole)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one core only")
def test_weights_do_not_depend_on_the_number_of_threads_after_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sum crosses a lane; what the threads have of their own is no part of the state of 4,000 demons."""
    rng = np.random.default_rng(3)
    policies = [Gibbs.random(rng, N_ACTIONS, N, 9) for _ in range(500)]
    many = [ask(f"{i} {c} {g}", p, Channel(c), g) for i, p in enumerate(policies) for c in range(4) for g in (0, 0.9)]
    whole, again = (new_horde(many, mode="deferred") for _ in range(2))
    numba.get_num_threads()  # starts as many threads as there may be, before their number is changed
    with monkeypatch.context() as patch:
        patch.setattr(numba.config, "NUMBA_NUM_THREADS", 1)
        one_thread = new_horde(many, mode="deferred")
    life = RandomLife(whole, one_thread)
    life.run(170)
    again.restore(one_thread.state())
    life.hordes = (whole, again)
    life.run(130)
    assert answers(again) == answers(whole)


def test_a_demon_flagged_while_others_were_added_diverges_after_a_restore() -> None:
    """Deferred steps are flushed when demons are added; only then the weight exceeds its bound."""

    def new(n_steps: int) -> Horde:
        horde = new_horde([ask("wild", BEHAVIOUR, continuation=0.9)], step_size=12.0, trace_rule="plain")
        RandomLife(horde).run(n_steps)
        horde.add([ask("new", ConstantAction(0, N_ACTIONS), Channel(2), 0.5)])
        return horde

    whole = next(horde for horde in map(new, range(1, 60)) if horde._engine.flags)
    again = new(0)
    again.restore(whole.state())
    assert again.n_diverged == 0
    assert again.diverged == whole.diverged == ["wild"]
    assert again.divergence_reason == whole.divergence_reason
