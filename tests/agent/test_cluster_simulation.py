"""The simulation of many nodes: cases that are computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.cluster_simulation import Costs, Outcome, Plan, Simulation, drawn_failures, figures

COSTS = Costs(step_ms=8.0, step_ms_per_1000=2.0, send_ms=0.1, send_ms_per_node=0.5, latency_ms=(1.0,))


def simulated(costs: Costs, plan: Plan, duration_ms: float, *failures: tuple[float, int]) -> Outcome:
    return Simulation(costs, plan, np.random.default_rng(0)).run(duration_ms, failures)


def test_an_answer_takes_sending_the_way_the_step_and_the_way_back() -> None:
    """Of two nodes with 1,000 demons each the second is sent its step at .1 + 2 x .5, and answers 1 + 10 + 1 later."""
    plan = Plan(n_demons=2_000, n_nodes=2, steps_a_message=1, network_ms=0.0)
    out = simulated(COSTS, plan, 1_050.0)
    assert out.answers_ms == pytest.approx([13.1] * 10)
    assert out.lags == [1] * 20


def test_the_network_between_machines_is_passed_twice() -> None:
    plan = Plan(n_demons=2_000, n_nodes=2, steps_a_message=1, network_ms=0.25)
    assert simulated(COSTS, plan, 150.0).answers_ms == pytest.approx([13.6])


def test_a_node_that_is_too_slow_falls_behind_step_by_step() -> None:
    """A step of 150 ms, one each 100 ms: when the k-th is sent, at 100 k, (100 (k - 1) - 1.6) // 150 were taken."""
    costs = Costs(step_ms=150.0, step_ms_per_1000=0.0, send_ms=0.1, send_ms_per_node=0.5, latency_ms=(1.0,))
    out = simulated(costs, Plan(1_000, 1, steps_a_message=1, network_ms=0.0), 1_050.0)
    assert out.lags == [k - max(int((100 * (k - 1) - 1.6) // 150), 0) for k in range(1, 11)]
    assert out.lags[-1] == 5


def test_a_node_comes_back_by_its_snapshot_and_what_was_recorded_since() -> None:
    """Killed at 2,550 ms with 25 steps taken, it stands at 20 again, and has all that was sent at 3,720.

    At 3,550 it is back, and 35 were sent: 15 steps of 10 ms end at 3,700. Meanwhile the 36th came, and then the 37th.
    """
    costs = Costs(step_ms=10.0, step_ms_per_1000=0.0, send_ms=0.0, send_ms_per_node=0.0, latency_ms=(0.0,))
    plan = Plan(0, 1, steps_a_message=1, network_ms=0.0, replace_s=1.0, snapshot_steps=10)
    out = simulated(costs, plan, 10_000.0, (2_550.0, 0), (3_000.0, 0))
    assert out.recoveries_s == pytest.approx([1.17]), "it cannot fail while it is gone"
    assert out.most_redone == 16, "36 sent, the snapshot at 20"
    assert out.up_share == pytest.approx(1.0 - 1.17 / 10.0)


def test_reading_a_snapshot_takes_its_bytes() -> None:
    """1,000 demons of 50 kB at 100 MB/s: half a second more."""
    costs = Costs(10.0, 0.0, 0.0, 0.0, (0.0,), bytes_per_demon=50_000.0)
    plan = Plan(1_000, 1, steps_a_message=1, network_ms=0.0, replace_s=1.0, read_mb_per_s=100.0, snapshot_steps=10)
    # Back at 4,050 with 40 steps sent: 20 of them end at 4,250, the 41st came at 4,100, the 42nd at 4,200.
    assert simulated(costs, plan, 10_000.0, (2_550.0, 0)).recoveries_s == pytest.approx([1.72])


def test_a_node_that_fails_again_while_it_catches_up_counts_as_one_recovery() -> None:
    costs = Costs(step_ms=10.0, step_ms_per_1000=0.0, send_ms=0.0, send_ms_per_node=0.0, latency_ms=(0.0,))
    plan = Plan(0, 1, steps_a_message=1, network_ms=0.0, replace_s=1.0, snapshot_steps=10)
    # Back at 3,550, lost again at 3,600 before any of the 15 was taken; back at 4,600 with 45 sent. 25 steps end at
    # 4,850, then the 46th to the 48th, each sent on a full hundred.
    out = simulated(costs, plan, 10_000.0, (2_550.0, 0), (3_600.0, 0))
    assert out.recoveries_s == pytest.approx([2.33])


def test_batches_make_the_driver_cheap_and_the_nodes_late() -> None:
    plan = Plan(64_000, 64, steps_a_message=64)
    told = figures(COSTS, plan, simulated(COSTS, plan, 60_000.0))
    assert told["driver_ms_per_step"] == pytest.approx((0.1 + 64 * 0.5) / 64)
    assert told["most_steps_per_s"] == pytest.approx(100.0)
    assert told["lag_steps_max"] == 64
    assert told["answer_ms_p50"] is None


def test_money_memory_and_network_are_those_of_all_nodes() -> None:
    plan = Plan(10_000_000, 64, dollars_an_hour=0.1)
    told = figures(Costs(1, 0, 0, 0, (0,), bytes_per_demon=50_000, bytes_per_process=1e9), plan, Outcome())
    assert told["dollars_per_month"] == pytest.approx(64 * 0.1 * 730)
    assert told["memory_gb_per_node"] == pytest.approx(8.8125)
    assert told["network_mb_per_s_of_driver"] == pytest.approx(64 * 2_000 * 10 / 1e6)


def test_a_seed_is_one_outcome() -> None:
    costs = Costs(8.0, 2.0, 0.1, 0.5, (1.0, 2.0, 7.0), step_ratios=(0.9, 1.0, 1.4))
    plan = Plan(20_000, 8, steps_a_message=1, failure_days=0.01, replace_s=5.0, snapshot_steps=100)

    def outcome(seed: int) -> Outcome:
        rng = np.random.default_rng(seed)
        return Simulation(costs, plan, rng).run(60_000.0, drawn_failures(plan, 60_000.0, rng))

    assert outcome(3) == outcome(3)
    assert outcome(3) != outcome(4)


def test_nodes_fail_as_often_as_they_are_said_to() -> None:
    """64 nodes for 100 days, each failing once in 10 days: 640 times, with a standard deviation of 25."""
    plan = Plan(failure_days=10.0)
    times = drawn_failures(plan, 100 * 86_400_000.0, np.random.default_rng(0))
    assert abs(len(times) - 640) < 4 * 25
    assert times == sorted(times)
