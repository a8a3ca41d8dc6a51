"""The battery's gauge, and a stay at the dock on a made-up body."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from horde_env.backend import Floats, Frame
from horde_env.env import RobotEnv
from horde_env.errors import BackendLost
from horde_env.observer import BatteryMonitor
from horde_env.robot import RobotSpec, create2, critterbot
from horde_env.robots.critterbot.log import RecordedLife
from horde_env.robots.critterbot.manoeuvres import SLOW, CritterbotStay
from tests.env.recording import packets, write
from tests.env.toy import ToyBody, begun

SPEC = critterbot()
BUS = SPEC.index("bus_voltage")
BATTERIES = SPEC.group("battery_voltage")


class DockedBody(ToyBody):
    """A toy on its dock: `power(n)` is true if exchange n sees the dock's voltage; it is lost after `n_answers`."""

    def __init__(
        self,
        charging_s: float = 100.0,
        power: Callable[[int], bool] = lambda _: True,
        n_answers: float = math.inf,
    ) -> None:
        super().__init__()
        self.n_left = round(charging_s / self.period_s)
        self.power = power
        self.n_answers = n_answers
        self.is_enabled = False
        self.requests: list[Floats] = []
        self.enabled: list[bool] = []
        self.battery_v = 13.5  # empty

    def enable_charging(self, enabled: bool) -> None:
        self.enabled.append(enabled)
        self.is_enabled = enabled

    def reset(self, rng: np.random.Generator) -> Frame:
        return self._powered(super().reset(rng))

    def exchange(self, command: Floats) -> Frame:
        if len(self.requests) >= self.n_answers:
            raise BackendLost(port="nowhere", silent_s=0.2, limit_s=0.1, last_frame=1)
        self.requests.append(command.copy())
        self._t += 1
        return self._powered(self._frame(command))

    def _powered(self, frame: Frame) -> Frame:
        charges = self.is_enabled and self.n_left > 0
        self.n_left -= charges
        if self.n_left == 0:
            self.battery_v = 16.5
        frame.values[BATTERIES] = self.battery_v
        if self.power(len(self.requests)):
            frame.values[BUS] = 17.6
        else:
            frame.values[BUS] = self.battery_v
        counts = {"packets": 10, "link_losses": 1, "s_without_link": 0.25}
        extras = {**frame.extras, **counts, "reconnects": 7}
        return dataclasses.replace(
            frame, applied=not charges, beacon=np.zeros(8), crc_errors=1, extras=extras
        )


def stay_of(body: DockedBody, **options: Any) -> tuple[RobotEnv, dict[str, Any]]:
    env = begun(body)
    return env, env.reset(options={"manoeuvre": "dock", **options})[1]


# ---- the gauge -------------------------------------------------------------------------------------------------------


def voltage(lowest_v: float) -> Floats:
    values = 0.5 * (SPEC.low + SPEC.high)
    values[BATTERIES] = [16.5, lowest_v, 16.5]
    return values


def read(gauge: BatteryMonitor, lowest_v: float, n: int) -> None:
    for _ in range(n):
        gauge.read(voltage(lowest_v))


def test_low_begins_at_14_and_a_half_volts_of_the_lowest_and_ends_at_15() -> None:
    gauge = BatteryMonitor(SPEC)
    is_low = []
    for lowest_v in (14.6, 14.4, 14.6, 14.9, 15.1, 14.6):
        read(gauge, lowest_v, 1000)
        is_low.append(gauge.is_low)
    assert is_low == [False, True, True, True, False, False]


def test_a_short_sag_is_not_a_low_battery() -> None:
    """A second at 13.0 V under load moves the smoothed 15.0 V to 15 - 2 (1 - .98^10) = 14.63 V."""
    gauge = BatteryMonitor(SPEC)
    read(gauge, 15.0, 100)
    read(gauge, 13.0, 10)
    assert not gauge.is_low
    read(gauge, 13.0, 50)
    assert (gauge.is_low, gauge.is_urgent) == (True, False)
    read(gauge, 12.8, 500)
    assert gauge.is_urgent


