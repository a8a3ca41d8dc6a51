"""The course: solutions are right, exercises are the solutions with gaps, and checkers name the usual mistakes."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Behaviour, Channel, ConstantAction, Uniform
from horde_agent.learning import plain

COURSE = Path(__file__).resolve().parents[1] / "examples" / "course"
SOLUTIONS = sorted((COURSE / "solutions").glob("*.py"))
CHECKER = runpy.run_path(str(COURSE / "check.py"))
findings = CHECKER["findings"]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels compile faster."""
    monkeypatch.setattr(plain, "SMALLEST_SHARED_WORK", 10**9)


@cache
def solution(number: int) -> dict[str, Any]:
    return runpy.run_path(str(SOLUTIONS[number - 1]))


@cache
def learned_once(number: int) -> Any:
    """Return what the solutions of exercises 5 and 6 learn, which takes seconds."""
    answers = solution(number)
    if number == 5:
        return answers["learn"]()
    interface = answers["with_the_last_prediction"](answers["interface_of_the_ring"]())
    return answers["learned"](interface, 6_000)


def with_mistake(number: int, **mistakes: Any) -> list[str]:
    """Return what the checker says of a solution in which some answers are wrong."""
    answers = {**solution(number), **mistakes}
    if number == 5:
        answers["learn"] = lambda: learned_once(5)
    if number == 6:
        answers["learned"] = lambda interface, n_steps: learned_once(6)
    return findings(number, answers, seed=0)


