"""Minari and LeRobot data sets, read and written; a run in other programs' formats, read by those programs."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from horde_agent import GVF, Behaviour, Channel, Gaussian, cli, interface_of, learn_from
from horde_agent.formats import lerobot as lerobot_format
from horde_agent.formats.arrays import chunks_of
from horde_agent.formats.columns import ChannelColumn, Columns
from horde_agent.formats.minari import open_minari
from horde_agent.formats.tables import Table, episodes_of
from horde_agent.horde import Horde
from horde_agent.record import NO_ACTION, READ_FIELDS, Flag, Phase, Recorder, Row, read
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.watch.reader import export_scalars
from tests.agent.commands import summary_of, toy
from tests.agent.table_files import columns_of, read_columns
from tests.facts import states

BOX = spaces.Box(0.0, 1.0, (2,), np.float32)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", f"{tmp_path / 'minari'}")


def made(
    name: str,
    episodes: list[dict[str, Any]],
    action_space: spaces.Space[Any],
    observation: Any = BOX,
) -> Any:
    """Create a Minari data set below MINARI_DATASETS_PATH."""
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an author and others that are not given
        return minari.create_dataset_from_buffers(
            name,
            [EpisodeBuffer(**one) for one in episodes],
            observation_space=observation,
            action_space=action_space,
        )


def episode(n: int, *, ends: bool, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Return an episode of n steps of two channels and two actions with b = .5; the last observation is (1, 1)."""
    rng = np.random.default_rng(seed)
    observations = rng.random((n + 1, 2)).astype(np.float32)
    observations[-1] = 1.0
    facts: dict[str, Any] = {
        "observations": observations,
        "actions": rng.integers(2, size=n),
        "rewards": np.arange(1.0, n + 1),
        "terminations": np.arange(n) == (n - 1 if ends else n),
        "truncations": np.arange(n) == (n if ends else n - 1),
        "infos": {"b": np.full(n + 1, 0.5)},
    }
    return facts | changes


def test_the_episodes_of_a_minari_data_set_end_as_it_says(tmp_path: Path) -> None:
    """Three rows and a termination, then five and a truncation; the reward belongs to the row that it led to."""
    data = made(
        "toy/two-v0", [episode(3, ends=True), episode(5, ends=False, seed=1)], spaces.Discrete(2)
    )
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


def test_a_truncated_episode_of_minari_is_read_as_one_of_a_table() -> None:
    """Minari's last observation is a row, which is truncated; the rows of both are learned from alike."""
    episodes = [episode(3, ends=False), episode(4, ends=True, seed=1), episode(2, ends=False)]
    data = made("toy/limits-v0", episodes, spaces.Discrete(2))
    expected = np.concatenate([part.rows for part in open_minari(data)])
    lengths = [4, 5, 3]
    is_last = np.zeros(12, dtype=bool)
    is_last[np.cumsum(lengths) - 1] = True
    is_terminal = is_last & (np.arange(12) == 8)
    table = {
        "o": np.concatenate([one["observations"] for one in episodes]),
        "a": np.concatenate([np.append(one["actions"], 0) for one in episodes]),
        "b": np.full(12, 0.5),
        "terminated": is_terminal,
        "truncated": is_last & ~is_terminal,
    }
    columns = columns_of(
        (ChannelColumn("o_0", "o_0"), ChannelColumn("o_1", "o_1")),
        **{name: name for name in ("b", "terminated", "truncated")},
        action="a",
        convention="observation",
    )
    rows = np.concatenate([part.rows for part in Table(lambda: chunks_of([table]), columns, "t")])
    for field in ("action", "b", "phase", "flags", "step"):
        np.testing.assert_array_equal(rows[field], expected[field], err_msg=field)
    np.testing.assert_array_equal(rows["observation"], expected["observation"][:, :2])


def test_a_dict_of_boxes_is_one_vector(tmp_path: Path) -> None:
    space = spaces.Dict({"pos": spaces.Box(-1, 1, (1,)), "vel": spaces.Box(-np.inf, np.inf, (2,))})
    observations = {
        "pos": np.full((5, 1), 0.5, np.float32),
        "vel": np.arange(10, dtype=np.float32).reshape(5, 2),
    }
    data = made(
        "toy/dict-v0",
        [episode(4, ends=False, observations=observations)],
        spaces.Discrete(2),
        space,
    )
    table = open_minari(data)
    rows = np.concatenate([part.rows for part in table])
    assert rows["observation"][1].tolist() == [0.5, 2.0, 3.0, 1.0]
    assert (table.header["low"][:3], table.header["high"][:3]) == (
        [-1.0, None, None],
        [1.0, None, None],
    )


