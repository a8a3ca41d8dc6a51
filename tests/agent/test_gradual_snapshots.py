"""A snapshot that is written while its life goes on: the life is the same, and so is one that goes on from there."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.learning import gradually
from horde_agent.life.life import Life
from horde_agent.record import snapshots
from horde_agent.runs import keeping, run
from horde_agent.runs.keeping import Keeper
from tests.agent import kills as crashes
from tests.agent.doubles import ToyBody
from tests.agent.gradual_command import SETTINGS
from tests.agent.kills import differences, lived_with_kills
from tests.agent.test_resume import LIFE, flip, horde

pytestmark = pytest.mark.sim

OWN = """
[[family]]
policies = ["forward", "stop", "uniform"]
gammas = [0.0, 0.5, 0.9]
channels = ["ir_distance_0", "ir_distance_3", "light_0", "light_1", "light_2", "light_3"]
"""
MODES = ["eager", pytest.param("deferred", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", autouse=True, params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """How steps are taken; a piece is copied in each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "write_report", lambda path: path / "report.html")
        patch.setattr(run, "_mode", lambda *_: request.param)
        for module, name, value in SETTINGS:
            patch.setattr(module, name, value)
        yield request.param


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("questions") / "own.toml"
    file.write_text(OWN)
    return file


def words(own: Path, every: str) -> str:
    return LIFE.format(questions=own).replace("never", every)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, own: Path, mode: str) -> Path:
    """A life of 900 steps that was never kept."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "AT_ONCE_BYTES", 1 << 40)
        assert horde(words(own, "never"), f"--steps 900 --out {path}") == 0
    return path


def wait_for_the_disk(life: Life) -> None:
    """Wait until the snapshot that is under way has memory to copy into, and the one before it is written."""
    keeper: Any = life.keeper
    if keeper._closing is not None and keeper._closing._is_ended:
        keeper._closing.join()
    if keeper._gradual is not None:
        keeper._gradual._copy._free.put(keeper._gradual._copy._free.get(timeout=60.0))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, own: Path, mode: str) -> Path:
    """The same life, kept as often as can be; all its snapshots are there."""
    path = tmp_path_factory.mktemp("runs") / "kept"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots.write, "__kwdefaults__", {"kept": 99})
        at_step(None, wait_for_the_disk, patch)
        assert horde(words(own, "0.001s"), f"--steps 900 --out {path}") == 0
    return path


def put_in_at(path: Path) -> np.ndarray:
    """Return how much the engine had been told when each block was copied."""
    return np.array(snapshots.read(path).state["life/student/horde/engine/put_in_at"][:, 0])


def test_a_life_that_is_kept_while_it_goes_on_is_the_life_that_was_not(kept: Path, whole: Path) -> None:
    assert differences(kept, whole) == []
    found = list(snapshots.found(kept / "checkpoint"))
    assert len(found) >= 4
    assert found[0].name == "000000000900"
    assert all(len(set(put_in_at(path).tolist())) > 1 for path in found[1:]), "blocks are of steps of their own"


@pytest.mark.parametrize("k", [1, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 3))])
def test_a_life_goes_on_from_each_of_its_snapshots(k: int, kept: Path, whole: Path, tmp_path: Path) -> None:
    again = Path(shutil.copytree(kept, tmp_path / "run"))
    for path in list(snapshots.found(again / "checkpoint"))[:k]:
        shutil.rmtree(path)
    (again / "summary.json").unlink()
    assert horde(f"resume {again} --steps 900") == 0
    assert differences(again, whole) == []


@pytest.mark.slow
def test_a_life_that_is_asked_for_more_goes_on_from_its_end(kept: Path, whole: Path, tmp_path: Path) -> None:
    """The last snapshot is of after its last observation was learned from, which is not learned from again."""
    again, other = (Path(shutil.copytree(path, tmp_path / path.name)) for path in (kept, whole))
    for path in (again, other):
        assert horde(f"resume {path} --steps 1000") == 0
    assert differences(again, other) == []


def test_a_flipped_bit_in_any_part_is_found_and_named(kept: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(next(snapshots.found(kept / "checkpoint")), tmp_path / "one"))
    rng = np.random.default_rng(0)
    for file in sorted(path.iterdir()):
        sound = file.read_bytes()
        flip(file, int(rng.integers(len(sound))))
        with pytest.raises(snapshots.SnapshotDamaged, match=file.name.split(".")[0]):
            snapshots.read(path)
        file.write_bytes(sound)


# ---- in the middle of a snapshot -------------------------------------------------------------------------------------


@pytest.fixture
def stuck_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A disk that writes nothing of a snapshot until it is let."""
    put, may_write = snapshots._put, threading.Event()

    def waiting(*arguments: Any) -> Any:
        assert may_write.wait(20.0), "nobody let it"
        return put(*arguments)

    monkeypatch.setattr(snapshots, "_put", waiting)
    return may_write


def at_step(n: int | None, do: Callable[[Life], None], patch: pytest.MonkeyPatch) -> None:
    """Have something done at a step of the life, once, or at each."""
    step, done = Life._step, []

    def doing(life: Life, choice: Any) -> None:
        if n is None or (life.steps == n and not done):
            done.append(n)
            do(life)
        step(life, choice)

    patch.setattr(Life, "_step", doing)


