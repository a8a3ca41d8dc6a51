"""The Rooms and High Variance Rooms problems. Source: Ghiassian & Sutton (2021), arXiv 2109.05110."""

from __future__ import annotations

import numpy as np

from horde_agent.problems.markov import Problem, Question, SmallMDP
from horde_agent.types import Floats, Integers

SIZE = 11
GAMMA = 0.9
ACTIONS = {"up": (0, 1), "down": (0, -1), "right": (1, 0), "left": (-1, 0)}
HALLWAYS = ((5, 1), (1, 5), (5, 8), (8, 4))
CUTS = (10, 7, 4)
"""First column and row of the upper halves of the three 2 x 2 tilings."""
SURE = {(1, 1): "left", (1, 8): "left", (8, 1): "right", (8, 8): "right"}
"""Cells where the high-variance behaviour takes one action with probability .97."""


def _is_wall(x: int, y: int) -> bool:
    row = 5 if x < 5 else 4
    return (x, y) not in HALLWAYS and (x == 5 or y == row)


CELLS = [(x, y) for y in range(SIZE) for x in range(SIZE) if not _is_wall(x, y)]
"""The cell (x, y) of each state; x to the right, y upwards."""
_STATE = {cell: s for s, cell in enumerate(CELLS)}


def rooms(*, high_variance: bool = False) -> Problem:
    """Return the problem: 11 x 11 cells in four rooms, four actions, no end; eight questions with gamma .9.

    A question is about the shortest way from a room, or from its other hallway, to one of its two
    hallways: the reward is 1 on arriving there, and shortest ways are equally probable. The
    behaviour is uniform.

    Args:
        high_variance: True for a behaviour that is nearly sure of its action in four cells.
    """
    n = len(CELLS)
    names = list(ACTIONS)
    next_states = np.array(
        [
            [_STATE.get((x + dx, y + dy), s) for s, (x, y) in enumerate(CELLS)]
            for dx, dy in ACTIONS.values()
        ]
    )
    mdp = SmallMDP(np.eye(n)[next_states], np.zeros((len(names), n)), np.eye(n)[_STATE[0, 0]])
    behaviour = np.full((n, len(names)), 0.25)
    if high_variance:
        for cell, action in SURE.items():
            behaviour[_STATE[cell]] = np.where(
                np.arange(len(names)) == names.index(action), 0.97, 0.01
            )
    questions = [
        _question(next_states, room, goal)
        for room in _rooms()
        for goal in room
        if CELLS[goal] in HALLWAYS
    ]
    return Problem(mdp, names, behaviour, _features(), questions)


def _rooms() -> list[list[int]]:
    """Return the states of each room, with its two hallways."""
    sides = [(right, upper) for right in (False, True) for upper in (False, True)]
    inside = [
        [s for s, cell in enumerate(CELLS) if cell not in HALLWAYS and _side(*cell) == side]
        for side in sides
    ]
    doors = [
        (0, 1),
        (1, 2),
        (0, 3),
        (2, 3),
    ]  # of the rooms at the lower left, upper left, lower right, upper right
    return [
        [*room, *(_STATE[HALLWAYS[k]] for k in pair)]
        for room, pair in zip(inside, doors, strict=True)
    ]


def _side(x: int, y: int) -> tuple[bool, bool]:
    return x > 5, y > (5 if x < 5 else 4)


def _question(after: Integers, room: list[int], goal: int) -> Question:
    """Return the question about the shortest way within a room; `after` is the next state of each action, (N, S)."""
    n_actions, n = after.shape
    distance = np.full(n, np.inf)
    distance[goal] = 0.0
    for _ in room:  # as many sweeps as the longest way can have steps
        distance[room] = np.minimum(distance[room], 1.0 + distance[after[:, room]].min(axis=0))
    defined = [s for s in room if s != goal]
    target = np.zeros((n, n_actions))
    gamma = np.zeros(n)
    is_shortest = distance[after[:, defined]] == distance[defined] - 1.0
    target[defined] = (is_shortest / is_shortest.sum(axis=0)).T
    gamma[defined] = GAMMA
    return Question(target, np.where(after == goal, 1.0, 0.0), gamma)


def _features() -> Floats:
    """Return 12 bits of each state: in each of three 2 x 2 tilings, the tile of its cell."""
    bits = np.zeros((len(CELLS), len(CUTS), 4))
    for row, (x, y) in zip(bits, CELLS, strict=True):
        for k, cut in enumerate(CUTS):
            row[k, 2 * (y >= cut) + (x >= cut)] = 1.0
    return bits.reshape(len(CELLS), -1)
