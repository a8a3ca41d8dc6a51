"""Forms of tables that people have: separators, decimal commas, dates, categories, sentinels, other files."""

from __future__ import annotations

import bz2
import json
import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Behaviour, Channel, learn_from
from horde_agent.formats.columns import Columns
from horde_agent.formats.tables import Table
from horde_agent.interface import Interface
from horde_agent.record import NO_ACTION, Flag
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.run import HeaderEnv
from horde_agent.toml import parsed_toml
from tests.agent.table_files import columns_in, draft_columns, open_table

X = 'period_s = 1.0\n[[channel]]\ncolumn = "x"\n'


def table_of(file: Path, columns: str = X) -> Table:
    return open_table(file, Columns.of(parsed_toml(columns)))


def rows_of(file: Path, columns: str = X) -> Any:
    return np.concatenate([part.rows for part in table_of(file, columns)])


def readings(file: Path, columns: str = X) -> list[float]:
    values: list[float] = rows_of(file, columns)["observation"][:, 0].tolist()
    return values


def csv_file(folder: Path, text: str) -> Path:
    file = folder / "x.csv"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("t,x\n0,1.5\n1,2.5\n", ""),
        ("t;x\n0;1.5\n1;2.5\n", ""),
        ("t\tx\n0\t1.5\n1\t2.5\n", ""),
        ("t|x\n0|1.5\n1|2.5\n", ""),
        ("t;x\n0;1,5\n1;2,5\n", ""),
        ("t;x\n0;15,0e-1\n1;2,5\n", ""),
        ('t,x\n0,"1,5"\n1,"2,5"\n', 'decimal = ","\n'),
        ("a,b;x\n0;1.5\n1;2.5\n", 'separator = ";"\n'),
    ],
)
def test_separators_and_decimal_commas_are_found_or_named(
    text: str, keys: str, tmp_path: Path
) -> None:
    assert readings(csv_file(tmp_path, text), keys + X) == [1.5, 2.5]


@pytest.mark.parametrize("text", ["0,1.5\n1,2.5\n", "0;1,5\n1;2,5\n", "0\t1.5\n1\t2.5\n"])
def test_a_file_without_a_header_has_numbered_columns(text: str, tmp_path: Path) -> None:
    """Nothing is lost: the first line is a row, also for `horde columns`."""
    file = csv_file(tmp_path, text)
    columns = 'header = false\nperiod_s = 1.0\n[[channel]]\ncolumn = "column_1"\n'
    assert readings(file, columns) == [1.5, 2.5]
    assert readings(file, draft_columns(file)) == [0.0, 1.0]


def test_quoted_decimal_commas_are_found_by_the_command_columns(tmp_path: Path) -> None:
    file = csv_file(tmp_path, 't,x\n0,"1,5"\n1,"2,5"\n')
    assert readings(file, draft_columns(file)) == [1.5, 2.5]


def test_decimal_commas_need_no_digit_before_them(tmp_path: Path) -> None:
    """As points do: ",5" is a half. A comma without a digit after it is none, nor are two of them."""
    texts = [",5", "-,25", "+1,5e2", " 3,0 ", "12", "1234,5"]
    file = csv_file(tmp_path, "t;x\n" + "".join(f"{i};{text}\n" for i, text in enumerate(texts)))
    for columns in (X, draft_columns(file)):
        assert readings(file, columns) == [0.5, -0.25, 150.0, 3.0, 12.0, 1234.5]
    for text in ("5,", ",", "1,234,5", "1.234,5"):
        file = csv_file(tmp_path, f"t;x\n0;{text}\n1;1\n")
        with pytest.raises(BadInput, match=f"row 1, column 'x': '{text}' must be a finite number"):
            rows_of(file)


def test_an_unknown_separator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r'separator must be one of ",", ";", "\\t", "\|", not "/"'):
        rows_of(csv_file(tmp_path, "x\n1\n"), 'separator = "/"\n' + X)


NOON_S = 1_767_268_800.0  # 2026-01-01T12:00:00Z


@pytest.mark.parametrize(
    "dates",
    [
        ["2026-01-01T12:00:00", "2026-01-01T12:00:01", "2026-01-01T12:00:02"],
        ["2026-01-01 12:00:00Z", "2026-01-01 12:00:01Z", "2026-01-01 12:00:02Z"],
        ["2026-01-01T13:00:00+01:00", "2026-01-01T13:00:01+01:00", "2026-01-01T12:00:02+00:00"],
    ],
)
def test_iso_dates_are_times(dates: list[str], tmp_path: Path) -> None:
    """A date without a zone is in UTC; a later row is a gap as with seconds."""
    later = "2026-01-01T12:00:05Z"
    lines = [f"{date},{i}\n" for i, date in enumerate([*dates, later])]
    file = csv_file(tmp_path, "when,x\n" + "".join(lines))
    rows = rows_of(file, 'time = "when"\n' + X)
    assert rows["t"].tolist() == [NOON_S, NOON_S + 1, NOON_S + 2, NOON_S + 5]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 3]
    assert 'time = "when"' in draft_columns(file)


