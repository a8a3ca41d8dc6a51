"""Claims about memory by traces, and by predictions fed back."""

from __future__ import annotations

from horde_agent.reproduce.claims import Claims, Finding, Part, at_least, at_most, below, parts
from horde_agent.reproduce.conditioning import problem
from horde_agent.reproduce.conditioning.problem import LONG, MICRO, SHORT, TRACES, Data
from horde_agent.reproduce.stats import format_means
from horde_agent.types import Floats

CLAIMS = Claims("Rafiee et al. (2023)")


def _by_gap(data: Data, *names: str, ending: str = "") -> dict[str, Floats]:
    """Return the errors by name and interval, one per seed."""
    return {f"{name}, m {m}": data.gap[m][name + ending] for name in names for m in data.gap}


@CLAIMS.add(
    "The present stimuli alone cannot bridge the gap between CS and US.",
    "representations without memory fail; no figure could be read",
    "Error over variance:",
)
def _presence(data: Data) -> list[Part]:
    return parts(_by_gap(data, problem.PRESENCE), at_least(0.8))


@CLAIMS.add(
    "Hand-made traces bridge it.", "hand-made traces are the baselines", "Error over variance:"
)
def _traces(data: Data) -> list[Part]:
    return parts(_by_gap(data, MICRO, TRACES), at_most(0.35))


@CLAIMS.add(
    "A short memory fails on long gaps.", "the shape only", "With the traces .5 and .8 alone:"
)
def _short_traces(data: Data) -> Finding:
    errors = _by_gap(data, problem.SHORT_TRACES)
    short, long = (found.mean() for found in errors.values())
    ratio = Part(f"mean error at m {LONG} over m {SHORT}", long / short, at_least(1.5))
    return Finding([ratio], f"{format_means(errors)}.")


@CLAIMS.add(
    "Predictions fed back are a memory.",
    "nothing: the authors' representations use no predictions",
    f"Error at m {SHORT}:",
    source="a question of ours",
)
def _loop(data: Data) -> Finding:
    gaps = data.gap[SHORT]
    alone = data.gap[SHORT][problem.ALONE]
    is_less = gaps[problem.CLOSED] <= 0.6 * alone
    controls = {
        f"mean of {name} over {problem.ALONE}": gaps[name].mean() / alone.mean()
        for name in (problem.OPEN, problem.FOREIGN)
    }
    share = f"share of seeds with {problem.CLOSED} at most .6 of {problem.ALONE}"
    return Finding(
        [Part(share, is_less.mean(), at_least(0.8), ".0%"), *parts(controls, at_least(0.85))],
        f"{format_means(_by_gap(data, *problem.LOOPS))}.",
    )


@CLAIMS.add(
    "Distractors cost little with traces.",
    "the shape only",
    f"Mean error with {problem.N_DISTRACTORS} distractors over that without:",
)
def _distractors(data: Data) -> list[Part]:
    without = _by_gap(data, MICRO, TRACES)
    having = _by_gap(data, MICRO, TRACES, ending=problem.WITH_DISTRACTORS)
    return parts({name: having[name].mean() / without[name].mean() for name in without}, below(1.5))


REMARKS = [
    "A simulated stream, as in the paper. The interval between CS and US is m on average, and varies by a third.",
    "Weights are fixed before scoring, since weights that change are a memory of their own.",
]