def test_a_gaussian_target_is_learned_from_densities(tmp_path: Path) -> None:
    """Behaviour N(0, 1), target N(1, .7), the next channel is the action: its mean is 1; without rho it would be 0."""
    rng = np.random.default_rng(3)
    n = 4_000
    actions = rng.normal(size=(n, 1))
    observations = np.zeros((n + 1, 2), dtype=np.float32)
    observations[1:, 0] = actions[:, 0]
    density = np.exp(-0.5 * actions[:, 0] ** 2) / np.sqrt(2 * np.pi)
    one = episode(
        n,
        ends=False,
        observations=observations,
        actions=actions,
        infos={"b": np.append(np.nan, density)},
    )
    wide = spaces.Box(-5, 5, (2,), np.float32)
    data = made("toy/cont-v0", [one], spaces.Box(-np.inf, np.inf, (1,), np.float64), wide)
    interface = interface_of(data)
    assert interface.names == ("obs_0", "obs_1", "reward", "action_0", "b")
    policy = Gaussian([1.0], [0.7], [interface.index("action_0")], interface.index("b"))
    question = GVF("next", policy, Channel("obs_0"), continuation=0.0)
    learned = learn_from(
        data, questions=[question], out=tmp_path / "run", step_size=0.02, trace_rule="plain"
    )
    observations = read(tmp_path / "run/log/life.rec").rows["observation"][-500:]
    assert isinstance(learned.horde, Horde)
    predictions = [learned.horde.predict(interface.encode(x), x)[0] for x in observations]
    assert np.mean(predictions) == pytest.approx(1.0, abs=0.3)
    assert np.isfinite(predictions).all()
    on_policy = GVF("own", Behaviour(), Channel("obs_0"), continuation=0.5)
    with pytest.raises(BadInput, match=r"no action probabilities b.*'abtd'.*'own'"):
        learn_from(data, questions=[on_policy], out=tmp_path / "refused", algorithm="abtd")
    with pytest.raises(ValueError, match="std must be > 0"):
        Gaussian([1.0], [0.0], [0], 1)
    with pytest.raises(ValueError, match="same shape"):
        Gaussian([1.0], [1.0, 2.0], [0], 1)


