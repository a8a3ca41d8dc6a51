"""When excursions begin, which policies they test, their returns, and scores of questions about the behaviour."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.interface import Interface
from horde_agent.learning.values import identity
from horde_agent.life.excursions import ExcursionConfig, Excursions
from horde_agent.life.learner import StreamLearner, relearn
from horde_agent.life.life import Life
from horde_agent.options.option import Option
from horde_agent.policies import Behaviour, ConstantAction, StickyRandom, Uniform
from horde_agent.questions import model_of, nexting, policies
from horde_agent.record import NO_ACTION, Flag, Phase, Recorder, Row
from horde_agent.runs.storage.tables import ExcursionFacts, not_scored
from horde_agent.scoring.return_errors import ReturnErrors
from horde_agent.scoring.returns import BEHAVIOUR, TestExcursion, policies_under_test
from tests.agent.doubles import SpyHorde, ToyBody, constant, horde_of, live
from tests.oracles.evaluation import nmsre, truncated_return

SEEN = np.zeros(1)
TILES = np.zeros(1, dtype=np.int64)
"""A state, for policies that ignore it."""
FACE = Interface.of(ToyBody())
HORIZON = 5
WITHOUT = ExcursionConfig(0.0, HORIZON)


def test_interruptions_come_before_one_behaviour_action_in_fifty_and_choose_policies_evenly() -> (
    None
):
    """Binomial bounds of four standard deviations: 20,000 chances at 1/50, then five policies at 1/5."""
    questions = [GVF(f"{a}", ConstantAction(a, 5), Channel(0), 0.5) for a in range(5)]
    machine = Excursions(policies_under_test(questions))
    behaviour = StickyRandom(5)
    rng = np.random.default_rng(1)
    counts = np.zeros(5)
    n_begun = 0
    n_chances = 20_000
    for _ in range(n_chances):
        choice = machine.choose(behaviour, rng, SEEN, TILES, Flag.NONE)
        if choice.phase is Phase.EXCURSION:
            counts[choice.action] += 1
            n_begun += 1
            machine.cancel()

    assert abs(n_begun - n_chances / 50) < 4 * np.sqrt(n_chances * 0.02 * 0.98)
    assert (np.abs(counts - n_begun / 5) < 4 * np.sqrt(n_begun * 0.2 * 0.8)).all()


class ByBrightness:
    """Takes action 1 with the probability in channel 0."""

    n_actions = 3

    def probabilities(self, observation: np.ndarray, tiles: np.ndarray) -> np.ndarray:
        bright = float(observation[0])
        return np.array([1.0 - bright, bright, 0.0])


def test_policies_are_tested_in_the_order_of_their_questions_except_the_behaviour_and_untested_ones() -> (
    None
):
    """A return that is not a sum of a channel has channel -1 and gamma NaN, and its question is in `others`."""
    looking = ByBrightness()
    questions = [
        GVF("b", constant(2), Channel(1), 0.5),
        GVF("behaviour", Behaviour(), Channel(0), 0.5),
        GVF("x", Uniform(3), Channel(0), 0.5, policy_name="even"),
        GVF("feature", constant(2), Feature(0), 0.5),
        GVF("untested", constant(1), Channel(0), 0.5, tested=False),
        GVF("outcome", constant(2), Channel(0), 0.5, outcome=1.0),
        GVF("varying", looking, Channel(0), lambda *_: 0.5),
        GVF("a", constant(0), Channel(2), 0.8),
        GVF("c", constant(2), Channel(0), 0.0),
    ]
    policies = policies_under_test(questions)

    assert [(policy.action, policy.name) for policy in policies] == [
        (2, "action 2"),
        (NO_ACTION, "even"),
        (NO_ACTION, "ByBrightness"),
        (0, "action 0"),
    ]
    assert policies[0].demons.tolist() == [0, 3, 5, 8]
    assert policies[0].channel.tolist() == [1, -1, -1, 0]
    np.testing.assert_array_equal(policies[0].gamma, [0.5, np.nan, np.nan, 0.0])
    assert [(k, question.name) for k, question in policies[0].others] == [
        (1, "feature"),
        (2, "outcome"),
    ]
    assert policies[2].target is looking
    assert [policy.label(["left", "right", "stay"]) for policy in policies] == [
        "stay",
        "even",
        "ByBrightness",
        "left",
    ]


def test_policies_of_one_class_are_numbered_and_keep_their_names() -> None:
    """The second one is number 2, also after the first was removed."""
    first = ByBrightness()
    second = ByBrightness()
    questions = [GVF("p", first, Channel(0), 0.5), GVF("q", second, Channel(0), 0.5)]
    one, two = policies_under_test(questions)
    assert (one.name, two.name) == ("ByBrightness", "ByBrightness 2")
    assert one.tag != two.tag
    assert [p.name for p in policies_under_test(questions[1:], {identity(second): two.name})] == [
        "ByBrightness 2"
    ]


def test_thousands_of_random_policies_are_not_tested() -> None:
    """White, Modayil & Sutton (2012), section 6: a robot cannot follow each of a thousand policies often enough."""
    assert policies_under_test(policies(FACE, np.random.default_rng(0), n=5)) == []


def general_excursion(question: GVF, horizon: int = 3) -> TestExcursion:
    (policy,) = policies_under_test([question])
    return TestExcursion(policy, np.zeros(1), step=0, horizon=horizon)


def test_the_return_of_a_question_with_functions_follows_its_definition() -> None:
    """Observations (c, gamma, z) reached: (1, .5, 7), (2, .25, 8), (3, 0, 9).

    1 + .5 x 7, then .5 (2 + .75 x 8), then .125 (3 + 1 x 9): 4.5 + 4 + 1.5 = 10. With the outcome's
    share as gamma instead of 1 - gamma it is 4.5 + 2 + .375.
    """
    test = general_excursion(
        GVF(
            "q",
            constant(0),
            lambda o, t: float(o[0]),
            lambda o, t: float(o[1]),
            outcome=lambda o, t: float(o[2]),
        )
    )
    for observation in ([1.0, 0.5, 7.0], [2.0, 0.25, 8.0], [3.0, 0.0, 9.0]):
        is_complete = test.observe(np.array(observation), TILES)
    assert is_complete
    assert test.returns.tolist() == [10.0]


def test_the_return_of_a_feature_or_a_prediction_sums_its_values() -> None:
    """Gamma .5; feature 3 is on at the first and third state reached: 1 + .25. Predictions 2, 4, 8: 2 + 2 + 2."""
    feature = general_excursion(GVF("q", constant(0), Feature(3), 0.5))
    prediction = general_excursion(GVF("q", constant(0), Prediction("other"), 0.5))
    requests = []
    for tiles, made in (([3, 5], 2.0), ([4, 5], 4.0), ([3, 6], 8.0)):

        def predict_one(
            name: str, observation: np.ndarray, tiles: np.ndarray, made: float = made
        ) -> float:
            requests.append((name, tiles.tolist()))
            return made

        for test in (feature, prediction):
            test.observe(np.zeros(1), np.array(tiles), predict_one)
    assert feature.returns.tolist() == [1.25]
    assert prediction.returns.tolist() == [6.0]
    assert requests == [("other", [3, 5]), ("other", [4, 5]), ("other", [3, 6])]


def test_a_termination_completes_the_return_with_the_outcome() -> None:
    """Gamma .5, cumulant 1, outcome 4: one step with 1 + .5 x 4, then an end with .5 (1 + 4)."""
    test = general_excursion(GVF("q", constant(0), Channel(0), 0.5, outcome=4.0), horizon=50)
    assert not test.observe(np.ones(1), TILES)
    assert test.observe(np.ones(1), TILES, terminated=True)
    assert test.returns.tolist() == [3.0 + 2.5]


def test_the_return_of_a_model_is_the_discounted_feature_at_the_stop() -> None:
    """Feature 3 is on and off, then on at the stop after three steps: .5 ^ 3. A sum of it would be 1.25."""

    def stops(_observation: np.ndarray, tiles: np.ndarray) -> float:
        return float(9 in tiles)

    option = Option("go", constant(0), stops, gamma=0.5)
    _, part = model_of(option, [3])
    test = general_excursion(replace(part, tested=True), horizon=50)
    shares = []
    for tiles in ([3, 5], [4, 5], [3, 9], [3, 5]):
        test.observe(np.zeros(1), np.array(tiles))
        shares.append(test.share.tolist())
    assert shares == [[0.5], [0.25], [0.0], [0.0]]
    assert test.returns.tolist() == [0.125]


@pytest.mark.parametrize("nonsense", [float("nan"), -0.5, 1.5])
def test_an_invalid_continuation_leaves_its_demon_out_of_that_excursion(nonsense: float) -> None:
    """The other demon is scored, and in the next excursion both are."""
    gammas = iter([nonsense, 0.5, 0.5])
    questions = [
        GVF("odd", constant(0), Channel(0), lambda o, t: next(gammas)),
        GVF("sound", constant(0), Channel(0), 0.0),
    ]
    (policy,) = policies_under_test(questions)
    errors = ReturnErrors([policy], n_demons=2)
    for k in range(3):
        test = TestExcursion(policy, np.zeros(2), step=k, horizon=2)
        test.observe(np.ones(1), TILES, terminated=k > 0)
        errors.add(test)
    assert errors.n_tests.tolist() == [2, 3]
    (outcome,) = errors.table.outcomes()
    assert np.isnan(outcome.returns[:, 0]).tolist() == [True, False, False]
    assert errors.nmsre().tolist() == [1.0, 1.0], "returns of 1 that do not vary"


def on_policy_tests(life: Life) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return steps, predictions and returns of the on-policy tests."""
    for outcomes in life.student.errors.table.outcomes():
        if outcomes.policy.name == BEHAVIOUR:
            return outcomes.step.tolist(), outcomes.predictions, outcomes.returns
    return [], np.zeros((0, 0)), np.zeros((0, 0))


