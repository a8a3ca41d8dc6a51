"""The record of a life in other programs' formats, read by those programs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.record import Flag, Phase, Recorder, Row, read
from horde_agent.runs.keeping.folder import RunFolder
from horde_agent.watch.reader import export_scalars
from tests.agent.commands import toy


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "a"
    with pytest.MonkeyPatch.context() as patch:
        assert toy(f"learn --steps 300 --horizon 8 --seed 1 --out {run}", patch) == 0
    return run


def test_parquet_holds_what_the_record_holds(run: Path, tmp_path: Path) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    assert cli.main(["export", str(run), "--out", str(tmp_path / "table")]) == 0
    table = dataset.dataset(tmp_path / "table", partitioning="hive").to_table()
    rows = read(run / "log" / "life.rec").rows
    assert table["step"].to_pylist() == rows["step"].tolist()
    assert table["b"].to_numpy().tobytes() == rows["b"].tobytes()
    assert table["saw"].to_numpy().tolist() == rows["observation"][:, 1].tolist()
    today = datetime.fromisoformat(json.loads((run / "log/events.jsonl").read_text().splitlines()[0])["time"])
    assert {str(day) for day in table["day"].to_pylist()} == {f"{today:%Y-%m-%d}"}
    events = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "table-events.parquet")
    assert events["event"].to_pylist() == ["began", "snapshot", "ended"]


def test_each_file_becomes_a_table_of_its_days(tmp_path: Path) -> None:
    """A life that began two seconds before midnight, three seconds a file: the first one spans two days."""
    dataset = pytest.importorskip("pyarrow.dataset")
    folder = RunFolder(tmp_path)
    folder.log.mkdir()
    folder.events.write_text(json.dumps({"step": 0, "event": "began", "time": "2026-02-28T23:59:58+00:00"}) + "\n")
    recorder = Recorder(3, folder.life, {"period_s": 0.1}, segment_s=3.0)
    for step in range(70):
        seen = np.full(3, step, dtype=np.float32)
        recorder.write(Row(step, step / 10, seen, 0, 1.0, Phase.BEHAVE, Flag.NONE, (0.0, 0.0, 0.0)))
    recorder.flush()
    assert cli.main(["export", str(tmp_path)]) == 0
    there = {str(path.relative_to(folder.exported)) for path in folder.exported.rglob("*") if path.is_file()}
    of_march = (f"day=2026-03-01/{name}.parquet" for name in ("life", "life-2", "life-3"))
    assert there == {"day=2026-02-28/life.parquet", *of_march}
    table = dataset.dataset(folder.exported, partitioning="hive").to_table().sort_by("step")
    assert table["obs_2"].to_pylist() == list(range(70))
    assert [str(day) for day in table["day"].to_pylist()].count("2026-02-28") == 20
    recorder.close()
    before = (folder.exported / "day=2026-03-01/life-2.parquet").stat().st_mtime_ns
    assert cli.main(["export", str(tmp_path)]) == 0
    assert dataset.dataset(folder.exported, partitioning="hive").to_table().num_rows == 70
    assert (folder.exported / "day=2026-03-01/life-2.parquet").stat().st_mtime_ns == before, (
        "an up-to-date file is not written again"
    )


def test_mcap_is_read_by_its_own_reader(run: Path, tmp_path: Path) -> None:
    reader = pytest.importorskip("mcap.reader")
    assert cli.main(["export", str(run), "--to", "mcap", "--out", str(tmp_path / "life.mcap")]) == 0
    rows = read(run / "log" / "life.rec").rows
    with (tmp_path / "life.mcap").open("rb") as file:
        messages = [
            (message.log_time, json.loads(message.data)) for _, _, message in reader.make_reader(file).iter_messages()
        ]
    assert [told["step"] for _, told in messages] == rows["step"].tolist()
    assert [told["saw"] for _, told in messages] == rows["observation"][:, 1].tolist()
    assert messages[10][0] == round(int(rows["step"][10]) * 0.1 * 1e9)
    assert messages[-1][1]["b"] is None


def scalars_in(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the curves that TensorBoard's own reader finds."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_shows_the_curves_of_a_run_and_a_second_export_adds_nothing(run: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert cli.main(["export", str(run), "--to", "tensorboard", "--out", str(tmp_path)]) == 0
    told, summary = scalars_in(tmp_path), json.loads((run / "summary.json").read_text())
    curve = [line.split(",") for line in (run / "mspbe_curve.csv").read_text().splitlines()]
    step, mspbe = curve[0].index("step"), curve[0].index("mspbe_scalar_mean")
    assert [s for s, _ in told["mspbe/mean"]] == [int(row[step]) for row in curve[1:]]
    np.testing.assert_allclose([v for _, v in told["mspbe/mean"]], [float(row[mspbe]) for row in curve[1:]], rtol=1e-6)
    assert told["life/excursions"] == [(300, summary["n_excursions"])]
    assert told["demons/set_aside"] == [(300, 0.0)]


def test_export_follows_a_run_to_its_end(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three looks: the life has a curve of one line, then of two, then it is over. Each line is written once."""
    living = tmp_path / "living"
    shutil.copytree(run, living)
    for name in ("summary.json", "learning_curve.csv", "mspbe_curve.csv", "questions.csv"):
        (living / name).unlink()
    now, curve = living / "live" / "now.json", living / "live" / "curve.csv"
    status = json.loads(now.read_text()) | {"state": "living"}
    looks = []

    def lives_on(_seconds: float) -> None:
        looks.append(len(looks))
        if len(looks) == 2:
            shutil.copy(run / "summary.json", living)
            now.write_text(json.dumps(status | {"state": "over"}))
            return
        now.write_text(json.dumps(status | {"step": 200, "gaps": 3}))
        with curve.open("a") as file:
            file.write("200,1.0,0.5,0.25,0\n")

    now.write_text(json.dumps(status | {"step": 100, "gaps": 1}))
    curve.write_text("100,1.0,2.0,0.75,0\n")
    with np.load(living / "live" / "demons.npz") as file:
        demons = dict(file)
    demons["nmsre"][:4], demons["diverged"][3] = (0.5, 2.0, 4.0, 100.0), True  # the last one is not counted
    np.savez(living / "live" / "demons.npz", **demons)
    before = {path: path.read_bytes() for path in living.rglob("*.rec")}
    monkeypatch.setattr("horde_agent.watch.reader.time.sleep", lives_on)
    export_scalars(living, tmp_path / "out", follow=True)
    told = scalars_in(tmp_path / "out")
    assert told["nmsre/mean"] == [(100, 2.0), (200, 0.5)]
    assert told["mspbe/mean"] == [(100, 0.75), (200, 0.25)]
    assert told["life/gaps"] == [(100, 1.0), (200, 3.0), (300, 0.0)]
    assert told["nmsre/median"][0] == (100, 2.0)
    assert told["nmsre/share_below_1"][0] == (100, pytest.approx(1 / 3))
    assert {path: path.read_bytes() for path in living.rglob("*.rec")} == before


def test_following_ends_with_a_life_that_was_killed(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """now.json is old, and no process has the folder."""
    killed = tmp_path / "killed"
    shutil.copytree(run, killed)
    (killed / "summary.json").unlink()
    path = killed / "live" / "now.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": "living"}))
    os.utime(path, (0.0, 0.0))
    monkeypatch.setattr("horde_agent.watch.reader.time.sleep", lambda _: pytest.fail("it waits for a dead life"))
    export_scalars(killed, tmp_path / "out", follow=True)


def test_without_the_extra_tensorboard_its_name_is_given(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    assert cli.main(["export", str(run), "--to", "tensorboard"]) == 2
    assert "need the extra `tensorboard`: pip install -e '.[tensorboard]'" in capsys.readouterr().err
    assert not (run / "export" / "tensorboard").exists()