@pytest.fixture
def _new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A computer in a zone with daylight-saving time, which begins on 2026-03-08 at 2 o'clock."""
    if not hasattr(time, "tzset"):
        pytest.skip("the zone of this system cannot be set")
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_new_york")
@pytest.mark.parametrize("zone", ["", "Z", "+02:00", "objects", "datetime64"])
def test_dates_do_not_depend_on_where_the_computer_is(zone: str, tmp_path: Path) -> None:
    """UTC without a zone. In local time they would be 4 or 5 hours late, and the hour from 1 to 3 o'clock none."""
    dates = [datetime(2026, 3, 8, hour, 30) for hour in range(6)]
    start_s = 1_772_929_800.0  # 2026-03-08T00:30:00Z
    columns = X.replace("1.0", "3600.0") + "low = 0.0\nhigh = 9.0\n"
    columns = 'time = "t"\n' + columns
    if zone in ("objects", "datetime64"):
        times = np.array(dates, dtype=object)
        if zone == "datetime64":
            times = times.astype("datetime64[us]")
        chunk = {"t": times, "x": np.arange(6.0)}
        table = Table(lambda: iter([chunk]), Columns.of(parsed_toml(columns)), "t")
    else:
        lines = [f"{date.isoformat()}{zone},{i}\n" for i, date in enumerate(dates)]
        table = table_of(csv_file(tmp_path, "t,x\n" + "".join(lines)), columns)
    rows = np.concatenate([part.rows for part in table])
    if zone == "+02:00":
        start_s -= 7200.0
    assert rows["t"].tolist() == [start_s + 3600.0 * hour for hour in range(6)]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0]


