"""All channels as text, within 80 x 24."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horde_env.robot import Floats, critterbot
from horde_env.tools.terminal import Style, Tally, block

SPEC = critterbot()
MIDDLE = 0.5 * (SPEC.low + SPEC.high)
PLAIN = Style()
INFO = {
    "t": 12.34,
    "sensor_age_s": 0.004,
    "crc_errors": 0,
    "gap": 0,
    "stale": 0,
    "clipped": 0,
    "applied": 1,
}


def picture(
    values: Floats = MIDDLE, style: Style = PLAIN, title: str = "robot", tally: Tally | None = None
) -> str:
    return block(title, values, INFO, tally or Tally(SPEC.period_s), SPEC, style)


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize(
    "values", [SPEC.low, MIDDLE, SPEC.high, SPEC.to_si(SPEC.raw_low), SPEC.to_si(SPEC.raw_high)]
)
def test_it_fits_the_terminal(values: Floats, width: int) -> None:
    rows = picture(values, Style(width), title="x" * 200).splitlines()
    assert len(rows) <= 23  # one is left for the cursor
    assert max(map(len, rows)) <= width


def test_every_channel_has_its_place() -> None:
    """The numbers 0.01 .. 0.57 differ in their text; each of them appears once."""
    values = np.arange(1, SPEC.n_channels + 1) / 100.0
    shown = [float(number) for number in re.findall(r" (\d\.\d{3}) ", picture(values))]
    assert sorted(shown) == pytest.approx(sorted(values))


def test_a_bar_is_as_long_as_the_share_of_the_range() -> None:
    """Four cells of 11 .. 19 V: 15 V is half, 11 V nothing, 19 V all, beyond no more."""

    def bar(volt: float) -> str:
        values = MIDDLE.copy()
        values[SPEC.index("bus_voltage")] = volt
        rows = picture(values, Style(width=84)).splitlines()
        return next(row for row in rows if row.startswith("bus")).split()[-1]

    assert [bar(v) for v in (11.0, 15.0, 19.0, 25.5, 0.0)] == [
        "....",
        "##..",
        "####",
        "####",
        "....",
    ]
    assert bar(np.nan) == "????"


def test_what_is_outside_its_range_is_red_and_nothing_else() -> None:
    style = Style(colour=True)
    assert "\x1b[31m" not in picture(style=style)
    values = MIDDLE.copy()
    values[SPEC.index("bus_voltage")] = 10.9
    red = re.findall(r"\x1b\[31m([^\x1b]*)", picture(values, style))
    assert red[0].strip() == "10.90"
    assert len(red) == 2  # the number and its bar


def test_faults_are_counted_and_packets_are_a_rate() -> None:
    tally = Tally(period_s=0.1)
    assert tally.packets_per_s is None
    for k in range(40):  # steps of 0.16 s, as on a busy machine
        counts = {
            "crc_errors": 2,
            "clipped": 3,
            "gap": k == 5,
            "applied": k != 7,
            "packets": 16 - 11 * (k < 20),
        }
        tally.take(INFO | counts | {"t": 0.1 + 0.16 * k})
        if k == 0:
            assert tally.packets_per_s == pytest.approx(50.0)
    assert tally.faults == {
        "crc_errors": 80,
        "gap": 1,
        "stale": 0,
        "clipped": 120,
        "not applied": 1,
    }
    assert tally.packets_per_s == pytest.approx(100.0)  # over the last 20 steps alone
    text = picture(tally=tally)
    assert "100 packets/s" in text
    assert "age 4 ms" in text
    assert "t 12.3 s" in text
    assert "gap 1" in text


@given(st.lists(st.floats(), min_size=SPEC.n_channels, max_size=SPEC.n_channels))
def test_no_reading_breaks_the_picture(values: list[float]) -> None:
    assert len(picture(np.array(values)).splitlines()) == len(picture().splitlines())
