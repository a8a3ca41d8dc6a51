"""Bias, error and coverage of the estimates of `horde evaluate`, in 200 repetitions: docs/results/evaluate.csv.

    python tests/bench/evaluate_coverage.py [PROBLEM ...] [--repetitions N] [--seed N] [--out FILE.csv]

Seven small problems have exact values; those of CartPole, MountainCar and the planar Critterbot are
means of many episodes under the policy itself. Coverages are those of all repetitions, bias and
error those of the `n_values` in which the estimator ran. `share_judged` of them have a verdict. In
`share_shown` the estimator has an interval; `coverage_shown` is that of these.

Intervals and the ridge of the Q that is corrected were chosen by rooms of 200 episodes and CartPole,
with the seeds 1 and 1,001; the table has the seed 5,200.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from horde_agent.problems import classics
from horde_agent.problems.markov import SmallMDP
from horde_agent.problems.rooms import rooms
from horde_agent.scoring.episodes import Episodes, Target
from horde_agent.scoring.horde_value import horde_values
from horde_agent.scoring.intervals import Estimate, Interval, Resampler
from horde_agent.scoring.judgement import EvaluationConfig, estimates_of, evidence_of, sizes_of
from horde_agent.scoring.verdict import ENOUGH, verdict
from horde_agent.tiles import TileCoder

LEVEL = 0.95
N_RESAMPLES = 400
SEED = 5_200
N_GVF_REPETITIONS = 8
"""In which a GVF learns, for a second each; its interval is that of `wdr`, known in all repetitions."""
COLUMNS = (
    "problem",
    "estimator",
    "n_episodes",
    "n_repetitions",
    "n_values",
    "share_judged",
    "true_value",
    "bias",
    "rmse",
    "coverage",
    "share_shown",
    "coverage_shown",
)


class Setting(NamedTuple):
    """A problem of policy evaluation."""

    gamma: float
    n_episodes: int
    true_value: float
    draw: Callable[[np.random.Generator], Target]


# ---- small problems, with exact values ---------------------------------------------------------------


def small(
    mdp: SmallMDP,
    behaviour: np.ndarray,
    target: np.ndarray,
    gamma: float,
    n_episodes: int,
    longest: int | None = None,
) -> Setting:
    """Return the setting of a small problem; with `longest`, episodes are truncated after so many steps."""
    P, r = mdp.under(target)
    if longest is None:
        values = mdp.values(target, gamma)
    else:
        values = np.zeros(len(r))
        for _ in range(longest):
            values = r + gamma * P @ values
    return Setting(
        gamma,
        n_episodes,
        float(values @ mdp.start),
        lambda rng: walk(mdp, behaviour, target, n_episodes, longest, rng),
    )


def walk(
    mdp: SmallMDP,
    behaviour: np.ndarray,
    target: np.ndarray,
    n_episodes: int,
    longest: int | None,
    rng: np.random.Generator,
) -> Target:
    """Return episodes of a small problem, all of which take their steps at once."""
    n_states = len(mdp.start)
    n_actions = len(mdp.reward)
    end = n_states
    state = rng.choice(n_states, size=n_episodes, p=mdp.start)
    states = [state]
    actions = []
    rewards = []
    chances = np.cumsum(mdp.transition, axis=2)
    chances[chances > 1.0 - 1e-12] = 1.0
    while (state < end).any() and len(actions) != longest:
        inside = np.minimum(state, end - 1)
        below = np.cumsum(behaviour[inside], axis=1) <= rng.random(n_episodes)[:, None]
        action = np.minimum(below.sum(axis=1), n_actions - 1)
        reached = (chances[action, inside] <= rng.random(n_episodes)[:, None]).sum(axis=1)
        reward = mdp.reward[action, inside]
        is_over = state == end
        state = np.where(is_over, end, reached)
        states.append(state)
        actions.append(action)
        rewards.append(reward)
    by_episode = np.array(states).T
    length = np.minimum((by_episode < end).sum(axis=1), len(actions))
    is_taken = np.arange(len(actions)) < length[:, None]
    is_row = np.arange(len(actions) + 1) < length[:, None] + 1
    action = np.array(actions).T[is_taken]
    rows = by_episode[is_row]
    acted = by_episode[:, :-1][is_taken]
    episodes = Episodes(
        length=length,
        tiles=rows[:, None],
        n_features=n_states + 1,
        n_actions=n_actions,
        action=action,
        b=behaviour[acted, action],
        reward=np.array(rewards).T[is_taken],
        is_terminated=by_episode[np.arange(n_episodes), length] == end,
    )
    padded = np.vstack([target, np.full((1, n_actions), 1.0 / n_actions)])
    return Target("target", episodes, padded[rows])


def random_walk() -> Setting:
    """Return the walk of 5 states from any of them, with one step in ten in the other direction."""
    problem = classics.random_walk()
    steps = problem.mdp.transition
    n_states = len(problem.mdp.start)
    slips = 0.9 * steps + 0.1 * steps[::-1]
    rewards = 0.9 * problem.mdp.reward + 0.1 * problem.mdp.reward[::-1]
    mdp = SmallMDP(slips, rewards, np.full(n_states, 1.0 / n_states))
    return small(mdp, problem.behaviour, problem.questions[0].target, 1.0, 100)


def boyan_chain() -> Setting:
    """Return Boyan's chain from any state, with a target that takes short steps more often."""
    problem = classics.boyan_chain()
    n_states = len(problem.mdp.start)
    mdp = SmallMDP(problem.mdp.transition, problem.mdp.reward, np.full(n_states, 1.0 / n_states))
    target = np.tile([0.65, 0.35], (n_states, 1))
    target[-2:] = 1.0, 0.0
    return small(mdp, problem.behaviour, target, 1.0, 100)


