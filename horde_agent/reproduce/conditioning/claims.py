"""Experiment `conditioning`: the US after a gap, from the present, from hand-made traces, from predictions fed back.

Source: Rafiee et al. (2023). Published errors could not be read: a claim is the shape of a result.
"""

from __future__ import annotations

from horde_agent.reproduce.conditioning import problem
from horde_agent.reproduce.conditioning.problem import LONG, LOOPS, MICRO, REPRESENTATIONS, SHORT, TRACES, Data
from horde_agent.reproduce.experiment import ClaimRule, Experiment, Finding, finding_of_means
from horde_agent.reproduce.result import Cell, Table, join, mean_ci
from horde_agent.reproduce.study import Study
from horde_agent.types import Floats

LEAST_PRESENCE, MOST_TRACES, LEAST_RATIO = 0.8, 0.35, 1.5
MOST_CLOSED, LEAST_SHARE, LEAST_CONTROL = 0.6, 0.8, 0.85
MOST_DISTRACTED = 1.5


def _presence(data: Data) -> Finding:
    return finding_of_means(_by_gap(data, problem.PRESENCE), lambda error: error >= LEAST_PRESENCE)


def _traces(data: Data) -> Finding:
    return finding_of_means(_by_gap(data, MICRO, TRACES), lambda error: error <= MOST_TRACES)


def _short_traces(data: Data) -> Finding:
    errors = _by_gap(data, problem.SHORT_TRACES)
    short, long = (found.mean() for found in errors.values())
    said = "; ".join(f"{name} {mean_ci(found)}" for name, found in errors.items())
    return Finding(f"{said}; ratio {long / short:.2f}.", [bool(long / short >= LEAST_RATIO)])


def _loop(data: Data) -> Finding:
    found, alone = data.gap[SHORT], data.gap[SHORT][problem.ALONE].mean()
    n = int((found[problem.CLOSED] <= MOST_CLOSED * found[problem.ALONE]).sum())
    controls = [float(found[name].mean() / alone) for name in (problem.OPEN, problem.FOREIGN)]
    said = "; ".join(f"{name} {mean_ci(errors)}" for name, errors in _by_gap(data, *LOOPS).items())
    return Finding(
        f"{said} (m {LONG} is not judged). The loop at most {MOST_CLOSED:g} times the presence: {n} of "
        f"{len(data.seeds)} seeds; open and foreign relative to it: {join(controls, '.2f')}.",
        [n >= LEAST_SHARE * len(data.seeds), *(control >= LEAST_CONTROL for control in controls)],
    )


def _distractors(data: Data) -> Finding:
    without = _by_gap(data, MICRO, TRACES)
    having = _by_gap(data, MICRO, TRACES, ending=problem.WITH_DISTRACTORS)
    ratios = {name: having[name].mean() / without[name].mean() for name in without}
    return finding_of_means(ratios, lambda ratio: ratio < MOST_DISTRACTED, "Error with distractors over that without: ")


def _by_gap(data: Data, *names: str, ending: str = "") -> dict[str, Floats]:
    """Return the errors by name and interval, one per seed."""
    return {f"{name}, m {m}:": data.gap[m][name + ending] for name in names for m in data.gap}


_PAPER = "Rafiee et al. (2023)"
RULES = [
    ClaimRule(
        "The present stimuli alone cannot bridge the gap between CS and US.",
        _PAPER,
        "representations without memory fail; no figure could be read",
        f"Mean error over variance at least {LEAST_PRESENCE:g} for m {SHORT} and {LONG}.",
        _presence,
    ),
    ClaimRule(
        "Hand-made traces bridge it.",
        _PAPER,
        "hand-made traces are the baselines",
        f"Microstimuli and onset traces: mean error over variance at most {MOST_TRACES:g} for m {SHORT} and {LONG}.",
        _traces,
    ),
    ClaimRule(
        "A short memory fails on long gaps.",
        _PAPER,
        "the shape only",
        f"With the traces .5 and .8 alone, the mean error at m {LONG} is at least {LEAST_RATIO:g} times that at m "
        f"{SHORT}.",
        _short_traces,
    ),
    ClaimRule(
        "Predictions fed back are a memory.",
        "a question of ours",
        "nothing: the authors' representations use no predictions",
        f"At m {SHORT} the loop's error is at most {MOST_CLOSED:g} times that of the presence in {LEAST_SHARE:.0%} of "
        f"the seeds; both controls have at least {LEAST_CONTROL:g} times that of the presence in the mean.",
        _loop,
    ),
    ClaimRule(
        "Distractors cost little with traces.",
        _PAPER,
        "the shape only",
        f"With {problem.N_DISTRACTORS} distractors, the mean error of microstimuli and of onset traces is less than "
        f"{MOST_DISTRACTED:g} times that without, for m {SHORT} and {LONG}.",
        _distractors,
    ),
]


def tables(data: Data) -> list[Table]:
    """Return the errors of all representations in trace conditioning and in noisy patterning."""
    kinds = {
        name: "constant steps (the Horde's)" if name in LOOPS else "Adam (the authors')" for name in data.gap[SHORT]
    }
    rows = [[name, kind, *(str(mean_ci(data.gap[m][name])) for m in data.gap)] for name, kind in kinds.items()]
    note = (
        "Mean squared error over the variance of the return, on a fresh stream with fixed weights; means over the "
        "seeds with 95 % intervals. Loop open: predictions of demons that see only the stimuli."
    )
    return [
        Table(
            "Trace conditioning: error over variance",
            ["features", "TD(.9) with", *(f"m {m}" for m in data.gap)],
            rows,
            note,
        ),
        Table(
            "Noisy patterning: error over variance",
            ["features", "error"],
            [[name, str(mean_ci(found))] for name, found in data.patterning.items()],
            "Four CS, two patterns (sizes of ours). Not judged: a linear prediction from single stimuli, present or "
            "past, cannot tell a pattern from its parts.",
        ),
    ]


def settings(_study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the experiment."""
    return {
        "seeds": join(data.seeds),
        "step sizes tried on seeds": join(problem.TUNED_ON),
        "step sizes": "; ".join(
            [f"{name}: Adam, {of.step_size:g}" for name, of in REPRESENTATIONS.items()]
            + [f"{name}: {step:g} / active tiles" for name, step in problem.STEP_SIZE.items()]
        ),
        "steps learned from": data.size.learned,
        "steps scored": data.size.scored,
        "lambda": problem.LAM,
        "gamma": "1 - 1/m; noisy patterning .75",
        "a prediction fed back": "8 tilings of 8",
        "fed back": f"US and CS at gamma {join(problem.GAMMAS, '.3g')}",
    }


EXPERIMENT = Experiment(
    "conditioning",
    "Classical conditioning: memory by traces and by predictions fed back",
    problem.gather,
    RULES,
    tables,
    settings,
    remarks=[
        "A simulated stream, as in the paper. The interval between CS and US is m on average, and varies by a third.",
        "Weights are fixed before scoring, since weights that change are a memory of their own.",
    ],
)
