"""A behaviour that follows options: the options that the questions are about, and their other target policies.

At a decision an *option* is drawn: the random behaviour with probability epsilon, else one of the
options, all alike. An option with a stopping rule lasts until it stops, any other a geometric number
of steps. Which b is recorded depends on the questions' policies:

* All are constant actions: b = pi_o(a), given the option o that was drawn. The options are followed
  on-policy, with b = 1; demons about other policies learn nothing meanwhile. That is exact, because
  an option then either takes a policy's action, with rho = 1, or never does, with rho = 0.
* Otherwise a demon about a stochastic policy would be shown one action alone. So b is the
  probability before this step's draws, of the option o followed so far ending (beta, in this state),
  and of the next one:

      b(a) = (1 - beta) pi_o(a | S_t) + beta sum_k p_k pi_k(a | S_t)

  Without stopping rules every policy is covered in every state, and rho of option k is at most
  1 / (beta p_k); so beta is as large as in the paper's behaviour, 1/2. While an option with a rule goes
  on, b is its own policy's.

Drives by unexpected errors, by changes of predictions and by variances were tried in place of p_k alike:
in a fixed exam none of them learned more than the random behaviour (docs/results/exam.csv).

Both are probabilities given what the behaviour knows when it acts: with the draw of the option, or
without it. The paper's own b, .6 for the last action and .1 for each other, is of the second kind.

Sources: White, Modayil & Sutton (2012), section 5, b; Precup, Sutton & Singh (2000), ratios given
the history; Sutton, Precup & Singh (1999), options.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from horde_agent.gvf import GVF, StateFunction, value_at
from horde_agent.learner import Learner
from horde_agent.learning.values import identity
from horde_agent.options.option import Continues
from horde_agent.policies import (
    Behaviour,
    ConstantAction,
    Policy,
    StickyRandom,
    draw_from,
)
from horde_agent.refusals import checked_epsilon
from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.types import Floats, Integers, Tiles

MOST_OPTIONS = 64
"""Each step evaluates the action probabilities of every option."""

MEAN_STEPS = 10.0
"""Mean duration of an option, given which b is recorded."""
MIXED_STEPS = 2.0
"""The same if b is a mixture."""

NO_OPTION = -1


class Options(NamedTuple):
    """The distinct options and other target policies of some questions, without the behaviour itself."""

    policies: tuple[Policy, ...]
    names: tuple[str, ...]  # the questions' names of them, "" for an unnamed one
    stops: tuple[
        float | StateFunction | None, ...
    ]  # beta of an option; None without a stopping rule


def options_of(questions: Sequence[GVF]) -> Options:
    """Return the options that questions offer."""
    numbers: dict[Hashable, int] = {}
    policies: list[Policy] = []
    names: list[str] = []
    rules: list[float | StateFunction | None] = []
    for question in questions:
        policy = question.target_policy
        if isinstance(policy, Behaviour):
            continue
        stops = None
        if isinstance(question.continuation, Continues):
            stops = question.continuation.stops
        key = (identity(policy), identity(stops))
        number = numbers.setdefault(key, len(numbers))
        if number == len(policies):
            policies.append(policy)
            names.append("")
            rules.append(stops)
        names[number] = names[number] or question.policy_name
    return Options(tuple(policies), tuple(names), tuple(rules))


def check_options(questions: Sequence[GVF]) -> None:
    """Raise ValueError if questions offer no option, or too many."""
    n_options = len(options_of(questions).policies)
    if not n_options:
        raise ValueError(
            "a curious behaviour follows the target policies of the questions, but all questions "
            "are about the behaviour itself: choose questions about other policies"
        )
    if n_options > MOST_OPTIONS:
        raise ValueError(
            f"a curious behaviour chooses among at most {MOST_OPTIONS} target policies, but the "
            f"questions are about {n_options}"
        )


class CuriousBehaviour:
    """The behaviour that follows options until they stop, or for a random time.

    Args:
        learner: The Horde, whose questions offer the options.
        n_actions: Number of actions.
        epsilon: Probability that the random behaviour is drawn at a decision, in [0, 1].
        repeat: As of `StickyRandom`.

    Attributes:
        n_followed: Steps that followed each option, and last the random behaviour, shape
            (n_options + 1,).
        is_mixture: Whether b is that of the mixture: a question's policy is not a constant action.

    Raises:
        ValueError: If an argument is out of its range, or the questions offer no option or too many.
    """

    def __init__(
        self, learner: Learner, n_actions: int, epsilon: float = 0.1, repeat: float = 0.5
    ) -> None:
        check_options(learner.questions)
        self.n_actions = n_actions
        self.epsilon = checked_epsilon(epsilon)
        self._learner = learner
        self._questions = learner.questions
        self._random = StickyRandom(n_actions, repeat)
        self._options = options_of(learner.questions)
        self.is_mixture = _is_mixture(self._options)
        self._option = NO_OPTION
        self.n_followed: Integers = np.zeros(len(self._options.policies) + 1, dtype=np.int64)

    def end_probability(self, observation: Floats, tiles: Tiles) -> float:
        """Return beta, the probability that the option ends, at an observation, (n_channels,), and its tiles."""
        stops = None
        if 0 <= self._option < len(self._options.stops):
            stops = self._options.stops[self._option]
        if stops is not None:
            return value_at(stops, observation, tiles)
        if self.is_mixture:
            return 1.0 / MIXED_STEPS
        return 1.0 / MEAN_STEPS

    def option_probabilities(self) -> Floats:
        """Return the probability of each option at a decision, and last of the random behaviour, (n_options + 1,)."""
        n_options = len(self._options.policies)
        if not n_options:
            return np.ones(1)
        alike = np.full(n_options, (1.0 - self.epsilon) / n_options)
        return np.append(alike, self.epsilon)

    def draw(
        self, rng: np.random.Generator, observation: Floats, tiles: Tiles
    ) -> tuple[int, float]:
        """Return an action and b, at an observation, (n_channels,), and its tiles, (n_active,).

        Raises:
            ValueError: If a policy returns invalid probabilities.
        """
        self._update_options()
        end = self.end_probability(observation, tiles)
        previous = self._option
        is_decision = previous == NO_OPTION or rng.random() < end
        if is_decision or self.is_mixture:
            option_probabilities = self.option_probabilities()
        if is_decision:
            self._option, _ = draw_from(option_probabilities, rng)
        action, b = draw_from(self._action_probabilities(self._option, observation, tiles), rng)
        if self.is_mixture:
            action_probabilities = np.array(
                [
                    self._action_probabilities(option, observation, tiles)
                    for option in range(option_probabilities.size)
                ]
            )
            mixture = option_probabilities @ action_probabilities
            if previous != NO_OPTION:
                mixture = (1.0 - end) * action_probabilities[previous] + end * mixture
            b = float(mixture[action])
        self._random.last_action = action
        self.n_followed[self._option] += 1
        return action, b

    def _action_probabilities(self, option: int, observation: Floats, tiles: Tiles) -> Floats:
        """Return the probability of each action under an option, or last the random behaviour, (n_actions,)."""
        if option == len(self._options.policies):
            return self._random.probabilities()
        return self._options.policies[option].probabilities(observation, tiles)

    def _update_options(self) -> None:
        """Take over the options after questions were added or removed; what is gone ends."""
        if self._learner.questions is self._questions:
            return
        self._questions = self._learner.questions
        previous = self._options
        self._options = options_of(self._questions)
        self.is_mixture = _is_mixture(self._options)
        numbers = {key: number for number, key in enumerate(_keys_of(previous))}
        previous_numbers = [numbers.get(key, NO_OPTION) for key in _keys_of(self._options)]
        n_followed = []
        for number in previous_numbers:
            n_times = 0
            if number != NO_OPTION:
                n_times = self.n_followed[number]
            n_followed.append(n_times)
        is_random = self._option == len(previous.policies)
        if is_random:
            self._option = len(previous_numbers)
        elif self._option != NO_OPTION and self._option in previous_numbers:
            self._option = previous_numbers.index(self._option)
        else:
            self._option = NO_OPTION
        self.n_followed = np.array([*n_followed, self.n_followed[-1]], dtype=np.int64)

    def forget(self) -> None:
        """End the option: the next draw is a decision."""
        self._option = NO_OPTION
        self._random.forget()

    @property
    def option_names(self) -> list[str]:
        """What the questions call the options, "" for one without a name, and last "random"."""
        self._update_options()
        return [*self._options.names, "random"]

    def state(self) -> State:
        """Return everything that later draws depend on."""
        self._update_options()
        fields = attributes(self, "_option", "n_followed")
        return nested(choice=fields, random=self._random.state())

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, with the same questions."""
        self._update_options()
        put_back(self, inner(state, "choice"), "_option", "n_followed")
        self._random.restore(inner(state, "random"))


def _keys_of(options: Options) -> list[Hashable]:
    """Return what tells options apart: policy and stopping rule."""
    return [
        (identity(policy), identity(stops))
        for policy, stops in zip(options.policies, options.stops, strict=True)
    ]


def _is_mixture(options: Options) -> bool:
    """Return whether b must be that of the mixture of the options."""
    return not all(isinstance(policy, ConstantAction) for policy in options.policies)


def shares_of(behaviours: Sequence[CuriousBehaviour]) -> list[dict[str, Any]]:
    """Return what the behaviours of a life's robots, which share a Horde, followed: a row for each option.

    Its keys are `option`, the name of the policy or "random"; `steps`, of all robots together; and
    `probability`, that of the option at a decision now.
    """
    names = behaviours[0].option_names
    steps = np.sum([behaviour.n_followed for behaviour in behaviours], axis=0)
    probability = behaviours[0].option_probabilities()
    return [
        {"option": name, "steps": int(n), "probability": float(p)}
        for name, n, p in zip(names, steps, probability, strict=True)
    ]