SOURCES = {
    "parquet": "--data {0} --columns {0}-columns.toml",
    "minari": "--minari horde/life-v0",
    "lerobot": "--data {0}",
}


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("parquet", "excursions"),
        ("parquet", "nexting"),
        ("minari", "excursions"),
        ("lerobot", "nexting"),
    ],
)
def test_an_exported_run_teaches_what_its_record_teaches(
    kind: str, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With excursions, drives, gaps and a truncation: the same weights, and scores if all rows are there (Parquet)."""
    pytest.importorskip("minari" if kind == "minari" else "pyarrow")
    faults = {40: {"gap": 1}, 90: {"applied": 0}, 700: {"truncated": 1}}
    run = tmp_path / "life"
    second_run = tmp_path / "again"
    out = tmp_path / kind
    questions = f"--horizon 8 --questions {family}"
    assert (
        toy(f"learn --steps 1000 --seed 1 --out {run} {questions}", monkeypatch, faults=faults) == 0
    )
    assert cli.main(f"export {run} --to {kind} --out {out}".split()) == 0
    assert (
        cli.main(f"learn {SOURCES[kind].format(out)} --out {second_run} {questions}".split()) == 0
    )
    has_all = kind == "parquet"
    summary = summary_of(run)
    second_summary = summary_of(second_run)
    scores = ()
    if has_all:
        scores = ("steps", "n_excursions", "mean_nmsre")
    for key in ("learning_steps", "weights_sha256", "n_questions", "n_features", *scores):
        assert second_summary[key] == summary[key], key
    # It exists
    assert cli.main(f"export {run} --to {kind} --out {out}".split()) == (0 if has_all else 2)


@pytest.mark.parametrize("kind", ["parquet", "mcap", "lerobot", "minari"])
def test_an_origin_outlives_an_export(kind: str, tmp_path: Path) -> None:
    """Tables have the values of the file, and a columns file with the origin; float32 of data sets holds readings.

    Learning from each gives the same weights. Without the origin, float32 would merge all latitudes.
    """
    pytest.importorskip({"mcap": "mcap", "minari": "minari"}.get(kind, "pyarrow"))
    table = tmp_path / "gps.csv"
    columns = tmp_path / "gps.toml"
    run = tmp_path / "gps"
    out = tmp_path / kind
    source = f"--data {out}"
    latitudes = 52.1234567 + np.random.default_rng(0).integers(20, size=300) * 1e-8
    table.write_text("lat\n" + "".join(f"{latitude!r}\n" for latitude in latitudes.tolist()))
    columns.write_text(
        'period_s = 1.0\n[[channel]]\ncolumn = "lat"\norigin = 52.1234567\nscale = 1e7\n'
    )
    questions = "--questions nexting"
    learn = f"learn --data {table} --columns {columns} --out {run} {questions}"
    assert cli.main(learn.split()) == 0
    if kind == "mcap":
        out = tmp_path / "gps.mcap"
        source = f"--data {out} --columns {tmp_path / 'gps-columns.toml'}"
    elif kind == "minari":
        source = "--minari horde/gps-v0"
    elif kind == "parquet":
        source += f" --columns {out}-columns.toml"
    assert cli.main(f"export {run} --to {kind} --out {out}".split()) == 0
    second_run = tmp_path / "again"
    assert cli.main(f"learn {source} --out {second_run} {questions}".split()) == 0
    assert summary_of(second_run)["weights_sha256"] == summary_of(run)["weights_sha256"]
    if kind == "parquet":
        values = next(read_columns(out, ["lat"]))["lat"]
        assert values == pytest.approx(latitudes, abs=1e-14)


def test_a_turn_in_an_exported_recording_of_several_robots_is_a_gap() -> None:
    """Flags of a recording of two robots: a data set is one stream."""
    flags = np.array([Flag.GAP, 0, Flag.TURN, 0, Flag.TURN | Flag.STALE])
    columns = columns_of((ChannelColumn("x", low=0.0, high=1.0),), flags="f")
    table = Table(lambda: chunks_of([{"x": np.zeros(5), "f": flags}]), columns, "t")
    rows = np.concatenate([part.rows for part in table])
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 2, 4]


def test_each_field_of_a_row_that_is_read_is_that_of_the_table() -> None:
    """Fields without a meaning for other columns are copied; without it they would be 0, or their missing value."""
    written = {
        "step": [3, 4, 5, 9],
        "action": [0, 1, 0, NO_ACTION],
        "b": [0.5, 0.25, 1.0, np.nan],
        "phase": [Phase.BEHAVE, Phase.BEHAVE, Phase.EXCURSION, Phase.END],
        "flags": [Flag.GAP, 0, Flag.STALE, Flag.TERMINATED],
        "policy": [0, 0, 2**32 - 1, 0],
        "reward": [np.nan, 1.0, -2.0, 3.5],
    }
    written |= {name: [1, 2, 3, 4] for name in READ_FIELDS if name not in written}
    columns = columns_of((ChannelColumn("x", low=0.0, high=1.0),), **{k: k for k in written})
    arrays = {name: np.array(values) for name, values in written.items()}
    (part,) = Table(lambda: chunks_of([{"x": np.zeros(4), **arrays}]), columns, "t")
    for name, values in arrays.items():
        assert np.array_equal(part.rows[name], values, equal_nan=True), name


@pytest.mark.parametrize("is_last", [False, True])
def test_an_exported_episode_is_terminated_if_its_last_row_is(is_last: bool) -> None:
    recorder = Recorder(1)
    for step in range(4):
        if is_last:
            is_terminal = step == 3
        else:
            is_terminal = step == 2
        if is_terminal:
            flags = int(Flag.TERMINATED)
        else:
            flags = int(Flag.GAP) * (step == 0)
        if step == 3:
            phase = Phase.END
        else:
            phase = Phase.BEHAVE
        observation = np.zeros(1, dtype=np.float32)
        recorder.write(Row(step, 0.1 * step, observation, 0, 1.0, phase, flags, (0.0, 0.0, 0.0)))
    (episode,) = episodes_of([recorder.stream()])
    assert episode.is_terminated == is_last


def test_columns_of_an_exported_run_with_unknown_probabilities_have_no_b() -> None:
    header: dict[str, Any] = {
        "channels": [{"name": "x", "group": "x", "unit": "1", "is_sensor": True, "step": None}],
        "actions": ["one"],
        "period_s": 0.1,
        "low": [0.0],
        "high": [None],
        "tile_layout": None,
    }
    named = {"action": "action", "b": "b"}
    assert Columns.of_header(header, **named).actions.b == "b"
    assert Columns.of_header(header | {"b_known": False}, **named).actions.b is None


def test_an_exported_minari_data_set_passes_its_own_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert np.isnan(one.infos["b"][0])
        # In the info of the step that it led to
        assert one.infos["b"][1:].tolist() == rows["b"][at][:-1].tolist()
        assert one.infos["predictions"].shape == (
            len(one.actions) + 1,
            summary_of(run)["n_questions"],
        )
    assert data.sample_episodes(1)[0].truncations[-1]


def test_b_of_a_minari_data_set_belongs_to_the_action_that_led_to_its_row() -> None:
    """As Gymnasium's infos: entry k + 1 is of the step that took action k. The reset has none, or there is no entry."""
    b = np.array([0.1, 0.2, 0.3, 0.4])
    with_reset = {"b": np.append(np.nan, b)}
    of_steps = {"b": b}
    for name, infos in (("reset", with_reset), ("steps", of_steps)):
        made(f"toy/{name}-v0", [episode(4, ends=False, infos=infos)], spaces.Discrete(2))
        table = open_minari(f"toy/{name}-v0")
        rows = np.concatenate([part.rows for part in table])
        assert rows["b"][:-1].tolist() == b.tolist()
        assert states(table.notes[0], "b was read", "info")


def test_b_in_the_row_of_its_action_is_read_if_the_columns_say_so(tmp_path: Path) -> None:
    b = np.array([0.1, 0.2, 0.3, 0.4, np.nan])
    made("toy/row-v0", [episode(4, ends=False, infos={"b": b})], spaces.Discrete(2))
    with pytest.raises(BadInput, match=r"row 4, column 'b': nan must be in \(0, 1\]"):
        list(open_minari("toy/row-v0"))
    file = tmp_path / "columns.toml"
    file.write_text('b = "infos/b"\n')
    rows = np.concatenate([part.rows for part in open_minari("toy/row-v0", file)])
    assert rows["b"][:-1].tolist() == b[:-1].tolist()


def test_a_minari_data_set_of_an_environment_has_the_b_of_each_action() -> None:
    """The probability is .2 for action 0 and .8 for action 1: a row off would mix them up.

    Reset's info comes first, then that of each step, as in Minari's DataCollector, which needs jax.
    """
    env = Biased()
    rng = np.random.default_rng(0)
    episodes = []
    for seed in range(3):
        observation, info = env.reset(seed=seed)
        observations = [observation]
        infos = [info]
        actions = (rng.random(20) < 0.8).astype(int)
        for action in actions.tolist():
            observation, _, _, _, info = env.step(action)
            observations.append(observation)
            infos.append(info)
        recorded = {
            "observations": np.array(observations),
            "infos": {"b": np.array([info["b"] for info in infos])},
        }
        episodes.append(episode(20, ends=False, actions=actions, **recorded))
    made("toy/collected-v0", episodes, spaces.Discrete(2))
    rows = np.concatenate([part.rows for part in open_minari("toy/collected-v0")])
    acted = rows[rows["phase"] == Phase.BEHAVE]
    assert len(acted) == 60
    assert acted["b"].tolist() == np.where(acted["action"] == 1, 0.8, 0.2).tolist()


class Biased(gymnasium.Env[Any, Any]):
    """Says in the info of each step with which probability its action was chosen."""

    observation_space = BOX
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {"b": np.nan}

    def step(self, action: int) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {"b": 0.8 if action else 0.2}


def test_actions_of_a_minari_data_set_are_counted_from_its_first_one() -> None:
    actions = np.array([1, 2, 3, 1])
    made("toy/start-v0", [episode(4, ends=False, actions=actions)], spaces.Discrete(3, start=1))
    rows = np.concatenate([part.rows for part in open_minari("toy/start-v0")])
    assert rows["action"].tolist() == [0, 1, 2, 0, -1]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (
            {"observations": np.zeros((4, 2), np.float32)},
            "episode 1: 4 rewards and 4 observations, expected 5",
        ),
        ({"actions": np.zeros(3, np.int64)}, "episode 1: 4 rewards and 3 actions, expected 4"),
        ({"infos": {"b": np.ones(2)}}, "episode 1: 4 rewards and 2 values of b"),
        (
            {"terminations": np.array([0, 1, 0, 1], bool)},
            "row 9, column 'terminated': True marks a terminal row",
        ),
    ],
)
def test_an_incomplete_episode_of_a_minari_data_set_is_named(
    changes: dict[str, Any], what: str
) -> None:
    whole = [episode(5, ends=True), episode(4, ends=False, **changes)]
    data = made("toy/short-v0", whole, spaces.Discrete(2))
    with pytest.raises(BadInput, match=what):
        list(open_minari(data))


