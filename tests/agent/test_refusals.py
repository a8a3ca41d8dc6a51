"""Invalid arguments are refused by the call that gets them, with the parameter's name."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_agent import (
    GVF,
    Behaviour,
    Channel,
    ConstantAction,
    EpsilonGreedy,
    Feature,
    Follow,
    Gibbs,
    Horde,
    Interface,
    LearnerConfig,
    Life,
    PolicyFunction,
    Prediction,
    StickyRandom,
    Uniform,
    questions,
)
from horde_agent.learning.gibbs import GibbsTable
from horde_agent.life.bodies import make_body
from horde_agent.life.excursions import DockingConfig, ExcursionConfig
from horde_agent.life.learner import StreamLearner
from horde_agent.options.planner import OptionModel, Planner
from horde_agent.problems.classics import collision
from horde_agent.problems.conditioning import Patterning, TraceConditioning
from horde_agent.problems.markov import SmallMDP
from horde_agent.scoring.trace_growth import trace_growth
from horde_agent.tiles import TileCoder
from tests.agent.doubles import ToyBody, toy_questions

EVEN = Uniform(3)
FACE = Interface.of(ToyBody())
GIBBS = Gibbs(2, 3, np.array([0]), np.array([1.0]))


def ask(**arguments: Any) -> GVF:
    return GVF(
        **{
            "name": "q",
            "target_policy": EVEN,
            "cumulant": Channel(0),
            "continuation": 0.5,
            **arguments,
        }
    )


def horde_of(asked: Any, **further: Any) -> Horde:
    return Horde(asked, n_features=FACE.coder.n_features, n_active=FACE.coder.n_active, **further)


def life(rng: Any = 0) -> Life:
    return Life(ToyBody(), horde_of(toy_questions()), StickyRandom(3), rng)


class NoPolicy:
    """Has probabilities, but does not say of how many actions."""

    def probabilities(self, observation: np.ndarray, tiles: np.ndarray) -> np.ndarray:
        return np.ones(1)


@pytest.mark.parametrize(
    ("give", "words"),
    [
        (
            lambda: ask(cumulant="light_0"),
            "question 'q': cumulant must be a Channel, a Feature, .* not 'light_0'",
        ),
        (lambda: ask(cumulant=Channel), "question 'q': cumulant must be a Channel, "),
        (lambda: ask(target_policy=2), "question 'q': target_policy must give probabilities"),
        (
            lambda: ask(target_policy=NoPolicy()),
            "question 'q': target_policy must give probabilities",
        ),
        (
            lambda: ask(target_policy=StickyRandom(3)),
            "question 'q': target_policy must give probabilities",
        ),
        (lambda: ask(name=3), "name of a question .*not 3"),
        (lambda: ask(continuation="0.5"), "question 'q': continuation must be a number, not '0.5'"),
        (lambda: ask(continuation=True), "question 'q': continuation must be a number, not True"),
        (lambda: ask(outcome=None), "question 'q': outcome must be a number, not None"),
        (lambda: ask(outcome=10**400), "question 'q': outcome is a number of more than 300 digits"),
        (lambda: ask(continuation=1.1), "'q'.*continuation"),
        (lambda: ask(continuation=1.0), "'q'.*ends=True"),
        (lambda: ask(lam=-0.1), "'q'.*lam"),
        (lambda: ask(outcome=float("inf")), "'q'.*outcome"),
        (lambda: Channel(1.5), "index of a channel must be a whole number of at least 0, not 1.5"),
        (lambda: Channel(-1), "index of a channel must be a whole number of at least 0, not -1"),
        (lambda: Feature("3"), "index of a feature must be a whole number of at least 0, not '3'"),
        (lambda: Prediction(3), "name of the question .*not 3"),
        (lambda: StickyRandom(2.5), "n_actions must be a whole number of at least 1, not 2.5"),
        (lambda: StickyRandom(3, repeat="0.5"), "repeat must be a number, not '0.5'"),
        (lambda: StickyRandom(0), "n_actions must be"),
        (lambda: StickyRandom(5, 1.0), "repeat"),
        (lambda: Gibbs(2, 3, np.array([6]), np.array([1.0])), "index"),
        (lambda: Gibbs(2, 3, np.array([0, 1]), np.array([1.0])), "alike"),
        (lambda: Gibbs(2, 3, np.array([0]), np.array([np.nan])), "finite"),
        (lambda: ConstantAction(1.0, 3), "action must be a whole number of at least 0, not 1.0"),
        (lambda: ConstantAction(3, 3), r"action must be in 0..2, not 3"),
        (lambda: PolicyFunction([0.5, 0.5], 2), "function must be callable with"),
        (lambda: EpsilonGreedy([1.0], 2), "values must be callable with"),
        (
            lambda: EpsilonGreedy(lambda o, t: [1.0], 2, 1.1),
            r"epsilon must be in \[0, 1\], not 1.1",
        ),
        (lambda: Follow(Behaviour()), "policy must give probabilities"),
        (lambda: ExcursionConfig("often"), "excursion probability must be a number, not 'often'"),
        (lambda: ExcursionConfig(1.5), "excursion probability must"),
        (
            lambda: ExcursionConfig(0.1, 2.5),
            "excursion horizon must be a whole number of at least 1, not 2.5",
        ),
        (
            lambda: DockingConfig("soon"),
            "the pause between two dockings must be a number, not 'soon'",
        ),
        (
            lambda: DockingConfig(float("inf")),
            "the pause between two dockings must be finite and not negative, got inf s",
        ),
        (
            lambda: Gibbs.random("seed", 3, 10),
            r"rng must be a numpy Generator or a seed of whole numbers from 0 on, not 'seed'",
        ),
        (
            lambda: questions.policies(FACE, np.random.default_rng(0), 2.5),
            "n must be a whole number of at least 1",
        ),
        (lambda: TraceConditioning(isi=0), "isi"),
        (lambda: TraceConditioning(n_distractors=11), "n_distractors"),
        (lambda: Patterning(n_patterns=7), "n_patterns"),
        (lambda: Patterning(n_cs=1, n_patterns=1), "n_cs"),
        (lambda: Patterning(noise=1.5), r"noise must be in \[0, 1\], not 1.5"),
        (
            lambda: DockingConfig(attempts=0),
            "the number of attempts at docking must be a whole number of at least 1, not 0",
        ),
        (
            lambda: TileCoder.default(0),
            "n_inputs must be a whole number of at least 1, not 0",
        ),
        (lambda: trace_growth([1.0, 0.0], [0.0, 1.0], 0.5, 0.9), "behaviour must give"),
        (
            lambda: GibbsTable([GIBBS, Gibbs(3, 3, GIBBS.index, GIBBS.value)], np.arange(2)),
            "one shape",
        ),
        (
            lambda: SmallMDP(np.full((1, 2, 2), 0.6), np.zeros((1, 2)), np.eye(2)[0]),
            "probabilities",
        ),
        (lambda: SmallMDP(np.zeros((1, 2, 2)), np.zeros((2, 2)), np.eye(2)[0]), "must be"),
        (
            lambda: make_body("radio"),
            "the robot critterbot has no backend 'radio': choose simulator, serial",
        ),
        (
            lambda: make_body("simulator", robot="create3"),
            "unknown robot 'create3': choose critterbot, create2; did you mean 'create2'",
        ),
        (lambda: make_body("serial", lamp_moves=[(1.0, "lamp", (0.0, 0.0, 0.5))]), "lamp_moves"),
        (lambda: Horde([ask()], n_features=3, n_active=4), "n_active"),
        (lambda: horde_of([ask()], mode="lazy"), "mode .*'lazy'"),
        (
            lambda: horde_of(
                [ask()], config=LearnerConfig.paper(vector_mspbe=False)
            ).mspbe_vector(),
            "vector_mspbe=True",
        ),
        (
            lambda: Horde([ask(target_policy=GIBBS)], n_features=3, n_active=1, real_valued=True),
            "active tiles",
        ),
        (lambda: life().run(2.5), "steps must be a whole number of at least 0, not 2.5"),
        (lambda: life().run(-1), "steps must be a whole number of at least 0, not -1"),
        (
            lambda: horde_of([ask(), Channel(0)]),
            r"questions must be GVFs; number 1 is Channel\(index=0\)",
        ),
        (lambda: horde_of(ask()), r"questions must be a list of GVFs, not GVF\(name='q'"),
        (lambda: horde_of([ask(cumulant=Channel("saw"))]), "channels=interface.names .*'saw'"),
        (
            lambda: horde_of([ask(cumulant=Channel("smell"))], channels=FACE.names),
            "question 'q': unknown channel 'smell'; there are age, saw, last",
        ),
        (
            lambda: questions.family(FACE, {"even": EVEN}, [0.5], ["smell"]),
            "unknown channel 'smell'; there are age,",
        ),
        (
            lambda: StreamLearner(Horde(toy_questions(), n_features=9, n_active=2), FACE),
            "the Horde expects 9 features, 2 of them active, but the interface's tile coder makes 385, 37 of them",
        ),
    ],
)
def test_invalid_arguments_are_refused_by_name(give: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        give()


def test_a_channel_may_be_named() -> None:
    """By its name it is the same question; newcomers and families may name theirs too."""
    named = horde_of([ask(cumulant=Channel("saw"))], channels=FACE.names)
    assert named.questions[0].cumulant == Channel(1)
    named.add([ask(name="other", cumulant=Channel("last"))])
    assert named.questions[1].cumulant == Channel(2)
    assert questions.family(FACE, {"even": EVEN}, [0.5], ["saw", 2])[0] == GVF(
        "even/g0.5/saw", EVEN, Channel(1), 0.5
    )
    looped = FACE.feeding_back(
        [ask(cumulant=Channel("saw"))], [{"questions": ["q"], "intervals": [4], "tilings": 1}]
    )
    assert looped.feedback is not None
    assert (looped.feedback.low.tolist(), looped.feedback.high.tolist()) == ([0.0], [2.0])


def test_numbers_of_numpy_are_numbers() -> None:
    assert Channel(np.int64(3)) == Channel(3)  # type: ignore[arg-type]
    assert (
        ask(continuation=np.float32(0.5), outcome=np.float64(1.0), lam=np.int64(1)).continuation
        == 0.5
    )
    assert StickyRandom(np.int64(3)).n_actions == 3  # type: ignore[arg-type]
    assert ConstantAction(np.int64(1), np.uint8(3)) == ConstantAction(1, 3)  # type: ignore[arg-type]


def plan(rng: Any) -> Any:
    """Return the weights of a plan over 4 remembered states, each of which leads to the next one."""
    model = OptionModel("on", np.arange(4.0), 0.9 * np.eye(4, k=1), np.arange(4))
    planner = Planner([model], step_size=0.5)
    for state in range(4):
        planner.remember(np.array([state]))
    planner.plan(rng, 9)
    return planner.weights


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: Gibbs.random(rng, 3, 10, 4).value,
        lambda rng: [question.name for question in questions.policies(FACE, rng, 5)],
        lambda rng: collision(rng).features,
        lambda rng: TraceConditioning().stream(rng, 100),
        lambda rng: life(rng).robots[0].rng.random(3),
        plan,
    ],
    ids=["gibbs", "policies", "collision", "conditioning", "life", "plan"],
)
def test_a_seed_is_the_generator_made_of_it(draw: Callable[[Any], Any]) -> None:
    """As `numpy.random.default_rng` makes it; a generator is used as it is, not copied."""
    expected = draw(np.random.default_rng(7))
    assert np.array_equal(draw(7), expected)
    assert np.array_equal(draw(np.random.SeedSequence(7)), expected)
    assert not np.array_equal(draw(8), expected)
    shared = np.random.default_rng(7)
    draw(shared)
    assert not np.array_equal(draw(shared), expected)


@pytest.mark.parametrize(
    "action", [1, np.int64(1), np.array(1), np.array([1]), np.array([[1]]), 1.0, np.array([1.0])]
)
@pytest.mark.parametrize("probability", [0.5, np.float32(0.5), np.array([0.5])])
def test_an_array_of_one_element_is_an_action(action: Any, probability: Any) -> None:
    """Vector environments, and policies of other libraries, give such."""
    horde = horde_of(toy_questions())
    twin = horde_of(toy_questions())
    observation = np.array([0.1, 0.2, 0.3])
    for one, given in ((horde, (action, probability)), (twin, (1, 0.5))):
        one.begin(observation, FACE.encode(observation))
        one.learn(*given, observation, FACE.encode(observation))
    assert horde.weights_sha256() == twin.weights_sha256()


def test_a_policy_is_anything_that_gives_probabilities() -> None:
    """An object of any class, also with default arguments, or with a function as an attribute."""

    class Default:
        n_actions = 3

        def probabilities(
            self, observation: Any = None, tiles: Any = None, *, more: int = 0
        ) -> np.ndarray:
            return np.full(3, 1 / 3)

    loose = SimpleNamespace(n_actions=3, probabilities=lambda observation, tiles: np.full(3, 1 / 3))
    for policy in (Default(), loose, Behaviour()):
        assert ask(target_policy=policy).target_policy is policy
    with pytest.raises(ValueError, match="target_policy must give"):
        ask(
            target_policy=SimpleNamespace(
                n_actions=3, probabilities=lambda observation: np.full(3, 1 / 3)
            )
        )
