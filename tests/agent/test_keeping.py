"""Snapshots do not change a life; on a robot in real time they are copied when it can wait."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from horde_agent import cli
from horde_agent.life.life import Life
from horde_agent.record import Phase, RecordLost, read, snapshots
from horde_agent.runs.keeping import snapshot_writer as keeping
from horde_agent.runs.keeping.folder import own_version
from horde_agent.runs.keeping.snapshot_writer import SnapshotWriter
from tests.agent.commands import summary_of, toy

TOLD = ("weights_sha256", "learning_steps", "n_excursions", "steps")


def lived(run: Path, words: str, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> dict[str, Any]:
    assert toy(f"learn --horizon 8 --seed 1 {words} --out {run}", monkeypatch, **settings) == 0
    return summary_of(run)


def keep_each(n_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a clock advance by a second every `steps` steps, and wait for each snapshot to be written.

    So how many there are is not for other programs on the machine to say.
    """
    see, clock = SnapshotWriter.before_step, SimpleNamespace(now=0.0)

    def seeing(writer: Any, life: Life) -> None:
        if writer._thread is not None:
            writer._thread.join()
        clock.now += 1.0 / n_steps
        see(writer, life)

    monkeypatch.setattr(SnapshotWriter, "before_step", seeing)
    monkeypatch.setattr(keeping, "time", SimpleNamespace(monotonic=lambda: clock.now))


@pytest.mark.parametrize("backend", ["simulator", "simulator --realtime"], ids=["deferred", "eager"])
def test_a_life_with_snapshots_is_the_life_without(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deferred, each is copied while steps wait to be learned."""
    words = f"--backend {backend} --steps 600"
    without = lived(tmp_path / "a", f"{words} --snapshot-every never", monkeypatch)
    monkeypatch.setattr(snapshots.write, "__kwdefaults__", {"kept": 99})
    keep_each(50, monkeypatch)
    with_them = lived(tmp_path / "b", f"{words} --snapshot-every 1s", monkeypatch)
    assert {key: with_them[key] for key in TOLD} == {key: without[key] for key in TOLD}
    kept = list(snapshots.found(tmp_path / "b" / "checkpoint"))
    assert len(kept) >= 7
    for path in kept:
        state = snapshots.read(path).state
        assert any(name.startswith("life/student/horde/engine/") for name in state), path


def test_in_real_time_a_snapshot_is_copied_before_a_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The robot stands there, and no transition is learned across it: a copy that takes long delays no step."""
    monkeypatch.setattr(snapshots.write, "__kwdefaults__", {"kept": 99})
    keep_each(5, monkeypatch)
    lived(tmp_path / "a", "--realtime --excursion-probability 0.2 --steps 300 --snapshot-every 1s", monkeypatch)
    rows = read(tmp_path / "a" / "log" / "life.rec").rows
    drives = set(rows["step"][rows["phase"] == Phase.CENTRE].tolist())
    steps = [int(path.name) for path in snapshots.found(tmp_path / "a" / "checkpoint")]
    assert len(steps) > 5
    assert set(steps) - {300} <= drives


def test_in_real_time_a_snapshot_does_not_wait_for_ever_for_a_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second is 8 steps; a snapshot is due each second, and is copied in any case after a wait of two more."""
    monkeypatch.setattr(snapshots.write, "__kwdefaults__", {"kept": 99})
    monkeypatch.setattr(keeping, "LONGEST_WAIT_S", 2.0)
    keep_each(8, monkeypatch)
    lived(tmp_path / "a", "--realtime --excursion-probability 0 --steps 100 --snapshot-every 1s", monkeypatch)
    steps = sorted(int(path.name) for path in snapshots.found(tmp_path / "a" / "checkpoint"))
    assert len(steps) == 5
    assert [later - earlier for earlier, later in pairwise(steps[:4])] == [24, 24, 24]
    assert steps[-1] == 100


def test_a_snapshot_has_the_state_of_its_step_however_late_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Writing takes 200 steps; the run continues, and resumes from that snapshot with the same weights."""
    words, may_write, put = "--physics planar --seed 1 --questions nexting --snapshot-every", Event(), snapshots._put
    for name, every in (("never", "never"), ("late", "0.001s")):
        with monkeypatch.context() as patch:
            patch.setattr(snapshots.write, "__kwdefaults__", {"kept": 99})
            patch.setattr(snapshots, "_put", lambda *given: (may_write.wait(60.0), put(*given))[1])
            patch.setattr(Life, "_step", at_step(200, may_write.set))
            if every == "never":
                may_write.set()
            assert cli.main(f"learn {words} {every} --steps 205 --out {tmp_path / name}".split()) == 0
            may_write.clear()
    assert "is not written yet: the next one waits for it" in caplog.text
    *others, first = snapshots.found(tmp_path / "late" / "checkpoint")
    assert int(first.name) < 50
    for path in others:
        shutil.rmtree(path)
    (tmp_path / "late" / "summary.json").unlink()
    assert cli.main(f"resume {tmp_path / 'late'} --steps 205".split()) == 0
    one, other = (summary_of(tmp_path / name) for name in ("never", "late"))
    assert {key: one[key] for key in TOLD} == {key: other[key] for key in TOLD}


def at_step(n: int, do: Callable[[], None]) -> Callable[[Life, Any], None]:
    """Return `Life._step`, which calls `do` at step n."""
    step = Life._step

    def doing(life: Life, choice: Any) -> None:
        if life.steps == n:
            do()
        step(life, choice)

    return doing


def test_a_snapshot_that_cannot_be_written_is_logged_and_the_previous_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lived(tmp_path / "a", "--steps 300 --snapshot-every never", monkeypatch)
    (before,) = snapshots.found(tmp_path / "a" / "checkpoint")

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    kept = snapshots.read(before)
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "_put", full)
        with pytest.raises(RecordLost, match="No space left"):
            snapshots.write(tmp_path / "a" / "checkpoint", 999, kept.state, kept.facts)
        caplog.set_level(logging.WARNING)
        assert cli.main(f"resume {tmp_path / 'a'} --steps 500".split()) == 0
    assert "the snapshot at step 500 cannot be written (No space left on device)" in caplog.text
    assert [path.name for path in snapshots.found(tmp_path / "a" / "checkpoint")] == [before.name]
    assert not list((tmp_path / "a" / "checkpoint").glob(".*"))


def test_a_snapshot_names_the_version_that_the_run_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package may be upgraded meanwhile; the process keeps its code."""
    upgrade = lambda _age: monkeypatch.setattr(keeping, "own_version", lambda: "9.9")  # noqa: E731
    lived(tmp_path / "a", "--steps 50 --snapshot-every never", monkeypatch, on_step=upgrade)
    (path,) = snapshots.found(tmp_path / "a" / "checkpoint")
    assert snapshots.read(path).facts["version"] == own_version()
