"""What an object shows of itself in a notebook or a debugger, and what an editor offers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from horde_agent import (
    GVF,
    Behaviour,
    Channel,
    ConstantAction,
    Horde,
    Interface,
    LearnerConfig,
    Life,
    StickyRandom,
    cli,
    learn_from,
)
from tests.agent.doubles import ToyBody
from tests.agent.shared import robot_interface


def test_an_interface_shows_its_channels_actions_and_tiles() -> None:
    shown = repr(robot_interface())
    assert "57 channels: bus_voltage, battery_voltage_40, ..., overheating" in shown
    assert "5 actions: forward, reverse, " in shown
    assert "period_s=0.1" in shown
    assert "TileCoder(n_inputs=57, n_features=6065, n_active=457)" in shown
    assert len(shown) < 300


def test_a_horde_shows_its_demons_and_rules_and_flushes_nothing() -> None:
    """A debugger that shows a deferred Horde must not change the rounding of its weights."""
    policy = ConstantAction(0, n_actions=2)
    questions = [GVF(f"q{k}", policy, Channel(0), continuation=0.5) for k in range(9)]
    questions.append(GVF("last", policy, Channel(0), continuation=0.5, algorithm="tidbd"))
    config = LearnerConfig(dtype="float64")
    horde = Horde(questions, n_features=4, n_active=1, config=config, mode="deferred")
    horde.begin(np.array([0.5]), np.array([1]))
    horde.learn(0, 0.5, np.array([0.5]), np.array([2]))
    assert horde.n_waiting == 1
    shown = repr(horde)
    assert horde.n_waiting == 1
    assert shown == (
        "Horde(10 demons: q0, q1, ..., last; n_features=4; n_active=1; algorithm=gtd, tidbd; trace_rule=clipped)"
    )


def test_a_life_shows_its_counts_environment_behaviour_and_horde() -> None:
    env = ToyBody()
    interface = Interface.of(env)
    question = GVF("q", ConstantAction(0, n_actions=3), Channel(0), continuation=0.5)
    horde = Horde(
        [question], n_features=interface.coder.n_features, n_active=interface.coder.n_active
    )
    with Life(env, horde, StickyRandom(3), np.random.default_rng(0), interface=interface) as life:
        life.run(20)
        shown = repr(life)
    assert f"steps=20; learning_steps={life.student.learning_steps}; gaps=0" in shown
    assert "env=ToyBody; behaviour=StickyRandom; horde=Horde(1 demons: q;" in shown


def test_a_data_set_has_a_prediction_for_each_row(tmp_path: Path) -> None:
    """Row by row those of the Horde; for other observations of the same channels too."""
    rng = np.random.default_rng(0)
    observations = rng.random((300, 2))
    policy = ConstantAction(0, n_actions=2)
    questions = [GVF(f"q{k}", policy, Channel(k), continuation=0.5) for k in range(2)]
    learned = learn_from(
        observations,
        rng.integers(2, size=300),
        b=np.full(300, 0.5),
        questions=questions,
        out=tmp_path / "run",
    )
    predictions = learned.predictions()
    assert predictions.shape == (300, 2)
    float32 = observations.astype(np.float32)
    expected = [learned.horde.predict(learned.interface.encode(row), row) for row in float32]
    np.testing.assert_array_equal(predictions, expected)
    np.testing.assert_array_equal(learned.predictions(observations[:40]), predictions[:40])
    assert predictions.std() > 0.0
    with pytest.raises(
        ValueError, match=r"observations must have the shape \(n_rows, 2\), not \(3, 5\)"
    ):
        learned.predictions(np.zeros((3, 5)))


def test_an_export_has_the_predictions_of_learned_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In parts of 70 rows; questions that were given in Python are known in Python only."""
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("horde_agent.runs.reporting.exporting.PREDICTED_ROWS", 70)
    run = tmp_path / "run"
    learned = learn_from(np.random.default_rng(0).random((300, 2)), questions="nexting", out=run)
    assert cli.main(["export", str(run), "--out", str(tmp_path / "out"), "--predictions"]) == 0
    table = parquet.read_table(tmp_path / "out-predictions.parquet")
    assert table.column_names == ["step", *learned.horde.names]
    assert table["step"].to_pylist() == list(range(300))
    exported = np.column_stack([table[name].to_numpy() for name in learned.horde.names])
    np.testing.assert_array_equal(exported, learned.predictions().astype(np.float32))
    for other in ("lerobot", "tensorboard"):
        assert cli.main(["export", str(run), "--to", other, "--predictions"]) == 2
        sentence = f"--predictions requires --to parquet or mcap, not {other}"
        assert sentence in capsys.readouterr().err

    question = GVF("q", Behaviour(), Channel(0), continuation=0.5)
    learn_from(np.zeros((30, 1)), questions=[question], out=tmp_path / "own")
    assert (
        cli.main(
            ["export", str(tmp_path / "own"), "--out", str(tmp_path / "other"), "--predictions"]
        )
        == 2
    )
    assert "the questions of this run were given in Python" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
