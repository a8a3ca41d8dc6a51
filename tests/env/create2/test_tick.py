"""The kernels of a tick against their slow twin, against the parser of the robot's own frames, and known answers."""

from __future__ import annotations

import dataclasses
import math

import numba
import numpy as np
import pytest

from horde_env.robot import create2
from horde_env.robots.create2.arena import load_room
from horde_env.robots.create2.simulator import tick, world
from horde_env.robots.create2.simulator.firmware import Firmware
from horde_env.robots.create2.simulator.machine import Machine
from horde_env.robots.create2.stream import FrameParser
from horde_env.robots.create2.wire import (
    PASSIVE,
    SAFE,
    STREAM_ALL,
    TICK_S,
    Op,
    Sensors,
    Wheels,
    drive_direct,
)
from tests.oracles import create2 as slow
from tests.oracles.senses import meeting

SPEC = create2()
ROOM = load_room()
LIVELY = dataclasses.replace(ROOM, lifts_per_h=900.0, buttons_per_h=2_000.0)
# Interpreted, a tick takes 100 times as long
IS_INTERPRETED = bool(numba.config.DISABLE_JIT)


def quiet(machine: Machine) -> Sensors:
    """Return what the sensors read without noise."""
    tick.sense(tuple(machine.arrays._replace(normal=np.zeros(12), uniform=np.ones(3))))
    return Sensors(*machine.packets.tolist())


def robot(room=ROOM, seed: int = 0) -> Firmware:
    """Return a streaming robot in Safe at a random free place."""
    machine = Machine(room)
    rng = np.random.default_rng(seed)
    machine.place_freely(rng)
    firmware = Firmware(machine, rng)
    firmware.receive(bytes([Op.START]) + STREAM_ALL + bytes([Op.SAFE]))
    return firmware


@pytest.mark.parametrize(
    "place",
    [
        None,
        pytest.param((0.0, -1.0, -0.5 * math.pi), marks=pytest.mark.kernels),
        (0.7, -0.2, 0.3),
        (-1.1, 0.65, 3.1),
    ],
)
def test_a_whole_step_in_one_kernel_has_the_bits_of_single_ticks_and_of_the_parser(
    place: tuple[float, float, float] | None,
) -> None:
    """Steps of 6 and 7 ticks among walls, onto the dock, the rug and the mat; lifts, buttons and dirt by the dozen."""
    n_steps = 600
    if IS_INTERPRETED:  # a step takes 100 times as long
        n_steps = 200
    one = robot(LIVELY)
    twin = robot(LIVELY)
    for firmware in (one, twin):
        if place is not None:
            firmware.machine.place(*place, np.random.default_rng(7))
    parser = FrameParser()
    raw = np.zeros((10, 55))
    rng = np.random.default_rng(1)
    modes = set()
    n_happened = 0
    n_docked = 0
    wheels = Wheels(0, 0)
    for k in range(n_steps):
        if k % 8 == 0:
            wheels = Wheels(*rng.integers(-199, 200, 2).tolist())
        if k < 40 and place is not None:
            wheels = Wheels(199, 199)
        words = drive_direct(wheels)
        if one.mode == PASSIVE and k % 20 == 0:
            words += bytes([Op.SAFE])
        for firmware in (one, twin):
            firmware.receive(words)
        n = 6 + k % 5 // 3
        one.run(n, raw)
        for row in raw[:n]:
            twin.advance()
            state = parser.follow(twin.sensors())
            twin.forget_way()
            np.testing.assert_array_equal(row, state.raw)
            n_happened += (
                state.sensors.dirt > 0 or state.sensors.buttons > 0 or state.sensors.bumps > 3
            )
        one.forget_way()
        assert one.report() == state.sensors._replace(distance=0, angle=0)
        assert (one.mode, one.n_cycles) == (twin.mode, twin.n_cycles)
        modes.add(one.mode)
        n_docked += one.machine.is_docked
    np.testing.assert_array_equal(one.machine.state, twin.machine.state)
    assert one.machine._rng.bit_generator.state == twin.machine._rng.bit_generator.state
    assert modes == {PASSIVE, SAFE}
    assert n_happened > n_steps // 6
    assert n_docked > 0 or place is None or place[0] != 0.0


