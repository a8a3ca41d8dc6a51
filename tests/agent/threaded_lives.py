"""Print hashes of lives one after the other, then of the same lives in two threads: `python -m`."""

from __future__ import annotations

import threading
from collections.abc import Callable

import gymnasium
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Horde, Interface
from horde_agent.bench import workload
from horde_agent.learning.gibbs import GibbsTable
from horde_agent.life.learner import StreamLearner
from horde_agent.life.observers import Follower
from horde_agent.policies import Gibbs
from tests.agent.doubles import N_ACTIONS, ToyBody, toy_life
from tests.agent.short_lives import Recorded

N_POLICIES = 2_048
STREAM = workload.stream(121)
QUESTIONS = workload.constant_action_questions()[:300]


def learn_span(mode: str) -> str:
    learning = Recorded(QUESTIONS, STREAM, mode)
    for t in range(120):
        learning(t)
    return learning.horde.weights_sha256()


def learn_plain() -> str:
    learning = Recorded(QUESTIONS, STREAM, engine="plain", dtype="float64")
    for t in range(12):
        learning(t)
    return learning.horde.weights_sha256()


def compute_ratios() -> str:
    rng = np.random.default_rng(0)
    policies = [Gibbs.random(rng, 3, 40, 4) for _ in range(N_POLICIES)]
    table = GibbsTable(policies, np.arange(N_POLICIES))
    ratios = np.zeros(N_POLICIES)
    total = 0.0
    for t in range(100):
        table.ratios(np.arange(t % 7, t % 7 + 5), 1, 0.5, ratios)
        total += float(ratios.sum())
    return repr(total)


def step_robots() -> str:
    robots = gymnasium.make_vec(
        "horde_env:CritterbotPen-v0",
        num_envs=64,
        vectorization_mode="vector_entry_point",
        physics="planar",
    )
    robots.reset(seed=0)
    for t in range(20):
        observations, *_ = robots.step(np.full(64, t % 5))
    return repr(float(observations.sum()))


def live_with_follower() -> str:
    """A life and its follower learn at the same time."""
    interface = Interface.of(ToyBody())
    toy_questions = [
        GVF(
            f"{channel} {action} {gamma}",
            ConstantAction(action, N_ACTIONS),
            Channel(channel),
            gamma,
        )
        for channel in range(3)
        for action in range(N_ACTIONS)
        for gamma in np.linspace(0.0, 0.9, 40)
    ]
    size = {"n_features": interface.coder.n_features, "n_active": interface.coder.n_active}
    near, follower_horde = (Horde(toy_questions, **size, mode="deferred") for _ in range(2))
    follower = Follower(StreamLearner(follower_horde, interface))
    with toy_life(ToyBody(), near, observers=[follower]) as life:
        life.run(250)
    follower.close()
    assert near.weights_sha256() == follower_horde.weights_sha256()
    return near.weights_sha256()


LIVES: list[Callable[[], str]] = [
    lambda: learn_span("eager"),
    lambda: learn_span("deferred"),
    learn_plain,
    compute_ratios,
    step_robots,
    live_with_follower,
]


def in_two_threads() -> list[str]:
    """Start the lives forwards in one thread and backwards in another, at the same time."""
    results: dict[tuple[str, int], str] = {}

    def run(name: str, order: range) -> None:
        for k in order:
            results[name, k] = LIVES[k]()

    threads = [
        threading.Thread(target=run, args=("forwards", range(len(LIVES)))),
        threading.Thread(target=run, args=("backwards", range(len(LIVES) - 1, -1, -1))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[name, k] for name in ("forwards", "backwards") for k in range(len(LIVES))]


if __name__ == "__main__":
    print(*[life() for life in LIVES], sep="\n")
    print(*in_two_threads(), sep="\n")
