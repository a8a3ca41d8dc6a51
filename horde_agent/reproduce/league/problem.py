"""The grid of each rule, and the scores of its entries."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.horde import LearnerConfig
from horde_agent.kernels.rules import names, rule
from horde_agent.life.observers import sound_demons
from horde_agent.measures.nmsre import final_nmsre
from horde_agent.measures.online import rupee_beta0
from horde_agent.questions import PAPER_LAMBDA, excursions
from horde_agent.record import read
from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.experiment import ExperimentContext, cached
from horde_agent.reproduce.lives import LifeSpec, compiled_horde, interface_of, simulate_lives
from horde_agent.reproduce.runner import Job
from horde_agent.reproduce.training_data import TrainingData, learn, outcomes
from horde_agent.types import Bools, Floats

TITLE = "Update rules"
RULES = tuple(name for name in names() if not rule(name).FINDS_POLICY)
DEFAULT = "gtd"


class Size(NamedTuple):
    """The amount of work."""

    life: int  # steps of a reported life
    tuning: int  # steps of the tuning life
    every: int  # distance between two of the 795 questions
    # The same for rules of the plain engine, which takes some hundred times as long per question
    every_plain: int
    tries: int  # grid entries of each rule


SIZES = {"paper": Size(40_000, 15_000, 1, 40, 9), "quick": Size(2_000, 1_000, 40, 40, 2)}


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
        return LearnerConfig(
            algorithm=self.rule, parameters=parameters, vector_mspbe=False, **given
        )

    def every(self, size: Size) -> int:
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


class Score(NamedTuple):
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

    def of_every(self, stride: int) -> Score:
        """Return the score on one of every `stride` of its questions."""
        return self._replace(
            **{name: getattr(self, name)[::stride] for name in ("nmsre", "sound", "rupee")}
        )


@cached(Score)
def score(context: ExperimentContext, life: Path, entry: Entry, every: int) -> Score:
    """Learn one of every `every` questions from a life by an entry."""
    interface = interface_of(context)
    lessons = TrainingData(read(life))
    questions = excursions(interface)[::every]
    config = entry.config()
    horde = compiled_horde(interface, questions, config=config)
    rupee = horde.new_rupee(rupee_beta0(config.step_size, PAPER_LAMBDA))
    learned = learn(lessons, horde, interface, rupee=rupee)
    nmsre = final_nmsre(outcomes(lessons, questions, learned.predictions), horde.n_demons)
    n_bytes = sum(array.nbytes for array in horde.state().values())
    return Score(nmsre, sound_demons(horde), rupee.value(), float(learned.ms.mean()), n_bytes / 1e6)


class Data(NamedTuple):
    """The measurements."""

    defaults: dict[str, list[Score]]  # each rule's scores with its defaults, one per seed, by name
    best: dict[str, list[Score]]  # the same with its best settings
    chosen: dict[str, Entry]  # the best settings of each rule
    size: Size  # lengths of the lives

    def gains(self, name: str, scores: list[Score]) -> list[float]:
        """Return the default rule's error, with its defaults, minus a rule's in each life, on that rule's questions."""
        stride = Entry(name).every(self.size) // Entry(DEFAULT).every(self.size)
        pairs = zip(self.defaults[DEFAULT], scores, strict=True)
        return [of_default.of_every(stride).error - score.error for of_default, score in pairs]


def gather(context: ExperimentContext) -> tuple[Data, dict[str, object]]:
    """Choose each rule's best settings on the tuning life, then score every rule on the others."""
    size = SIZES[context.scale]
    specs = [
        LifeSpec(TUNING_SEED, size.tuning),
        *(LifeSpec(seed, size.life) for seed in context.seeds),
    ]
    recordings = simulate_lives(context, specs)

    def scores(entries: Iterable[Entry], seeds: Iterable[int]) -> dict[tuple[Entry, int], Score]:
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
    return Data(defaults, best, chosen, size), {
        "steps of a life": size.life,
        "steps of the tuning life": size.tuning,
        "questions": f"one of every {size.every} of the 795; of every {size.every_plain} on the plain engine",
        "settings tried": sum(map(len, tried.values())),
    }
