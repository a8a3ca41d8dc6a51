"""Experiment `curiosity`: surprise about a changed robot drives the behaviour.

Source: White, Modayil & Sutton (2014). Only the abstract could be read: a claim is the shape of a result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.reproduce.curiosity import problem
from horde_agent.reproduce.curiosity.problem import CHANGED, MINUTE, THRESHOLD, Data, Record
from horde_agent.reproduce.experiment import ClaimRule, Experiment, Finding, finding_of_means
from horde_agent.reproduce.result import Cell, Table, join, mean_ci
from horde_agent.reproduce.study import Study
from horde_agent.types import Bools, Floats

MOST_SURPRISED, LEAST_SHARE, MOST_OTHERS = 0.05, 0.9, 0.2
LEAST_FOLLOWED, MOST_RATIO, LEAST_DRAWN, RECOVERED = 0.8, 0.5, 0.5, 1.5
WITHIN = 10 * MINUTE


class Reaction(NamedTuple):
    """How a robot reacts to the change; steps are counted from the change on.

    Attributes:
        before: Share of the 10 minutes before the change with surprise about any question.
        crossed: Whether each question is surprised within 60 s of the first use of the changed policy, shape (2,).
        settled: Step from which on the changed question is without surprise for a minute; the end if there is none.
        followed: Share of the steps with surprise about it, until then, that take its policy's action.
        later: Share of the steps after that with surprise about each question, shape (2,).
    """

    before: float
    crossed: Bools
    settled: int
    followed: float
    later: Floats


def reaction(record: Record, change_at: int) -> Reaction:
    """Measure the reaction to a change at step `change_at`."""
    is_surprised = record.drive > THRESHOLD
    after, taken = is_surprised[change_at:], record.taken[change_at:]
    first_use = int((taken == CHANGED).argmax())
    crossed = np.asarray(after[first_use : first_use + MINUTE].any(axis=0))
    begins = int(after[:, CHANGED].argmax()) if crossed[CHANGED] else first_use
    quiet = np.convolve(after[begins:, CHANGED], np.ones(MINUTE), "valid") == 0
    settled = begins + int(quiet.argmax()) if quiet.any() else len(after)
    during = after[:settled, CHANGED]
    followed = float((taken[:settled][during] == CHANGED).mean()) if during.any() else 0.0
    later = after[settled:].mean(axis=0) if settled < len(after) else np.ones(2)
    before = is_surprised[max(change_at - WITHIN, 0) : change_at].any(axis=1)
    return Reaction(float(before.mean()), crossed, settled, followed, later)


def recovery(record: Record, change_at: int) -> int:
    """Return the steps after the change until the error, a median of three tests, is 1.5 times that before, or less.

    If it never is, it is as long as there are tests.
    """
    is_after = record.tested >= change_at
    before, after = record.error[~is_after].mean(), record.error[is_after]
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(after, 3), axis=1)
    steps = np.append(record.tested[is_after][2:], record.tested[-1] + problem.TEST_EVERY) - change_at
    is_back = np.append(smooth <= RECOVERED * before, True)
    return int(steps[is_back.argmax()])


def reactions(data: Data) -> list[Reaction]:
    """Return the reactions of the curious robots."""
    return [reaction(record, data.size.before) for record in data.lives["curious"]]


def _unsurprised(data: Data) -> Finding:
    shares = {"share of the 10 minutes before the change with surprise": [found.before for found in reactions(data)]}
    return finding_of_means(shares, lambda share: share <= MOST_SURPRISED)


def _surprised(data: Data) -> Finding:
    changed, other = np.mean([found.crossed for found in reactions(data)], axis=0)
    return Finding(
        f"Surprised within 60 s of its first use: the changed question in {changed:.0%} of the seeds, the other one in "
        f"{other:.0%}.",
        [bool(changed >= LEAST_SHARE), bool(other <= MOST_OTHERS)],
    )


def _acts_and_stops(data: Data) -> Finding:
    found = reactions(data)
    in_time = np.mean([reacts.settled <= WITHIN for reacts in found])
    followed, later = mean_ci([reacts.followed for reacts in found]), mean_ci([reacts.later.max() for reacts in found])
    of_each = join(f"{mean_ci(shares)}" for shares in np.transpose([reacts.later for reacts in found]))
    return Finding(
        f"Share of the surprised time on the changed policy {followed}; back to normal within 10 minutes in "
        f"{in_time:.0%} of the seeds, after {mean_ci([r.settled / MINUTE for r in found])} minutes; share of the later "
        f"time with surprise {later} (changed question, other one: {of_each}).",
        [followed.mean >= LEAST_FOLLOWED, bool(in_time >= LEAST_SHARE), later.mean <= MOST_SURPRISED],
    )


def _learns_faster(data: Data) -> Finding:
    steps = {
        kind: np.array([recovery(record, data.size.before) for record in data.lives[kind]])
        for kind in ("curious", "twin")
    }
    ratio = float(np.median(steps["curious"] / steps["twin"]))
    said = "; ".join(f"{kind} {np.median(found):.0f}" for kind, found in steps.items())
    return Finding(f"Median steps until the error is back: {said}; median ratio {ratio:.2f}.", [ratio <= MOST_RATIO])


def _noise(data: Data) -> Finding:
    after = data.size.before
    by_ude = [float((record.drive[after:, CHANGED] > THRESHOLD).mean()) for record in data.lives["noise, UDE"]]
    drawn = [float((record.followed[after:] == CHANGED).mean()) for record in data.lives["noise, |delta|"]]
    surprised, time_there = mean_ci(by_ude), mean_ci(drawn)
    return Finding(
        f"Share of phase B surprised about noise {surprised}; at its policy with |delta| as drive {time_there}.",
        [surprised.mean <= MOST_SURPRISED, time_there.mean >= LEAST_DRAWN],
    )


_PAPER = "White, Modayil & Sutton (2014)"
_SHAPE = "the shape only; another robot, another sensor"
RULES = [
    ClaimRule(
        "Before the change the robot is not surprised.",
        _PAPER,
        _SHAPE,
        f"UDE above the threshold in at most {MOST_SURPRISED:.0%} of the last 10 minutes of phase A.",
        _unsurprised,
    ),
    ClaimRule(
        "The change surprises it, and only about what changed.",
        _PAPER,
        "UDE rises after the physical change",
        f"Within 60 s of the policy's first use the UDE of the changed question crosses the threshold in at least "
        f"{LEAST_SHARE:.0%} of the seeds, that of the other one in at most {MOST_OTHERS:.0%}.",
        _surprised,
    ),
    ClaimRule(
        "It acts on its surprise, and stops.",
        _PAPER,
        "it switches to that policy until it is no longer surprised, then continues as before",
        f"At least {LEAST_FOLLOWED:.0%} of the surprised time on that policy; without surprise for a minute within 10 "
        f"minutes in at least {LEAST_SHARE:.0%} of the seeds; afterwards at most {MOST_SURPRISED:.0%} of the time "
        "surprised, about the worse question.",
        _acts_and_stops,
    ),
    ClaimRule(
        "It learns faster for it.",
        "a test of ours",
        "no comparison is known",
        f"Steps until the error is at most {RECOVERED:g} times that before the change: median ratio to the twin at "
        f"most {MOST_RATIO:g}.",
        _learns_faster,
    ),
    ClaimRule(
        "Noise is not interesting.",
        _PAPER,
        "UDE is large only while learning changes something",
        f"White noise as cumulant: surprised in at most {MOST_SURPRISED:.0%} of phase B; with |delta| as drive at its "
        f"policy for at least {LEAST_DRAWN:.0%}.",
        _noise,
    ),
]


def tables(data: Data) -> list[Table]:
    """Return each seed's reaction."""
    rows: list[dict[str, Cell]] = []
    for k, found in enumerate(reactions(data)):
        rows.append(
            {
                "seed": k,
                "surprised before": found.before,
                "crossed: changed, other": join(found.crossed),
                "settled (steps)": found.settled,
                "on its policy": found.followed,
                "later: changed, other": join(found.later, ".3f"),
                "error back (steps)": recovery(data.lives["curious"][k], data.size.before),
                "twin": recovery(data.lives["twin"][k], data.size.before),
            }
        )
    return [Table.of("Reactions to the change, by seed", rows, "Steps of 100 ms after the change.")]


def settings(_study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the experiment."""
    return {
        "seeds": join(range(len(data.lives["curious"]))),
        "tuned on seeds": join(problem.TUNED_ON),
        "steps of phases A and B": join(data.size[:2]),
        "friction of clockwise rotation": problem.FRICTION,
        "gamma": problem.GAMMA,
        "lambda": problem.LAM,
        "alpha": f"{problem.STEP_SIZE} / active tiles",
        "UDE": f"of rho delta, beta0 {problem.BETA0:g}, standard deviation of the whole past, epsilon 1e-6",
        "thresholds of UDE and of the mean |rho delta|": join((THRESHOLD, problem.DELTA_THRESHOLD)),
    }


EXPERIMENT = Experiment(
    "curiosity",
    "Surprise and curiosity: UDE drives the behaviour",
    problem.gather,
    RULES,
    tables,
    settings,
    remarks=[
        "The shape of a result, on another body: a simulated robot that can rotate, its mean motor current instead of "
        "the battery current, and more friction. Its normal behaviour rotates and stops on the spot, away from walls.",
        "Physics is that of the planar simulator, which shares friction and motors with PyBullet's.",
        "Tests start from the robot's state, follow the changed policy for 5 s and put the robot back.",
    ],
)
