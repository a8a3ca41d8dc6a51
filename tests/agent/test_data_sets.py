"""Minari and LeRobot data sets: read, and written from a run."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from horde_agent import GVF, Channel, Gaussian, cli, interface_of, learn_from
from horde_agent.horde import Horde
from horde_agent.record import Flag, read
from horde_agent.runs.config import BadInput
from horde_agent.runs.data.lerobot import open_lerobot
from horde_agent.runs.data.minari import open_minari
from tests.agent.commands import summary_of, toy

BOX = spaces.Box(0.0, 1.0, (2,), np.float32)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", f"{tmp_path / 'minari'}")


def made(name: str, episodes: list[dict[str, Any]], action_space: spaces.Space[Any], observation: Any = BOX) -> Any:
    """Create a Minari data set below MINARI_DATASETS_PATH."""
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an author and others that are not given
        return minari.create_dataset_from_buffers(
            name, [EpisodeBuffer(**one) for one in episodes], observation_space=observation, action_space=action_space
        )


def episode(n: int, *, ends: bool, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Return an episode of n steps of two channels and two actions with b = .5; the last observation is (1, 1)."""
    rng = np.random.default_rng(seed)
    seen = rng.random((n + 1, 2)).astype(np.float32)
    seen[-1] = 1.0
    facts: dict[str, Any] = {
        "observations": seen,
        "actions": rng.integers(2, size=n),
        "rewards": np.arange(1.0, n + 1),
        "terminations": np.arange(n) == (n - 1 if ends else n),
        "truncations": np.arange(n) == (n if ends else n - 1),
        "infos": {"b": np.full(n + 1, 0.5)},
    }
    return facts | changes


def test_the_episodes_of_a_minari_data_set_end_as_it_says(tmp_path: Path) -> None:
    """Three rows and a termination, then five and a truncation; the reward belongs to the row that it led to."""
    data = made("toy/two-v0", [episode(3, ends=True), episode(5, ends=False, seed=1)], spaces.Discrete(2))
    interface = interface_of(data)
    assert interface.names == ("obs_0", "obs_1", "reward")
    assert interface.actions == ("action_0", "action_1")
    assert interface.coder.n_active == 8 * 2 + 4 * 2 + 1  # none for the reward
    rows = np.concatenate([part.rows for part in open_minari("toy/two-v0")])
    assert np.flatnonzero(rows["flags"] & Flag.TERMINATED).tolist() == [3]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 4]
    assert rows["action"].tolist().count(-1) == 2
    assert rows["observation"][:, 2].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]
    out = tmp_path / "run"
    assert cli.main(f"learn --minari toy/two-v0 --out {out}".split()) == 0
    summary = summary_of(out)
    assert (summary["learning_steps"], summary["n_questions"]) == (8, 2 * 3 * 3)


def test_a_dict_of_boxes_is_one_vector(tmp_path: Path) -> None:
    space = spaces.Dict({"pos": spaces.Box(-1, 1, (1,)), "vel": spaces.Box(-np.inf, np.inf, (2,))})
    seen = {"pos": np.full((5, 1), 0.5, np.float32), "vel": np.arange(10, dtype=np.float32).reshape(5, 2)}
    data = made("toy/dict-v0", [episode(4, ends=False, observations=seen)], spaces.Discrete(2), space)
    table = open_minari(data)
    rows = np.concatenate([part.rows for part in table])
    assert rows["observation"][1].tolist() == [0.5, 2.0, 3.0, 1.0]
    assert (table.header["low"][:3], table.header["high"][:3]) == ([-1.0, None, None], [1.0, None, None])


