"""The drives to the middle and to the dock on made-up bodies and readings; sim/test_docking.py drives in the pen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from horde_env.backend import Frame
from horde_env.robot import critterbot
from horde_env.robots.critterbot.manoeuvres import (
    FAST,
    SLOW,
    SPEED,
    TURN,
    CentringDrive,
    Compass,
    DockingDrive,
)
from tests.env.toy import ToyBody

SPEC = critterbot()


def drive(body: ToyBody, frame: Frame) -> int:
    """Drive the body to the middle; return the number of steps."""
    centring = CentringDrive(SPEC, side_m=2.0)
    while (request := centring.request(SPEC.scale(frame.values)[0])) is not None:
        assert np.hypot(request[0], request[1]) <= SPEED + 1e-9
        assert request[2] == 0.0
        frame = body.exchange(request)
    return centring.n_steps


@pytest.mark.parametrize(
    ("reach_m", "gain", "lag_s", "spin"),
    [(0.09, 1.0, 0.15, 0.0), (0.12, 0.9, 0.25, 0.0), (0.08, 1.0, 0.1, 2.0)],
    ids=["as assumed", "brighter walls, slower wheels", "darker walls, still turning"],
)
def test_it_nears_the_middle_from_nine_poses_in_ten(
    reach_m: float, gain: float, lag_s: float, spin: float
) -> None:
    """From anywhere beyond 0.4 m, the distance to the middle falls by 40 % or more, also on other reflectance curves.

    A wall is out of range 0.72 m from the body's centre, so simply avoiding walls would end 0.28 m
    from the middle.
    """
    body = ToyBody(reach_m=reach_m, gain=gain, lag_s=lag_s)
    rng = np.random.default_rng(1)
    body.reset(rng)
    start_m = []
    end_m = []
    while len(start_m) < 100:
        frame = body.place(*rng.uniform(-0.95, 0.95, 2), rng.uniform(-np.pi, np.pi))
        distance = np.hypot(*body.pose[:2])
        if distance < 0.4:
            continue
        body.velocity[2] = spin
        assert drive(body, frame) <= 20
        start_m.append(distance)
        end_m.append(np.hypot(*body.pose[:2]))
    assert np.mean(np.array(end_m) < 0.6 * np.array(start_m)) >= 0.9
    assert np.median(end_m) < 0.28


def test_it_hardly_moves_from_the_middle() -> None:
    body = ToyBody()
    for heading in np.linspace(-3.0, 3.0, 13):
        body.reset(np.random.default_rng(0))
        drive(body, body.place(0.0, 0.0, heading))
        assert np.hypot(*body.pose[:2]) < 0.25


def test_it_reads_infrared_distance_alone() -> None:
    body = ToyBody()
    observation = SPEC.scale(body.reset(np.random.default_rng(3)).values)[0]
    blind = np.zeros_like(observation)
    infrared = SPEC.group("ir_distance")
    blind[infrared] = observation[infrared]
    assert np.array_equal(
        CentringDrive(SPEC, 2.0).request(blind), CentringDrive(SPEC, 2.0).request(observation)
    )


def test_a_drive_is_over_after_two_seconds() -> None:
    """A wall at a constant distance: twenty requests, then none."""
    centring = CentringDrive(SPEC, 2.0)
    stuck = np.zeros(SPEC.n_channels, np.float32)
    stuck[SPEC.index("ir_distance_0")] = 0.95
    requests = [centring.request(stuck) for _ in range(22)]
    assert [r is None for r in requests] == [False] * 20 + [True] * 2
    assert all(r[0] < 0.0 for r in requests[:20])


LIGHTS = SPEC.angles("ir_light")
BATTERY_V = 15.0


def seen(bearing_rad: float, strength: float) -> np.ndarray:
    """Return a beacon of that strength as eight sensors of a squared-cosine view see it."""
    return strength * np.maximum(np.cos(LIGHTS - bearing_rad), 0.0) ** 2


def observation(infrared: dict[int, float] | None = None, yaw_rate: float = 0.0) -> np.ndarray:
    """Return an observation in the open, with some readings of ir_distance."""
    values = 0.5 * (SPEC.low + SPEC.high)
    values[SPEC.group("ir_distance")] = 0.01
    for sensor, reading in (infrared or {}).items():
        values[SPEC.index(f"ir_distance_{sensor}")] = reading
    values[SPEC.index("rotational_velocity")] = yaw_rate
    return SPEC.scale(values)[0]


def requested(
    drive: DockingDrive, readings: np.ndarray, beacon: np.ndarray | None, n: int = 1
) -> np.ndarray:
    for _ in range(n):
        request = drive.request(readings, beacon, BATTERY_V)
    return request


@pytest.mark.parametrize("bearing", np.linspace(-math.pi, math.pi, 17))
def test_the_bearing_is_interpolated_between_two_sensors(bearing: float) -> None:
    compass = Compass(LIGHTS, 0.1)
    for _ in range(5):
        compass.update(seen(bearing, 0.4), 0.0)
    assert math.remainder(compass.bearing_rad - bearing, 2 * math.pi) == pytest.approx(
        0.0, abs=0.06
    )
    assert compass.is_seen


def test_the_gyroscope_extrapolates_the_bearing_without_the_blink() -> None:
    """Half a second without the blink at 1 rad/s counter-clockwise: the beacon has moved 0.5 rad clockwise."""
    compass = Compass(LIGHTS, 0.1)
    for _ in range(5):
        compass.update(seen(0.2, 0.4), 0.0)
    for _ in range(5):
        compass.update(seen(0.0, 0.0), 1.0)
    assert compass.is_dim
    assert compass.is_seen
    assert compass.bearing_rad == pytest.approx(0.2 - 0.5, abs=0.05)


def test_far_away_it_drives_at_twenty_units_and_near_the_beacon_at_eight() -> None:
    """150 of 255 in the firmware's sum of four packets is 75 between two."""
    assert pytest.approx((20.0, 8.0)) == (FAST / 0.0176, SLOW / 0.0176)
    assert requested(DockingDrive(SPEC), observation(), seen(0.0, 70 / 255), 10)[
        0
    ] == pytest.approx(FAST)
    assert requested(DockingDrive(SPEC), observation(), seen(0.0, 85 / 255), 10)[
        0
    ] == pytest.approx(SLOW)


