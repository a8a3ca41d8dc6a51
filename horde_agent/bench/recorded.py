"""The other stream of the benchmark: what the simulated robot senses, coded by its own tile layout.

The robot is reached through Gymnasium alone, and lives before anything is timed.
"""

from __future__ import annotations

import gymnasium
import numpy as np

from horde_agent.bench.workload import Stream
from horde_agent.interface import Interface
from horde_agent.policies import StickyRandom
from horde_agent.runs.config import BadInput
from horde_agent.tiles import TileCoder

SIMULATOR = "horde_env:CritterbotPen-v0"


def recorded(n_states: int, seed: int = 0) -> tuple[Stream, TileCoder]:
    """Run the simulated robot under the sticky random behaviour; return the stream and its tile coder.

    Args:
        n_states: Length T of the stream.
        seed: Of the robot and of its behaviour.

    Raises:
        BadInput: If the simulator is not installed.
    """
    try:
        env = gymnasium.make(SIMULATOR, disable_env_checker=True)
    except (ImportError, gymnasium.error.Error) as error:
        raise BadInput(f"--stream simulator needs the simulated robot: {' '.join(str(error).split())}") from error
    try:
        interface = Interface.of(env)
        behaviour, rng = StickyRandom(len(interface.actions)), np.random.default_rng(seed)
        observation, _ = env.reset(seed=seed)
        seen, drawn = [interface.scaler(observation)], [behaviour.draw(rng)]
        while len(seen) < n_states:
            observation, *_ = env.step(drawn[-1][0])
            seen.append(interface.scaler(observation))
            drawn.append(behaviour.draw(rng))
    finally:
        env.close()
    tiles = np.array([interface.coder.encode(state) for state in seen])
    actions, probabilities = (np.array(column) for column in zip(*drawn, strict=True))
    return Stream(tiles, np.array(seen), actions, probabilities, interface.coder.n_features), interface.coder
