"""A lamp that is moved during a life, and wheels whose friction changes."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.robots.critterbot.place import load_pen
from horde_env.robots.critterbot.simulator.sensors import Senses

pytestmark = pytest.mark.sim
SPEC = critterbot()
MOVE = (2.0, "lamp", (-0.8, -0.8, 0.45))
SEEING = np.r_[SPEC.group("light"), SPEC.group("thermal")]


def life(n_steps: int, **settings: object) -> np.ndarray:
    """Return the observations of a life, its first one included, shape (n_steps + 1, 57)."""
    with gymnasium.make("horde_env:CritterbotPen-v0", disable_env_checker=True, **settings) as env:
        seen = [env.reset(seed=5)[0]]
        actions = np.random.default_rng(1).integers(0, 5, n_steps)
        seen += [env.step(int(action))[0] for action in actions]
        again = env.reset(seed=5)[0]
    np.testing.assert_array_equal(again, seen[0])  # a reset moves the lamp back
    return np.array(seen)


def test_a_moved_lamp_changes_only_light_and_warmth_from_its_time_on() -> None:
    """Packet 20 is the one at 2.0 s; the same noise is drawn in both lives, so all else is equal to the bit."""
    still, moved = life(60), life(60, lamp_moves=[MOVE])
    differs = still != moved
    assert not differs[:20].any()
    assert differs[20, SPEC.group("light")].any()
    assert not np.delete(differs, SEEING, axis=1).any()
    assert differs[:, SPEC.group("thermal")].any()


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ([(1.0, "sun", (0.0, 0.0, 1.0))], "unknown lamp 'sun'"),
        ([(-1.0, "lamp", (0.0, 0.0, 1.0))], "from 0 s on"),
        ([MOVE, MOVE], "must increase"),
        ([(float("nan"), "lamp", (0.0, 0.0, 1.0))], "lamp_moves must be"),
    ],
)
def test_invalid_moves_are_refused(moves: list[tuple], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Senses(SPEC, load_pen(), moves)


CURRENT = SPEC.group("motor_current")
CLOCKWISE, COUNTERCLOCKWISE = 2, 3


@pytest.mark.parametrize("physics", ["planar", "bullet"])
def test_more_friction_in_one_rotation_takes_more_current_there_from_its_time_on(physics: str) -> None:
    """Turning freely at 10 units the friction is .22 N + .3 N: 4.4 bytes of 255; 0.6 times that is 2.6 more."""

    def current(action: int, **settings: object) -> np.ndarray:
        with gymnasium.make("horde_env:CritterbotPen-v0", disable_env_checker=True, physics=physics, **settings) as env:
            env.reset(seed=5)
            return np.array([env.step(action)[0][CURRENT] for _ in range(80)])

    change = {"friction_changes": [(4.0, "clockwise", 1.6)]}
    for action in (CLOCKWISE, COUNTERCLOCKWISE):
        before, after = current(action), current(action, **change)
        np.testing.assert_array_equal(after[:40], before[:40])
        if action == COUNTERCLOCKWISE:
            np.testing.assert_array_equal(after, before)
        else:
            rise = (after[50:] - before[50:]).mean() * 0.45 * 255
            assert rise == pytest.approx(2.6, abs=0.8)


def test_a_life_is_restored_with_the_friction_of_its_time() -> None:
    settings = {"disable_env_checker": True, "physics": "planar", "friction_changes": [(1.0, "clockwise", 3.0)]}
    env, other = (gymnasium.make("horde_env:CritterbotPen-v0", **settings).unwrapped for _ in range(2))
    for body in (env, other):
        body.reset(seed=3)
    for _ in range(30):
        env.step(CLOCKWISE)
    other.restore_state(env.save_state())
    np.testing.assert_array_equal(env.step(CLOCKWISE)[0], other.step(CLOCKWISE)[0])


@pytest.mark.parametrize("change", [(1.0, "left", 2.0), (1.0, "clockwise", 0.0), (-1.0, "clockwise", 2.0), (1.0, 2.0)])
def test_invalid_changes_of_the_friction_are_refused(change: tuple) -> None:
    with pytest.raises(ValueError, match="friction_changes must be"):
        gymnasium.make("horde_env:CritterbotPen-v0", friction_changes=[change])
