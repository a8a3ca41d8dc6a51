"""The paper's first two experiments: each claim at both sides of its rule, by made-up measurements; the changes.

If a rule says "in every life", one life of several breaks it while their mean does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from examples.reproduce import excursions, reset
from examples.reproduce.checks import CheckResult, judge
from examples.reproduce.excursions import ExcursionsResults, LearnerVariant, LifeSummary
from examples.reproduce.offline import OfflineScores
from examples.reproduce.reset import MeasuredLife, ResetResults, agreement
from examples.reproduce.training_data import TrainingData
from horde_agent.interface import Interface
from horde_agent.questions import excursions as family
from horde_agent.record import read
from tests.agent.doubles import ToyBody
from tests.agent.reproducing import LitToy, letters, record_life, toy_context

Floats = NDArray[np.float64]

TOY = Interface.of(ToyBody())
QUESTIONS = family(TOY, (0.0, 0.8))
N = len(QUESTIONS)  # 3 policies x 2 gammas x 3 channels = 18
UNEVEN = [
    *QUESTIONS[:12],
    replace(QUESTIONS[12], target_policy=QUESTIONS[6].target_policy),
    *QUESTIONS[13:],
]
FALLING = np.repeat([1.0, 0.8, 0.5, 0.4, 0.3], 4)


def claim_of(found: list[CheckResult], text: str) -> CheckResult:
    """Return the one claim with a text that starts with `text`."""
    (claim,) = [claim for claim in found if claim.text.startswith(text)]
    return claim


# ---- the first experiment --------------------------------------------------------------------------------------------


@dataclass
class GivenResult:
    """A result with given numbers, in the order of the questions."""

    nmsre: Floats = field(default_factory=lambda: np.linspace(0.1, 0.7, N))
    sound: NDArray[np.bool_] = field(default_factory=lambda: np.ones(N, dtype=bool))
    curve: Floats = field(default_factory=lambda: FALLING)
    max_trace: float = 10.0
    ms_per_update: float = 0.1

    @property
    def n_diverged(self) -> int:
        return int((~self.sound).sum())

    @property
    def variance(self) -> Floats:
        return np.arange(1.0, N + 1)

    def curves(self) -> Floats:
        return np.tile(self.curve[:, None], (1, int(self.sound.sum())))


def aside(n: int) -> GivenResult:
    """Return a result with n questions set aside, from the last one on, at gamma .8."""
    sound = np.arange(N) < N - n
    return GivenResult(sound=sound, nmsre=np.where(sound, 0.5, np.nan))


def scored(nmsre: float) -> GivenResult:
    """Return a result with the same NMSRE for every question."""
    return GivenResult(nmsre=np.full(N, nmsre))


def time(
    in_excursions: float = 0.42, in_drives: float = 0.16, actions: Sequence[int] = (400, 300, 300)
) -> LifeSummary:
    return LifeSummary(261_681, 1_000, 50, in_excursions, in_drives, np.array(actions))


def data(
    *results: GivenResult,
    times: Sequence[LifeSummary] = (),
    others: dict[LearnerVariant, list[GivenResult]] | None = None,
    questions: Any = QUESTIONS,
) -> ExcursionsResults:
    """Return data: results of the paper's variant, one a life; of each other one those given, or one."""
    main = list(results) or [GivenResult(), GivenResult(), GivenResult()]
    variants = [*excursions.RULES, *excursions.LARGER_STEPS, *excursions.SMALLER_RATIOS]
    found: dict[LearnerVariant, list[GivenResult]] = {v: [GivenResult()] for v in variants} | (
        others or {}
    )
    found[excursions.PAPER] = main
    nothing = np.full(N, 0.5)
    results: Any = {v: dict(enumerate(each)) for v, each in found.items()}
    lives = dict(enumerate(times or [time()] * len(main)))
    return ExcursionsResults(
        TOY,
        questions,
        results,
        lives,
        OfflineScores(nothing, nothing, nothing, np.zeros(50, dtype=bool)),
    )


