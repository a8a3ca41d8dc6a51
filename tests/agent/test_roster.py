"""Demons that come and go in mid-life: those that stay, and newcomers from then on, learn what the oracle says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel, Prediction
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.kernels.span.arrays import CHUNK
from horde_agent.learning import PlainEngine, SpanEngine
from horde_agent.learning.layout import NEWCOMER, DemonMapping
from horde_agent.life.observers import MspbeWatch
from horde_agent.life.student import Student
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, PolicyFunction, StickyRandom, Uniform
from tests.agent.doubles import ToyBody, toy_questions
from tests.agent.shared import binary
from tests.agent.test_span import N_FEATURES, compare, slow_stream
from tests.oracles.gtd import DenseGTD

ALPHA = 0.01


class Cast:
    """An engine and the oracle over one stream, whose demons are a changing choice of the stream's groups.

    Each demon asks about the stream's group `who[i]`; its cumulant and outcome are the group's own. The engine is told
    the rho of each policy, which are the stream's groups.
    """

    def __init__(self, config: LearnerConfig, seed: int, n_steps: int, rho: list[float], **options: Any) -> None:
        self.stream = slow_stream(seed, n_steps, list(range(8)), rho, [0, 0.5, 0.9], [0, 0.4, 0.9])
        self.who = np.array([0] * 20 + [1] * 9 + [2, 3, 3, 4])
        self.born = np.zeros(self.who.size, dtype=np.int64)
        self.t, self.n_comings = 0, 0
        group, self.leader = self._groups()
        kind = PlainEngine if config.engine == "plain" else SpanEngine
        self.engine = kind(group, N_FEATURES, ALPHA, ALPHA / 2, config, **options)
        self.config = config
        self.oracle = self._oracle(self.who.size)
        self.begin()

    def _oracle(self, n: int) -> DenseGTD:
        c = self.config
        return DenseGTD(n, N_FEATURES, ALPHA, ALPHA / 2, trace_rule=c.trace_rule, w_rule=c.w_rule, tau=c.mspbe_tau)

    def _groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the group of each demon, and what each group asks about."""
        _, firsts, group = np.unique(np.c_[self.born, self.who], axis=0, return_index=True, return_inverse=True)
        return group.ravel(), self.who[firsts]

    def begin(self) -> None:
        """Clear all traces."""
        s, t = self.stream, self.t
        self.engine.begin(s.tiles[t], s.gamma[t][self.leader], s.lam[t][self.leader])
        self.oracle.begin(binary(s.tiles[t], N_FEATURES), s.gamma[t][self.who], s.lam[t][self.who])

    def live(self, n_steps: int) -> None:
        """Learn from the next transitions."""
        s, who = self.stream, self.who
        policies = np.arange(self.leader.max() + 1)
        for _ in range(n_steps):
            told = s.signals(self.t)
            self.t += 1
            own = told._replace(
                rho_t=told.rho_t[policies],
                gamma_tp1=told.gamma_tp1[self.leader],
                lam_tp1=told.lam_tp1[self.leader],
                c_tp1=told.c_tp1[who],
                z_tp1=told.z_tp1[who],
            )
            self.engine.learn(s.tiles[self.t], own)
            self.oracle.learn(binary(s.tiles[self.t], N_FEATURES), *(values[who] for values in told[:5]))

    def change(self, old_index: list[int], comers: list[int]) -> None:
        """Keep some demons, in an order of their own, and let others come."""
        before, t, n = self.oracle, self.t, len(old_index)
        self.n_comings += 1
        self.who = np.r_[self.who[old_index], comers].astype(np.int64)
        self.born = np.r_[self.born[old_index], np.full(len(comers), self.n_comings)]
        group, self.leader = self._groups()
        self.oracle = self._oracle(self.who.size)
        for name in ("theta", "w", "e", "m", "s", "delta", "max_e"):
            getattr(self.oracle, name)[:n] = getattr(before, name)[old_index]
        self.oracle.phi = before.phi
        self.oracle.gamma_t = np.r_[before.gamma_t[old_index], self.stream.gamma[t][comers]]
        self.oracle.lam_t = np.r_[before.lam_t[old_index], self.stream.lam[t][comers]]
        mapping = DemonMapping(
            np.r_[old_index, np.full(len(comers), NEWCOMER)].astype(np.int64),
            group,
            self.leader,
            ALPHA,
            ALPHA / 2,
        )
        self.engine.rearrange(mapping)

    def check(self, when: str, tolerance: float = 1e-12) -> None:
        """Compare everything that is learned, estimated and predicted."""
        compare(self.engine, self.oracle, tolerance, when)  # type: ignore[arg-type]
        want = self.oracle.theta @ self.oracle.phi
        np.testing.assert_allclose(self.engine.latest, want, rtol=0, atol=1e-11 * (1 + np.abs(want).max()))


