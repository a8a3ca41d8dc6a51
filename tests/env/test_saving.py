"""A simulated life that is saved at any step and restored elsewhere is the same life, bit for bit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_env.backend import State

pytestmark = pytest.mark.sim


def make(**settings: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("horde_env:CritterbotPen-v0", disable_env_checker=True, **settings)


def lived(env: gymnasium.Env[Any, Any], actions: np.ndarray) -> list[Any]:
    """Return the outputs of some steps."""
    seen = []
    for action in actions.tolist():
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append((observation.tobytes(), reward, terminated, truncated, tuple(info.items())))
    return seen


def actions(n: int, seed: int = 0) -> np.ndarray:
    """Return actions that are held for a while, so that walls are met."""
    rng = np.random.default_rng(seed)
    return np.repeat(rng.integers(5, size=n // 8 + 1), 8)[:n]


@pytest.fixture(scope="module")
def saved() -> tuple[list[Any], dict[int, State], dict[int, int]]:
    """A life of 800 steps: its outputs, its states at some steps, and ticks since it last had no contact."""
    env, seen, states, pushed = make(), [], {}, {}
    env.reset(seed=3)
    acts = actions(900)
    for k in range(800):
        if k % 41 == 0:
            states[k] = env.unwrapped.save_state()  # type: ignore[attr-defined]
            pushed[k] = len(states[k]["body/machine/body/forces"])
        seen += lived(env, acts[k : k + 1])
    env.close()
    return seen, states, pushed


def test_a_life_restored_at_any_step_has_the_same_bits(
    saved: tuple[list[Any], dict[int, State], dict[int, int]],
) -> None:
    """Also in the middle of a contact, of which PyBullet's own state is incomplete."""
    seen, states, pushed = saved
    assert any(pushed.values()), "no state was saved in a contact"
    assert not all(pushed.values())
    env = make()
    env.reset(seed=99)
    for k, state in [(k, state) for k, state in states.items() if k < 640]:
        env.unwrapped.restore_state(state)  # type: ignore[attr-defined]
        assert lived(env, actions(900)[k : k + 150]) == seen[k : k + 150], k
    env.close()


def test_the_centring_drive_and_the_draws_of_a_reset_are_the_same_too() -> None:
    env, other = make(), make()
    env.reset(seed=1)
    lived(env, actions(60))
    state = env.unwrapped.save_state()  # type: ignore[attr-defined]
    other.reset(seed=2)
    other.unwrapped.restore_state(state)  # type: ignore[attr-defined]
    for options in ({"manoeuvre": "centre"}, None):
        first, second = env.reset(options=options), other.reset(options=options)
        assert first[0].tobytes() == second[0].tobytes()
        assert first[1] == second[1]
        assert lived(env, actions(60, 5)) == lived(other, actions(60, 5))


def test_a_battery_and_a_moving_lamp_are_restored() -> None:
    names = [lamp.name for lamp in make().unwrapped.pen.lamps]  # type: ignore[attr-defined]
    settings = {"battery_scale": 0.001, "lamp_moves": ((4.0, names[0], (1.0, 1.0, 0.5)),)}
    env, other = make(**settings), make(**settings)
    env.reset(seed=1)
    for n in (30, 30, 200):
        lived(env, actions(n))
        state = env.unwrapped.save_state()  # type: ignore[attr-defined]
        other.reset(seed=2)
        other.unwrapped.restore_state(state)  # type: ignore[attr-defined]
        assert lived(env, actions(40, n)) == lived(other, actions(40, n))


def test_a_body_that_cannot_be_saved_refuses() -> None:
    env = gymnasium.make("horde_env:CritterbotReplay-v0", log=__file__, disable_env_checker=True)
    assert not env.unwrapped.metadata["restorable"]
    with pytest.raises(ValueError, match="RecordedLife cannot be saved"):
        env.unwrapped.save_state()  # type: ignore[attr-defined]
    assert make().unwrapped.metadata["restorable"]
