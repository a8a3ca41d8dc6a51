"""A Horde in shards: the same bits as one Horde, whatever dies; shards are objects of this process, but in one test."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent.cluster import ClusterError, Family, ShardedHorde, gibbs_family
from horde_agent.cluster.families import Questions
from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.horde import Horde, LearnerConfig, Mode
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, PolicyFunction
from tests.agent.cluster_double import LocalCluster, cluster

__all__ = ["cluster"]

N_FEATURES, N_ACTIVE, N_ACTIONS, N_CHANNELS = 40, 6, 3, 4
KIND = {"n_features": N_FEATURES, "n_active": N_ACTIVE}


def constant_questions(n: int = 96) -> list[GVF]:
    """Return questions about three constant actions, in an order that mixes them: three groups that may rest."""
    return [
        GVF(f"q{i}", ConstantAction(i % N_ACTIONS, N_ACTIONS), Channel(i % N_CHANNELS), (0.0, 0.5, 0.8)[i // 7 % 3])
        for i in range(n * N_ACTIONS)
    ]


def gibbs_list(n: int) -> list[GVF]:
    """Return questions about random policies, each its own: many share a flush group, none of which rests."""
    rng = np.random.default_rng(3)
    return [
        GVF(f"g{i}", Gibbs.random(rng, N_ACTIONS, N_FEATURES, 9), Channel(i % N_CHANNELS), (0.0, 0.5, 0.8, 0.95)[i % 4])
        for i in range(n)
    ]


def both(n: int = 2_100) -> list[GVF]:
    """Return questions of both kinds by turns, and some about the behaviour itself."""
    own = [GVF(f"b{i}", Behaviour(), Channel(i % N_CHANNELS), 0.9) for i in range(60)]
    return [*constant_questions(50), *gibbs_list(n), *own]


class Life:
    """A stream with begins, terminations and sensors that grow; told to any Horde."""

    def __init__(self, n_steps: int, seed: int = 0, n_features: int = N_FEATURES) -> None:
        rng = np.random.default_rng(seed)
        self.n_steps = n_steps
        self.tiles = np.array([rng.choice(n_features, N_ACTIVE, replace=False) for _ in range(n_steps + 1)])
        self.observation = rng.uniform(size=(n_steps + 1, N_CHANNELS)) * np.linspace(1, 3, n_steps + 1)[:, None]
        self.action = rng.integers(N_ACTIONS, size=n_steps)
        self.b = rng.choice([0.2, 0.5, 0.6], size=n_steps)
        self.begins = rng.random(n_steps) < 0.03
        self.ends = rng.random(n_steps) < 0.03

    def tell(self, horde: Any, first: int = 0, last: int | None = None) -> None:
        """Tell a Horde the steps first..last - 1; the life begins with the first of all."""
        if first == 0:
            horde.begin(self.observation[0], self.tiles[0])
        for t in range(first, self.n_steps if last is None else last):
            state, ends = (self.observation[t + 1], self.tiles[t + 1]), bool(self.ends[t])
            horde.learn(int(self.action[t]), float(self.b[t]), *state, terminated=ends)
            if ends or self.begins[t]:
                horde.begin(*state)


def assert_same(one: Horde, many: ShardedHorde, life: Life) -> None:
    """Assert that two Hordes know the same, to the bit."""
    assert many.weights_sha256() == one.weights_sha256()
    tiles = life.tiles[3]
    pairs = {
        "predictions": (one.predictions, many.predictions),
        "predict": (one.predict(tiles), many.predict(tiles)),
        "td_error": (one.td_error, many.td_error),
        "mspbe_scalar": (one.mspbe_scalar, many.mspbe_scalar),
        "max_traces": (one.max_traces, many.max_traces),
        "ratio_totals": (one.ratio_totals(), many.ratio_totals()),
        "rho": (one.rho, many.rho),
        "n_skipped": (one.n_skipped, many.n_skipped),
    }
    if one.config.vector_mspbe:
        pairs["mspbe_vector"] = (one.mspbe_vector(), many.mspbe_vector())
    for name, (expected, found) in pairs.items():
        np.testing.assert_array_equal(found, expected, err_msg=name)
    assert many.max_trace == one.max_trace
    assert many.divergence_reason == one.divergence_reason
    assert many.skipped_because == one.skipped_because
    assert many.unanswered == {}


@pytest.mark.parametrize("mode", ["eager", "deferred"])
@pytest.mark.parametrize(
    ("make", "config"),
    [
        (constant_questions, LearnerConfig()),
        (constant_questions, LearnerConfig(w_rule="importance-weighted", dtype="float64")),
        (both, LearnerConfig(dtype="float64", vector_mspbe=False)),
        (both, LearnerConfig(w_rule="importance-weighted")),
        (constant_questions, LearnerConfig(trace_rule="plain", dtype="float64")),
        (constant_questions, LearnerConfig(trace_rule="capped")),
    ],
)
def test_shards_know_the_same_as_one_horde_to_the_bit(
    cluster: LocalCluster, make: Callable[[], list[GVF]], config: LearnerConfig, mode: Mode
) -> None:
    """No sum crosses a lane: cut between flush groups, each told its turn, they give the numbers of the whole."""
    questions, life = make(), Life(230)
    one = Horde(questions, config=config, mode=mode, **KIND)
    life.tell(one)
    for shards in (1, 2, 3):
        with ShardedHorde(questions, config=config, mode=mode, shards=shards, **KIND) as many:
            life.tell(many)
            assert len(many.shards) == shards
            assert_same(one, many, life)


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_four_shards_cut_through_policies_that_share_a_group(cluster: LocalCluster, mode: Mode) -> None:
    """4,200 Gibbs policies in blocks of 128 lanes, eight a flush group: five flush groups and two that rest."""
    questions, life = [*gibbs_list(4_200), *constant_questions(20)], Life(140)
    one = Horde(questions, mode=mode, **KIND)
    life.tell(one)
    with ShardedHorde(questions, mode=mode, shards=4, **KIND) as many:
        life.tell(many)
        assert_same(one, many, life)


def sometimes_nan(observation: NDArray[Any], tiles: NDArray[np.int64]) -> float:
    return float("nan") if observation[0] > 0.9 else float(observation[0])


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_broken_cumulants_and_demons_that_diverge_change_nobody_elses_bits(cluster: LocalCluster, mode: Mode) -> None:
    """A function that gives NaN; a policy that is none after a while; a step size at which weights explode."""
    questions = constant_questions()
    for i in (5, 100, 200):
        questions[i] = replace(questions[i], cumulant=sometimes_nan)
    questions[7] = replace(questions[7], cumulant=Feature(3))
    questions[11] = replace(questions[11], continuation=lambda observation, tiles: 0.5 + 0.4 * (observation[1] > 1))
    config, life = LearnerConfig(step_size=25.0, trace_rule="plain"), Life(400)
    one = Horde(questions, config=config, mode=mode, **KIND)
    life.tell(one)
    assert len(one.diverged) > 3
    assert len(one.skipped_because) > 1
    with ShardedHorde(questions, config=config, mode=mode, shards=3, **KIND) as many:
        life.tell(many)
        assert sorted(many.diverged) == sorted(one.diverged)
        assert_same(one, many, life)


def test_predictions_of_other_demons_stay_in_one_shard(cluster: LocalCluster) -> None:
    """Demon q3 is about what q2, of another policy, predicts: the shards are cut elsewhere."""
    questions, life = constant_questions(), Life(150)
    questions[3] = replace(questions[3], cumulant=Prediction("q2"))
    for mode in ("eager", "deferred"):
        one = Horde(questions, mode=mode, **KIND)
        life.tell(one)
        with ShardedHorde(questions, mode=mode, shards="auto", **KIND) as many:
            life.tell(many)
            assert_same(one, many, life)
            places = [link.demons for link in many._shards.links]
            assert [bool(np.isin([2, 3], there).all()) for there in places].count(True) == 1


def test_what_is_asked_on_each_step_is_what_one_horde_predicts(cluster: LocalCluster) -> None:
    questions, life, names = constant_questions(), Life(60), ["q7", "q100", "q5"]
    one = Horde(questions, **KIND)
    places = [one.names.index(name) for name in names]
    with ShardedHorde(questions, shards=3, **KIND) as many:
        state = life.observation[0], life.tiles[0]
        np.testing.assert_array_equal(many.begin(*state, ask=names), one.begin(*state)[places])
        for t in range(50):
            step = int(life.action[t]), float(life.b[t]), life.observation[t + 1], life.tiles[t + 1]
            np.testing.assert_array_equal(many.learn(*step, ask=names), one.learn(*step)[places])
        assert many.learn(*step).size == 0


def test_updates_are_counted_over_all_shards(cluster: LocalCluster) -> None:
    """Of the last step, where that is asked, and of all steps, as far as shards have told; asking changes nothing."""
    questions, life = constant_questions(), Life(200)
    one, n = Horde(questions, **KIND), 0
    one.begin(life.observation[0], life.tiles[0])
    with ShardedHorde(questions, mode="deferred", shards=3, **KIND) as many:
        many.begin(life.observation[0], life.tiles[0])
        for t in range(150):
            step = int(life.action[t]), float(life.b[t]), life.observation[t + 1], life.tiles[t + 1]
            one.learn(*step)
            many.learn(*step)
            n += one.n_updated
            assert many.n_updates <= n
            if t % 50 == 7:
                assert many.n_updated == one.n_updated
        many.wait()
        assert [many.n_updates, many.n_updates] == [n, n]
        many.remove([question.name for question in questions[::N_ACTIONS]])
        assert len(many.shards) == 2
        assert many.n_updates == n


# ---- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["eager", "deferred"])
@pytest.mark.parametrize("has_folder", [True, False])
def test_processes_that_die_change_no_bit(
    cluster: LocalCluster, tmp_path: Path, mode: Mode, has_folder: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve deaths at random calls, before and after the call was done, some of them away for a while."""
    questions, life, rng = constant_questions(), Life(900), np.random.default_rng(5)
    monkeypatch.setattr("horde_agent.cluster.link._RETRY_S", 0.0)
    one = Horde(questions, mode=mode, **KIND)
    life.tell(one)
    where: dict[str, Any] = {"folder": tmp_path, "snapshot_every": 100} if has_folder else {}
    with ShardedHorde(questions, mode=mode, shards=3, **KIND, **where) as many:
        last = 2_000 if mode == "eager" else 50
        for at in np.unique(rng.integers(5, last, 12)).tolist():
            cluster.dies_at[at] = int(rng.integers(3)), int(rng.integers(4)), bool(rng.integers(2))
        life.tell(many)
        assert_same(one, many, life)
        assert sum(status.n_restarts for status in many.shards) >= 5


