"""Any robot's log: a table, and a file that maps its columns to channels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.record import Flag, read
from horde_agent.runs.data.columns import Columns
from horde_agent.runs.data.files import open_table
from horde_agent.runs.data.tables import Table

MAP = """
period_s = 0.5
time = "stamp"
[[channel]]
column = "Light0"
name = "light"
low = 0.0
high = 4.0
[[channel]]
column = "phase"
"""


@pytest.fixture
def columns(tmp_path: Path) -> Path:
    file = tmp_path / "columns.toml"
    file.write_text(MAP)
    return file


def table(n: int) -> dict[str, list[float]]:
    """A light that blinks with a period of eight rows, with its phase as a second channel; 0.5 s a row."""
    k = np.arange(n)
    return {
        "stamp": (100.0 + 0.5 * k).tolist(),
        "Light0": (4.0 * (k % 8 == 0)).tolist(),
        "phase": (k % 8).astype(float).tolist(),
    }


def write(file: Path, columns: dict[str, list[object]] | dict[str, list[float]]) -> Path:
    rows = zip(*columns.values(), strict=True)
    file.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return file


def opened(log: Path, columns: Path) -> Table:
    return open_table(log, replace(Columns.read(columns), missing="gap"))


def played(table: Table) -> tuple[list[list[float]], list[int]]:
    rows = np.concatenate([part.rows for part in table])
    return rows["observation"].tolist(), (rows["flags"] & Flag.GAP).tolist()


def test_rows_are_unchanged_and_missing_or_late_ones_are_a_gap(tmp_path: Path, columns: Path) -> None:
    """Row 3 has no number and is dropped; row 6 is 2 s late; row 8 is earlier than row 7."""
    of: dict[str, list[object]] = {name: list(values) for name, values in table(10).items()}
    of["Light0"][3] = "broken"
    of["stamp"] = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 5.0, 5.5, 1.0, 1.5]
    log = opened(write(tmp_path / "log.csv", of), columns)
    rows, gaps = played(log)
    assert [row[1] for row in rows] == [0, 1, 2, 4, 5, 6, 7, 0, 1]
    assert gaps == [1, 0, 0, 1, 0, 1, 0, 1, 0]
    assert log.notes == ["1 rows have no number in one of the columns and are dropped."]
    assert (log.header["low"], log.header["high"]) == ([0, 0], [4, 7])
    assert [channel["name"] for channel in log.header["channels"]] == ["light", "phase"]


def test_parquet_and_csv_are_the_same_stream(tmp_path: Path, columns: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(table(20)), tmp_path / "log.parquet")
    one = opened(write(tmp_path / "log.csv", table(20)), columns)
    assert played(opened(tmp_path / "log.parquet", columns)) == played(one)


def test_predictions_are_learned_from_any_robots_log(tmp_path: Path, columns: Path) -> None:
    """The light of the next row follows from the phase of this one: NMSRE far below 1."""
    log = write(tmp_path / "log.csv", table(400))
    run = tmp_path / "run"
    assert cli.main(f"learn --backend replay --log {log} --columns {columns} --passes 20 --out {run}".split()) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["steps"], summary["gaps"]) == (399, 0)
    assert summary["median_nmsre"] < 0.2
    rows = read(run / "log" / "life.rec").rows
    assert rows["t"][:3].tolist() == [100.0, 100.5, 101.0]
    assert rows["flags"][0] == Flag.GAP


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("period_s = 0.5", "it has no 'channel'"),
        ("period_s = 0\n[[channel]]\ncolumn = 'phase'", "period_s must be"),
        (MAP.replace("Light0", "Light9"), "has no column 'Light9'"),
        ("period_s =", "cannot be read"),
    ],
)
def test_invalid_columns_are_refused(
    text: str, message: str, tmp_path: Path, columns: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns.write_text(text)
    log = write(tmp_path / "log.csv", table(20))
    assert cli.main(f"learn --backend replay --log {log} --columns {columns} --out {tmp_path / 'a'}".split()) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "a").exists()


def test_columns_belong_to_a_replay(columns: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(f"learn --columns {columns}".split()) == 2
    assert "--columns requires --backend replay" in capsys.readouterr().err
