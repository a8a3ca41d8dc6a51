"""Experiment `league`: every update rule that predicts, on the same questions and the same recorded lives.

Each rule learns with its defaults, and with the best settings of its grid, chosen on a life that is
not reported. The paper leaves other gradient-TD rules to future work (section 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from examples.reproduce import TUNING_SEED
from examples.reproduce.checks import Measured, at_least, check
from examples.reproduce.experiment import ExperimentContext, Table, cached
from examples.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from examples.reproduce.lives import LifeSpec, compiled_horde, interface_of, simulate_lives
from examples.reproduce.runner import Job
from examples.reproduce.scores import final_nmsre
from examples.reproduce.stats import Mean, mean_ci
from examples.reproduce.training_data import TrainingData, learn, outcomes
from horde_agent.horde import LearnerConfig
from horde_agent.kernels.rules import names, rule
from horde_agent.learning.rupee import rupee_beta0
from horde_agent.life.observers import sound_demons
from horde_agent.questions import PAPER_LAMBDA, excursions
from horde_agent.record import read
from horde_agent.types import Bools, Floats

TITLE = "Update rules"
RULES = tuple(name for name in names() if not rule(name).FINDS_POLICY)
DEFAULT = "gtd"


class LeagueSize(NamedTuple):
    """The amount of work."""

    life: int  # steps of a reported life
    tuning: int  # steps of the tuning life
    every: int  # distance between two of the 795 questions
    # The same for rules of the plain engine, which takes some hundred times as long per question
    every_plain: int
    tries: int  # grid entries of each rule


SIZES = {
    "paper": LeagueSize(40_000, 15_000, 1, 40, 9),
    "quick": LeagueSize(2_000, 1_000, 40, 40, 2),
}


class Entry(NamedTuple):
    """A rule with some settings; None means its default."""

    rule: str  # its name
    step_size: float | None = None  # as in `LearnerConfig`
    secondary_ratio: float | None = None  # as in `LearnerConfig`
    eta: float | None = None  # the parameter in the place of a step size, for rules that have one

    @property
    def settings(self) -> str:
        """The settings that are not defaults."""
        pairs = zip(self._fields[1:], self[1:], strict=True)
        return (
            ", ".join(f"{name} {value:g}" for name, value in pairs if value is not None)
            or "default"
        )

    def config(self) -> LearnerConfig:
        """Return the learner's options."""
        parameters = {}
        if self.eta is not None:
            parameters = {"eta": self.eta}
        sizes = {"step_size": self.step_size, "secondary_ratio": self.secondary_ratio}
        given: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
        return LearnerConfig.paper(
            algorithm=self.rule, parameters=parameters, vector_mspbe=False, **given
        )

    def every(self, size: LeagueSize) -> int:
        """Return the distance between two of the 795 questions that it learns."""
        if self.config().needs_plain_engine:
            return size.every_plain
        return size.every


def grid(name: str) -> list[Entry]:
    """Return the settings that are tried of a rule, the defaults first: three step sizes, and ratios if it has w."""
    definition = rule(name)
    ratios = [
        None,
        *(
            ratio
            for ratio in (0.1, 1.0)
            if "w" in definition.WEIGHTS and ratio != definition.SECONDARY_RATIO
        ),
    ]
    if definition.IGNORES_STEP_SIZE:
        return [
            Entry(name),
            *(Entry(name, eta=factor * definition.parameters().eta) for factor in (0.3, 3.0)),
        ]
    sizes = [None, 0.3 * definition.STEP_SIZE, 3.0 * definition.STEP_SIZE]
    return [Entry(name, size, ratio) for size in sizes for ratio in ratios]


class LeagueScore(NamedTuple):
    """What an entry learned from one life."""

    # Final two-pass NMSRE of each question, NaN if it was tested fewer than two times, shape (n,)
    nmsre: Floats
    sound: Bools  # whether each demon did not diverge, shape (n,)
    rupee: Floats  # RUPEE of each at the end, shape (n,)
    ms: float  # milliseconds per learning step, features and each demon's prediction included
    megabytes: float  # size of the learner's state

    @property
    def error(self) -> float:
        """Mean over the questions of the NMSRE, at most 1 each; 1 for a diverged demon."""
        tested = ~np.isnan(self.nmsre)
        if tested.any():
            return float(np.where(self.sound, np.minimum(self.nmsre, 1.0), 1.0)[tested].mean())
        return 1.0

    def of_every(self, stride: int) -> LeagueScore:
        """Return the score on one of every `stride` of its questions."""
        return self._replace(
            **{name: getattr(self, name)[::stride] for name in ("nmsre", "sound", "rupee")}
        )


