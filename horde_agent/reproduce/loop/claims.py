"""What the loop gains, on the robot and in the small worlds."""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.claims import Claims, Finding, Part, above, at_least, below, parts
from horde_agent.reproduce.loop.problem import (
    ALONE,
    CAP_S,
    CLOSED,
    GAMMAS,
    OPEN,
    TRUTH,
    VARIANTS,
    Data,
)
from horde_agent.reproduce.loop.worlds import (
    N_STATES,
    RING,
    best_without_memory,
    composed_values,
    ring_values,
)
from horde_agent.reproduce.stats import mean_ci

CLAIMS = Claims("section 3, figure 1")


@CLAIMS.add(
    "Predictions fed back as features give the Horde a memory that the observation is not.",
    "the predictions can be used as input: predictive state information; no experiment",
    "Least is the smallest gain of all seeds, or the lower end of the 95 % interval of their mean, whichever is less:",
)
def _memory(data: Data) -> Finding:
    least = {}
    sentences = []
    n_wide = 0
    for k, gamma in enumerate(GAMMAS):
        errors = {variant: data.nmse(variant, k) for variant in VARIANTS}
        for variant in (ALONE, OPEN):
            gains = errors[variant] - errors[CLOSED]
            gain = mean_ci(gains)
            lower_end = gain.mean - gain.half_width
            least[f"least gain over {variant}, gamma {gamma:g}"] = np.nanmin(
                [gains.min(), lower_end]
            )
            sentences.append(f"gain over {variant} {gain}")
            n_wide += bool(gains.min() > 0 >= lower_end)
        of_truth = (errors[ALONE] - errors[TRUTH]).mean()
        sentences += [f"{variant} {error.mean():.3f}" for variant, error in errors.items()]
        sentences[-1] += f" at gamma {gamma:g}" + (
            f" (the loop has {(errors[ALONE] - errors[CLOSED]).mean() / of_truth:.0%} of its gain)"
            if of_truth > 0
            else ""
        )
    return Finding(
        parts(least, above(0.0)),
        f"Error over variance of the time since the wall was touched: {'; '.join(sentences)}.",
        f"{n_wide} of {len(least)} gains are above 0 in every life, with an interval that holds 0 all the same."
        if n_wide
        else "",
    )


@CLAIMS.add(
    "Where only the loop can tell the states apart, it learns the exact answers.",
    "predictive state information; no experiment",
    "Without the loop no error is smaller than that of the best predictor without memory:",
    source="section 3 (after Littman et al., 2002; Sutton & Tanner, 2005)",
)
def _cycle_world(data: Data) -> Finding:
    true = ring_values()
    least = best_without_memory()
    worst = {name: float(np.abs(found - true).max()) for name, found in data.ring._asdict().items()}
    without = float(np.sqrt(((data.ring.without - true) ** 2).mean()))
    return Finding(
        [
            Part(
                f"largest error with the loop in the cycle world of {RING} states",
                worst["looped"],
                below(0.01),
            ),
            Part("root mean squared error without it", without, at_least(least)),
        ],
        f"With the loop and lambda 0: largest error {worst['without_trace']:.2f}, as TD(0) networks fail there.",
    )


@CLAIMS.add(
    "A question may be about the prediction of another demon, under another policy.",
    "learning of compositional predictions, similar to a TD network; no experiment",
    f"In a corridor of {N_STATES} states, both learned off-policy; with mistaken policies or cumulants more than 1:",
    source="section 3",
)
def _composed(data: Data) -> Finding:
    true = composed_values()
    prediction, about_it = np.abs(data.composed - true).max(axis=0)
    errors = {
        "largest error of the prediction": prediction,
        "largest error of the one about it": about_it,
    }
    return Finding(
        parts(errors, below(0.12)),
        f"Answers of the latter lie between {true[:, 1].min():.2f} and {true[:, 1].max():.2f}.",
    )


REMARKS = [
    "Learning rests in every third minute, as in the paper's test excursions, and the loop runs on its own "
    "predictions: no signal shows when the wall was last touched. These minutes are scored in the "
    f"second half of each life, but for their first {CAP_S:g} s, since the loop restarts there.",
    "The 32 tilings of a fed-back prediction were chosen among 8 tilings of 8, 32 of 8, 64 of 8 and 32 of 32 "
    "after a look at the life of seed 0; the scoring and the control after a look at those of seeds 0, 1 and "
    "2. Lives at the paper's scale have seeds from 100 on; others were inspected, and their verdicts are no test.",
]
