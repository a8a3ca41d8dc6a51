"""GTD(lambda) in one file, in NumPy and plain loops: the file to read before the Horde.

    python examples/gtd_in_one_file.py [steps]

A walker goes left or right at random on a line from 0 to 1. At the right end there is light. One
demon predicts, from this walk, how much light would be seen over about ten steps by a walker that
always goes right. The Horde learns the same weights (`tests/test_examples.py`); the equations are
those of `horde_agent/kernels/rules/gtd.py`.

Source: White, Modayil & Sutton (2012); Maei (2011), chapter 7.
"""

import sys
from typing import NamedTuple

import numpy as np

N_TILINGS = 8
N_TILES = 10  # of a tiling, over the length of the line
N_FEATURES = N_TILINGS * (N_TILES + 1)
RIGHT = 1  # the action; 0 is left
PROBABILITY = 0.5  # b: of each action
GAMMA = 0.9
LAMBDA = 0.9
ALPHA = 0.1 / N_TILINGS
ALPHA_W = 0.1 * ALPHA


class Step(NamedTuple):
    """A transition: the position, the action, the next position."""

    position: float
    action: int
    next_position: float


def random_walk(n_steps, rng):
    """Return a walk with steps of about .05."""
    steps = []
    position = 0.5
    for _ in range(n_steps):
        action = int(rng.integers(2))
        direction = 2 * action - 1
        length = 0.05 + 0.01 * rng.normal()
        next_position = float(np.clip(position + direction * length, 0.0, 1.0))
        steps.append(Step(position, action, next_position))
        position = next_position
    return steps


def light(position):
    """Return the cumulant: the light at a position."""
    return position**4


def active_tiles(position):
    """Return the features that are 1 at a position: one tile of each of several shifted grids."""
    tiles = []
    for tiling in range(N_TILINGS):
        tile = int(position * N_TILES + tiling / N_TILINGS)
        tiles.append(tiling * (N_TILES + 1) + tile)
    return tiles


def learn(steps):
    """Return theta and w of a demon that learned from a walk, each of shape (N_FEATURES,)."""
    theta = np.zeros(N_FEATURES)
    w = np.zeros(N_FEATURES)
    e = np.zeros(N_FEATURES)
    lambda_t = LAMBDA
    for step in steps:
        tiles_t = active_tiles(step.position)
        tiles_tp1 = active_tiles(step.next_position)
        rho = float(step.action == RIGHT) / PROBABILITY  # pi / b
        delta = light(step.next_position) + GAMMA * theta[tiles_tp1].sum() - theta[tiles_t].sum()

        # e_t = rho_t (phi_t + gamma_t lambda_t e_{t-1})
        e *= GAMMA * lambda_t
        e[tiles_t] += 1.0
        e *= rho

        # right-hand sides use the weights from before the step
        e_w = e @ w
        w_phi = w[tiles_t].sum()
        lambda_tp1 = LAMBDA / max(rho, 1.0)  # "clipped": the trace stays bounded

        theta += ALPHA * delta * e
        theta[tiles_tp1] -= ALPHA * GAMMA * (1.0 - lambda_tp1) * e_w
        w += ALPHA_W * delta * e
        w[tiles_t] -= ALPHA_W * w_phi
        lambda_t = lambda_tp1
    return theta, w


def true_value(position):
    """Return the discounted light that a walker sees if it always goes right, without noise."""
    total = 0.0
    for k in range(100):
        position = min(position + 0.05, 1.0)
        total += GAMMA**k * light(position)
    return total


if __name__ == "__main__":
    n_steps = 100_000
    if len(sys.argv) > 1:
        n_steps = int(sys.argv[1])
    theta, _ = learn(random_walk(n_steps, np.random.default_rng(0)))
    for position in (0.2, 0.5, 0.8):
        prediction = theta[active_tiles(position)].sum()
        print(f"at {position}: light ahead {prediction:.2f}; true value {true_value(position):.2f}")
