"""A Create 2 that does not follow its commands is noticed by its own packets, and a sound one never is."""

from __future__ import annotations

import numpy as np
import pytest

from horde_env.env import RobotEnv
from horde_env.make import make_env
from horde_env.robot import create2
from horde_env.robots.create2.emulator.emulator import EmulatedCreate
from horde_env.robots.create2.mode_controller import ModeController
from horde_env.robots.create2.stream import CreateState
from horde_env.robots.create2.wire import FULL, PASSIVE, SAFE, Sensors, Wheels

SPEC = create2()
STAY = {"manoeuvre": "stay"}
AHEAD = Wheels(199, 199)
BACK = Wheels(-199, -199)
STAND = Wheels(0, 0)
LIFTED = {"bumps": 12}
DOCKED = {"charging_sources": 2}


def state(echo: Wheels = STAND, mode: int = SAFE, **packets: int) -> CreateState:
    sensors = Sensors(requested_right=echo.right, requested_left=echo.left, mode=mode, **packets)
    return CreateState(np.zeros(SPEC.n_channels), sensors, mode, 0)


def judged(
    *steps: tuple[Wheels | None, CreateState], told: int = SAFE, n_since: int = 6, **excuse: bool
) -> str:
    """Return the fault after each step: d(eaf), l(ifted), m(ode), or "." for none."""
    controller = ModeController(SPEC)
    faults = ""
    controller.is_charging = told == PASSIVE
    for asked, seen in steps:
        refusal = controller.judge(
            seen, asked, n_since, is_kept_still=excuse.get("is_excused", False)
        ).refusal
        kinds = {"m": "mode (packet 35)", "l": "a wheel has dropped", "d": "packets 41 and 42"}
        faults += next((kind for kind, words in kinds.items() if words in refusal), ".")
    return faults


DEAF = [(BACK, state(AHEAD))]  # it drives ahead with its last command
IN_PASSIVE = [(AHEAD, state(mode=PASSIVE))]
LIFTED_UP = [(AHEAD, state(mode=PASSIVE, **LIFTED))]


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        # Speeds that were not sent are noticed in the sixth step.
        (DEAF * 7, "." * 5 + "dd"),
        ([(None, state(AHEAD))] * 7, "." * 7),
        # An unread command that agrees by chance proves nothing; only speeds that change to those
        # sent do.
        (
            [(AHEAD, state(AHEAD))] + [(BACK, state(AHEAD)), (AHEAD, state(AHEAD))] * 6,
            "." * 11 + "dd",
        ),
        (
            DEAF * 6 + [(AHEAD, state(AHEAD)), (STAND, state(STAND))] + DEAF * 6,
            "." * 5 + "dd." + "." * 5 + "d",
        ),
        (DEAF * 5 + [(STAND, state(STAND))] + DEAF * 5, "." * 11),
        # A mode that lasts for three seconds is noticed with its cause.
        (IN_PASSIVE * 32, "." * 30 + "mm"),
        (LIFTED_UP * 32, "." * 30 + "ll"),
        ([(AHEAD, state(mode=32))] * 31, "." * 30 + "m"),
        # One that was put down is complained of until it is back in Safe, in other words if it
        # stays in Passive.
        (
            LIFTED_UP * 31 + IN_PASSIVE * 6 + [(AHEAD, state(STAND)), (AHEAD, state(AHEAD))],
            "." * 30 + "l" * 8 + ".",
        ),
        (LIFTED_UP * 31 + IN_PASSIVE * 31, "." * 30 + "l" * 31 + "m"),
    ],
)
def test_the_rule(steps: list[tuple[Wheels | None, CreateState]], found: str) -> None:
    assert judged(*steps) == found


def test_speeds_of_a_command_that_was_just_sent_prove_nothing() -> None:
    assert judged(*DEAF * 7, n_since=2) == "." * 7


def test_a_robot_that_is_kept_still_and_drives_on_is_complained_of() -> None:
    assert judged(*[(STAND, state(AHEAD))] * 6, is_excused=True) == ".....d"


def test_three_seconds_begin_again_after_a_known_reason() -> None:
    controller = ModeController(SPEC)
    passive_state = state(mode=PASSIVE)
    refusals = [
        bool(controller.judge(passive_state, STAND, 6, is_kept_still=k < 40).refusal)
        for k in range(70)
    ]
    assert refusals == [False] * 69 + [True]


@pytest.mark.parametrize(
    ("packets", "is_charging", "is_found"),
    [({}, False, True), (DOCKED, False, False), ({"cliff_left": 1}, False, False), ({}, True, False),
     ({"cliff_left": 1, **LIFTED}, False, True)],
    ids=["passive", "on its dock", "at a cliff", "on its way to the dock", "lifted, with no floor in sight"],
)  # fmt: skip
def test_four_seconds_in_passive_need_a_reason(
    packets: dict[str, int], is_charging: bool, is_found: bool
) -> None:
    controller = ModeController(SPEC)
    controller.charge(is_charging)
    verdicts = [
        controller.judge(state(mode=PASSIVE, **packets), AHEAD, 6, is_kept_still=False)
        for _ in range(40)
    ]
    assert bool(verdicts[-1].refusal) == is_found


def test_a_robot_that_is_sent_to_its_dock_must_leave_safe() -> None:
    assert judged(*[(None, state(AHEAD, SAFE))] * 31, told=PASSIVE)[-2:] == ".m"
    assert (
        judged(*[(None, state(mode=FULL))] * 31, (None, state(mode=PASSIVE)), told=PASSIVE)[-2:]
        == "m."
    )


@pytest.mark.hardware
def test_a_robot_that_is_kept_still_is_not_complained_of_while_somebody_lifts_it(
    emulated: tuple[RobotEnv, EmulatedCreate], caplog: pytest.LogCaptureFixture
) -> None:
    """An empty battery is a known reason: lifted or not, the robot is waited for."""
    env, body = emulated
    body.emulator.inject("low_battery", 12.0)
    infos = [env.step(2)[4] for _ in range(60)]
    body.emulator.inject("lift", 4.0)
    infos += [env.step(2)[4] for _ in range(45)]
    assert infos[-1]["applied"] == 0
    assert [info["obeyed"] for info in infos] == [1] * 105
    assert [record for record in caplog.records if record.name == "horde_env.env"] == []


@pytest.mark.parametrize(
    "body",
    ["simulated", pytest.param("emulated", marks=pytest.mark.hardware)],
)
def test_a_sound_robot_is_never_complained_of(body: str) -> None:
    """Random actions for three minutes; over the line with every fault that lasts less than three seconds."""
    faults = "loss=0.1,flip=0.1,burst=0.02,stall=0.03,lift=0.03,cliff=0.03,mode=0.05,text=0.05,stuck_wheel=0.02"
    if body == "simulated":
        env = make_env("create2", "simulator")
    else:
        env = make_env("create2", "emulated", faults=faults)
    rng = np.random.default_rng(0)
    action = 4
    n_applied = 0
    env.reset(seed=0, options=STAY)
    for _ in range(1_800):
        if rng.random() > 0.5:
            action = int(rng.integers(5))
        info = env.step(action)[4]
        assert info["obeyed"] == 1
        n_applied += info["applied"]
    env.close()
    assert n_applied > 1_000
