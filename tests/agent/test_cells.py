"""Cells of tables and files are read exactly, or refused with file, row, column and text."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import re
import sys
import time
import zipfile
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from horde_agent import cli, learn_from
from horde_agent.formats import cells, npz
from horde_agent.formats import csv_file as csv_format
from horde_agent.formats.arrays import chunks_of
from horde_agent.formats.columns import ChannelColumn, Columns
from horde_agent.formats.tables import Table
from horde_agent.record import Flag
from horde_agent.refusals import BadInput
from horde_agent.toml import parsed_toml
from tests.agent.table_files import (
    SUFFIXES,
    columns_in,
    columns_of,
    draft_columns,
    open_table,
    read_columns,
)

X = ChannelColumn("x", "x", "x", low=0.0, high=10.0)


def csv_file(folder: Path, text: str, name: str = "t.csv") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def rows_of(table: Table) -> Any:
    return np.concatenate([part.rows for part in table])


def rows_in(file: Path, **columns: Any) -> Any:
    return rows_of(open_table(file, columns_of(**({"channel": (X,)} | columns))))


def rows_of_arrays(arrays: dict[str, Any], **columns: Any) -> Any:
    return rows_of(Table(lambda: chunks_of([arrays]), columns_of((X,), **columns), "t"))


# ---- one cell --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1.0),
        (" -2.5 ", -2.5),
        ("1e3", 1000.0),
        ("TRUE", 1.0),
        ("false", 0.0),
        ("2020_01", None),
        ("1,5", None),
    ],
)
def test_a_text_is_the_number_that_it_says_or_none(text: str, number: float | None) -> None:
    numbers = cells.as_numbers(cells.from_texts([text, "7"]))
    assert numbers[1] == 7.0
    assert np.isnan(numbers[0]) if number is None else numbers[0] == number


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        *((one, True) for one in ("true", "T", "Yes", "y", "1", 1, 1.0, True, np.bool_(True))),
        *((one, False) for one in ("False", "f", "NO", "n", "0", 0, 0.0, False)),
        *((one, None) for one in ("done", "", "2", 0.5, 2, np.nan, None)),
    ],
)
def test_a_claim_is_true_false_or_unreadable(cell: Any, said: bool | None) -> None:
    is_true, is_readable = cells.as_claims(np.array([cell], dtype=object))
    assert (is_readable[0], is_true[0]) == (said is not None, bool(said))
    if isinstance(cell, int | float | np.bool_):
        assert cells.as_claims(np.array([cell]))[1][0] == (said is not None)


LARGE = 2**53 + 1


@pytest.mark.parametrize(
    ("column", "whole"),
    [
        (np.array([LARGE, LARGE + 1]), [LARGE, LARGE + 1]),
        (np.array([2**64 - 1], dtype=np.uint64), [2**64 - 1]),
        (cells.from_texts([f"{LARGE}", f"{LARGE + 1}"]), [LARGE, LARGE + 1]),
        (cells.from_texts([f"{2**70}"]), [2**70]),
        (np.array([3.0]), [3]),
        (np.array([Decimal(4), "5", 6.0, True], dtype=object), [4, 5, 6, 1]),
        (np.array([2.0**53]), None),
        (np.array([1.5, np.nan, np.inf]), None),
        (np.array(["x", None, "1.5", ""], dtype=object), None),
    ],
)
def test_whole_numbers_of_any_size_stay_apart(column: Any, whole: list[int] | None) -> None:
    numbers, is_whole = cells.as_whole_numbers(column)
    assert is_whole.tolist() == [whole is not None] * len(column)
    if whole is not None:
        assert [int(number) for number in numbers] == whole


@pytest.mark.parametrize(
    ("values", "span", "kept"),
    [
        (np.array([2**24, 2**24 + 1, 2**25]), np.inf, [True, False, True]),
        (np.array([0.1, 1 / 3]), 1.0, [True, True]),
        (np.array([1.7e9 + 0.5]), 100.0, [False]),
        (np.array([1.7e9 + 0.5]), np.inf, [True]),
        (np.array([101_600.3]), 40.0, [True]),
        (np.array([1e300, np.nan]), np.inf, [False, True]),
        (np.array([2**60 + 1]), np.inf, [False]),
        (np.array([0.1], dtype=np.float32), 1e-9, [True]),
    ],
)
def test_float32_holds_a_reading_or_it_is_noticed(
    values: Any, span: float, kept: list[bool]
) -> None:
    """Whole numbers exactly, others to a thousandth of the channel's range."""
    assert cells.are_kept_by_float32(values, values.astype(np.float64), span).tolist() == kept