@pytest.mark.parametrize(("bus_v", "battery_v"), [(0.0, 12.0), (16.0, 1000.0), (16.0, 25.7)])
def test_an_impossible_battery_is_ignored(bus_v: float, battery_v: float) -> None:
    """The original simulator's counts from 10,000 down: 1000 V, after 98 s a low voltage, with 0 V on the bus."""
    gauge = BatteryMonitor(SPEC)
    values = voltage(14.5)
    read(gauge, 12.0, 1000)
    assert gauge.is_urgent
    values[BATTERIES] = battery_v
    values[BUS] = bus_v
    gauge.read(values)
    assert gauge.info() == {"battery_low": 0, "battery_urgent": 0}
    assert "unknown" in gauge.finding
    read(gauge, 25.5, 1)
    assert gauge.finding == "the lowest battery has 16.5 V over the last 5 s, not low"


@pytest.mark.parametrize(
    ("spec", "dock"),
    [(SPEC, {"bus_voltage": 17.6}), (create2(), {"charging": 1.0})],
    ids=["critterbot", "create2"],
)
def test_ten_seconds_held_by_the_charger_make_the_battery_low(
    spec: RobotSpec, dock: dict[str, float]
) -> None:
    """An applied step, or a step without the dock's power, restarts the count; no battery is below its limit."""
    gauge = BatteryMonitor(spec)
    full = 0.5 * (spec.low + spec.high)
    full[spec.group("battery_voltage")] = 16.0
    for name in dock:
        if name == "charging":
            full[spec.index(name)] = 0.0
        else:
            full[spec.index(name)] = 16.0
    dock_row = full.copy()
    for name, value in dock.items():
        dock_row[spec.index(name)] = value
    infos = []
    for values, applied, n in (
        (dock_row, False, 99), (dock_row, True, 1), (dock_row, False, 99), (full, False, 200), (dock_row, False, 99),
        (dock_row, False, 1), (full, True, 1),
    ):  # fmt: skip
        for _ in range(n):
            gauge.read(values, applied=applied)
        infos.append(gauge.info())
    assert [info["battery_low"] for info in infos] == [0, 0, 0, 0, 0, 1, 0]
    assert {info["battery_urgent"] for info in infos} == {0}


def test_a_robot_without_battery_channels_has_no_battery_info() -> None:
    class Bare:
        channels = tuple(c for c in SPEC.channels if c.group != "battery_voltage")
        period_s = 0.1
        battery = SPEC.battery

    gauge = BatteryMonitor(Bare())  # type: ignore[arg-type]
    gauge.read(np.zeros(54))
    assert gauge.info() == {}


# ---- a stay ----------------------------------------------------------------------------------------------------------


def test_it_charges_until_commands_are_applied_and_then_backs_off() -> None:
    """2 frames make three with power, 100 s of charging, 5 s of applied commands, 2 s of backing off at 8 units."""
    body = DockedBody(charging_s=100.0)
    env, info = stay_of(body)
    assert body.enabled == [True, False]
    assert (info["docked"], info["gap"], info["applied"], info["battery_low"]) == (1, 1, 1, 0)
    assert info["manoeuvre_steps"] == len(body.requests) == pytest.approx(2 + 1000 + 50 + 20, abs=3)
    requests = np.array(body.requests)
    assert (requests[:-20] == 0.0).all()
    np.testing.assert_allclose(requests[-20:], [[-SLOW, 0.0, 0.0]] * 20)
    env.close()


def test_the_record_of_a_long_charge_is_thinned_without_losing_its_fault_counts() -> None:
    """20 minutes of charging are 12,000 frames, of which 20 are recorded, and all of the drives."""
    body = DockedBody(charging_s=1200.0)
    env, info = stay_of(body)
    frames = env.manoeuvre_frames
    at = env.manoeuvre_at
    assert (
        len(frames)
        == len(at)
        == len(env.manoeuvre_observations)
        == pytest.approx(2 + 20 + 20, abs=3)
    )
    assert at == sorted(set(at))
    assert at[-1] == info["manoeuvre_steps"] > 12_000
    n = info["manoeuvre_steps"]
    assert sum(frame.crc_errors for frame in frames) == n
    for name, each in (("packets", 10), ("link_losses", 1), ("s_without_link", 0.25)):
        assert sum(frame.extras[name] for frame in frames) == each * n
        assert info[name] == frames[-1].extras[name]
    assert {frame.extras["reconnects"] for frame in frames} == {7}, "not a count per step"
    charging = [frame for frame in frames if not frame.applied]
    assert len(charging) == 20
    np.testing.assert_array_equal(env.manoeuvre_observations[-1], SPEC.scale(frames[-1].values)[0])
    t0 = frames[0].t - 0.1 * at[0]
    np.testing.assert_allclose([frame.t for frame in frames], t0 + 0.1 * np.array(at), atol=1e-6)
    env.close()


