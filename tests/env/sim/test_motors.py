"""Motors, wheels and encoders of a body on a frictionless bench (F = m a), against the real robot's log."""

from __future__ import annotations

import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.robots.critterbot.simulator import firmware as fw
from horde_env.robots.critterbot.simulator import motors
from horde_env.robots.critterbot.simulator.firmware import Firmware
from horde_env.sim.planar import facing
from tests.oracles.motors import slow_force

SPEC = critterbot()
ANGLES = np.deg2rad(SPEC.drive["wheel_angles_deg"])
CIRCLE_M = SPEC.drive["wheel_circle_m"]
MASS = SPEC.body["mass_kg"]
INERTIA = SPEC.body["inertia_kg_m2"]


class Bench:
    """Firmware and motors on a body that moves freely, or not at all if `is_stuck`."""

    def __init__(self, *, is_stuck: bool = False, seed: int = 0) -> None:
        self.firmware = Firmware(np.array(SPEC.drive["kinematics_1024"]))
        self.motion = np.zeros((motors.N_ROWS, 3))
        self.geometry = motors.wheel_geometry(ANGLES, CIRCLE_M)
        self.pose = np.zeros(3)
        self.velocity = np.zeros(3)
        self.force = np.zeros(3)
        self.is_stuck = is_stuck
        self.rng = np.random.default_rng(seed)
        self._sense()
        self.run((0, 0, 0, 0), 130)  # until the duty cap is full

    def run(self, command: tuple[int, int, int, int], n_ticks: int) -> np.ndarray:
        """Hold a command; return per tick (3 velocity bytes, 3 current bytes, 3 rim speeds in units)."""
        rows = []
        for _ in range(n_ticks):
            self.firmware.command(*command)
            self.firmware.cycle(165, False)
            wheels = self.firmware.wheels
            heading = float(self.pose[2])
            motors.push(self.motion, wheels, self.geometry, facing(heading), 16.5, self.force)
            if not self.is_stuck:
                self.velocity += motors.TICK_S * self.force / (MASS, MASS, INERTIA)
            self.pose += motors.TICK_S * self.velocity
            self._sense()
            units = self.motion[motors.RIM_SPEED] / motors.WHEEL_UNIT
            rows.append([*(wheels[fw.CLICKS] >> 2), *wheels[fw.CURRENT], *units])
        return np.array(rows)

    def _sense(self) -> None:
        noise = self.rng.standard_normal(3)
        vx, vy, yaw_rate = self.velocity.tolist()
        heading = float(self.pose[2])
        motors.sense(
            self.motion,
            self.firmware.wheels,
            self.geometry,
            noise,
            facing(heading),
            vx,
            vy,
            yaw_rate,
        )


def test_a_step_to_20_reaches_18_after_about_three_tenths_of_a_second() -> None:
    """Log: 0.3 s, of which the slew is 0.2 s; without the slew it would take less than 0.15 s."""
    rim = Bench().run((fw.WHEEL_SPACE, 20, 20, 20), 100)[:, 6:]
    for wheel in range(3):
        assert 20 <= int(np.argmax(rim[:, wheel] >= 18)) <= 35


def held(wheels: tuple[int, int, int]) -> np.ndarray:
    """Return 2 s of rows after 3 s under a request in wheel units."""
    bench = Bench()
    bench.run((fw.WHEEL_SPACE, *wheels), 300)
    return bench.run((fw.WHEEL_SPACE, *wheels), 200)


def test_steady_rotation_at_20_is_as_in_the_log() -> None:
    """Log: velocity 17 to 19 with sd 1.3 to 3.3, current 6 to 8 (freely driven)."""
    rows = held((20, 20, 20))
    mean = rows.mean(axis=0)
    sd = rows.std(axis=0)
    assert np.all((mean[:3] >= 17) & (mean[:3] <= 19))
    assert np.all((sd[:3] >= 1.3) & (sd[:3] <= 3.3))
    assert np.all((mean[3:6] >= 6) & (mean[3:6] <= 8))


