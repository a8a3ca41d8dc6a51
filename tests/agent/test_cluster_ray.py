"""A Horde in shards on Ray itself: processes that are killed, and what is left when all is over."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from horde_agent.cluster import ClusterError, ShardedHorde
from horde_agent.cluster.runtime import Cluster
from horde_agent.horde import Horde
from horde_agent.processes import python
from tests.agent.cluster_command import KEEPS_AT
from tests.agent.test_cluster import KIND, Life, assert_same, constant_questions

if importlib.util.find_spec("ray") is None:  # importing it would come before its variables
    pytest.skip("needs Ray", allow_module_level=True)


def left_behind(before: set[Path]) -> set[Path]:
    """Return what is in shared memory, and in temporary folders of Ray's, that was not there before."""
    return there() - before


def there() -> set[Path]:
    """Return those of them that no other process that runs has made: it may be another life's."""
    folders = {folder for folder in Path("/tmp").glob("horde-ray-*-*") if not is_others(int(folder.name.split("-")[2]))}
    return set(Path("/dev/shm").glob("*")) | folders


def is_others(process: int) -> bool:
    return process != os.getpid() and is_there(process)


def is_there(process: int) -> bool:
    """Say whether a process runs; one that has ended and is not yet waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


def wait_for_the_end(processes: list[int]) -> None:
    """Wait until these have ended, which Ray takes a moment to see to."""
    until = time.monotonic() + 30
    while any(is_there(process) for process in processes) and time.monotonic() < until:
        time.sleep(0.05)
    assert [process for process in processes if is_there(process)] == []


def test_a_process_that_is_killed_changes_no_bit_and_nothing_is_left_behind(tmp_path: Path) -> None:
    """Two shards, 400 steps, a kill -9 in the middle; what is asked of the dead is nan until it is back."""
    questions, life, before = constant_questions(), Life(400), there()
    one = Horde(questions, **KIND)
    life.tell(one)
    with ShardedHorde(questions, shards=2, folder=tmp_path, snapshot_every=100, **KIND) as many:
        processes = [status.process for status in many.shards]
        life.tell(many, 0, 250)
        os.kill(processes[1], signal.SIGKILL)
        life.tell(many, 250)
        assert_same(one, many, life)
        assert [status.n_restarts for status in many.shards] == [0, 1]
        assert all(status.n_bytes > 50_000_000 for status in many.shards)
        processes += [status.process for status in many.shards]
    wait_for_the_end(processes)
    assert left_behind(before) == set()


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_nothing_running_and_another_goes_on(tmp_path: Path) -> None:
    """Kill -9 of the process that sends the stream, 100 steps after it saved its state: the next one goes on."""
    life = Life(400)
    words, environment = python("tests.agent.cluster_command", str(tmp_path))
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        processes = [int(number) for number in driver.stdout.readline().split()]
        assert len(processes) == 2
        driver.kill()
    wait_for_the_end(processes)
    with np.load(tmp_path / "state.npz") as file:
        state = dict(file)
    one = Horde(constant_questions(), **KIND)
    life.tell(one)
    where = {"folder": tmp_path / "shards", "snapshot_every": 70}
    with ShardedHorde(constant_questions(), shards=2, **where, **KIND) as many:
        many.restore(state)
        life.tell(many, KEEPS_AT)
        assert_same(one, many, life)


@pytest.mark.slow
def test_a_question_that_does_not_fit_leaves_nothing_running() -> None:
    """A shard refuses a feature that is not there: one sentence, and Ray is gone."""
    from horde_agent.gvf import GVF, Feature
    from horde_agent.policies import Behaviour

    before = there()
    with pytest.raises(ClusterError, match="no feature 99"):
        ShardedHorde([GVF("f", Behaviour(), Feature(99), 0.5)], shards=1, **KIND)
    assert left_behind(before) == set()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "ray://127.0.0.1:10001"])
def test_nobody_at_the_address_is_one_sentence(address: str) -> None:
    with pytest.raises(ClusterError, match=f"no Ray cluster could be joined at '{address}'") as raised:
        Cluster(address, 1)
    assert "\n" not in str(raised.value)


def test_without_ray_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'horde-gvf\[ray\]'"):
        ShardedHorde(constant_questions(), shards=2, **KIND)


@pytest.mark.slow
def test_what_is_asked_of_a_shard_that_was_killed_is_nan_before_ray_would_say_so_by_itself() -> None:
    """Ray itself waits ten seconds for what became of a process that is gone."""
    questions, life = constant_questions(), Life(200)
    with ShardedHorde(questions, shards=2, **KIND) as many:
        many.begin(life.observation[0], life.tiles[0])
        os.kill([status.process for status in many.shards][1], signal.SIGKILL)
        of_dead = many.names[int(many._shards.links[1].demons[0])]
        began = time.monotonic()
        step = int(life.action[0]), float(life.b[0]), life.observation[1], life.tiles[1]
        answer = many.learn(*step, ask=[of_dead, "q0"])
        assert time.monotonic() - began < 5.0
        assert np.isnan(answer).tolist() == [True, False]
        assert "shard 1 is recovering" in many.unanswered[of_dead]
        many.wait()
        assert np.isfinite(many.predictions).all()
