"""Experiment `loop`: predictions of the step before as features, as the first figure of the paper draws them.

On the robot: a question that needs memory, with the loop and without. In two small worlds: answers that are known.
Source: White, Modayil & Sutton (2012), section 3 and figure 1; Sutton & Tanner (2005), TD networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from horde_agent.reproduce.feedback import problem
from horde_agent.reproduce.feedback.problem import ALONE, CLOSED, GAMMAS, OPEN, TRUTH, VARIANTS, Outcome, Ring
from horde_agent.reproduce.lives import LifeSpec, quiet, record_lives
from horde_agent.reproduce.parallel import OnProgress
from horde_agent.reproduce.result import Cell, Claim, Result, Table, mean_ci, verdict
from horde_agent.reproduce.study import Job, Study
from horde_agent.types import Floats

NAME = "loop"
STEPS = {"paper": 100_000, "quick": 6_000}
FRESH_FROM = {"paper": 100, "quick": 0}
"""Seed of the first life. Lives 0, 1 and 2 were looked at when the tilings, the scoring and the control were chosen."""

LOOKED_AT = (0, 1, 2)

LARGEST_RING_ERROR, LARGEST_ANSWER_ERROR = 0.01, 0.12


def run(study: Study) -> Result:
    """Do the experiment."""
    from horde_agent.reproduce.feedback.figure import memory_picture, ring_picture

    outcomes, seeds = on_the_robot(study), seeds_of(study)
    ring, composed = study.in_parallel([Job("cycle world", in_the_ring), Job("corridor", in_the_corridor, (0,))])
    folder, first = study.folder(NAME), seeds[0]
    return Result(
        NAME,
        "The loop of figure 1: predictions fed back as features",
        [memory_claim(outcomes), ring_claim(ring), composed_claim(composed)],
        [
            memory_picture({v: outcomes[v][first] for v in VARIANTS}, folder / "memory.png"),
            ring_picture(ring, folder / "ring.png"),
        ],
        [memory_table(outcomes), composed_table(composed)],
        settings={
            "steps of each life": STEPS[study.scale],
            "of these not learned from": f"every third piece of {problem.MINUTE} steps",
            "a prediction fed back": f"{problem.TILINGS['tilings']} tilings of {problem.TILINGS['intervals'][0]}",
            "touch": f"an infrared distance of at least {problem.NEAR:g}",
            "time is counted up to, in seconds": problem.CAP_S,
            "alpha": "0.1 / active features",
            "alpha_w": "0.001 alpha (cycle world: 0.01)",
            "lambda": 0.9,
            "seeds": ", ".join(map(str, seeds)),
        },
        remarks=[
            "Learning rests in every third minute, as in the paper's test excursions, and the loop runs on its own "
            "predictions: no signal shows when the wall was last touched. These minutes are scored in the "
            f"second half of each life, but for their first {problem.CAP_S:g} s, since the loop restarts there.",
            "The 32 tilings of a fed-back prediction were chosen among 8 tilings of 8, 32 of 8, 64 of 8 and 32 of 32 "
            "after a look at the life of seed 0; the scoring and the control after a look at those of seeds 0, 1 and "
            "2. " + _freshness(seeds),
        ],
    )


def seeds_of(study: Study) -> tuple[int, ...]:
    """Return the seeds of this experiment's lives: at the paper's scale such as were not looked at before."""
    return tuple(seed + FRESH_FROM[study.scale] for seed in study.seeds)


def _freshness(seeds: Sequence[int]) -> str:
    if min(seeds) > max(LOOKED_AT):
        return f"Judged here are the lives of seeds {', '.join(map(str, seeds))}, not inspected before."
    return "These lives were inspected before: these verdicts are no test."


def lives(study: Study) -> list[LifeSpec]:
    """Return the lives that the experiment learns from."""
    return [LifeSpec(seed, STEPS[study.scale], "behaviour") for seed in seeds_of(study)]


def on_the_robot(study: Study) -> dict[str, dict[int, Outcome]]:
    """Return each variant's result on each seed's life."""
    seeds, steps = seeds_of(study), STEPS[study.scale]
    lived = record_lives(study, seeds, steps, "behaviour")
    keys = [(variant, seed) for seed in seeds for variant in VARIANTS]
    jobs = [Job(f"{v}, life {s}", problem.learn_memory, (quiet(study), s, lived[s], v, steps)) for v, s in keys]
    found: dict[str, dict[int, Outcome]] = {variant: {} for variant in VARIANTS}
    for (variant, seed), path in zip(keys, study.in_parallel(jobs), strict=True):
        found[variant][seed] = problem.read_outcome(path)
    return found


def in_the_ring(on_progress: OnProgress) -> Ring:
    """Learn in the cycle world with the loop, without it, and with the loop but without a trace."""
    del on_progress  # it takes seconds
    looped, without = problem.learn_ring(problem.FED_BACK), problem.learn_ring(())
    return Ring(looped, without, problem.learn_ring(problem.FED_BACK, lam=0.0))


def in_the_corridor(on_progress: OnProgress, seed: int) -> Floats:
    """Return the answers found in the corridor, shape (5, 2)."""
    del on_progress
    return problem.learn_corridor(np.random.default_rng(seed))


# ---- verdicts -------------------------------------------------------------------------------------------------------


def nmse_by_seed(outcomes: Mapping[int, Outcome], gamma: int) -> Floats:
    """Return the normalised errors of one question, one per seed."""
    return np.array([outcome.nmse[gamma] for outcome in outcomes.values()])


def memory_claim(outcomes: Mapping[str, Mapping[int, Outcome]]) -> Claim:
    """Judge the loop on the robot."""
    gains: list[Floats] = []
    said: list[str] = []
    for k, gamma in enumerate(GAMMAS):
        errors = {variant: nmse_by_seed(outcomes[variant], k) for variant in VARIANTS}
        gains += [errors[ALONE] - errors[CLOSED], errors[OPEN] - errors[CLOSED]]
        gain, of_loop = (mean_ci(found) for found in gains[-2:])
        of_truth = float((errors[ALONE] - errors[TRUTH]).mean())
        closed = f" ({100 * gain.mean / of_truth:.0f} % of what the truth itself gains)" if of_truth > 0 else ""
        said.append(
            f"gamma {gamma:g}: {errors[ALONE].mean():.3f} from the observation alone, {errors[CLOSED].mean():.3f} with "
            f"the loop, a gain of {gain}{closed}; {errors[OPEN].mean():.3f} with the loop open, over which the loop "
            f"gains {of_loop}"
        )
    n_wide = sum(not _is_gain(found) and bool((found > 0).all()) for found in gains)
    return Claim(
        text="Predictions fed back as features give the Horde a memory that the observation is not.",
        source="section 3, figure 1",
        paper="the predictions can be used as input: predictive state information; no experiment",
        measured="Error over variance of the time since the wall was touched. " + "; ".join(said) + ".",
        verdict=verdict([_is_gain(found) for found in gains]),
        rule="For each gamma a gain over the observation alone, and one over the same with the loop open: above 0 for "
        "every seed, and with several seeds its 95 % interval above 0.",
        cause=f"{n_wide} of {len(gains)} gains are above 0 in every life, with an interval that holds 0 all the same."
        if n_wide
        else "",
    )


def _is_gain(gains: Floats) -> bool:
    """Return whether all gains, one per seed, are above 0, and their interval too if there is one."""
    mean = mean_ci(gains)
    return bool((gains > 0).all()) and not mean.mean - mean.half_width <= 0


def ring_claim(ring: Ring) -> Claim:
    """Judge the cycle world."""
    true, least = problem.ring_values(), problem.best_without_memory()
    worst = {name: float(np.abs(found - true).max()) for name, found in ring._asdict().items()}
    without = float(np.sqrt(((ring.without - true) ** 2).mean()))
    return Claim(
        text="Where only the loop can tell the states apart, it learns the exact answers.",
        source="section 3 (after Littman et al., 2002; Sutton & Tanner, 2005)",
        paper="predictive state information; no experiment",
        measured=f"Cycle world of {problem.RING} states: largest error {worst['looped']:.2g} with the loop; "
        f"without it a root mean squared error of {without:.2f}, at least {least:.2f} for whatever sees only the bit. "
        f"With the loop and lambda 0: largest error {worst['without_trace']:.2f}, as TD(0) networks fail there.",
        verdict=verdict([worst["looped"] < LARGEST_RING_ERROR, without >= least]),
        rule=f"Largest error below {LARGEST_RING_ERROR:g} with the loop; without it at least the error that the best "
        "predictor without memory has.",
    )


def composed_claim(found: Floats) -> Claim:
    """Judge the answers found to the compositional questions, shape (5, 2)."""
    true = problem.composed_values()
    errors = np.abs(found - true).max(axis=0)
    return Claim(
        text="A question may be about the prediction of another demon, under another policy.",
        source="section 3",
        paper="learning of compositional predictions, similar to a TD network; no experiment",
        measured=f"Corridor of {problem.N_STATES} states, both learned off-policy: largest error {errors[0]:.3f} "
        f"of the prediction, {errors[1]:.3f} of the one about it, whose answers lie between {true[:, 1].min():.2f} and "
        f"{true[:, 1].max():.2f}.",
        verdict=verdict([bool(error < LARGEST_ANSWER_ERROR) for error in errors]),
        rule=f"Largest error below {LARGEST_ANSWER_ERROR:g}, for both questions; with mistaken policies or cumulants "
        "it is more than 1.",
    )


# ---- tables ---------------------------------------------------------------------------------------------------------


def memory_table(outcomes: Mapping[str, Mapping[int, Outcome]]) -> Table:
    """Return every seed's errors."""
    rows: list[Sequence[Cell]] = []
    for k, gamma in enumerate(GAMMAS):
        for variant in VARIANTS:
            errors = nmse_by_seed(outcomes[variant], k)
            rows.append([f"{gamma:g}", variant, str(mean_ci(errors)), *(float(error) for error in errors)])
    seeds = outcomes[ALONE]
    return Table(
        "Time since the wall was touched: mean squared error over variance, held out",
        ("gamma", "coded beside the observation", "mean", *(f"seed {seed}" for seed in seeds)),
        rows,
        "The truth itself is the time since the touch, known one step late: what a perfect memory would have. A "
        "prediction fed back is also a new feature of the observation of one step before; with the loop open it is "
        "that alone, since demons that see only the observation make it.",
    )


def composed_table(found: Floats) -> Table:
    """Return a table of the corridor's learned and known answers, shape (5, 2)."""
    true = problem.composed_values()
    rows = [[s, *(float(x) for pair in zip(true[s], found[s], strict=True) for x in pair)] for s in range(len(true))]
    return Table(
        "Compositional questions in a corridor of five states",
        ("state", "then: known", "then: learned", "first: known", "first: learned"),
        rows,
        '"then": discounted time at the left wall, going mostly left (gamma 0.5). "first": the discounted sum of what '
        '"then" predicts along a walk that goes mostly right (gamma 0.8).',
    )