def test_each_horizon_a_prediction_is_compared_with_the_return() -> None:
    """The prediction is from before the return: 1000 x updates + age. Learning continues meanwhile."""
    horde = SpyHorde(nexting(FACE, (0.0, 0.5)))
    recorder = Recorder(3)
    life = live(23, ToyBody(), horde, recorder=recorder, excursions=WITHOUT)
    steps, predictions, returns = on_policy_tests(life)
    assert steps == [0, 5, 10, 15]
    assert predictions[:, 0].tolist() == [0.0, 5005.0, 10010.0, 15015.0]
    readings = recorder.stream().rows["observation"].astype(float)
    for k, step in enumerate(steps):
        expected = truncated_return(readings[step + 1 :].T, 0.5, HORIZON)
        np.testing.assert_allclose(returns[k, 3:], expected, rtol=1e-12)
    errors = life.student.errors.nmsre()
    remainder = 0.5**HORIZON * np.array([5005.0, 10010.0, 15015.0, 20020.0])
    oracle = nmsre(predictions[:, 4] - remainder, returns[:, 4])
    assert errors[4] == pytest.approx(oracle[-1])
    assert len(horde.learned) == 23, "no step was taken for the tests' sake"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({7: {"terminated": 1}}, [0, 5, 10, 15]),  # complete: no term can follow
        ({7: {"truncated": 1}}, [0, 10, 15]),  # terms are missing
        ({7: {"gap": 1}}, [0, 10, 15]),
        ({7: {"applied": 0}}, [0, 10, 15]),
        ({8: {"stale": 1}}, [0, 10, 15]),  # 13 % of the return, at gamma .5
        ({10: {"stale": 1}}, [0, 5, 10, 15]),  # 3 %, of the last term
    ],
)
def test_a_broken_sequence_is_no_test_and_a_terminated_one_is(
    fault: dict[int, Any], expected: list[int]
) -> None:
    """Tests begin at every fifth learning step; a step across a break is none, so later ones begin a step later."""
    life = live(24, ToyBody(fault), SpyHorde(nexting(FACE, (0.5,))), excursions=WITHOUT)
    steps, _, returns = on_policy_tests(life)
    n_lost = 1
    if next(iter(fault[min(fault)])) in ("terminated", "truncated"):
        n_lost = 0
    assert steps == [step + (n_lost if step > 5 else 0) for step in expected]
    if "terminated" in fault.get(7, {}):
        saw = 6 / 7
        assert returns[1, 1] == pytest.approx(saw + 0.5 * 0.0)  # ages 6 and 7: sawtooth 6/7, then 0


