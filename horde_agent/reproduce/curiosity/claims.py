"""Experiment `curiosity`: surprise about a changed robot drives the behaviour.

Source: White, Modayil & Sutton (2014). Only the abstract could be read: a claim is the shape of a result.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from horde_agent.reproduce.curiosity import problem
from horde_agent.reproduce.curiosity.problem import CHANGED, MINUTE, OTHER, THRESHOLD, Data, Record
from horde_agent.reproduce.experiment import Claims, Experiment, Finding, finding_of_means
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.result import Cell, Figure, Table, join, mean_ci
from horde_agent.reproduce.study import Study
from horde_agent.types import Bools, Floats

MOST_SURPRISED, LEAST_SHARE, MOST_OTHERS = 0.05, 0.9, 0.2
LEAST_FOLLOWED, MOST_RATIO, LEAST_DRAWN, RECOVERED = 0.8, 0.5, 0.5, 1.5
WITHIN = 10 * MINUTE


class Reaction(NamedTuple):
    """How a robot reacts to the change; steps are counted from the change on."""

    before: float  # share of the 10 minutes before the change with surprise about any question
    crossed: Bools  # whether each question is surprised within 60 s of the first use of the changed policy, shape (2,)
    settled: int  # step from which on the changed question is without surprise for a minute; the end if there is none
    followed: float  # share of the steps with surprise about it, until then, that take its policy's action
    later: Floats  # share of the steps after that with surprise about each question, shape (2,)


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


CLAIMS = Claims("White, Modayil & Sutton (2014)")


@CLAIMS.add(
    "Before the change the robot is not surprised.",
    "the shape only; another robot, another sensor",
    f"UDE above the threshold in at most {MOST_SURPRISED:.0%} of the last 10 minutes of phase A.",
)
def _unsurprised(data: Data) -> Finding:
    shares = {"share of the 10 minutes before the change with surprise": [found.before for found in reactions(data)]}
    return finding_of_means(shares, lambda share: share <= MOST_SURPRISED)


@CLAIMS.add(
    "The change surprises it, and only about what changed.",
    "UDE rises after the physical change",
    f"Within 60 s of the policy's first use the UDE of the changed question crosses the threshold in at least "
    f"{LEAST_SHARE:.0%} of the seeds, that of the other one in at most {MOST_OTHERS:.0%}.",
)
def _surprised(data: Data) -> Finding:
    changed, other = np.mean([found.crossed for found in reactions(data)], axis=0)
    return Finding(
        f"Surprised within 60 s of its first use: the changed question in {changed:.0%} of the seeds, the other one in "
        f"{other:.0%}.",
        [bool(changed >= LEAST_SHARE), bool(other <= MOST_OTHERS)],
    )


@CLAIMS.add(
    "It acts on its surprise, and stops.",
    "it switches to that policy until it is no longer surprised, then continues as before",
    f"At least {LEAST_FOLLOWED:.0%} of the surprised time on that policy; without surprise for a minute within 10 "
    f"minutes in at least {LEAST_SHARE:.0%} of the seeds; afterwards at most {MOST_SURPRISED:.0%} of the time "
    "surprised, about the worse question.",
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


@CLAIMS.add(
    "It learns faster for it.",
    "no comparison is known",
    f"Steps until the error is at most {RECOVERED:g} times that before the change: median ratio to the twin at "
    f"most {MOST_RATIO:g}.",
    source="a test of ours",
)
def _learns_faster(data: Data) -> Finding:
    steps = {
        kind: np.array([recovery(record, data.size.before) for record in data.lives[kind]])
        for kind in ("curious", "twin")
    }
    ratio = float(np.median(steps["curious"] / steps["twin"]))
    said = "; ".join(f"{kind} {np.median(found):.0f}" for kind, found in steps.items())
    return Finding(f"Median steps until the error is back: {said}; median ratio {ratio:.2f}.", [ratio <= MOST_RATIO])


@CLAIMS.add(
    "Noise is not interesting.",
    "UDE is large only while learning changes something",
    f"White noise as cumulant: surprised in at most {MOST_SURPRISED:.0%} of phase B; with |delta| as drive at its "
    f"policy for at least {LEAST_DRAWN:.0%}.",
)
def _noise(data: Data) -> Finding:
    after = data.size.before
    by_ude = [float((record.drive[after:, CHANGED] > THRESHOLD).mean()) for record in data.lives["noise, UDE"]]
    drawn = [float((record.followed[after:] == CHANGED).mean()) for record in data.lives["noise, |delta|"]]
    surprised, time_there = mean_ci(by_ude), mean_ci(drawn)
    return Finding(
        f"Share of phase B surprised about noise {surprised}; at its policy with |delta| as drive {time_there}.",
        [surprised.mean <= MOST_SURPRISED, time_there.mean >= LEAST_DRAWN],
    )


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw surprise around the change, the errors of curious robots and their twins, and the pull of noise."""
    canvas, (left, middle, right) = new_canvas(13.0, 3.8, 3, width_ratios=[1.4, 1.2, 0.9])
    _draw_surprise(left, data)
    _draw_errors(middle, data)
    _draw_noise(right, data)
    return [
        save(
            canvas,
            folder / "curiosity.png",
            "Left: UDE of both questions in the curious life of the first seed; the friction of clockwise rotation "
            "rises at 0, and the robot follows that policy in the shaded time. Middle: error of the changed question "
            "in tests, median over the seeds. Right: share of phase B at the policy of a question about noise, one dot "
            "per seed.",
        )
    ]


