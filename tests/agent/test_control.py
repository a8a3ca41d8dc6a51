"""Control questions: the rules that find policies, and what other questions and a life do with these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent import (
    GVF,
    Behaviour,
    Channel,
    ConstantAction,
    Greedy,
    Horde,
    LearnerConfig,
    Uniform,
)
from horde_agent.kernels import rules
from horde_agent.learning import PlainEngine, Signals, plain
from horde_agent.record import Phase, read
from tests.agent import commands
from tests.agent.commands import CONTROL, summary_of
from tests.agent.hordes import BEHAVIOUR, N_ACTIONS, N_ACTIVE, N, RandomLife, ask, make
from tests.agent.shared import binary
from tests.agent.test_rules import ONE, OneDemon, golden
from tests.oracles.control import DenseControl

FINDING = tuple(name for name in rules.names() if rules.rule(name).FINDS_POLICY)


class ControlDemon(OneDemon):
    """A demon that finds a policy; it learns from the action taken."""

    def __init__(self, entry: str, parameters: dict[str, float], n: int) -> None:
        self.n = n
        self.is_first = True
        rule_parameters = {
            key: value for key, value in parameters.items() if key not in ("alpha", "alpha_w")
        }
        rule_parameters |= {"rho_max": np.inf} if "rho_max" in rules.rule(entry).RANGES else {}
        config = LearnerConfig.paper(algorithm=entry, parameters=rule_parameters, dtype="float64")
        self.engine = PlainEngine(
            ONE, n, parameters["alpha"], parameters["alpha_w"], config, n_actions=2
        )

    def learn(self, step: Any) -> None:
        """Take a step; pi is greedy in the weights before it."""
        phi = self.phi(step.tiles_t)
        phi_tp1 = self.phi(step.tiles_tp1)
        if self.is_first:
            self.engine.begin(phi)
            self.is_first = False
        values = self.engine.action_values(0, phi)
        is_best = values == values.max()
        rho = is_best[step.action] / is_best.sum() / step.b
        numbers = (rho, step.gamma_tp1, step.lam_tp1, step.c_tp1, step.z_tp1, step.b)
        self.engine.learn(
            phi_tp1, Signals(*(np.full(1, x) for x in numbers), action_t=np.array([step.action]))
        )


@pytest.mark.parametrize("entry", FINDING)
def test_a_control_rule_gives_the_known_answers_in_every_setting(entry: str) -> None:
    """Eleven settings of behaviour, lambda and state-dependent gamma, with episode ends, outcomes and ties."""
    assert golden().check(ControlDemon, rules=[entry], tolerance=1e-9)[entry] < 1e-9


def predictions() -> list[GVF]:
    policies = [ConstantAction(1, N_ACTIONS), Uniform(N_ACTIONS), Behaviour()]
    return [GVF(f"{i}", policy, Channel(i % 2), 0.8) for i, policy in enumerate(policies)]


def seek(name: str = "seek", algorithm: str | None = None, channel: int = 0, **more: Any) -> GVF:
    return GVF(name, Greedy(N_ACTIONS), Channel(channel), 0.9, algorithm=algorithm, **more)


def new_horde(questions: list[GVF], **config: Any) -> Horde:
    learner = LearnerConfig.paper(**{"dtype": "float64", "mspbe_tau": 50.0} | config)
    return Horde(questions, n_features=N, n_active=N_ACTIVE, config=learner)


class Slow(DenseControl):
    """The slow twin of `seek`, with the methods of a Horde."""

    def __init__(self, rule: str) -> None:
        alpha = 0.1 / N_ACTIVE
        update_rule = rules.rule(rule)
        beta = getattr(update_rule.parameters(), "beta", 0.0)
        super().__init__(
            rule, N_ACTIONS, N, alpha, update_rule.SECONDARY_RATIO * alpha, beta=beta, rho_max=1.0
        )

    def begin(self, _seen: Any, tiles: NDArray[np.int64]) -> None:  # type: ignore[override]
        super().begin(binary(tiles, N))

    def learn(  # type: ignore[override]
        self, action: int, b: float, seen: Any, tiles: NDArray[np.int64], *, terminated: bool
    ) -> None:
        super().learn(action, b, binary(tiles, N), 0.0 if terminated else 0.9, 0.9, seen[0], 0.0)


@pytest.mark.parametrize("rule", FINDING)
def test_control_demons_learn_as_the_slow_twin_beside_predictions_that_stay_the_same(
    rule: str,
) -> None:
    """In one Horde, with gaps and ends: the predictions' weights are those of a Horde without control, to the bit."""
    questions = predictions()
    slow = Slow(rule)
    mixed = new_horde([questions[0], seek(algorithm=rule), *questions[1:]])
    alone = new_horde(questions)
    life = RandomLife(mixed, alone, slow, p_break=0.1)
    life.run(300)
    theta, w = mixed.weights(np.array([1]))
    np.testing.assert_allclose(theta[0].reshape(N_ACTIONS, N), slow.theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(w[0].reshape(N_ACTIONS, N), slow.w, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(mixed.weights(np.array([0, 2, 3])), alone.weights())
    np.testing.assert_allclose(mixed.td_error[1], slow.delta, rtol=0, atol=1e-12)
    last = life.state[1]
    assert mixed.predict(last)[1] == mixed.action_values("seek", last).max()
    with pytest.raises(ValueError, match="weights for each action"):
        mixed.weights()
    assert mixed.weights_sha256() != alone.weights_sha256()


def test_actions_of_the_same_value_share_what_is_learned_of_the_next_state() -> None:
    """Three states, two actions, alpha = alpha_w = .5, gamma .8, lambda .5, first a signal of 1.

    w of the first pair is then .5, so that w.e of the second step is .8 .5 .5 = .2; its correction,
    .5 .8 (1 - .5) .2 = .04, belongs to pb of the third state: .02 for each action, not .04.
    """
    config = LearnerConfig.paper(
        algorithm="greedy_gq", step_size=0.5, secondary_ratio=1.0, dtype="float64"
    )
    question = GVF("seek", Greedy(2), Channel(0), 0.8, lam=0.5)
    horde = Horde([question], n_features=3, n_active=1, config=config)
    horde.begin(np.zeros(1), np.array([0]))
    horde.learn(0, 0.5, np.ones(1), np.array([1]))
    horde.learn(0, 0.5, np.zeros(1), np.array([2]))
    np.testing.assert_allclose(horde.action_values("seek", np.array([0])), [0.5, 0.0], atol=1e-15)
    values = horde.action_values("seek", np.array([2]))
    np.testing.assert_allclose(values, [-0.02, -0.02], rtol=1e-12)


def test_rules_that_are_the_same_under_some_parameters_learn_the_same_weights() -> None:
    """Beta = 0 is Greedy-GQ; at lambda = 0 the two rules called QRC are one."""

    def theta(algorithm: str, lam: float, **parameters: float) -> Any:
        config = {"algorithm": algorithm, "parameters": parameters, "secondary_ratio": 0.5}
        horde = new_horde([seek(lam=lam)], **config)
        RandomLife(horde, p_break=0.1).run(200)
        return horde.weights()[0]

    np.testing.assert_array_equal(theta("qrc", 0.9, beta=0.0), theta("greedy_gq", 0.9))
    np.testing.assert_allclose(theta("qrc", 0.0), theta("qrc_2025", 0.0), rtol=0, atol=1e-14)


@pytest.mark.parametrize("n_equal", [2, 3])
def test_greedy_gq_gives_the_known_answers_where_actions_have_equal_values(n_equal: int) -> None:
    """The step of theta is alpha (delta e - gamma (1 - lambda) (e.w) pb), pb = sum_a pi(a) phi(s', a).

    Two steps from state 0 by action 0 move w there. In the second one the state reached is new: its
    actions have the value 0, but for one that is worth less if two are equal. Each equal one gets
    its share of the correction.
    """
    alpha = 0.5
    alpha_w = 0.25
    gamma = 0.9
    lam = 0.4
    engine = PlainEngine(
        ONE,
        3,
        alpha,
        alpha_w,
        LearnerConfig.paper(algorithm="greedy_gq", dtype="float64"),
        n_actions=3,
    )
    theta = np.zeros((3, 3))
    if n_equal == 2:
        theta[1, 2] = -1.0
    engine.reset_weights(theta.reshape(1, -1))

    def step(tile: int, cumulant: float, next_gamma: float) -> None:
        numbers = (1.0, next_gamma, lam, cumulant, 0.0, 1.0)
        engine.learn(
            np.array([tile]), Signals(*(np.full(1, x) for x in numbers), action_t=np.array([0]))
        )

    engine.begin(np.array([0]))
    step(1, cumulant=1.0, next_gamma=0.0)  # theta(0, 0) = alpha, w(0, 0) = alpha_w
    engine.begin(np.array([0]))
    weights = engine.rows("theta")[0].reshape(3, 3)
    step(2, cumulant=1.0, next_gamma=gamma)
    change = engine.rows("theta")[0].reshape(3, 3) - weights
    correction = -alpha * gamma * (1.0 - lam) * alpha_w  # e.w = w(0, 0)
    expected = np.full(3, correction / n_equal)
    if n_equal == 2:
        expected[1] = 0.0
    np.testing.assert_allclose(change[:, 2], expected, rtol=1e-12)
    assert change[0, 0] == pytest.approx(alpha * (1.0 - alpha))


N_STATES = 6
GOAL = 5


def corridor(horde: Horde, n_steps: int) -> None:
    """Act at random in six states: action 1 goes right, 0 left; channel 0 is 1 at the end, then it restarts."""
    rng = np.random.default_rng(0)
    s = 0

    def arrival(s: int) -> tuple[Any, Any]:
        # One tile per state, and one always active
        return np.array([float(s == GOAL)]), np.array([s, N_STATES])

    horde.begin(*arrival(s))
    for _ in range(n_steps):
        action = int(rng.integers(3))
        s = int(np.clip(s + (-1, 1, 0)[action], 0, GOAL))
        horde.learn(action, 1 / 3, *arrival(s), terminated=s == GOAL)
        if s == GOAL:
            s = 0
            horde.begin(*arrival(s))


@pytest.mark.parametrize("rule", FINDING)
def test_the_policy_found_off_policy_is_the_best_one_and_others_predict_what_follows_from_it(
    rule: str,
) -> None:
    """From random actions: values .9^(k - 1), k steps from the end, and the discounted number of steps under it."""
    questions = [
        GVF(
            "steps",
            Greedy(3, "find"),
            lambda observation, tiles: 1.0,
            0.9,
            lam=0.0,
            algorithm="gtd",
        ),
        GVF("find", Greedy(3), Channel(0), 0.9, lam=0.0),
    ]
    config = LearnerConfig.paper(algorithm=rule, step_size=0.5, dtype="float64")
    horde = Horde(questions, n_features=N_STATES + 1, n_active=2, config=config)
    corridor(horde, 5_000)
    states = [np.array([s, N_STATES]) for s in range(GOAL)]
    best_actions = [int(horde.action_values("find", tiles).argmax()) for tiles in states]
    assert best_actions == [1] * GOAL
    values = [horde.predict(tiles) for tiles in states]
    n_steps = np.arange(GOAL, 0, -1.0)
    np.testing.assert_allclose([v[1] for v in values], 0.9 ** (n_steps - 1), atol=0.03)
    np.testing.assert_allclose([v[0] for v in values], (1 - 0.9**n_steps) / 0.1, atol=0.1)


def test_the_ratio_of_a_found_policy_is_that_of_the_weights_at_the_time_and_ties_share_it() -> None:
    """At first every action is best and rho = (1/3)/b; then it is 1/b or 0 by the old weights' values."""
    horde = new_horde([about(Greedy(N_ACTIONS, "seek")), seek()])
    life = RandomLife(horde)
    for t in range(40):
        action_values = horde.action_values("seek", life.state[1])
        pi = (action_values == action_values.max()) / (action_values == action_values.max()).sum()
        life.run(1)
        expected = pi[life.action] / life.b
        np.testing.assert_allclose(horde.rho, [expected, expected], rtol=1e-15)
        assert t or expected == pytest.approx(1.0)


def test_added_control_demons_learn_as_in_a_horde_that_begins_then() -> None:
    """With the plain engine to the bit; those that were there continue to the bit."""
    grown, alone = (new_horde(predictions(), engine="plain") for _ in range(2))
    life = RandomLife(grown, alone, p_break=0.1)
    life.run(80)
    grown.add([seek()])
    late = new_horde([seek()])
    for horde in (grown, alone, late):
        horde.begin(*life.state)
    life.hordes = (grown, alone, late)
    life.run(120)
    np.testing.assert_array_equal(grown.weights(np.array([3])), late.weights())
    np.testing.assert_array_equal(grown.weights(np.arange(3)), alone.weights())


def test_a_diverging_control_demon_and_those_about_its_policy_are_set_aside_and_the_others_continue_to_the_bit() -> (
    None
):
    """Its policy is then uniform, so a behaviour that follows it continues."""
    steps = iter(range(10_000))

    def explodes(observation: Any, tiles: Any) -> float:
        if next(steps) == 60:
            return 1e200
        return 1.0

    bad = GVF("bad", Greedy(N_ACTIONS), explodes, 0.9)
    about_bad = GVF("about bad", Greedy(N_ACTIONS, "bad"), Channel(0), 0.5)
    horde = new_horde([bad, about_bad, *predictions(), seek()])
    twin = new_horde([*predictions(), seek()])
    life = RandomLife(horde, twin, p_break=0.1)
    life.run(200)
    assert set(horde.diverged) == {"bad", "about bad"}
    assert "'bad'" in horde.divergence_reason["about bad"]
    np.testing.assert_array_equal(
        horde.weights(np.array([2, 3, 4])), twin.weights(np.array([0, 1, 2]))
    )
    np.testing.assert_array_equal(horde.weights(np.array([5])), twin.weights(np.array([3])))
    policy = horde.questions[1].target_policy
    np.testing.assert_allclose(policy.probabilities(*life.state), 1 / N_ACTIONS)


def about(policy: Any) -> GVF:
    """Return a question about a policy that another one finds."""
    return GVF("about", policy, Channel(0), 0.5)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: new_horde([about(Greedy(3, "lamp"))]), "'about'.*'lamp'"),
        (lambda: new_horde([*predictions(), about(Greedy(3, "0"))]), "'about'.*'0'"),
        (lambda: new_horde([seek(algorithm="gtd")]), "'seek'.*'gtd' finds no policies"),
        (lambda: new_horde(predictions(), algorithm="qrc"), r"'0'.*'qrc'.*Greedy\(n_actions\)"),
        (lambda: new_horde([seek(algorithm="sarsa")]), "'seek'.*algorithm.*'sarsa'"),
        (lambda: new_horde([*predictions(), GVF("f", Greedy(2), Channel(0), 0.9)]), "actions"),
        (lambda: Greedy(0), "n_actions"),
        (lambda: Greedy(3, 5), "of must"),  # type: ignore[arg-type]
        (lambda: LearnerConfig.paper(algorithm="qrc", parameters={"beta": -1.0}), "'qrc'.*beta"),
        (lambda: LearnerConfig.paper(algorithm="qrc", w_rule="importance-weighted"), "w_rule"),
        (lambda: new_horde([about(Greedy(3, "seek")), seek()]).remove(["seek"]), "'about'.*'seek'"),
        (lambda: new_horde([*predictions(), seek()]).action_values("0", np.arange(4)), "'0'.*seek"),
        (lambda: new_horde([seek()]).new_rupee(0.01), "RUPEE"),
    ],
)
def test_invalid_input_is_refused_by_name(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_a_policy_without_a_horde_has_no_values() -> None:
    with pytest.raises(RuntimeError, match="seek"):
        Greedy(3, "seek").probabilities(np.zeros(1), np.arange(4))


LEARN = "learn --physics planar --excursion-probability 0.05 --horizon 12 --seed 1 --snapshot-every never --questions"


def test_a_life_that_follows_a_found_policy_records_the_true_b_and_resumes_to_the_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epsilon-greedy with epsilon 0.3: b is 0.06, plus 0.7 shared by the best actions."""
    # On one thread, whose kernel other tests compile
    monkeypatch.setattr(plain, "SMALLEST_SHARED_WORK", 10**9)
    (tmp_path / "q.toml").write_text(CONTROL)
    command = f"{LEARN} {tmp_path}/q.toml --behaviour greedy:lamp --epsilon 0.3"
    assert commands.horde(f"{command} --steps 400 --out {tmp_path}/whole") == 0
    assert commands.horde(f"{command} --steps 250 --out {tmp_path}/parts") == 0
    assert commands.horde(f"resume {tmp_path}/parts --steps 400") == 0
    whole, parts = (summary_of(tmp_path / run) for run in ("whole", "parts"))
    assert parts["weights_sha256"] == whole["weights_sha256"]
    assert whole["n_questions"] == 3
    assert not whole["diverged"]
    rows = read(tmp_path / "whole" / "log" / "life.rec").rows
    b = rows["b"][rows["phase"] == Phase.BEHAVE]
    shares = [
        0.0,
        *(0.7 / n_best for n_best in range(1, 6)),
    ]  # of the best actions; their values are equal at first
    assert np.isclose(b[:, None], 0.06 + np.array(shares)).any(axis=1).all()
    assert (b > 0.7).mean() > 0.4
    assert commands.horde(f"resume {tmp_path}/parts --steps 470 --remove lamp") == 2
    assert "the robot's behaviour is greedy:lamp" in " ".join(capsys.readouterr().err.split())
    replay = f"learn --backend replay --log {tmp_path}/whole --questions {tmp_path}/q.toml"
    assert commands.horde(f"{replay} --out {tmp_path}/again") == 0
    assert summary_of(tmp_path / "again")["weights_sha256"] == whole["weights_sha256"]


# ---- several rules in one Horde -----------------------------------------------------------------------------------


def uneven(name: str, algorithm: str, policy: Any, scale: float, **more: Any) -> GVF:
    """Return a question whose outcome depends on the state, with a signal of another size than those of others."""
    return ask(
        name,
        policy,
        lambda observation, _: scale * observation[0],
        0.9,
        outcome=lambda observation, _: scale * (observation[1] - 0.5),
        algorithm=algorithm,
        **more,
    )


def questions_of_rules(first: str, second: str) -> dict[str, list[GVF]]:
    """Return three questions of each rule; the second one of the second rule diverges with large steps."""
    interest = {}
    if rules.rule(second).HAS_INTEREST:
        interest = {"interest": lambda observation, _: 2.0 * observation[2]}
    constant = ConstantAction(1, N_ACTIONS)
    return {
        first: [uneven(f"{first} {k}", first, BEHAVIOUR, 1_000.0 + k) for k in range(3)],
        second: [
            uneven(f"{second} 0", second, BEHAVIOUR, 1.0, **interest),
            uneven(f"{second} 1", second, constant, 1.0, lam=1.0, **interest),
            uneven(f"{second} 2", second, BEHAVIOUR, 2.0, **interest),
        ],
    }


MIXED = [
    pytest.param("td", "etd", "plain", "eager", 0.2),
    pytest.param("gtd", "tdrc", "auto", "eager", 0.5),
    pytest.param("gtd", "tdrc", "auto", "deferred", 0.5),
]


@pytest.mark.parametrize(("first", "second", "engine", "mode", "step_size"), MIXED)
def test_several_rules_in_one_horde_learn_what_each_learns_alone_to_the_bit(
    first: str, second: str, engine: str, mode: Any, step_size: float
) -> None:
    """Outcomes and interests change with the state; one demon diverges, which is not the first of its rule.

    The signals of the first rule are a thousand times as large, and so are the bounds of its weights: with
    these the other rule's demon would diverge later. Another question of each rule is added in between, so
    that averages have different ages.
    """
    by_rule = questions_of_rules(first, second)
    settings: Any = {
        "engine": engine,
        "mode": mode,
        "average": 100.0,
        "check_every": 1,
        "algorithm": second,
        "step_size": step_size,
        "trace_rule": "plain",
    }
    together = make([*by_rule[first], *by_rule[second]], **settings)
    alone = [make(questions, **settings) for questions in by_rule.values()]
    life = RandomLife(together, *alone, p_break=0.02)
    life.run(150)
    late = [uneven(f"late {rule}", rule, BEHAVIOUR, 3.0) for rule in (first, second)]
    together.add(late)
    for horde, question in zip(alone, late, strict=True):
        horde.add([question])
    life.run(450)
    demons = [np.array([0, 1, 2, 6]), np.array([3, 4, 5, 7])]
    reasons: dict[str, str] = {}
    for horde, of_rule in zip(alone, demons, strict=True):
        np.testing.assert_array_equal(together.weights(of_rule), horde.weights())
        averaged = together.averaged_weights(of_rule)
        np.testing.assert_array_equal(averaged, horde.averaged_weights())
        np.testing.assert_array_equal(together.predictions[of_rule], horde.predictions)
        np.testing.assert_array_equal(together.td_error[of_rule], horde.td_error)
        np.testing.assert_array_equal(together.mspbe_scalar[of_rule], horde.mspbe_scalar)
        reasons |= horde.divergence_reason
    assert together.divergence_reason == reasons
    assert list(reasons) == [f"{second} 1"]
    assert "above their bound" in reasons[f"{second} 1"]
