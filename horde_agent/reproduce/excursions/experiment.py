"""The paper's first experiment: 795 questions about five policies, learned off-policy and tested by excursions.

Each seed's life is simulated once and learned from again under every rule. Beside the paper's own parameters stand two
rules for w, three for the trace, larger alpha and smaller alpha_w, and the best off-line linear predictors.
Source: White, Modayil & Sutton (2012), section 4.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from horde_agent.learning.rules import TRACE_RULES, W_RULES
from horde_agent.questions import excursions
from horde_agent.record import Phase, read
from horde_agent.reproduce.excursions.claims import claims
from horde_agent.reproduce.excursions.data import Data, Time
from horde_agent.reproduce.excursions.offline import Offline, offline
from horde_agent.reproduce.excursions.tables import tables
from horde_agent.reproduce.lessons import Lessons, OnProgress
from horde_agent.reproduce.lives import Wanted, interface_of, quiet, streams
from horde_agent.reproduce.study import Job, Result, Study
from horde_agent.reproduce.variants import Task, Variant, learn_all, read_lesson

STEPS = {"paper": 261_681, "quick": 6_000}
PAPER = Variant()
RULES = [Variant(trace_rule, w_rule) for trace_rule in TRACE_RULES for w_rule in W_RULES]
LARGER_STEPS = [Variant(step_size=size) for size in (0.2, 0.5, 1.0)]
SMALLER_RATIOS = [Variant(secondary_ratio=ratio) for ratio in (1e-4, 0.0)]


def run(study: Study) -> Result:
    """Do the experiment."""
    data = gather(study)
    # matplotlib is loaded here, after the work, and only in the process that draws.
    from horde_agent.reproduce.excursions.pictures import pictures

    return Result(
        "excursions",
        "795 predictions about five policies, tested by excursions",
        claims(data),
        pictures(data, study.folder("excursions")),
        tables(data),
        settings={
            "steps of each life": STEPS[study.scale],
            "questions": len(data.questions),
            "alpha": f"{PAPER.step_size:g} / {data.interface.coder.n_active}",
            "alpha_w": f"{PAPER.secondary_ratio:g} alpha",
            "lambda": 0.9,
            "trace rule, w rule": f"{PAPER.trace_rule}, {PAPER.w_rule}",
            "seeds": study.seed_list,
            "excursions tested, by seed": ", ".join(str(time.n_tests) for time in data.times.values()),
        },
        remarks=remarks(),
    )


def remarks() -> list[str]:
    """Return what a reader of the figures must know."""
    return [
        "A life does not depend on what is learned from it, so every rule learns from the same lives.",
        "NMSRE is the trace of squared errors (10 excursions) over the variance of all returns of the question; "
        "questions set aside, because their weights passed every bound that an answer can need, are left out of means "
        "and medians and counted apart.",
        "A return has 50 terms, all under the target policy; the paper's sum has 51, its excursions have 50 steps.",
    ]


def lives(study: Study) -> list[Wanted]:
    """Return which lives the experiment learns from."""
    return [Wanted(seed, STEPS[study.scale]) for seed in study.seeds]


def gather(study: Study) -> Data:
    """Live, and learn under every variant; what is kept from a reproduction broken off is not done again."""
    seeds, first = study.seeds, study.seeds[0]
    lived = streams(study, seeds, STEPS[study.scale])
    pairs = [(variant, seed) for variant in RULES for seed in seeds]
    pairs += [(v, first) for v in LARGER_STEPS + SMALLER_RATIOS]
    paths = learn_all(study, [Task(seed, lived[seed], variant) for variant, seed in pairs])
    [scores] = study.in_parallel([Job("off-line solutions", _offline, (quiet(study), first, lived[first]))])

    interface = interface_of(study)
    questions = excursions(interface)
    data = Data(interface, questions, {}, {}, read_offline(scores), PAPER, RULES, LARGER_STEPS, SMALLER_RATIOS)
    for (variant, seed), path in zip(pairs, paths, strict=True):
        data.lessons.setdefault(variant, {})[seed] = read_lesson(path, questions)
    for seed, life in lived.items():
        data.times[seed] = time_of(life)
    return data


def time_of(path: Path) -> Time:
    """Return what a life's time was spent on."""
    stream = read(path)
    lessons, phase = Lessons(stream), stream.rows["phase"]
    learned = lessons.before[lessons.does == 2]
    return Time(
        n_steps=stream.n_steps,
        n_updates=int(lessons.n_learned[-1]),
        n_tests=len(lessons.tests.row),
        in_excursions=float((phase == Phase.EXCURSION).sum() / stream.n_steps),
        in_drives=float((phase == Phase.CENTRE).sum() / stream.n_steps),
        updates_by_action=np.bincount(stream.rows["action"][learned]),
    )


def _offline(on_progress: OnProgress, study: Study, seed: int, life: Path) -> str:
    """Find the best off-line predictors of one life and return the path of their scores."""

    def make(path: Path) -> None:
        interface = interface_of(study)
        rng = np.random.default_rng([seed, 2])
        found = offline(Lessons(read(life)), excursions(interface), interface, rng, on_progress)
        with path.open("wb") as file:
            np.savez(file, **found._asdict())

    return str(study.kept(f"offline-{seed}.npz", make, seed=seed, life=life.name))


def read_offline(path: str) -> Offline:
    """Read what was kept of the off-line predictors."""
    with np.load(path) as file:
        return Offline(**{name: file[name] for name in Offline._fields})
