"""A curious behaviour: b of its actions, the options that it follows, its state, and its commands."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel
from horde_agent.life.curious import CuriousBehaviour, options_of
from horde_agent.options.option import Option, StopAt
from horde_agent.policies import Behaviour, ConstantAction, Policy, Uniform
from horde_agent.questions import model_of
from horde_agent.record import Phase, read
from tests.agent import commands
from tests.agent.commands import OPTIONS, QUESTIONS, summary_of

N_ACTIONS = 3
HERE: Any = (np.zeros(1), np.zeros(1, dtype=np.int64))
LEFT = ConstantAction(0, N_ACTIONS)
RIGHT = ConstantAction(1, N_ACTIONS)


def questions_about(policies: Sequence[Policy]) -> tuple[GVF, ...]:
    return tuple(
        GVF(f"q{number}", policy, Channel(0), 0.5, policy_name=f"policy {number}")
        for number, policy in enumerate(policies)
    )


def behaviour_of(policies: Sequence[Policy], **options: Any) -> CuriousBehaviour:
    horde: Any = SimpleNamespace(questions=questions_about(policies))
    return CuriousBehaviour(horde, N_ACTIONS, **options)


# ---- b ----------------------------------------------------------------------------------------------------


def test_constant_actions_are_followed_on_policy_for_ten_steps_in_the_mean() -> None:
    """With b = 1, rho is 1 or 0. Half of the decisions draw the same of two options again: runs have 20 steps."""
    behaviour = behaviour_of([LEFT, RIGHT, LEFT], epsilon=0.0)
    rng = np.random.default_rng(0)
    draws = [behaviour.draw(rng, *HERE) for _ in range(20_000)]
    actions = np.array([action for action, _ in draws])
    assert {b for _, b in draws} == {1.0}
    assert set(actions) == {0, 1}
    n_runs = np.count_nonzero(np.diff(actions)) + 1
    assert 20_000 / n_runs == pytest.approx(20.0, rel=0.1)
    assert behaviour.n_followed.sum() == 20_000
    assert behaviour.n_followed[-1] == 0


def test_the_random_behaviour_is_an_option_with_its_own_b() -> None:
    """1/3 after a gap; then 2/3 for the last action and 1/6 for each other, whichever option took it."""
    behaviour = behaviour_of([LEFT], epsilon=1.0)
    rng = np.random.default_rng(0)
    draws = [behaviour.draw(rng, *HERE) for _ in range(2_000)]
    behaviour.forget()
    assert behaviour.draw(rng, *HERE)[1] == pytest.approx(1 / 3)
    repeats = [after[0] == before[0] for before, after in pairwise(draws)]
    expected = np.where(repeats, 2 / 3, 1 / 6)
    np.testing.assert_allclose([b for _, b in draws[1:]], expected)
    assert np.mean(repeats) == pytest.approx(2 / 3, abs=0.05)


def test_the_random_behaviour_repeats_the_last_action_of_any_option() -> None:
    """Half of the decisions are for it. b is 2/3 for the action before, 1/6 for another; after a gap 1/3.

    A random behaviour that did not see the actions of the options would give the first action of
    most of its turns 1/6 or 2/3 by its own last action.
    """
    behaviour = behaviour_of([LEFT, RIGHT], epsilon=0.5)
    rng = np.random.default_rng(0)
    n_turns = 0  # of the random behaviour, after an option
    previous_action, _ = behaviour.draw(rng, *HERE)
    was_random = False
    for _ in range(8_000):
        n_random = behaviour.n_followed[-1]
        action, b = behaviour.draw(rng, *HERE)
        is_random = behaviour.n_followed[-1] > n_random
        if is_random:
            assert b == pytest.approx(2 / 3 if action == previous_action else 1 / 6)
        else:
            assert b == 1.0
        n_turns += is_random and not was_random
        was_random = is_random
        previous_action = action
    assert n_turns > 100


def test_b_is_that_of_the_mixture_if_a_policy_is_stochastic() -> None:
    """Two options alike, beta 1/2. While "left" is followed b(left) is 1/2 + 1/4 + 1/12, else it is 1/12.

    While "uniform" is followed b(left) is 1/6 + 1/4 + 1/12. A b of the option alone would be 1 or 1/3.
    """
    behaviour = behaviour_of([LEFT, Uniform(N_ACTIONS)], epsilon=0.0)
    rng = np.random.default_rng(0)
    first_action, first_b = behaviour.draw(rng, *HERE)
    assert first_b == pytest.approx(2 / 3 if first_action == 0 else 1 / 6)
    draws = [behaviour.draw(rng, *HERE) for _ in range(4_000)]
    after_left = {0: 5 / 6, 1: 1 / 12, 2: 1 / 12}
    after_uniform = {0: 1 / 2, 1: 1 / 4, 2: 1 / 4}
    for action, b in draws:
        assert min(abs(b - after_left[action]), abs(b - after_uniform[action])) < 1e-12


@pytest.mark.parametrize("seed", [0, 1])
def test_b_is_the_share_of_the_draws_in_which_the_action_is_taken(seed: int) -> None:
    """From one history, 4,000 draws: each share agrees with b within four deviations."""
    behaviour = behaviour_of([LEFT, RIGHT, Uniform(N_ACTIONS)], epsilon=0.3)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        behaviour.draw(rng, *HERE)
    history = behaviour.state()
    counts = np.zeros(N_ACTIONS)
    b = np.full(N_ACTIONS, np.nan)
    for _ in range(4_000):
        behaviour.restore(history)
        action, b[action] = behaviour.draw(rng, *HERE)
        counts[action] += 1
    shares = counts / counts.sum()
    assert b.sum() == pytest.approx(1.0)
    assert (np.abs(shares - b) < 4.0 * np.sqrt(b * (1.0 - b) / counts.sum())).all()


# ---- options with a stopping rule --------------------------------------------------------------------------


def test_an_option_lasts_until_it_stops_and_b_is_its_policys() -> None:
    """Feature 9 stops "right". While that goes on b(right) is 1; at a stop it is .4, of a decision for one of two.

    "Uniform", the other, is a policy without a rule: it ends with probability 1/2, and b(right) is then
    1/2 x 1/3 + 1/2 x (.5 + .5 / 3). A b of the chosen option alone would be 1 or 1/3 at decisions, too.
    """
    option = Option("to nine", RIGHT, StopAt((9,)))
    horde: Any = SimpleNamespace(
        questions=(*model_of(option, [3, 9]), *questions_about([Uniform(N_ACTIONS)]))
    )
    behaviour = CuriousBehaviour(horde, N_ACTIONS, epsilon=0.0)
    assert behaviour.option_names == ["to nine", "policy 0", "random"]
    of_action = dict.fromkeys(range(N_ACTIONS), 0.5 / 3.0)
    of_action[1] += 0.5
    rng = np.random.default_rng(0)
    n_begun = 0
    for _ in range(400):
        behaviour.forget()
        action, b = behaviour.draw(rng, HERE[0], np.array([3]))
        assert b == pytest.approx(of_action[action])
        is_option = behaviour.n_followed[0] > n_begun
        n_begun = int(behaviour.n_followed[0])
        if not is_option:
            continue
        assert behaviour.draw(rng, HERE[0], np.array([4])) == (1, 1.0)
        action, b = behaviour.draw(rng, HERE[0], np.array([4, 9]))
        assert b == pytest.approx(of_action[action])
        n_begun = int(behaviour.n_followed[0])
    assert n_begun > 300


def test_the_questions_of_a_model_are_one_option_and_another_rule_makes_another() -> None:
    near = Option("near", RIGHT, StopAt((9,)))
    other_option = Option("far", RIGHT, StopAt((8,)))
    options = options_of(
        [*model_of(near, [3, 9]), *model_of(other_option, [3, 9]), *questions_about([RIGHT])]
    )
    assert options.names == ("near", "far", "policy 0")
    assert options.stops == (StopAt((9,)), StopAt((8,)), None)


def test_options_come_and_go_with_their_questions() -> None:
    """The followed option goes on under its new number; a removed one ends."""
    horde: Any = SimpleNamespace(questions=questions_about([LEFT, RIGHT]))
    behaviour = CuriousBehaviour(horde, N_ACTIONS, epsilon=0.0)
    rng = np.random.default_rng(0)
    while behaviour.draw(rng, *HERE)[0] != 1:
        pass
    n_right = int(behaviour.n_followed[1])
    horde.questions = horde.questions[1:]
    assert behaviour.option_names == ["policy 1", "random"]
    assert behaviour.n_followed[0] == n_right
    assert behaviour.draw(rng, *HERE) == (1, 1.0)
    horde.questions = (GVF("new", Behaviour(), Channel(0), 0.5),)
    assert behaviour.draw(rng, *HERE)[1] == pytest.approx(2 / 3, abs=0.51)
    assert behaviour.option_names == ["random"]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: behaviour_of([Behaviour()]), "all questions are about the behaviour itself"),
        (
            lambda: behaviour_of([Uniform(3), *(ConstantAction(k, 100) for k in range(65))]),
            "at most 64 target policies, but the questions are about 66",
        ),
        (lambda: behaviour_of([LEFT], epsilon=1.5), "epsilon must be in"),
    ],
)
def test_invalid_input_is_refused(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


# ---- commands ---------------------------------------------------------------------------------------------

LEARN = "learn --physics planar --excursion-probability 0.02 --horizon 12 --seed 1 --snapshot-every never --questions"


OF_QUESTIONS = ["forward", "stop", "uniform", "random"]


@pytest.mark.parametrize(
    ("questions", "words", "names"),
    [
        (QUESTIONS, "curious --robots 2", OF_QUESTIONS),
        (QUESTIONS, "curious --epsilon 0.3", OF_QUESTIONS),
        (OPTIONS, "curious --features fixed", ["to the wall", "turn", "random"]),
    ],
)
def test_a_curious_life_resumes_and_replays_to_the_bit(
    tmp_path: Path, questions: str, words: str, names: list[str]
) -> None:
    """Stopped after 240 steps, in the middle of an option with a stopping rule; forgotten, it would be another."""
    (tmp_path / "q.toml").write_text(questions)
    command = f"{LEARN} {tmp_path}/q.toml --behaviour {words}"
    assert commands.horde(f"{command} --steps 400 --out {tmp_path}/whole") == 0
    assert commands.horde(f"{command} --steps 240 --out {tmp_path}/parts") == 0
    assert commands.horde(f"resume {tmp_path}/parts --steps 400") == 0
    whole, parts = (summary_of(tmp_path / run) for run in ("whole", "parts"))
    assert parts["weights_sha256"] == whole["weights_sha256"]
    replay = f"learn --backend replay --log {tmp_path}/whole --questions {tmp_path}/q.toml"
    replay += "".join(re.findall(" --features .*", words))
    assert commands.horde(f"{replay} --out {tmp_path}/again") == 0
    assert summary_of(tmp_path / "again")["weights_sha256"] == whole["weights_sha256"]

    rows = read(tmp_path / "whole" / "log" / "life.rec").rows
    options = json.loads((tmp_path / "whole" / "details.json").read_text())["options"]
    n_behaved = np.count_nonzero(rows["phase"] == Phase.BEHAVE)
    assert sum(option["steps"] for option in options) == n_behaved
    assert all(option["steps"] > 0 for option in options)
    assert [option["option"] for option in options] == names
    assert sum(option["probability"] for option in options) == pytest.approx(1.0)
    report = (tmp_path / "whole" / "report.html").read_text()
    assert "What the robot did" in report
    resumed = json.loads((tmp_path / "parts" / "details.json").read_text())["options"]
    assert resumed == options


def test_a_curious_robot_keeps_an_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Questions can be removed, but not all of them about policies."""
    families = """
    [[family]]
    policies = ["forward", "stop", "behaviour"]
    gammas = [0.5]
    channels = ["light_0"]
    variance = true
    """
    (tmp_path / "q.toml").write_text(families)
    command = f"{LEARN} {tmp_path}/q.toml --behaviour curious"
    assert commands.horde(f"{command} --steps 150 --out {tmp_path}/run") == 0
    assert summary_of(tmp_path / "run")["n_questions"] == 6
    assert commands.horde(f"resume {tmp_path}/run --steps 200 --remove [fs]*") == 2
    assert "all questions are about the behaviour itself" in " ".join(
        capsys.readouterr().err.split()
    )
    assert commands.horde(f"resume {tmp_path}/run --steps 200 --remove forward*") == 0
    options = json.loads((tmp_path / "run" / "details.json").read_text())["options"]
    assert [option["option"] for option in options] == ["stop", "random"]