@pytest.mark.parametrize(
    ("values", "shift"),
    [
        # Degrees: float32 has steps of 3.8e-6 there
        (52.1234567 + 1e-7 * np.arange(50), (52.123456, 1.0)),
        # UTM northing in metres, to the millimetre
        (5_812_345.678 + 0.001 * np.arange(20), (5_812_345.67, 1.0)),
        # Encoder counts
        (16_777_217 + np.arange(300), (16_777_200.0, 1.0)),
        # Whole numbers of a range beyond 2^24
        (2_000_000_001.0 + 1_001 * np.arange(100_001), (2_000_000_000.0, 0.1)),
        (np.array([3.0, 4.5, np.nan]), None),
        (np.full(9, 52.123), None),
        (52.123 + np.array([0.0, 7e-15]), None),
        (np.array([np.nan, np.inf]), None),
    ],
)
def test_an_origin_is_proposed_with_which_float32_holds_the_readings(
    values: Any, shift: tuple[float, float] | None
) -> None:
    """It has the digits of the range; differences by rounding in float64 need none."""
    proposed = cells.shift_for(values.astype(np.float64))
    assert proposed == shift
    if proposed is not None:
        span = float(np.ptp(values)) * proposed.scale
        assert cells.are_kept_by_float32(values, values.astype(float), span, proposed).all()