def lost(variants: Sequence[LearnerVariant], n: int = 2) -> ExcursionsResults:
    """Return data in which some variants have questions set aside."""
    return data(others={v: [aside(n)] for v in variants})


PLAIN = LearnerVariant("plain")
GOOD_RESULT = GivenResult()
RISING = GivenResult(curve=FALLING[::-1])
# Of mean .95; the median stays at .9
AT_1 = GivenResult(nmsre=np.where(np.arange(N) == 0, 0.1 * N, 0.9))


def falling(*fifths: float) -> ExcursionsResults:
    return data(GivenResult(curve=np.repeat(fifths, 4)))


@pytest.mark.parametrize(
    ("text", "measured", "expected"),
    [
        # 7 of 18 questions about one action: 6 on average, as it happens, but not on every step.
        ("Each time step updates exactly", data(questions=UNEVEN), "p"),
        ("Half of the time", data(times=[time(0.3, 0.2)] * 3), "p"),  # .3 is too little, .5 is not
        # The mean is 40 ms.
        (
            "Hundreds of off-policy",
            data(GOOD_RESULT, GivenResult(ms_per_update=120.0), GOOD_RESULT),
            "p",
        ),
        ("No question diverges", data(GOOD_RESULT, aside(1), GOOD_RESULT), "p"),
        # The mean of means is .77
        ("The average NMSRE", data(GOOD_RESULT, scored(1.5), GOOD_RESULT), "p"),
        ("A substantial portion", data(AT_1, GOOD_RESULT, GOOD_RESULT), "p"),
        ("The mean NMSRE falls", data(RISING), "n"),
        ("The mean NMSRE falls", falling(1.0, 0.8, 0.9, 0.4, 0.3), "p"),  # rises once
        ("Several individual curves", data(RISING), "r"),
        # By more than a fifth
        ("Several individual curves", falling(3.0, 2.0, 1.0, 1.1, 1.2), "n"),
        ("Larger alpha", lost(excursions.LARGER_STEPS), "r"),
        ("Larger alpha", lost(excursions.LARGER_STEPS[-1:]), "p"),
        ("Smaller alpha_w", lost(excursions.SMALLER_RATIOS[:1]), "p"),
        (
            "The pseudo-code's own trace",
            data(others={PLAIN: [GOOD_RESULT, aside(1), GOOD_RESULT]}),
            "p",
        ),
        (
            "The pseudo-code's own trace",
            lost([LearnerVariant("plain", "importance-weighted")], 3),
            "r",
        ),
    ],
)
def test_the_first_experiment_is_judged_by_its_numbers(
    text: str, measured: ExcursionsResults, expected: str
) -> None:
    assert claim_of(judge(excursions, measured), text).verdict[0] == expected


def test_good_measurements_fulfil_every_rule_but_those_about_divergence() -> None:
    assert letters(excursions, data()) == "rrrrrrrnnnr"


def test_a_cause_is_named_where_a_claim_fails_and_nowhere_else() -> None:
    failing = GivenResult(nmsre=np.where(np.tile([True, False, False], 6), 9.0, 0.3))
    claim = claim_of(judge(excursions, data(failing)), "The average NMSRE")
    # 6 x 9 of 6 x 9 + 12 x .3; the variances of its questions are 1, 4, ..., 16
    assert "age carries 94%" in claim.cause
    assert "8.5e+00" in claim.cause
    assert claim.cause.endswith("0.30")
    assert not claim_of(judge(excursions, data()), "The average NMSRE").cause


# ---- the second experiment -------------------------------------------------------------------------------------------


LIT = Interface.of(LitToy())
EVERY = 10
CHANGE = 400
AT = np.arange(0, 1_001, EVERY)
N_LIT = len(reset.asked(LIT))  # 3 policies x 3 channels, of which "last" is a light


