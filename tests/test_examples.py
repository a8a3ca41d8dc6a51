"""The examples run as a reader would run them, with tiny numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SAYS = {
    "first_life.py": "median NMSRE",
    "own_questions.py": "steps to contact, straight on",
    "any_env.py": "steps standing, at random",
    "wall_follower.py": "nearness on the left, if it followed the wall",
    "epsilon_greedy.py": "with the least predicted nearness",
    "read_a_life.py": "of them of the behaviour",
    "own_robot.py": "promises kept, and 45 demons learned of it",
    "train_ppo.py": "transitions learned by 795 demons; 0 set aside",
}


ON_THE_EMULATOR = ("--backend", "emulated")


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(SAYS)


@pytest.mark.sim
@pytest.mark.parametrize(("name", "options"), [*((name, ()) for name in SAYS), ("train_ppo.py", ON_THE_EMULATOR)])
def test_the_example_runs_and_says_what_it_found(name: str, options: tuple[str, ...], tmp_path: Path) -> None:
    if name == "train_ppo.py":
        pytest.importorskip("stable_baselines3")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / name, "260", *options],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert SAYS[name] in ran.stdout
