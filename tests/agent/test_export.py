"""The record of a life in other programs' formats, read by those programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from horde_agent import cli
from horde_agent.record import read
from tests.agent.doubles import ToyBody


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "a"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_make_env", lambda _config: ToyBody())
        patch.setattr(cli, "write_report", lambda path: path / "report.html")
        assert cli.main(f"learn --steps 300 --horizon 8 --seed 1 --out {run}".split()) == 0
    return run


def test_parquet_holds_what_the_record_holds(run: Path, tmp_path: Path) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    assert cli.main(["export", str(run), "--out", str(tmp_path / "table")]) == 0
    table = dataset.dataset(tmp_path / "table", partitioning="hive").to_table()
    rows = read(run / "log" / "life.rec").rows
    assert table["step"].to_pylist() == rows["step"].tolist()
    assert table["b"].to_numpy().tobytes() == rows["b"].tobytes()
    assert table["saw"].to_numpy().tolist() == rows["observation"][:, 1].tolist()
    assert set(table["day"].to_pylist()) == {0}


def test_duckdb_reads_a_life_as_one_table(run: Path, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    assert cli.main(["export", str(run), "--out", str(tmp_path / "table")]) == 0
    asked = (
        f"select action, count(*), avg(saw) from '{tmp_path}/table/*/*.parquet' where phase = 0 group by 1 order by 1"
    )
    found = duckdb.sql(asked).fetchall()
    rows = read(run / "log" / "life.rec").rows
    lived = rows[rows["phase"] == 0]
    assert [(action, n) for action, n, _ in found] == [(a, int((lived["action"] == a).sum())) for a in range(3)]


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


def test_a_format_that_is_none_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(run), "--to", "xml"]) == 2
    assert "unknown format 'xml': choose parquet, mcap" in capsys.readouterr().err
