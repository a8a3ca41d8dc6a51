"""A Critterbot that does not follow its commands is noticed by its motors' voltages, and a sound one never is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_env import make_emulated_env, make_replay_env, make_simulator_env
from horde_env.backend import Frame
from horde_env.env import RobotEnv
from horde_env.robot import Floats, critterbot
from horde_env.robots.critterbot.log import RecordedLife
from horde_env.robots.critterbot.safety import ADRIFT, IDLE, VoltageMonitor
from horde_env.robots.critterbot.simulator import firmware, period
from tests.env import recording

SPEC = critterbot()
VOLTAGE = SPEC.group("motor_voltage")
CURRENT = SPEC.group("motor_current")
FORWARD = np.array([0.35, 0.0, 0.0])
TURN = np.array([0.0, 0.0, 1.96])
STAND = np.zeros(3)
GENTLE = np.array([0.15, 0.0, 0.0])  # 8.4 units of the fastest wheel


def frame(volts: Sequence[float] | Floats = (0.0, 0.0, 0.0), **rest: Any) -> Frame:
    values = np.zeros(SPEC.n_channels)
    values[VOLTAGE] = volts
    return Frame(values=values, t=0.0, **rest)


# One motor with a hundredth of its voltage is driven
STILL = frame()
DRIVEN = frame([0.0, -0.01, 0.0])
# Wheels 100, 220, 340 get 0.6, -4.8, 10.6 units; mirrored 3.7, 9.0, -6.3
LEFT = np.array([0.0, 9 * 0.0176, 2 * 0.196])
MIRRORED = LEFT * [1.0, -1.0, 1.0]


def judged(steps: list[tuple[Floats, Frame]]) -> str:
    """The complaint after each step of a life: the first letter of its kind, or a point."""
    monitor = VoltageMonitor(SPEC)
    return "".join({"": ".", IDLE: "i", ADRIFT: "a"}[monitor.judge(*step)] for step in steps)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        # Motors without a voltage are noticed in the sixth step that requests motion of ten units
        # or more.
        ([(FORWARD, STILL)] * 7, "." * 5 + "ii"),
        ([(TURN, STILL)] * 6, "." * 5 + "i"),
        ([(LEFT, STILL)] * 6, "." * 5 + "i"),
        ([(FORWARD, STILL), (STAND, STILL)] * 6, "." * 10 + "ii"),
        ([(GENTLE, STILL)] * 30, "." * 30),
        ([(MIRRORED, STILL)] * 6, "." * 6),
        # One motor with a voltage ends a complaint; standing still, or a request of no motion, does
        # not.
        ([(FORWARD, STILL)] * 5 + [(FORWARD, DRIVEN)] + [(FORWARD, STILL)] * 6, "." * 11 + "i"),
        (
            [(FORWARD, STILL)] * 6 + [(STAND, STILL), (GENTLE, STILL), (FORWARD, DRIVEN)],
            "." * 5 + "iii" + ".",
        ),
        # Motors that drive on are noticed 1.2 s, for ramp and delay, and six steps later; other
        # requests start again.
        ([(STAND, DRIVEN)] * 18 + [(FORWARD, DRIVEN), (FORWARD, STILL)], "." * 17 + "aa."),
        ([(STAND, DRIVEN)] * 12 + [(GENTLE, DRIVEN)] + [(STAND, DRIVEN)] * 17, "." * 30),
        ([(STAND, DRIVEN)] * 15 + [(STAND, STILL)] + [(STAND, DRIVEN)] * 5, "." * 21),
        (
            [(FORWARD, STILL)] * 5 + [(FORWARD, frame(stale=True))] * 9 + [(FORWARD, STILL)],
            "." * 14 + "i",
        ),
    ],
)
def test_the_rule(steps: list[tuple[Floats, Frame]], said: str) -> None:
    assert judged(steps) == said


@pytest.mark.parametrize(
    "explained", [frame(applied=False), frame(gap=True)], ids=["not applied", "gap"]
)
def test_a_step_in_which_commands_cannot_be_applied_restarts_the_count(explained: Frame) -> None:
    """Charging, heat, a safety stop, a lost link; an earlier complaint remains."""
    still = [(FORWARD, STILL)]
    driven = [(STAND, DRIVEN)]
    pause = [(FORWARD, explained)]
    assert judged(still * 5 + pause + still * 6) == "." * 11 + "i"
    assert judged(still * 6 + pause + still) == "." * 5 + "iii"
    assert judged(driven * 17 + [(STAND, explained)] + driven * 17) == "." * 35


@pytest.mark.skipif(not recording.REAL_LOG.exists(), reason="the real robot's log is not here")
@pytest.mark.parametrize("shown", [VOLTAGE, CURRENT], ids=["echo", "current"])
def test_the_real_robot_is_never_suspected(shown: slice) -> None:
    """For 37 of 99.7 s it pushed against an obstacle, with driven motors.

    The log's motor_voltage is the echo of the command. The current, of two bytes or more, shows a
    driven motor in all steps but the first. Speeds would have raised an alarm for a third of the
    log.
    """
    log = RecordedLife(recording.REAL_LOG)
    frames = [log.reset(np.random.default_rng(0))]
    while not frames[-1].last:
        frames.append(log.exchange(STAND))
    monitor = VoltageMonitor(SPEC)
    n_still = 0
    for seen in frames:
        values = seen.values.copy()
        values[VOLTAGE] = np.where(np.abs(seen.values[shown]) > 1.5 / 255, 0.5, 0.0)
        request = seen.values[SPEC.group("last_request")] * SPEC.largest_request
        assert monitor.judge(request, replace(seen, values=values)) == ""
        n_still += not values[VOLTAGE].any()
    assert len(frames) > 950
    assert n_still == 1


SOUND = {
    "sticky": lambda k, last, rng: int(rng.integers(5)) if rng.random() > 0.5 else last,
    "by turns": lambda k, last, rng: k % 2,
    "pressing against a wall": lambda k, last, rng: 0,
}


@pytest.mark.parametrize(
    ("body", "kind"), [*(("simulator", kind) for kind in SOUND), ("serial", "by turns")]
)
def test_a_body_that_follows_commands_is_never_suspected(body: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    action = 4
    with _environment(body) as env:
        env.reset(seed=3)
        for k in range(200):
            action = SOUND[kind](k, action, rng)
            assert env.step(action)[-1]["obeyed"] == 1


@pytest.mark.parametrize("body", ["simulator", "serial"])
def test_ramps_from_any_velocity_are_waited_for(body: str) -> None:
    """Velocities of up to 100 wheel units, with a ramp of 1 s."""
    rng = np.random.default_rng(4)
    with _environment(body, action_type="velocity") as env:
        env.reset(seed=4)
        for _ in range(12):
            for share in [rng.choice([-1.0, 1.0], 3)] * 12 + [STAND] * 20:
                assert env.step(share)[-1]["obeyed"] == 1


def test_the_firmwares_stops_are_not_disobedience() -> None:
    """Heat for two seconds: the robot reports that it stopped; it drives again when it has cooled."""
    with _environment("serial") as env:
        env.reset(seed=5)
        for _ in range(12):
            env.step(0)
        env.unwrapped.backend.emulator.inject("heat", 2.0)  # type: ignore[attr-defined]
        infos = [env.step(k // 3 % 2)[-1] for k in range(60)]
    assert [info["obeyed"] for info in infos] == [1] * 60
    applied = [info["applied"] for info in infos]
    assert 15 <= applied.count(0) <= 40
    assert applied[-5:] == [1] * 5


def _environment(body: str, **settings: Any) -> RobotEnv:
    return (
        make_simulator_env(**settings)
        if body == "simulator"
        else make_emulated_env(link=body, **settings)
    )  # type: ignore[arg-type]


def cut(env: RobotEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """Discard all commands to the firmware."""
    backend: Any = env.backend
    if hasattr(backend, "emulator"):
        monkeypatch.setattr(backend.emulator.robot.machine.firmware, "command", lambda *_: None)
    else:
        if backend.physics != "bullet":
            pytest.skip(
                "a period with the planar engine is one kernel, in which no wire can be cut"
            )
        monkeypatch.setattr(period, "send_request", lambda *_: None)


@pytest.mark.parametrize("body", ["simulator", "serial", "drops"])
@pytest.mark.parametrize(
    ("before", "actions", "n_applied", "complaint"),
    [(4, [0, 1, 2, 3] * 6, 5, IDLE), (3, [4] * 24, 17, ADRIFT)],
    ids=["it stands", "it drives on"],
)
def test_a_wire_that_is_cut_is_noticed_in_every_body(
    body: str,
    before: int,
    actions: list[int],
    n_applied: int,
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is applied from then on, with one message; after the repair it is again."""
    with _environment(body) as env:
        env.reset(seed=6)
        for _ in range(10):
            env.step(before)
        cut(env, monkeypatch)
        backend: Any = env.backend
        machine = getattr(backend, "emulator", SimpleNamespace(robot=backend)).robot.machine
        infos = []
        for action in actions:
            machine.firmware.arm[firmware.SILENT] = 0  # or its own timeout would stop it
            infos.append(env.step(action)[-1])
        assert [info["applied"] for info in infos] == [1] * n_applied + [0] * (24 - n_applied)
        assert [info["obeyed"] for info in infos] == [1] * n_applied + [0] * (24 - n_applied)
        assert env.disobedience == complaint
        assert [r.message for r in caplog.records if r.name == "horde_env.env"] == [complaint]
        monkeypatch.undo()
        for _ in range(12):  # until it stands, which ends the second complaint
            env.step(4)
        infos = [env.step(0)[-1] for _ in range(3)]
        assert [info["applied"] for info in infos][1:] == [1, 1]
        assert caplog.records[-1].message == "the robot follows its commands again"


def test_a_recorded_life_is_not_judged(tmp_path: Any) -> None:
    """It ignores commands."""
    log = recording.packets(300)
    for column in ("MotorCommand0", "MotorCommand1", "MotorCommand2"):
        log[column] = np.zeros(300)
    with make_replay_env(log=recording.write(tmp_path / "life.csv", log)) as env:
        env.reset(seed=0)
        infos = [env.step(0)[-1] for _ in range(20)]
    assert [info["applied"] for info in infos] == [1] * 20
    assert "obeyed" not in infos[0]


def test_a_reset_clears_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reset with a drive to the middle, in the same life, does not."""
    with _environment("simulator") as env:
        env.reset(seed=8)
        cut(env, monkeypatch)
        for _ in range(7):
            env.step(0)
        assert env.reset(options={"manoeuvre": "centre"})[1]["obeyed"] == 0
        assert env.reset()[1]["obeyed"] == 1
        assert env.disobedience == ""