def test_driven_wheels_turn_the_others_which_coast() -> None:
    """Log: one driven wheel turns the others at 9 to 11 units (8 to 12 over all), current 0 to 1; two the third at 17.

    With braking they would stand near 0.
    """
    one = held((20, 0, 0)).mean(axis=0)
    two = held((0, 20, 20)).mean(axis=0)
    assert one[0] > 17
    assert 8 <= one[1:3].mean() <= 12
    assert np.all(one[4:6] <= 1)
    assert 15.5 <= two[0] <= 18


def test_a_stop_ends_in_coasting() -> None:
    """Turning at 10 units the robot takes 0.1 s of slew, then rolls on: 1 to 5 units after 0.25 s, none after 1 s."""
    bench = Bench()
    bench.run((fw.XYTHETA_SPACE, 0, 0, 10), 200)
    rows = bench.run((fw.XYTHETA_SPACE, 0, 0, 0), 100)
    assert np.all((rows[25, 6:] > 1) & (rows[25, 6:] < 5))
    assert np.all(rows[15:, 3:6].max(axis=0) <= 5)
    assert np.all(rows[30:, 3:6] == 0)
    assert np.all(np.abs(rows[-1, 6:]) < 0.05)


def test_a_stalled_wheel_draws_the_limits_current_then_the_stall_caps() -> None:
    """Log: speed 0, current 60 to 94 in the second quarter of a second, and about 31, the limit, from 1.2 s on.

    From 3 s to 5.3 s it falls, by a unit of duty per 60 ms; it is 3 at last.
    """
    rows = Bench(is_stuck=True).run((fw.WHEEL_SPACE, 20, 20, 20), 900)
    assert np.all(rows[:, :3] == 0)
    assert 60 <= rows[25:50, 3].mean() <= 94
    assert 29 <= rows[150:300, 3].mean() <= 33
    assert rows[350, 3] > rows[400, 3] > rows[500, 3]
    assert np.all(np.abs(rows[570:, 3] - rows[-1, 3]) <= 1)
    assert 2 <= rows[-1, 3] <= 4


def test_only_long_stalls_overheat_and_the_drive_comes_back_cool() -> None:
    """100 s of the log's stalls cost 5 bytes. A stall at 40 bytes for 20 min passes 65; off, it is back at 85."""
    bench = Bench(is_stuck=True)
    motion = bench.motion
    wheels = bench.firmware.wheels
    for _ in range(100):  # the log's mean square is about 390 bytes^2 in its busiest motor
        for _ in range(100):
            motors.heat_and_charge(motion, 0, float(np.sqrt(390.0)), 40)
    assert 3 < motion[motors.HEAT, 0] < 8
    n_s = 0
    while not bench.firmware.arm[fw.OVERHEATED]:
        for _ in range(100):
            motors.heat_and_charge(motion, 0, 40.0, 53)
        bench.run((fw.WHEEL_SPACE, 0, 0, 0), 1)
        n_s += 1
        assert n_s < 3600
    assert wheels[fw.TEMPERATURE, 0] == 64
    assert n_s > 300
    rows = bench.run((fw.WHEEL_SPACE, 20, 20, 20), 100)
    assert np.all(rows[40:, 3:6] == 0)
    while bench.firmware.arm[fw.OVERHEATED]:
        assert wheels[fw.TEMPERATURE, 0] <= 85  # the ARM sees a byte one tick after the motor
        for _ in range(100):
            motors.heat_and_charge(motion, 0, 0.0, 0)
        bench.run((fw.WHEEL_SPACE, 20, 20, 20), 1)
    assert wheels[fw.TEMPERATURE, 0] == 85


