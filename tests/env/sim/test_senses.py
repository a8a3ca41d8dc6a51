"""Known answers of the models of the senses, and every kernel against its slow twin."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.robots.critterbot.arena import load_pen
from horde_env.robots.critterbot.simulator import fields, packet
from tests.oracles import senses as twin

pytestmark = pytest.mark.kernels

PEN = load_pen()
SEGMENTS = PEN.segments()
HEIGHTS = PEN.heights()
REFLECTANCES = PEN.reflectances()
NO_SEGMENTS = np.zeros((0, 4))
NO_HEIGHTS = np.zeros(0)
BEACON = np.array([*PEN.beacon.position_m, PEN.beacon.direction_rad, PEN.beacon.intensity])
LAMPS = np.array([[*lamp.position_m, lamp.intensity] for lamp in PEN.lamps])
WARM = np.array([[*w.position_m, *w[2:]] for w in PEN.warm])
SCRATCH = fields.Scratch(
    lines=np.zeros((fields.N_LINE_ROWS, 30)), along=np.zeros((len(SEGMENTS), 30))
)
WEST = math.pi
SOUTH = -math.pi / 2


def sensors(group: str) -> np.ndarray:
    spec = critterbot()
    return np.column_stack([spec.positions(group), spec.angles(group)])


FRONT = np.array([[0.0, 0.0, 0.0]])  # one sensor in the body's middle, looking forward
EYE = np.array([[fields.SETBACK_M, 0.0, 0.0]])  # one with a line of sight from the body's middle


def still(x: float, y: float, heading: float) -> fields.Pose:
    """Return the pose of a body at rest."""
    return fields.Pose(float(x), float(y), float(heading), 0.0, 0.0, 0.0)


def distance(x: float, y: float, heading: float, at: np.ndarray = FRONT) -> np.ndarray:
    n = len(at)
    out = np.full(len(at), np.nan)
    quiet = np.ones((2, n))
    fields.ir_distance(
        still(x, y, heading), at, SEGMENTS, REFLECTANCES, np.zeros(n), quiet, SCRATCH, out
    )
    return out


def beacon(
    x: float, y: float, heading: float, lit: float = 1.0, at: np.ndarray = EYE
) -> np.ndarray:
    out = np.full((2, len(at)), np.nan)
    quiet = np.zeros((2, len(at)))
    poses = (still(x, y, heading), still(0.0, 0.0, 0.0))
    fields.ir_light(poses, at, BEACON, (lit, 0.0), SEGMENTS, HEIGHTS, quiet, SCRATCH, out)
    return out[0]


def light(
    x: float,
    y: float,
    heading: float,
    lamps: np.ndarray = LAMPS,
    walls: bool = True,
    at: np.ndarray = EYE,
) -> np.ndarray:
    out = np.full(len(at), np.nan)
    segments, heights = (SEGMENTS, HEIGHTS) if walls else (NO_SEGMENTS, NO_HEIGHTS)
    pose = still(x, y, heading)
    fields.light(pose, at, lamps, 1.0, 0.0, segments, heights, np.zeros(len(at)), SCRATCH, out)
    return out


def kelvin(x: float, y: float, heading: float, at: np.ndarray) -> np.ndarray:
    out = np.full(len(at), np.nan)
    fields.warmth(still(x, y, heading), at, WARM, 294.0, SEGMENTS, HEIGHTS, SCRATCH, out)
    return out


def test_a_matte_white_wall_gives_nine_tenths_at_3_cm_and_next_to_nothing_beyond_60() -> None:
    """A share s / (1 + s) with s = (9 cm / d)^2: 0.90 at 3 cm, 0.50 at 9 cm, 0.02 at 60 cm, on an idle reading of 0.01.

    The side rays of the beam meet the wall 0.5 % farther.
    """
    share = [float(distance(1.0 - d, 0.0, 0.0)[0]) for d in (0.03, 0.09, 0.6)]
    assert share[0] == pytest.approx(0.90, abs=0.005)
    assert share[1] == pytest.approx(0.50, abs=0.01)
    assert share[2] == pytest.approx(0.032, abs=0.002)


def test_a_slanting_wall_sends_back_less() -> None:
    """At the same 10 cm along the ray, 60 degrees off: s halves, and the reading with it (0.45 to 0.29)."""
    square = float(distance(0.9, 0.0, 0.0)[0])
    slanting = float(distance(1.0 - 0.1 * math.cos(1.0472), 0.0, 1.0472)[0])
    assert slanting == pytest.approx(0.29, abs=0.02)
    assert square == pytest.approx(0.45, abs=0.01)


def test_a_sensor_pressed_into_the_wall_still_sees_it() -> None:
    """A body that the engine lets sink a millimetre into a wall reads full scale, not nothing."""
    assert distance(1.001, 0.0, 0.0)[0] > 0.95


def test_no_ray_meets_the_robots_own_body() -> None:
    """From 2.5 cm outside the sensor onwards no sensor's line crosses the outline, the tail included."""
    outline = np.array(critterbot().body["outline_m"])
    edges = np.hstack([outline, np.roll(outline, -1, axis=0)])
    for x, y, angle in sensors("ir_distance"):
        start = np.array([x, y]) + 0.025 * twin.unit(angle)
        assert all(
            twin.meeting(start, start + twin.unit(angle), edge) == math.inf for edge in edges
        )


