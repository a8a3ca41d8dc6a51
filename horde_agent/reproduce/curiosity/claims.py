"""How a curious robot reacts to a change, and to noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.reproduce.claims import Claims, Finding, Part, at_least, at_most
from horde_agent.reproduce.curiosity.problem import (
    CHANGED,
    MINUTE,
    TEST_EVERY,
    THRESHOLD,
    Data,
    Record,
)
from horde_agent.reproduce.stats import join, mean_ci
from horde_agent.types import Bools, Floats

RECOVERED = 1.5
WITHIN = 10 * MINUTE


class Reaction(NamedTuple):
    """How a robot reacts to the change; steps are counted from the change on."""

    before: float  # share of the 10 minutes before the change with surprise about any question
    # Whether each question is surprised within 60 s of the first use of the changed policy, shape
    # (2,)
    crossed: Bools
    # Step from which on the changed question is without surprise for a minute; the end if there is
    # none
    settled: int
    # Share of the steps with surprise about it, until then, that take its policy's action
    followed: float
    later: Floats  # share of the steps after that with surprise about each question, shape (2,)


def reaction(record: Record, change_at: int) -> Reaction:
    """Measure the reaction to a change at step `change_at`."""
    is_surprised = record.drive > THRESHOLD
    surprises = is_surprised[change_at:]
    choices = record.taken[change_at:]
    first_use = int((choices == CHANGED).argmax())
    crossed = np.asarray(surprises[first_use : first_use + MINUTE].any(axis=0))
    begins = first_use
    if crossed[CHANGED]:
        begins = int(surprises[:, CHANGED].argmax())
    quiet = np.convolve(surprises[begins:, CHANGED], np.ones(MINUTE), "valid") == 0
    if quiet.any():
        settled = begins + int(quiet.argmax())
    else:
        settled = len(surprises)
    during = surprises[:settled, CHANGED]
    followed = 0.0
    if during.any():
        followed = float((choices[:settled][during] == CHANGED).mean())
    if settled < len(surprises):
        later = surprises[settled:].mean(axis=0)
    else:
        later = np.ones(2)
    share_before = is_surprised[max(change_at - WITHIN, 0) : change_at].any(axis=1)
    return Reaction(float(share_before.mean()), crossed, settled, followed, later)


def recovery(record: Record, change_at: int) -> int:
    """Return the steps after the change until the error, a median of three tests, is 1.5 times that before, or less.

    If it never is, it is as long as there are tests.
    """
    tested = record.tested
    is_after = tested >= change_at
    error = record.error[tested]
    mean_before = error[~is_after].mean()
    errors = error[is_after]
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(errors, 3), axis=1)
    steps = np.append(tested[is_after][2:], tested[-1] + TEST_EVERY) - change_at
    is_back = np.append(smooth <= RECOVERED * mean_before, True)
    return int(steps[is_back.argmax()])


def reactions(data: Data) -> list[Reaction]:
    """Return the reactions of the curious robots."""
    return [reaction(record, data.size.before) for record in data.lives["curious"]]


UNSURPRISED = at_most(0.05)
"""Share of the time with surprise of a robot that is calm."""
CLAIMS = Claims("White, Modayil & Sutton (2014)")


@CLAIMS.add(
    "Before the change the robot is not surprised.", "the shape only; another robot, another sensor"
)
def _unsurprised(data: Data) -> list[Part]:
    shares = [found.before for found in reactions(data)]
    return [Part("share of the 10 minutes before the change with surprise", shares, UNSURPRISED)]


@CLAIMS.add(
    "The change surprises it, and only about what changed.",
    "UDE rises after the physical change",
    "Share of the seeds with surprise within 60 s of the policy's first use:",
)
def _surprised(data: Data) -> list[Part]:
    changed, elsewhere = np.mean([found.crossed for found in reactions(data)], axis=0)
    return [
        Part("about the changed question", changed, at_least(0.9), ".0%"),
        Part("about the other one", elsewhere, at_most(0.2), ".0%"),
    ]


@CLAIMS.add(
    "It acts on its surprise, and stops.",
    "it switches to that policy until it is no longer surprised, then continues as before",
    "Back to normal is a robot without surprise for a minute:",
)
def _acts_and_stops(data: Data) -> Finding:
    reaction_list = reactions(data)
    of_each = join(
        str(mean_ci(shares)) for shares in np.transpose([reacts.later for reacts in reaction_list])
    )
    return Finding(
        [
            Part(
                "share of the surprised time on the changed policy",
                [r.followed for r in reaction_list],
                at_least(0.8),
            ),
            Part(
                "share back to normal in 10 minutes",
                np.mean([r.settled <= WITHIN for r in reaction_list]),
                at_least(0.9),
            ),
            Part(
                "share of the later time with surprise, worse question",
                [r.later.max() for r in reaction_list],
                UNSURPRISED,
            ),
        ],
        f"Back to normal after {mean_ci([r.settled / MINUTE for r in reaction_list])} minutes; "
        f"later surprised about the changed question, the other one: {of_each}.",
    )


@CLAIMS.add(
    "It learns faster for it.",
    "no comparison is known",
    f"Steps until the error is at most {RECOVERED:g} times that before the change:",
    source="a test of ours",
)
def _learns_faster(data: Data) -> Finding:
    curious, twin = (
        np.array([recovery(record, data.size.before) for record in data.lives[kind]])
        for kind in ("curious", "twin")
    )
    return Finding(
        [
            Part(
                "median over the seeds of curious over twin",
                np.median(curious / twin),
                at_most(0.5),
                ".2f",
            )
        ],
        f"Medians: curious {np.median(curious):.0f}, twin {np.median(twin):.0f}.",
    )


def shares_drawn(data: Data, kind: str) -> list[float]:
    """Return the share of phase B at the policy of the question about noise, in each life of a kind."""
    return [
        float((record.followed[data.size.before :] == CHANGED).mean())
        for record in data.lives[kind]
    ]


@CLAIMS.add(
    "Noise is not interesting.",
    "UDE is large only while learning changes something",
    "White noise as cumulant, shares of phase B:",
)
def _noise(data: Data) -> list[Part]:
    by_ude = [
        (record.drive[data.size.before :, CHANGED] > THRESHOLD).mean()
        for record in data.lives["noise, UDE"]
    ]
    return [
        Part("with surprise about noise", by_ude, UNSURPRISED),
        Part(
            "at its policy with |delta| as drive",
            shares_drawn(data, "noise, |delta|"),
            at_least(0.5),
        ),
    ]


REMARKS = [
    "The shape of a result, on another body: a simulated robot that can rotate, its mean motor current instead of "
    "the battery current, and more friction. Its normal behaviour rotates and stops on the spot, away from walls.",
    "The physics engine is the planar one, which shares friction and motors with PyBullet's.",
    "Tests start from the robot's state, follow the changed policy for 5 s and put the robot back.",
]
