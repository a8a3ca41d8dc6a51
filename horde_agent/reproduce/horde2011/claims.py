"""Claims about times and the light, learned off-policy."""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.claims import Claims, Finding, Part, at_least, at_most, below, parts
from horde_agent.reproduce.horde2011 import problem
from horde_agent.reproduce.horde2011.problem import Data, Stops, Wandering
from horde_agent.reproduce.stats import join, mean_ci, rank_correlation
from horde_agent.types import Floats

STEPS_RANKED = 5
LEAST_RANK = 0.8
"""Least length of an approach whose predictions are ranked, and the correlation from which they fall along it."""
LEARNED_STOPS = 500
STOPS_TO_ADAPT = 200
STOPS_MEANT = 20
"""Stops of a floor that are not judged; those until the gap to a new floor is looked at, over how many of the last."""
OF_HAND = 0.9
OF_RANDOM = 1.5
"""Least light of the policy found, over that by the policy written by hand and over that at random."""

CLAIMS = Claims("Sutton et al. (2011)")


def _nmse(life: Wandering) -> float:
    met = life.time > 0
    times = life.time[met].astype(np.float64)
    if not met.any() or times.var() == 0:
        return float("inf")
    return float(((life.predicted[met, 0] - times) ** 2).mean() / times.var())


def _share_falling(life: Wandering) -> float:
    """Return the share of approaches along which the predictions fall as the time left does."""
    pairs = zip(life.predicted, life.time.tolist(), strict=True)
    ranks = [rank_correlation(y[:n], n - np.arange(n)) for y, n in pairs if n >= STEPS_RANKED]
    if ranks:
        return float(np.mean(np.array(ranks) >= LEAST_RANK))
    return 0.0


@CLAIMS.add(
    "The time until an obstacle is met is learned off-policy.",
    "the shape only",
    f"A prediction falls if Spearman's correlation of prediction and time left is at least {LEAST_RANK:g}; excursions "
    f"of {STEPS_RANKED} steps or more:",
)
def _obstacle(data: Data) -> Finding:
    missed = sum(int((life.time == 0).sum()) for life in data.wanderings)
    nmse, falling = (
        [measure(life) for life in data.wanderings] for measure in (_nmse, _share_falling)
    )
    return Finding(
        [
            Part("NMSE against the measured times", nmse, at_most(0.5)),
            Part("share of excursions along which the prediction falls", falling, at_least(0.8)),
        ],
        f"Without an obstacle within {problem.LONGEST_TEST} steps, left out: {missed} of "
        f"{len(data.wanderings) * data.size.tests}.",
        lambda: _obstacle_cause(data),
    )


def _obstacle_cause(data: Data) -> str:
    """Return what differs, measured: bias and correlation of the predictions, and what the features allow."""
    met = [life.time > 0 for life in data.wanderings]
    pairs = [
        (life.time[m], life.predicted[m, 0]) for life, m in zip(data.wanderings, met, strict=True)
    ]
    at_once = np.mean([np.mean(times == 1) for times, _ in pairs])
    return (
        f"By life, mean error {join(((y - times).mean() for times, y in pairs), '.1f')} steps, correlation with the "
        f"time {join((np.corrcoef(times, y)[0, 1] for times, y in pairs), '.2f')}; {at_once:.0%} of the excursions "
        "begin at an obstacle. Ridge regression of the other excursions' times on the same features has an NMSE of "
        f"{join((life.regression_nmse for life in data.wanderings), '.2f')}."
    )


