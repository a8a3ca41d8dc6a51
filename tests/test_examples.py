"""The examples run as a reader would run them, with few steps, in this process, which has compiled their kernels."""

from __future__ import annotations

import importlib
import runpy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from horde_agent import GVF, Channel, ConstantAction, Horde, LearnerConfig
from horde_agent.learning import plain
from horde_agent.runs.reporting import report

ROOT = Path(__file__).resolve().parents[1]
PRINTS = {
    "gtd_in_one_file.py": "light ahead",
    "first_life.py": "median NMSRE",
    "own_questions.py": "steps to contact, straight on",
    "wall_follower.py": "nearness on the left, if it followed the wall",
    "epsilon_greedy.py": "mean nearness, smallest predicted",
    "find_policies.py": "mean return",
    "read_a_life.py": "of them of the behaviour",
    "own_robot.py": "12 tests passed, and 45 demons learned of it",
    "train_ppo.py": "transitions learned by 5 demons\n0 demons diverged",
}
NEEDS_A_SERVER = {"ros2_robot.py"}  # tests/env/test_ros2_robot.py
NEEDS_A_PLANT = {"waste_water.py"}
ON_THE_EMULATOR = ("--backend", "emulated")


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {
        *PRINTS,
        *NEEDS_A_SERVER,
        *NEEDS_A_PLANT,
    }


@pytest.mark.sim
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, ()) for name in PRINTS if name != "train_ppo.py"),
        pytest.param("train_ppo.py", (), marks=pytest.mark.slow),
        ("train_ppo.py", ON_THE_EMULATOR),
    ],
)
def test_the_example_runs_and_prints_what_it_found(
    name: str,
    options: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if name == "train_ppo.py":
        pytest.importorskip("stable_baselines3")
    # One thread: its kernels compile faster
    monkeypatch.setattr(plain, "SMALLEST_SHARED_WORK", 10**9)
    monkeypatch.setattr(report, "draw_pictures", lambda *_: [])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [name, "250", *options])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert PRINTS[name] in capsys.readouterr().out


@pytest.mark.slow
def test_the_plant_is_learned_from_as_a_table_and_from_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With waves in the place of the plant, which rise after the history: frozen weights are worse there."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example = importlib.import_module("waste_water")
    highest = np.array(list(example.CHANNELS.values()))

    def waves(n_days: int) -> Iterator[np.ndarray]:
        for row in range(n_days * example.ROWS_A_DAY):
            level = 0.6
            if row < 10 * example.ROWS_A_DAY:
                level = 0.2
            yield highest * (level + 0.1 * np.sin(row / 15 + np.arange(len(highest))))

    monkeypatch.setattr(example, "simulated", waves)
    monkeypatch.setattr(example, "DEAD_DAYS", range(2, 4))
    example.main(10, 12, str(tmp_path / "plant"))

    *_, last = capfd.readouterr().out.splitlines()
    assert float(last.split()[-1]) < 0.9
    further = (tmp_path / "plant" / "further.csv").read_text().splitlines()[1:]
    is_dead = [
        line.split(",")[1 + list(example.CHANNELS).index("effluent_ammonium")] == ""
        for line in further
    ]
    assert np.flatnonzero(is_dead).tolist() == list(range(2 * 96, 4 * 96))


def test_the_horde_learns_what_gtd_in_one_file_learns() -> None:
    """The same walk, in float64: weights differ by rounding only."""
    example = runpy.run_path(str(ROOT / "examples" / "gtd_in_one_file.py"))
    walk = example["random_walk"](2_000, np.random.default_rng(1))
    theta, w = example["learn"](walk)

    config = LearnerConfig.paper(step_size=0.1, secondary_ratio=0.1, dtype="float64")
    question = GVF("light ahead", ConstantAction(1, 2), Channel(0), continuation=0.9, lam=0.9)
    horde = Horde(
        [question], n_features=example["N_FEATURES"], n_active=example["N_TILINGS"], config=config
    )

    def state(position: float) -> tuple[np.ndarray, np.ndarray]:
        return np.array([example["light"](position)]), np.array(example["active_tiles"](position))

    horde.begin(*state(walk[0].position))
    for step in walk:
        horde.learn(step.action, 0.5, *state(step.next_position))

    horde_theta, horde_w = horde.weights()
    assert np.abs(theta).max() > 0.1
    np.testing.assert_allclose(horde_theta[0], theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(horde_w[0], w, rtol=0, atol=1e-12)