def collision() -> Setting:
    """Return Collision: one episode in 16 follows the target to the end."""
    problem = classics.collision(np.random.default_rng(0))
    return small(problem.mdp, problem.behaviour, problem.questions[0].target, 0.9, 400)


def four_rooms(*, high_variance: bool, n_episodes: int = 200) -> Setting:
    """Return six steps in the rooms, to a hallway; the target mixes shortest ways and a random walk."""
    problem = rooms(high_variance=high_variance)
    question = problem.questions[0]
    n_states = len(problem.mdp.start)
    inside = question.is_defined
    target = np.full((n_states, 4), 0.25)
    target[inside] = 0.5 * target[inside] + 0.5 * question.target[inside]
    start = inside / inside.sum()
    mdp = SmallMDP(problem.mdp.transition, question.reward, start)
    return small(mdp, problem.behaviour, target, 0.9, n_episodes, longest=6)


def rare_steps(share: float, longest: int, n_episodes: int) -> Setting:
    """Return a walk on five places, from the middle, in which the behaviour steps up with probability .03.

    The target steps up with another probability; one step in ten goes the other way. A step is
    paid by its place, 0 to 1.
    """
    n_states = 5
    places = np.arange(n_states)
    up = np.zeros((n_states, n_states))
    up[places, np.minimum(places + 1, n_states - 1)] += 0.9
    up[places, np.maximum(places - 1, 0)] += 0.1
    down = up[::-1, ::-1]
    reward = np.tile(places / (n_states - 1), (2, 1))
    mdp = SmallMDP(np.array([down, up]), reward, np.eye(n_states)[2])
    behaviour = np.tile([0.97, 0.03], (n_states, 1))
    target = np.tile([1.0 - share, share], (n_states, 1))
    return small(mdp, behaviour, target, 1.0, n_episodes, longest)


# ---- environments, whose values are means of many episodes -----------------------------------------------


class Recorded(NamedTuple):
    """Episodes of an environment: lists of arrays, one per episode."""

    observations: list[np.ndarray]
    actions: list[np.ndarray]
    rewards: list[np.ndarray]
    is_terminated: list[bool]


Probabilities = Callable[[np.ndarray], np.ndarray]
"""Returns pi(a|s) for observations (n, n_channels), shape (n, n_actions)."""


def played(
    envs: gymnasium.vector.VectorEnv[Any, Any, Any],
    policy: Probabilities,
    longest: int,
    rng: np.random.Generator,
) -> Recorded:
    """Play one episode in each environment at once, of at most `longest` steps."""
    observation, _ = envs.reset(seed=int(rng.integers(2**31)))
    n = envs.num_envs
    running = np.ones(n, dtype=bool)
    record = Recorded(
        [[o.copy()] for o in observation],
        [[] for _ in range(n)],
        [[] for _ in range(n)],
        [False] * n,
    )  # type: ignore[misc]
    for _ in range(longest):
        p = np.cumsum(policy(observation), axis=1)
        action = np.minimum((p <= rng.random(n)[:, None]).sum(axis=1), p.shape[1] - 1)
        following, reward, terminated, truncated, _ = envs.step(action)
        for i in np.flatnonzero(running).tolist():
            record.observations[i].append(following[i].copy())  # type: ignore[attr-defined]
            record.actions[i].append(int(action[i]))  # type: ignore[attr-defined]
            record.rewards[i].append(float(reward[i]))  # type: ignore[attr-defined]
            record.is_terminated[i] = bool(terminated[i])
        running &= ~(terminated | truncated)
        observation = following
        if not running.any():
            break
    return record


