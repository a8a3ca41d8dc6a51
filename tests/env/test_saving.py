"""A simulated life that is saved at any step and restored elsewhere is the same life, bit for bit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

pytestmark = pytest.mark.sim


def make(**settings: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("horde_env:CritterbotPen-v0", disable_env_checker=True, **settings)


def lived(env: gymnasium.Env[Any, Any], actions: np.ndarray) -> list[Any]:
    seen = []
    for action in actions.tolist():
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append((observation.tobytes(), reward, terminated, truncated, tuple(info.items())))
    return seen


def actions(n: int, seed: int = 0) -> np.ndarray:
    """Return actions that are held for a while, so that walls are met."""
    rng = np.random.default_rng(seed)
    return np.repeat(rng.integers(5, size=n // 8 + 1), 8)[:n]


def test_a_life_restored_at_any_step_has_the_same_bits() -> None:
    """Also in the middle of a contact, of which PyBullet's own state is incomplete."""
    env, other, acts = make(), make(), actions(800)
    seen, states = [], {}
    env.reset(seed=3)
    for k in range(800):
        if k % 41 == 0 and k < 650:
            states[k] = env.unwrapped.save_state()
        seen += lived(env, acts[k : k + 1])
    pushed = {len(state["body/machine/body/forces"]) > 0 for state in states.values()}
    assert pushed == {True, False}, "states are saved in contacts and outside of them"
    other.reset(seed=99)
    for k, state in states.items():
        other.unwrapped.restore_state(state)
        assert lived(other, acts[k : k + 150]) == seen[k : k + 150], k


def test_the_centring_drive_and_the_draws_of_a_reset_are_the_same_too() -> None:
    env, other = make(), make()
    env.reset(seed=1)
    lived(env, actions(60))
    state = env.unwrapped.save_state()
    other.reset(seed=2)
    other.unwrapped.restore_state(state)
    for options in ({"manoeuvre": "centre"}, None):
        first, second = env.reset(options=options), other.reset(options=options)
        assert first[0].tobytes() == second[0].tobytes()
        assert first[1] == second[1]
        assert lived(env, actions(60, 5)) == lived(other, actions(60, 5))


@pytest.mark.parametrize(
    "settings",
    [
        {"battery_scale": 0.001, "lamp_moves": ((4.0, "lamp", (1.0, 1.0, 0.5)),)},
        {"physics": "planar", "friction_changes": ((4.0, "clockwise", 3.0),)},
    ],
)
def test_a_battery_a_moving_lamp_and_friction_are_restored(settings: dict[str, Any]) -> None:
    env, other = make(**settings), make(**settings)
    env.reset(seed=1)
    for n in (30, 30, 200):
        lived(env, actions(n))
        state = env.unwrapped.save_state()
        other.reset(seed=2)
        other.unwrapped.restore_state(state)
        assert lived(env, actions(40, n)) == lived(other, actions(40, n))


def test_a_body_that_cannot_be_saved_refuses() -> None:
    env = gymnasium.make("horde_env:CritterbotReplay-v0", log=__file__, disable_env_checker=True)
    assert not env.unwrapped.metadata["restorable"]
    with pytest.raises(ValueError, match="RecordedLife cannot be saved"):
        env.unwrapped.save_state()
    assert make().unwrapped.metadata["restorable"]
