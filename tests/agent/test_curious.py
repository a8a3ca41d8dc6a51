"""A curious behaviour: b of its actions, what its drives are drawn by, its state, and its commands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel, variance_of
from horde_agent.life.curious import CuriousBehaviour, OptionDrive, options_of
from horde_agent.policies import Behaviour, ConstantAction, Policy, Uniform
from horde_agent.record import Phase, read
from tests.agent import commands
from tests.agent.commands import QUESTIONS, summary_of

N_ACTIONS = 3
HERE: Any = (np.zeros(1), np.zeros(1, dtype=np.int64))
LEFT = ConstantAction(0, N_ACTIONS)
RIGHT = ConstantAction(1, N_ACTIONS)


class ScriptedHorde:
    """Demons whose latest ratios, TD errors and predictions the test sets."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self.questions = [
            GVF(f"q{number}", policy, Channel(0), 0.5, policy_name=f"policy {number}")
            for number, policy in enumerate(policies)
        ]
        self.n_demons = len(policies)
        self.n_active = 1
        self.rho = np.ones(self.n_demons)
        self.td_error = np.zeros(self.n_demons)
        self.answers = np.zeros(self.n_demons)
        self.predictions = np.zeros(self.n_demons)

    def predict(self, _tiles: Any, _observation: Any = None) -> np.ndarray:
        return self.answers.copy()


class Stream:
    """Passes learning steps of a scripted Horde to its drive."""

    def __init__(self, policies: Sequence[Policy], kind: str) -> None:
        self.horde = ScriptedHorde(policies)
        self.drive = OptionDrive(self.horde, kind)  # type: ignore[arg-type]
        self.n_steps = 0

    def learn(self, td_error: Any, rho: Any = 1.0) -> None:
        self.horde.td_error = np.asarray(td_error, dtype=np.float64)
        self.horde.rho = np.full(self.horde.n_demons, rho, dtype=np.float64)
        self.n_steps += 1
        life = SimpleNamespace(
            student=SimpleNamespace(learning_steps=self.n_steps),
            robot_stream=SimpleNamespace(tiles=HERE[1], observation=HERE[0]),
        )
        self.drive.after_step(SimpleNamespace(life=life))  # type: ignore[arg-type]


def behaviour_of(policies: Sequence[Policy], **options: Any) -> CuriousBehaviour:
    return CuriousBehaviour(Stream(policies, "alike").drive, N_ACTIONS, **options)


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


# ---- drives -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_noise_attracts_nothing_by_ude(scale: float) -> None:
    """White noise of any size beside a demon without error: the options stay about equally likely to a factor."""
    stream = Stream([LEFT, RIGHT], "ude")
    rng = np.random.default_rng(0)
    probabilities = []
    for step in range(6_000):
        stream.learn([scale * rng.normal(), rng.normal()])
        if step >= 1_000:
            probabilities.append(stream.drive.probabilities())
    np.testing.assert_allclose(np.mean(probabilities, axis=0), 0.5, atol=0.1)


def test_what_changed_attracts_by_ude_until_it_is_learned() -> None:
    """A mean error of one deviation for 300 steps, then none."""
    stream = Stream([LEFT, RIGHT], "ude")
    rng = np.random.default_rng(0)
    for _ in range(3_000):
        stream.learn(rng.normal(size=2))
    for _ in range(300):
        stream.learn([rng.normal(), rng.normal(1.0)])
    assert stream.drive.probabilities()[1] > 0.7
    probabilities = []
    for step in range(6_000):
        stream.learn(rng.normal(size=2))
        if step >= 1_000:
            probabilities.append(stream.drive.probabilities())
    np.testing.assert_allclose(np.mean(probabilities, axis=0), 0.5, atol=0.15)