@pytest.mark.kernels
def test_sensors_agree_with_their_slow_twin() -> None:
    """2,000 poses (interpreted, 200) all over the room, half of them within a metre of the dock."""
    machine = Machine(ROOM)
    rng = np.random.default_rng(2)
    characters = set()
    n_poses = 2_000
    if IS_INTERPRETED:
        n_poses = 200
    for k in range(n_poses):
        low = (-1.4, -1.4) if k % 2 else (-0.7, -1.3)
        high = (1.4, 1.4) if k % 2 else (0.7, -0.3)
        x, y = rng.uniform(low, high)
        pose = float(x), float(y), float(rng.uniform(-4.0, 4.0))
        near = int(machine.marks[tick.NEAR])
        machine.state[:3] = pose
        sensors = Sensors(*machine.read().tolist())
        noise = machine.arrays.normal
        uniform = machine.arrays.uniform
        signals = np.zeros(6)
        world.look(*pose, SPEC.angles("light_bump"), ROOM.segments(), signals)
        offsets = machine.amounts[tick.OFFSET : tick.OFFSET + 6]
        spread = machine.amounts[tick.FLOOR : tick.FLOOR + 4]
        readings, bits = slow.lights(signals, offsets, noise[:6], near)
        assert (list(sensors[39:45]), sensors.light_bumper, sensors.wall) == (
            readings,
            bits,
            int(readings[5] > 286),
        )
        assert list(sensors[21:25]) == slow.floor(
            ROOM, pose, SPEC.positions("cliff_signal"), spread, noise[6:10]
        )
        assert list(sensors[2:6]) == [int(signal < 300) for signal in sensors[21:25]]
        heard = [sensors.ir_omni, sensors.ir_left, sensors.ir_right]
        assert heard == slow.infrared(ROOM, pose, uniform)
        characters |= set(heard)
        docked = slow.touches_dock(ROOM, *pose)
        assert tick.touches_dock(*pose, machine.arrays.dock) == docked
    assert {0, 161, 164, 165, 168, 169, 172, 173} <= characters


def test_light_signals_are_those_of_rays_against_all_segments() -> None:
    """The kernel passes over segments that no ray can meet; here none is. 300 poses, 70 pieces of furniture too."""
    rng = np.random.default_rng(4)
    angles = SPEC.angles("light_bump")
    out = np.zeros(6)
    corners = rng.uniform(-1.4, 1.4, (70, 2))
    posts = np.column_stack(
        [corners, corners + rng.uniform(-0.1, 0.1, (70, 2)), np.ones(70), np.zeros(70)]
    )
    for segments in (ROOM.segments(), np.vstack([posts, ROOM.segments()])):
        n_seen = 0
        for _ in range(150):
            pose = (*rng.uniform(-1.3, 1.3, 2).tolist(), float(rng.uniform(-4.0, 4.0)))
            world.look(*pose, angles, segments, out)
            assert out == pytest.approx(
                [slow.light(pose, angle, segments) for angle in angles], rel=1e-9, abs=1e-9
            )
            n_seen += np.count_nonzero(out)
        assert 100 < n_seen < 900


@pytest.mark.kernels
def test_a_step_keeps_what_one_of_its_ticks_saw() -> None:
    """Flags are those of any tick, all other channels those of the last; in SI units."""
    raw = np.random.default_rng(5).uniform(0.0, 2.0, (10, 55))
    out = np.zeros(55)
    for n in (1, 6, 7):
        tick.gather(n, raw, SPEC.is_any, SPEC.lsb, SPEC.offset, out)
        expected = np.where(SPEC.is_any, raw[:n].max(axis=0), raw[n - 1])
        np.testing.assert_array_equal(out, SPEC.to_si(expected))


@pytest.mark.kernels
@pytest.mark.parametrize("may_charge", [False, True])
@pytest.mark.parametrize("is_awake", [False, True])
def test_the_battery_agrees_with_its_slow_twin(may_charge: bool, is_awake: bool) -> None:
    """On the dock with power and without, from empty to full, wheels at rest and turning."""
    machine = Machine(ROOM)
    rng = np.random.default_rng(3)
    dock = ROOM.dock
    machine.place(dock.x, dock.y + world.RADIUS_M, -0.5 * math.pi, rng)
    for share in rng.uniform(-0.05, 1.05, 300):
        machine.dock_has_power = bool(rng.random() < 0.5)
        machine.charge_ah = min(max(share, 0.0), 1.0) * machine.capacity_ah
        machine.state[world.AMP_L : world.AMP_R + 1] = rng.choice([0.0, 0.2], 2)
        names = "charge_ah", "capacity_ah", "volts", "amps", "temperature_k"
        battery = slow.Battery(*(getattr(machine, name) for name in names))
        tick.pass_time(tuple(machine.arrays), may_charge, is_awake)
        assert machine.is_docked == machine.dock_has_power
        assert machine.is_charging == (machine.dock_has_power and may_charge)
        amps = float(machine.state[world.AMP_L] + machine.state[world.AMP_R])
        expected = slow.flow(
            battery, ROOM.temperature_k, amps, is_charging=machine.is_charging, is_awake=is_awake
        )
        assert tuple(getattr(machine, name) for name in names) == pytest.approx(expected, rel=1e-12)


