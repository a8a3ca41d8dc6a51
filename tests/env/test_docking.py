"""A stay at the dock on every robot; and one that meets its dock by chance: when it can leave, and what holds it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_env.env import RobotEnv
from horde_env.make import make_env
from horde_env.robot import create2
from horde_env.robots.create2.emulator.emulator import EmulatedCreate
from horde_env.robots.create2.simulator.backend import SimulatedCreate
from horde_env.robots.create2.wire import PASSIVE, SAFE
from horde_env.robots.critterbot.emulator.emulator import EmulatedBody
from horde_env.robots.critterbot.simulator.backend import SimulatedBody

STAY = {"manoeuvre": "stay"}
DOCK = {"manoeuvre": "dock"}
FORWARD = 0
BACK = 1
TURN = 2
STOP = 4
HARDWARE = pytest.mark.hardware
SLOW = [HARDWARE, pytest.mark.slow]
DOCKINGS = [
    ("critterbot", "simulator", {}),
    pytest.param("critterbot", "emulated", {"link": "serial"}, marks=SLOW),
    pytest.param("critterbot", "emulated", {"link": "drops"}, marks=SLOW),
    ("create2", "simulator", {}),
    pytest.param("create2", "emulated", {}, marks=HARDWARE),
]


@pytest.mark.parametrize(("robot", "backend", "arguments"), DOCKINGS)
def test_a_reset_docks_charges_and_backs_off(
    robot: str, backend: str, arguments: dict[str, Any]
) -> None:
    """A hundredth of its battery, half full or less, is charged within minutes."""
    with make_env(robot, backend, battery_scale=0.01, **arguments) as env:
        env.reset(seed=1, options=STAY)
        machine = getattr(env.backend, "emulator", SimpleNamespace(robot=env.backend)).robot.machine
        if robot == "critterbot":
            machine.power.charge[:] = 0.5
        else:
            machine.charge_ah = 0.1 * machine.capacity_ah
        _, info = env.reset(options=DOCK | {"charge_s": 400.0})
        assert (info["docked"], info["gap"], info["applied"], info["battery_low"]) == (1, 1, 1, 0)
        dock_readings = [frame.values for frame in env.manoeuvre_frames if not frame.applied]
        assert dock_readings
        if robot == "critterbot":
            assert min(values[env.robot.index("bus_voltage")] for values in dock_readings) > 17.0
            assert min(machine.power.charge) > 0.9
            assert not machine.power.charging_enabled
            assert not machine.on_dock()
        else:
            assert max(values[env.robot.index("charging")] for values in dock_readings) == 1.0
            assert not machine.is_docked
        assert env.step(TURN)[4]["applied"] == 1


@contextmanager
def critterbot_before_dock(
    kind: type[SimulatedBody] | type[EmulatedBody], charge: list[float]
) -> Iterator[Any]:
    """Yield a Critterbot 2 cm before its dock's contacts, facing them, and its machine.

    The capacity is half a per cent: the firmware's charge of all three batteries takes 70 s or
    less.
    """
    body = kind(battery_scale=0.005, physics="planar")
    with RobotEnv(body, getattr(body, "clock", None)) as env:
        env.reset(seed=0, options=STAY)
        if isinstance(body, EmulatedBody):
            machine = body.emulator.robot.machine
        else:
            machine = body.machine
        x, y, ux, uy, nose_m = machine.face[:5]
        machine.body.place(x + ux * (nose_m + 0.02), y + uy * (nose_m + 0.02), math.atan2(-uy, -ux))
        machine.power.charge[:] = charge
        env.battery.forget()  # discard the readings of another charge
        yield env, machine


CRITTERBOTS = pytest.mark.parametrize(
    "kind", [SimulatedBody, pytest.param(EmulatedBody, marks=HARDWARE)]
)


@CRITTERBOTS
@pytest.mark.parametrize(("charge", "is_held"), [(0.5, False), (0.18, True)])
def test_a_critterbot_below_14_and_a_half_volts_is_held_at_its_dock(
    kind: Any, charge: float, is_held: bool
) -> None:
    """A charge of .18 is 14.43 V at rest: the firmware charges it although the host forbids it. At .5 it drives off."""
    with critterbot_before_dock(kind, [charge] * 3) as (env, machine):
        infos = [env.step(FORWARD)[4] for _ in range(8)]
        assert machine.on_dock()
        infos += [env.step(BACK)[4] for _ in range(20)]
        assert machine.on_dock() is is_held
        assert not machine.power.charging_enabled
    assert (infos[-1]["applied"], infos[-1]["battery_low"]) == (not is_held, is_held)
    assert is_held or {(info["applied"], info["battery_low"]) for info in infos} == {(1, 0)}


@CRITTERBOTS
def test_a_critterbot_held_for_uneven_batteries_needs_a_stay_that_ends_off_the_dock(
    kind: Any,
) -> None:
    """.5, .35 and .5 are 15.37, 14.98 and 15.27 V: no battery is low, and two differ by more than 0.2 V."""
    with critterbot_before_dock(kind, [0.5, 0.35, 0.5]) as (env, machine):
        infos = [env.step(FORWARD)[4] for _ in range(120)]
        low, applied = ([info[name] for info in infos] for name in ("battery_low", "applied"))
        assert applied[-1] == 0
        assert low.index(1) == applied.index(0) + 99
        _, info = env.reset(options=DOCK)
        assert (info["docked"], info["applied"], info["battery_low"]) == (1, 1, 0)
        assert len(env.manoeuvre_frames) < 0.2 * info["manoeuvre_steps"]
        assert min(machine.power.charge) > 0.95
        assert not machine.on_dock()


@contextmanager
def create_before_dock(
    kind: type[SimulatedCreate] | type[EmulatedCreate], share: float
) -> Iterator[Any]:
    """Yield a Create 2 that faces its dock 0.4 m before it, with its body."""
    body = kind(physics="planar")
    with RobotEnv(body, getattr(body, "clock", None), spec=create2()) as env:
        env.reset(seed=0, options=STAY)
        if isinstance(body, EmulatedCreate):
            firmware = body.emulator.robot
        else:
            firmware = body.firmware
        machine = firmware.machine
        dock = machine.room.dock
        rng = np.random.default_rng(0)
        x = dock.x + 0.4 * math.cos(dock.direction)
        y = dock.y + 0.4 * math.sin(dock.direction)
        machine.place(x, y, dock.direction + math.pi, rng)
        machine.charge_ah = share * machine.capacity_ah
        yield env, firmware


CREATES = pytest.mark.parametrize(
    "kind", [SimulatedCreate, pytest.param(EmulatedCreate, marks=HARDWARE)]
)


def drive_onto_dock(env: RobotEnv) -> None:
    """Drive forward until the charger ends Safe."""
    for _ in range(60):
        if not env.step(FORWARD)[4]["applied"]:
            return
    raise AssertionError("the dock was not reached")


@CREATES
def test_a_create_backs_off_its_dock_within_six_seconds(kind: Any) -> None:
    with create_before_dock(kind, 0.5) as (env, firmware):
        drive_onto_dock(env)
        assert firmware.machine.is_docked
        infos = [env.step(STOP)[4] for _ in range(70)]
        assert not firmware.machine.is_docked
        assert (firmware.mode, infos[-1]["applied"]) == (SAFE, 1)
    assert sum(info["gap"] for info in infos) >= 1
    assert {info["battery_low"] for info in infos} == {0}


@CREATES
def test_a_create_with_a_low_battery_stays_on_its_dock_until_it_is_charged(kind: Any) -> None:
    """13.4 V at rest: it charges in Passive, and neither 131 nor 132 is sent. At 15 V it can leave."""
    with create_before_dock(kind, 0.1) as (env, firmware):
        drive_onto_dock(env)
        charge_ah = firmware.machine.charge_ah
        modes = set()
        for _ in range(100):
            info = env.step(STOP)[4]
            modes.add(firmware.mode)
        assert firmware.machine.is_docked
        assert (modes, info["applied"], info["battery_low"]) == ({PASSIVE}, 0, 1)
        assert firmware.machine.charge_ah > charge_ah
        firmware.machine.charge_ah = 0.8 * firmware.machine.capacity_ah
        for _ in range(70):
            env.step(STOP)
        assert not firmware.machine.is_docked
        assert firmware.mode == SAFE
