"""A simulated life that is saved at any step and restored elsewhere is the same life, bit for bit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_env.robots.create2.simulator.backend import SimulatedCreate
from tests.env.engines import NEEDS_PYBULLET

pytestmark = pytest.mark.sim


def make(**settings: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("horde_env:CritterbotPen-v0", disable_env_checker=True, **settings)


def lived(env: gymnasium.Env[Any, Any], actions: np.ndarray) -> list[Any]:
    steps = []
    for action in actions.tolist():
        observation, reward, terminated, truncated, info = env.step(action)
        steps.append((observation.tobytes(), reward, terminated, truncated, tuple(info.items())))
    return steps


def actions(n: int, seed: int = 0) -> np.ndarray:
    """Return actions that are held for a while, so that walls are met."""
    rng = np.random.default_rng(seed)
    return np.repeat(rng.integers(5, size=n // 8 + 1), 8)[:n]


@NEEDS_PYBULLET
def test_a_life_restored_at_any_step_has_the_same_bits() -> None:
    """Also in the middle of a contact, of which PyBullet's own state is incomplete."""
    env = make()
    twin = make()
    acts = actions(800)
    steps = []
    states = {}
    env.reset(seed=3)
    for k in range(800):
        if k % 41 == 0 and k < 650:
            states[k] = env.unwrapped.save_state()
        steps += lived(env, acts[k : k + 1])
    pushed = {len(state["body/machine/body/forces"]) > 0 for state in states.values()}
    assert pushed == {True, False}, "states are saved in contacts and outside of them"
    twin.reset(seed=99)
    for k, state in states.items():
        twin.unwrapped.restore_state(state)
        assert lived(twin, acts[k : k + 150]) == steps[k : k + 150], k


def test_the_centring_drive_and_the_draws_of_a_reset_are_the_same_too() -> None:
    env = make()
    twin = make()
    env.reset(seed=1)
    lived(env, actions(60))
    state = env.unwrapped.save_state()
    twin.reset(seed=2)
    twin.unwrapped.restore_state(state)
    for options in ({"manoeuvre": "centre"}, None):
        first = env.reset(options=options)
        second = twin.reset(options=options)
        assert first[0].tobytes() == second[0].tobytes()
        assert first[1] == second[1]
        assert lived(env, actions(60, 5)) == lived(twin, actions(60, 5))


@pytest.mark.parametrize(
    "settings",
    [
        {"battery_scale": 0.001, "lamp_moves": ((4.0, "lamp", (1.0, 1.0, 0.5)),)},
        {"physics": "planar", "friction_changes": ((4.0, "clockwise", 3.0),)},
    ],
)
def test_a_battery_a_moving_lamp_and_friction_are_restored(settings: dict[str, Any]) -> None:
    env = make(**settings)
    twin = make(**settings)
    env.reset(seed=1)
    for n in (30, 30, 200):
        lived(env, actions(n))
        state = env.unwrapped.save_state()
        twin.reset(seed=2)
        twin.unwrapped.restore_state(state)
        assert lived(env, actions(40, n)) == lived(twin, actions(40, n))


def test_a_body_that_cannot_be_saved_refuses() -> None:
    env = gymnasium.make("horde_env:CritterbotReplay-v0", log=__file__, disable_env_checker=True)
    assert not env.unwrapped.metadata["restorable"]
    with pytest.raises(ValueError, match="RecordedLife cannot be saved"):
        env.unwrapped.save_state()
    assert make().unwrapped.metadata["restorable"]


# ---- the Create 2 ----------------------------------------------------------------------------------------------------


def make_create(**settings: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("horde_env:CreatePen-v0", disable_env_checker=True, **settings)


def test_a_create_restored_at_any_step_has_the_same_bits() -> None:
    """Also while a wall is touched, and while it is Passive because it was lifted."""
    env = make_create()
    twin = make_create()
    acts = actions(1600)
    steps = []
    states = {}
    env.reset(seed=3)
    env.unwrapped.backend.machine.lifted_s = 3.0
    for k in range(1600):
        if k % 29 == 3 and k < 1450:
            states[k] = env.unwrapped.save_state()
        steps += lived(env, acts[k : k + 1])
    modes = {int(state["body/firmware/mode"]) for state in states.values()}
    assert len(modes) > 1, "states are saved in Safe and in Passive"
    twin.reset(seed=99)
    for k, state in states.items():
        twin.unwrapped.restore_state(state)
        assert lived(twin, acts[k : k + 150]) == steps[k : k + 150], k


def test_a_create_restored_after_a_drive_a_stay_at_the_dock_and_with_an_empty_battery_has_the_same_bits() -> (
    None
):
    env = make_create(battery_scale=0.01)
    twin = make_create(battery_scale=0.01)
    env.reset(seed=1)
    for options in (
        None,
        {"manoeuvre": "centre"},
        {"manoeuvre": "dock", "charge_s": 20.0},
        {"manoeuvre": "centre"},
    ):
        if options is not None:
            env.reset(options=options)
        lived(env, actions(300))
        state = env.unwrapped.save_state()
        twin.reset(seed=2)
        twin.unwrapped.restore_state(state)
        assert lived(env, actions(300, 7)) == lived(twin, actions(300, 7)), options
        first = env.reset(options={"manoeuvre": "centre"})
        second = twin.reset(options={"manoeuvre": "centre"})
        assert first[0].tobytes() == second[0].tobytes()
        assert first[1] == second[1]


def test_a_create_that_drives_to_its_dock_by_itself_is_restored_in_mid_drive() -> None:
    """Bumps on its way are answered by turns of random duration."""
    body = SimulatedCreate()
    twin = SimulatedCreate()
    rng = np.random.default_rng(5)
    other_rng = np.random.default_rng(0)
    body.reset(rng)
    twin.reset(other_rng)
    body.enable_charging(True)
    still = np.zeros(3)
    for _ in range(60):
        for _ in range(9):
            body.exchange(still)
        state = body.save()
        twin.restore(state)
        other_rng.bit_generator.state = rng.bit_generator.state
        continued = [twin.exchange(still).values.tobytes() for _ in range(30)]
        twin.restore(state)
        other_rng.bit_generator.state = rng.bit_generator.state
        assert [twin.exchange(still).values.tobytes() for _ in range(30)] == continued
        twin.restore(state)
        other_rng.bit_generator.state = rng.bit_generator.state
        assert (
            body.exchange(still).values.tobytes()
            == twin.exchange(still).values.tobytes()
            == continued[0]
        )