def test_there_are_six_exercises_each_with_a_page_and_a_checker() -> None:
    assert [path.name[:2] for path in SOLUTIONS] == ["1_", "2_", "3_", "4_", "5_", "6_"]
    assert sorted(CHECKER["CHECKS"]) == [1, 2, 3, 4, 5, 6]
    for path in SOLUTIONS:
        assert (COURSE / f"{path.stem}.md").is_file()
        assert f"({path.stem}.md)" in (COURSE / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_an_exercise_is_its_solution_with_gaps(path: Path) -> None:
    """`python examples/course/gaps.py` writes it; the answers are not in it."""
    text = runpy.run_path(str(COURSE / "gaps.py"))["with_gaps"](path.read_text(encoding="utf-8"))
    assert (COURSE / path.name).read_text(encoding="utf-8") == text
    assert text.count("raise NotImplementedError") == path.read_text().count("# gap") >= 2
    assert "# end" not in text


@pytest.mark.parametrize("number", range(1, 7))
def test_the_solution_is_right(number: int) -> None:
    assert with_mistake(number) == []


@pytest.mark.parametrize("number", range(1, 7))
def test_an_exercise_that_nobody_began_lists_its_gaps(number: int) -> None:
    (path,) = COURSE.glob(f"{number}_*.py")
    sentences = findings(number, runpy.run_path(str(path)))
    assert len(sentences) == path.read_text(encoding="utf-8").count("# YOUR CODE")
    assert all(sentence.endswith(": not written yet") for sentence in sentences)


def from_now(cumulants: np.ndarray, gamma: float) -> np.ndarray:
    """The usual mistake: the sum begins with what is sensed now."""
    return solution(1)["returns"](np.concatenate([[0.0], cumulants]), gamma)[: len(cumulants) - 1]


def td_with_gamma_alone(weights: Any, trace: Any, *step: Any, lam: float, **numbers: float) -> Any:
    return solution(1)["td_lambda"](weights, trace, *step, lam=1.0, **numbers)


def td_in_place(weights: Any, trace: Any, *step: Any, **numbers: float) -> Any:
    new_weights, new_trace = solution(1)["td_lambda"](weights, trace, *step, **numbers)
    weights[:] = new_weights
    return weights, new_trace


def weighted_mean(actions: Any, rewards: Any, target: Any, behaviour: Any) -> float:
    ratios = target[actions] / behaviour[actions]
    return float(ratios @ rewards / ratios.sum())


def gtd_without_correction(theta: Any, w: Any, *step: Any) -> Any:
    _, new_w = solution(3)["gtd"](theta, w, *step)
    return solution(3)["gtd"](theta, 0.0 * w, *step)[0], new_w


def gtd_with_the_new_w(theta: Any, w: Any, *step: Any) -> Any:
    _, new_w = solution(3)["gtd"](theta, w, *step)
    return solution(3)["gtd"](theta, new_w, *step)[0], new_w


def count_without_end(interface: Any) -> GVF:
    right = solution(4)["steps_to_the_wall"](interface)
    return GVF(right.name, right.target_policy, right.cumulant, continuation=0.95)


def count_turned_round(interface: Any) -> GVF:
    right = solution(4)["steps_to_the_wall"](interface)

    def ends(observation: Any, tiles: Any) -> float:
        return 0.95 - right.continuation(observation, tiles)

    return GVF(right.name, right.target_policy, right.cumulant, continuation=ends)


def light_by_behaviour(interface: Any) -> GVF:
    return GVF("light", Behaviour(), Channel(interface.index("light_0")), continuation=0.9)


def light_over_two(interface: Any) -> GVF:
    policy = ConstantAction(interface.actions.index("rotate_clockwise"), 5)
    return GVF("light", policy, Channel(interface.index("light_0")), continuation=0.5)


def light_at_random(interface: Any) -> GVF:
    return GVF("light", Uniform(5), Channel(interface.index("light_0")), continuation=0.9)


def excursion_with_the_first_light(place: int, policy: Any, n: int, gamma: float, rng: Any) -> Any:
    light = solution(5)["light"](place)
    return light + gamma * solution(5)["excursion"](place, policy, n - 1, gamma, rng)


def greedy_excursion(place: int, policy: Any, n: int, gamma: float, rng: Any) -> Any:
    def certain(place: int) -> np.ndarray:
        return np.eye(3)[np.argmax(policy(place))]

    return solution(5)["excursion"](place, certain, n, gamma, rng)


MISTAKES: list[tuple[int, str, Callable[..., Any], str]] = [
    (1, "returns", from_now, "the first cumulant that counts is C_{t+1}"),
    (1, "returns", lambda c, gamma: solution(1)["returns"](c, 1.0), "are not discounted"),
    (1, "returns", lambda c, gamma: c, r"expected the shape (6,), got (7,)"),
    (1, "td_lambda", td_with_gamma_alone, "it decays by gamma alone"),
    (1, "td_lambda", td_in_place, "the arrays that were given have changed"),
    (1, "td_lambda", lambda *step, **numbers: step[0], "return two arrays"),
    (2, "ratio", lambda a, pi, b: b[a] / pi[a], "upside down"),
    (2, "ratio", lambda a, pi, b: "pi / b", "expected numbers, got 'pi / b'"),
    (2, "ratio", lambda a, pi, b: 1 / 0, "ZeroDivisionError"),
    (2, "mean_reward", weighted_mean, "weighted importance sampling"),
    (2, "mean_reward", lambda a, rewards, pi, b: rewards.mean(), "the behaviour's mean"),
    (
        2,
        "what_a_demon_learns",
        lambda pi, true_b, b, rewards, gamma: pi @ rewards / (1 - gamma),
        "as if the reported b were the true one",
    ),
    (
        2,
        "what_a_demon_learns",
        lambda pi, true_b, b, rewards, gamma: true_b @ (pi / b * rewards) / (1 - gamma),
        "divide by the mean of rho",
    ),
    (
        3,
        "td",
        lambda w, x, y, rho, *rest, **named: solution(3)["td"](w, x, y, 1.0, *rest, **named),
        "rho is missing",
    ),
    (3, "gtd", gtd_without_correction, "this is TD, which diverges"),
    (3, "gtd", gtd_with_the_new_w, "it uses the new w"),
    (4, "light_if_it_turned", light_by_behaviour, "about the behaviour itself"),
    (4, "light_if_it_turned", light_over_two, "it reaches 2.0 steps"),
    (4, "light_if_it_turned", light_at_random, "with probability 0.20"),
    (4, "steps_to_the_wall", count_without_end, "so the continuation is a function"),
    (4, "steps_to_the_wall", count_turned_round, "yours is turned round"),
    (5, "question", lambda: GVF("lamp", Uniform(3), Channel(0), 0.9), "lets the demon find it"),
    (5, "excursion", excursion_with_the_first_light, "where it begins counts too"),
    (5, "excursion", greedy_excursion, "draw the action"),
    (5, "mean_and_error", lambda m: (m.mean(), m.std(ddof=1)), "by the root of n"),
    (6, "true_values", lambda: 0.8 ** (5 - np.arange(6.0)), "every sixth step brings another"),
    (6, "with_the_last_prediction", lambda interface: interface, "nothing is fed back"),
    (
        6,
        "share_unexplained",
        lambda p, v: float(np.mean((p - v) ** 2)),
        "not divided by the variance",
    ),
]


@pytest.mark.parametrize(("number", "name", "mistake", "why"), MISTAKES)
def test_the_checker_says_which_mistake_it_is(
    number: int, name: str, mistake: Callable[..., Any], why: str
) -> None:
    assert any(why in sentence for sentence in with_mistake(number, **{name: mistake}))


def test_the_answers_of_a_fixed_seed_fail_with_others() -> None:
    """Numbers are drawn anew each time: copying those of one run does not help."""
    seen: list[np.ndarray] = []

    def remember(cumulants: np.ndarray, gamma: float) -> np.ndarray:
        seen.append(solution(1)["returns"](cumulants, gamma))
        return seen[-1]

    answers = {**solution(1), "returns": remember}
    assert findings(1, answers) == []
    copied = {**solution(1), "returns": lambda cumulants, gamma: seen[0]}
    assert len(findings(1, copied)) == 1


@pytest.mark.parametrize(
    ("number", "prints"),
    [
        (1, "place 5: predicted 1.355, measured 1.355"),
        (3, "step  2000: |theta| by TD   1.98e+03, by GTD     4.55"),
        (6, "and the last prediction: 0 % of the variance is unexplained"),
    ],
)
def test_a_solution_prints_what_its_page_promises(
    number: int, prints: str, capsys: pytest.CaptureFixture[str]
) -> None:
    solution(number)["main"]()
    assert prints in capsys.readouterr().out


def test_what_a_horde_learns_with_a_wrong_b_is_what_the_formula_says() -> None:
    """1.6, where the true b gives 1."""
    learned = solution(2)["learned_by_a_horde"](np.array([0.5, 0.5]))
    assert learned == pytest.approx(1.6, abs=0.05)


def test_the_policy_found_is_better_than_chance(capsys: pytest.CaptureFixture[str]) -> None:
    solution(5)["main"]()
    learned, random = (
        [float(word) for word in line.split() if word[0].isdigit()]
        for line in capsys.readouterr().out.splitlines()
    )
    assert learned[0] - random[0] > 4 * (learned[1] + random[1])


@pytest.mark.sim
def test_the_robot_answers_both_questions(capsys: pytest.CaptureFixture[str]) -> None:
    solution(4)["main"](250)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "light if it turned",
        "steps to the wall",
    ]


def test_the_command_prints_its_findings(capsys: pytest.CaptureFixture[str]) -> None:
    main = CHECKER["main"]
    assert main(["1", str(SOLUTIONS[0])]) == 0
    assert capsys.readouterr().out == "exercise 1: all right\n"
    assert main(["1"]) == 1
    assert "- returns: not written yet\n" in capsys.readouterr().out
    assert main(["7"]) == 2
