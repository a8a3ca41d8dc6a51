"""Snapshots are kept while a life is lived: it is the same life, and no action waits for them."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from horde_agent import cli
from horde_agent.life.life import Life
from horde_agent.record import RecordLost, snapshots
from horde_agent.runs import keeping
from horde_agent.runs.keeping import Keeper
from tests.agent.doubles import ToyBody

TOLD = ("weights_sha256", "learning_steps", "n_excursions", "steps")


def lived(run: Path, words: str, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> dict[str, Any]:
    monkeypatch.setattr(cli, "_make_env", lambda _config: ToyBody(**settings))
    monkeypatch.setattr(cli, "write_report", lambda path: path / "report.html")
    assert cli.main(f"learn --horizon 8 --seed 1 {words} --out {run}".split()) == 0
    told: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return told


def keep_each(n_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a second go by in so many steps, and each wait until the snapshot before it is written.

    So how many there are is not for other programs on the machine to say.
    """
    see, clock = Keeper.__call__, SimpleNamespace(now=0.0)

    def seeing(keeper: Any, life: Life) -> None:
        if keeper._thread is not None:
            keeper._thread.join()
        clock.now += 1.0 / n_steps
        see(keeper, life)

    monkeypatch.setattr(Keeper, "__call__", seeing)
    monkeypatch.setattr(keeping, "time", SimpleNamespace(monotonic=lambda: clock.now))


@pytest.mark.parametrize("backend", ["simulator", "simulator --realtime"], ids=["deferred", "eager"])
def test_a_life_with_snapshots_is_the_life_without(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each of them can be gone on from: one was copied while steps waited, or after an action had left."""
    words = f"--backend {backend} --steps 1500"
    without = lived(tmp_path / "a", f"{words} --snapshot-every never", monkeypatch)
    monkeypatch.setattr(snapshots.write, "__kwdefaults__", {"kept": 99})
    keep_each(150, monkeypatch)
    with_them = lived(tmp_path / "b", f"{words} --snapshot-every 1s", monkeypatch)
    assert {key: with_them[key] for key in TOLD} == {key: without[key] for key in TOLD}
    kept = list(snapshots.found(tmp_path / "b" / "checkpoint"))
    assert len(kept) >= 10
    for path in kept:
        state = snapshots.read(path).state
        assert any(name.startswith("life/student/horde/engine/") for name in state), path


def test_a_snapshot_tells_the_version_that_lives_and_not_what_was_installed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked up once: each look at what is installed costs a step, and memory where that has changed."""
    looked = []

    def own_version() -> str:
        looked.append("0.9")
        return f"0.9.{len(looked)}"

    monkeypatch.setattr(keeping, "own_version", own_version)
    monkeypatch.setattr(snapshots.write, "__kwdefaults__", {"kept": 99})
    keep_each(50, monkeypatch)
    lived(tmp_path / "a", "--steps 200 --snapshot-every 1s", monkeypatch)
    kept = [snapshots.read(path) for path in snapshots.found(tmp_path / "a" / "checkpoint")]
    assert len(kept) > 1
    assert {one.facts["version"] for one in kept} == {"0.9.1"}


def test_what_is_large_is_copied_when_the_action_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    copied, draw = Life.horde_state, Life._choose
    monkeypatch.setattr(Life, "horde_state", lambda life: (done.append("copied"), copied(life))[1])
    monkeypatch.setattr(Life, "_choose", lambda life: (done.append("chosen"), draw(life))[1])
    lived(tmp_path / "a", "--realtime --steps 60 --snapshot-every 0.001s", monkeypatch)
    places = [k for k, what in enumerate(done) if what == "copied"]
    assert places
    assert all(done[k - 1] == "chosen" for k in places)


def test_a_snapshot_without_room_is_told_of_and_the_one_before_it_stays(
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


def test_the_newest_two_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lived(tmp_path / "a", "--steps 300 --snapshot-every never", monkeypatch)
    (path,) = snapshots.found(tmp_path / "a" / "checkpoint")
    kept = snapshots.read(path)
    for step in (400, 500, 600):
        snapshots.write(path.parent, step, kept.state, {})
    assert [path.name for path in snapshots.found(path.parent)] == ["000000000600", "000000000500"]
    shutil.rmtree(path.parent / "000000000600")
    assert snapshots.read(path.parent / "000000000500").state.keys() == kept.state.keys()
