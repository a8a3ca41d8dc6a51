"""b of a data set without action probabilities: those of a policy, or estimated by multinomial logistic regression.

    b(a|s) = softmax_a(sum of W[i, a] over the active tiles i / T)

W minimises the log-loss with an L2 penalty on four fifths of the rows, by averaged AdaGrad over
short batches; the temperature T is chosen on half of the others, and the log-loss is measured on
the other half.

Source: Duchi, Hazan & Singer (2011), AdaGrad; Guo et al. (2017), temperature scaling; Hanna, Niekum
& Stone (2019) on importance sampling with an estimated behaviour policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.formats.tables import Table
from horde_agent.interface import HeldReadings, Interface
from horde_agent.interface.held import filled_rows
from horde_agent.record import Phase, Stream
from horde_agent.refusals import BadInput
from horde_agent.types import Floats, Integers, Tiles

_BLOCK = 256  # rows of a batch; every fifth batch is held out
_LEAST_ROWS = 10 * _BLOCK
ENOUGH_ROWS = 100_000  # to learn from, in at most _MOST_PASSES passes
_MOST_PASSES = 10
# Batches, after which only every second one is used; after half as many more every fourth, ...
_THINNED_FROM = 1024
_PENALTY = 1e-6
_RAREST = 1e-6  # smallest estimate: its inverse is a ratio that a Horde can bear


@dataclass(frozen=True)
class LogisticPolicy:
    """A softmax policy over tiles with a parameter for each tile and action."""

    weights: Floats  # W, shape (n_features, n_actions)
    temperature: float = 1.0  # T > 0

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return int(self.weights.shape[1])

    def probabilities(self, observation: NDArray[Any], tiles: Tiles) -> Floats:  # noqa: ARG002
        """Return the probability of each action, at least 1e-6, shape (n_actions,); `observation` is not used."""
        p = np.maximum(_softmax(self.weights[tiles].sum(axis=0) / self.temperature), _RAREST)
        return np.asarray(p / p.sum())


def estimate_behaviour(
    rows: Table, interface: Interface
) -> tuple[LogisticPolicy, dict[str, float]]:
    """Return the behaviour policy estimated from a data set's actions, and facts about the fit.

    The facts are the log-loss per held-out row, the log-loss of the actions' frequencies, T and the
    number of rows. Raise BadInput if there are fewer than 2,560 rows.
    """
    n_actions = len(interface.actions)
    coder = interface.coder
    weights = np.zeros((coder.n_features, n_actions))
    squares = np.zeros_like(weights)
    mean = np.zeros_like(weights)
    n_means = 0
    n_rows = n_passes = 0
    counts = np.ones(n_actions)
    while n_passes == 0 or (n_passes < _MOST_PASSES and n_passes * n_rows < ENOUGH_ROWS):
        for k, (tiles, actions) in enumerate(_batches(rows, interface)):
            if n_passes == 0:
                n_rows += len(actions)
            if k % 5 < 4:
                _learn_batch(weights, squares, tiles, actions, 1.0 / coder.n_active)
                n_means += 1
                mean += (weights - mean) / n_means
                counts += np.bincount(actions, minlength=n_actions)
        # The first half of the path counts less and less
        n_passes += 1
        n_means = n_means // 2
    if n_rows < _LEAST_ROWS:
        raise BadInput(
            f'b = "estimate" needs {_LEAST_ROWS:,} rows with an action, and there are {n_rows:,}'
        )
    held_out = [
        (mean[tiles].sum(axis=1), actions)
        for k, (tiles, actions) in enumerate(_batches(rows, interface))
        if k % 5 == 4
    ]
    temperatures = np.geomspace(0.25, 4.0, 65)
    losses = [_log_loss(held_out[::2], t) for t in temperatures]
    temperature = float(temperatures[int(np.argmin(losses))])
    judged = held_out[1::2]
    frequencies = np.log(counts / counts.sum())
    facts = {
        "log_loss": _log_loss(judged, temperature),
        "log_loss_of_frequencies": _log_loss(
            [(np.broadcast_to(frequencies, x.shape), a) for x, a in judged], 1.0
        ),
        "temperature": temperature,
        "n_rows": n_rows,
    }
    return LogisticPolicy(mean, temperature), facts


def _batches(
    rows: Iterable[Stream], interface: Interface
) -> Iterator[tuple[NDArray[np.int64], Integers]]:
    """Yield tiles, shape (n, n_active), and actions, shape (n,), of rows with an action, thinned in a long table."""
    last_readings = HeldReadings(interface)
    acted = (part.rows[part.rows["phase"] == Phase.BEHAVE] for part in rows)
    blocks = chain.from_iterable(
        (part[k : k + _BLOCK] for k in range(0, len(part), _BLOCK)) for part in acted
    )
    stride = 1
    n_used = 0
    for number, block in enumerate(blocks):
        if number % stride:
            continue
        n_used += 1
        if n_used == _THINNED_FROM:
            stride = 2 * stride
            n_used = n_used // 2
        begins = np.zeros(len(block), dtype=bool)
        filled = filled_rows(block["observation"], begins, interface, last_readings).for_tiles
        tiles = np.array([interface.encode(observation) for observation in filled])
        yield tiles, block["action"].astype(np.int64)


def _learn_batch(
    weights: Floats, squares: Floats, tiles: NDArray[np.int64], actions: Integers, rate: float
) -> None:
    error = _softmax(weights[tiles].sum(axis=1))
    error[np.arange(len(actions)), actions] -= 1.0
    for a in range(weights.shape[1]):
        by_tile = np.repeat(error[:, a] / len(actions), tiles.shape[1])
        gradient = np.bincount(tiles.ravel(), by_tile, len(weights)) + _PENALTY * weights[:, a]
        squares[:, a] += gradient**2
        weights[:, a] -= rate * gradient / np.sqrt(squares[:, a] + 1e-12)


def _softmax(logits: Floats) -> Floats:
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


def _log_loss(judged: list[tuple[Floats, Integers]], temperature: float) -> float:
    losses = [-np.log(_softmax(x / temperature)[np.arange(len(a)), a]) for x, a in judged]
    if losses:
        return float(np.concatenate(losses).mean())
    return float("nan")
