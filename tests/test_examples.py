"""The examples run as a reader would run them, with few steps, in this process, which has compiled their kernels."""

from __future__ import annotations

import runpy
import sys
import tempfile
from pathlib import Path

import pytest

from horde_agent.learning import plain

ROOT = Path(__file__).resolve().parents[1]
PRINTS = {
    "first_life.py": "median NMSRE",
    "own_questions.py": "steps to contact, straight on",
    "wall_follower.py": "nearness on the left, if it followed the wall",
    "epsilon_greedy.py": "with the least predicted nearness",
    "find_policies.py": "mean return of each policy",
    "read_a_life.py": "of them of the behaviour",
    "own_robot.py": "promises kept, and 45 demons learned of it",
    "train_ppo.py": "transitions learned by 5 demons; 0 set aside",
}
ON_THE_EMULATOR = ("--backend", "emulated")


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(PRINTS)


@pytest.mark.sim
@pytest.mark.parametrize(("name", "options"), [*((name, ()) for name in PRINTS), ("train_ppo.py", ON_THE_EMULATOR)])
def test_the_example_runs_and_prints_what_it_found(
    name: str,
    options: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if name == "train_ppo.py":
        pytest.importorskip("stable_baselines3")
    monkeypatch.setattr(plain, "SMALLEST_SHARED_WORK", 10**9)  # one thread: its kernels compile faster
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [name, "250", *options])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert PRINTS[name] in capsys.readouterr().out
