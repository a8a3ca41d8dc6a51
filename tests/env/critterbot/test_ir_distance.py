"""What can be known of the IR distance that the robot's driver scrambles, and the robot's own log."""

from __future__ import annotations

import csv
import gzip
from functools import cache

import numpy as np
import pytest

from horde_env.robots.critterbot import stream, wire
from horde_env.robots.critterbot.stream import StateParser
from horde_env.robots.critterbot.wire import RobotState
from tests.env.recording import REAL_LOG as LOG


def test_what_is_known_of_a_scrambled_ir_distance() -> None:
    """Every one of the 1024 readings, by exhaustion: the bounds are tight and the estimate is the mean of what fits."""
    readings = np.arange(1024.0)
    scrambled = stream.scramble_ir_distance(readings)

    for v in range(256):
        fits = readings[scrambled == v]
        estimate, lowest, highest = (float(x[0]) for x in stream.restore_ir_distance(np.array([v])))
        assert (lowest, highest) == (fits.min(), fits.max())
        assert estimate == pytest.approx(fits.mean(), abs=1e-9)


def test_the_estimate_is_off_by_3_of_1023() -> None:
    readings = np.arange(1024.0)
    error = stream.restore_ir_distance(stream.scramble_ir_distance(readings)).estimate - readings

    assert error.mean() == pytest.approx(0.0, abs=1e-9)
    assert np.sqrt(np.mean(error**2)) == pytest.approx(3.29, abs=0.005)
    assert np.mean(error == 0) >= 1 / 16


@pytest.mark.skipif(not LOG.exists(), reason="the real robot's log is not part of the repository")
def test_the_real_log_was_scrambled() -> None:
    """HH | ll of two uniform pairs of bits is 0, 1, 2, 3 with 1/16, 3/16, 3/16, 9/16; unscrambled, 1/4 each."""
    values = read_log("IRDistance")
    values = values[values > 7]  # with nothing in range the sensors rest at 2 and 3
    share = np.bincount(values.astype(int) & 3, minlength=4) / values.size

    np.testing.assert_allclose(share, np.array([1, 3, 3, 9]) / 16, atol=0.02)


@pytest.mark.skipif(not LOG.exists(), reason="the real robot's log is not part of the repository")
def test_the_real_robots_readings_survive_the_wire() -> None:
    """100 s of every sensor, IR distance as in its stream."""
    order = {
        "bus_voltage": "BusVoltage",
        "battery_voltage": "Bat",
        "motor_voltage": "MotorCommand",
        "motor_velocity": "MotorSpeed",
        "motor_current": "MotorCurrent",
        "motor_temperature": "MotorTemperature",
        "acceleration": "Accel",
        "magnetic": "Mag",
        "rotational_velocity": "RotationVel",
        "ir_distance": "IRDistance",
        "ir_light": "IRLight",
        "light": "Light",
        "thermal": "Thermal",
    }
    columns = np.concatenate([read_log(prefix, every=10) for prefix in order.values()], axis=1)
    parser = StateParser()
    raws = [np.concatenate([row, np.zeros(4)]) for row in columns]
    stream = b"".join(wire.encode_state(RobotState(raw)) for raw in raws)

    np.testing.assert_array_equal([state.raw for state in parser.feed(stream)], raws)
    assert parser.packets == len(columns) > 900


@cache
def log_rows() -> list[list[str]]:
    with gzip.open(LOG, "rt") as file:
        return list(csv.reader(file))


def read_log(prefix: str, every: int = 1) -> np.ndarray:
    """Return the columns of a group, without the first row, which is a placeholder of -1."""
    names, _, *rows = log_rows()
    chosen = [i for i, name in enumerate(names) if name.rstrip("0123456789XYZ") == prefix]
    return np.array([[float(row[i]) for i in chosen] for row in rows[::every]])