def test_at_the_edge_of_range_readings_jump_and_elsewhere_they_do_not() -> None:
    """A signal of 0.1 reads 0.10: there a small `chance` sends it anywhere up to 50 of 255; at 0.5 nothing jumps."""
    assert fields.ir_reading(0.1, 0.0, 0.001, 1.0) == pytest.approx(50 / 255)
    assert fields.ir_reading(0.1, 0.0, 0.001, 0.0) == fields.IDLE_SHARE
    assert fields.ir_reading(0.1, 0.0, 0.99, 0.0) == pytest.approx(0.1, abs=0.001)
    assert fields.ir_reading(1.0, 0.0, 0.001, 0.0) == pytest.approx(0.505)


def test_the_beacon_is_seen_by_the_sensor_that_faces_it_alone() -> None:
    """Half a metre north of the dock, facing it: front bright, back at the dark reading and a little stray."""
    ring = beacon(0.45, -0.4, SOUTH, at=sensors("ir_light"))
    dark = beacon(0.45, -0.4, SOUTH, lit=0.0, at=sensors("ir_light"))
    np.testing.assert_allclose(dark, fields.IR_LIGHT_BASE)
    assert int(np.argmax(ring)) == 0
    assert ring[0] > 0.4
    assert np.all(ring[3:6] - dark[3:6] < 0.05)


def test_light_falls_with_the_square_of_the_distance_and_the_cosine_of_the_heading() -> None:
    """A lamp I at sensor height, no walls: I (cos + bounce) / d^2, with half the direct light at 60 degrees."""
    lamp = np.array([[0.0, 0.0, fields.SENSOR_HEIGHT_M, 0.1]])
    for d, heading, cosine in (
        (1.0, 0.0, 1.0),
        (2.0, 0.0, 1.0),
        (1.0, math.pi / 3, 0.5),
        (1.0, math.pi, 0.0),
    ):
        expected = 0.1 * (cosine + fields.BOUNCE) / d**2
        assert light(-d, 0.0, heading, lamp, walls=False)[0] == pytest.approx(expected)


def test_the_west_wall_casts_a_shadow_band() -> None:
    """The window at x = -1.6, z = 0.45 clears the 0.25 m wall for a sensor at 0.10 m only beyond x = -0.55.

    Similar triangles: 0.6 m before the wall it stands 0.2 m above it; the sensor, 0.15 m below it,
    comes out of the shadow 0.6 x 0.15 / 0.2 = 0.45 m behind the wall.
    """
    window = LAMPS[1:2]
    shadow, edge, lit = (light(x, -0.2, WEST, window)[0] for x in (-0.7, -0.55, -0.4))
    assert shadow == 0.0
    assert edge == pytest.approx(0.5 * light(-0.55, -0.2, WEST, window, walls=False)[0])
    assert lit == light(-0.4, -0.2, WEST, window, walls=False)[0] > 0.1


def poses() -> list[np.ndarray]:
    rng = np.random.default_rng(seed=5)
    return list(
        np.column_stack([rng.uniform(-0.87, 0.87, (40, 2)), rng.uniform(-math.pi, math.pi, 40)])
    )


@pytest.mark.parametrize(
    ("kernel", "oracle", "group", "tolerance"),
    [
        (
            distance,
            lambda p, s: twin.ir_distance(p, s, SEGMENTS, REFLECTANCES),
            "ir_distance",
            1e-12,
        ),
        (
            beacon,
            lambda p, s: twin.ir_light(p, s, BEACON, 1.0, SEGMENTS, HEIGHTS),
            "ir_light",
            1e-12,
        ),
        (light, lambda p, s: twin.light(p, s, LAMPS, 1.0, 0.0, SEGMENTS, HEIGHTS), "light", 1e-12),
        # The twin sums over a grid of directions 1.6 mrad apart.
        (kelvin, lambda p, s: twin.warmth(p, s, WARM, 294.0, SEGMENTS, HEIGHTS), "thermal", 0.05),
    ],
)
def test_each_kernel_agrees_with_its_slow_twin(
    kernel: Callable[..., np.ndarray],
    oracle: Callable[[np.ndarray, np.ndarray], np.ndarray],
    group: str,
    tolerance: float,
) -> None:
    for pose in poses():
        np.testing.assert_allclose(
            kernel(*pose, at=sensors(group)), oracle(pose, sensors(group)), rtol=0, atol=tolerance
        )


def test_a_body_sunk_into_a_wall_is_still_behind_it() -> None:
    """A light sensor a millimetre beyond the west wall's inner face does not see the window: its sight starts inside.

    Without the setback the window would blind it: 0.27 / 0.7^2 = 0.55 of full scale instead of
    nothing.
    """
    rim = np.array([[0.002, 0.0, 0.0]])
    assert light(-0.999, -0.2, WEST, LAMPS[1:], at=rim)[0] == 0.0