def _draw_surprise(axes: Axes, data: Data) -> None:
    record, change_at = data.lives["curious"][0], data.size.before
    shown = slice(max(change_at - 3 * MINUTE, 0), change_at + 7 * MINUTE)
    t = (np.arange(len(record.drive))[shown] - change_at) / MINUTE
    for question, name, colour in ((OTHER, "counter-clockwise", COLOURS[0]), (CHANGED, "clockwise", COLOURS[1])):
        axes.plot(t, record.drive[shown, question], color=colour, linewidth=1.2, label=name)
    axes.axhline(THRESHOLD, color="0.4", linewidth=0.9, linestyle="--", label="threshold")
    is_followed = record.followed[shown] == CHANGED
    axes.fill_between(t, 0, 1, where=is_followed, transform=axes.get_xaxis_transform(), color=COLOURS[1], alpha=0.12)
    style_axes(axes, "surprise", legend=True, xlabel="minutes since the change", ylabel="UDE")


def _draw_errors(axes: Axes, data: Data) -> None:
    for kind, colour in (("twin", COLOURS[0]), ("curious", COLOURS[1])):
        records = data.lives[kind]  # type: ignore[index]
        t = (records[0].tested - data.size.before) / MINUTE
        error, is_shown = np.median([record.error for record in records], axis=0), (t >= -1) & (t < 4)
        axes.plot(t[is_shown], error[is_shown], color=colour, linewidth=1.3, label=kind)
    style_axes(axes, "error of the changed question", legend=True, xlabel="minutes since the change", yscale="log")


def _draw_noise(axes: Axes, data: Data) -> None:
    for x, kind in enumerate(("noise, UDE", "noise, |delta|")):
        shares = [float((r.followed[data.size.before :] == CHANGED).mean()) for r in data.lives[kind]]  # type: ignore[index]
        axes.plot(np.full(len(shares), x), shares, "o", color=COLOURS[2], alpha=0.6)
    axes.set_xticks([0, 1], ["by UDE", "by |delta|"])
    style_axes(axes, "time spent on noise", ylabel="share of phase B", ylim=(-0.03, 1.03), xlim=(-0.5, 1.5))


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


REMARKS = [
    "The shape of a result, on another body: a simulated robot that can rotate, its mean motor current instead of "
    "the battery current, and more friction. Its normal behaviour rotates and stops on the spot, away from walls.",
    "Physics is that of the planar simulator, which shares friction and motors with PyBullet's.",
    "Tests start from the robot's state, follow the changed policy for 5 s and put the robot back.",
]
TITLE = "Surprise and curiosity: UDE drives the behaviour"
EXPERIMENT = Experiment("curiosity", TITLE, problem.gather, CLAIMS, pictures, tables, settings, REMARKS)