def late_means(stops: Stops) -> Floats:
    """Return the mean prediction and the mean time of the learned stops of each floor, shape (3, 2)."""
    floors = [stops.floor == k for k in range(len(problem.FLOORS))]
    pairs = [(stops.predicted[floor], stops.time[floor]) for floor in floors]
    return np.array(
        [[of[min(LEARNED_STOPS, len(of) // 2) :].mean() for of in pair] for pair in pairs]
    )


def gaps_closed(stops: Stops) -> list[float]:
    """Return the share of the gap between two floors' times that predictions closed 200 stops after each change."""
    times = late_means(stops)[:, 1]
    closed = []
    for floor in range(1, len(problem.FLOORS)):
        settled_time = stops.predicted[stops.floor == floor][:STOPS_TO_ADAPT][-STOPS_MEANT:].mean()
        closed.append(float((settled_time - times[floor - 1]) / (times[floor] - times[floor - 1])))
    return closed


@CLAIMS.add(
    "The time to stop is learned, and tracked when the floor changes.",
    "the shape only; floors are friction settings",
    f"After {LEARNED_STOPS} stops on each floor, and {STOPS_TO_ADAPT} stops after each change, in each life:",
)
def _stop(data: Data) -> Finding:
    means = np.array([late_means(stops) for stops in data.stops])
    floors = "; ".join(
        f"friction x {factor:g}: {mean_ci(means[:, k, 0])}, measured {mean_ci(means[:, k, 1])}"
        for k, factor in enumerate(problem.FLOORS)
    )
    error = np.abs(means[..., 0] / means[..., 1] - 1.0).max()
    closed = min(map(min, map(gaps_closed, data.stops)))
    return Finding(
        [
            Part("largest error of a predicted mean time", error, at_most(0.2), ".0%"),
            Part(
                "largest change of the mean prediction to the next floor",
                np.diff(means[..., 0]).max(),
                below(0.0),
            ),
            Part("least share of the gap to the new time closed", closed, at_least(0.5)),
        ],
        f"Predicted steps until rest, {floors}.",
    )


def light_from(data: Data, heading: int) -> Floats:
    """Return the mean light of each of `SEEKERS` from a heading, over all lives, shape (3,)."""
    lights = [life.light[heading :: problem.N_HEADINGS] for life in data.wanderings]
    return np.asarray(np.concatenate(lights).mean(axis=0))


@CLAIMS.add(
    "A policy that seeks the light is learned from exploring behaviour.",
    "Greedy-GQ from about 61,000 steps",
    f"Front light in the last of 5 s; demanded is {OF_HAND:g} times the light of the policy written by hand or "
    f"{OF_RANDOM:g} times the light at random, whichever is more:",
)
def _light(data: Data) -> Finding:
    def over_limit(light: Floats) -> float:
        demanded = max(OF_HAND * light[1], OF_RANDOM * light[2])
        if demanded > 0.0:
            return float(light[0] / demanded)
        return np.inf

    light, returns = (
        np.mean([of_life.mean(axis=0) for of_life in each], axis=0)
        for each in zip(*((w.light, w.returns) for w in data.wanderings), strict=True)
    )
    n = sum(over_limit(light_from(data, heading)) >= 1.0 for heading in range(problem.N_HEADINGS))
    ranks = [rank_correlation(w.value, w.returns[:, 0]) for w in data.wanderings]
    return Finding(
        [
            Part("mean light over the demanded light", over_limit(light), at_least(1.0)),
            Part(
                f"headings, of {problem.N_HEADINGS}, with at least the demanded light",
                n,
                at_least(7),
            ),
            Part(
                "rank correlation of the value at the start with the return", ranks, at_least(0.6)
            ),
        ],
        f"Mean light {join(f'{y:.3f} {name}' for name, y in zip(problem.SEEKERS, light, strict=True))}.",
        f"Discounted light: {join(f'{y:.2f} {name}' for name, y in zip(problem.SEEKERS, returns, strict=True))}.",
    )


@CLAIMS.add(
    "It is off-policy: the behaviour never takes a target policy's action for longer than 1 s.",
    "learned from off-policy experience",
    "Most steps in a row with the target policy's action:",
)
def _off_policy(data: Data) -> Finding:
    longest = np.max(
        [[*w.longest, s.longest] for w, s in zip(data.wanderings, data.stops, strict=True)], axis=0
    )
    return Finding(
        parts(
            dict(zip(("forward", "light", "stop"), longest, strict=True)),
            at_most(problem.LONGEST_BOUT),
        ),
        cause="A stop takes longer than 1 s at little friction."
        if longest[-1] > problem.LONGEST_BOUT
        else "",
    )


@CLAIMS.add(
    "A step costs the same at any time of the life.",
    "constant time and memory per step",
    "Median processor time per step in a third of the life:",
)
def _constant_cost(data: Data) -> Finding:
    series = [(w.ms, len(w.ms) // 3 + 1) for w in data.wanderings]
    thirds = [(np.median(ms[:n]), np.median(ms[-n:])) for ms, n in series]
    growth = max(last / first - 1.0 for first, last in thirds)
    return Finding(
        [Part("largest growth from the first third to the last", growth, at_most(0.05), ".1%")],
        f"First and last: {join(f'{first:.3f} and {last:.3f} ms' for first, last in thirds)}.",
    )


REMARKS = [
    "This is the simulated robot (planar engine): a point lamp with a clear path, and friction settings instead of "
    "floors. The features and step sizes are ours.",
    f"With gamma = 1 an excursion must end: it has at most {problem.LONGEST_TEST} steps.",
]
