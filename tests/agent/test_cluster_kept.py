"""Snapshots of shards: all of the same entry of the stream; which are kept, and errors in writing and reading them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from horde_agent.cluster import ClusterError, ShardedHorde, ShardLost
from horde_agent.cluster.shards import check_snapshots
from horde_agent.record import snapshots
from horde_agent.record.snapshots import SnapshotDamaged
from horde_agent.saving import State, untext
from tests.agent.cluster_double import LocalCluster, cluster
from tests.agent.test_cluster import KIND, Life, constant_questions

__all__ = ["cluster"]


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here is about a loss of power."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def sharded(folder: Path) -> ShardedHorde:
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
    life, at = Life(300), []
    with sharded(tmp_path) as many:
        for first in (0, 100, 200):
            life.teach(many, first, first + 100)
            saved(many)
            at.append(many.at)
        assert entries(tmp_path, 0) == entries(tmp_path, 1) == at
        many.drop_snapshots(before=at[1])
        assert entries(tmp_path, 0) == entries(tmp_path, 1) == at[1:]


def test_a_return_to_a_state_removes_the_snapshots_of_later_entries(cluster: LocalCluster, tmp_path: Path) -> None:
    life = Life(300)
    with sharded(tmp_path) as many:
        life.teach(many, 0, 100)
        state, at = saved(many), many.at
        life.teach(many, 100, 200)
        saved(many)
    with sharded(tmp_path) as again:
        again.restore(state)
        assert entries(tmp_path, 0) == entries(tmp_path, 1) == [at]


def test_snapshots_of_another_life_are_removed_when_the_first_own_one_is_written(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    for _ in range(2):
        with sharded(tmp_path) as many:
            Life(50).teach(many)
            saved(many)
    assert len(list(tmp_path.glob("life-*"))) == 1


def test_a_damaged_snapshot_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    with sharded(tmp_path) as many:
        Life(50).teach(many)
        state = saved(many)
    file = next(tmp_path.glob("life-*/shard-0001/*/small.bin"))
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    with sharded(tmp_path) as again, pytest.raises(ClusterError, match=r"shard 1 .*horde doctor"):
        again.restore(state)


def test_a_missing_or_damaged_snapshot_is_found_before_anything_starts(cluster: LocalCluster, tmp_path: Path) -> None:
    with sharded(tmp_path) as many:
        Life(50).teach(many)
        own = untext(saved(many)["own/sharded"])
    where = tmp_path, own["life"], own["at"], own["n_shards"]
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
    with sharded(tmp_path) as many:
        life.teach(many, 0, 100)
        with monkeypatch.context() as patch:
            patch.setattr(snapshots, "_put", full)
            many.state()
            with pytest.raises(OSError, match="No space left"):
                many.wait_for_snapshot(many.at)
            for actor in cluster.actors:
                actor.shard._writing.join()
        life.teach(many, 100)
        saved(many)
        assert entries(tmp_path, 0) == entries(tmp_path, 1) == [many.at]


def test_waiting_for_a_snapshot_ends_when_the_shard_is_lost(cluster: LocalCluster, tmp_path: Path) -> None:
    with sharded(tmp_path) as many:
        Life(50).teach(many)
        many.state()
        cluster.actors[0].die()
        with pytest.raises(ShardLost, match="shard 0"):
            many.wait_for_snapshot(many.at)
