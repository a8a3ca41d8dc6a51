"""Error of predictions with the true b, with b estimated from the data, and with b ignored (rho = 1)."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent import GVF, Behaviour, Channel, PolicyFunction, learn_from

N_PLACES = 11
N_ROWS = 20_000
GAMMA = 0.8
SEEDS = 4
RIGHT = (0.3, 0.7)  # the target policies' probability of a step to the right
Floats = NDArray[np.float64]


def walk(seed: int) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Return places in [0, 1], actions and b: to the right with probability .15 at the left end, .85 at the right."""
    rng = np.random.default_rng(seed)
    place = N_PLACES // 2
    rows = []
    for _ in range(N_ROWS):
        right = 0.15 + 0.7 * place / (N_PLACES - 1)
        action = int(rng.random() < right)
        rows.append((place / (N_PLACES - 1), action, right if action else 1 - right))
        place = min(max(place + 2 * action - 1, 0), N_PLACES - 1)
    places, actions, b = np.array(rows).T
    return places[:, None], actions.astype(np.int64), b


def values(right: float) -> Floats:
    """Return the exact values: the discounted sum of the places that follow, shape (N_PLACES,)."""
    moves = np.zeros((N_PLACES, N_PLACES))
    rewards = np.zeros(N_PLACES)
    place = np.arange(N_PLACES)
    for probability, stride in ((right, 1), (1 - right, -1)):
        following = np.clip(place + stride, 0, N_PLACES - 1)
        moves[place, following] += probability
        rewards += probability * following / (N_PLACES - 1)
    return np.linalg.solve(np.eye(N_PLACES) - GAMMA * moves, rewards)


def error(seed: int, how: str) -> float:
    """Return the root mean squared error of the predictions, over the places as often as the walk was there."""
    places, actions, b = walk(seed)
    policies: list[Any] = [
        PolicyFunction(lambda *_, right=right: [1 - right, right], 2) for right in RIGHT
    ]
    if how == "ignored":
        policies = [Behaviour()] * len(RIGHT)
    questions = [GVF(f"{p}", policies[i], Channel(0), GAMMA) for i, p in enumerate(RIGHT)]
    settings = {"ranges": [[0, 1]], "action_names": ["left", "right"], "questions": questions}
    with tempfile.TemporaryDirectory() as out:
        learned = learn_from(
            places, actions, b="estimate" if how == "estimated" else b, out=f"{out}/run", **settings
        )
    at = np.linspace(0, 1, N_PLACES)
    predictions = np.array(
        [learned.horde.predict(learned.interface.encode(np.array([x])), np.array([x])) for x in at]
    )
    truth = np.array([values(right) for right in RIGHT]).T
    share = (
        np.bincount((places[:, 0] * (N_PLACES - 1)).round().astype(int), minlength=N_PLACES)
        / N_ROWS
    )
    return float(np.sqrt((share @ (predictions - truth) ** 2).mean()))


def main() -> dict[str, Any]:
    """Return the errors of each way, one per seed, and the deviation of the values."""
    errors = {
        how: [round(error(s, how), 3) for s in range(SEEDS)]
        for how in ("true", "estimated", "ignored")
    }
    return {"error": errors, "deviation_of_the_values": round(float(np.std(values(RIGHT[0]))), 2)}
