"""The stay at the dock through the emulated robot's bytes: the beacon out of packets, charging by control modes."""

from __future__ import annotations

import gymnasium
import pytest

from horde_env.env import PenEnv

pytestmark = [pytest.mark.sim, pytest.mark.slow]


@pytest.mark.parametrize("link", ["serial", "drops"])
def test_it_docks_charges_and_leaves_through_the_wire(link: str) -> None:
    """Batteries of 2 per mille, half full: 9 s of charging each. The supervisor's pause and the robot's own agree."""
    env = gymnasium.make("horde_env:CritterbotEmulated-v0", link=link, battery_scale=0.002, disable_env_checker=True)
    pen = env.unwrapped
    assert isinstance(pen, PenEnv)
    for seed in range(2):
        env.reset(seed=seed)
        machine = pen.backend.emulator.robot.machine  # type: ignore[attr-defined]
        machine.power.charge[:] = [0.5, 0.5, 0.5]
        _, info = env.reset(options={"manoeuvre": "dock"})
        assert (info["docked"], info["gap"], info["applied"]) == (1, 1, 1)
        assert min(machine.power.charge) > 0.9
        assert not machine.power.charging_enabled
        assert not machine.on_dock()
        assert 300 < info["manoeuvre_steps"] < 800
        held = [frame for frame in pen.manoeuvre_frames if not frame.applied]
        assert all(frame.values[0] > 17.0 for frame in held)
        assert env.step(1)[4]["applied"] == 1
    env.close()