class OneDraw:
    """A behaviour that draws one random number for an action, whatever was before."""

    def draw(self, rng: np.random.Generator, *_: Any) -> tuple[int, float]:
        return int(rng.random() * 3), 1 / 3

    def forget(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("flag", [Flag.STALE, Flag.NOT_APPLIED])
def test_an_unfit_frame_draws_the_same_random_numbers_as_a_fit_one(flag: Flag) -> None:
    """The excursions of a life do not depend on which other frames were stale.

    A third of the frames at which no excursion begins are unfit in the second life: it chooses the
    same. A frame that draws no number would shift all later ones.
    """
    policies_to_test = policies_under_test([GVF("left", constant(0), Channel(0), 0.5)])

    def choices_with(unfit: set[int]) -> list[tuple[Phase, int]]:
        machine = Excursions(policies_to_test, ExcursionConfig(0.2, 3))
        rng = np.random.default_rng(4)
        choices = []
        for k in range(400):
            flags = int(flag) * (k in unfit)
            choice = machine.choose(OneDraw(), rng, SEEN, TILES, flags)
            choices.append((choice.phase, choice.action))
        return choices

    fit = choices_with(set())
    behaving = [k for k, (phase, _) in enumerate(fit) if phase is Phase.BEHAVE]
    assert choices_with(set(behaving[::3])) == fit
    assert len(behaving) > 200
    assert sum(phase is Phase.CENTRE for phase, _ in fit) > 20


def test_an_excursion_ends_an_on_policy_test() -> None:
    """No on-policy test contains a step of another policy."""
    questions = [*nexting(FACE, (0.5,)), GVF("left", constant(0), Channel(1), 0.5)]
    recorder = Recorder(3)
    often = ExcursionConfig(0.1, HORIZON)
    life = live(600, ToyBody(), SpyHorde(questions), recorder=recorder, excursions=often)
    steps, _, _ = on_policy_tests(life)
    rows = recorder.stream().rows
    phase = dict(zip(rows["step"].tolist(), rows["phase"].tolist(), strict=True))
    assert len(steps) > 20
    assert all(phase[step + k] == Phase.BEHAVE for step in steps for k in range(HORIZON))
    assert life.student.errors.n_excursions > len(steps), "excursions were completed, too"
    assert {policy.name for policy in life.excursions.policies} == {"action 0"}


def why_not(question: GVF, tests: ExcursionFacts) -> str:
    (reason,) = not_scored([question], np.array([np.nan]), tests)
    return str(reason["reason"])


def facts(share: float = np.nan, horizon: int = 50, **further: Any) -> ExcursionFacts:
    never = np.zeros((2, horizon + 1), dtype=np.int64)
    return ExcursionFacts(
        **{
            "n_tests": np.zeros(1, dtype=np.int64),
            "share": np.array([share]),
            "horizon": horizon,
            "interrupted": never,
            "has_excursions": True,
            "n_repeated": np.zeros(1, dtype=np.int64),
            **further,
        }
    )


def test_why_a_question_has_no_score() -> None:
    questions = [
        GVF("seen", Behaviour(), Channel(0), 0.5),
        GVF("rare", Behaviour(), Channel(0), 0.5),
        GVF("asked not to", Behaviour(), Channel(0), 0.5, tested=False),
        GVF("of another", Behaviour(), Prediction("seen"), 0.5),
        GVF("left", constant(0), Channel(0), 0.5),
    ]
    scores = np.array([0.5, np.nan, np.nan, np.nan, np.nan])
    nothing = np.full(5, np.nan)
    zeros = np.zeros(5)
    tests = facts(has_excursions=False)._replace(share=nothing, n_tests=zeros, n_repeated=zeros)
    reasons = {one["first"]: one["reason"] for one in not_scored(questions, scores, tests)}
    assert list(reasons) == ["rare", "asked not to", "of another", "left"]
    for reason, word in zip(
        reasons.values(), ["2 complete", "tested", "prediction", "no test ex"], strict=True
    ):
        assert word in reason
    assert why_not(questions[4], facts()) == reasons["rare"]
    assert why_not(questions[4], facts(n_repeated=np.array([9]), n_tests=np.array([1]))) == (
        "9 of 10 tests left out, because stale frames had too much of the return's weight: a longer period leaves more"
    )
    life = live(0, ToyBody(), horde_of(questions, FACE), excursions=WITHOUT)
    assert [policy.demons.tolist() for policy in life.student.errors.policies] == [[4], [0, 1]]


def test_a_return_that_goes_on_beyond_the_horizon_names_the_horizon_that_it_needs() -> None:
    """.99^50 = .605 and .99^298.1 = .05; .8^10 = .107, .8^13.4 = .05. A function of the state is judged by its mean."""
    long = GVF("long", Behaviour(), Channel(0), 0.99)
    reason = "its return at gamma 0.99 has 61% beyond 50 steps: use --horizon 300"
    assert why_not(long, facts(share=0.99**50)) == reason
    assert why_not(long, facts()) == reason, "also when no test was completed"
    short = GVF("short", constant(0), Channel(0), 0.8)
    assert why_not(short, facts(share=0.8**10, horizon=10)).endswith(
        "gamma 0.8 has 11% beyond 10 steps: use --horizon 14"
    )
    wall = GVF("wall", constant(0), Channel(0), lambda o, t: 1.0)
    assert why_not(wall, facts(share=0.3)) == (
        "its return has 30% beyond 50 steps: use --horizon 130"
    )
    assert "no horizon is long enough" in why_not(wall, facts(share=1.0))


def test_a_return_that_a_test_cannot_measure_has_no_score() -> None:
    """Five steps leave .5^5 = 3 % of a return at gamma .5, and .9^5 = 59 % at .9, of which 5 % are left after 29."""
    questions = nexting(FACE, (0.5, 0.9))
    life = live(200, ToyBody(), SpyHorde(questions), excursions=WITHOUT)
    errors = life.student.errors
    nmsre_of_questions = errors.nmsre()
    assert np.isfinite(nmsre_of_questions).tolist() == [True] * 3 + [False] * 3
    np.testing.assert_array_equal(np.isfinite(errors.online()), np.isfinite(nmsre_of_questions))
    tests = facts(horizon=HORIZON)._replace(
        share=errors.moments.share, n_tests=errors.n_tests, n_repeated=errors.n_repeated
    )
    (reason,) = not_scored(questions, nmsre_of_questions, tests)
    assert reason["reason"] == "its return at gamma 0.9 has 59% beyond 5 steps: use --horizon 29"
    assert reason["n"] == 3


def test_episodes_shorter_than_the_horizon_name_the_horizon_that_half_of_the_tests_reach() -> None:
    """Forty episodes of 12 steps, as a data set has them: each row is followed by one, but the last of an episode.

    A life of a single episode needs more steps.
    """

    def student_of(n_episodes: int) -> StreamLearner:
        recorder = Recorder(3)
        for step in range(13 * n_episodes):
            phase = Phase.BEHAVE
            flags = Flag.NONE
            if step % 13 == 12:
                phase = Phase.END
            if step % 13 == 0:
                flags = Flag.GAP
            row = Row(step, 0.1 * step, np.zeros(3, np.float32), 0, 1.0, phase, flags, (0.0,) * 3)
            recorder.write(row)
        horde: Any = SpyHorde(nexting(FACE, (0.5,)))
        return relearn(recorder.stream(), horde, FACE)

    student = student_of(40)
    assert student.errors.interrupted.sum() == 10, (
        "tests begin after 0, 50, ... 450 steps: 12, 10, 8, 6, 4, 2, 12, ... before an end"
    )
    reason = why_not(student.horde.questions[0], facts(interrupted=student.errors.interrupted))
    assert reason.endswith("half of them within 8 steps; use --horizon 8")
    student = student_of(1)
    assert student.errors.interrupted.sum() == 1
    reason = why_not(student.horde.questions[0], facts(interrupted=student.errors.interrupted))
    assert reason.endswith("more steps are needed")


def test_tests_that_breaks_cut_short_name_the_horizon_that_half_of_them_reach() -> None:
    """Episodes of 12 steps: the stream breaks after 12, so no test of 50 steps is completed; they begin at any time.

    At gamma .5 a return needs 5 steps, at .9 29: no horizon helps.
    """
    breaks = {k: {"gap": 1} for k in range(12, 1_000, 12)}
    questions = nexting(FACE, (0.5, 0.9))
    life = live(1_000, ToyBody(breaks), SpyHorde(questions), excursions=ExcursionConfig(0.0, 50))
    student = life.student
    assert student.errors.n_excursions == 0
    assert student.errors.interrupted[0, :12].tolist() == [1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 2, 2]
    tests = facts(interrupted=student.errors.interrupted)
    near = "0 complete tests of 50 steps: 20 were interrupted by gaps or ends of episodes, half of them within 5 steps"
    assert why_not(questions[0], tests) == f"{near}; use --horizon 5"
    assert why_not(questions[-1], tests) == f"{near}, but its return needs 29"
    few = tests._replace(n_tests=np.array([500]), share=np.array([0.9**50]))
    assert "interrupted" not in why_not(questions[-1], few), "most tests were completed"
