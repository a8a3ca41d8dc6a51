"""Check an exercise, and say what is wrong and why.

    python examples/course/check.py 1           # your examples/course/1_nexting.py
    python examples/course/check.py 1 mine.py   # another file

The right answers are computed for numbers that are drawn anew each time, so they stand nowhere.
Beside them stand the usual mistakes: an answer that equals one of these is told which one it is.
The exit code is 0 if all is right, else 1.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

COURSE = Path(__file__).resolve().parent
Answers = dict[str, Any]
"""The names of an exercise's file."""


class Wrong(Exception):
    """An answer is not right; the message says which one, and why."""


def compare(what: str, answer: Any, right: Any, mistakes: Mapping[str, Any]) -> None:
    """Raise Wrong unless two numbers or arrays agree.

    Args:
        what: The answer, for the message.
        answer: What the exercise returned.
        right: What is right.
        mistakes: What usual mistakes return, by what is to be said of them.
    """
    try:
        numbers = np.asarray(answer, dtype=float)
    except (TypeError, ValueError):
        raise Wrong(f"{what}: expected numbers, got {answer!r}") from None
    if numbers.shape != np.shape(right):
        raise Wrong(f"{what}: expected the shape {np.shape(right)}, got {numbers.shape}")
    if np.allclose(numbers, right, rtol=1e-6, atol=1e-9):
        return
    for why, wrong in mistakes.items():
        if np.shape(wrong) == np.shape(right) and np.allclose(numbers, wrong, rtol=1e-6, atol=1e-9):
            raise Wrong(f"{what}: {why}")
    raise Wrong(f"{what}: expected {np.round(right, 3)}, got {np.round(numbers, 3)}")


def claim(is_true: bool, why: str) -> None:
    """Raise Wrong with a reason unless it is true."""
    if not is_true:
        raise Wrong(why)


# ---- 1: nexting by hand ----------------------------------------------------------------------------------------------


def check_returns(answers: Answers, rng: np.random.Generator) -> None:
    """G_t by its definition."""
    gamma = 0.7
    cumulants = rng.normal(size=7)
    n = len(cumulants) - 1
    powers = gamma ** np.arange(n)
    right = np.array([powers[: n - t] @ cumulants[t + 1 :] for t in range(n)])
    from_now = np.array([cumulants[t] + gamma * right[t] for t in range(n)])
    sums = np.array([cumulants[t + 1 :].sum() for t in range(n)])
    mistakes = {
        "G_t begins with C_t, but the first cumulant that counts is C_{t+1}, the next one": from_now,
        "the cumulants are not discounted: the k-th after the next counts gamma^k": sums,
        "even the next cumulant is multiplied by gamma, but it counts whole": gamma * right,
        "the returns are in reverse order": right[::-1],
    }
    compare("returns", answers["returns"](cumulants, gamma), right, mistakes)


def check_td_lambda(answers: Answers, rng: np.random.Generator) -> None:
    """One step of TD(lambda) with accumulating traces."""
    weights, trace, phi, phi_next = rng.normal(size=(4, 5))
    originals = (weights.copy(), trace.copy())
    numbers = {"cumulant": 1.3, "gamma": 0.8, "lam": 0.6, "step_size": 0.1}
    answer = answers["td_lambda"](weights, trace, phi, phi_next, **numbers)
    claim(
        isinstance(answer, tuple) and len(answer) == 2,
        "td_lambda: return two arrays, the new weights and the new trace",
    )
    claim(
        np.array_equal(weights, originals[0]) and np.array_equal(trace, originals[1]),
        "td_lambda: the arrays that were given have changed; make new ones (no += on them)",
    )

    def step(
        decay: float = 0.48, gamma: float = 0.8, rate: float = 0.1, late: bool = False
    ) -> tuple[Any, Any]:
        error = 1.3 + gamma * weights @ phi_next - weights @ phi
        new_trace = decay * trace + phi
        used = new_trace
        if late:
            used = trace
        return weights + rate * error * used, new_trace

    right = step()
    compare(
        "td_lambda, the trace",
        answer[1],
        right[1],
        {
            "it decays by gamma alone; it must decay by gamma times lambda": step(decay=0.8)[1],
            "it decays by lambda alone; it must decay by gamma times lambda": step(decay=0.6)[1],
            "it does not decay; multiply the old trace by gamma times lambda": step(decay=1.0)[1],
            "the new features are missing: add them to the decayed trace": 0.48 * trace,
            "the features of the state reached were added; it is the state left that gets credit": (
                0.48 * trace + phi_next
            ),
        },
    )
    compare(
        "td_lambda, the weights",
        answer[0],
        right[0],
        {
            "the value of the state reached is not discounted by gamma": step(gamma=1.0)[0],
            "the error lacks the value of the state reached: this learns the next cumulant only": (
                step(gamma=0.0)[0]
            ),
            "they use the old trace; add the features of this step first": step(late=True)[0],
            "they move away from the target: the error is C + gamma v' - v, in this order": (
                step(rate=-0.1)[0]
            ),
            "the step size is missing": step(rate=1.0)[0],
        },
    )