@pytest.mark.kernels
def test_a_dock_without_power_neither_charges_nor_sends() -> None:
    machine = Machine(ROOM)
    machine.place(
        ROOM.dock.x, ROOM.dock.y + world.RADIUS_M, -0.5 * math.pi, np.random.default_rng(0)
    )
    for has_power in (True, False):
        machine.dock_has_power = has_power
        machine.tick(0.0, 0.0, may_charge=True)
        state = quiet(machine)
        assert (machine.is_docked, machine.is_charging, machine.amps > 0.0) == (has_power,) * 3
        assert (state.charging_sources, state.virtual_wall, state.ir_omni > 0) == (
            2 * has_power,
            has_power,
            has_power,
        )


@pytest.mark.kernels
def test_a_light_bumper_is_near_from_its_limit_until_four_counts_below() -> None:
    """The limit of all but the rightmost is 125; the judgement of one reading depends on the one before."""
    machine = Machine(ROOM)
    machine.place(0.0, 0.0, 0.0, np.random.default_rng(0))
    machine.amounts[tick.SEEN_AT : tick.SEEN_AT + 3] = machine.state[:3]
    machine.amounts[tick.OFFSET : tick.OFFSET + 6] = 16.0
    bits = []
    for signal in (124, 125, 121, 120, 124, 130, 123):
        machine.amounts[tick.LIGHT : tick.LIGHT + 6] = signal
        bits.append(quiet(machine).light_bumper)
    assert bits == [0, 31, 31, 0, 0, 31, 31]


@pytest.mark.kernels
@pytest.mark.parametrize(("aside_m", "character"), [(-0.25, 168), (0.0, 172), (0.25, 164)])
def test_green_lies_on_the_left_of_a_robot_that_faces_its_dock(
    aside_m: float, character: int
) -> None:
    """0.9 m before the dock, `aside_m` to the robot's own left; both beams in the middle (figure of the OI, 2016)."""
    machine = Machine(ROOM)
    dock = ROOM.dock
    ahead = np.array([math.cos(dock.direction), math.sin(dock.direction)])
    left_axis = np.array([ahead[1], -ahead[0]])  # of a robot that faces the dock
    x, y = np.array([dock.x, dock.y]) + 0.9 * ahead + aside_m * left_axis
    machine.place(float(x), float(y), dock.direction + math.pi, np.random.default_rng(0))
    assert quiet(machine).ir_omni == character


WALL = np.array([[1.0, -5.0, 1.0, 5.0, 1.0, 0.0]])


@pytest.mark.kernels
def test_rays_and_nearest_points_agree_with_their_slow_twins() -> None:
    """Random rays and points in the room; nearest by a fine walk along the segment."""
    rng = np.random.default_rng(0)
    segments = load_room().segments()
    shares = np.linspace(0.0, 1.0, 2_001)[:, None]
    for _ in range(200):
        x = rng.uniform(-1.4, 1.4)
        y = rng.uniform(-1.4, 1.4)
        angle = rng.uniform(-math.pi, math.pi)
        row = segments[rng.integers(len(segments))]
        dx = math.cos(angle)
        dy = math.sin(angle)
        expected = meeting(np.array([x, y]), np.array([x + dx, y + dy]), row[:4])
        assert world.hit(x, y, dx, dy, row) == pytest.approx(expected, abs=1e-9)
        walk = row[:2] + shares * (row[2:4] - row[:2])
        least = np.hypot(*(walk - [x, y]).T).min()
        assert math.dist((x, y), world.nearest(x, y, row)) == pytest.approx(least, abs=2e-3)


@pytest.mark.kernels
def test_light_falls_with_the_distance_as_it_was_measured() -> None:
    """Head-on against a light wall, the central pair: 1850 at 25 mm, 560 at 70, 92 at 150; the sides see less."""
    angles = SPEC.angles("light_bump")
    out = np.zeros(6)
    for millimetres, signal in ((25, 1850), (70, 560), (150, 92)):
        world.look(1.0 - world.RADIUS_M - millimetres / 1000, 0.0, 0.0, angles, WALL, out)
        assert 0.5 * signal < out[2] < 1.1 * signal
        assert out[2] == pytest.approx(out[3])
        assert out[0] < out[1] < out[2]