@pytest.mark.kernels
def test_forces_are_the_slow_twins() -> None:
    """Random duties, velocities and headings: matrix form against the kernel."""
    rng = np.random.default_rng(1)
    geometry = motors.wheel_geometry(ANGLES, CIRCLE_M)
    for _ in range(200):
        heading = rng.uniform(-4, 4)
        velocity = rng.normal(size=3) * (0.3, 0.3, 2.0)
        c = np.cos(heading)
        s = np.sin(heading)
        motion = np.zeros((motors.N_ROWS, 3))
        wheels = np.zeros((fw.N_ROWS, 3), dtype=np.int64)
        force = np.zeros(3)
        wheels[fw.DUTY] = rng.integers(-94, 95, 3) * rng.integers(0, 2, 3)
        body = np.array(
            [c * velocity[0] + s * velocity[1], c * velocity[1] - s * velocity[0], velocity[2]]
        )
        motion[motors.RIM_SPEED] = geometry[:, :3] @ body
        motors.push(motion, wheels, geometry, facing(heading), 16.2, force)
        driven = np.copysign(motion[motors.CURRENT], wheels[fw.DUTY])
        expected = slow_force(ANGLES, CIRCLE_M, heading, velocity, driven, motors)
        np.testing.assert_allclose(force, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.kernels
def test_a_motor_faster_than_its_duty_is_not_braked() -> None:
    """The bridge does not push current back: 0, not negative; driven backwards it draws more than standing still."""
    assert motors.motor_current(20, 1.0, 16.5) == 0.0
    standing = motors.motor_current(40, 0.0, 16.5)
    assert standing == pytest.approx(30.0, abs=0.5)  # 0.75 byte per unit of duty
    assert motors.motor_current(40, -0.35, 16.5) > standing + 10
    assert motors.motor_current(0, 1.0, 16.5) == 0.0


@pytest.mark.kernels
def test_the_encoder_loses_no_edge() -> None:
    """The rollers shift edges between periods; their sum is the distance."""
    motion = np.zeros((motors.N_ROWS, 3))
    wheels = np.zeros((fw.N_ROWS, 3), dtype=np.int64)
    geometry = motors.wheel_geometry(ANGLES, CIRCLE_M)
    rng = np.random.default_rng(2)
    total = np.zeros(3)
    wheels[fw.DUTY] = 30
    for _ in range(500):
        motors.sense(motion, wheels, geometry, rng.standard_normal(3), facing(0.0), 0.1, 0.05, -1.0)
        total += wheels[fw.CLICKS]
    assert np.all(
        np.abs(total * motors.EDGE_M - motion[motors.TRAVEL] * motors.EDGE_M) < 40 * motors.EDGE_M
    )
    way = 5.0 * geometry[:, :3] @ np.array([0.1, 0.05, -1.0])
    for yaw_rate in (-1.0, 1.0):
        quiet = np.zeros((motors.N_ROWS, 3))
        counted = np.zeros(3)
        for _ in range(500):
            motors.sense(quiet, wheels, geometry, np.zeros(3), facing(0.0), 0.1, 0.05, yaw_rate)
            counted += wheels[fw.CLICKS]
        np.testing.assert_array_equal(counted, np.floor(quiet[motors.TRAVEL]))
    np.testing.assert_allclose(motion[motors.TRAVEL] * motors.EDGE_M, way, rtol=1e-9)


@pytest.mark.kernels
def test_a_slow_wheel_turning_back_shows_minus_one() -> None:
    """One edge backwards in a period is clicks -1, and -1 >> 2 is -1: the byte is floored, not rounded."""
    motion = np.zeros((motors.N_ROWS, 3))
    wheels = np.zeros((fw.N_ROWS, 3), dtype=np.int64)
    geometry = motors.wheel_geometry(ANGLES, CIRCLE_M)
    out = np.zeros(12)
    motors.sense(
        motion,
        wheels,
        geometry,
        np.zeros(3),
        facing(0.0),
        0.0,
        0.0,
        -0.5 * motors.WHEEL_UNIT / 4 / CIRCLE_M,
    )
    motors.report(motion, wheels, np.zeros(6), out)
    assert wheels[fw.CLICKS].tolist() == [-1, -1, -1]
    assert out[3:6].tolist() == [-1.0, -1.0, -1.0]
