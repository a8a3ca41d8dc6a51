"""Claim that another rule is better than the paper's."""

from __future__ import annotations

from horde_agent.reproduce.claims import Claims, Finding, Part, at_least
from horde_agent.reproduce.league.problem import DEFAULT, Data, Score
from horde_agent.reproduce.stats import Mean, mean_ci


def better_rules(data: Data) -> dict[str, str]:
    """Return the rules that beat the default one in every life without divergence, and by how much with which settings.

    Both a rule's defaults and its best settings are judged: neither was chosen on these lives.
    """
    gains_by_rule = {}
    for name in data.best:
        judged = {"default": data.defaults[name], data.chosen[name].settings: data.best[name]}
        gains = {
            settings: _clear_gain(data.gains(name, scores), scores)
            for settings, scores in judged.items()
        }
        sentences = [f"{gain} ({settings})" for settings, gain in gains.items() if gain]
        if sentences:
            gains_by_rule[name] = (
                f"{' and '.join(sentences)} on {len(data.best[name][0].nmsre)} questions"
            )
    return gains_by_rule


def _clear_gain(gains: list[float], scores: list[Score]) -> Mean | None:
    """Return the gain if it is positive in every life, with its interval above 0, and no demon diverged."""
    gain = mean_ci(gains)
    is_clear = len(gains) > 1 and min(gains) > 0 and gain.mean - gain.half_width > 0
    if is_clear and all(score.sound.all() for score in scores):
        return gain
    return None


CLAIMS = Claims("section 7 (future work)")


@CLAIMS.add(
    "Another update rule answers the questions better than the paper's, without divergence.",
    "other gradient-TD methods are future work; no experiment",
    "With its defaults, or with its best settings of another life: a lower error in every life, the 95 % interval "
    "of the gain above 0, and no diverged demon:",
)
def _better(data: Data) -> Finding:
    gains_by_rule = better_rules(data)
    sentence = "; ".join(f"{name} by {gain}" for name, gain in gains_by_rule.items()) or "no rule"
    error = mean_ci([score.error for score in data.defaults[DEFAULT]])
    also = f"Mean of the NMSRE, at most 1 each: {DEFAULT} {error}. Better: {sentence}."
    return Finding([Part("number of such rules", len(gains_by_rule), at_least(1))], also)


REMARKS = (
    "This is the simulated robot: compare rules with each other, not with the paper's robot.",
    "ms depends on the other jobs that ran at the same time; `horde bench` measures one learner alone.",
)