def test_times_of_numpy_and_pandas_are_seconds(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    start = np.datetime64("2026-01-01T12:00:00", "ns")
    times = start + np.arange(3) * np.timedelta64(1, "s")
    zoned = pandas.Series(times).dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
    for name, column in {
        "datetime64": times,
        "zoned": zoned,
        "objects": zoned.astype(object),
    }.items():
        table = Table(
            lambda column=column: iter([{"x": np.arange(3.0), "t": np.asarray(column)}]),
            Columns.of(parsed_toml('time = "t"\n' + X)),
            name,
        )
        rows = np.concatenate([part.rows for part in table])
        assert rows["t"].tolist() == [NOON_S, NOON_S + 1, NOON_S + 2], name


WEATHER = X + '[[channel]]\ncolumn = "sky"\ncategories = ["clear", "cloudy", "rain"]\n'


@pytest.mark.parametrize(("unit", "n_per_s"), [("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
@pytest.mark.parametrize("start_s", [0, 1_700_000_000])
def test_times_in_smaller_units_are_seconds(
    unit: str, n_per_s: int, start_s: int, tmp_path: Path
) -> None:
    """Rows 10 ms apart: 10, 10,000 and 10,000,000 of these units, since 1970 as whole numbers beyond 2^53."""
    numbers = [start_s * n_per_s + i * (n_per_s // 100) for i in range(30)]
    file = csv_file(tmp_path, "t,x\n" + "".join(f"{t},1\n" for t in numbers))
    keys = 'time = "t"\n' + X.replace("1.0", "0.01")
    with pytest.raises(BadInput, match="give times in seconds"):
        rows_of(file, keys)
    rows = rows_of(file, f'time_unit = "{unit}"\n{keys}')
    assert rows["t"] == pytest.approx(start_s + 0.01 * np.arange(30), abs=1e-6)
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0]


@pytest.mark.parametrize(
    ("name", "start", "step", "unit"),
    [
        ("timestamp", 1_700_000_000_000, 100, "ms"),
        ("Time", 1_700_000_000_000_000, 100_000, "us"),
        ("t", 1_700_000_000_000_000_000, 100_000_000, "ns"),
        ("stamp", 1_700_000_000, 0.1, "s"),
        ("time_ms", 0, 100, "ms"),
        ("t_us", 5_000_000_000_000, 100_000, "us"),
        ("timestamp_ns", 0, 100_000_000, "ns"),
    ],
)
def test_the_unit_of_times_is_drafted(
    name: str, start: int, step: float, unit: str, tmp_path: Path
) -> None:
    """By the name, or by the size of times since 1970; the period is .1 s in each, and the draft can be used."""
    lines = [f"{start + i * step!r},{i % 7}" for i in range(50)]
    file = csv_file(tmp_path, f"{name},x\n" + "\n".join(lines) + "\n")
    text = draft_columns(file)
    columns = Columns.of(parsed_toml(text))
    assert (columns.times.time, columns.times.time_unit, columns.times.period_s) == (
        name,
        unit,
        0.1,
    )
    assert (f"# {name} seems to be in {unit}." in text) == (unit != "s")
    assert len(rows_of(file, text)) == 50


def test_a_unit_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match='time_unit must be one of "s", "ms", "us", "ns", not "min"'):
        Columns.of(parsed_toml('time_unit = "min"\n' + X))
    columns = Columns.of(parsed_toml('time_unit = "ms"\n' + X))
    assert Columns.of(parsed_toml(columns.to_toml())) == columns


def test_columns_without_a_name_are_numbered(tmp_path: Path) -> None:
    """As in air-quality files, whose lines end with two separators, and in tables of pandas with their row numbers."""
    end = ";;\n" * 3
    text = "t;x;;\n" + "".join(f"{i};{i},5;;\n" for i in range(9)) + end.replace(";;", ";;;")
    file = csv_file(tmp_path, text)
    assert columns_in(file) == ["t", "x", "column_2", "column_3"]
    draft = draft_columns(file)
    assert [c.column for c in Columns.of(parsed_toml(draft)).channel] == ["x"]
    assert readings(file, draft) == [i + 0.5 for i in range(9)]

    file = csv_file(tmp_path, ",x,y\n" + "".join(f"{i},{i % 2},{i % 3}\n" for i in range(9)))
    draft = draft_columns(file)
    assert [c.column for c in Columns.of(parsed_toml(draft)).channel] == ["x", "y"]
    assert "They identify a person, a thing or an episode, so no channels: column_0" in draft


def test_a_headerless_file_may_end_with_empty_columns(tmp_path: Path) -> None:
    file = csv_file(tmp_path, "".join(f"{i % 3};{i},5;;\n" for i in range(9)))
    draft = draft_columns(file)
    columns = Columns.of(parsed_toml(draft))
    assert not columns.csv.header
    assert [c.column for c in columns.channel] == ["column_0", "column_1"]
    assert len(rows_of(file, draft)) == 9


def test_empty_rows_at_the_end_are_none_and_one_between_is_missing(tmp_path: Path) -> None:
    """Left out, the one between would join rows that are two steps apart."""
    file = csv_file(tmp_path, "x;y\n1;1\n;\n3;3\n4;4\n;\n;\n")
    with pytest.raises(BadInput, match="row 2, column 'x': an empty cell must be a finite number"):
        rows_of(file, 'missing = "error"\n' + X)
    rows = rows_of(file, 'missing = "gap"\n' + X)
    assert rows["observation"][:, 0].tolist() == [1.0, 3.0, 4.0]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 1]


def test_a_draft_says_that_no_action_was_recognised_and_leaves_identifiers_out(
    tmp_path: Path,
) -> None:
    """A table of customers: which one it is, the episode and b are no readings."""
    lines = [f"{7 - i // 3},{i // 3},{i % 5},left,0.5" for i in range(15)]
    file = csv_file(tmp_path, "customer,session_id,x,action_name,b\n" + "\n".join(lines) + "\n")
    draft = draft_columns(file)
    columns = Columns.of(parsed_toml(draft))
    assert [c.column for c in columns.channel] == ["x"]
    assert 'No column of actions was recognised. Name it, action = "NAME"' in draft
    assert (
        "They identify a person, a thing or an episode, so no channels: customer, session_id"
        in draft
    )
    assert "They are probabilities of actions, so no channels: b" in draft
    named = draft.replace('# episode = "episode"', 'episode = "session_id"')
    rows = rows_of(file, named)
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 3, 6, 9, 12]
    assert rows_of(file, draft)["observation"][:, 0].tolist() == [i % 5 for i in range(15)]


NAMED = """
period_s = 1.0
action = "a"
actions = ["left", "right", "stop"]
b = "p"
[[channel]]
column = "x"
"""


def test_an_action_may_be_given_by_its_name_as_by_its_number(tmp_path: Path) -> None:
    """Also by both in one column, and with a last row without one."""
    numbers = csv_file(tmp_path, "x,a,p\n1,2,.5\n2,1,.5\n3,0,.25\n4,,\n")
    rows = rows_of(numbers, NAMED)
    assert rows["action"].tolist() == [2, 1, 0, NO_ACTION]
    for cells in (("stop", "right", "left"), (" stop ", "1", "left"), ('"stop"', "right", "0")):
        lines = [
            f"{i + 1},{cell},{b}"
            for i, (cell, b) in enumerate(zip(cells, (".5", ".5", ".25"), strict=True))
        ]
        file = csv_file(tmp_path, "\n".join(["x,a,p", *lines, "4,,"]) + "\n")
        assert rows_of(file, NAMED).tobytes() == rows.tobytes(), cells


def test_a_text_that_names_no_action_is_refused_with_the_names(tmp_path: Path) -> None:
    file = csv_file(tmp_path, "x,a,p\n1,stop,.5\n2,Right,.5\n3,left,.5\n")
    must = r"row 2, column 'a': 'Right' must be a whole number in 0..2, or the name of an action: left, right, stop"
    with pytest.raises(BadInput, match=must):
        rows_of(file, NAMED)
    without_names = NAMED.replace('actions = ["left", "right", "stop"]', "")
    with pytest.raises(
        BadInput, match=r"row 1, column 'a': 'stop' must be .*; texts need `actions`"
    ):
        rows_of(file, without_names)


def test_two_actions_of_one_name_are_refused(tmp_path: Path) -> None:
    file = csv_file(tmp_path, "x,a,p\n1,left,.5\n2,left,.5\n")
    with pytest.raises(BadInput, match="two actions have the name 'left'"):
        rows_of(file, NAMED.replace("right", "left"))


def test_a_column_of_actions_by_name_is_drafted(tmp_path: Path) -> None:
    """It is no channel of categories; a terminal row with an action means that this led there."""
    lines = [f"{i % 7},{('right', 'left')[i % 2]},.5,{i % 5 == 4}" for i in range(15)]
    file = csv_file(tmp_path, "x,action,b,done\n" + "\n".join(lines) + "\n")
    draft = draft_columns(file)
    columns = Columns.of(parsed_toml(draft))
    assert columns.actions.action == "action"
    assert columns.actions.actions == ("left", "right")
    assert columns.actions.b == "b"
    assert columns.episodes.convention == "transition"
    assert [channel.column for channel in columns.channel] == ["x"]
    acted = rows_of(file, draft)["action"]
    assert acted[acted != NO_ACTION].tolist() == [(1, 0)[i % 2] for i in range(15)]


def test_further_marks_and_the_next_observation_are_no_channels(tmp_path: Path) -> None:
    """A table (s, a, r, s', done, truncated): the next state as a sensor would give every answer away."""
    lines = [f"{i % 5},{i % 2},1,{(i + 1) % 5},0,0,{int(i % 5 == 4)}" for i in range(15)]
    head = "x,a,r,next_obs,terminated,done,truncated\n"
    draft = draft_columns(csv_file(tmp_path, head + "\n".join(lines) + "\n"))
    assert [c.column for c in Columns.of(parsed_toml(draft)).channel] == ["x", "r"]
    assert "They are of the next row, so no channels: next_obs" in draft
    assert "They mark ends of episodes, so no channels: done" in draft


def test_the_temperature_t_is_no_time(tmp_path: Path) -> None:
    file = csv_file(tmp_path, "T,A\n" + "".join(f"{13 + i / 10},{i % 2}\n" for i in range(9)))
    columns = Columns.of(parsed_toml(draft_columns(file)))
    assert columns.others == {}
    assert [c.column for c in columns.channel] == ["T", "A"]


def test_each_category_has_one_tile(tmp_path: Path) -> None:
    """Three texts, three tiles, none shared; the other channel has its usual eight tilings."""
    file = csv_file(tmp_path, "x,sky\n1,clear\n2,rain\n3,cloudy\n4,clear\n")
    table = table_of(file, WEATHER)
    rows = np.concatenate([part.rows for part in table])
    assert rows["observation"][:, 1].tolist() == [0, 2, 1, 0]
    interface = Interface.of(HeaderEnv(table.header))
    tiles = [set(interface.encode(row).tolist()) for row in rows["observation"]]
    assert all(len(active) == 8 + 1 + 1 for active in tiles)  # x, sky, bias
    same_x = rows["observation"].copy()
    same_x[:, 0] = 1.0
    active = [set(interface.encode(row).tolist()) for row in same_x]
    assert len(active[0] - active[1]) == len(active[1] - active[2]) == 1
    assert active[0] == active[3]
    assert 'categories = ["clear", "cloudy", "rain"]' in draft_columns(file)


def test_categories_have_the_numbers_of_their_list(tmp_path: Path) -> None:
    """Low, middle, high: 0, 1, 2. In the order of the alphabet they would be 1, 2, 0."""
    file = csv_file(tmp_path, "x,sky\n1,low\n2,high\n3,middle\n4,3\n")
    keys = X + '[[channel]]\ncolumn = "sky"\ncategories = ["low", "middle", "high", 3]\n'
    assert rows_of(file, keys)["observation"][:, 1].tolist() == [0, 2, 1, 3]


def test_a_text_that_is_no_category_is_refused(tmp_path: Path) -> None:
    file = csv_file(tmp_path, "x,sky\n1,clear\n2,snow\n")
    with pytest.raises(BadInput, match=r"row 2, column 'sky': 'snow' is none of the categories"):
        rows_of(file, WEATHER)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ('categories = ["a", "a"]', "named twice"),
        ("categories = [1.5]", "list of texts or whole numbers"),
        ('categories = ["a", "b"]\ngroup = "x"', "different numbers of categories"),
    ],
)
def test_categories_that_are_none_are_refused(keys: str, reason: str, tmp_path: Path) -> None:
    file = csv_file(tmp_path, "x,sky\n1,a\n2,b\n")
    with pytest.raises(BadInput, match=reason):
        rows_of(file, X + '[[channel]]\ncolumn = "sky"\n' + keys)