@pytest.mark.parametrize(
    ("charge_s", "power_steps", "n_steps", "outcome"),
    [
        (30.0, 10_000, 2 + 300 + 20, "ended early"),
        (900.0, 200, 200 + 20 + 20, "the dock's power failed"),
    ],
)
def test_a_stay_ends_at_its_time_limit_or_two_seconds_after_the_power(
    charge_s: float, power_steps: int, n_steps: int, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = DockedBody(charging_s=1e6, power=lambda n: n < power_steps)
    with caplog.at_level(logging.INFO):
        _, info = stay_of(body, charge_s=charge_s)
    assert body.enabled == [True, False]
    assert info["manoeuvre_steps"] == pytest.approx(n_steps, abs=3)
    assert (info["docked"], info["battery_low"]) == (1, 1)
    assert outcome in caplog.text


def test_a_stay_can_be_ended_from_outside_at_its_500th_frame() -> None:
    """A signal handler does so; the next stay is not affected."""
    body = DockedBody(charging_s=1e6)
    env = begun(body)
    body.power = lambda n: n != 500 or env.end_manoeuvre() is None
    info = env.reset(options={"manoeuvre": "dock"})[1]
    assert body.enabled == [True, False]
    assert info["manoeuvre_steps"] == pytest.approx(500 + 20, abs=3)
    env.end_manoeuvre()
    second_info = env.reset(options={"manoeuvre": "dock", "charge_s": 10.0})[1]
    assert second_info["manoeuvre_steps"] == pytest.approx(2 + 100 + 20, abs=3)


@pytest.mark.parametrize(
    ("applied", "behind", "n_steps", "outcome"),
    [(False, 0.0, 50, "still held at the dock"), (True, 0.6, 3, "ended early")],
    ids=["held by the charger", "a wall behind"],
)
def test_a_robot_that_cannot_leave_ends_its_stay(
    applied: bool, behind: float, n_steps: int, outcome: str
) -> None:
    """Below 14.5 V the firmware charges even if the host forbids it."""
    body = DockedBody()
    stay = CritterbotStay(SPEC, body, charge_s=0.0)
    frame = dataclasses.replace(body.reset(np.random.default_rng(0)), applied=applied)
    frame.values[SPEC.index("ir_distance_8")] = behind
    requests = []
    while (request := stay.request(frame, SPEC.scale(frame.values)[0])) is not None:
        requests.append(request)
    assert len(requests) == pytest.approx(n_steps, abs=5)
    assert np.any(requests) == (not applied)
    assert outcome in stay.outcome
    assert body.enabled == [True, False]


def test_losing_the_body_at_the_dock_disables_charging() -> None:
    body = DockedBody(charging_s=1e6, n_answers=50)
    env = begun(body)
    with pytest.raises(BackendLost):
        env.reset(options={"manoeuvre": "dock"})
    assert env.fault is not None
    assert body.enabled == [True, False]


def test_a_drive_without_a_dock_ends_after_a_minute() -> None:
    body = DockedBody(power=lambda _: False)
    env, info = stay_of(body)
    assert (info["docked"], info["manoeuvre_steps"], len(env.manoeuvre_frames)) == (0, 600, 600)
    assert body.enabled == []


def test_a_body_that_cannot_be_charged_cannot_dock(tmp_path: Any) -> None:
    """A recorded life refuses before anything happens, and its metadata does not list the manoeuvre."""
    env = RobotEnv(RecordedLife(write(tmp_path / "life.csv", packets())))
    assert env.metadata["manoeuvres"] == ["centre", "stay"]
    env.reset(seed=0)
    with pytest.raises(ValueError, match="manoeuvre 'dock'"):
        env.reset(options={"manoeuvre": "dock"})
    env.step(0)
    assert RobotEnv(DockedBody()).metadata["manoeuvres"] == ["centre", "dock", "stay"]


@pytest.mark.parametrize("charge_s", [-1.0, float("inf"), "long"])
def test_an_invalid_time_to_charge_is_refused(charge_s: Any) -> None:
    body = DockedBody()
    env = begun(body)
    with pytest.raises(ValueError, match="charge_s must be"):
        env.reset(options={"manoeuvre": "dock", "charge_s": charge_s})
    assert body.requests == []
