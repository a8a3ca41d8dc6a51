"""Two rooms and a hallway, where the shortest way to the hallway costs. After Sutton et al. (2023), arXiv 2202.03466.

One feature is active in each of the 72 states, so that weights are tables. A move into a wall stays;
each move into a cell "-" costs 1, the goal pays 1 and ends the episode.
"""

from __future__ import annotations

import numpy as np

from horde_agent.problems.markov import SmallMDP

GAMMA = 0.99
MAP = (
    "XXXXXXXXXXXXXXX",
    "X.----.X......X",
    "X.----.X......X",
    "XS----........X",
    "X.----.X......X",
    "X.----.X......X",
    "X......X..G...X",
    "XXXXXXXXXXXXXXX",
)
ACTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
CELLS = [
    (row, column)
    for row, line in enumerate(MAP)
    for column, cell in enumerate(line)
    if cell not in "XG"
]
"""The cell (row, column) of each state."""
_STATE = {cell: state for state, cell in enumerate(CELLS)}
START = next(state for state, (row, column) in enumerate(CELLS) if MAP[row][column] == "S")
HALLWAY = _STATE[3, 7]


def two_rooms(success: float = 1.0) -> SmallMDP:
    """Return the problem: four actions, each of which moves as it says with probability `success`.

    The other moves are equally probable. The first state is the start.

    Examples:
        >>> two_rooms().reward.shape
        (4, 72)
    """
    n = len(CELLS)
    moves = list(ACTIONS.values())
    transition = np.zeros((len(moves), n, n))
    reward = np.zeros((len(moves), n))
    for state, (row, column) in enumerate(CELLS):
        for action in range(len(moves)):
            for k, (down, right) in enumerate(moves):
                probability = (1.0 - success) / (len(moves) - 1)
                if k == action:
                    probability = success
                cell = MAP[row + down][column + right]
                if cell == "G":
                    reward[action, state] += probability
                    continue
                next_state = state
                if cell != "X":
                    next_state = _STATE[row + down, column + right]
                next_row, next_column = CELLS[next_state]
                reward[action, state] -= probability * (MAP[next_row][next_column] == "-")
                transition[action, state, next_state] += probability
    return SmallMDP(transition, reward, np.eye(n)[START])