@pytest.mark.parametrize("trace_rule", ["plain", "clipped"])
def test_long_traces_go_along(trace_rule: Any) -> None:
    """On-policy traces that reach back to the first step and others, in one block; those of newcomers are empty."""
    config = LearnerConfig(trace_rule=trace_rule, dtype="float64", mspbe_tau=50.0)
    cast = Cast(config, 22, 500, [1.0], period=8, widest=16)
    assert isinstance(cast.engine, SpanEngine)
    cast.stream.gamma[:], cast.stream.lam[:] = [0.0, 0.5, 0.9, 0.95, 0.975, 0.99, 1.0, 0.7], 0.97
    cast.begin()
    cast.live(60)
    assert (60 - cast.engine._span.tail_from).max() > 50
    for k, old_index in enumerate(([*range(33)], [*range(0, 40, 2)], [3, 2, 16, 25, 26, 24], [0, 1, 5])):
        cast.change(list(old_index), [6, 5, 0, 1, 2, 6, 6])
        cast.check(f"at change {k}")
        cast.live(45)
        cast.check(f"after change {k}")


# ---- the Horde's own: names, policies, who is set aside -------------------------------------------------------------

N, N_ACTIVE, N_ACTIONS = 25, 4, 3
SETUPS = [("span", "eager"), ("span", "deferred"), ("plain", "eager")]
IN_ALL = pytest.mark.parametrize(("engine", "mode"), SETUPS)


def make(questions: list[GVF], engine: Any = "span", mode: Any = "eager") -> Horde:
    """Return a Horde whose estimates move within a few steps."""
    config = LearnerConfig(dtype="float64", secondary_ratio=0.1, mspbe_tau=30.0, engine=engine)
    return Horde(questions, n_features=N, n_active=N_ACTIVE, config=config, mode=mode)


class Stream:
    """A random life that several Hordes live alike."""

    def __init__(self, *hordes: Horde) -> None:
        self.rng, self.behaviour, self.hordes = np.random.default_rng(5), StickyRandom(N_ACTIONS), hordes
        self.now = self._state()
        for horde in hordes:
            horde.begin(*self.now)

    def _state(self) -> tuple[np.ndarray, np.ndarray]:
        return self.rng.random(3), self.rng.choice(N, N_ACTIVE, replace=False)

    def go_on(self, n_steps: int) -> None:
        """Let all learn."""
        for _ in range(n_steps):
            action, b = self.behaviour.draw(self.rng)
            self.now = self._state()
            for horde in self.hordes:
                horde.learn(action, b, *self.now)


def leaning(observation: np.ndarray, tiles: np.ndarray) -> np.ndarray:
    return np.array([observation[0], 1 - observation[0], 0.0])


def gamma_of(observation: np.ndarray, tiles: np.ndarray) -> float:
    return 0.9 if observation[1] > 0.3 else 0.2


def ask(name: str, kind: int) -> GVF:
    """Return one of six kinds of question."""
    gibbs = Gibbs.random(np.random.default_rng(kind), N_ACTIONS, N, 20)
    policy = [ConstantAction(1, N_ACTIONS), Behaviour(), Uniform(N_ACTIONS), PolicyFunction(leaning, N_ACTIONS)]
    return GVF(name, (policy * 2)[kind] if kind < 4 else gibbs, Channel(kind % 3), gamma_of if kind % 2 else 0.8)


def assert_same(one: Horde, other: Horde, mine: list[int]) -> None:
    """Assert that a Horde's demons are those of another, at places `mine`."""
    for look in (
        lambda h: h.weights()[0],
        lambda h: h.weights()[1],
        lambda h: h.predictions,
        lambda h: h.td_error,
        lambda h: h.mspbe_scalar,
        lambda h: h.mspbe_vector(),
        lambda h: h.rho,
    ):
        want = look(other)[mine]
        np.testing.assert_allclose(look(one), want, rtol=1e-10, atol=1e-13 * (1 + np.abs(want).max()))


@IN_ALL
def test_those_that_stay_go_on_as_if_nobody_had_come_or_gone(engine: Any, mode: Any) -> None:
    """Against a Horde that held all of them from the start, through a change of everything about the layout."""
    first = [ask(f"{kind}/{i}", kind) for i in range(4) for kind in range(6)]
    late = [ask(f"late {kind}", kind) for kind in (0, 1, 3, 5)]
    horde, whole = make(first, engine, mode), make([*first, *late], engine, mode)
    stream = Stream(horde, whole)
    stream.go_on(77)
    horde.remove([q.name for q in first[1::3]])
    horde.add(late)
    mine = [i for i in range(24) if i % 3 != 1]
    assert horde.names == [whole.names[i] for i in mine] + [q.name for q in late]
    assert horde.n_demons == len(horde.questions) == 20
    stream.go_on(90)
    horde.remove([q.name for q in late])
    assert_same(horde, whole, mine)
    stream.go_on(50)
    assert_same(horde, whole, mine)


@IN_ALL
def test_a_newcomer_learns_what_a_fresh_horde_would(engine: Any, mode: Any) -> None:
    """From the state held when it came, though others that ask the same are in the midst of their traces."""
    questions = [ask(f"{kind}/{i}", kind) for i in range(10) for kind in range(6)]
    horde, fresh = make(questions[:50], engine, mode), make(questions[50:], engine, mode)
    stream = Stream(horde)
    stream.go_on(33)
    horde.add(questions[50:])
    assert (horde.predictions[50:] == 0).all()
    fresh.begin(*stream.now)
    stream.hordes = (horde, fresh)
    stream.go_on(1)
    horde.catch_up()
    stream.go_on(80)
    horde.remove([q.name for q in questions[:50]])
    assert_same(horde, fresh, list(range(10)))


