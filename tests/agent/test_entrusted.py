"""Gibbs policies that the engine asks itself, within its own parallel region: the same ratios as told from outside."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from horde_agent.kernels.entry import entry_of, share_out
from horde_agent.kernels.held import hold, look_into
from horde_agent.kernels.turns import N_TURNS, finish, take_next, wait_for_all
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.kernels import checks
from horde_agent.kernels._jit import entry_kernel
from horde_agent.policies import ConstantAction, Gibbs
from tests.agent.shared import binary
from tests.oracles.gibbs import gibbs_ratios

pytestmark = pytest.mark.kernels

N_FEATURES, N_ACTIVE, N_CHANNELS, N_ACTIONS, N_GIBBS = 40, 8, 3, 3, 40
MODES = pytest.mark.parametrize("mode", ["eager", "deferred"])
F64 = {"dtype": "float64", "w_rule": "importance-weighted"}


def gibbs(n: int = N_GIBBS, seed: int = 0) -> list[Gibbs]:
    """Return random policies with ten parameters each: enough of them to be summed in whole numbers."""
    rng = np.random.default_rng(seed)
    return [Gibbs.random(rng, N_ACTIONS, N_FEATURES, 10) for _ in range(n)]


def ask(policies: list[Gibbs], prefix: str = "") -> list[GVF]:
    """Return two questions about each policy, and between them one about an action, so that places differ."""
    out = []
    for i, policy in enumerate(policies):
        for k, gamma in enumerate((0.0, 0.8)):
            out.append(GVF(f"{prefix}{i}.{k}", policy, Channel(i % N_CHANNELS), gamma))
        if i % 10 == 3:
            out.append(GVF(f"{prefix}action {i}", ConstantAction(i % N_ACTIONS, N_ACTIONS), Channel(0), 0.5))
    return out


class Step(NamedTuple):
    """A transition, or where `action` is -1 a gap before the state; with `last`, the stream ends there."""

    action: int
    b: float
    observation: NDArray[np.float64]
    tiles: NDArray[np.int64]
    last: bool


def walk(n_steps: int, seed: int = 0) -> list[Step]:
    """Return a life in which few tiles change, or now and then all of them, with gaps and terminations."""
    rng, tiles, steps, ended = np.random.default_rng(seed), np.arange(N_ACTIVE), [], True
    for t in range(n_steps):
        n_changed = N_ACTIVE if t % 17 == 5 else rng.integers(0, 3)
        tiles = tiles.copy()
        tiles[rng.choice(N_ACTIVE, n_changed, replace=False)] = rng.integers(0, N_FEATURES, n_changed)
        action = -1 if ended or t % 23 == 7 else int(rng.integers(N_ACTIONS))
        ended = action >= 0 and t % 29 == 11
        steps.append(Step(action, float(rng.choice([0.2, 0.6])), rng.normal(size=N_CHANNELS), tiles, ended))
    return steps


def live(horde: Horde, steps: list[Step], each: Any = None) -> Horde:
    """Let a Horde learn from a life; `each` is called after each transition with the state in which it was begun."""
    before = np.zeros(0, dtype=np.int64)
    for step in steps:
        if step.action < 0:
            horde.begin(step.observation, step.tiles)
        else:
            horde.learn(step.action, step.b, step.observation, step.tiles, terminated=step.last)
            if each is not None:
                each(horde, step, before)
        before = step.tiles
    return horde


def make(questions: list[GVF], mode: Any = "eager", **config: Any) -> Horde:
    return Horde(
        questions, n_features=N_FEATURES, n_active=N_ACTIVE, config=LearnerConfig(**{**F64, **config}), mode=mode
    )


def outcome(horde: Horde) -> list[Any]:
    """Return all that a life led to."""
    return [*horde.weights(), horde.mspbe_scalar, horde.td_error, horde.rho, horde.ratio_totals(), horde.predictions]


@MODES
def test_the_engine_makes_the_ratios_that_it_would_be_told(mode: str) -> None:
    """Keeping RUPEE leaves the policies to the Horde; what they teach the demons is the same, bit for bit if eager."""
    questions, steps = ask(gibbs()), walk(150)
    asked, told = live(make(questions, mode), steps), live(make(questions, rupee_beta0=0.01), steps)
    assert asked._table is not None
    assert told._table is None
    for got, want in zip(outcome(asked), outcome(told), strict=True):
        if mode == "eager":
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@MODES
def test_ratios_are_those_of_softmaxes_and_add_up(mode: str) -> None:
    questions, sums = ask(gibbs()), np.zeros((3, N_GIBBS * 2 + 4))

    def each(horde: Horde, step: Step, before: NDArray[np.int64]) -> None:
        want = np.empty(len(questions))
        for i, q in enumerate(questions):
            policy = q.target_policy
            if isinstance(policy, Gibbs):
                want[i] = gibbs_ratios([policy], binary(before, N_FEATURES), step.action, step.b)[0]
            else:
                want[i] = (policy.action == step.action) / step.b  # type: ignore[union-attr]
        sums[:] += want > 0, want, want**2
        assert horde.n_updated == (want > 0).sum()
        if mode == "eager" or step.action == 0:  # asked on some steps only: batches of several lengths
            np.testing.assert_allclose(horde.rho, want, atol=5e-6)

    horde = live(make(questions, mode), walk(60), each)
    np.testing.assert_allclose(horde.ratio_totals(), sums, rtol=1e-5, atol=1e-5)
    assert horde.ratio_totals()[checks.N_POSITIVE].tolist() == sums[0].tolist()


@MODES
@pytest.mark.parametrize("at", [0, 50])
def test_where_a_feature_is_on_too_often_the_horde_asks_in_floats(mode: str, at: int) -> None:
    """Twelve parameters of 5 at one feature: twice is past the +-63 of whole numbers, in which the sign would turn."""
    steep = [Gibbs(N_ACTIONS, N_FEATURES, np.full(12, 7), np.full(12, 5.0)) for _ in range(40)]
    questions, steps, found = ask(steep), walk(80), []
    steps[at] = steps[at]._replace(tiles=np.array([7, 7, 7, 1, 2, 3, 4, 5]))

    def each(horde: Horde, step: Step, before: NDArray[np.int64]) -> None:
        if before.tolist() == steps[at].tiles.tolist():
            want = gibbs_ratios(steep[:1], binary(before, N_FEATURES), step.action, step.b)[0]
            found.append((horde.rho[0], want))

    horde = live(make(questions, mode), steps, each)
    assert horde._table is None
    for got, want in found:
        assert got == pytest.approx(want, abs=1e-5)
    assert found
    with np.errstate(over="ignore"):  # a table that is asked from outside tries whole numbers first
        told = live(make(questions, rupee_beta0=0.01), steps)
    for got, want in zip(outcome(horde), outcome(told), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@MODES
def test_policies_that_come_and_go_are_asked_too(mode: str) -> None:
    """After some go and others come, the engine asks a new table; the stayers' last ratios are still told."""
    first, second, steps = ask(gibbs()), ask(gibbs(40, seed=1), "new "), walk(120)
    gone = [q.name for q in first[5:40:3]]
    hordes = []
    for horde in (make(first, mode), make(first, rupee_beta0=0.01)):
        live(horde, steps[:50])
        horde.remove(gone)
        horde.add(second)
        rho = horde.rho
        live(horde, steps[50:])
        hordes.append((horde, rho))
    (asked, rho), (told, rho_told) = hordes
    assert asked._table is not None
    np.testing.assert_allclose(rho, rho_told, rtol=1e-12)
    for got, want in zip(outcome(asked)[:4], outcome(told)[:4], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@MODES
def test_hands_that_come_one_after_the_other_do_as_hands_side_by_side(mode: str) -> None:
    """With one thread the second hand begins when the first has done all jobs; nobody waits for it, no bit differs."""
    questions, steps, found = ask(gibbs(300)), walk(130), []
    before = numba.get_num_threads()
    for n_threads in (1, before):
        numba.set_num_threads(n_threads)
        horde = make(questions, mode, dtype="float32")
        horde.begin(steps[0].observation, steps[0].tiles)
        for step in steps:
            if step.action >= 0:
                horde.learn(step.action, step.b, step.observation, step.tiles)
                engine: Any = horde._engine  # which takes so small a step with one hand
                engine._n_hands = 2 if numba.config.NUMBA_NUM_THREADS > 1 else 1  # type: ignore[attr-defined]
        found.append([*horde.weights(), horde.ratio_totals()])
        numba.set_num_threads(before)
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


class Jobs(NamedTuple):
    """Jobs, who did them, and what each hand saw when it had waited."""

    turns: NDArray[np.int64]
    done: NDArray[np.int64]
    seen: NDArray[np.int64]


@entry_kernel
def do_jobs(held: Jobs, hand: int, n_jobs: int, _: int, _n_hands: int) -> None:
    jobs = look_into(held)
    job = take_next(jobs.turns)
    while job < n_jobs:
        jobs.done[job] += 1 + 10 * hand
        finish(jobs.turns)
        job = take_next(jobs.turns)
    wait_for_all(jobs.turns, n_jobs)
    for job in range(n_jobs):
        jobs.seen[hand] += jobs.done[job] > 0


@pytest.mark.parametrize("n_hands", [1, 2, 4])
@pytest.mark.parametrize("n_jobs", [0, 1, 50])
def test_each_job_is_done_once_and_seen_by_all(n_hands: int, n_jobs: int) -> None:
    jobs = Jobs(np.zeros(N_TURNS, dtype=np.int64), np.zeros(50, dtype=np.int64), np.zeros(4, dtype=np.int64))
    held = hold(jobs)
    entry = entry_of(do_jobs, held, 0, 0, 0, 1)
    for _ in range(20):
        jobs.done[:], jobs.seen[:] = 0, 0
        jobs.turns[:] = 0
        share_out(entry, held, n_jobs, 0, n_hands)
        assert (jobs.done[:n_jobs] % 10 == 1).all()
        assert jobs.seen.tolist() == [n_jobs] * n_hands + [0] * (4 - n_hands)