# ---- 2: rho ----------------------------------------------------------------------------------------------------------


def check_ratio(answers: Answers, rng: np.random.Generator) -> None:
    """Rho = pi / b of the action."""
    target = np.array([0.3, 0.7])
    behaviour = np.array([0.6, 0.4])
    for action in (0, 1):
        mistakes = {
            "it is upside down: pi / b, not b / pi": behaviour[action] / target[action],
            "it is that of the other action": target[1 - action] / behaviour[1 - action],
            "it is pi alone; divide by b": target[action],
        }
        right = target[action] / behaviour[action]
        answer = answers["ratio"](action, target, behaviour)
        compare(f"ratio of action {action}", answer, right, mistakes)


def check_mean_reward(answers: Answers, rng: np.random.Generator) -> None:
    """Ordinary importance sampling."""
    target = np.array([0.3, 0.7])
    behaviour = np.array([0.6, 0.4])
    actions = np.array([0, 1, 1, 0, 1, 0, 0])
    rewards = rng.uniform(1, 2, size=7)
    ratios = target[actions] / behaviour[actions]
    mistakes = {
        "the rewards are not weighted: this is the behaviour's mean": rewards.mean(),
        "it divides by the sum of the ratios: that is weighted importance sampling, less variable but "
        "biased; divide by the number of steps": ratios @ rewards / ratios.sum(),
        "it is the sum; divide by the number of steps": ratios @ rewards,
    }
    answer = answers["mean_reward"](actions, rewards, target, behaviour)
    compare("mean_reward", answer, np.mean(ratios * rewards), mistakes)


def check_wrong_b(answers: Answers, rng: np.random.Generator) -> None:
    """The fixed point of TD with ratios of another b."""
    target, true_b, reported = np.array([[0.4, 0.6], [0.25, 0.75], [0.5, 0.5]])
    rewards = rng.uniform(1, 2, size=2)
    gamma = 0.6
    ratios = target / reported
    right = true_b @ (ratios * rewards) / (true_b @ ratios * (1 - gamma))
    mistakes = {
        "this is the value under the target policy, as if the reported b were the true one": (
            target @ rewards / (1 - gamma)
        ),
        "this is the value under the behaviour: the ratios are missing": (
            true_b @ rewards / (1 - gamma)
        ),
        "rho also multiplies gamma v - v, and its mean is not 1 if b is wrong: divide by the mean of rho": (
            true_b @ (ratios * rewards) / (1 - gamma)
        ),
        "the mean is over the actions as they are really drawn, with true_b": (
            reported @ (ratios * rewards) / (reported @ ratios * (1 - gamma))
        ),
    }
    answer = answers["what_a_demon_learns"](target, true_b, reported, rewards, gamma)
    compare("what_a_demon_learns", answer, right, mistakes)


# ---- 3: Baird's star -------------------------------------------------------------------------------------------------


def check_td(answers: Answers, rng: np.random.Generator) -> None:
    """One step of off-policy TD(0)."""
    weights, phi, phi_next = rng.normal(size=(3, 4))
    error = 0.7 + 0.9 * weights @ phi_next - weights @ phi
    mistakes = {
        "rho is missing: this learns the value of the behaviour": weights + 0.1 * error * phi,
        "the features of the state reached are changed; change those of the state left": (
            weights + 0.1 * 2.5 * error * phi_next
        ),
    }
    answer = answers["td"](weights, phi, phi_next, 2.5, 0.7, 0.9, 0.1)
    compare("td", answer, weights + 0.1 * 2.5 * error * phi, mistakes)