@IN_ALL
def test_a_demon_set_aside_stays_aside_and_a_name_asked_again_starts_afresh(engine: Any, mode: Any) -> None:
    calls: list[int] = []

    def breaks(observation: np.ndarray, tiles: np.ndarray) -> float:
        calls.append(0)
        return 1e300 if len(calls) == 20 else 1.0

    poor = GVF("poor thing", Uniform(N_ACTIONS), breaks, 0.8)
    horde = make([poor, *(ask(f"{i}", i) for i in range(6))], engine, mode)
    stream = Stream(horde)
    stream.go_on(30)
    assert horde.diverged == ["poor thing"]
    horde.remove(["0", "4"])
    stream.go_on(10)
    assert horde.diverged == ["poor thing"]
    assert not horde.weights()[0][0].any()
    assert horde.predictions[0] == 0
    n_updated = horde.n_updated
    horde.remove(["poor thing"])
    horde.add([poor])
    assert horde.diverged == []
    stream.go_on(10)
    assert horde.diverged == []
    assert horde.weights()[0][horde.names.index("poor thing")].any()
    assert horde.n_updated in (n_updated, n_updated + 1, n_updated + 2)


def test_demons_may_come_before_life_begins_and_after_a_stream_ended() -> None:
    horde, whole = make([ask("0", 0)]), make([ask("0", 0), ask("1", 1), ask("3", 3)])
    horde.add([ask("1", 1)])
    whole_life = Stream(horde, whole)
    whole_life.go_on(20)
    for each in (horde, whole):
        each.learn(1, 0.5, *whole_life.now, terminated=True)
    whole.reset_weights()
    horde.reset_weights()
    horde.add([ask("3", 3)])
    for each in (horde, whole):
        each.begin(*whole_life.now)
    whole_life.go_on(20)
    np.testing.assert_allclose(horde.weights()[0][:2], whole.weights()[0][:2], rtol=1e-11, atol=1e-14)
    assert horde.weights()[0][2].any()


def test_a_newcomer_whose_continuation_is_nonsense_learns_nothing_and_harms_nobody() -> None:
    horde, twin = make([ask("0", 0)]), make([ask("0", 0)])
    stream = Stream(horde, twin)
    stream.go_on(9)
    horde.add([GVF("nonsense", Uniform(N_ACTIONS), Channel(0), lambda *_: 7.0)])
    stream.go_on(9)
    assert horde.n_skipped.tolist() == [0, 9]
    assert "continuation was 7.0 at learning step 10" in horde.skipped_because["nonsense"]
    assert not horde.weights()[0][1].any()
    np.testing.assert_allclose(horde.weights()[0][0], twin.weights()[0][0], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h.add([ask("0", 1)]), "'0' is there twice"),
        (lambda h: h.add([GVF("new", Uniform(7), Channel(0), 0.5)]), "different numbers of actions"),
        (lambda h: h.add([GVF("new", Uniform(3), Prediction("nobody"), 0.5)]), "no demon 'nobody'"),
        (lambda h: h.remove(["nobody"]), "names of demons of this Horde; .*nobody"),
        (lambda h: h.remove("0"), "list of names"),
        (lambda h: h.remove(["0", "1", "about 0"]), "at least one"),
        (lambda h: h.remove(["0"]), "no demon '0'"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_and_changes_nothing(change: Any, words: str) -> None:
    questions = [ask("0", 0), ask("1", 1), GVF("about 0", Behaviour(), Prediction("0"), 0.5)]
    horde, twin = make(questions), make(questions)
    stream = Stream(horde, twin)
    stream.go_on(12)
    with pytest.raises(ValueError, match=words):
        change(horde)
    stream.go_on(12)
    assert horde.weights_sha256() == twin.weights_sha256()


def test_the_memory_of_those_that_go_is_freed() -> None:
    """160 demons in several blocks; the 16 that stay fill one, wherever they sat."""
    horde = make([ask(f"{i}", i % 6) for i in range(160)])
    Stream(horde).go_on(5)
    engine: Any = horde._engine
    horde.remove([f"{i}" for i in range(160) if i % 10])
    assert engine._span.theta.size == 16 * CHUNK
    assert engine.layout.n_blocks == 1


def test_who_keeps_numbers_by_demon_refuses_to_go_on() -> None:
    """A student's scores and a watch's counts are in the order of the demons that there were."""
    face = Interface.of(ToyBody())
    horde = Horde(toy_questions(), n_features=face.coder.n_features, n_active=face.coder.n_active)
    student, watch = Student(horde, face), MspbeWatch(horde)
    horde.remove([horde.names[0]])
    with pytest.raises(RuntimeError, match="make a new Student"):
        student.observe(np.zeros(3, np.float32), 0)
    with pytest.raises(RuntimeError, match="make a new MspbeWatch"):
        watch.update(student)