def test_a_gaussian_target_is_learned_from_densities(tmp_path: Path) -> None:
    """Behaviour N(0, 1), target N(1, .7), the next channel is the action: its mean is 1; without rho it would be 0."""
    rng, n = np.random.default_rng(3), 4_000
    actions = rng.normal(size=(n, 1))
    seen = np.zeros((n + 1, 2), dtype=np.float32)
    seen[1:, 0] = actions[:, 0]
    density = np.exp(-0.5 * actions[:, 0] ** 2) / np.sqrt(2 * np.pi)
    one = episode(n, ends=False, observations=seen, actions=actions, infos={"b": np.append(density, density[-1])})
    wide = spaces.Box(-5, 5, (2,), np.float32)
    data = made("toy/cont-v0", [one], spaces.Box(-np.inf, np.inf, (1,), np.float64), wide)
    interface = interface_of(data)
    assert interface.names == ("obs_0", "obs_1", "reward", "action_0", "b")
    policy = Gaussian([1.0], [0.7], [interface.index("action_0")], interface.index("b"))
    question = GVF("next", policy, Channel("obs_0"), continuation=0.0)
    learned = learn_from(data, questions=[question], out=tmp_path / "run", step_size=0.02, trace_rule="plain")
    tiles = [interface.encode(row["observation"]) for row in read(tmp_path / "run/log/life.rec").rows[-500:]]
    weights = learned.horde.predict(tiles[0])
    assert isinstance(learned.horde, Horde)
    assert np.mean([learned.horde.predict(t)[0] for t in tiles]) == pytest.approx(1.0, abs=0.3)
    assert np.isfinite(weights).all()
    with pytest.raises(ValueError, match="std must be > 0"):
        Gaussian([1.0], [0.0], [0], 1)
    with pytest.raises(ValueError, match="same shape"):
        Gaussian([1.0], [1.0, 2.0], [0], 1)


