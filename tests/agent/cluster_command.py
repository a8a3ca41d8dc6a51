"""Learn with a Horde in shards until this process is killed: `python -m tests.agent.cluster_command FOLDER`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from horde_agent.cluster import ShardedHorde
from tests.agent.test_cluster import KIND, Life, constant_questions

STOPS_AT, KEEPS_AT = 300, 200


def main(folder: Path) -> None:
    """Save the state after 200 steps, learn from 100 more, print the shards' processes, and wait."""
    life = Life(400)
    horde = ShardedHorde(constant_questions(), shards=2, folder=folder / "shards", **KIND)
    life.tell(horde, 0, KEEPS_AT)
    np.savez(folder / "state.npz", **horde.state())
    horde.wait_for_snapshot(horde.at)
    life.tell(horde, KEEPS_AT, STOPS_AT)
    print(*(status.process for status in horde.shards), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