@cached(LeagueScore)
def score(context: ExperimentContext, life: Path, entry: Entry, every: int) -> LeagueScore:
    """Learn one of every `every` questions from a life by an entry."""
    interface = interface_of(context)
    training_data = TrainingData(read(life))
    questions = excursions(interface)[::every]
    config = entry.config()
    horde = compiled_horde(interface, questions, config=config)
    rupee = horde.new_rupee(rupee_beta0(config.step_size, PAPER_LAMBDA))
    learned = learn(training_data, horde, interface, rupee=rupee)
    nmsre = final_nmsre(outcomes(training_data, questions, learned.predictions), horde.n_demons)
    n_bytes = sum(array.nbytes for array in horde.state().values())
    return LeagueScore(
        nmsre, sound_demons(horde), rupee.value(), float(learned.ms.mean()), n_bytes / 1e6
    )


class LeagueScores(NamedTuple):
    """The measurements."""

    # Each rule's scores with its defaults, one per seed, by name
    defaults: dict[str, list[LeagueScore]]
    best: dict[str, list[LeagueScore]]  # the same with its best settings
    chosen: dict[str, Entry]  # the best settings of each rule
    size: LeagueSize  # lengths of the lives

    def gains(self, name: str, scores: list[LeagueScore]) -> list[float]:
        """Return the default rule's error, with its defaults, minus a rule's in each life, on that rule's questions."""
        stride = Entry(name).every(self.size) // Entry(DEFAULT).every(self.size)
        pairs = zip(self.defaults[DEFAULT], scores, strict=True)
        return [of_default.of_every(stride).error - score.error for of_default, score in pairs]


def run(context: ExperimentContext) -> tuple[LeagueScores, dict[str, object]]:
    """Choose each rule's best settings on the tuning life, then score every rule on the others."""
    size = SIZES[context.scale]
    specs = [
        LifeSpec(TUNING_SEED, size.tuning),
        *(LifeSpec(seed, size.life) for seed in context.seeds),
    ]
    recordings = simulate_lives(context, specs)

    def scores(
        entries: Iterable[Entry], seeds: Iterable[int]
    ) -> dict[tuple[Entry, int], LeagueScore]:
        return context.in_parallel(
            {
                (e, s): Job(
                    f"{e.rule} ({e.settings}), life {s}",
                    score,
                    (context, recordings[s], e, e.every(size)),
                )
                for e, s in product(entries, seeds)
            }
        )

    tried = {name: grid(name)[: size.tries] for name in RULES}
    of_tuning = scores([entry for entries in tried.values() for entry in entries], [TUNING_SEED])
    chosen = {
        name: min(tried[name], key=lambda entry: of_tuning[entry, TUNING_SEED].error)
        for name in RULES
    }
    score_table = scores(dict.fromkeys([*map(Entry, RULES), *chosen.values()]), context.seeds)
    defaults, best = (
        {
            name: [score_table[entry, seed] for seed in context.seeds]
            for name, entry in entries.items()
        }
        for entries in ({name: Entry(name) for name in RULES}, chosen)
    )
    return LeagueScores(defaults, best, chosen, size), {
        "steps of a life": size.life,
        "steps of the tuning life": size.tuning,
        "questions": f"one of every {size.every} of the 795; of every {size.every_plain} on the plain engine",
        "settings tried": sum(map(len, tried.values())),
    }


# ---- checks ---------------------------------------------------------------------------------------------------------


def better_rules(data: LeagueScores) -> dict[str, str]:
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


def _clear_gain(gains: list[float], scores: list[LeagueScore]) -> Mean | None:
    """Return the gain if it is positive in every life, with its interval above 0, and no demon diverged."""
    gain = mean_ci(gains)
    is_clear = len(gains) > 1 and min(gains) > 0 and gain.mean - gain.half_width > 0
    if is_clear and all(score.sound.all() for score in scores):
        return gain
    return None