# ---- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "columns", "what"),
    [
        ("x\n1\n2020_01", {}, "row 2, column 'x': '2020_01' must be a finite number"),
        ('x\n1\n"1,5"', {}, "row 2, column 'x': '1,5' must be a finite number"),
        ("x\n1\nn/a\n2", {"missing": "error"}, "row 2, column 'x': 'n/a' must be a finite number"),
        (
            "x,d\n1,no\n,no",
            {"missing": "error"},
            "row 2, column 'x': an empty cell must be a finite number",
        ),
        ("x\n16777216\n16777217", {}, "row 2, column 'x': 16777217 would be rounded"),
        (
            "x\n52.1234567\n52.1234568",
            {"channel": (X._replace(low=52.0, high=52.0001),)},
            "row 1, column 'x': 52.1234567 would be rounded, because a reading is stored with 24 binary digits: write "
            "origin = 52.1234567 in its [[channel]]",
        ),
        ("x\n1\n2,5", {}, "row 2 has 2 cells, and the header 1 names"),
        (
            "x;y\n1;2\n1;2;3",
            {},
            "row 2 has 3 cells, and the header 2 names: quote cells that contain ';'",
        ),
        ('x;y\n"1.234,5";2', {}, "row 1, column 'x': '1.234,5' must be a finite number"),
        ("1;2\n3;4", {}, "there are 1, 2; if the first line is a row, write header = false"),
        ("x,x\n1,2", {}, "two columns are called 'x'"),
        (
            "x,d\n1,no\n2,done",
            {"terminated": "d"},
            "row 2, column 'd': 'done' must be true or false",
        ),
        (
            "x,d\n1,0\n2,",
            {"terminated": "d"},
            "row 2, column 'd': an empty cell must be true or false",
        ),
        (
            "x,e\n1,7\n2,7.5",
            {"episode": "e"},
            "row 2, column 'e': 7.5 must be the number of an episode",
        ),
        (
            "x,e\n1,a\n2,a",
            {"episode": "e"},
            "row 1, column 'e': 'a' must be the number of an episode",
        ),
        ("x,k\n1,1\n2,1.5", {"step": "k"}, "row 2, column 'k': 1.5 must be the number of a step"),
        (
            "x,k\n1,1\n2,9223372036854775808",
            {"step": "k"},
            "row 2, column 'k': '9223372036854775808' must be below",
        ),
        (
            "x,p\n1,0\n2,-1",
            {"policy": "p"},
            "row 2, column 'p': -1 must be a whole number in 0..4294967295",
        ),
        ("x,f\n1,1\n2,0.5", {"flags": "f"}, "row 2, column 'f': 0.5 must be 0..255"),
        (
            "x,a\n1,0\n2,left\n3,0",
            {"action": "a"},
            "row 2, column 'a': 'left' must be 0, the only action",
        ),
        (
            "x,t\n1,0\n2,noon",
            {"time": "t"},
            "row 2, column 't': 'noon' must be seconds",
        ),
        ("y,z\n1,2", {}, "has no column 'x'; there are y, z"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named(
    lines: str, columns: dict[str, Any], what: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=re.escape(what)):
        rows_in(csv_file(tmp_path, lines + "\n"), **columns)


def test_readings_are_computed_from_values_in_float64(tmp_path: Path) -> None:
    """(value - origin) x scale: in float32 the differences would be 0, 0 and 3,815 billionths of a degree."""
    values = [52.1234567, 52.1234568, 52.1234587]
    file = csv_file(tmp_path, "x\n" + "\n".join(map(str, values)) + "\n")
    keys = 'period_s = 1.0\n[[channel]]\ncolumn = "x"\n'
    with pytest.raises(BadInput, match=r"write origin = 52\.123456 in its") as refusal:
        rows_of(open_table(file, Columns.of(parsed_toml(keys))))
    assert "scale = " not in str(refusal.value)

    columns = Columns.of(parsed_toml(keys + "origin = 52.1234567\nscale = 1e9\n"))
    table = open_table(file, columns)
    assert rows_of(table)["observation"][:, 0] == pytest.approx([0.0, 100.0, 2000.0], abs=1e-4)
    assert Columns.of(parsed_toml(columns.to_toml())) == columns
    assert table.header["shifts"] == {"x": [52.1234567, 1e9]}
    assert "Readings of 'x' are (value - 52.1234567) x 1000000000.0" in " ".join(table.notes)


def test_a_range_that_float32_does_not_see_is_refused(tmp_path: Path) -> None:
    """All are one float32, which is the range's low and high: read as one, the channel would be constant."""
    file = csv_file(tmp_path, "x,y\n52.1234567,1\n52.12345671,2\n52.12345672,3\n")
    keys = 'period_s = 1.0\n[[channel]]\ncolumn = "y"\n[[channel]]\ncolumn = "x"\n'
    with pytest.raises(BadInput, match=r"write origin = 52\.1234567 in its"):
        rows_of(open_table(file, Columns.of(parsed_toml(keys))))
    # An unbounded channel has no range whose thousandth part could be lost
    unbounded = Columns.of(parsed_toml(keys + "low = -inf\nhigh = inf\n"))
    assert (
        rows_of(open_table(file, unbounded))["observation"][:, 1].tolist()
        == [np.float32(52.1234567)] * 3
    )


def test_whole_numbers_of_a_long_range_get_an_origin_and_a_scale(tmp_path: Path) -> None:
    """Counts from 2,000,000,001 to 2,100,100,001 need 27 binary digits even from the first one on."""
    counts = 2_000_000_001 + 1_001_000 * np.arange(101)
    file = csv_file(tmp_path, "x\n" + "\n".join(map(str, counts)) + "\n")
    keys = 'period_s = 1.0\n[[channel]]\ncolumn = "x"\n'
    with pytest.raises(BadInput, match=r"write origin = 2000000000\.0 and scale = 0\.1 in its"):
        rows_of(open_table(file, Columns.of(parsed_toml(keys))))
    keys += "origin = 2000000000.0\nscale = 0.1\n"
    rows = rows_of(open_table(file, Columns.of(parsed_toml(keys))))
    assert rows["observation"][:, 0] == pytest.approx((counts - 2e9) / 10, rel=1e-7)


def test_an_origin_is_drafted_and_its_draft_can_be_used(tmp_path: Path) -> None:
    lines = [f"{52.1234567 + 1e-7 * i:.7f},{i % 7}" for i in range(50)]
    file = csv_file(tmp_path, "x,y\n" + "\n".join(lines) + "\n")
    columns = Columns.of(parsed_toml(draft_columns(file)))
    assert [channel.shift for channel in columns.channel] == [(52.123456, 1.0), (0.0, 1.0)]
    readings = rows_of(open_table(file, columns))["observation"][:, 0]
    assert readings == pytest.approx(7e-7 + 1e-7 * np.arange(50), abs=1e-12)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ("origin = inf", "origin must be a finite number, not inf"),
        ("origin = nan", "origin must be a finite number, not nan"),
        ("scale = 0.0", "scale must be a finite number other than 0, not 0.0"),
        ("scale = -inf", "scale must be a finite number other than 0, not -inf"),
        ('origin = "52"', "origin must be a number"),
        ('categories = ["a", "b"]\nscale = 2.0', "categories are no numbers"),
    ],
)
def test_an_origin_or_a_scale_that_makes_no_readings_is_refused(keys: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        Columns.of(parsed_toml(f'period_s = 1.0\n[[channel]]\ncolumn = "x"\n{keys}\n'))


def test_true_and_false_are_read_in_all_their_spellings(tmp_path: Path) -> None:
    """Five episodes that end; none of the texts is taken for false."""
    text = "x,d\n" + "".join(f"1,{no}\n2,{yes}\n" for no, yes in zip("f0nFN", "T1yYt", strict=True))
    rows = rows_in(csv_file(tmp_path, text), terminated="d")
    assert np.flatnonzero(rows["flags"] & Flag.TERMINATED).tolist() == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("first", [2**53, 896_748_521_681_811_842, 2**63 - 3, 2**64 - 4, 2**80])
def test_neighbouring_large_episode_numbers_are_two_episodes(first: int, tmp_path: Path) -> None:
    """As text, and as arrays of a type that holds them; also across parts of a table."""
    numbers = [first, first, first + 1, first + 1, first + 2, first + 2]
    text = "x,e\n" + "".join(f"1,{number}\n" for number in numbers)
    rows = rows_in(csv_file(tmp_path, text), episode="e")
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 2, 4]
    if first < 2**62:
        kind = np.int64
    elif first < 2**64 - 3:
        kind = np.uint64
    else:
        kind = object
    whole = {"x": np.ones(6), "e": np.array(numbers, dtype=kind)}
    assert rows_of_arrays(whole, episode="e").tobytes() == rows.tobytes()
    halves = [
        {name: values[:3] for name, values in whole.items()},
        {name: v[3:] for name, v in whole.items()},
    ]
    parts = Table(lambda: chunks_of(halves), columns_of((X,), episode="e"), "t")
    assert rows_of(parts).tobytes() == rows.tobytes()


