"""Methods and invalid arguments of the Horde, demons added and removed, real-valued features, and restored states."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.kernels.span.arrays import CHUNK
from horde_agent.policies import ConstantAction, Gibbs, PolicyFunction, Uniform
from tests.agent.hordes import (
    BEHAVIOUR,
    BOTH,
    IN_ALL,
    N_ACTIONS,
    N_ACTIVE,
    N,
    RandomLife,
    after,
    ask,
    assert_same_weights,
    breaking,
    engine_of,
    make,
    siblings,
)
from tests.oracles.gtd import DenseGTD

SEEN = np.zeros(4)
T = np.arange(N_ACTIVE)


def test_a_termination_ends_the_return_and_the_stream() -> None:
    """One state; the stream ends after each step of reward 1: V = 1, not 1 / (1 - .8) = 5."""
    horde = Horde([ask("a", BEHAVIOUR)], n_features=1, n_active=1, config=LearnerConfig.paper())
    o = np.ones(3)
    tiles = np.zeros(1, dtype=np.int64)
    for _ in range(300):
        horde.begin(o, tiles)
        horde.learn(0, 1.0, o, tiles, terminated=True)
    assert horde.predict(tiles)[0] == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(RuntimeError, match="begin"):
        horde.learn(0, 1.0, o, tiles)


def test_the_selected_stream_is_restored_even_if_none_has_begun() -> None:
    """Stream 0 has ended and stream 2 not begun: a Horde that forgot the selection would go on in stream 0."""
    horde = make([ask("a")])
    horde.begin(SEEN, T)
    horde.learn(0, 1.0, SEEN, T, terminated=True)
    horde.select_stream(2)
    twin = make([ask("a")])
    twin.restore(horde.state())
    assert twin.stream == 2
    with pytest.raises(RuntimeError, match="begin"):
        twin.learn(0, 1.0, SEEN, T)


def test_the_hash_is_that_of_theta_then_w() -> None:
    horde = after(60, make([ask("a", ConstantAction(0, N_ACTIONS)), ask("b")], dtype="float32"))
    theta, w = horde.weights()
    assert theta.dtype == np.float32
    assert horde.weights_sha256() == hashlib.sha256(theta.tobytes() + w.tobytes()).hexdigest()


READ: dict[str, Any] = {
    "predictions": lambda h: h.predictions,
    "predict": lambda h: h.predict(T),
    "weights": lambda h: h.weights()[0],
    "mspbe_scalar": lambda h: h.mspbe_scalar,
    "mspbe_vector": lambda h: h.mspbe_vector(),
    "td_error": lambda h: h.td_error,
    "max_trace": lambda h: h.max_trace,
}


def test_everything_read_from_a_deferred_horde_is_up_to_date() -> None:
    """Without a method that catches up having been called before."""
    eager, deferred = (
        after(37, make([ask("on", BEHAVIOUR), ask("uniform")], mode=m))
        for m in ("eager", "deferred")
    )
    for name, read in READ.items():
        np.testing.assert_allclose(
            read(copy.deepcopy(deferred)), read(eager), rtol=1e-10, err_msg=name
        )


@pytest.mark.kernels
@BOTH
def test_a_pickled_horde_learns_as_the_horde_does(engine: Any) -> None:
    """Addresses are not pickled: they would be invalid in another process. test_seams.py has copies."""
    rng = np.random.default_rng(0)
    gibbs = [ask(f"gibbs {i}", Gibbs.random(rng, N_ACTIONS, N, 20)) for i in range(20)]
    horde = make([*siblings(), *gibbs], engine)
    life = RandomLife(horde)
    life.run(5)
    twin = pickle.loads(pickle.dumps(horde))
    life.hordes = (horde, twin)
    life.run(5)
    assert_same_weights(horde, twin)
    assert horde.predictions.all()


# ---- arguments that are refused -------------------------------------------------------------------------------------


@IN_ALL
def test_learn_refuses_by_name_and_learns_nothing(engine: Any, mode: Any) -> None:
    """1 / b must be finite, in float32 too."""
    horde, twin = (make(siblings(2), engine, mode) for _ in range(2))
    life = RandomLife(horde, twin)
    life.run(20)
    for arguments, words in (
        ((0, 0.5, SEEN[:0], T), "observation"),
        ((0, 0.5, SEEN[None], T), "observation"),
        ((0, 0.5, np.array([0, np.inf, 0, 0]), T), "observation .*channel 1 is inf"),
        ((0, 0.5, SEEN, T[:3]), "tiles .*shape"),
        ((0, 0.5, SEEN, T.astype(float)), "tiles"),
        ((0, 0.5, SEEN, T + N), "tiles .*0..24; number 0 is 25"),
        ((0, 0.5, SEEN, T - 1), "tiles .*number 0 is -1"),
        ((3, 0.5, SEEN, T), "action must be a whole number in 0..2, not 3"),
        ((-1, 0.5, SEEN, T), "action must be"),
        ((1.5, 0.5, SEEN, T), "action must be .* not 1.5"),
        ((True, 0.5, SEEN, T), "action must be"),
        (("1", 0.5, SEEN, T), "action must be .* not '1'"),
        ((np.array([0, 1]), 0.5, SEEN, T), r"action must be .* not array\(\[0, 1\]\)"),
        ((float("nan"), 0.5, SEEN, T), "action must be .* not nan"),
        *(
            ((0, b, SEEN, T), r"probability must be in \(0, 1\]")
            for b in (0.0, -0.1, 1.1, np.inf, 1e-31, 5e-324)
        ),
        *(((0, b, SEEN, T), "probability must be") for b in (np.nan, "0.5", np.array([0.5, 0.5]))),
    ):
        with pytest.raises(ValueError, match=words):
            horde.learn(*arguments)  # type: ignore[arg-type]
    life.run(5)
    assert_same_weights(horde, twin)


@pytest.mark.parametrize("cumulant", [Channel(0), lambda *_: 1.0], ids=["channels", "functions"])
def test_a_repeated_tile_is_refused_everywhere(cumulant: Any) -> None:
    """With functions a state is checked in Python before they are called; otherwise in a kernel."""
    horde = make([ask("a", cumulant=cumulant)])
    twice = np.array([1, 8, 8, 3])
    horde.begin(SEEN, T)
    horde.learn(1, 0.5, SEEN + 1, T)
    sha256 = horde.weights_sha256()
    for refused in (
        lambda: horde.begin(SEEN, twice),
        lambda: horde.learn(1, 0.5, SEEN, twice),
        lambda: horde.predict(twice),
    ):
        with pytest.raises(ValueError, match=r"tiles .*different.* 8 "):
            refused()
    assert horde.weights_sha256() == sha256
    horde.learn(1, 0.5, SEEN + 1, T)
    assert horde.weights_sha256() != sha256


@pytest.mark.parametrize(
    ("questions", "words"),
    [
        ([], "at least one"),
        ([ask("a"), ask("a")], "'a'"),
        ([ask("a"), ask("b", Uniform(4))], "actions"),
        ([ask("a", cumulant=Feature(99))], "feature 99 of 25"),
        ([ask("a", cumulant=Prediction("b"))], "no demon 'b'"),
        ([ask("a", Gibbs(3, 7, np.array([0]), np.ones(1)))], "n_features"),
    ],
)
def test_questions_that_make_no_horde_are_refused(questions: list[GVF], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(questions)


# ---- demons that are added and removed -------------------------------------------------------------------------------


@IN_ALL
def test_updates_are_counted_while_demons_skip_diverge_come_and_go(engine: Any, mode: Any) -> None:
    """`n_updates` is the sum of `n_updated` over the steps, and steps with rho > 0 in which a demon is idle are not in.

    Of "skips" three steps are left out, of "bad" all from the one on in which it is found: with them
    the sum would be larger. A copy by state and restore continues the count.
    """
    bad = ask("bad", cumulant=breaking((20,), 1e300, 1.0))
    skips = ask("skips", cumulant=breaking((8, 9, 41), np.nan, 1.0))
    left = ask("left", ConstantAction(0, N_ACTIONS))
    questions = [bad, skips, left, *siblings(3)]
    horde = make(questions, engine, mode)
    life = RandomLife(horde)
    n_updates = 0
    for t in range(60):
        if t == 30:
            horde.remove(["left", "sibling 1"])
            horde.add([ask("new")])
        life.run(1)
        n_updates += horde.n_updated
        assert horde.n_updates == n_updates, t
    assert horde.diverged == ["bad"]
    assert horde.n_skipped[horde.names.index("skips")] == 3
    copy = make(questions, engine, mode)
    copy.remove(["left", "sibling 1"])
    copy.add([ask("new")])
    assert copy.n_updates == 0
    copy.restore(horde.state())
    assert copy.n_updates == n_updates


@IN_ALL
def test_a_diverged_demon_stays_diverged_until_its_name_is_added_again(
    engine: Any, mode: Any
) -> None:
    """A second reason does not replace the first."""
    bad = ask("bad", cumulant=breaking((20, 35), 1e300, 1.0))
    horde = make([bad, *siblings(6)], engine, mode)
    life = RandomLife(horde)
    life.run(30)
    assert horde.diverged == ["bad"]
    first = horde.divergence_reason["bad"]
    horde.remove(["sibling 0", "sibling 4"])
    horde.add([ask("new")])
    life.run(10)
    assert horde.diverged == ["bad"]
    assert horde.divergence_reason["bad"] == first
    assert horde.n_updated == horde.n_demons - 1
    for answer in (*horde.weights(), horde.predictions, horde.td_error, horde.mspbe_scalar):
        assert not answer[0].any()
        assert answer[1:].any()
    horde.remove(["bad"])
    horde.add([bad])
    assert horde.diverged == []
    life.run(10)
    assert horde.diverged == []
    assert horde.weights()[0][horde.names.index("bad")].any()
    assert horde.n_updated == horde.n_demons == 7


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h.add([ask("0")]), "'0'"),
        (lambda h: h.add([ask("new", Uniform(7))]), "actions"),
        (lambda h: h.add([ask("new", cumulant=Prediction("missing"))]), "'missing'"),
        (
            lambda h: h.add([ask("new", PolicyFunction(lambda *_: [0.5] * 3, 3))]),
            r"'new': its target policy .* 1\.5",
        ),
        (lambda h: h.remove(["missing"]), "names .*missing"),
        (lambda h: h.remove("0"), "names must be a list"),
        (lambda h: h.remove(["0", "1", "about 0"]), "at least one"),
        (lambda h: h.remove(["0"]), "no demon '0'"),
        (lambda h: h.reset_weights(np.zeros((1, 1))), "theta"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_and_changes_nothing(change: Any, words: str) -> None:
    questions = [ask("0"), ask("1"), GVF("about 0", BEHAVIOUR, Prediction("0"), 0.5)]
    horde = make(questions)
    twin = make(questions)
    life = RandomLife(horde, twin)
    life.run(12)
    with pytest.raises(ValueError, match=words):
        change(horde)
    life.run(12)
    assert horde.weights_sha256() == twin.weights_sha256()


def test_the_memory_of_removed_demons_is_freed() -> None:
    """160 demons in several blocks; the 16 that stay fill one, whichever lanes they had."""
    horde = after(
        5,
        make([ask(f"{i}", ConstantAction(i % 3, N_ACTIONS)) for i in range(160)], dtype="float32"),
    )
    engine: Any = engine_of(horde)
    horde.remove([f"{i}" for i in range(160) if i % 10])
    assert engine.arrays.theta.size == 16 * CHUNK
    assert engine.layout.n_blocks == 1


# ---- real-valued features --------------------------------------------------------------------------------------------

N_REAL = 7
GAMMA = 0.8
LAM = 0.6


def real_valued(n: int = 2, **rules: Any) -> Horde:
    questions = [
        GVF("channel", ConstantAction(0, 2), Channel(0), GAMMA, lam=LAM),
        GVF("feature", ConstantAction(1, 2), Feature(3), GAMMA, lam=LAM),
    ]
    config = LearnerConfig.paper(**{"dtype": "float64", **rules})
    return Horde(questions[:n], n_features=N_REAL, n_active=4, config=config, real_valued=True)


@pytest.mark.parametrize(
    ("trace_rule", "w_rule"), [("clipped", "importance-weighted"), ("capped", "every-step")]
)
def test_learning_from_real_valued_features_equals_the_oracle(trace_rule: Any, w_rule: Any) -> None:
    horde = real_valued(trace_rule=trace_rule, w_rule=w_rule, secondary_ratio=0.5)
    oracle = DenseGTD(2, N_REAL, 0.1 / 4, 0.05 / 4, trace_rule=trace_rule, w_rule=w_rule)
    rng = np.random.default_rng(0)
    phi = rng.normal(size=N_REAL)
    gamma = np.full(2, GAMMA)
    lam = np.full(2, LAM)
    horde.begin(np.zeros(1), phi)
    oracle.begin(phi, gamma, lam)
    for _ in range(100):
        action = int(rng.random() < 0.3)
        observation = rng.random(1)
        phi = rng.normal(size=N_REAL)
        b = 0.3 if action else 0.7
        rho = np.array([(action == 0) / b, (action == 1) / b])
        predictions = horde.learn(action, b, observation, phi)
        expected = oracle.learn(
            phi, rho, gamma, lam, np.array([observation[0], phi[3]]), np.zeros(2)
        )
        np.testing.assert_allclose(predictions, expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(horde.weights()[1], oracle.w, rtol=1e-10, atol=1e-14)
    assert np.abs(oracle.w).max() > 1e-4
    np.testing.assert_allclose(horde.predict(phi), horde.predictions)


@pytest.mark.parametrize(
    ("phi", "words"),
    [
        (np.array([1, 2]), "phi .*shape"),
        (np.zeros(N_REAL - 1), "phi .*shape"),
        (np.array([0.0, 0.0, np.nan, 0.0, 0.0, 0.0, 0.0]), "phi .*finite; feature 2"),
    ],
)
def test_an_invalid_phi_is_refused_and_changes_nothing(phi: Any, words: str) -> None:
    horde = real_valued(1)
    horde.begin(np.zeros(1), np.ones(N_REAL))
    horde.learn(0, 0.5, np.ones(1), np.ones(N_REAL))
    sha256 = horde.weights_sha256()
    with pytest.raises(ValueError, match=words):
        horde.learn(0, 0.5, np.ones(1), phi)
    with pytest.raises(ValueError, match=words):
        horde.predict(phi)
    assert horde.weights_sha256() == sha256
    horde.learn(0, 0.5, np.ones(1), np.ones(N_REAL))


def test_streams_and_added_demons_take_real_valued_features() -> None:
    horde = real_valued()
    stream_copy = horde.copy_for_stream()
    for one in (horde, stream_copy):
        one.begin(np.zeros(1), np.ones(N_REAL))
        one.learn(0, 0.5, np.ones(1), np.full(N_REAL, 0.5))
    horde.merge([stream_copy])
    horde.add([GVF("late", ConstantAction(0, 2), Feature(0), 0.5)])
    horde.learn(0, 0.5, np.ones(1), np.full(N_REAL, 0.25))
    assert horde.weights()[0].any(axis=1).tolist() == [True, False, True]


@pytest.mark.parametrize("engine", ["span", "auto"])
def test_streams_are_merged_only_where_traces_are_stored(engine: str) -> None:
    """The fast engine stores no trace per stream; two rules have two engines, of which one is the fast one."""
    algorithms = [None, None]
    if engine == "auto":
        algorithms = ["htd", "gtd"]
    questions = [ask("a", algorithm=algorithms[0]), ask("b", algorithm=algorithms[1])]
    horde = after(60, make(questions, engine))
    other_horde = make(questions, engine)
    sha256 = horde.weights_sha256()
    with pytest.raises(ValueError, match='engine="plain"'):
        horde.copy_for_stream()
    with pytest.raises(ValueError, match='engine="plain"'):
        horde.merge([other_horde])
    with pytest.raises(ValueError, match="step size per weight"):
        horde.step_sizes()
    assert horde.weights_sha256() == sha256


def test_a_merge_of_two_engines_is_refused_before_a_demon_changes() -> None:
    """The other Horde's demon has diverged; the refused merge does not make it diverge here."""
    diverging = ask("a", cumulant=breaking((20,), 1e300))
    horde = after(60, make([ask("a")], "span"))
    other_horde = after(60, make([diverging], "plain", dtype="float32"))
    assert other_horde.diverged == ["a"]
    with pytest.raises(ValueError, match='engine="plain"'):
        horde.merge([other_horde])
    assert horde.diverged == []