EARTH = np.array(
    [load_pen().magnetism.north_rad, *load_pen().magnetism.centre, *load_pen().magnetism.swing]
)
IRON = np.array([[*i.position_m, i.depth_m, *i.field] for i in load_pen().iron])
STILL = np.zeros(3)
AT_REST = still(0.0, 0.0, 0.0)


def raw_acceleration(
    heading: float = 0.0,
    ax: float = 0.0,
    ay: float = 0.0,
    yaw_rate: float = 0.0,
    before: float | None = None,
) -> np.ndarray:
    """Return the accelerometer's raw x, y, z without noise or shaking, not yet rounded."""
    out = np.zeros(3)
    motion = fields.Pose(0.0, 0.0, heading, yaw_rate, ax, ay)
    packet.acceleration(
        motion, yaw_rate if before is None else before, STILL, STILL, 0.0, np.zeros(7), out
    )
    return out / critterbot().lsb[16:19]


def counts(
    x: float, y: float, heading: float, iron: np.ndarray = IRON, duty: np.ndarray = STILL
) -> np.ndarray:
    out = np.zeros(3)
    packet.magnetic(still(x, y, heading), duty, EARTH, iron, np.zeros(3), out)
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
    np.testing.assert_allclose(
        raw_acceleration(yaw_rate=3.0) - raw_acceleration(), [-4.70, -13.15, 0.0], atol=0.01
    )


def test_a_contact_rings_in_z_only() -> None:
    """0.5 N s at 6 m/s^2 per N s, times a standard normal."""
    quiet = np.zeros(7)
    for swing in (1.0, -0.4):
        quiet_reading = np.zeros(3)
        hit = np.zeros(3)
        normal = np.array([*quiet[:6], swing])
        packet.acceleration(AT_REST, 0.0, STILL, STILL, 0.0, normal, quiet_reading)
        packet.acceleration(AT_REST, 0.0, STILL, STILL, 0.5, normal, hit)
        np.testing.assert_allclose(hit - quiet_reading, [0.0, 0.0, 3.0 * swing], atol=1e-12)


def test_shaking_grows_with_wheel_speed_up_to_a_bound() -> None:
    """Over all roller phases and noise: 150 to 400 counts sd in y and z at full speed, as in the log; none at rest."""
    rng = np.random.default_rng(seed=0)
    sd = {}
    for speed in (0.0, 0.1, 0.3, 0.6):
        samples = np.zeros((2000, 3))
        for out in samples:
            roller = rng.uniform(0, 2 * math.pi, 3)
            packet.acceleration(
                AT_REST, 0.0, np.full(3, speed), roller, 0.0, rng.standard_normal(7), out
            )
        sd[speed] = samples.std(axis=0) / packet.G_LSB
    assert np.all(sd[0.0] < 3.5)  # the noise at rest
    np.testing.assert_allclose(
        sd[0.1], 0.1 * np.array(packet.SHAKE_PER_SPEED) / packet.G_LSB, rtol=0.06
    )
    np.testing.assert_allclose(sd[0.6], sd[0.3], rtol=0.05)
    assert 120 < sd[0.3][0] < 160
    assert 300 < sd[0.3][1] < 400
    assert 350 < sd[0.3][2] < 420


def test_the_gyroscope_counts_77_and_a_half_per_radian_per_second() -> None:
    out = np.zeros(1)
    lsb = critterbot().lsb[22]
    packet.rotational_velocity(2.0, np.zeros(1), out)
    assert out[0] / lsb == pytest.approx(2 * 77.5 + 5)


def test_the_magnetometer_swings_by_95_counts_in_x_and_barely_elsewhere() -> None:
    """In pure rotation far from steel: x 595 +- 95, y 631 +- 0.1, z 400 +- 2."""
    around = np.array([counts(0.0, 0.0, h, IRON[:0]) for h in np.linspace(0, 2 * math.pi, 721)])
    np.testing.assert_allclose(around.mean(axis=0), [595.0, 631.0, 400.0], atol=0.2)
    np.testing.assert_allclose(np.ptp(around, axis=0) / 2, [95.0, 0.1, 2.0], atol=0.01)
    assert around[:, 0].argmax() / 2 == pytest.approx(30.0)


def test_the_kernels_agree_with_their_slow_twins() -> None:
    rng = np.random.default_rng(seed=2)
    quiet = np.zeros(7)
    for _ in range(50):
        motion = rng.normal(size=6)
        pose = fields.Pose(*motion.tolist())
        wheels = rng.normal(size=3)
        roller = rng.normal(size=3)
        duty = rng.normal(size=3)
        felt = np.zeros(3)
        field = np.zeros(3)
        packet.acceleration(pose, 0.3, wheels, roller, 0.0, quiet, felt)
        packet.magnetic(pose, duty, EARTH, IRON, np.zeros(3), field)
        np.testing.assert_allclose(
            felt, twin.acceleration(motion, 0.3, wheels, roller), rtol=1e-12, atol=1e-12
        )
        np.testing.assert_allclose(field, twin.magnetic(motion, duty, EARTH, IRON), rtol=1e-12)