def test_episode_numbers_that_a_float_has_merged_are_refused() -> None:
    with pytest.raises(BadInput, match=r"row 1, column 'e': 9.00719925e"):
        rows_of_arrays({"x": np.ones(4), "e": np.full(4, 2.0**53)}, episode="e")


def test_short_rows_and_empty_lines_of_a_log_that_was_cut_off(tmp_path: Path) -> None:
    """The last line lacks its second cell: a missing reading, or refused, or no row."""
    file = csv_file(tmp_path, "t,x,\n0,1,\n\n1,2,\n2\n")
    with pytest.raises(BadInput, match="row 3, column 'x': an empty cell"):
        rows_in(file, missing="error")
    np.testing.assert_array_equal(rows_in(file)["observation"][:, 0], [1, 2, np.nan])
    assert rows_in(file, missing="gap")["observation"][:, 0].tolist() == [1, 2]


def test_a_table_without_a_number_says_what_its_cells_hold(tmp_path: Path) -> None:
    file = csv_file(tmp_path, 't,x\nMonday,"1,5"\nTuesday,"1,7"\n')
    with pytest.raises(BadInput, match=r"has no number in the column 'x'; its first cell is '1,5'"):
        open_table(file, columns_of((ChannelColumn("x"),)))
    with pytest.raises(
        BadInput, match=r"every one lacks a number .* row 1, column 'x': '1,5' is no number"
    ):
        rows_in(file, missing="gap")
    file.write_text("t,x\nMonday,1\nTuesday,2\n")
    with pytest.raises(
        BadInput, match=r"every one lacks a number .* column 't': 'Monday' must be seconds"
    ):
        rows_in(file, missing="gap", time="t")


@pytest.mark.parametrize("suffix", [s.upper() for s in SUFFIXES])
def test_the_suffix_of_a_file_may_be_upper_case(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"X{suffix}"
    values = np.array([1.0, 2.0])
    if suffix == ".NPZ":
        with file.open("wb") as opened:
            np.savez(opened, x=values)
    elif suffix == ".PARQUET":
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"x": values}), file)
        assert open_table(tmp_path, columns_of((X,))).where == str(tmp_path)
    elif suffix == ".FEATHER":
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.feather").write_feather(pa.table({"x": values}), file)
    elif suffix in (".JSONL", ".NDJSON"):
        file.write_text('{"x": 1}\n{"x": 2}\n')
    else:
        text = b"x\n1\n2\n"
        compress = {".CSV.GZ": gzip.compress, ".CSV.BZ2": bz2.compress}.get(suffix, bytes)
        file.write_bytes(compress(text))
    assert columns_in(file) == ["x"]
    assert rows_in(file)["observation"][:, 0].tolist() == [1, 2]


