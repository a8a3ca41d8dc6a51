"""Kernels that run several models at once equal those models one after the other, bit for bit."""

from __future__ import annotations

import ast
import copy
import inspect
import math
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.robots.critterbot.arena import load_pen
from horde_env.robots.critterbot.simulator import fields, firmware, motors, packet, period, power
from horde_env.robots.critterbot.simulator.backend import SimulatedBody
from horde_env.robots.critterbot.simulator.fields import Pose
from horde_env.robots.critterbot.simulator.machine import Machine
from horde_env.robots.critterbot.simulator.period import wrapped
from horde_env.robots.critterbot.simulator.sensors import Senses
from horde_env.robots.critterbot.simulator.state import new_robot
from horde_env.robots.critterbot.wire import UNITS
from horde_env.sim import planar
from horde_env.sim.physics import PHYSICS
from horde_env.sim.planar import Motion, facing
from tests.env.sim.kinematic import BodyState, read

SPEC = critterbot()
GEOMETRY = motors.wheel_geometry(
    np.deg2rad(SPEC.drive["wheel_angles_deg"]), SPEC.drive["wheel_circle_m"]
)


@pytest.mark.kernels
def test_a_stuck_wheel_slides_and_counts_nothing() -> None:
    """Its rim passes the floor at 0.3 m/s: 4 N of friction against that, no drive, no back EMF against its current."""
    machine = Machine(SPEC, load_pen(), physics="planar")
    wheel = 1
    rim_speed = 0.3
    machine.reset(0.0, 0.0, 0.0)
    side, ahead, arm = GEOMETRY[wheel, :3]
    for _ in range(70):  # until the cap after power-up allows it
        machine.firmware.command(firmware.WHEEL_VOLTAGE, 0, 60, 0)
        machine.motion[motors.RIM_SPEED] = [0.0, rim_speed, 0.0]
        pushed = period.act(machine.robots, 0, machine.geometry, wheel, facing(0.0))
    assert machine.firmware.wheels[firmware.DUTY, wheel] == 60
    expected = motors.CURRENT_PER_VOLT * machine.power.bus_v * 60 / firmware.FULL_DUTY
    assert machine.motion[motors.CURRENT, wheel] == pytest.approx(expected)
    friction = -motors.STUCK_FRICTION_N * motors.fading(rim_speed)
    np.testing.assert_allclose(
        pushed, [friction * side, friction * ahead, friction * arm], rtol=1e-9
    )
    machine.motion[motors.TRAVEL] = 0.0
    moved = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0)
    period.sense(machine.robots, 0, machine.geometry, machine.face, wheel, 1, np.zeros(3), 0, moved)
    clicks = machine.firmware.wheels[firmware.CLICKS]
    assert clicks[wheel] == 0
    assert np.abs(clicks).max() > 10


@pytest.mark.parametrize("lag_share", [0.0, 0.4])
def test_a_packet_in_one_kernel_equals_each_model(lag_share: float) -> None:
    """Every group of channels against its own kernel, with and without a refresh of the thermal zones."""
    senses = Senses(SPEC, load_pen())
    rng = np.random.default_rng(2)
    scene = senses.scene
    eyes = senses.eyes
    segments = scene.segments
    heights = scene.heights
    normal = rng.standard_normal(57)
    uniform = rng.random((2, 10))
    instant = packet.Instant(
        previous_pose=Pose(0.3, -0.4, -1.2, 0.5, 0.0, 0.0),
        pose=Pose(0.31, -0.41, -1.1, 0.6, 0.7, -0.8),
        wheel_speed=rng.normal(size=3),
        duty=tuple(rng.normal(size=3).tolist()),
        contact_n_s=0.3,
    )
    pose = instant.pose
    lit = (0.2, 0.9)
    gain = 1.003
    room = load_pen().room
    robot, expected = new_robot(SPEC, load_pen()).repeat(2)
    for name in ("sensed", "roller", "zones", "drift", "packets", "change", "lines", "along"):
        robot[name][...] = expected[name][...] = rng.random(robot[name].shape)
    values = expected.sensed
    packets = expected.packets
    scratch = fields.Scratch(expected.lines, expected.along)
    out = np.zeros(37)
    air = packet.Air(
        elapsed_s=0.1,
        lit=lit,
        gain=gain,
        ambient=room.light,
        room_k=room.temperature_k,
        lag_share=lag_share,
        drift_share=0.9,
    )
    packet.read(scene, eyes, robot, senses.steps, normal, uniform, instant, air, out)
    packet.feel(instant, 0.1, scene, expected.roller, normal[:11], values[:7])
    fields.ir_distance(
        pose,
        eyes.ir_distance,
        segments,
        scene.reflectances,
        normal[11:21],
        uniform,
        scratch,
        values[7:17],
    )
    fields.light(
        pose,
        eyes.light,
        scene.lamps,
        gain,
        room.light,
        segments,
        heights,
        normal[37:41],
        scratch,
        values[25:29],
    )
    if lag_share:
        fields.warmth(
            pose,
            eyes.thermal,
            scene.warm,
            room.temperature_k,
            segments,
            heights,
            scratch,
            values[29:],
        )
        zones = expected.zones
        packet.follow(air, normal[41:], zones, expected.drift, values[29:])
        values[29:] += packet.ZONE_BIAS_K
    poses = (instant.previous_pose, pose)
    expected_out = values.copy()
    draws = normal[21:37].reshape(2, 8)
    fields.ir_light(
        poses, eyes.ir_light, scene.beacon, lit, segments, heights, draws, scratch, packets
    )
    packet.quantise(senses.steps, expected_out)
    packet.mean_of_packets(senses.steps[:, 17:25].copy(), packets, expected_out[17:25])
    np.testing.assert_array_equal(out, expected_out)
    for name in ("sensed", "roller", "zones", "drift", "packets"):
        np.testing.assert_array_equal(robot[name], expected[name], err_msg=name)
    np.testing.assert_array_equal(robot.change, np.abs(packets[1] - packets[0]))


