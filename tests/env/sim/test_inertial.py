import math

import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.robots.critterbot.place import load_pen
from horde_env.robots.critterbot.simulator import packet
from tests.oracles import senses as twin

pytestmark = pytest.mark.kernels

EARTH = np.array([load_pen().magnetism.north_rad, *load_pen().magnetism.centre, *load_pen().magnetism.swing])
IRON = np.array([[*i.position_m, i.depth_m, *i.field] for i in load_pen().iron])
STILL = np.zeros(3)


def raw_acceleration(
    heading: float = 0.0, ax: float = 0.0, ay: float = 0.0, yaw_rate: float = 0.0, before: float | None = None
) -> np.ndarray:
    """Return the accelerometer's raw x, y, z without noise or shaking, not yet rounded."""
    out, motion = np.zeros(3), np.array([0.0, 0.0, heading, yaw_rate, ax, ay])
    packet.acceleration(motion, yaw_rate if before is None else before, STILL, STILL, 0.0, np.zeros(7), out)
    return out / critterbot().lsb[16:19]


def counts(x: float, y: float, heading: float, iron: np.ndarray = IRON, duty: np.ndarray = STILL) -> np.ndarray:
    out = np.zeros(3)
    packet.magnetic(np.array([x, y, heading, 0, 0, 0]), duty, EARTH, iron, np.zeros(3), out)
    return 1023 * out


def test_at_rest_the_accelerometer_reads_gravity_4_percent_low_and_its_offset() -> None:
    np.testing.assert_allclose(raw_acceleration(), [13.0, 0.0, 978.0], atol=1e-9)


def test_the_accelerometer_is_turned_by_180_degrees_about_z() -> None:
    """1 g forward reads x -1024 on top of the offset, for any heading; 1 g to the left reads y -1024."""
    for heading in (0.0, 2.0):
        raw = raw_acceleration(heading, 9.81 * math.cos(heading), 9.81 * math.sin(heading))
        np.testing.assert_allclose(raw, [13.0 - 1024.0, 0.0, 978.0], atol=1e-9)
    np.testing.assert_allclose(raw_acceleration(0.0, 0.0, 9.81), [13.0, -1024.0, 978.0], atol=1e-9)


def test_a_steady_turn_accelerates_the_chip_off_the_axis() -> None:
    """-yaw_rate^2 r with r = (-5, -14) mm: at 3 rad/s, 45 and 126 mm/s^2 in the body frame, raw -4.7 and -13.2."""
    np.testing.assert_allclose(raw_acceleration(yaw_rate=3.0) - raw_acceleration(), [-4.70, -13.15, 0.0], atol=0.01)


def test_a_contact_rings_in_z_only() -> None:
    """0.5 N s at 6 m/s^2 per N s, times a standard normal."""
    quiet = np.zeros(7)
    for swing in (1.0, -0.4):
        still, hit, normal = np.zeros(3), np.zeros(3), np.array([*quiet[:6], swing])
        packet.acceleration(np.zeros(6), 0.0, STILL, STILL, 0.0, normal, still)
        packet.acceleration(np.zeros(6), 0.0, STILL, STILL, 0.5, normal, hit)
        np.testing.assert_allclose(hit - still, [0.0, 0.0, 3.0 * swing], atol=1e-12)


def test_shaking_grows_with_wheel_speed_up_to_a_bound() -> None:
    """Over all roller phases and noise: 150 to 400 counts sd in y and z at full speed, as in the log; none at rest."""
    rng, sd = np.random.default_rng(seed=0), {}
    for speed in (0.0, 0.1, 0.3, 0.6):
        samples = np.zeros((2000, 3))
        for out in samples:
            roller = rng.uniform(0, 2 * math.pi, 3)
            packet.acceleration(np.zeros(6), 0.0, np.full(3, speed), roller, 0.0, rng.standard_normal(7), out)
        sd[speed] = samples.std(axis=0) / packet.G_LSB
    assert np.all(sd[0.0] < 3.5)  # the noise at rest
    np.testing.assert_allclose(sd[0.1], 0.1 * np.array(packet.SHAKE_PER_SPEED) / packet.G_LSB, rtol=0.06)
    np.testing.assert_allclose(sd[0.6], sd[0.3], rtol=0.05)
    assert 120 < sd[0.3][0] < 160
    assert 300 < sd[0.3][1] < 400
    assert 350 < sd[0.3][2] < 420


def test_the_gyroscope_counts_77_and_a_half_per_radian_per_second() -> None:
    out, lsb = np.zeros(1), critterbot().lsb[22]
    packet.rotational_velocity(2.0, np.zeros(1), out)
    assert out[0] / lsb == pytest.approx(2 * 77.5 + 5)


def test_the_magnetometer_swings_by_95_counts_in_x_and_barely_elsewhere() -> None:
    """In pure rotation far from steel: x 595 +- 95, y 631 +- 0.1, z 400 +- 2."""
    around = np.array([counts(0.0, 0.0, h, IRON[:0]) for h in np.linspace(0, 2 * math.pi, 721)])
    np.testing.assert_allclose(around.mean(axis=0), [595.0, 631.0, 400.0], atol=0.2)
    np.testing.assert_allclose(np.ptp(around, axis=0) / 2, [95.0, 0.1, 2.0], atol=0.01)
    assert around[:, 0].argmax() / 2 == pytest.approx(30.0)


def test_the_kernels_agree_with_their_slow_twins() -> None:
    rng, quiet = np.random.default_rng(seed=2), np.zeros(7)
    for _ in range(50):
        motion, wheels, roller, duty = rng.normal(size=6), rng.normal(size=3), rng.normal(size=3), rng.normal(size=3)
        felt, field = np.zeros(3), np.zeros(3)
        packet.acceleration(motion, 0.3, wheels, roller, 0.0, quiet, felt)
        packet.magnetic(motion, duty, EARTH, IRON, np.zeros(3), field)
        np.testing.assert_allclose(felt, twin.acceleration(motion, 0.3, wheels, roller), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(field, twin.magnetic(motion, duty, EARTH, IRON), rtol=1e-12)
