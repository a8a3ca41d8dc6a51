"""A shard that resumes from any of its snapshots learns the same bits."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from horde_agent.cluster import ShardedHorde, shards, stream
from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde, Mode
from horde_agent.policies import ConstantAction
from horde_agent.record import snapshots
from horde_agent.saving import State
from tests.agent.cluster_double import LocalCluster, cluster
from tests.agent.test_cluster import KIND, Life, assert_same, constant_questions

__all__ = ["cluster"]

MODES: list[Mode] = ["eager", "deferred"]


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is forgotten as soon as no shard needs it."""
    monkeypatch.setattr(shards, "_FORGET_EVERY", 16)
    monkeypatch.setattr(stream, "_ROWS", 16)
    monkeypatch.setattr("os.fsync", lambda _: None)  # nothing here is about a loss of power


def wait_for_memory(cluster: LocalCluster) -> None:
    """Wait until all snapshots are written."""
    for actor in cluster.actors:
        if actor.shard._kept is not None:
            actor.shard._kept.join()


class Slowly(Life):
    """A life in which the disk keeps up."""

    def __init__(self, n_steps: int, cluster: LocalCluster) -> None:
        super().__init__(n_steps)
        self._cluster = cluster

    def tell(self, horde: Any, first: int = 0, last: int | None = None) -> None:
        for t in range(first, self.n_steps if last is None else last):
            super().tell(horde, t, t + 1)
            wait_for_memory(self._cluster)


def states(folder: Path) -> list[State]:
    """Return what there is in a folder of snapshots, the oldest first."""
    return [snapshots.read(path).state for path in sorted(folder.glob("life-*/shard-*/[0-9]*"))]


@pytest.mark.parametrize("mode", MODES)
def test_a_shard_comes_back_from_its_snapshot(cluster: LocalCluster, tmp_path: Path, mode: Mode) -> None:
    """Streams end and begin meanwhile."""
    questions, life = constant_questions(), Slowly(800, cluster)
    one = Horde(questions, mode=mode, **KIND)
    with ShardedHorde(questions, mode=mode, shards=3, folder=tmp_path, snapshot_every=130, **KIND) as many:
        for last in range(100, 900, 100):
            life.tell(many, last - 100, last)
            Life.tell(life, one, last - 100, last)
            cluster.actors[last // 100 % 3].die()
            many.wait()
            one.catch_up()
        assert_same(one, many, life)
        assert all(status.n_restarts >= 2 for status in many.shards)
    assert len(states(tmp_path)) >= 6


@pytest.mark.parametrize("mode", MODES)
def test_a_life_goes_back_to_any_entry_at_which_it_was_kept(cluster: LocalCluster, tmp_path: Path, mode: Mode) -> None:
    """A driver that dies loses its last snapshots, too: what those before it need is still there, and not much more."""
    questions, life, folder = constant_questions(), Slowly(1_500, cluster), tmp_path / "run"
    where: dict[str, Any] = {"folder": folder, "snapshot_every": 90, "shards": 3}
    newcomers = [GVF(f"new{i}", ConstantAction(i % 3, 3), Channel(1), 0.7) for i in range(5)]
    whole = ShardedHorde(questions, mode=mode, **where, **KIND)
    kept: list[tuple[int, State]] = []
    at = [0, 30, 400, 650, 700, 1_230, 1_500]
    for first, last in pairwise(at):
        life.tell(whole, first, last)
        if last == 30:
            whole.add(newcomers)
        kept.append((last, whole.state()))
        cluster.actors[last % 3].die()  # it is told again to what the life may go back
    life.tell(whole, 1_500)
    whole.wait()
    expected = whole.weights_sha256(), whole.ratio_totals().tobytes()
    assert all(len(link.kept) <= 5 and link.oldest > 300 for link in whole._shards.links)
    for actor in cluster.actors:
        actor.die()
    found = shutil.copytree(folder, tmp_path / "found")
    whole.close()
    for last, state in kept[-3:]:
        shutil.rmtree(folder)
        shutil.copytree(found, folder)
        again = ShardedHorde(questions, mode=mode, **where, **KIND)
        again.add(newcomers)
        again.restore(state)
        life.tell(again, last)
        assert (again.weights_sha256(), again.ratio_totals().tobytes()) == expected
        again.close()


def test_a_shard_that_came_back_knows_to_what_the_life_may_go_back(cluster: LocalCluster, tmp_path: Path) -> None:
    """It died after it was kept; what it has kept since is not what a driver needs that goes back to there."""
    questions, life = constant_questions(), Slowly(900, cluster)
    many = ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=60, **KIND)
    life.tell(many, 0, 300)
    state = many.state()
    life.tell(many, 300, 500)
    for actor in cluster.actors:
        actor.die()
    life.tell(many, 500)
    expected = many.weights_sha256()
    for actor in cluster.actors:
        actor.die()
    again = ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=60, **KIND)
    again.restore(state)
    life.tell(again, 300)
    assert again.weights_sha256() == expected
    again.close()