def test_two_columns_of_one_name_are_refused_in_any_table(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pa = pytest.importorskip("pyarrow")
    frame = pd.DataFrame([[1.0, 2.0]] * 5, columns=["x", "x"])
    table = pa.Table.from_arrays([pa.array([1.0] * 5)] * 2, names=["x", "x"])
    for twice in (frame, table, {1: np.ones(5), "1": np.ones(5)}):
        with pytest.raises(BadInput, match="two columns are called"):
            learn_from(twice, questions="nexting", out=tmp_path / "run")


PACKERS = {"gz": gzip.compress, "bz2": bz2.compress}


@pytest.mark.parametrize(
    ("start", "kind", "limit"),
    [
        ("x,y\n1,", "gz", 1 << 24),
        ("x,y\n", "gz", 1 << 22),
        ('1,"', "gz", 1 << 22),
        ("", "gz", 1 << 22),
        ("x\n" * 9, "bz2", 1 << 22),
    ],
)
def test_a_line_without_end_is_refused_before_it_is_read(
    start: str, kind: str, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of some kB holds a line of 640 MB: it is refused after 16 million characters, or a lower limit."""
    monkeypatch.setattr(csv_format, "MOST_BYTES", limit)
    pack = PACKERS[kind]
    file = tmp_path / f"x.csv.{kind}"
    file.write_bytes(pack(start.encode()) + 320 * pack(b"1" * 2_000_000))
    began = time.process_time()
    with pytest.raises(BadInput, match=f"has a row of more than {limit:,} bytes, so it is"):
        rows_in(file)
    assert time.process_time() - began < 2.0
    assert cli.main(["columns", str(file)]) == 2


class CountedPattern(NamedTuple):
    """A pattern that lists the lengths of the texts that it is matched with."""

    pattern: re.Pattern[bytes]
    lengths: list[int]

    def match(self, text: bytes) -> re.Match[bytes] | None:
        self.lengths.append(len(text))
        return self.pattern.match(text)


@pytest.mark.parametrize("start", ["x,y\n1,", 'x,y\n1,"', "x,y\n" + 500 * "1,2\n" + '1,"'])
def test_a_long_row_takes_no_more_time_than_its_length(
    start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of 128 pieces: at most twice its bytes are looked through; 64 times, if with each piece."""
    lengths = list[int]()
    monkeypatch.setattr(csv_format, "BLOCK_BYTES", 1 << 12)
    counted = SimpleNamespace(
        escape=re.escape, compile=lambda text: CountedPattern(re.compile(text), lengths)
    )
    monkeypatch.setattr(csv_format, "re", counted)
    text = start + "z" * (1 << 19)
    parts = list(read_columns(csv_file(tmp_path, text + '"' * start.count('"')), ["x", "y"]))
    assert sum(len(part["x"]) for part in parts) == start.count("\n")
    assert len(text) / 2 < sum(lengths) < 3 * len(text)


def test_wide_rows_are_read_in_small_parts(tmp_path: Path) -> None:
    """8,192 rows of 100 kB would be 800 MB at once, from a file of some kB."""
    file = tmp_path / "x.csv.gz"
    row = b'1,"' + b"z" * 100_000 + b'"\n'
    file.write_bytes(gzip.compress(b"x,y\n") + 1_000 * gzip.compress(row))
    parts = list(read_columns(file, ["x"]))
    assert sum(len(part["x"]) for part in parts) == 1_000
    assert max(len(part["x"]) for part in parts) < 700


CELLS = (
    "",
    "1",
    "2.5",
    '"a,b"',
    '"a\nb"',
    '"\n"',
    '""',
    '""""',
    '"a""\nb"',
    '24" x',
    'a"b"',
    "3 ",
    '"é"',
    "x",
)


def value_of(cell: Any) -> Any:
    """Return a number as such, which a column of numbers has and one with texts has not."""
    if isinstance(cell, str) and cell.strip() not in ("1", "2", "2.5", "3"):
        return cell
    return float(cell)


@pytest.mark.parametrize("has_pyarrow", [True, False])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_file_has_the_rows_of_the_standard_library_however_it_is_cut(
    line_end: str, has_pyarrow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quotes, line ends within them and short rows, read 8 to 200 bytes at a time, by pyarrow or without it.

    Cut at each line end, cells with one would be two; by the number of quotes, `24" x` would hide the next end.
    """
    if not has_pyarrow:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    rng = np.random.default_rng(4)
    file = tmp_path / "t.csv"
    for n_bytes in (8, 12, 23, 64, 200):
        monkeypatch.setattr(csv_format, "BLOCK_BYTES", n_bytes)
        lines = ["x,y,é"]
        for _ in range(60):
            n_cells = 3 if rng.random() < 0.9 else int(rng.integers(4))
            lines.append(",".join(rng.choice(CELLS, n_cells)))
        text = line_end.join([*lines, "1,2,3", ",,", "", '"",']) + line_end * int(rng.integers(2))
        with file.open("w", newline="", encoding="utf-8-sig") as opened:
            opened.write(text)
        in_file = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        expected = [[value_of(cell) for cell in row + [""] * (3 - len(row))] for row in in_file]
        parts = list(read_columns(file, ["é", "x", "y"]))
        columns = [np.concatenate([part[name].astype(object) for part in parts]) for name in "xyé"]
        rows = [[value_of(cell) for cell in row] for row in zip(*columns, strict=True)]
        assert rows == expected[1:-2]
        assert max(len(part["x"]) for part in parts) < 40


def test_a_row_may_span_lines_within_quotes(tmp_path: Path) -> None:
    file = csv_file(tmp_path, 'x,note\n1,"a\nb"\n2,"c"\n')
    assert rows_in(file)["observation"][:, 0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (
            bz2.compress(b"x\n1\n2\n") + b"trailing bytes",
            "the bytes after the end of a bzip2 stream are",
        ),
        (
            bz2.compress(b"x\n1\n") + b"lost" + bz2.compress(b"2\n"),
            "the bytes after the end of a bzip2 stream are not bzip2 data",
        ),
        (bz2.compress(b"x\n1\n2\n")[:-9], "it ends within its bzip2 data"),
        (b"x\n1\n2\n and no bzip2 data", "its bytes are not bzip2 data"),
        (b"", "it ends within its bzip2 data"),
    ],
    ids=["trailing", "between", "cut", "text", "empty"],
)
def test_bytes_of_a_bzip2_file_are_never_left_out(data: bytes, what: str, tmp_path: Path) -> None:
    """Streams one after another are one file; all else is refused. `bz2.open` ends in silence at such bytes."""
    file = tmp_path / "x.csv.bz2"
    file.write_bytes(data)
    with pytest.raises(BadInput, match=f"x.csv.bz2 cannot be read: {what}"):
        rows_in(file)
    file.write_bytes(bz2.compress(b"x\n1\n") + bz2.compress(b"2\n3\n"))
    assert rows_in(file)["observation"][:, 0].tolist() == [1, 2, 3]


def test_a_bzip2_file_whose_first_bytes_hold_no_line_has_its_separator(tmp_path: Path) -> None:
    """Its first 64 kB unpack to nothing, because a block of 900 kB of random digits has 400 kB."""
    digits = np.random.default_rng(0).integers(10, size=(20, 50_000)).astype(str)
    text = "x;note\n" + "".join(f"{i};{''.join(row)}\n" for i, row in enumerate(digits))
    file = tmp_path / "t.csv.bz2"
    file.write_bytes(bz2.compress(text.encode()))
    assert columns_in(file) == ["x", "note"]
    assert rows_in(file, missing="gap")["observation"][:, 0].tolist() == list(range(20))


def test_a_message_about_a_missing_column_does_not_name_thousands(tmp_path: Path) -> None:
    file = csv_file(tmp_path, ",".join(f"c{i}" for i in range(5_000)) + "\n")
    with pytest.raises(
        BadInput, match=r"has no column 'x'; there are c0, c1, .*c29 and 4,970 others"
    ):
        rows_in(file)


def vectors(values: list[Any], kind: str = "list", size: int = -1) -> Any:
    pa = pytest.importorskip("pyarrow")
    return pa.table(
        {"v": pa.array(values, pa.list_(getattr(pa, kind)(), size)), "x": [1.0] * len(values)}
    )


@pytest.mark.parametrize("size", [-1, 2])
def test_a_null_vector_stays_in_its_row(size: int, tmp_path: Path) -> None:
    """Row 2 lacks its vector, row 4 one number: both are dropped, and the others keep their numbers."""
    pq = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "v.parquet"
    pq.write_table(
        vectors([[1, 2], [3, 4], None, [5, 6], [7, None], [9, 8]], "float32", size), file
    )
    channel = tuple(ChannelColumn(f"v_{i}", f"v{i}", low=0.0, high=10.0) for i in range(2))
    rows = rows_of(open_table(file, columns_of(channel, missing="gap")))
    assert rows["observation"].tolist() == [[1, 2], [3, 4], [5, 6], [9, 8]]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 2, 3]
    with pytest.raises(BadInput, match="row 3, column 'v_0': nan must be a finite number"):
        rows_of(open_table(file, columns_of(channel, missing="error")))
    nan = np.nan
    np.testing.assert_array_equal(
        rows_of(open_table(file, columns_of(channel)))["observation"],
        [[1, 2], [3, 4], [nan, nan], [5, 6], [7, nan], [9, 8]],
    )


@pytest.mark.parametrize("n_before", [0, 2, 8_192])
def test_vectors_of_several_lengths_are_refused(n_before: int, tmp_path: Path) -> None:
    """Within a part, and if a later part has longer ones throughout."""
    pq = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "v.parquet"
    longer = [[1, 2, 3]] * (1 if n_before < 8_192 else 5)
    pq.write_table(
        vectors([[1, 2]] * (n_before + 1) + longer, "float64"), file, row_group_size=n_before + 1
    )
    with pytest.raises(BadInput, match=f"row {n_before + 2}.* a vector of 3 numbers, expected 2"):
        rows_of(open_table(file, columns_of((ChannelColumn("v_0", "v", low=0.0, high=9.0),))))


def test_whole_numbers_beside_a_null_stay_exact() -> None:
    """Pyarrow gives them as float64, in which 2^53 and 2^53 + 1 are one number."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table(
        {"x": [1.0] * 4, "e": [2**53, 2**53, 2**53 + 1, 2**53 + 1], "k": pa.array([1, None, 2, 2])}
    )
    rows = rows_of(Table(lambda: chunks_of([table]), columns_of((X,), episode="e"), "t"))
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 2]
    chunk = next(iter(chunks_of([table])))
    assert chunk["k"].tolist() == [1, None, 2, 2]


def test_a_number_with_a_decimal_comma_needs_digits_after_it_alone() -> None:
    """A half is ",5", as it is ".5"; "5," and "1,234,5" remain texts, which are refused."""
    texts = [",5", "-,25", "1,5e2", "5,", ",", "1,234,5"]
    assert cells.with_decimal_points(texts) == [".5", "-.25", "1.5e2", "5,", ",", "1,234,5"]


# ---- hostile files ---------------------------------------------------------------------------------------------------


def npz_with(file: Path, header: str, change: Any = None) -> Path:
    """Write an npz file whose array x has this header."""
    text = header.encode().ljust(118) + b"\n"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(
            "x.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16)
        )
    if change is not None:
        file.write_bytes(change(file.read_bytes()))
    return file


def encrypted(data: bytes) -> bytes:
    return _with_field(data, 6, 8, b"\x01\x00")


def with_unknown_compression(data: bytes) -> bytes:
    return _with_field(data, 8, 10, b"\x63\x00")


def _with_field(data: bytes, local: int, central: int, value: bytes) -> bytes:
    """Return a zip file with another value of a field in the header of its file and in its directory."""
    directory = data.index(b"PK\x01\x02")
    changed = bytearray(data)
    changed[local : local + 2] = value
    changed[directory + central : directory + central + 2] = value
    return bytes(changed)


SHAPE = "{'descr': '<f8', 'fortran_order': False, 'shape': (%s,), }"


@pytest.mark.parametrize(
    ("header", "change"),
    [
        (SHAPE % 10**18, None),
        (SHAPE % 10**30, None),
        (SHAPE % 10**11, None),
        (SHAPE % -1, None),
        ("(" * 9_000 + ")" * 9_000, None),
        ("{'descr': [" + "(" * 60 + ")" * 60 + "], 'fortran_order': False, 'shape': (2,)}", None),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", None),
        ("{'descr': ", None),
        (SHAPE % 2, encrypted),
        (SHAPE % 2, with_unknown_compression),
        (SHAPE % 2, lambda data: data[:60]),
    ],
    ids=lambda one: str(one)[:24],
)
def test_a_hostile_npz_file_is_refused_in_one_sentence(
    header: str, change: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = npz_with(tmp_path / "bad.npz", header, change)
    with pytest.raises(BadInput, match=r"bad.npz"):
        list(read_columns(file, ["x"]))
    columns = csv_file(tmp_path, 'period_s = 1\n[[channel]]\ncolumn = "x"\n', "columns.toml")
    assert (
        cli.main(f"learn --data {file} --columns {columns} --out {tmp_path / 'run'}".split()) == 2
    )
    assert capsys.readouterr().err.count("\n") == 1


def test_an_npz_file_larger_than_the_free_memory_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight megabytes of zeros in a file of some kB."""
    file = tmp_path / "zeros.npz"
    np.savez_compressed(file, x=np.zeros(1_000_000))
    assert file.stat().st_size < 20_000
    monkeypatch.setattr(npz, "available_memory", lambda: 5_000_000)
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", None)
    for read in (lambda: list(read_columns(file, ["x"])), lambda: columns_in(file)):
        with pytest.raises(BadInput, match=r"zeros.npz has 0.008 GB unpacked, but 0.005 GB of me"):
            read()


PYARROW_ERRORS = ("ArrowNotImplementedError", "ArrowException")


@pytest.mark.parametrize("name", [*PYARROW_ERRORS, "MemoryError"])
def test_every_error_of_pyarrow_in_a_file_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage in a footer raises the first two; the second is of no other class than Exception.

    The third is Python's own, from an allocation that failed in C++; pyarrow's is a subclass of both.
    """
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"x": [1.0, 2.0]}), file)

    def fail(*arguments: Any, **options: Any) -> None:
        error: type[Exception] = MemoryError
        if name in PYARROW_ERRORS:
            error = getattr(pa.lib, name)
        raise error("Wrapping failed")

    monkeypatch.setattr("pyarrow.dataset.dataset", fail)
    with pytest.raises(BadInput, match=r"bad.parquet cannot be read: Wrapping failed"):
        list(read_columns(file, ["x"]))


