import math
from dataclasses import replace

import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.robots.critterbot.arena import load_pen
from horde_env.robots.critterbot.simulator import packet
from horde_env.robots.critterbot.simulator.backend import SimulatedBody
from horde_env.robots.critterbot.simulator.packet import THERMAL_LAG_S
from horde_env.robots.critterbot.simulator.sensors import Senses
from tests.env.sim.kinematic import BodyState, at, read, wander

SPEC = critterbot()
OWN = slice(16, 53)


def senses(seed: int = 0) -> Senses:
    model = Senses(SPEC, load_pen())
    model.reset(np.random.default_rng(seed))
    return model


def stand(
    body: BodyState, n: int, seed: int = 0, period_s: float = 0.1, made: Senses | None = None
) -> np.ndarray:
    """Return the raw readings of `n` packets of a body that stands still, shape (n, 57)."""
    made = made or senses(seed)
    rng = np.random.default_rng(seed)
    values = np.zeros((n, SPEC.n_channels))
    for i in range(n):
        read(made, body, body, (i + 1) * period_s, rng, values[i])
    return (values - SPEC.offset) / np.where(SPEC.lsb == 0, 1, SPEC.lsb)


def live(n_steps: int) -> np.ndarray:
    """Return the values of a wandering life, one row per 100 ms."""
    body = SimulatedBody(physics="planar")
    body.reset(np.random.default_rng(0))
    return np.array([frame.values for frame in wander(body, n_steps, seed=1)])


def test_no_channel_is_constant_over_a_life() -> None:
    """Each except magnetic_y, which hardly moves on the real robot either, varies with the body, not by noise alone."""
    raw = live(20_000)[:, OWN] / SPEC.lsb[OWN]
    resting = stand(at(0.2, 0.1, 0.4), 400)[:, OWN]
    assert np.all(raw.std(axis=0) > 0)
    deaf = SPEC.index("magnetic_y") - 16
    moved = np.delete(raw.std(axis=0) / resting.std(axis=0), deaf)
    assert moved.min() > 2


def test_every_reading_is_a_whole_number_of_the_converters_steps() -> None:
    """Exactly as RobotSpec counts, on the wire; ir_light, the mean of two packets, may be a half."""
    whole = np.r_[16:33, 41:53]
    for values in live(50):
        raw = np.rint((values - SPEC.offset)[whole] / SPEC.lsb[whole])
        np.testing.assert_array_equal(values[whole], SPEC.lsb[whole] * raw + SPEC.offset[whole])
        assert ((SPEC.raw_low[whole] <= raw) & (raw <= SPEC.raw_high[whole])).all()
        halves = 2 * values[33:41] / SPEC.lsb[33:41]
        np.testing.assert_allclose(halves, np.rint(halves), atol=1e-9)


def test_readings_stay_within_the_wires_range() -> None:
    """A crash of 30 g, a spin of 20 rad/s: clipped, not wrapped."""
    body = at(0.0, 0.0, 0.0, ax=-300.0, yaw_rate=20.0)
    raw = stand(body, 5)
    assert raw[:, 16] == pytest.approx(2047)
    assert raw[:, 22] == pytest.approx(511)


def test_noise_at_rest_equals_the_real_robots() -> None:
    """Standard deviations of the real robot at rest, in counts (rounding adds 1/12 to each variance)."""
    sd = stand(at(0.1, 0.1, 0.3), 3000)[:, OWN].std(axis=0)
    expected = np.hypot([0.9, 0.9, 2.9, 2.2, 0.9, 0.7, 2.6], math.sqrt(1 / 12))
    np.testing.assert_allclose(sd[:7], expected, rtol=0.06)
    assert np.all((sd[25:29] > 1.8) & (sd[25:29] < 3.0))  # light: 2, and the lamps' flicker
    assert np.all((sd[29:37] > 3.0) & (sd[29:37] < 7.0))  # thermal: about 5, most of it slow
    # Ir_distance along the diagonal from the middle of the pen
    idle = stand(at(0.0, 0.0, math.pi / 4), 500)[:, 23]
    assert 8 <= np.median(idle) <= 20
    assert idle.min() > 0