def test_step_sizes_are_read_through_the_horde() -> None:
    """Each is step_size / n_active at the start."""
    horde = make([ask("a")], "plain", algorithm="tidbd", step_size=0.02)
    assert horde.step_sizes() == pytest.approx(np.full((1, N), 0.02 / N_ACTIVE))


# ---- restored states ------------------------------------------------------------------------------------------------


def family() -> list[GVF]:
    policies = [
        *(ConstantAction(a, N_ACTIONS) for a in range(N_ACTIONS)),
        Uniform(N_ACTIONS),
        BEHAVIOUR,
    ]
    return [
        ask(f"{i}/{c}/{g}", p, Channel(c), g)
        for i, p in enumerate(policies)
        for c in range(4)
        for g in (0.0, 0.8, 0.97)
    ]


def answers(horde: Horde) -> list[Any]:
    arrays = [
        *horde.weights(),
        horde.predictions,
        horde.mspbe_scalar,
        horde.mspbe_vector(),
        horde.max_traces,
        horde.rho,
    ]
    arrays += [horde.ratio_totals(), horde.n_skipped]
    return [array.tobytes() for array in arrays] + [
        horde.divergence_reason,
        horde.skipped_because,
        horde.n_updated,
    ]


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_rows_used_after_the_snapshot_are_cleared_by_restore(mode: Any) -> None:
    """A state contains only the rows in use, 512 of 1,300; the restored Horde had used all of them."""
    n_features = 1_300
    rng = np.random.default_rng(5)
    widest = np.minimum(100 + 4 * np.arange(400), n_features).tolist()
    steps = [
        (int(rng.integers(3)), 0.6, rng.random(4), rng.choice(n, N_ACTIVE, replace=False))
        for n in widest
    ]

    def live(horde: Horde, steps: list[Any]) -> None:
        for step in steps:
            horde.learn(*step)

    whole, twin = (
        make(family(), mode=mode, n_features=n_features, dtype="float32") for _ in range(2)
    )
    whole.begin(*steps[0][2:])
    live(whole, steps[1:70])
    state = whole.state()
    assert state["engine/span/theta"].size * 2 < twin.weights()[0].size, (
        "of all features it holds less than half"
    )
    live(whole, steps[70:])
    twin.begin(*steps[-1][2:])
    live(twin, steps[::-1])
    twin.restore(state)
    live(twin, steps[70:])
    assert answers(twin) == answers(whole)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one core only")