def test_an_obstacle_close_ahead_makes_it_slow_for_any_beacon() -> None:
    """A beacon that blinks between two packets must not let it hit the dock fast."""
    assert requested(DockingDrive(SPEC), observation({0: 0.07}), seen(0.0, 0.1), 10)[
        0
    ] == pytest.approx(SLOW)
    drive = DockingDrive(SPEC)
    requested(drive, observation(), seen(0.0, 70 / 255), 10)
    assert requested(drive, observation(), seen(0.0, 0.0))[0] == pytest.approx(SLOW)


def test_it_is_docked_after_three_frames_above_17_volts() -> None:
    """Batteries have up to 16.7 V, the dock 17.6 V. After one such reading it stands still and reads again."""
    drive = DockingDrive(SPEC)
    readings = observation({0: 0.9})
    beacon = seen(0.0, 0.6)
    for bus_v, moves in (
        (17.1, False),
        (BATTERY_V, True),
        (17.0, True),
        (17.0, True),
        (17.1, False),
        (17.1, False),
    ):
        request = drive.request(readings, beacon, bus_v)
        assert np.any(request) == moves
    assert drive.request(readings, beacon, 17.1) is None
    assert drive.docked


@pytest.mark.parametrize("beacon", [None, np.zeros(8)])
def test_without_a_beacon_it_wanders_and_avoids_walls_until_the_time_limit(
    beacon: np.ndarray | None,
) -> None:
    drive = DockingDrive(SPEC, time_limit_s=2.0)
    assert requested(drive, observation(), beacon)[0] == pytest.approx(FAST)
    assert requested(drive, observation({0: 0.2}), beacon)[0] == pytest.approx(SLOW)
    np.testing.assert_allclose(
        requested(drive, observation({0: 0.4, 1: 0.4}), beacon), [0.0, 0.0, -TURN]
    )
    requested(drive, observation(), beacon, 17)
    assert drive.request(observation(), beacon, BATTERY_V) is None
    assert (drive.n_steps, drive.docked) == (20, False)