def on_environment(
    make: Callable[[int], gymnasium.vector.VectorEnv[Any, Any, Any]],
    policies: tuple[Probabilities, Probabilities],
    scale: Callable[[np.ndarray], np.ndarray],
    *,
    gamma: float,
    longest: int,
    n_episodes: int,
    n_for_truth: int,
) -> Setting:
    """Return the setting of an environment; `policies` are the behaviour and the target."""
    behaviour, target = policies
    many = make(n_for_truth)
    truth = played(many, target, longest, np.random.default_rng(99))
    many.close()
    returns = [float(gamma ** np.arange(len(r)) @ np.array(r)) for r in truth.rewards]
    envs = make(n_episodes)

    def draw(rng: np.random.Generator) -> Target:
        record = played(envs, behaviour, longest, rng)
        rows = np.concatenate([np.array(o) for o in record.observations])
        scaled = scale(rows)
        coder = coder_of(scaled.shape[1])
        length = np.array([len(a) for a in record.actions])
        acted = np.concatenate([np.array(o)[:-1] for o in record.observations])
        action = np.concatenate([np.array(a) for a in record.actions])
        p = behaviour(acted)
        episodes = Episodes(
            length=length,
            tiles=np.array([coder.encode(row) for row in scaled]),
            n_features=coder.n_features,
            n_actions=p.shape[1],
            action=action,
            b=p[np.arange(len(action)), action],
            reward=np.concatenate([np.array(r) for r in record.rewards]),
            is_terminated=np.array(record.is_terminated),
        )
        return Target("target", episodes, target(rows))

    return Setting(gamma, n_episodes, float(np.mean(returns)), draw)


def coder_of(n_channels: int) -> TileCoder:
    """Return a small tile coder: 4 tilings of 6 intervals per channel."""
    tables = [{"group": "obs", "intervals": [6], "tilings": 4}]
    return TileCoder(tables, ["obs"] * n_channels)


def pole(share: float) -> Probabilities:
    """Return the policy that pushes to the side to which the pole falls, with a probability."""

    def probabilities(observations: np.ndarray) -> np.ndarray:
        falls_right = observations[:, 2] + 0.5 * observations[:, 3] > 0.0
        right = np.where(falls_right, share, 1.0 - share)
        return np.column_stack([1.0 - right, right])

    return probabilities


def cart_pole() -> Setting:
    """Return 50 steps of CartPole."""
    high = np.array([2.4, 3.0, 0.25, 3.0])
    return on_environment(
        lambda n: gymnasium.make_vec("CartPole-v1", n, vectorization_mode="vector_entry_point"),
        (pole(0.7), pole(0.75)),
        lambda rows: np.clip(0.5 + 0.5 * rows / high, 0.0, 1.0),
        gamma=1.0,
        longest=50,
        n_episodes=80,
        n_for_truth=10_000,
    )


def pump(share: float) -> Probabilities:
    """Return the policy that accelerates in the direction of motion, with a probability."""

    def probabilities(observations: np.ndarray) -> np.ndarray:
        other_share = 0.5 * (1.0 - share)
        p = np.full((len(observations), 3), other_share)
        p[np.arange(len(p)), np.where(observations[:, 1] >= 0.0, 2, 0)] = share
        return p

    return probabilities


def mountain_car() -> Setting:
    """Return MountainCar, to the goal or for 200 steps."""
    low = np.array([-1.2, -0.07])
    high = np.array([0.6, 0.07])
    return on_environment(
        lambda n: gymnasium.make_vec("MountainCar-v0", n, vectorization_mode="sync"),
        (pump(0.8), pump(0.83)),
        lambda rows: np.clip((rows - low) / (high - low), 0.0, 1.0),
        gamma=1.0,
        longest=200,
        n_episodes=40,
        n_for_truth=2_000,
    )


def chosen_action(share: float) -> Probabilities:
    """Return the policy that takes the first of five actions with a probability, the others alike."""
    row = np.full(5, 0.25 * (1.0 - share))
    row[0] = share
    return lambda observations: np.tile(row, (len(observations), 1))


def critterbot() -> Setting:
    """Return 15 steps of the planar Critterbot that seeks light, from where it is placed."""
    probe = gymnasium.make("horde_env:CritterbotPen-v0", physics="planar")
    names = [channel["name"] for channel in probe.unwrapped.metadata["channels"]]
    probe.close()
    lights = [i for i, name in enumerate(names) if name.startswith("light_")]
    return on_environment(
        lambda n: gymnasium.make_vec(
            "horde_env:CritterbotPen-v0", n, physics="planar", task="light"
        ),
        (chosen_action(0.2), chosen_action(0.3)),
        lambda rows: np.clip(rows[:, lights], 0.0, 1.0),
        gamma=0.9,
        longest=15,
        n_episodes=64,
        n_for_truth=4_096,
    )