MODULES = (fields, firmware, motors, packet, period, planar, power)


def kernels_of(module: ModuleType) -> list[ast.FunctionDef]:
    functions = [
        node
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.FunctionDef)
    ]
    return [
        node
        for node in functions
        if any("kernel" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def named_in(nodes: Sequence[ast.AST], module: ModuleType) -> set[ModuleType]:
    """Return the modules named in some lines of a module."""
    names = {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
    return {m for m in MODULES if any(vars(module).get(name) is m for name in names)}


def used_in(nodes: Sequence[ast.AST], module: ModuleType) -> set[ModuleType]:
    """Return those, and the ones that their kernels use."""
    modules = named_in(nodes, module)
    return modules.union(
        *(used_in([line for k in kernels_of(m) for line in k.body], m) for m in modules)
    )


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_each_kernel_names_all_the_files_that_its_cache_depends_on(module: ModuleType) -> None:
    """Numba checks the kernel's own file only: it would keep old constants of another one."""
    for kernel in kernels_of(module):
        assert used_in(kernel.body, module) <= named_in(kernel.decorator_list, module), kernel.name


@pytest.mark.parametrize("physics", PHYSICS)
def test_a_period_in_one_kernel_equals_its_parts_one_after_the_other(physics: str) -> None:
    """Command, ten ticks, the supply, sixteen channels, the senses: each by its own name, from the same draws.

    From a pose at which it soon touches a wall, at the dock's power, with a wheel that is stuck for
    a while.
    """
    if physics == "bullet":
        pytest.importorskip("pybullet")
    whole = SimulatedBody(physics=physics)
    parts = SimulatedBody(physics=physics)
    for body in (whole, parts):
        body.reset(np.random.default_rng(3))
        x, y = body.pen.dock.centre_m
        body.machine.reset(x, y + body.pen.dock.size_m[1] / 2 + 0.125, -math.pi / 2)
    twin = parts.machine
    rng = copy.deepcopy(whole._rng)
    for k, command in enumerate(SPEC.requests[np.random.default_rng(1).integers(5, size=60)]):
        whole.machine.stuck = twin.stuck = 1 if 20 <= k < 30 else period.NO_WHEEL
        frame = whole.exchange(command)
        wire = [round(float(a / b)) for a, b in zip(command, UNITS, strict=True)]
        twin.firmware.command(firmware.XYTHETA_SPACE, *wire)
        path = [Motion(*twin.run(noise)[0]) for noise in rng.standard_normal((10, 3))]
        acted = twin.motion[motors.RIM_SPEED], twin.firmware.wheels[firmware.DUTY] * period.PER_DUTY
        previous_state, state = (
            BodyState(
                m.x, m.y, wrapped(m.heading), m.vx, m.vy, m.yaw_rate,
                (m.vx - last.vx) / motors.TICK_S, (m.vy - last.vy) / motors.TICK_S, *acted, twin.body.contact_impulse(),
            )
            for last, m in pairwise(path[-3:])
        )  # fmt: skip
        values = np.zeros(SPEC.n_channels)
        raw = np.empty(period.N_RAW)
        period.report(twin.robots, 0, rng.standard_normal(period.N_NOISE), raw)
        values[:16] = SPEC.lsb[:16] * raw + SPEC.offset[:16]
        read(parts.senses, previous_state, state, twin.n_ticks * motors.TICK_S, rng, values)
        values[53:56] = command / SPEC.largest_request
        np.testing.assert_array_equal(frame.values, values)
        assert frame.applied
        assert dict(frame.extras) == {"x_m": state.x, "y_m": state.y, "heading_rad": state.heading}
    assert twin.power.bus_v == whole.machine.power.bus_v
    assert rng.bit_generator.state == whole._rng.bit_generator.state


def test_robots_of_one_kind_share_the_type_of_their_records() -> None:
    """Numba compares equal types field by field in each call, which made a second robot's step 12 us longer."""
    first = new_robot(SPEC, load_pen())
    second = new_robot(SPEC, load_pen())
    assert second.dtype is first.dtype
    assert new_robot(SPEC, load_pen(), n_ticks=3).dtype != first.dtype