def test_demons_of_a_shard_that_is_away_answer_nan_with_the_reason(cluster: LocalCluster) -> None:
    questions, life = constant_questions(), Life(60)
    with ShardedHorde(questions, shards=3, **KIND) as many:
        many.begin(life.observation[0], life.tiles[0])
        cluster.actors[1].die(restarts_in=10_000)
        steps = [(int(life.action[t]), float(life.b[t]), life.observation[t + 1], life.tiles[t + 1]) for t in range(40)]
        for step in steps[:30]:
            answer = many.learn(*step, ask=["q0", "q1", "q2"])
            assert np.isnan(answer).tolist() == [False, True, False]
        assert "shard 1 is recovering" in many.unanswered["q1"]
        assert np.isnan(many.predictions).sum() == 96
        assert len(many.unanswered) == 96
        assert [status.state for status in many.shards] == ["learning", "recovering", "learning"]
        assert many.lags.tolist() == [0, 30, 0]
        cluster.actors[1].restarts_in = 0
        many.wait()
        assert np.isfinite(many.predictions).all()
        assert many.unanswered == {}


def test_where_all_shards_are_away_the_largest_trace_is_not_known(cluster: LocalCluster) -> None:
    life = Life(60)
    with ShardedHorde(constant_questions(), shards=3, **KIND) as many, warnings.catch_warnings():
        warnings.simplefilter("error")
        life.tell(many, 0, 30)
        for actor in cluster.actors:
            actor.die(restarts_in=10_000)
        life.tell(many, 30, 31)
        assert math.isnan(many.max_trace)
        for actor in cluster.actors[:2]:
            actor.restarts_in = 0
        while sum(status.state == "learning" for status in many.shards) < 2:
            pass
        assert many.max_trace > 0.0


