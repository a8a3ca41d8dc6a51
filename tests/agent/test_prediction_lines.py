"""Lines of predictions for another program: JSON, with numbers as in C's format %.9g."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from horde_agent.kernels.decimals import MOST_BYTES, write_numbers
from horde_agent.runs.sources.predictions import PredictionWriter
from horde_agent.types import Floats

NAMES = ['50 % "full"', "%s %.9g %%", "Wärme ☀ \\ \n", "", "left"]


def texts_of(values: Floats) -> list[str]:
    """Return each number as it is written."""
    n = len(values)
    room = np.zeros(n * (1 + MOST_BYTES), dtype=np.uint8)
    spaces = np.full(n, ord(" "), dtype=np.uint8)
    end = write_numbers(values, np.arange(n), spaces, np.arange(1, n + 1), room, 0)
    return room[:end].tobytes().decode().split(" ")[1:]


def in_c_format(values: Floats) -> list[str]:
    return [f"{value:.9g}" for value in values.tolist()]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-12.5, "-12.5"),
        (0.1, "0.1"),
        (0.030309, "0.030309"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (123456789.0, "123456789"),
        (1234567890.0, "1.23456789e+09"),
        (100000000.0, "100000000"),
        (1e9, "1e+09"),
        (0.9999999994, "0.999999999"),
        (0.9999999996, "1"),
        (999999999.6, "1e+09"),
        (0.00009999999996, "0.0001"),
        (1.5e-323, "1.48219694e-323"),
        (-1.7976931348623157e308, "-1.79769313e+308"),
        (np.nan, "null"),
        (np.inf, "null"),
        (-np.inf, "null"),
    ],
)
def test_a_number_has_nine_digits(value: float, text: str) -> None:
    """The borders between the forms are at 10^-4 and 10^9, after rounding; a half is rounded to even."""
    assert texts_of(np.array([value])) == [text]


def test_halves_are_rounded_to_even() -> None:
    """2^-k has k digits behind the point, the last a 5: 1 + 2^-9 = 1.001953125 lies between two of nine digits."""
    values = np.array([1 + 2**-9, 1 + 3 * 2**-9, 10000000050.0, 10000000150.0])
    assert texts_of(values) == ["1.00195312", "1.00585938", "1e+10", "1.00000002e+10"]


def test_numbers_are_those_of_the_c_format() -> None:
    """Numbers of all magnitudes and lengths; float32 reads back exactly from nine digits (2^24 < 10^8)."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=2_000) * 10.0 ** rng.integers(-12, 12, 2_000)
    short = np.round(rng.normal(size=1_000) * 100, 3)
    powers = np.array([float(f"{sign}1e{k}") for k in range(-323, 309) for sign in ("", "-")])
    for values in (normal, short, powers):
        assert texts_of(values) == in_c_format(values)
    bits = rng.integers(0, 2**32, 2_000, dtype=np.uint64).astype(np.uint32)
    singles = bits.view(np.float32)
    singles = singles[np.isfinite(singles)]
    read = np.array(json.loads(f"[{', '.join(texts_of(singles.astype(np.float64)))}]"))
    np.testing.assert_array_equal(read.astype(np.float32), singles)


def test_a_line_names_each_prediction_in_order(tmp_path: Path) -> None:
    """Names may hold what a template or JSON has another meaning for; NaN is null."""
    path = tmp_path / "answers"
    writer = PredictionWriter(str(path), NAMES, None)
    values = np.array([1.5, np.nan, -2e-7, 3.0, np.inf])
    writer.write(0.25, values)
    writer.write(np.nan, np.zeros(5, dtype=np.float32))
    writer.write_fault("row 3 was dropped")
    writer.write(1e15, -values)
    writer.close()
    lines = path.read_bytes().splitlines()
    assert len(lines) == 4
    first = {
        "time": 0.25,
        "predictions": dict(zip(NAMES, [1.5, None, -2e-7, 3, None], strict=True)),
    }
    assert lines[0].decode() == json.dumps(first)
    rows = [json.loads(line) for line in lines]
    assert [list(row.get("predictions", NAMES)) for row in rows] == [NAMES] * 4
    assert rows[1] == {"time": None, "predictions": dict.fromkeys(NAMES, 0)}
    assert rows[2] == {"error": "row 3 was dropped"}
    assert rows[3]["time"] == 1e15
    assert list(rows[3]["predictions"].values()) == [-1.5, None, 2e-7, -3, None]


def test_a_line_has_the_chosen_names_alone(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    writer = PredictionWriter(str(path), ["b1", "a", "b2"], "b*")
    writer.write(2.0, np.array([0.1, 0.2, 0.3]))
    writer.close()
    assert path.read_text() == '{"time": 2, "predictions": {"b1": 0.1, "b2": 0.3}}\n'