def test_a_damaged_footer_of_a_parquet_file_is_refused_or_read(tmp_path: Path) -> None:
    """Two bits of each byte of the footer changed in turn; some have no meaning."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"x": [1.0, 2.0], "v": [[1], [2]]}), file)
    sound = file.read_bytes()
    size = int.from_bytes(sound[-8:-4], "little")
    messages = []
    for place in range(len(sound) - 8 - size, len(sound)):
        for bit in (1, 7):
            damaged = bytearray(sound)
            damaged[place] ^= 1 << bit
            file.write_bytes(damaged)
            try:
                list(read_columns(file, ["x", "v"]))
            except BadInput as error:
                messages.append(str(error))
    assert len(messages) > size // 2
    assert all("bad.parquet" in message for message in messages)


@pytest.mark.parametrize(
    "text",
    [
        "a." * 20_000 + "b = 1",
        "[" + "a." * 20_000 + "b]",
        '"a".' * 20_000 + "b = 1",
        "a = " + "[" * 2_000 + "]" * 2_000,
        "a = " + "{a = " * 2_000 + "1" + "}" * 2_000,
    ],
    ids=lambda text: text[:8],
)
def test_a_hostile_toml_file_is_refused_at_once(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The standard library takes 35 s for a key of 20,000 dots, and recurses into tables."""
    began = time.process_time()
    with pytest.raises(ValueError, match=r"a key has more than 32 dots|nested too deeply"):
        parsed_toml(text)
    file = csv_file(tmp_path, text, "bad.toml")
    table = csv_file(tmp_path, "x\n1\n2\n")
    for words in (
        f"--data {table} --columns {file}",
        f"--config {file}",
        f"--physics planar --questions {file}",
    ):
        assert cli.main(f"learn {words} --out {tmp_path / 'run'}".split()) == 2
    lines = capsys.readouterr().err.splitlines()
    # Without compiled kernels a process announces once that it compiles
    assert [line[:7] for line in lines if not line.startswith("compiling, once")] == ["horde: "] * 3
    assert time.process_time() - began < 5.0


def test_texts_and_lists_with_many_dots_are_plain_toml() -> None:
    text = f"numbers = [{'0.5, ' * 1_000}]\nwords = '{'. ' * 500}'\na.b.c = 1\n"
    assert len(parsed_toml(text)["numbers"]) == 1_000