@pytest.mark.parametrize(("kind", "family"), [("minari", "excursions"), ("lerobot", "nexting")])
def test_an_exported_run_teaches_what_its_record_teaches(
    kind: str, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With excursions, drives, gaps and a termination, whose rows are not in the data set: the same weights."""
    pytest.importorskip(kind if kind == "minari" else "pyarrow")
    faults = {40: {"gap": 1}, 90: {"applied": 0}, 700: {"truncated": 1}}
    run, again = tmp_path / "life", tmp_path / "again"
    questions = f"--horizon 8 --questions {family}"
    assert toy(f"learn --steps 1000 --seed 1 --out {run} {questions}", monkeypatch, faults=faults) == 0
    assert cli.main(f"export {run} --to {kind} --out {tmp_path / kind}".split()) == 0
    source = "--minari horde/life-v0" if kind == "minari" else f"--data {tmp_path / kind}"
    assert cli.main(f"learn {source} --out {again} {questions}".split()) == 0
    for key in ("learning_steps", "weights_sha256", "n_questions", "n_features"):
        assert summary_of(again)[key] == summary_of(run)[key], key
    assert cli.main(f"export {run} --to {kind} --out {tmp_path / kind}".split()) == 2  # it exists


def test_an_exported_minari_data_set_passes_its_own_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """b, steps and predictions are infos; every observation and action is in its space."""
    minari = pytest.importorskip("minari")
    assert toy(f"learn --steps 400 --horizon 8 --out {tmp_path / 'life'}", monkeypatch) == 0
    run = (tmp_path / "life").rename(tmp_path / "a life")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", "a life", "--to", "minari", "--out", "minari"]) == 0
    data = minari.load_dataset("horde/a-life-v0")
    assert data.total_episodes > 1
    rows = read(run / "log" / "life.rec").rows
    assert data.total_steps == summary_of(run)["learning_steps"]
    for one in data.iterate_episodes():
        assert all(data.observation_space.contains(seen) for seen in one.observations)
        assert all(data.action_space.contains(action) for action in one.actions)
        at = np.searchsorted(rows["step"], one.infos["step"])
        assert one.infos["b"][:-1].tolist() == rows["b"][at][:-1].tolist()
        assert one.infos["predictions"].shape == (len(one.actions) + 1, summary_of(run)["n_questions"])
    assert data.sample_episodes(1)[0].truncations[-1]


def lerobot(path: Path, **changes: Any) -> Path:
    """Write a LeRobot folder with two episodes of four frames, continuous actions and a camera."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    vector = pa.list_(pa.float32(), 2)
    table = {
        "observation.state": pa.array([[k / 8, 1 - k / 8] for k in range(8)], vector),
        "action": pa.array([[0.1 * k, 0.0] for k in range(8)], vector),
        "timestamp": np.tile(np.arange(4) / 30, 2).astype(np.float32),
        "episode_index": np.repeat([0, 1], 4),
    }
    table |= {k: v for k, v in changes.items() if k in table}
    features = {name: {"dtype": "float32", "shape": [2], "names": ["pan", "tilt"]} for name in list(table)[:2]}
    features["observation.images.top"] = {"dtype": "video", "shape": [480, 640, 3], "names": None}
    info = {"codebase_version": changes.get("version", "v3.0"), "fps": 30, "features": features}
    (path / "meta").mkdir(parents=True)
    (path / "data/chunk-000").mkdir(parents=True)
    (path / "meta/info.json").write_text(json.dumps(info))
    pq.write_table(pa.table(table), path / "data/chunk-000/file-000.parquet")
    return path


def test_a_lerobot_folder_is_read_without_its_videos(tmp_path: Path) -> None:
    folder = lerobot(tmp_path / "arm")
    table = open_lerobot(folder)
    assert table.notes == ["Images and videos are left out: observation.images.top."]
    assert interface_of(folder).names == ("pan", "tilt", "action_pan", "action_tilt")
    rows = np.concatenate([part.rows for part in table])
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 4]
    out = tmp_path / "run"
    assert cli.main(f"learn --data {folder} --out {out}".split()) == 0
    assert (summary_of(out)["learning_steps"], summary_of(out)["n_questions"]) == (6, 6)
    assert any("left out" in note for note in json.loads((out / "details.json").read_text())["notes"])
    assert cli.main(f"learn --data {folder} --questions excursions --out {tmp_path / 'b'}".split()) == 2


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"version": "v2.1"}, "has the version v2.1, expected v3"),
        ({"episode_index": np.array([0, 0, 1, 1, 0, 0, 1, 1])}, "row 5, column 'episode_index': 0 must not decrease"),
        ({"timestamp": np.zeros(8, np.float32)}, "row 2, column 'timestamp': 0 must increase"),
    ],
)
def test_a_lerobot_folder_that_does_not_fit_is_refused(
    changes: dict[str, Any], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lerobot(tmp_path / "arm", **changes)
    assert cli.main(f"learn --data {folder} --out {tmp_path / 'run'}".split()) == 2
    assert what in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_minari_data_sets_that_do_not_fit_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made("toy/one-v0", [episode(3, ends=True)], spaces.Discrete(2))
    images = episode(3, ends=True, observations=np.zeros((4, 2, 2), np.float32))
    made("toy/image-v0", [images], spaces.Discrete(2), spaces.Box(0, 1, (2, 2)))
    numbers = episode(3, ends=True, actions=np.zeros((3, 2), np.int64))
    made("toy/multi-v0", [numbers], spaces.MultiDiscrete([2, 2]))
    unknown = made("toy/no-b-v0", [episode(3, ends=True, infos={})], spaces.Discrete(2))
    with pytest.raises(BadInput, match="flat Box"):
        interface_of("toy/image-v0")
    with pytest.raises(BadInput, match="action space must be Discrete"):
        interface_of("toy/multi-v0")
    with pytest.raises(BadInput, match="cannot be read"):
        interface_of("toy/none-v0")
    with pytest.raises(BadInput, match="probabilities of this data set are unknown"):
        learn_from(unknown, questions="excursions", out=tmp_path / "a")
    old = tmp_path / "minari/toy/one-v0/data/metadata.json"
    old.write_text(old.read_text().replace('"minari_version": "0.5', '"minari_version": "0.1'))
    assert cli.main(f"learn --minari toy/one-v0 --out {tmp_path / 'a'}".split()) == 2
    assert "does not support the dataset generated by Minari 0.1" in " ".join(capsys.readouterr().err.split())
    assert cli.main(f"learn --minari toy/one-v0 --data x --out {tmp_path / 'a'}".split()) == 2
    assert not (tmp_path / "a").exists()


def test_nothing_is_exported_of_a_run_without_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = lerobot(tmp_path / "arm")
    assert cli.main(f"learn --data {folder} --out {tmp_path / 'run'}".split()) == 0
    shutil.rmtree(tmp_path / "run/log")
    assert cli.main(f"export {tmp_path / 'run'} --to lerobot".split()) == 2
    assert "log" in capsys.readouterr().err