def test_nothing_gets_into_a_wall_whatever_it_is_asked() -> None:
    """The centre keeps the radius from all segments; both switches close head-on, one for a contact on its side."""
    segments = load_room().segments()
    contacts = np.zeros(3)
    rng = np.random.default_rng(0)
    state = np.zeros(world.N_STATE)
    for _ in range(64 * 60):
        left, right = rng.uniform(-0.5, 0.5, 2)
        for _ in range(8):
            world.move(state, left, right, rng.standard_normal(2), 0.0, 0, segments, contacts)
        gaps = [math.dist(state[:2], world.nearest(state[0], state[1], row)) for row in segments]
        assert min(gaps) > world.RADIUS_M - 2e-3
    for heading, bumps in (
        (0.0, (1.0, 1.0)),
        (0.8, (0.0, 1.0)),
        (-0.8, (1.0, 0.0)),
        (math.pi, (0.0, 0.0)),
    ):
        state[:] = 0.0
        state[:3] = 1.0 - world.RADIUS_M + 0.002, 0.0, heading
        world.move(state, 0.0, 0.0, np.zeros(2), 0.0, 0, WALL, contacts)
        assert (contacts[world.BUMP_L], contacts[world.BUMP_R]) == bumps


@pytest.mark.kernels
def test_wheels_take_their_speed_at_two_metres_per_second_squared() -> None:
    """0 to 0.189 m/s in seven ticks; the way is the speed's integral, and the encoders count it."""
    state = np.zeros(world.N_STATE)
    contacts = np.zeros(3)
    speeds = []
    for _ in range(64):
        world.move(
            state,
            0.199,
            0.199,
            np.zeros(2),
            0.0,
            0,
            WALL + np.array([10, 0, 10, 0, 0, 0]),
            contacts,
        )
        speeds.append(state[world.LEFT])
    assert speeds[5] == pytest.approx(6 * 2.0 / 64, abs=1e-9)
    assert speeds[6] == pytest.approx(0.189)
    assert state[world.X] == pytest.approx(sum(speeds) * TICK_S)
    assert state[world.COUNT_L] * world.COUNT_M == pytest.approx(state[world.X])


def driven(start: tuple[float, float, float], speed: float) -> tuple[np.ndarray, np.ndarray]:
    """Return states and contacts after each tick of four seconds at a speed (m/s), shapes (256, 13) and (256, 3)."""
    machine = Machine()
    machine.place(*start, np.random.default_rng(0))
    states = []
    contacts = []
    for _ in range(256):
        machine.tick(speed, speed, may_charge=False)
        states.append(machine.state.copy())
        contacts.append(machine.contact.copy())
    return np.array(states), np.array(contacts)


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("start", "end"),
    [
        ((0.9, -1.0, 0.0), (1.5 - world.RADIUS_M, -1.0)),  # a wall
        ((-1.0, 0.55, math.pi / 2), (-1.0, 1.0 - world.RADIUS_M)),  # the sofa
        ((0.0, -1.0, -math.pi / 2), (0.0, -1.4 + world.RADIUS_M)),  # the dock
    ],
)
def test_an_obstacle_ahead_stops_the_robot_while_its_wheels_turn(
    start: tuple[float, float, float], end: tuple[float, float]
) -> None:
    """At 0.2 m/s: both bumper switches close, except at the dock's face; the motors' current rises."""
    states, contacts = driven(start, 0.2)
    assert states[-1, :2] == pytest.approx(end, abs=3e-3)
    is_dock = end[0] == 0.0
    assert contacts[-64:, world.BUMP_L].all() == contacts[-64:, world.BUMP_R].all() == (not is_dock)
    assert np.abs(contacts[-64:, world.AHEAD]).max() < 3e-4
    assert states[-1, world.AMP_L] > 0.45
    assert (np.diff(states[-64:, world.COUNT_L]) > 0).all()


@pytest.mark.kernels
def test_the_robot_slides_along_a_wall_met_at_30_degrees() -> None:
    """With the wall on its right the right switch closes, and the robot continues along the wall."""
    states, contacts = driven((0.3, -1.25, -math.pi / 6), 0.15)
    end = contacts[-64:]
    assert (end[:, world.BUMP_L].mean(), end[:, world.BUMP_R].mean()) == pytest.approx(
        (0.0, 1.0), abs=0.1
    )
    assert states[-64:, 1] == pytest.approx(-1.5 + world.RADIUS_M, abs=2e-3)
    speed = np.hypot(*(states[-1, :2] - states[-64, :2])) / (63 / 64)
    assert 0.05 < speed < 0.15