PROBLEMS: dict[str, Callable[[], Setting]] = {
    "random walk": random_walk,
    "Boyan's chain": boyan_chain,
    "collision": collision,
    "rooms": lambda: four_rooms(high_variance=False),
    "high-variance rooms": lambda: four_rooms(high_variance=True),
    "rooms, 1,000 episodes": lambda: four_rooms(high_variance=False, n_episodes=1_000),
    "high-variance rooms, 1,000 episodes": lambda: four_rooms(high_variance=True, n_episodes=1_000),
    "rare steps, 2": lambda: rare_steps(0.12, 2, 200),
    "rare steps, 15": lambda: rare_steps(0.12, 15, 200),
    "CartPole": cart_pole,
    "MountainCar": mountain_car,
    "Critterbot": critterbot,
}


class Tally:
    """Values and covered intervals of one estimator, and those that are shown."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.is_shown_covered: list[bool] = []
        self.is_covered: list[bool] = []

    def add(self, ends: Interval, true_value: float, *, is_shown: bool) -> None:
        """Add the interval in one repetition."""
        is_covered = ends.low <= true_value <= ends.high
        self.is_covered.append(is_covered)
        if is_shown:
            self.is_shown_covered.append(is_covered)


def measure(
    name: str,
    setting: Setting,
    n_repetitions: int,
    seed: int = SEED,
    n_gvf_repetitions: int = N_GVF_REPETITIONS,
) -> list[dict[str, str]]:
    """Return the lines of `COLUMNS` of a problem, a line per estimator."""
    rng = np.random.default_rng(seed)
    tallies: dict[str, Tally] = {}
    config = EvaluationConfig(gamma=setting.gamma)
    n_judged = 0
    for repetition in range(n_repetitions):
        target = setting.draw(rng)
        gvf_value = None
        if repetition < n_gvf_repetitions:
            gvf_value = horde_values([target], setting.gamma, continues_truncated=False)[0]
        n_judged += verdict(evidence_of(target, config), None).can_judge
        sizes = sizes_of(target, setting.gamma)
        resampler = Resampler(
            target.episodes.n_episodes, repetition, n_resamples=N_RESAMPLES, level=LEVEL
        )
        intervals: dict[Estimate, Interval] = {}
        estimates = estimates_of(target, config, gvf_value)
        for key, estimate in estimates.items():
            judged = estimate.interval_estimate
            if judged not in intervals:
                intervals[judged] = resampler.interval(judged)
            tally = tallies.setdefault(key, Tally())
            tally.values.append(estimate.value)
            is_shown = sizes[key].of_interval >= ENOUGH
            tally.add(intervals[judged], setting.true_value, is_shown=is_shown)
        if gvf_value is None:
            tally = tallies.setdefault("gvf", Tally())
            is_shown = sizes["gvf"].of_interval >= ENOUGH
            tally.add(intervals[estimates["wdr"]], setting.true_value, is_shown=is_shown)
    lines = []
    for key, tally in tallies.items():
        errors = np.array(tally.values) - setting.true_value
        line = {
            "problem": name,
            "estimator": key,
            "n_episodes": f"{setting.n_episodes}",
            "n_repetitions": f"{n_repetitions}",
            "n_values": f"{len(errors)}",
            "share_judged": f"{n_judged / n_repetitions:.3g}",
            "true_value": f"{setting.true_value:.5g}",
            "bias": "",
            "rmse": "",
        }
        if len(errors):
            line["bias"] = f"{errors.mean():.3g}"
            line["rmse"] = f"{np.sqrt((errors**2).mean()):.3g}"
        line["coverage"] = f"{np.mean(tally.is_covered):.3f}"
        line["share_shown"] = f"{len(tally.is_shown_covered) / n_repetitions:.3g}"
        line["coverage_shown"] = ""
        if tally.is_shown_covered:
            line["coverage_shown"] = f"{np.mean(tally.is_shown_covered):.3f}"
        lines.append(line)
    return lines


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    lines = []
    for name in arguments.problems:
        began_s = time.process_time()
        of_problem = measure(name, PROBLEMS[name](), arguments.repetitions, arguments.seed)
        print(f"{name}: {time.process_time() - began_s:.0f} s", file=sys.stderr)
        for line in of_problem:
            print(*line.values(), sep="\t", flush=True)
        lines += of_problem
    if arguments.out is not None:
        with arguments.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    main()