@check(
    claim="Another update rule answers the questions better than the paper's, without divergence.",
    paper="other gradient-TD methods are future work; no experiment",
    source="section 7 (future work)",
    terms=(
        "With its defaults, or with its best settings of another life: a lower error in every "
        "life, the 95 % interval of the gain above 0, and no diverged demon:"
    ),
    limit=at_least(1),
)
def _another_rule_is_better(data: LeagueScores) -> Measured:
    gains_by_rule = better_rules(data)
    sentence = "; ".join(f"{name} by {gain}" for name, gain in gains_by_rule.items()) or "no rule"
    error = mean_ci([score.error for score in data.defaults[DEFAULT]])
    also = f"Mean of the NMSRE, at most 1 each: {DEFAULT} {error}. Better: {sentence}."
    return Measured({"number of such rules": len(gains_by_rule)}, also)


REMARKS = (
    "This is the simulated robot: compare rules with each other, not with the paper's robot.",
    "ms depends on the other jobs that ran at the same time; `horde bench` measures one learner alone.",
)


# ---- figure and tables ----------------------------------------------------------------------------------------------


def pictures(data: LeagueScores) -> dict[str, Picture]:
    """Draw by how much every rule is better than the default one on its questions, one dot per life."""
    score_tables = (data.defaults, data.best)
    order = sorted(
        data.best,
        key=lambda name: max(np.mean(data.gains(name, scores[name])) for scores in score_tables),
    )
    canvas, (axes,) = new_canvas(9.0, 1.0 + 0.3 * len(order))
    for shift, colour, (label, scores) in zip(
        (0.15, -0.15),
        COLOURS,
        {"default settings": data.defaults, "best of the grid": data.best}.items(),
        strict=False,
    ):
        for y, name in enumerate(order):
            of_lives = data.gains(name, scores[name])
            axes.plot(
                of_lives, [y + shift] * len(of_lives), "o", color=colour, label=None if y else label
            )
    axes.axvline(0.0, color="0.5")
    named = [f"{name} ({len(data.best[name][0].nmsre)} questions)" for name in order]
    axes.set_yticks(range(len(order)), named)
    title = (
        f"{DEFAULT}'s error (mean NMSRE, at most 1 each) minus the rule's, on the same questions"
    )
    style_axes(axes, title, legend=True, xlabel="gain: high is good")
    caption = (
        "Gain of every update rule over the default one, one dot per life; the best rule on top."
    )
    return {"league": Picture(canvas, caption)}


def tables(data: LeagueScores) -> list[Table]:
    """Return the league with default and with the best settings, means over the lives."""
    note = (
        "Means over the lives. NMSRE: final, two-pass. Error: mean of the NMSRE, at most 1 each, 1 for a diverged "
        f"demon. The best settings have the least error on a life of {data.size.tuning:,} steps with seed "
        f"{TUNING_SEED}. Gain: {DEFAULT}'s error with its defaults, on the same questions, minus this one. ms: per "
        "step, with a prediction of every demon; MB: state of the learner; both grow with the number of questions."
    )
    defaults = [_row(data, name, "default", data.defaults[name]) for name in data.best]
    best = [_row(data, name, data.chosen[name].settings, data.best[name]) for name in data.best]
    return [
        Table.of("Update rules with their defaults", defaults, note),
        Table.of("Update rules with the best settings of the grid", best, note),
    ]


def _row(
    data: LeagueScores, name: str, settings: str, scores: list[LeagueScore]
) -> dict[str, object]:
    """Return one rule's row; a diverged demon has no NMSRE."""
    nmsre = [score.nmsre[score.sound & ~np.isnan(score.nmsre)] for score in scores]

    def mean_of(statistic: Callable[[Floats], Any]) -> float | None:
        if all(map(len, nmsre)):
            return float(np.mean([statistic(values) for values in nmsre]))
        return None

    return {
        "rule": name,
        "settings": settings,
        "questions": len(scores[0].nmsre),
        "error": mean_ci([score.error for score in scores]),
        "gain": mean_ci(data.gains(name, scores)),
        "median NMSRE": mean_of(np.median),
        "mean NMSRE": mean_of(np.mean),
        "share below 1": mean_of(lambda values: (values < 1).mean()),
        "diverged": sum((~score.sound).sum() for score in scores),
        "median RUPEE": np.mean([np.median(score.rupee) for score in scores]),
        "ms": np.mean([score.ms for score in scores]),
        "MB": np.mean([score.megabytes for score in scores]),
    }