def check_gtd(answers: Answers, rng: np.random.Generator) -> None:
    """One step of GTD(0)."""
    theta, w, phi, phi_next = rng.normal(size=(4, 4))
    rho = 2.5
    gamma = 0.9
    alpha = 0.1
    alpha_w = 0.2
    delta = 0.7 + gamma * theta @ phi_next - theta @ phi
    new_w = w + alpha_w * (rho * delta - w @ phi) * phi

    def new_theta(
        secondary: Any, sign: float = -1.0, gamma: float = 0.9, rho_c: float = 2.5
    ) -> Any:
        correction = gamma * (secondary @ phi) * phi_next
        return theta + alpha * (rho * delta * phi + sign * rho_c * correction)

    answer = answers["gtd"](theta, w, phi, phi_next, rho, 0.7, gamma, alpha, alpha_w)
    claim(
        isinstance(answer, tuple) and len(answer) == 2,
        "gtd: return two arrays, the new weights and the new secondary weights",
    )
    compare(
        "gtd, theta",
        answer[0],
        new_theta(w),
        {
            "the correction is missing: this is TD, which diverges on the star": (
                theta + alpha * rho * delta * phi
            ),
            "the correction has the wrong sign: it is subtracted": new_theta(w, sign=1.0),
            "the correction lacks gamma": new_theta(w, gamma=1.0),
            "the correction lacks rho": new_theta(w, rho_c=1.0),
            "it uses the new w; compute theta from the old one": new_theta(new_w),
        },
    )
    compare(
        "gtd, w",
        answer[1],
        new_w,
        {
            "rho is missing before delta": w + alpha_w * (delta - w @ phi) * phi,
            "rho also multiplies w.phi: that is the rule 'importance-weighted', not the one above": (
                w + alpha_w * rho * (delta - w @ phi) * phi
            ),
            "it has theta's step size; use step_size_w": (
                w + alpha * (rho * delta - w @ phi) * phi
            ),
        },
    )


def check_the_star(answers: Answers, rng: np.random.Generator) -> None:
    """Both rules on one walk."""
    lengths = answers["sizes"](n_steps=1_000, seed=int(rng.integers(1_000)))
    claim(lengths[-1, 0] > 10 * lengths[0, 0], "the star: TD should diverge, and it does not")
    claim(lengths[-1, 1] < 2 * lengths[0, 1], "the star: GTD should not diverge, and it does")


# ---- 4: questions ----------------------------------------------------------------------------------------------------


def robot_interface() -> Any:
    """Return the interface of the simulated Critterbot."""
    import gymnasium

    from horde_agent import Interface

    env = gymnasium.make("horde_env:CritterbotPen-v0", physics="planar")
    interface = Interface.of(env)
    env.close()
    return interface


def check_policy(question: Any, interface: Any, action: str) -> None:
    """Raise Wrong unless the target policy always takes this action."""
    from horde_agent import Behaviour

    observation = np.zeros(len(interface.names))
    tiles = np.zeros(1, dtype=np.int64)
    claim(
        not isinstance(question.target_policy, Behaviour),
        f"{question.name}: it is about the behaviour itself; a *what if* has a target policy of its own",
    )
    answer = question.target_policy.probabilities(observation, tiles)
    likely = interface.actions[int(np.argmax(answer))]
    claim(
        float(np.max(answer)) == 1.0,
        f"{question.name}: the target policy takes {likely!r} with probability {np.max(answer):.2f}; "
        "the question is about always taking one action",
    )
    claim(
        likely == action,
        f"{question.name}: the target policy takes {likely!r}, the question asks about {action!r}",
    )


def check_light(answers: Answers, rng: np.random.Generator) -> None:
    """The first question, by its parts."""
    interface = robot_interface()
    question = answers["light_if_it_turned"](interface)
    check_policy(question, interface, "rotate_clockwise")
    index = getattr(question.cumulant, "index", None)
    claim(
        index in (interface.index("light_0"), "light_0"),
        f"{question.name}: the cumulant is {question.cumulant!r}, not the channel light_0",
    )
    claim(
        not callable(question.continuation) and 0 < question.continuation < 1,
        f"{question.name}: the continuation must be one number between 0 and 1",
    )
    reach = 1 / (1 - question.continuation)
    claim(
        abs(reach - 10) < 0.5,
        f"{question.name}: with continuation {question.continuation:g} it reaches {reach:.1f} steps, "
        "1 / (1 - gamma); the question says about ten",
    )


