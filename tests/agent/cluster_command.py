"""Live with a Horde in shards until somebody kills this: `python -m tests.agent.cluster_command FOLDER [many]`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent.cluster import ShardedHorde
from horde_agent.gvf import GVF
from tests.agent.test_cluster import KIND, N_ACTIVE, Life, constant_questions

STOPS_AT, KEEPS_AT = 300, 200
MANY = {"n_features": 2_000, "n_active": N_ACTIVE}


def asked(*, are_many: bool) -> tuple[list[GVF], dict[str, int], Life]:
    """Return questions, features, and the life: of so many that shards copy snapshots over many entries, or of few."""
    questions, kind = constant_questions(6_000 if are_many else 96), MANY if are_many else KIND
    return questions, kind, Life(2_000 if are_many else 400, n_features=kind["n_features"])


def copied_gradually(folder: Path) -> set[str]:
    """Return the shards with a snapshot that was copied over many entries."""
    return {path.parents[1].name for path in folder.glob("life-*/shard-*/[0-9]*/*.block.*.rows.npy")}


def tell_until_kept(horde: Any, life: Life, first: int, folder: Path) -> int:
    """Tell a Horde steps from `first` on until two shards have such a snapshot; return how many there were then."""
    while len(copied_gradually(folder)) < 2:
        life.tell(horde, first, first + 1)
        horde.wait()
        first += 1
    return first


def main(folder: Path, *, are_many: bool) -> None:
    """Keep the state after 200 steps, live on for 100, say who is there, and wait."""
    questions, kind, life = asked(are_many=are_many)
    horde = ShardedHorde(questions, shards=2, folder=folder / "shards", snapshot_every=70, **kind)
    life.tell(horde, 0, KEEPS_AT)
    at = tell_until_kept(horde, life, KEEPS_AT, folder / "shards") if are_many else KEEPS_AT
    np.savez(folder / "state.npz", at=np.array(at), **horde.state())
    life.tell(horde, at, at + STOPS_AT - KEEPS_AT)
    print(*(status.process for status in horde.shards), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(Path(sys.argv[1]), are_many="many" in sys.argv[2:])