def test_a_signal_in_the_middle_of_a_snapshot_lets_it_be_finished(
    own: Path, whole: Path, tmp_path: Path, stuck_disk: threading.Event
) -> None:
    """Blocks that were copied stay so, the others are copied when the body stands; the life goes on from there."""
    under_way: list[Any] = []

    def signalled(life: Life) -> None:
        keeper: Any = life.keeper
        under_way.append(keeper._gradual)
        assert not keeper._gradual.is_complete
        signal.raise_signal(signal.SIGTERM)
        stuck_disk.set()

    again = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        at_step(5, wait_for_the_disk, patch)
        at_step(333, signalled, patch)
        assert horde(words(own, "0.001s"), f"--steps 900 --out {again}") == 128 + signal.SIGTERM
    (path,) = snapshots.found(again / "checkpoint")
    assert path.name == "000000000334"
    assert put_in_at(path).min() < 10 < 200 < put_in_at(path).max(), "before the signal, and after it"
    assert horde(f"resume {again}") == 0
    assert differences(again, whole) == []


@pytest.mark.slow
def test_a_second_signal_leaves_nothing_corrupt(own: Path, whole: Path, tmp_path: Path) -> None:
    put, n_put = snapshots._put, 0

    def signalled(*arguments: Any) -> Any:
        nonlocal n_put
        n_put += 1
        if n_put == 4:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        return put(*arguments)

    again = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "_put", signalled)
        assert horde(words(own, "0.001s"), f"--steps 900 --out {again}") == 128 + signal.SIGTERM
    assert horde(f"resume {again}") == 0
    assert differences(again, whole) == []


def test_a_disk_slower_than_the_interval_is_told_of_and_memory_stays(
    own: Path, whole: Path, tmp_path: Path, stuck_disk: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """The next snapshot waits; three blocks are copied until the disk takes them, and in the end all are written."""
    held: list[Any] = []

    def let(life: Life) -> None:
        keeper: Any = life.keeper
        held.append([part.buffer is not None for part in list_of(keeper._gradual)])
        stuck_disk.set()

    with pytest.MonkeyPatch.context() as patch:
        at_step(700, let, patch)
        assert horde(words(own, "0.001s"), f"--steps 900 --out {tmp_path / 'run'}") == 0
    assert "is not written yet: the next one waits for it" in caplog.text
    assert sum(held[0]) <= 3
    assert differences(tmp_path / "run", whole) == []
    assert put_in_at(next(snapshots.found(tmp_path / "run" / "checkpoint"))).min() >= 0


def list_of(under_way: Any) -> list[Any]:
    """Return the parts that wait to be written, which stay so."""
    parts = []
    while not under_way._queue.empty():
        parts.append(under_way._queue.get_nowait())
    for part in parts:
        under_way._queue.put(part)
    return parts


@pytest.mark.slow
def test_a_disk_that_takes_nothing_for_too_long_ends_the_snapshot_and_not_the_life(
    own: Path,
    whole: Path,
    tmp_path: Path,
    stuck_disk: threading.Event,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gradually, "MOST_WAITING_BYTES", 100_000)
    monkeypatch.setattr("horde_agent.learning.gradual._CUT_BYTES", 10_000)
    at_end = Keeper.at_end

    def let(keeper: Keeper, life: Life) -> None:
        stuck_disk.set()
        at_end(keeper, life)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keeper, "at_end", let)
        assert horde(words(own, "0.001s"), f"--steps 900 --out {tmp_path / 'run'}") == 0
    assert "cannot be written (the disk has not taken 0 MB in good time); the one before it stays" in caplog.text
    assert differences(tmp_path / "run", whole) == []


def test_a_full_disk_ends_the_snapshot_and_not_the_life(
    own: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    again = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "_put", full)
        assert horde(words(own, "0.001s"), f"--steps 900 --out {again}") == 0
    assert "cannot be written (No space left on device); the one before it stays" in caplog.text
    assert differences(again, whole) == []
    assert not list((again / "checkpoint").iterdir())
    (again / "summary.json").unlink()
    assert horde(f"resume {again}") == 0
    assert differences(again, whole) == []


def test_a_robot_goes_on_from_its_end_as_from_a_snapshot_that_was_copied_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a gap, from what it had learned: the last observation, which its record has too, is learned from once."""
    told = []
    monkeypatch.setattr(cli, "_make_env", lambda _config: ToyBody())
    for name, least in (("gradual", 0), ("at once", 1 << 40)):
        path = tmp_path / name.replace(" ", "_")
        monkeypatch.setattr(keeping, "AT_ONCE_BYTES", least)
        assert horde(f"learn --steps 300 --horizon 8 --seed 1 --snapshot-every never --out {path}") == 0
        (kept,) = snapshots.found(path / "checkpoint")
        assert ("life/student/horde/engine/put_in_at" in snapshots.read(kept).state) == (name == "gradual")
        assert horde(f"resume {path} --steps 500") == 0
        summary = json.loads((path / "summary.json").read_text())
        told.append([summary[key] for key in ("weights_sha256", "learning_steps", "n_excursions", "gaps")])
    assert told[0] == told[1]


KILLS = [(2, 1200, 0.6), (12, 12000, 1.0)]


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "steps", "span_s"), KILLS)
def test_a_life_that_is_killed_while_it_is_kept_is_the_life_that_was_not(
    kills: int, steps: int, span_s: float, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot is always under way: what a kill leaves of it is nothing."""
    command = [sys.executable, "-m", "tests.agent.gradual_command"]
    monkeypatch.setattr(crashes, "command", lambda *said: [*command, *said])
    monkeypatch.setattr(run, "_mode", lambda *_: "deferred")  # as in the command
    asked = [*words(own, "0.01s").split()[1:], "--steps", str(steps)]
    killed = lived_with_kills(tmp_path / "killed", asked, np.random.default_rng(0), kills=kills, span_s=span_s)
    assert killed.n_kills >= (kills + 1) // 2
    assert horde("learn", " ".join(asked), f"--out {tmp_path / 'whole'}") == 0
    assert differences(tmp_path / "killed", tmp_path / "whole") == []