def check_steps(answers: Answers, rng: np.random.Generator) -> None:
    """The second question, by its parts."""
    interface = robot_interface()
    question = answers["steps_to_the_wall"](interface)
    check_policy(question, interface, "forward")
    tiles = np.zeros(1, dtype=np.int64)
    open_space = np.zeros(len(interface.names))
    wall = open_space.copy()
    wall[interface.index("ir_distance_0")] = 0.9
    claim(
        callable(question.cumulant),
        f"{question.name}: to count steps, the cumulant is a function that returns 1.0",
    )
    claim(
        question.cumulant(open_space, tiles) == 1.0 == question.cumulant(wall, tiles),
        f"{question.name}: each step counts 1, also the one that reaches the wall",
    )
    claim(
        callable(question.continuation),
        f"{question.name}: the end depends on what is sensed, so the continuation is a function",
    )
    at_the_wall = question.continuation(wall, tiles)
    in_the_open = question.continuation(open_space, tiles)
    claim(
        (at_the_wall, in_the_open) != (0.95, 0.0),
        f"{question.name}: the continuation is the probability of going *on*; yours is turned round",
    )
    claim(
        at_the_wall == 0.0,
        f"{question.name}: near a wall it must end, with continuation 0, not {at_the_wall:g}",
    )
    claim(
        in_the_open == 0.95,
        f"{question.name}: away from walls it goes on with probability .95, not {in_the_open:g}",
    )


# ---- 5: control ------------------------------------------------------------------------------------------------------


def check_control_question(answers: Answers, rng: np.random.Generator) -> None:
    """The question that finds a policy."""
    question = answers["question"]()
    claim(
        question.finds_policy,
        "question: its target policy is given; `Greedy(3)` lets the demon find it",
    )
    claim(
        getattr(question.cumulant, "index", None) == 0,
        f"question: the light is Channel(0), not {question.cumulant!r}",
    )
    claim(question.name == "lamp", f"question: call it 'lamp', not {question.name!r}")
    compare("question, its continuation", question.continuation, answers["GAMMA"], {})


def check_the_policy(answers: Answers, rng: np.random.Generator) -> None:
    """What was found."""
    best = answers["learn"]()
    lamp = answers["LAMP"]
    claim(
        all(best[:lamp] == answers["RIGHT"]) and all(best[lamp + 1 :] == answers["LEFT"]),
        f"the policy found does not go to the lamp from everywhere: {best}",
    )


def check_excursion(answers: Answers, rng: np.random.Generator) -> None:
    """The return of a policy that has no chance in it: to the right, always."""
    light = answers["light"]
    gamma = 0.5
    lights = np.array([light(place) for place in (4, 5, 6, 7, 8, 9)])
    powers = gamma ** np.arange(5)
    answer = answers["excursion"](4, lambda place: np.array([0.0, 0.0, 1.0]), 5, gamma, rng)
    mistakes = {
        "the light where it begins counts too; the first cumulant is that of the place reached": (
            powers @ lights[:5]
        ),
        "the light is not discounted": lights[1:].sum(),
        "the first light is discounted; it counts whole": gamma * powers @ lights[1:],
        "it is one step too short": powers[:4] @ lights[1:5],
    }
    compare("excursion", answer, powers @ lights[1:], mistakes)
    drawn = [
        answers["excursion"](5, lambda place: np.array([0.5, 0.0, 0.5]), 1, gamma, rng)
        for _ in range(60)
    ]
    claim(
        len(set(np.round(drawn, 6))) == 2,
        "excursion: the policy gives probabilities; draw the action with `rng.choice(3, p=...)`",
    )


def check_error(answers: Answers, rng: np.random.Generator) -> None:
    """Mean and standard error."""
    measured = rng.normal(size=9)
    deviation = measured.std(ddof=1)
    answer = answers["mean_and_error"](measured)
    mistakes = {
        "the error is the deviation of one return; a mean of n varies less, by the root of n": (
            np.array([measured.mean(), deviation])
        ),
        "the deviation divides by n; of a sample, divide by n - 1 (ddof=1)": (
            np.array([measured.mean(), measured.std() / 3])
        ),
        "the error is divided by n; divide by its root": (
            np.array([measured.mean(), deviation / 9])
        ),
    }
    compare("mean_and_error", answer, np.array([measured.mean(), deviation / 3]), mistakes)