def bump(level: float, top: float, peak: int, halved: int) -> Floats:
    """Return a curve that wanders about a level, rises after the change to its top, and has half of that later."""
    early = level * (1.0 + 0.2 * np.sin(AT / 30.0))
    elapsed = AT - CHANGE
    late = np.where(elapsed <= peak, level + (top - level) * elapsed / peak, top)
    falling = level + (top - level) * 0.5 ** ((elapsed - peak) / max(halved - peak, 1))
    return np.where(AT <= CHANGE, early, np.where(elapsed <= peak, late, falling))


def run(
    nmsre: Floats, vector: Floats, scalar: Floats, *, lit: Floats | None = None, cost: float = 2.0
) -> MeasuredLife:
    """Return a life of which all questions have the same curves, those about light others, if given."""
    is_lit = np.tile([False, False, True], 3)
    wide = [np.tile(curve[:, None], (1, N_LIT)) for curve in (nmsre, scalar, vector)]
    if lit is not None:
        for curves in wide:
            curves[:, is_lit] = lit[:, None]
    wide[1][0] = 0.0
    wide[2][0] = 0.0
    return MeasuredLife(AT, *wide, np.ones(N_LIT, dtype=bool), 1_000, round(1_000 * cost), 1.0)


NMSRE = bump(1.0, 4.0, 20, 60)
SLOW = bump(0.1, 0.4, 40, 120)
STAYS = np.where(AT <= CHANGE, SLOW, 0.4)
WAVE = 1.0 + 0.3 * np.sin(2 * np.pi * AT / 400.0)
TRAILING = 1.0 + 0.3 * np.sin(2 * np.pi * (AT - 100) / 400.0)  # a quarter of a wave: uncorrelated
FLAT = np.full(len(AT), 1.0) + 0.001 * np.sin(AT / 30.0)


def of(*runs: MeasuredLife, moved: Sequence[MeasuredLife] = ()) -> ResetResults:
    questions = reset.asked(LIT)
    return ResetResults(
        LIT, questions, CHANGE, EVERY, dict(enumerate(runs)), dict(enumerate(moved))
    )


GOOD = run(NMSRE, 1.02 * SLOW, SLOW)
LATE_NMSRE = run(bump(1.0, 4.0, 20, 150), SLOW, SLOW)


def nonzero(name: str) -> MeasuredLife:
    """Return a life in which an estimate is not 0 before the first update."""
    result = run(NMSRE, SLOW, SLOW)
    getattr(result, name)[0, 0] = 1e-9
    return result


def noise(seed: int) -> Floats:
    return np.random.default_rng(seed).normal(1.0, 0.3, len(AT))


@pytest.mark.parametrize(
    ("text", "measured", "expected"),
    [
        ("Both estimates are initially", of(GOOD, nonzero("scalar")), "p"),
        ("All three measures react", of(run(NMSRE, SLOW, FLAT)), "p"),
        # In the mean of the lives
        ("All three measures react", of(GOOD, run(FLAT, FLAT, FLAT)), "r"),
        ("The estimates have the same shape", of(run(NMSRE, SLOW, noise(1))), "p"),
        # They trail it
        ("The estimates have the same shape", of(run(WAVE, TRAILING, TRAILING)), "r"),
        # 1.2 in the mean
        ("The scalar estimate is almost", of(GOOD, GOOD, run(NMSRE, SLOW, 1.6 * SLOW)), "p"),
        ("The estimates react and settle", of(GOOD, GOOD, LATE_NMSRE), "p"),
        # Later than any window
        ("The estimates react and settle", of(run(NMSRE, STAYS, STAYS)), "r"),
        ("The estimates react and settle", of(run(STAYS, SLOW, SLOW)), "n"),
        (
            "The NMSRE needs twice",
            of(run(NMSRE, SLOW, SLOW, cost=1.2), run(NMSRE, SLOW, SLOW, cost=2.4)),
            "p",
        ),
    ],
)
def test_the_second_experiment_is_judged_by_its_numbers(
    text: str, measured: ResetResults, expected: str
) -> None:
    assert claim_of(judge(reset, measured), text).verdict[0] == expected


