"""A shard of very many demons copies its snapshots over many entries: who goes on from one learns the same bits."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from horde_agent.cluster import ClusterError, ShardedHorde, shards, stream
from horde_agent.cluster.shard import Shard
from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde, Mode
from horde_agent.learning import gradually, span
from horde_agent.policies import ConstantAction
from horde_agent.record import snapshots
from horde_agent.saving import State
from tests.agent.cluster_double import LocalCluster, cluster
from tests.agent.test_cluster import KIND, Life, assert_same, constant_questions

__all__ = ["cluster"]

MODES: list[Mode] = ["eager", "deferred"]


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few the demons, there are several blocks, of which a piece is copied after each entry.

    The stream is forgotten as soon as nobody needs it.
    """
    monkeypatch.setattr(shards, "_FORGET_EVERY", 16)
    monkeypatch.setattr(stream, "_ROWS", 16)
    monkeypatch.setattr(gradually, "AT_ONCE_BYTES", 0)
    monkeypatch.setattr(gradually, "BYTES_A_STEP", 1)
    monkeypatch.setattr(span, "_WIDEST", 16)
    monkeypatch.setattr("os.fsync", lambda _: None)  # nothing here is about a loss of power


def wait_for_memory(cluster: LocalCluster) -> None:
    """Wait until snapshots that are under way have memory to copy into, and those before them are written."""
    for actor in cluster.actors:
        kept: Any = actor.shard._kept
        if kept is not None:
            kept._join()
        if kept is not None and kept._copying is not None and not kept._copying._copy.is_complete:
            free = kept._copying._copy._free
            if kept._copying._copy._block is None:
                free.put(free.get(timeout=60.0))


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
def test_a_shard_comes_back_from_a_snapshot_that_was_copied_over_many_entries(
    cluster: LocalCluster, tmp_path: Path, mode: Mode
) -> None:
    """Streams end and begin meanwhile; a process dies while it copies, too, and what it had copied is gone."""
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
    of_steps = [set(state["horde/engine/put_in_at"][:, 0].tolist()) for state in states(tmp_path)]
    assert len(of_steps) >= 6
    assert all(len(at) > 1 for at in of_steps), "blocks are of entries of their own"


def test_a_shard_that_was_taken_for_lost_while_it_copied_begins_anew(cluster: LocalCluster, tmp_path: Path) -> None:
    """The way to it was cut for a while: its process goes on, and makes what it was asked for."""
    questions, life = constant_questions(), Slowly(600, cluster)
    one = Horde(questions, **KIND)
    Life.tell(life, one)
    with ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=150, **KIND) as many:
        kept, last = cluster.actors[0].shard._kept, 0
        while kept is None or kept._copying is None:
            life.tell(many, last, last + 1)
            kept, last = cluster.actors[0].shard._kept, last + 1
        cluster.actors[0].restarts_in = 2
        life.tell(many, last, last + 20)
        many.wait()
        assert cluster.actors[0].shard._kept is not kept
        assert not kept._copying.is_alive, "nothing of it is written any more"
        life.tell(many, last + 20)
        assert_same(one, many, life)
        assert [status.n_restarts for status in many.shards] == [1, 0]
    assert len(states(tmp_path)) >= 4


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


def test_what_is_asked_is_answered_before_anything_is_copied(cluster: LocalCluster, tmp_path: Path) -> None:
    """Copying waits until the answer has left; with each step some more is copied, and all in the end."""
    questions, life = constant_questions(), Life(500)
    life.ends[:] = life.begins[:] = False
    with ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=40, **KIND) as many:
        many.begin(life.observation[0], life.tiles[0])
        done: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            for name in ("take", "go_on_copying"):
                patch.setattr(Shard, name, noted(getattr(Shard, name), name, done))
            patch.setattr(gradually.GradualSnapshot, "advance", noted(gradually.GradualSnapshot.advance, "copy", done))
            for t in range(life.n_steps):
                step = int(life.action[t]), float(life.b[t]), life.observation[t + 1], life.tiles[t + 1]
                many.learn(*step, ask=["q0", "q1"])
                wait_for_memory(cluster)
        assert done.count("copy") > 100
        assert all(before == "go_on_copying" for before, what in pairwise(done) if what == "copy")
    assert len(states(tmp_path)) == 4


def noted(method: Any, name: str, done: list[str]) -> Any:
    """Return a method that notes when it begins."""

    def noting(*args: Any, **kwargs: Any) -> Any:
        done.append(name)
        return method(*args, **kwargs)

    return noting


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


def test_a_log_that_was_damaged_on_the_disk_is_not_learned_from(cluster: LocalCluster, tmp_path: Path) -> None:
    """The stream between the snapshot and the life's last entry has a bit that flipped: it is refused, not believed."""
    questions, life = constant_questions(), Slowly(300, cluster)
    many = ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=120, **KIND)
    life.tell(many)
    state = many.state()
    many._shards.returns.clear()  # it ends as by a kill: nothing is written to its end
    many.close()
    path = max(tmp_path.glob("life-*/redo/*.rows"))
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)
    with (
        ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=120, **KIND) as many,
        pytest.raises(ClusterError, match="has no sound snapshot between the entries"),
    ):
        many.restore(state)