def test_a_minari_data_set_with_a_damaged_file_is_refused(tmp_path: Path) -> None:
    made("toy/whole-v0", [episode(5, ends=True), episode(5, ends=True)], spaces.Discrete(2))
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "minari/toy/whole-v0/data/main_data.hdf5", "r+") as file:
        del file["episode_1"]["observations"]
    with pytest.raises(BadInput, match="the Minari data set toy/whole-v0 cannot be read"):
        list(open_minari("toy/whole-v0"))


def lerobot(path: Path, n_frames: int = 4, **changes: Any) -> Path:
    """Write a LeRobot folder with two episodes of `n_frames`, continuous actions and a camera."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    vector = pa.list_(pa.float32(), 2)
    n = 2 * n_frames
    table = {
        "observation.state": pa.array([[k / n, 1 - k / n] for k in range(n)], vector),
        "action": pa.array([[0.1 * k, 0.0] for k in range(n)], vector),
        "timestamp": np.tile(np.arange(n_frames) / 30, 2).astype(np.float32),
        "episode_index": np.repeat([0, 1], n_frames),
    }
    table |= {k: v for k, v in changes.items() if k in table}
    features = {
        name: {"dtype": "float32", "shape": [2], "names": ["pan", "tilt"]}
        for name in list(table)[:2]
    }
    features["observation.images.top"] = {"dtype": "video", "shape": [480, 640, 3], "names": None}
    for name, values in changes.get("added", {}).items():
        table[name] = values
        features[name] = {"dtype": str(values.dtype), "shape": [1], "names": None}
    features |= changes.get("features", {})
    info = {
        "codebase_version": changes.get("version", "v3.0"),
        "fps": changes.get("fps", 30),
        "features": features,
    }
    (path / "meta").mkdir(parents=True)
    (path / "data/chunk-000").mkdir(parents=True)
    (path / "meta/info.json").write_text(json.dumps(info))
    pq.write_table(pa.table(table), path / "data/chunk-000/file-000.parquet")
    return path


def test_a_lerobot_folder_is_read_without_its_videos(tmp_path: Path) -> None:
    """Without discrete actions, it is learned from up to row 14 of 20: 9 transitions of one episode, 3 of the other."""
    folder = lerobot(tmp_path / "arm", n_frames=10)
    table = lerobot_format.FORMAT.open(folder, None)
    assert table.notes == ["Images and videos are left out: observation.images.top."]
    assert interface_of(folder).names == ("pan", "tilt", "action_pan", "action_tilt")
    assert interface_of(str(folder)).period_s == 1 / 30
    rows = np.concatenate([part.rows for part in table])
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 10]
    out = tmp_path / "run"
    assert cli.main(f"learn --data {folder} --out {out}".split()) == 0
    assert (summary_of(out)["learning_steps"], summary_of(out)["n_questions"]) == (12, 6)
    assert any(
        "left out" in note for note in json.loads((out / "details.json").read_text())["notes"]
    )
    assert (
        cli.main(f"learn --data {folder} --questions excursions --out {tmp_path / 'b'}".split())
        == 2
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"version": "v1.6"}, "has the version v1.6, expected v2.0, v2.1 or v3"),
        (
            {"episode_index": np.array([0, 0, 1, 1, 0, 0, 1, 1])},
            "row 5, column 'episode_index': 0 must not decrease",
        ),
        ({"timestamp": np.zeros(8, np.float32)}, "row 2, column 'timestamp': 0 must increase"),
        ({"fps": None}, "info.json must have fps, a number > 0, not None"),
        ({"fps": "30"}, "info.json must have fps, a number > 0, not '30'"),
        ({"fps": 0}, "info.json must have fps, a number > 0, not 0"),
        ({"fps": 10**400}, "info.json must have fps, a number > 0, not 1000"),
        (
            {"features": {"action": {"dtype": "float32", "shape": None}}},
            "the feature action must have a dtype",
        ),
        (
            {"features": {"x": {"dtype": "f", "shape": [0]}}},
            "the feature x must have a dtype, a text, and a shape",
        ),
        ({"features": {"x": 3}}, "the feature x must have a dtype, a text, and a shape"),
        (
            {"features": {"observation.state": {"dtype": "float32", "shape": [2, 2]}}},
            "must be a vector",
        ),
    ],
)
def test_a_lerobot_folder_that_does_not_fit_is_refused(
    changes: dict[str, Any], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lerobot(tmp_path / "arm", **changes)
    assert cli.main(f"learn --data {folder} --out {tmp_path / 'run'}".split()) == 2
    assert what in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_arguments_of_tables_are_refused_for_a_data_set_that_describes_itself(
    tmp_path: Path,
) -> None:
    """But rows without a number may be dropped: of the others, 9 + 2 transitions are in the first 70 %."""
    pa = pytest.importorskip("pyarrow")
    states = pa.array([[k / 20, 0.5] for k in range(19)] + [None], pa.list_(pa.float32(), 2))
    folder = lerobot(tmp_path / "arm", n_frames=10, **{"observation.state": states})
    given: dict[str, Any] = {"questions": "nexting", "out": tmp_path / "run"}
    for ignored in (
        {"channels": ["x"]},
        {"convention": "transition"},
        {"b": np.ones(20)},
        {"times": np.arange(20)},
    ):
        with pytest.raises(BadInput, match=f"{next(iter(ignored))} .*describes itself"):
            learn_from(folder, **given, **ignored)
    with pytest.raises(BadInput, match=r'row 20, .* set missing = "gap"'):
        learn_from(folder, **given, missing="error")
    assert learn_from(folder, **given, missing="gap").summary["learning_steps"] == 11
    with pytest.raises(BadInput, match='missing must be one of "reading", "gap", "error", not "x"'):
        learn_from(folder, questions="nexting", out=tmp_path / "again", missing="x")


NAMES = [
    (["pan", "tilt"], ("pan", "tilt")),
    ({"motors": ["pan", "tilt"]}, ("pan", "tilt")),
    ({"delta_x": 0, "delta_y": 1}, ("delta_x", "delta_y")),
    ({"delta_y": 1, "delta_x": 0}, ("delta_x", "delta_y")),
    ({"a": 1, "b": 2}, ("obs_0", "obs_1")),
    ({"a": None, "b": None}, ("obs_0", "obs_1")),
    (["one"], ("obs_0", "obs_1")),
    (None, ("obs_0", "obs_1")),
    (7, ("obs_0", "obs_1")),
]


@pytest.mark.parametrize(("names", "channels"), NAMES)
def test_the_numbers_of_a_lerobot_feature_have_its_names(
    names: Any, channels: Any, tmp_path: Path
) -> None:
    feature = {"dtype": "float32", "shape": [2], "names": names}
    assert (
        interface_of(lerobot(tmp_path / "arm", features={"observation.state": feature})).names[:2]
        == channels
    )


def test_the_next_reward_of_a_lerobot_frame_is_a_channel_of_the_next_frame(tmp_path: Path) -> None:
    """next.done is true at the end of each episode, terminal or not: a gap, unless the columns say more."""
    added = {
        "next.reward": np.arange(1.0, 9.0, dtype=np.float32),
        "next.done": np.tile([False] * 3 + [True], 2),
    }
    folder = lerobot(tmp_path / "arm", added={**added, "next.success": np.zeros(8, dtype=bool)})
    table = lerobot_format.FORMAT.open(folder, None)
    assert interface_of(folder).names == ("pan", "tilt", "reward", "action_pan", "action_tilt")
    rows = np.concatenate([part.rows for part in table])
    assert rows["observation"][:, 2].tolist() == [0, 1, 2, 3, 0, 5, 6, 7]
    assert not (rows["flags"] & Flag.TERMINATED).any()
    assert table.notes[1] == "Not read: next.done, next.success."
    assert states(table.notes[2], "next.reward", "next frame")
    assert "next.done ends episodes by a gap" in table.notes[3]
    file = tmp_path / "columns.toml"
    file.write_text('terminated = "next.done"\nconvention = "transition"\n')
    rows = np.concatenate([part.rows for part in lerobot_format.FORMAT.open(folder, file)])
    assert rows["observation"][:, 2].tolist() == [0, 1, 2, 3, 4, 0, 5, 6, 7, 8]
    assert np.flatnonzero(rows["flags"] & Flag.TERMINATED).tolist() == [4, 9]


def test_minari_data_sets_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert "does not support the dataset generated by Minari 0.1" in " ".join(
        capsys.readouterr().err.split()
    )
    assert not (tmp_path / "a").exists()


# ---- Parquet, MCAP and TensorBoard -----------------------------------------------------------------------------------


def test_parquet_holds_what_the_record_holds(toy_run: Path, tmp_path: Path) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    assert cli.main(["export", str(toy_run), "--out", str(tmp_path / "table")]) == 0
    table = dataset.dataset(tmp_path / "table", partitioning="hive").to_table()
    rows = read(toy_run / "log" / "life.rec").rows
    assert table["step"].to_pylist() == rows["step"].tolist()
    assert table["b"].to_numpy().tobytes() == rows["b"].tobytes()
    assert table["saw"].to_numpy().tolist() == rows["observation"][:, 1].tolist()
    (first_event, *_) = (toy_run / "log/events.jsonl").read_text().splitlines()
    began = datetime.fromisoformat(json.loads(first_event)["time"])
    last_day = began + timedelta(
        seconds=float(rows["t"][-1])
    )  # another one shortly before midnight
    days = {str(day) for day in table["day"].to_pylist()}
    assert days == {f"{day:%Y-%m-%d}" for day in (began, last_day)}
    events = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "table-events.parquet")
    assert events["event"].to_pylist() == ["began", "snapshot", "ended"]


def test_each_file_becomes_a_table_of_its_days(tmp_path: Path) -> None:
    """A life that began two seconds before midnight, three seconds a file: the first one spans two days."""
    dataset = pytest.importorskip("pyarrow.dataset")
    folder = RunFolder(tmp_path)
    folder.log.mkdir()
    event = {"step": 0, "event": "began", "time": "2026-02-28T23:59:58+00:00"}
    checksum = crc32(json.dumps(event).encode())
    folder.events.path.write_text(json.dumps({**event, "crc": checksum}) + "\n")
    recorder = Recorder(3, folder.life, {"period_s": 0.1}, segment_s=3.0)
    for step in range(70):
        observation = np.full(3, step, dtype=np.float32)
        recorder.write(
            Row(step, step / 10, observation, 0, 1.0, Phase.BEHAVE, Flag.NONE, (0.0, 0.0, 0.0))
        )
    recorder.flush()
    assert cli.main(["export", str(tmp_path)]) == 0
    files = {
        str(path.relative_to(folder.exported))
        for path in folder.exported.rglob("*")
        if path.is_file()
    }
    of_march = (f"day=2026-03-01/{name}.parquet" for name in ("life", "life-2", "life-3"))
    assert files == {"day=2026-02-28/life.parquet", *of_march}
    table = dataset.dataset(folder.exported, partitioning="hive").to_table().sort_by("step")
    assert table["obs_2"].to_pylist() == list(range(70))
    assert [str(day) for day in table["day"].to_pylist()].count("2026-02-28") == 20
    recorder.close()
    mtime_ns = (folder.exported / "day=2026-03-01/life-2.parquet").stat().st_mtime_ns
    assert cli.main(["export", str(tmp_path)]) == 0
    assert dataset.dataset(folder.exported, partitioning="hive").to_table().num_rows == 70
    assert (folder.exported / "day=2026-03-01/life-2.parquet").stat().st_mtime_ns == mtime_ns, (
        "an up-to-date file is not written again"
    )


def scalars_in(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the curves that TensorBoard's own reader finds."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def test_tensorboard_shows_the_curves_of_a_run_and_a_second_export_adds_nothing(
    toy_run: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        assert (
            cli.main(["export", str(toy_run), "--to", "tensorboard", "--out", str(tmp_path)]) == 0
        )
    scalars = scalars_in(tmp_path)
    summary = json.loads((toy_run / "summary.json").read_text())
    curve = [line.split(",") for line in (toy_run / "mspbe_curve.csv").read_text().splitlines()]
    step = curve[0].index("step")
    mspbe = curve[0].index("mspbe_scalar_mean")
    assert [s for s, _ in scalars["mspbe/mean"]] == [int(row[step]) for row in curve[1:]]
    np.testing.assert_allclose(
        [v for _, v in scalars["mspbe/mean"]], [float(row[mspbe]) for row in curve[1:]], rtol=1e-6
    )
    assert scalars["life/excursions"] == [(1200, summary["n_excursions"])]
    assert scalars["demons/diverged"] == [(1200, 0.0)]


def test_export_follows_a_run_to_its_end(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three looks: the life has a curve of one line, then of two, then it is over. Each line is written once."""
    living = tmp_path / "living"
    shutil.copytree(toy_run, living)
    for name in ("summary.json", "learning_curve.csv", "mspbe_curve.csv", "questions.csv"):
        (living / name).unlink()
    status_file = living / "live" / "now.json"
    curve = living / "live" / "curve.csv"
    status = json.loads(status_file.read_text()) | {"state": "living"}
    looks = []

    def lives_on(_seconds: float) -> None:
        looks.append(len(looks))
        if len(looks) == 2:
            shutil.copy(toy_run / "summary.json", living)
            status_file.write_text(json.dumps(status | {"state": "over"}))
            return
        status_file.write_text(json.dumps(status | {"step": 200, "gaps": 3}))
        with curve.open("a") as file:
            file.write("200,1.0,0.5,0.25,0\n")

    status_file.write_text(json.dumps(status | {"step": 100, "gaps": 1}))
    curve.write_text("100,1.0,2.0,0.75,0\n")
    with np.load(living / "live" / "demons.npz") as file:
        demons = dict(file)
    demons["nmsre"][4:] = np.nan
    demons["nmsre"][:4] = (0.5, 2.0, 4.0, 100.0)
    demons["diverged"][3] = True  # it is not counted
    np.savez(living / "live" / "demons.npz", **demons)
    contents = {path: path.read_bytes() for path in living.rglob("*.rec")}
    monkeypatch.setattr("horde_agent.watch.reader.time.sleep", lives_on)
    export_scalars(living, tmp_path / "out", follow=True)
    scalars = scalars_in(tmp_path / "out")
    assert scalars["nmsre/mean"] == [(100, 2.0), (200, 0.5)]
    assert scalars["mspbe/mean"] == [(100, 0.75), (200, 0.25)]
    assert scalars["life/gaps"] == [(100, 1.0), (200, 3.0), (1200, 0.0)]
    assert scalars["nmsre/median"][0] == (100, 2.0)
    assert scalars["nmsre/share_below_1"][0] == (100, pytest.approx(1 / 3))
    assert {path: path.read_bytes() for path in living.rglob("*.rec")} == contents


def test_following_ends_with_a_life_that_was_killed(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """now.json is old, and no process has the folder."""
    killed = tmp_path / "killed"
    shutil.copytree(toy_run, killed)
    (killed / "summary.json").unlink()
    path = killed / "live" / "now.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": "living"}))
    os.utime(path, (0.0, 0.0))
    monkeypatch.setattr(
        "horde_agent.watch.reader.time.sleep", lambda _: pytest.fail("it waits for a dead life")
    )
    export_scalars(killed, tmp_path / "out", follow=True)
