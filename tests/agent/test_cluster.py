"""A Horde in shards learns the same as one Horde, to the bit. The shards are objects of this process."""

from __future__ import annotations

import pickle
import re
import shutil
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent.cluster import ClusterError, ShardedHorde, ShardLost, runtime, sharded
from horde_agent.cluster.runtime import Cluster, Unreachable
from horde_agent.cluster.shard import Shard
from horde_agent.cluster.sharded import check_snapshots
from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.horde import Horde, LearnerConfig, Mode
from horde_agent.learning import span_storage as layout
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, Greedy, PolicyFunction
from horde_agent.record import snapshots
from horde_agent.record.snapshots import SnapshotDamaged
from horde_agent.saving import State, untext
from tests.agent.commands import flip

N_FEATURES = 40
N_ACTIVE = 6
N_ACTIONS = 3
N_CHANNELS = 4
KIND = {"n_features": N_FEATURES, "n_active": N_ACTIVE}
MODES = pytest.mark.parametrize("mode", ["eager", "deferred"])
F64 = LearnerConfig.paper(dtype="float64")


def constant_questions(n: int = 96) -> list[GVF]:
    """Return questions about three constant actions, mixed: three flush groups that can be idle."""
    return [
        GVF(
            f"q{i}",
            ConstantAction(i % N_ACTIONS, N_ACTIONS),
            Channel(i % N_CHANNELS),
            (0.0, 0.5, 0.8)[i // 7 % 3],
        )
        for i in range(n * N_ACTIONS)
    ]


def gibbs_list(n: int) -> list[GVF]:
    """Return questions about different random policies: many share a flush group, and no group is idle."""
    rng = np.random.default_rng(3)
    return [
        GVF(
            f"g{i}",
            Gibbs.random(rng, N_ACTIONS, N_FEATURES, 9),
            Channel(i % N_CHANNELS),
            (0.0, 0.5, 0.8, 0.95)[i % 4],
        )
        for i in range(n)
    ]


def both() -> list[GVF]:
    """Return questions of both kinds, and some about the behaviour itself."""
    on_policy_questions = [
        GVF(f"b{i}", Behaviour(), Channel(i % N_CHANNELS), 0.9) for i in range(60)
    ]
    return [*constant_questions(50), *gibbs_list(2_100), *on_policy_questions]


def mixed() -> list[GVF]:
    """Return questions of three rules, two of the fast engine with three flush groups each, and one of the plain one.

    One of the fast rules, and the plain one, have cumulants that are predictions of the other fast
    rule.
    """
    rules = (None, "tdrc:beta=0.5")
    questions = [
        replace(q, algorithm=rules[i // N_ACTIONS % 2])
        for i, q in enumerate(constant_questions(100))
    ]
    questions[3] = replace(questions[3], cumulant=Prediction("q9"))
    plain = [
        GVF(f"p{i}", ConstantAction(i % 3, 3), Channel(i % 2), 0.8, algorithm="tidbd")
        for i in range(5)
    ]
    return [*questions, *plain, GVF("p5", Behaviour(), Prediction("q10"), 0.5, algorithm="tidbd")]


def control() -> list[GVF]:
    """Return questions that find policies, 60 and 1 about these, and others."""
    seekers = [
        GVF("seek", Greedy(N_ACTIONS), Channel(0), 0.9),
        GVF("shun", Greedy(3), Channel(1), 0.8, algorithm="qrc"),
    ]
    about = [
        GVF(f"seek{i}", Greedy(N_ACTIONS, "seek"), Channel(i % N_CHANNELS), 0.5) for i in range(60)
    ]
    predictions = constant_questions(50)
    return [
        *predictions[:70],
        seekers[0],
        *about,
        *predictions[70:],
        seekers[1],
        GVF("shun0", Greedy(3, "shun"), Channel(2), 0.8),
    ]


def wait_for_snapshots() -> None:
    """Wait for the threads in which shards write snapshots."""
    for thread in threading.enumerate():
        if thread.name == "snapshot":
            thread.join()


class Actor:
    """A process with a shard."""

    def __init__(self, number: int) -> None:
        self.shard = Shard(number)
        self.is_dead = False

    def die(self) -> None:
        """Lose everything in memory."""
        wait_for_snapshots()  # a thread cannot be killed as its process can
        self.is_dead = True


class LocalCluster:
    """Replaces `runtime.Cluster`: shards are objects of this process, replies arrive at once or late, actors die.

    Attributes:
        actors: Its processes.
        dies_at: By number of a call: the actor that dies there, and whether it dies after the call.
        pending: Calls without a reply; None if all are answered at once.
    """

    is_own = True
    n_cpus = 64
    memory = 1 << 40

    def __init__(self, address: str | None = None, n_cpus: int = 1) -> None:
        self.actors: list[Actor] = []
        self.ended: list[Actor] = []
        self.n_calls = 0
        self.is_closed = False
        self.dies_at: dict[int, tuple[int, bool]] = {}
        self.pending: list[tuple[Future[Any], Actor, str, tuple[Any, ...]]] | None = None

    def actor(self, number: int, n_threads: int, n_bytes: int) -> Actor:
        self.actors.append(Actor(number))
        return self.actors[-1]

    def call(self, actor: Actor, method: str, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.pending is not None:
            self.pending.append((future, actor, method, arguments))
            return future
        self.do(future, actor, method, arguments)
        return future

    def do(
        self, future: Future[Any], actor: Actor, method: str, arguments: tuple[Any, ...]
    ) -> None:
        """Answer a call."""
        self.n_calls += 1
        who, is_done = self.dies_at.pop(self.n_calls, (None, False))
        if who is not None and not is_done:
            self.actors[who].die()
        if actor.is_dead:
            future.set_exception(Unreachable("its process is gone"))
            return
        try:
            future.set_result(getattr(actor.shard, method)(*arguments))
        except BaseException as error:
            future.set_exception(error)
        if who is not None and is_done:
            self.actors[who].die()

    def has_arrived(self, reply: Future[Any]) -> bool:
        return reply.done()

    def result(self, reply: Future[Any], patience_s: float) -> Any:
        try:
            return reply.result(patience_s)
        except TimeoutError:
            raise Unreachable(f"it did not answer for {patience_s:g} s") from None

    def end(self, actor: Actor) -> None:
        actor.die()
        self.ended.append(actor)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """Replace the cluster of every `ShardedHorde`, and do not wait for the disk."""
    local_cluster = LocalCluster()
    monkeypatch.setattr(sharded, "Cluster", lambda address, n_cpus: local_cluster)
    monkeypatch.setattr("os.fsync", lambda _: None)
    return local_cluster


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks of at most 48 lanes, whose kernels compile in a third of the time; single precision has wide ones.

    Every test in double precision needs it: without, it alone compiles wide ones, 40 s for each
    rule.
    """
    monkeypatch.setattr(layout, "WIDEST", 48)


class Life:
    """A stream with begins, terminations and growing sensors."""

    def __init__(self, n_steps: int, seed: int = 0, n_features: int = N_FEATURES) -> None:
        rng = np.random.default_rng(seed)
        self.n_steps = n_steps
        self.tiles = np.array(
            [rng.choice(n_features, N_ACTIVE, replace=False) for _ in range(n_steps + 1)]
        )
        self.observation = (
            rng.uniform(size=(n_steps + 1, N_CHANNELS)) * np.linspace(1, 3, n_steps + 1)[:, None]
        )
        self.action = rng.integers(N_ACTIONS, size=n_steps)
        self.b = rng.choice([0.2, 0.5, 0.6], size=n_steps)
        self.begins = rng.random(n_steps) < 0.03
        self.ends = rng.random(n_steps) < 0.03

    def step(self, t: int) -> tuple[int, float, NDArray[Any], NDArray[np.int64]]:
        """Return the arguments of `learn` at step t."""
        return int(self.action[t]), float(self.b[t]), self.observation[t + 1], self.tiles[t + 1]

    def teach(self, horde: Any, first: int = 0, last: int | None = None) -> None:
        """Pass a Horde steps first..last - 1; step 0 begins the stream."""
        if first == 0:
            horde.begin(self.observation[0], self.tiles[0])
        for t in range(first, self.n_steps if last is None else last):
            horde.learn(*self.step(t), terminated=bool(self.ends[t]))
            if self.ends[t] or self.begins[t]:
                horde.begin(*self.step(t)[2:])


def assert_same(one: Horde, many: ShardedHorde, life: Life) -> None:
    assert many.weights_sha256() == one.weights_sha256()
    state = life.tiles[3], np.full(N_CHANNELS, 0.5)
    np.testing.assert_array_equal(many.predict(*state), one.predict(*state))
    np.testing.assert_array_equal(many.ratio_totals(), one.ratio_totals())
    if one.config.vector_mspbe:
        np.testing.assert_array_equal(many.mspbe_vector(), one.mspbe_vector())
    for name in (
        "predictions",
        "offsets",
        "td_error",
        "mspbe_scalar",
        "max_trace",
        "max_traces",
        "rho",
        "n_skipped",
    ):
        np.testing.assert_array_equal(getattr(many, name), getattr(one, name), err_msg=name)
    assert many.divergence_reason == one.divergence_reason
    assert many.skipped_because == one.skipped_because


@MODES
@pytest.mark.parametrize(
    ("make", "config", "shards"),
    [
        (constant_questions, LearnerConfig.paper(trace_rule="plain"), 3),
        (both, LearnerConfig.paper(w_rule="importance-weighted", vector_mspbe=False), 2),
        (both, LearnerConfig.paper(average=700.0), 2),  # averages by turns from step 128 on
        (mixed, F64, 3),
        (mixed, replace(F64, offset="mean", average=20.0), 3),
        (mixed, replace(F64, offset="reading", rarity=True), 2),
        (mixed, replace(F64, trace_rule="capped"), 2),
        (control, F64, 3),
        (control, F64, 1),
    ],
)
def test_shards_learn_the_same_as_one_horde_to_the_bit(
    request: pytest.FixtureRequest,
    cluster: LocalCluster,
    make: Callable[[], list[GVF]],
    config: LearnerConfig,
    shards: int,
    mode: Mode,
) -> None:
    """No sum crosses a lane, and shards are divided between the flush groups of each rule."""
    if config.dtype == "float64":
        request.getfixturevalue("narrow")
    questions = make()
    life = Life(140)
    life.observation[[20, 21, 60], 0] = np.nan  # missing readings
    one = Horde(questions, config=config, mode=mode, **KIND)
    life.teach(one)
    with ShardedHorde(questions, config=config, mode=mode, shards=shards, **KIND) as many:
        life.teach(many)
        assert len(many.shards) == shards
        assert_same(one, many, life)


def test_shards_learn_the_same_while_some_have_no_solution_yet(cluster: LocalCluster) -> None:
    """The policies are solved for at different times; all shards process deferred steps at the same ones."""
    questions = constant_questions()
    config = LearnerConfig(lstd=10)
    life = Life(2_600)
    rng = np.random.default_rng(1)
    life.action = rng.choice(N_ACTIONS, size=life.n_steps, p=[0.7, 0.25, 0.05])
    life.begins &= rng.random(life.n_steps) < 0.3
    life.ends &= rng.random(life.n_steps) < 0.3
    one = Horde(questions, config=config, mode="deferred", **KIND)
    life.teach(one)
    assert set((one.state()["lstd/solved_at"] > 0).tolist()) == {True, False}
    with ShardedHorde(questions, config=config, mode="deferred", shards=3, **KIND) as many:
        life.teach(many)
        assert_same(one, many, life)


def test_shards_have_lstd_if_all_their_questions_are_enough_for_it(cluster: LocalCluster) -> None:
    questions = [
        GVF(f"light {i} {k}", policy, Channel(0), (i % 10) / 20)
        for k, policy in enumerate([Behaviour(), ConstantAction(0, 3)])
        for i in range(150)
    ]
    with ShardedHorde(questions, shards=2, **KIND) as many:
        assert many.config.lstd == 192
        state = many.state()
    for number in range(2):
        assert f"shards/{number:04d}/horde/lstd/share" in state


@MODES
def test_shards_solve_for_the_same_as_one_horde(cluster: LocalCluster, mode: Mode) -> None:
    """Each sums all transitions; no solution depends on the policies and continuations of other shards."""
    questions = constant_questions()
    config = LearnerConfig(lstd=10)
    life = Life(4_700)
    life.observation[[20, 1_300, 1_301], 0] = np.nan
    one = Horde(questions, config=config, mode=mode, **KIND)
    life.teach(one)
    assert (one.state()["lstd/solved_at"] > 0).all()
    assert one.state()["lstd/share"].any()
    with ShardedHorde(questions, config=config, mode=mode, shards=3, **KIND) as many:
        life.teach(many)
        assert_same(one, many, life)


@MODES
def test_broken_cumulants_and_diverging_demons_do_not_change_others(
    cluster: LocalCluster, mode: Mode
) -> None:
    """A function that returns NaN, a varying continuation, and a step size at which weights diverge."""
    questions = constant_questions()
    for i in (5, 100, 200):
        questions[i] = replace(
            questions[i], cumulant=lambda o, _: float("nan") if o[0] > 0.9 else float(o[0])
        )
    questions[7] = replace(questions[7], cumulant=Feature(3))
    questions[11] = replace(
        questions[11], continuation=lambda observation, tiles: 0.5 + 0.4 * (observation[1] > 1)
    )
    config = LearnerConfig.paper(step_size=25.0, trace_rule="plain")
    life = Life(400)
    one = Horde(questions, config=config, mode=mode, **KIND)
    life.teach(one)
    assert len(one.diverged) > 3
    assert len(one.skipped_because) > 1
    with ShardedHorde(questions, config=config, mode=mode, shards=3, **KIND) as many:
        life.teach(many)
        assert sorted(many.diverged) == sorted(one.diverged)
        assert_same(one, many, life)


@MODES
@pytest.mark.usefixtures("narrow")
def test_a_found_policy_and_the_questions_about_it_are_in_one_shard(
    cluster: LocalCluster, mode: Mode
) -> None:
    """Also those that are added; its values are those of the steps so far, before any other shard has caught up."""
    questions = control()
    life = Life(200)
    one = Horde(questions, config=F64, mode=mode, **KIND)
    with ShardedHorde(questions, config=F64, mode=mode, shards="auto", **KIND) as many:
        assert len(many.shards) == 5
        for t in range(150):
            for horde in (one, many):
                life.teach(horde, t, t + 1)
            values = many.action_values("seek", life.tiles[t])
            np.testing.assert_array_equal(values, one.action_values("seek", life.tiles[t]))
        policy = next(q for q in many.questions if q.name == "seek7").target_policy
        assert policy.probabilities(life.observation[149], life.tiles[149])[values.argmax()] > 0
        many.add([GVF("new", Greedy(N_ACTIONS, "shun"), Channel(0), 0.5)])
        for names in (["seek", "seek0", "seek59"], ["shun", "shun0", "new"]):
            homes = [set(names) <= set(actor.shard.horde.names) for actor in cluster.actors]
            assert homes.count(True) == 1
        assert many.weights(np.array([many.names.index("shun")]))[0].shape == (
            1,
            N_ACTIONS * N_FEATURES,
        )
        new = [GVF("wider", Greedy(3, "shun"), Prediction("q0"), 0.5)]
        for call, match in (
            (lambda: many.weights(), "weights for each action"),
            (
                lambda: many.reset_weights(np.zeros((many.n_demons, N_FEATURES))),
                "weights for each action",
            ),
            (lambda: many.remove(["shun"]), "no question finds the policy 'shun'"),
            (lambda: many.action_values("dock", life.tiles[0]), "no demon 'dock'"),
            (lambda: many.action_values("q1", life.tiles[0]), "no question finds the policy 'q1'"),
            (lambda: many.add(new), "policies of demons in 2 shards"),
        ):
            with pytest.raises(ValueError, match=match):
                call()


def test_requested_predictions_are_those_of_one_horde(cluster: LocalCluster) -> None:
    questions = constant_questions()
    life = Life(60)
    names = ["q7", "q100", "q5"]
    one = Horde(questions, **KIND)
    places = [one.names.index(name) for name in names]
    with ShardedHorde(questions, shards=3, **KIND) as many:
        state = life.observation[0], life.tiles[0]
        np.testing.assert_array_equal(many.begin(*state, ask=names), one.begin(*state)[places])
        for t in range(50):
            np.testing.assert_array_equal(
                many.learn(*life.step(t), ask=names), one.learn(*life.step(t))[places]
            )
        assert many.learn(*life.step(50)).size == 0


def test_shards_learn_from_one_stream(cluster: LocalCluster) -> None:
    """The first one may be selected, as in one Horde; any other is refused, and nothing changes."""
    life = Life(60)
    one = Horde(constant_questions(), **KIND)
    with ShardedHorde(constant_questions(), shards=3, **KIND) as many:
        life.teach(one, 0, 30)
        life.teach(many, 0, 30)
        many.select_stream(0)
        with pytest.raises(ValueError, match="shards learn from one robot"):
            many.select_stream(1)
        life.teach(one, 30)
        life.teach(many, 30)
        assert_same(one, many, life)


def test_updates_are_counted_over_all_shards(cluster: LocalCluster) -> None:
    """`n_updated` of the last step, and `n_updates` of all steps, as of one Horde; reading them changes nothing."""
    questions = constant_questions()
    life = Life(200)
    one = Horde(questions, **KIND)
    n = 0
    one.begin(life.observation[0], life.tiles[0])
    with ShardedHorde(questions, mode="deferred", shards=3, **KIND) as many:
        many.begin(life.observation[0], life.tiles[0])
        for t in range(150):
            one.learn(*life.step(t))
            many.learn(*life.step(t))
            n += one.n_updated
            assert many.n_updates <= n
            if t % 50 == 7:
                assert many.n_updated == one.n_updated
        many.catch_up()
        assert [one.n_updates, many.n_updates, many.n_updates] == [n, n, n]
        many.remove([question.name for question in questions[::N_ACTIONS]])
        assert len(many.shards) == 2
        assert many.n_updates == n


# ---- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "has_folder"), [("eager", True), ("deferred", False)])
def test_after_a_shard_dies_the_stream_continues_from_the_latest_state_to_the_same_bits(
    cluster: LocalCluster, tmp_path: Path, mode: Mode, has_folder: bool
) -> None:
    """Shards die at random calls, before or after the call: restore, and send the stream since then again."""
    questions = constant_questions()
    life = Life(900)
    rng = np.random.default_rng(5)
    one = Horde(questions, mode=mode, **KIND)
    life.teach(one)
    at = 0
    states = {}
    n_lost = 0
    folder = tmp_path if has_folder else None
    while at < life.n_steps:
        with ShardedHorde(questions, mode=mode, shards=3, folder=folder, **KIND) as many:
            if n_lost < 6:
                if mode == "eager":
                    calls = (20, 400)
                else:
                    calls = (10, 30)
                cluster.dies_at = {
                    cluster.n_calls + int(rng.integers(*calls)): (-1 - n_lost % 3, bool(n_lost % 2))
                }
            try:
                if at:
                    many.restore(states[at])
                while at < life.n_steps:
                    life.teach(many, at, at + 50)
                    state = many.state()
                    entry = many.at
                    many.wait_for_snapshot(entry)
                    at += 50
                    states[at] = state
                assert_same(one, many, life)
            except ShardLost:
                n_lost += 1
                at = max(states, default=0)
    assert n_lost == 6


def test_a_lost_shard_is_named_in_the_error_of_every_method(cluster: LocalCluster) -> None:
    life = Life(60)
    with ShardedHorde(constant_questions(), shards=3, **KIND) as many:
        life.teach(many, 0, 30)
        cluster.actors[1].die()
        with pytest.raises(ShardLost, match="shard 1 with 96 demons") as lost:
            life.teach(many, 30, 40)
        assert (lost.value.number, lost.value.n_demons) == (1, 96)
        assert [status.state for status in many.shards] == ["learning", "lost", "learning"]
        for ask in (many.catch_up, many.state, many.weights_sha256, lambda: many.predictions):
            with pytest.raises(ShardLost, match="shard 1"):
                ask()
        error_copy = pickle.loads(pickle.dumps(lost.value))
        assert (str(error_copy), error_copy.number) == (str(lost.value), 1)


def test_a_shard_that_does_not_answer_is_lost_after_patience_s(cluster: LocalCluster) -> None:
    life = Life(300)
    with ShardedHorde(constant_questions(), shards=2, patience_s=0.1, **KIND) as many:
        many.begin(life.observation[0], life.tiles[0])
        cluster.pending = []
        with pytest.raises(ShardLost, match=r"did not answer for 0\.1 s"):
            life.teach(many, 1)


@pytest.mark.parametrize(("mode", "most"), [("eager", 64 + 1 + 63), ("deferred", 4 * 64 + 63)])
def test_learning_waits_for_a_shard_that_is_far_behind(
    cluster: LocalCluster, mode: Mode, most: int
) -> None:
    """No message is answered: 2 or 4 of them are in flight, and entries are collected until another is full."""
    life = Life(300)
    with ShardedHorde(constant_questions(), mode=mode, shards=3, patience_s=0.05, **KIND) as many:
        many.begin(life.observation[0], life.tiles[0])
        many.catch_up()
        cluster.pending = []
        steps = [life.step(t) for t in range(300)]
        with pytest.raises(ShardLost, match="did not answer"):
            all(many.learn(*step).size == 0 for step in [*steps, *steps])
        assert len(cluster.pending) == 3 * (2 if mode == "eager" else 4)
        assert max(shard.lag for shard in many.shards) <= most + 1


@pytest.mark.usefixtures("narrow")
def test_a_function_that_raises_in_a_shard_raises_here(cluster: LocalCluster) -> None:
    def fails(observation: NDArray[Any], tiles: NDArray[np.int64]) -> float:
        raise ZeroDivisionError("no such sensor")

    questions = constant_questions()
    life = Life(20)
    questions[1] = replace(questions[1], cumulant=fails)
    with ShardedHorde(questions, shards=3, config=F64, **KIND) as many:
        many.begin(life.observation[0], life.tiles[0])
        many.learn(0, 0.5, life.observation[1], life.tiles[1])
        with pytest.raises(ZeroDivisionError, match="no such sensor"):
            many.catch_up()


# ---- snapshots -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("narrow")
@MODES
@pytest.mark.parametrize(
    ("make", "has_folder"), [(constant_questions, False), (mixed, True), (control, True)]
)
def test_a_restored_horde_continues_to_the_same_bits(
    cluster: LocalCluster,
    tmp_path: Path,
    mode: Mode,
    make: Callable[[], list[GVF]],
    has_folder: bool,
) -> None:
    """After 333 steps, in another driver; demons were added and removed before; `n_updates` continues."""
    questions = make()
    life = Life(450)
    newcomers = [GVF(f"new{i}", ConstantAction(i % 3, 3), Channel(1), 0.7) for i in range(5)]
    state = None
    ends = []
    for _ in range(2):
        folder = tmp_path if has_folder else None
        with ShardedHorde(
            questions, config=F64, mode=mode, shards=3, folder=folder, **KIND
        ) as horde:
            if state is None:
                life.teach(horde, 0, 200)
            horde.add(newcomers)
            horde.remove(["q8", "new2"])
            if state is None:
                life.teach(horde, 200, 333)
                state = horde.state()
            else:
                horde.restore(state)
            life.teach(horde, 333)
            ends.append((horde.weights_sha256(), horde.ratio_totals().tobytes(), horde.n_updates))
    assert ends[0] == ends[1]
    assert state is not None
    if has_folder:
        assert sum(array.nbytes for array in state.values()) < 2_000


def test_a_state_of_other_shards_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    with ShardedHorde(constant_questions(), shards=3, folder=tmp_path, **KIND) as many:
        state = many.state()
    with (
        ShardedHorde(constant_questions(), shards=2, folder=tmp_path, **KIND) as many,
        pytest.raises(ClusterError, match="make it with shards=3"),
    ):
        many.restore(state)


def in_two(folder: Path) -> ShardedHorde:
    return ShardedHorde(constant_questions(), shards=2, folder=folder, **KIND)


def saved(horde: ShardedHorde) -> State:
    """Return the state after its snapshots are written."""
    state = horde.state()
    horde.wait_for_snapshot(horde.at)
    return state


def entries(folder: Path, number: int) -> list[int]:
    """Return the entries at which a shard has snapshots."""
    return sorted(int(path.name) for path in folder.glob(f"life-*/shard-{number:04d}/[0-9]*"))


def test_all_shards_write_a_snapshot_of_the_same_entry_and_old_ones_are_dropped(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    life = Life(300)
    at = []
    with in_two(tmp_path) as many:
        for first in (0, 100, 200):
            life.teach(many, first, first + 100)
            saved(many)
            at.append(many.at)
        assert entries(tmp_path, 0) == entries(tmp_path, 1) == at
        many.drop_snapshots(before=at[1])
        assert entries(tmp_path, 0) == entries(tmp_path, 1) == at[1:]


def test_a_return_to_a_state_removes_the_snapshots_of_later_entries(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    life = Life(300)
    with in_two(tmp_path) as many:
        life.teach(many, 0, 100)
        state = saved(many)
        at = many.at
        life.teach(many, 100, 200)
        saved(many)
    with in_two(tmp_path) as again:
        again.restore(state)
        assert entries(tmp_path, 0) == entries(tmp_path, 1) == [at]


def test_snapshots_of_another_life_are_removed_when_the_first_own_one_is_written(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    for _ in range(2):
        with in_two(tmp_path) as many:
            Life(50).teach(many)
            saved(many)
    assert len(list(tmp_path.glob("life-*"))) == 1


def test_a_missing_or_damaged_snapshot_is_found_before_anything_starts(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """A damaged array is found when it is read."""
    with in_two(tmp_path) as many:
        Life(50).teach(many)
        state = saved(many)
    flip(next(tmp_path.glob("life-*/shard-0001/*/small.bin")), 100)
    with in_two(tmp_path) as again, pytest.raises(ClusterError, match=r"shard 1 .*horde doctor"):
        again.restore(state)
    facts = untext(state["facts/sharded"])
    where = tmp_path, facts["life"], facts["at"], facts["n_shards"]
    check_snapshots(*where)
    manifest = next(tmp_path.glob("life-*/shard-0000/*/manifest.json"))
    text = manifest.read_text()
    manifest.write_text(text.replace("0", "1"))
    with pytest.raises(SnapshotDamaged, match=r"manifest\.json"):
        check_snapshots(*where)
    manifest.write_text(text)
    shutil.rmtree(next(tmp_path.glob("life-*/shard-0001/[0-9]*")))
    with pytest.raises(SnapshotDamaged, match="missing"):
        check_snapshots(*where)


def test_a_snapshot_that_cannot_be_written_is_an_error_of_the_snapshot_alone(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    life = Life(200)
    with in_two(tmp_path) as many:
        life.teach(many, 0, 100)
        with monkeypatch.context() as patch:
            patch.setattr(snapshots, "write_file", full)
            many.state()
            with pytest.raises(OSError, match="No space left"):
                many.wait_for_snapshot(many.at)
            wait_for_snapshots()
        life.teach(many, 100)
        saved(many)
        assert entries(tmp_path, 0) == entries(tmp_path, 1) == [many.at]


def test_waiting_for_a_snapshot_ends_when_the_shard_is_lost(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with in_two(tmp_path) as many:
        Life(50).teach(many)
        many.state()
        cluster.actors[0].die()
        with pytest.raises(ShardLost, match="shard 0"):
            many.wait_for_snapshot(many.at)


# ---- adding and removing demons -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("narrow")
@MODES
@pytest.mark.parametrize(("algorithm", "added"), [("gtd", None), ("tidbd", "tdrc")])
def test_added_and_removed_demons_change_the_rounding_of_others_only(
    cluster: LocalCluster, mode: Mode, algorithm: str, added: str | None
) -> None:
    """A rule may lose all its demons and return, and waiting processes its queued steps."""
    questions = constant_questions()
    life = Life(400)
    config = replace(F64, algorithm=algorithm)
    newcomers = [
        GVF(f"n{i}", ConstantAction(i, 3), Channel(i), 0.8, algorithm=added) for i in range(3)
    ]
    one = Horde(questions, config=config, mode=mode, **KIND)
    with ShardedHorde(questions, config=config, mode=mode, shards=2, **KIND) as many:
        for horde in (one, many):
            life.teach(horde, 0, 100)
            horde.add(newcomers[:1])
            life.teach(horde, 100, 150)
            horde.remove(["n0", "q3", "q9"])
            horde.add(newcomers)
            life.teach(horde, 150)
        many.catch_up()
        assert [actor.shard.horde.n_waiting for actor in cluster.actors] == [0, 0]
        assert list(many.names) == [q.name for q in many.questions] == list(one.names)
        np.testing.assert_allclose(many.weights(), one.weights(), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(many.predictions, one.predictions, rtol=1e-12, atol=1e-12)
        assert many.ratio_totals().shape == (3, one.n_demons)


def test_an_invalid_addition_or_removal_is_refused_and_changes_nothing(
    cluster: LocalCluster,
) -> None:
    questions = constant_questions()
    life = Life(100)
    questions[3] = replace(questions[3], cumulant=Prediction("q0"))
    one = Horde(questions, **KIND)
    life.teach(one)
    wrong = GVF(
        "wrong", PolicyFunction(lambda observation, tiles: [2.0, 0.0, 0.0], 3), Channel(0), 0.5
    )
    with ShardedHorde(questions, shards=2, **KIND) as many:
        life.teach(many, 0, 50)
        many.begin(life.observation[50], life.tiles[50])
        for call, match in (
            (lambda: many.add([questions[5]]), "'q5' is there twice"),
            (lambda: many.add([wrong]), "'wrong': its target policy gave"),
            (lambda: many.remove(["q0"]), "'q3': there is no demon 'q0'"),
            (lambda: many.remove(["unknown"]), "no demon 'unknown'"),
            (lambda: many.remove([q.name for q in questions]), "at least one question"),
        ):
            with pytest.raises(ValueError, match=match):
                call()
        assert many.n_demons == len(questions)
        assert len(many.predictions) == len(questions)


# ---- bad input ------------------------------------------------------------------------------------------------------


def test_bad_input_is_refused_in_one_sentence_and_no_process_is_left(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = constant_questions()
    unsendable = replace(questions[1], cumulant=_Unsendable())
    for given, where, match in (
        (questions, {"shards": 9}, "take at most 3"),
        (questions, {"shards": 0}, "at least 1"),
        ([*questions, questions[4]], {}, "'q4' is there twice"),
        ([], {}, "at least one question"),
        ([replace(questions[0], cumulant=Prediction("unknown"))], {}, "no demon 'unknown'"),
        ([questions[0], unsendable], {"shards": 1}, "'q1' holds a function that cannot be sent"),
        ([GVF("f", Behaviour(), Feature(99), 0.5)], {"shards": 1}, "no feature 99"),
    ):
        with pytest.raises(ValueError, match=match) as raised:
            ShardedHorde(given, **KIND, **where)
        assert "\n" not in str(raised.value)
    n_actors = len(cluster.actors)
    for given, match in (
        ([replace(questions[0], algorithm="sarsa")], "question 'q0': algorithm .*'sarsa'"),
        (
            [GVF("about", Greedy(3, "lamp"), Channel(0), 0.5)],
            "question 'about': no question finds the policy 'lamp'",
        ),
    ):
        with pytest.raises(ValueError, match=match):
            ShardedHorde(given, **KIND)
    assert len(cluster.actors) == n_actors
    with pytest.raises(ClusterError, match="real-valued features"):
        ShardedHorde(questions, shards=2, real_valued=True, **KIND)
    monkeypatch.setattr(LocalCluster, "memory", 1_000_000)
    with pytest.raises(
        ClusterError,
        match=r"288 demons in 3 shards .*1\.\d GB.*\d,\d+ bytes",
    ):
        ShardedHorde(questions, shards=3, **KIND)
    assert cluster.is_closed
    assert len(cluster.ended) == len(cluster.actors)


def test_the_memory_that_shards_need_counts_the_weights_of_lstd(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A demon has one of each random feature, of up to 256 readings, and a constant one."""
    monkeypatch.setattr(LocalCluster, "memory", 1_000_000)
    questions = constant_questions()
    bytes_of_a_demon = []
    for lstd in (0, 1_024):
        with pytest.raises(ClusterError) as refusal:
            ShardedHorde(questions, config=LearnerConfig(lstd=lstd), shards=1, **KIND)
        (number,) = re.findall(r"([\d,]+) bytes each", str(refusal.value))
        bytes_of_a_demon.append(int(number.replace(",", "")))
    without, with_lstd = bytes_of_a_demon
    assert with_lstd - without == 4 * (1_024 + 256 + 1)


class _Unsendable:
    def __call__(self, observation: NDArray[Any], tiles: NDArray[np.int64]) -> float:
        return 0.0

    def __reduce__(self) -> Any:
        raise TypeError("it holds an open port")


def test_another_version_in_a_shard_is_refused(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horde_agent.cluster.shards.versions", lambda: {"numba": "0.1"})
    with pytest.raises(ClusterError, match=r"has numba 0\.\d+\.\d+ instead of 0\.1"):
        ShardedHorde(constant_questions(), shards=2, **KIND)
    assert len(cluster.ended) == 2


def test_wrong_states_are_refused_before_anything_is_sent(cluster: LocalCluster) -> None:
    life = Life(5)
    with ShardedHorde(constant_questions(), shards=2, **KIND) as many:
        with pytest.raises(RuntimeError, match="begin"):
            many.learn(0, 0.5, life.observation[0], life.tiles[0])
        many.begin(life.observation[0], life.tiles[0])
        for step, match in (
            ((7, 0.5, life.observation[1], life.tiles[1]), "action"),
            ((0, 0.0, life.observation[1], life.tiles[1]), "probability"),
            ((0, 0.5, life.observation[1] + np.inf, life.tiles[1]), "finite"),
            ((0, 0.5, np.zeros(9), life.tiles[1]), "4 channels as before"),
            ((0, 0.5, life.observation[1], life.tiles[1] + 100), "tiles must lie"),
        ):
            with pytest.raises(ValueError, match=match):
                many.learn(*step)
        assert [shard.lag for shard in many.shards] == [0, 0]


# ---- Ray ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "ray://127.0.0.1:10001"])
def test_an_address_without_a_cluster_is_refused_in_one_sentence(address: str) -> None:
    with pytest.raises(
        ClusterError, match=f"no Ray cluster could be joined at '{address}'"
    ) as raised:
        Cluster(address, 1)
    assert "\n" not in str(raised.value)


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install -e '\.\[ray\]'"):
        ShardedHorde(constant_questions(), shards=2, **KIND)


def test_rays_files_are_in_a_folder_that_only_this_user_can_enter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray opens its own temporary folder to all users, who could then replace its sockets."""
    modes = []

    def init(*, _temp_dir: str, **_: Any) -> None:
        folder = Path(_temp_dir)
        folder.mkdir()
        folder.chmod(0o777)
        modes.append(folder.parent.stat().st_mode & 0o777)

    ray = SimpleNamespace(
        init=init,
        is_initialized=lambda: False,
        cluster_resources=lambda: {"CPU": 1.0, "memory": 1e9},
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray._private.worker", SimpleNamespace())
    cluster = runtime.Cluster(None, 1)
    cluster.close()
    assert modes == [0o700]