# ---- 6: predictions as state -----------------------------------------------------------------------------------------


def check_values(answers: Answers, rng: np.random.Generator) -> None:
    """The values, by 400 steps around the ring."""
    gamma = answers["GAMMA"]
    bits = np.array([float(t % 6 == 0) for t in range(400)])
    powers = gamma ** np.arange(300)
    right = np.array([powers @ bits[place + 1 : place + 301] for place in range(6)])
    first_only = gamma ** (5 - np.arange(6.0))
    mistakes = {
        "only the next bit counts; the ring goes on, and every sixth step brings another": first_only,
        "the bit of the place itself counts; it counts in the place *reached*": (
            np.array([powers @ bits[place : place + 300] for place in range(6)])
        ),
        "the bit is discounted once too often: in place 5 it comes in the next step, and counts 1": (
            gamma * right
        ),
    }
    compare("true_values", answers["true_values"](), right, mistakes)


def check_interface(answers: Answers, rng: np.random.Generator) -> None:
    """What is fed back."""
    plain = answers["interface_of_the_ring"]()
    answer = answers["with_the_last_prediction"](plain)
    claim(
        getattr(answer, "feedback", None) is not None,
        "with_the_last_prediction: nothing is fed back; return what `interface.feeding_back` returns",
    )
    claim(
        answer.coder.n_features >= plain.coder.n_features + 6,
        "with_the_last_prediction: too few tiles to tell six places apart; take 8 intervals, 8 tilings",
    )
    values = answers["true_values"]()
    unexplained = np.mean((answers["learned"](answer, 6_000) - values) ** 2) / np.var(values)
    claim(
        unexplained < 0.2,
        f"with_the_last_prediction: {100 * unexplained:.0f} % of the variance is unexplained; the true "
        "answer leaves less than a tenth",
    )


def check_share(answers: Answers, rng: np.random.Generator) -> None:
    """Mean squared error over variance."""
    values, predictions = rng.normal(size=(2, 6))
    squared = np.mean((predictions - values) ** 2)
    mistakes = {
        "it is not divided by the variance of the values": squared,
        "it is divided by the variance of the predictions": squared / np.var(predictions),
        "it is the share that is explained; return one minus it": 1 - squared / np.var(values),
        "it is divided by the mean square of the values; variance is about their mean": (
            squared / np.mean(values**2)
        ),
    }
    answer = answers["share_unexplained"](predictions, values)
    compare("share_unexplained", answer, squared / np.var(values), mistakes)


Check = Callable[[Answers, np.random.Generator], None]
CHECKS: dict[int, tuple[Check, ...]] = {
    1: (check_returns, check_td_lambda),
    2: (check_ratio, check_mean_reward, check_wrong_b),
    3: (check_td, check_gtd, check_the_star),
    4: (check_light, check_steps),
    5: (check_control_question, check_the_policy, check_excursion, check_error),
    6: (check_values, check_interface, check_share),
}


def findings(number: int, answers: Answers, seed: int | None = None) -> list[str]:
    """Return a sentence for each part of an exercise that is not right.

    Args:
        number: Of the exercise.
        answers: The names of its file.
        seed: Of the numbers that the answers are tried with; None for others each time.
    """
    rng = np.random.default_rng(seed)
    sentences = []
    for check in CHECKS[number]:
        try:
            check(answers, rng)
        except Wrong as wrong:
            sentences.append(str(wrong))
        except NotImplementedError as gap:
            frames = traceback.extract_tb(gap.__traceback__)
            sentences.append(f"{frames[-1].name}: not written yet")
        except Exception as error:  # of the student's code
            frame = traceback.extract_tb(error.__traceback__)[-1]
            kind = type(error).__name__
            sentences.append(f"{frame.name}, line {frame.lineno}: {kind}: {error}")
    return list(dict.fromkeys(sentences))


def main(words: list[str]) -> int:
    """Check one exercise and return the exit code."""
    if not words or not words[0].isdigit() or int(words[0]) not in CHECKS:
        print(__doc__)
        return 2
    number = int(words[0])
    (path,) = COURSE.glob(f"{number}_*.py")
    if len(words) > 1:
        path = Path(words[1])
    sentences = findings(number, runpy.run_path(str(path)))
    for sentence in sentences:
        print(f"- {sentence}")
    if not sentences:
        print(f"exercise {number}: all right")
    return int(bool(sentences))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
