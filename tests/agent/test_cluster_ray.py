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

from horde_agent.cluster import ClusterError, ShardedHorde, ShardLost
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


def test_a_killed_shard_costs_nothing_after_a_return_to_the_latest_state(tmp_path: Path) -> None:
    """Two shards, 400 steps, kill -9 of one: an error within seconds, and the same weights from the snapshot before."""
    questions, life, before = constant_questions(), Life(400), there()
    one = Horde(questions, **KIND)
    life.tell(one)
    with ShardedHorde(questions, shards=2, folder=tmp_path, **KIND) as many:
        processes = [status.process for status in many.shards]
        life.tell(many, 0, 200)
        state = many.state()
        many.wait_for_snapshot(many.at)
        life.tell(many, 200, 250)
        os.kill(processes[1], signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(ShardLost, match="shard 1"):
            life.tell(many, 250)
        with pytest.raises(ShardLost, match="shard 1"):
            many.wait()
        assert time.monotonic() - began < 5.0
    with ShardedHorde(questions, shards=2, folder=tmp_path, **KIND) as many:
        many.restore(state)
        life.tell(many, 200)
        assert_same(one, many, life)
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
    with ShardedHorde(constant_questions(), shards=2, folder=tmp_path / "shards", **KIND) as many:
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
    with pytest.raises(ClusterError, match=r"pip install -e '\.\[ray\]'"):
        ShardedHorde(constant_questions(), shards=2, **KIND)