@pytest.mark.parametrize(("n_before", "drive"), [(1e5, 0.0), (1e9, 0.1)])
def test_noise_that_grew_attracts_nothing_for_long_at_any_age(
    n_before: float, drive: float
) -> None:
    """A hundred times as large since 4,000 steps; with the deviation of all 10^9 steps the drive would stay 1."""
    stream = Stream([LEFT, RIGHT], "ude")
    stream.learn([1.0, 1.0])
    older = {"_n": np.full(2, n_before), "_square": np.full(2, n_before)}
    stream.drive.restore(stream.drive.state() | older)
    rng = np.random.default_rng(0)
    drives = []
    for step in range(4_000):
        stream.learn(100.0 * rng.normal(size=2))
        if step >= 3_000:
            drives.append(stream.drive.of_demons())
    assert np.mean(drives) == pytest.approx(drive, abs=0.1)


def test_what_is_not_followed_is_not_forgotten() -> None:
    stream = Stream([LEFT, RIGHT], "ude")
    rng = np.random.default_rng(0)
    for _ in range(500):
        stream.learn([rng.normal(), rng.normal(1.0)])
    drive_before = stream.drive.of_demons()
    for _ in range(500):
        stream.learn(rng.normal(size=2), rho=[1.0, 0.0])
    drive_after = stream.drive.of_demons()
    assert drive_after[1] == drive_before[1]
    assert drive_after[0] != drive_before[0]


def test_the_change_of_predictions_is_a_drive() -> None:
    stream = Stream([LEFT, RIGHT], "change")
    rng = np.random.default_rng(0)
    for step in range(1_000):
        stream.horde.answers = np.array([1.0, 0.001 * step])
        stream.learn(rng.normal(size=2))
    probabilities = stream.drive.probabilities()
    assert probabilities[1] == pytest.approx(0.75)
    assert probabilities.sum() == pytest.approx(1.0)


def test_a_variance_here_above_that_elsewhere_is_a_drive() -> None:
    """V = 8 here and 1 elsewhere; noise has V = 100 everywhere. Questions without a variance do not count."""
    horde = ScriptedHorde([LEFT, RIGHT])
    horde.questions = [q for one in horde.questions for q in (one, variance_of(one))]
    horde.n_demons = 4
    drive = OptionDrive(horde, "variance")  # type: ignore[arg-type]
    horde.rho = np.ones(4)
    horde.td_error = np.ones(4)
    student = SimpleNamespace(learning_steps=0)
    life = SimpleNamespace(student=student, robot_stream=SimpleNamespace(tiles=HERE[1]))
    for step in range(1_000):
        horde.predictions = np.array([500.0, 100.0, 0.0, 1.0 if step < 999 else 8.0])
        student.learning_steps += 1
        drive.after_step(SimpleNamespace(life=life))  # type: ignore[arg-type]
    left, right = drive.probabilities()
    share = (8 / 9.007) / (8 / 9.007 + 1 / 2)
    assert right == pytest.approx(0.25 + 0.5 * share, abs=0.001)
    assert left + right == pytest.approx(1.0)


def test_demons_of_an_option_share_its_drive_and_those_about_the_behaviour_have_none() -> None:
    stream = Stream([LEFT, RIGHT, RIGHT, RIGHT, Behaviour()], "ude")
    assert options_of(stream.horde.questions).names == ("policy 0", "policy 1")
    np.testing.assert_allclose(stream.drive.probabilities(), 0.5)