def test_the_beacon_alternates_from_packet_to_packet() -> None:
    """About 50 Hz seen at 100 Hz: of two packets in a row one is bright and one dark, so their mean hardly moves.

    One packet alone would swing by the beacon's full height; the mean of two stays within a few
    counts of half of it.
    """
    facing = at(0.45, -0.4, -math.pi / 2)
    model = senses()
    single = np.array([packet.lit_at(model.state.times, 0.01 * i) for i in range(200)])
    assert np.mean(np.abs(np.diff(single)) > 0.9) > 0.9
    pairs = stand(facing, 400, made=model)[:, 33]
    assert np.median(pairs) > 45
    assert np.percentile(pairs, 95) - np.percentile(pairs, 5) < 12


def test_infrared_light_never_reaches_256() -> None:
    """The robot's wire would wrap there. Right before the beacon, both packets."""
    assert stand(at(0.45, -0.78, -math.pi / 2), 500)[:, 33:41].max() < 256


def test_a_pen_without_lamps_or_warmth_is_dark_and_at_room_temperature() -> None:
    model = Senses(SPEC, replace(load_pen(), lamps=(), warm=(), iron=()))
    raw = stand(at(), 50, made=model)
    assert abs(raw[:, 41:45].mean() - 1023 * model.pen.room.light) < 1
    assert abs(raw[:, 45:53].mean() / 50 - model.pen.room.temperature_k) < 0.1


def test_a_knock_is_felt_in_two_packets_by_half() -> None:
    """The shell is soft: 8 m/s^2 forward for 10 ms read as 4 in this packet and in the next."""
    model = senses()
    knocked = at(ax=8.0)
    out = np.zeros((3, SPEC.n_channels))
    for k, (before, now) in enumerate([(at(), knocked), (knocked, at()), (at(), at())]):
        read(model, before, now, 0.01 * (k + 1), np.random.default_rng(0), out[k])
    felt = out[:, SPEC.index("acceleration_x")] - out[2, SPEC.index("acceleration_x")]
    np.testing.assert_allclose(felt, [4.0, 4.0, 0.0], atol=0.02)


def test_lamps_flicker_at_twice_the_mains_rate() -> None:
    """Brightest an eighth of a cycle after zero, darkest after three eighths."""
    model = senses()
    room = model.pen.room
    gain = [
        packet.air_at(model.state.times, model.room, part / room.mains_hz).gain
        for part in (0.0, 1 / 8, 1 / 4, 3 / 8, 1 / 2)
    ]
    np.testing.assert_allclose(
        gain, 1.0 + room.flicker * np.array([0.0, 1.0, 0.0, -1.0, 0.0]), atol=1e-12
    )
    assert room.flicker > 0.0


def test_thermal_zones_hold_a_reading_and_then_follow_with_a_lag() -> None:
    """Turned from the cold pane to the radiator: unchanged for 0.14 s, then 1 - exp(-t/0.3 s) of the way."""
    model = senses()
    rng = np.random.default_rng(0)
    values = np.zeros((400, 57))
    cold = at(0.0, -0.2, math.pi)
    warm = at(-0.4, 0.2, math.pi / 2)
    for i in range(400):
        body = cold if i < 100 else warm
        read(model, body, body, 0.01 * (i + 1), rng, values[i])
    zones = values[:, 45]
    changes = np.flatnonzero(np.diff(zones))
    assert np.all(np.diff(changes) % 14 == 0)  # a new reading may be the old one
    assert np.all(np.diff(changes[:10]) == 14)
    way = zones[300:].mean() - zones[99]
    assert way > 1.5
    refreshed = zones[changes[changes >= 99][0] + 1 + 14 * np.arange(3)]
    shares = (refreshed - zones[99]) / way
    np.testing.assert_allclose(
        shares, 1 - np.exp(-0.14 / THERMAL_LAG_S * np.arange(1, 4)), atol=0.1
    )