def test_weights_do_not_depend_on_the_number_of_threads_after_a_restore(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No sum crosses a lane; what the threads have of their own is no part of the state of 4,000 demons."""
    rng = np.random.default_rng(3)
    policies = [Gibbs.random(rng, N_ACTIONS, N, 9) for _ in range(500)]
    many = [
        ask(f"{i} {c} {g}", p, Channel(c), g)
        for i, p in enumerate(policies)
        for c in range(4)
        for g in (0, 0.9)
    ]
    whole, twin = (make(many, mode="deferred", dtype="float32") for _ in range(2))
    # Starts as many threads as there may be, before their number is changed
    numba.get_num_threads()
    with monkeypatch.context() as patch:
        patch.setattr(numba.config, "NUMBA_NUM_THREADS", 1)
        one_thread = make(many, mode="deferred", dtype="float32")
    life = RandomLife(whole, one_thread)
    life.run(170)
    twin.restore(one_thread.state())
    life.hordes = (whole, twin)
    life.run(130)
    assert answers(twin) == answers(whole)


def test_a_demon_flagged_while_others_were_added_diverges_after_a_restore() -> None:
    """Deferred steps are flushed when demons are added; only then the weight exceeds its bound."""

    def wild(n_steps: int) -> Horde:
        horde = make(
            [ask("wild", BEHAVIOUR, continuation=0.9)],
            dtype="float32",
            step_size=12.0,
            trace_rule="plain",
        )
        RandomLife(horde).run(n_steps)
        horde.add([ask("new", ConstantAction(0, N_ACTIONS), Channel(2), 0.5)])
        return horde

    whole = next(horde for horde in map(wild, range(1, 60)) if engine_of(horde).flags)
    twin = wild(0)
    twin.restore(whole.state())
    assert twin.n_diverged == 0
    assert twin.diverged == whole.diverged == ["wild"]
    assert twin.divergence_reason == whole.divergence_reason


# ---- several update rules in one Horde ------------------------------------------------------------------------------

RULES: list[str | None] = [
    None,
    "tdrc",
    "tidbd",
    "tdrc",
    None,
    "tidbd:meta=0.02",
    "tdrc:beta=0.5",
    "tidbd",
]


def various(algorithms: list[str | None]) -> list[GVF]:
    """Return questions that differ in policy, cumulant, time scale and lambda; most outcomes change with the state."""
    policies = [ConstantAction(0, N_ACTIONS), BEHAVIOUR, ConstantAction(2, N_ACTIONS)]

    def outcome(channel: int) -> Any:
        return lambda observation, _: 3.0 * float(observation[channel]) - 1.0

    return [
        ask(
            f"{i}",
            policies[i % 3],
            Channel(i % 2),
            continuation=(0.5, 0.8)[i % 2],
            lam=(0.9, 0.4)[i % 2],
            algorithm=algorithm,
            outcome=1.5 if i == 3 else outcome(i % 3),
        )
        for i, algorithm in enumerate(algorithms)
    ]


QUERIES: dict[str, Callable[[Horde, Any], NDArray[Any]]] = {
    "predictions": lambda horde, _: horde.predictions,
    "predict": lambda horde, tiles: horde.predict(tiles),
    "td_error": lambda horde, _: horde.td_error,
    "rho": lambda horde, _: horde.rho,
    "ratio_totals": lambda horde, _: horde.ratio_totals().T,
    "mspbe_scalar": lambda horde, _: horde.mspbe_scalar,
    "mspbe_vector": lambda horde, _: horde.mspbe_vector(),
    "max_traces": lambda horde, _: horde.max_traces,
    "n_skipped": lambda horde, _: horde.n_skipped,
    "theta": lambda horde, _: horde.weights()[0],
    "w": lambda horde, _: horde.weights()[1],
}


@pytest.mark.parametrize("mode", ["eager", "deferred"])
@pytest.mark.parametrize("engine", ["auto", "plain"])
def test_every_query_of_a_mixed_horde_has_the_answers_of_hordes_of_one_question_each(
    engine: Any, mode: Any
) -> None:
    """Demon by demon, with outcomes that change in each step, gaps and ends; and for demons in any order."""
    questions = various(RULES)
    mixed = make(questions, engine, mode)
    alone = [make([question], engine, mode) for question in questions]
    life = RandomLife(mixed, *alone, p_break=0.1)
    for _ in range(3):
        life.run(30)
        tiles = np.arange(N_ACTIVE) + 3
        for name, query in QUERIES.items():
            expected = np.array([query(horde, tiles)[0] for horde in alone])
            np.testing.assert_allclose(
                query(mixed, tiles), expected, rtol=0, atol=1e-11, err_msg=name
            )
        assert mixed.n_updated == sum(horde.n_updated for horde in alone)
        assert mixed.max_trace == pytest.approx(max(horde.max_trace for horde in alone))
    theta, w = mixed.weights()
    assert np.abs(theta).max(axis=1).min() > 0.0
    for chosen in ([6, 0, 3, 1], [7, 6, 5, 4, 3, 2, 1, 0], [4, 4, 1], [2], []):
        demons = np.array(chosen, dtype=np.int64)
        np.testing.assert_array_equal(mixed.weights(demons), (theta[demons], w[demons]))


def test_the_rupee_of_a_mixed_horde_has_the_step_sizes_of_each_rule() -> None:
    """Alpha is .3 for the Horde's own rule, and .1, the default, for TDRC; alpha_h is 5 alpha."""
    questions = various([None, "tdrc"])
    together = make(questions, step_size=0.3)
    alone = [
        make(questions[:1], step_size=0.3),
        make([replace(questions[1], algorithm=None)], algorithm="tdrc", secondary_ratio=1.0),
    ]
    hordes_of_all = [together, *alone]
    rupees = [horde.new_rupee(beta0=0.02) for horde in hordes_of_all]
    life = RandomLife(*hordes_of_all)
    for rupee in rupees:
        rupee.begin(life.state[1])
    for _ in range(60):
        life.run(1)
        for horde, rupee in zip(hordes_of_all, rupees, strict=True):
            rupee.learn(life.state[1], horde.signals, horde.td_error)
    expected = [rupee.value()[0] for rupee in rupees[1:]]
    np.testing.assert_allclose(rupees[0].value(), expected, rtol=1e-9)
    assert min(expected) > 0.0


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_the_order_of_the_questions_of_a_mixed_horde_changes_nothing(mode: Any) -> None:
    questions = various(RULES)
    order = np.array([5, 2, 7, 0, 3, 6, 1, 4])
    usual = make(questions, "auto", mode)
    permuted = make([questions[i] for i in order], "auto", mode)
    RandomLife(usual, permuted, p_break=0.1).run(70)
    tiles = np.arange(N_ACTIVE) + 3
    for name, query in QUERIES.items():
        np.testing.assert_allclose(
            query(permuted, tiles), query(usual, tiles)[order], rtol=0, atol=1e-12, err_msg=name
        )