def test_the_log_is_forgotten_where_no_snapshot_needs_it(cluster: LocalCluster, tmp_path: Path) -> None:
    questions, life = constant_questions(), Life(400)
    with ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=60, **KIND) as many:
        for last in range(100, 500, 100):
            life.tell(many, last - 100, last)
            many.state()
        for link in many._shards.links:
            first, second, third = many._shards.returns
            link.kept = (first - 40, first - 20, second, third - 10, third + 30)
            assert link.oldest == first - 20
            link.kept = (first, second, third, third + 30)
            assert link.oldest == third, "of those very entries nothing need be told"
            link.kept = (370,)
            assert link.oldest == 0, "the only one may be damaged"


def test_a_life_that_ends_in_good_order_is_kept_at_its_end(cluster: LocalCluster, tmp_path: Path) -> None:
    """Whoever goes on with it is told nothing again."""
    questions, life = constant_questions(), Life(300)
    with ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=1_000, **KIND) as many:
        life.tell(many)
        state = many.state()
        expected = many.weights_sha256()
    shutil.rmtree(next(tmp_path.glob("life-*/redo")))
    with ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=1_000, **KIND) as many:
        many.restore(state)
        assert many.weights_sha256() == expected


def test_weights_that_are_set_while_they_are_copied_are_copied_anew(cluster: LocalCluster, tmp_path: Path) -> None:
    questions, life = constant_questions(), Slowly(700, cluster)
    one = Horde(questions, **KIND)
    with ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=150, **KIND) as many:
        for horde in (one, many):
            for last in range(160, 700, 20):
                life.tell(horde, last - 160 if last == 160 else last - 20, last)
                if last < 500:
                    horde.reset_weights()
        assert not any("could not be written" in status.why for status in many.shards)
        for actor in cluster.actors:
            actor.die()
        many.wait()
        life.tell(one, 680)
        life.tell(many, 680)
        assert_same(one, many, life)
    assert len(states(tmp_path)) >= 4


def test_a_disk_that_is_full_for_a_while_is_told_of_and_stops_nobody(
    cluster: LocalCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    questions, life = constant_questions(), Slowly(700, cluster)
    one = Horde(questions, **KIND)
    Life.tell(life, one)

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    with ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=150, **KIND) as many:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(snapshots, "_put", full)
            Life.tell(life, many, 0, 350)
            for actor in cluster.actors:
                actor.shard.finish_writing()
            Life.tell(life, many, 350, 360)
        said = sorted(record.message[:7] for record in caplog.records if "No space left" in record.message)
        assert said == ["shard 0", "shard 1"]
        life.tell(many, 360)
        for actor in cluster.actors:
            actor.die()
        many.wait()
        assert_same(one, many, life)
    assert states(tmp_path)