def test_sentinel_values_are_missing_ones(tmp_path: Path) -> None:
    """-200 and -999 stand for no reading: refused, or a gap; they do not widen the range."""
    file = csv_file(tmp_path, "x\n1\n-200\n3\n4\n-999\n6\n")
    sentinels = "missing_values = [-200, -999]\n"
    with pytest.raises(BadInput, match=r"row 2, column 'x': -200 must be a finite number"):
        rows_of(file, sentinels + 'missing = "error"\n' + X)
    table = table_of(file, sentinels + 'missing = "gap"\n' + X)
    rows = np.concatenate([part.rows for part in table])
    assert rows["observation"][:, 0].tolist() == [1, 3, 4, 6]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 1, 3]
    assert table.columns.channel[0].low == 1.0


def test_scalars_beside_the_columns_of_an_npz_file_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    np.savez(file, x=np.arange(3.0), rate=np.float64(10.0), robot="turtle")
    assert columns_in(file) == ["x"]
    assert readings(file, draft_columns(file)) == [0.0, 1.0, 2.0]


def test_bzip2_and_feather_are_read_as_csv_and_parquet_are(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    from pyarrow import feather

    compressed = tmp_path / "x.csv.bz2"
    compressed.write_bytes(bz2.compress(b"x\n1.5\n2.5\n"))
    assert readings(compressed) == [1.5, 2.5]
    table = tmp_path / "x.feather"
    feather.write_feather(pa.table({"x": [1.5, 2.5], "v": [[1, 2], [3, 4]]}), table)
    assert readings(table) == [1.5, 2.5]
    assert readings(table, X.replace('"x"', '"v_1"')) == [2.0, 4.0]
    table.write_bytes(b"no Feather file")
    with pytest.raises(BadInput, match="cannot be read"):
        columns_in(table)


def test_a_lerobot_data_set_of_version_2_1_teaches_what_its_version_3_does(tmp_path: Path) -> None:
    """A file per episode instead of one, and the same weights."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    new = tmp_path / "v3"
    old = tmp_path / "v21"
    features = {"observation.state": {"dtype": "float32", "shape": [2], "names": ["x", "y"]}}
    rng = np.random.default_rng(0)
    episodes = [
        pa.table(
            {
                "observation.state": list(rng.random((20, 2), dtype=np.float32)),
                "timestamp": (np.arange(20) / 10).astype(np.float32),
                "episode_index": np.full(20, i),
            }
        )
        for i in range(11)
    ]
    for folder, version in ((new, "v3.0"), (old, "v2.1")):
        (folder / "meta").mkdir(parents=True)
        (folder / "data/chunk-000").mkdir(parents=True)
        info = {"codebase_version": version, "fps": 10, "features": features}
        (folder / "meta/info.json").write_text(json.dumps(info))
    pq.write_table(pa.concat_tables(episodes), new / "data/chunk-000/file-000.parquet")
    for i, episode in enumerate(episodes):
        pq.write_table(episode, old / f"data/chunk-000/episode_{i:06d}.parquet")
    question = [GVF("x", Behaviour(), Channel(0), 0.8)]
    hashes = set()
    for folder in (new, old):
        learned = learn_from(folder, questions=question, out=tmp_path / f"run-{folder.name}")
        hashes.add(learned.summary["weights_sha256"])
        shutil.rmtree(learned.path)
    assert len(hashes) == 1