def test_a_shard_that_does_not_come_back_is_named_once_and_left(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    questions, life = constant_questions(), Life(120)
    one = Horde(questions, **KIND)
    life.tell(one)
    with ShardedHorde(questions, shards=3, patience_s=0.0, **KIND) as many:
        many.begin(life.observation[0], life.tiles[0])
        cluster.actors[1].die(restarts_in=10_000)
        for t in range(life.n_steps):
            state, ends = (life.observation[t + 1], life.tiles[t + 1]), bool(life.ends[t])
            many.learn(int(life.action[t]), float(life.b[t]), *state, terminated=ends)
            if ends or life.begins[t]:
                many.begin(*state)
        many.wait()
        assert [status.state for status in many.shards] == ["learning", "lost", "learning"]
        assert [r.message for r in caplog.records if "lost" in r.message] == [
            "shard 1 is lost, with 96 demons: it did not come back within 0 s: its process is gone; the others go on"
        ]
        is_lost = np.isnan(many.predictions)
        assert is_lost.sum() == 96
        np.testing.assert_array_equal(many.predictions[~is_lost], one.predictions[~is_lost])
        assert len(many.diverged) == 96


def test_a_snapshot_that_cannot_be_written_is_said_once_and_stops_nobody(
    cluster: LocalCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder is a file: all is told again to a shard that dies."""
    questions, life = constant_questions(), Life(250)
    (tmp_path / "file").write_text("")
    one = Horde(questions, **KIND)
    life.tell(one)
    with ShardedHorde(questions, shards=2, folder=tmp_path / "file", snapshot_every=50, **KIND) as many:
        life.tell(many, 0, 200)
        for actor in cluster.actors:
            actor.shard.finish_writing()
        life.tell(many, 200)
        cluster.actors[0].die()
        many.wait()
        assert_same(one, many, life)
        said = [record.message for record in caplog.records if "could not be written" in record.message]
        assert [message[:7] for message in sorted(said)] == ["shard 0", "shard 1"]


def test_a_damaged_snapshot_is_passed_over(cluster: LocalCluster, tmp_path: Path) -> None:
    """The newest of shard 1 has lost a byte: it comes back from the one before, and is told the more."""
    questions, life = constant_questions(), Life(400)
    one = Horde(questions, **KIND)
    life.tell(one)
    with ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=100, **KIND) as many:
        life.tell(many)
        cluster.actors[1].die()
        newest = max(tmp_path.glob("life-*/shard-0001/[0-9]*"))
        part = max(newest.glob("*.npy"), key=lambda path: path.stat().st_size)
        part.write_bytes(part.read_bytes()[:-1])
        many.wait()
        assert_same(one, many, life)
        assert many.shards[1].n_restarts == 1


def test_deferred_learning_waits_for_nobody(cluster: LocalCluster) -> None:
    """No call is ever answered, and 3,000 steps are told all the same; each shard is said to be so far behind."""
    questions, life = constant_questions(), Life(300)
    with ShardedHorde(questions, mode="deferred", shards=3, **KIND) as many:
        many.begin(life.observation[0], life.tiles[0])
        cluster.waits = []
        life.ends[:] = life.begins[:] = False
        for _ in range(10):
            life.tell(many, 1)
        assert many.lags.tolist() == [2_990] * 3
        assert len(cluster.waits) == 12  # four messages each
        waiting, cluster.waits = cluster.waits, None
        for call in waiting:
            cluster.do(*call)
        many.wait()
        assert many.lags.tolist() == [0] * 3


def test_a_function_that_raises_in_a_shard_raises_here(cluster: LocalCluster) -> None:
    def fails(observation: NDArray[Any], tiles: NDArray[np.int64]) -> float:
        raise ZeroDivisionError("no such sensor")

    questions, life = constant_questions(), Life(20)
    questions[1] = replace(questions[1], cumulant=fails)
    with ShardedHorde(questions, shards=3, **KIND) as many:
        many.begin(life.observation[0], life.tiles[0])
        many.learn(0, 0.5, life.observation[1], life.tiles[1])
        with pytest.raises(ZeroDivisionError, match="no such sensor"):
            many.wait()


# ---- stopping, and going on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["eager", "deferred"])
@pytest.mark.parametrize("has_folder", [True, False])
def test_a_life_that_stopped_goes_on_to_the_same_bits(
    cluster: LocalCluster, tmp_path: Path, mode: Mode, has_folder: bool
) -> None:
    """After 333 steps, and again in a driver that comes after; demons came and went before."""
    questions, life = constant_questions(), Life(700)
    newcomers = [GVF(f"new{i}", ConstantAction(i % 3, 3), Channel(1), 0.7) for i in range(5)]
    where: dict[str, Any] = {"folder": tmp_path, "snapshot_every": 150} if has_folder else {}

    def make() -> ShardedHorde:
        return ShardedHorde(questions, mode=mode, shards=3, **KIND, **where)

    def change(horde: Any) -> None:
        horde.add(newcomers)
        horde.remove(["q8", "new2"])

    whole = make()
    life.tell(whole, 0, 200)
    change(whole)
    life.tell(whole, 200, 333)
    state = whole.state()
    life.tell(whole, 333)
    expected, updates = whole.weights_sha256(), whole.ratio_totals()
    if has_folder:
        assert sum(array.nbytes for array in state.values()) < 2_000
    whole.close()

    again = make()
    change(again)
    again.restore(state)
    life.tell(again, 333)
    assert again.weights_sha256() == expected
    np.testing.assert_array_equal(again.ratio_totals(), updates)
    again.close()


def test_a_state_of_other_shards_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    with ShardedHorde(constant_questions(), shards=3, folder=tmp_path, **KIND) as many:
        state = many.state()
    with (
        ShardedHorde(constant_questions(), shards=2, folder=tmp_path, **KIND) as many,
        pytest.raises(ClusterError, match="make it with shards=3"),
    ):
        many.restore(state)


# ---- demons that come and go ----------------------------------------------------------------------------------------


def test_demons_that_come_and_go_change_the_others_in_rounding_alone(cluster: LocalCluster) -> None:
    """In the shards that nobody comes to or leaves, not even that."""
    questions, life, config = constant_questions(), Life(600), LearnerConfig(dtype="float64")
    newcomers = [GVF(f"new{i}", ConstantAction(i % 3, 3), Channel(2), 0.7) for i in range(4)]
    one = Horde(questions, config=config, **KIND)
    with ShardedHorde(questions, config=config, shards=3, **KIND) as many:
        for horde in (one, many):
            life.tell(horde, 0, 300)
            horde.add(newcomers)
            horde.remove(["q3", "q9", "new1"])
            life.tell(horde, 300)
        assert list(many.names) == list(one.names)
        assert [q.name for q in many.questions] == list(one.names)
        for theirs, own in zip(many.weights(), one.weights(), strict=True):
            np.testing.assert_allclose(theirs, own, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(many.predictions, one.predictions, rtol=1e-12, atol=1e-12)
        assert many.ratio_totals().shape == (3, one.n_demons)


def test_what_cannot_come_or_go_is_refused_and_changes_nothing(cluster: LocalCluster) -> None:
    questions, life = constant_questions(), Life(100)
    questions[3] = replace(questions[3], cumulant=Prediction("q0"))
    one = Horde(questions, **KIND)
    life.tell(one)
    wrong = GVF("wrong", PolicyFunction(lambda observation, tiles: [2.0, 0.0, 0.0], 3), Channel(0), 0.5)
    with ShardedHorde(questions, shards=2, **KIND) as many:
        life.tell(many, 0, 50)
        many.begin(life.observation[50], life.tiles[50])
        for call, match in (
            (lambda: many.add([questions[5]]), "'q5' is there twice"),
            (lambda: many.add([wrong]), "'wrong': its target policy gave"),
            (lambda: many.remove(["q0"]), "'q3': there is no demon 'q0'"),
            (lambda: many.remove(["nobody"]), "no demon 'nobody'"),
            (lambda: many.remove([q.name for q in questions]), "at least one question"),
        ):
            with pytest.raises(ValueError, match=match):
                call()
        cluster.actors[0].die()
        many.wait()
        assert many.n_demons == len(questions)
        assert len(many.predictions) == len(questions)


# ---- families -------------------------------------------------------------------------------------------------------


def test_a_family_made_in_shards_is_the_same_as_its_list(cluster: LocalCluster) -> None:
    """Each question alone, from its number: no shard makes another's."""
    rng_family = gibbs_family(
        2_500, seed=7, n_features=N_FEATURES, n_actions=N_ACTIONS, channels=range(N_CHANNELS), gammas=(0.0, 0.8)
    )
    questions, life = [*constant_questions(20), rng_family], Life(120)
    in_full = [*constant_questions(20), *rng_family.make(range(2_500))]
    one = Horde(in_full, **KIND)
    life.tell(one)
    with ShardedHorde(questions, shards=3, **KIND) as many:
        life.tell(many)
        assert_same(one, many, life)
        assert many.names[60] == "gibbs_00000000"
        assert many.names.index("gibbs_00000007") == 67
        assert many.questions[67].name == "gibbs_00000007"
        answer = many.learn(0, 0.5, life.observation[1], life.tiles[1], ask=["gibbs_00000007"])
        assert np.isfinite(answer).all()
        with pytest.raises(ValueError, match="'gibbs_00000007' belongs to a family"):
            many.remove(["gibbs_00000007"])


def other_names(numbers: Sequence[int]) -> list[GVF]:
    return [GVF(f"other{i}", Behaviour(), Channel(0), 0.5) for i in numbers]


def test_families_that_are_not_what_they_say_are_refused(cluster: LocalCluster) -> None:
    here = f"{other_names.__module__}:{other_names.__name__}"
    with pytest.raises(ClusterError, match="'other0' in the place of 'mine00000000'"):
        Family(here, 3, "mine").make(range(3))
    with pytest.raises(ClusterError, match=r'must be "package\.module:function"'):
        Family("nowhere.at.all:f", 3, "mine")
    for parts, match in (
        ([Family(here, 3, "a"), Family(here, 3, "a")], "give two questions one name"),
        ([Family(here, 3, "a"), GVF("a00000001", Behaviour(), Channel(0), 0.5)], "'a00000001' is there twice"),
    ):
        with pytest.raises(ClusterError, match=match):
            Questions(parts)


# ---- bad input ------------------------------------------------------------------------------------------------------


def test_bad_input_is_refused_in_one_sentence_and_nothing_runs_on(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = constant_questions()
    unsendable = replace(questions[1], cumulant=_Unsendable())
    for given, where, match in (
        (questions, {"shards": 9}, "take at most 3"),
        (questions, {"shards": 0}, "at least 1"),
        ([*questions, questions[4]], {}, "'q4' is there twice"),
        ([], {}, "at least one question"),
        ([replace(questions[0], cumulant=Prediction("nobody"))], {}, "no demon 'nobody'"),
        ([questions[0], unsendable], {"shards": 1}, "'q1' holds a function that cannot be sent"),
        ([GVF("f", Behaviour(), Feature(99), 0.5)], {"shards": 1}, "no feature 99"),
    ):
        with pytest.raises(ClusterError, match=match) as raised:
            ShardedHorde(given, **KIND, **where)
        assert "\n" not in str(raised.value)
    with pytest.raises(ClusterError, match="learn of real-valued features in one Horde"):
        ShardedHorde(questions, shards=2, real_valued=True, **KIND)
    with pytest.raises(TypeError, match="no argument 'n_shards'"):
        ShardedHorde(questions, n_shards=2, **KIND)  # type: ignore[call-arg]
    monkeypatch.setattr(LocalCluster, "memory", 1_000_000)
    with pytest.raises(ClusterError, match=r"288 demons in 3 shards need up to 1\.\d GB, \d,\d+ bytes each, and the"):
        ShardedHorde(questions, shards=3, **KIND)
    assert cluster.is_closed
    assert len(cluster.ended) == len(cluster.actors)


class _Unsendable:
    def __call__(self, observation: NDArray[Any], tiles: NDArray[np.int64]) -> float:
        return 0.0

    def __reduce__(self) -> Any:
        raise TypeError("it holds an open port")


def test_another_version_in_a_shard_is_refused(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horde_agent.cluster.shards.versions", lambda: {"numba": "0.1"})
    with pytest.raises(ClusterError, match=r"has another numba than this process \(0\.\d+\.\d+, not 0\.1\)"):
        ShardedHorde(constant_questions(), shards=2, **KIND)
    assert len(cluster.ended) == 2


def test_wrong_states_are_refused_before_anybody_is_told(cluster: LocalCluster) -> None:
    life = Life(5)
    with ShardedHorde(constant_questions(), shards=2, **KIND) as many:
        with pytest.raises(RuntimeError, match="begin"):
            many.learn(0, 0.5, life.observation[0], life.tiles[0])
        many.begin(life.observation[0], life.tiles[0])
        for step, match in (
            ((7, 0.5, life.observation[1], life.tiles[1]), "action"),
            ((0, 0.0, life.observation[1], life.tiles[1]), "probability"),
            ((0, 0.5, life.observation[1] * np.nan, life.tiles[1]), "finite"),
            ((0, 0.5, np.zeros(9), life.tiles[1]), "4 channels as before"),
            ((0, 0.5, life.observation[1], life.tiles[1] + 100), "tiles must lie"),
        ):
            with pytest.raises(ValueError, match=match):
                many.learn(*step)
        assert many.lags.tolist() == [0, 0]
