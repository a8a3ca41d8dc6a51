"""A lamp that is moved during a life."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.robots.critterbot.place import load_pen
from horde_env.robots.critterbot.simulator.sensors import ChangingSenses

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
        ([(1.0, "lamp", (0.0, 1.0))], "lamp_moves must be"),
        ([(-1.0, "lamp", (0.0, 0.0, 1.0))], "from 0 s on"),
        ([MOVE, MOVE], "must increase"),
        ([(float("nan"), "lamp", (0.0, 0.0, 1.0))], "lamp_moves must be"),
    ],
)
def test_invalid_moves_are_refused(moves: list[tuple], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ChangingSenses(SPEC, load_pen(), moves)