def test_options_come_and_go_with_their_questions() -> None:
    """The followed option goes on under its new number; a removed one ends."""
    stream = Stream([LEFT, RIGHT], "ude")
    behaviour = CuriousBehaviour(stream.drive, N_ACTIONS, epsilon=0.0)
    rng = np.random.default_rng(0)
    while behaviour.draw(rng, *HERE)[0] != 1:
        pass
    n_right = int(behaviour.n_followed[1])
    horde = stream.horde
    horde.questions = horde.questions[1:]
    horde.n_demons = 1
    stream.drive.rearrange(np.array([1]))
    assert behaviour.option_names == ["policy 1", "random"]
    assert behaviour.n_followed[0] == n_right
    assert behaviour.draw(rng, *HERE) == (1, 1.0)
    horde.questions = [GVF("new", Behaviour(), Channel(0), 0.5)]
    stream.drive.rearrange(np.array([-1]))
    assert behaviour.draw(rng, *HERE)[1] == pytest.approx(2 / 3, abs=0.51)
    assert behaviour.option_names == ["random"]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: Stream([LEFT], "fear"),
            "unknown drive 'fear': choose ude, change, variance, alike",
        ),
        (lambda: Stream([Behaviour()], "ude"), "all questions are about the behaviour itself"),
        (
            lambda: Stream([Uniform(3), *(ConstantAction(k, 100) for k in range(65))], "ude"),
            "at most 64 target policies, but the questions are about 66",
        ),
        (lambda: behaviour_of([LEFT], epsilon=1.5), "epsilon must be in"),
        (lambda: Stream([LEFT], "variance"), "needs questions about variances of returns"),
    ],
)
def test_invalid_input_is_refused(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


# ---- commands ---------------------------------------------------------------------------------------------

LEARN = "learn --physics planar --excursion-probability 0.02 --horizon 12 --seed 1 --snapshot-every never --questions"


@pytest.mark.parametrize("words", ["curious --robots 2", "curious:change --epsilon 0.3"])
def test_a_curious_life_resumes_and_replays_to_the_bit(tmp_path: Path, words: str) -> None:
    (tmp_path / "q.toml").write_text(QUESTIONS)
    command = f"{LEARN} {tmp_path}/q.toml --behaviour {words}"
    assert commands.horde(f"{command} --steps 400 --out {tmp_path}/whole") == 0
    assert commands.horde(f"{command} --steps 250 --out {tmp_path}/parts") == 0
    assert commands.horde(f"resume {tmp_path}/parts --steps 400") == 0
    whole, parts = (summary_of(tmp_path / run) for run in ("whole", "parts"))
    assert parts["weights_sha256"] == whole["weights_sha256"]
    replay = f"learn --backend replay --log {tmp_path}/whole --questions {tmp_path}/q.toml"
    assert commands.horde(f"{replay} --out {tmp_path}/again") == 0
    assert summary_of(tmp_path / "again")["weights_sha256"] == whole["weights_sha256"]

    rows = read(tmp_path / "whole" / "log" / "life.rec").rows
    options = json.loads((tmp_path / "whole" / "details.json").read_text())["options"]
    n_behaved = np.count_nonzero(rows["phase"] == Phase.BEHAVE)
    assert sum(option["steps"] for option in options) == n_behaved
    assert [option["option"] for option in options] == ["forward", "stop", "uniform", "random"]
    assert sum(option["probability"] for option in options) == pytest.approx(1.0)
    report = (tmp_path / "whole" / "report.html").read_text()
    assert "What the robot did" in report
    resumed = json.loads((tmp_path / "parts" / "details.json").read_text())["options"]
    assert resumed == options


def test_a_curious_robot_keeps_an_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Questions can be removed, but not all of them about policies; those about variances drive it meanwhile."""
    families = """
    [[family]]
    policies = ["forward", "stop", "behaviour"]
    gammas = [0.5]
    channels = ["light_0"]
    variance = true
    """
    (tmp_path / "q.toml").write_text(families)
    command = f"{LEARN} {tmp_path}/q.toml --behaviour curious:variance"
    assert commands.horde(f"{command} --steps 150 --out {tmp_path}/run") == 0
    assert summary_of(tmp_path / "run")["n_questions"] == 6
    assert commands.horde(f"resume {tmp_path}/run --steps 200 --remove [fs]*") == 2
    assert "all questions are about the behaviour itself" in " ".join(
        capsys.readouterr().err.split()
    )
    assert commands.horde(f"resume {tmp_path}/run --steps 200 --remove forward*") == 0
    options = json.loads((tmp_path / "run" / "details.json").read_text())["options"]
    assert [option["option"] for option in options] == ["stop", "random"]