def test_good_measurements_fulfil_the_rules_and_without_a_lamp_nothing_is_claimed_about_it() -> (
    None
):
    assert letters(reset, of(GOOD, GOOD)) == "rrrrrr"


@pytest.mark.parametrize(
    ("moved", "expected"),
    [
        # The questions about light rise, the others do not
        (run(FLAT, FLAT, FLAT, lit=NMSRE), "r"),
        (run(NMSRE, NMSRE, NMSRE, lit=2.0 * FLAT), "n"),  # it is the others that rise
        (run(bump(1.0, 6.0, 20, 60), FLAT, FLAT, lit=NMSRE), "p"),
    ],
)
def test_a_moved_lamp_must_be_seen_by_the_questions_about_light(
    moved: MeasuredLife, expected: str
) -> None:
    assert letters(reset, of(GOOD, moved=[moved]))[-1] == expected


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A life of 2,500 steps, changed after 600 updates."""
    monkeypatch.setitem(excursions.STEPS, "quick", 2_500)
    monkeypatch.setitem(reset.STEPS, "quick", 2_400)
    monkeypatch.setitem(reset.LAMP_STEPS, "quick", 2_400)
    monkeypatch.setitem(reset.CHANGE_AT, "quick", 600)


@pytest.mark.usefixtures("short")
def test_theta_is_lost_after_its_step_and_w_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimates of the two runs agree until the change and continue from the same values.

    The toy's lamp does not move, so that the runs differ by theta := 0 alone.
    """
    context = toy_context(tmp_path, monkeypatch)
    data, _ = reset.run(context)
    lost = data.reset[0]
    reference = data.moved[0]
    upto = lost.at <= 600
    np.testing.assert_array_equal(lost.scalar[upto], reference.scalar[upto])
    np.testing.assert_array_equal(lost.vector[upto], reference.vector[upto])
    next_look = lost.at == 620
    assert (np.abs(lost.scalar[next_look] - reference.scalar[next_look]) > 0).any()
    np.testing.assert_array_equal(lost.scalar[0], 0.0)


@pytest.mark.usefixtures("short")
def test_the_lamp_moves_between_the_changes_step_and_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = toy_context(tmp_path, monkeypatch)
    life = read(record_life(context, 0, 2_500))
    at_s, lamp, _ = reset.lamp_move(life, 600)
    training_data = TrainingData(life)
    last = int(np.flatnonzero(training_data.n_learned == 600)[0])
    assert lamp == "lamp"
    assert life.rows["t"][last] < at_s < life.rows["t"][last + 1]
    with pytest.raises(ValueError, match="live longer"):
        reset.lamp_move(life, 10_000)


def test_the_lag_of_a_copy_is_found() -> None:
    """An estimate that shows what the NMSRE showed 7 looks ago, at 20 learning steps a look."""
    noise = np.cumsum(np.random.default_rng(0).normal(size=400))
    match = agreement(noise[7:], noise[:-7], every=20, longest=30)
    assert match.lag == 140.0
    assert match.best == pytest.approx(1.0)
    assert match.correlation < 0.999


def test_a_reaction_is_measured_by_its_peak_and_half() -> None:
    """Level 2 until step 400; 10 at 450; falling by 1 per 10 steps: half of the rise (6) is gone at 490."""
    curve = np.where(AT <= CHANGE, 2.0, np.maximum(10.0 - np.maximum(AT - 450, 0) / 10, 2.0))
    curve[(AT > CHANGE) & (AT < 450)] = 3.0
    reaction = of().reaction(AT, curve)
    assert reaction == (2.0, 10.0, 50.0, 90.0)
    assert reaction.rise == 4.0
    assert of().reaction(AT, curve - 3.0).rise == 8.0  # from -1 to 7
