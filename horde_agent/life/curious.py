"""A behaviour that looks for what can be learned: it follows target policies of the questions, drawn by a drive.

At a decision an *option* is drawn: the random behaviour with probability epsilon, else one of the
questions' target policies, the more often, the larger its drive. It lasts a geometric number of
steps. Which b is recorded depends on the questions' policies:

* All are constant actions: b = pi_o(a), given the option o that was drawn. The options are followed
  on-policy, with b = 1; demons about other policies learn nothing meanwhile. That is exact, because
  an option then either takes a policy's action, with rho = 1, or never does, with rho = 0.
* Otherwise a demon about a stochastic policy would be shown one action alone. So b is the
  probability before this step's draws, of the option o followed so far ending (beta), and of the
  next one:

      b(a) = (1 - beta) pi_o(a | S_t) + beta sum_k p_k pi_k(a | S_t)

  Every policy is covered in every state, and rho of option k is at most 1 / (beta p_k); so beta is
  as large as in the paper's behaviour, 1/2.

Both are probabilities given what the behaviour knows when it acts: with the draw of the option, or
without it. The paper's own b, .6 for the last action and .1 for each other, is of the second kind.

Sources: White, Modayil & Sutton (2012), section 5, b; Precup, Sutton & Singh (2000), ratios given
the history; Sutton, Precup & Singh (1999), options; White, Modayil & Sutton (2014), UDE as a drive;
Linke, Ady, White, Degris & White (2020), intrinsic rewards for many predictions, and why drives by
the size of errors are caught by noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from horde_agent.gvf import GVF, TDError
from horde_agent.learner import Learner
from horde_agent.learning.stored import NEWCOMER
from horde_agent.learning.values import Observation, distinct, identity
from horde_agent.life.drives import OPTION_DRIVES
from horde_agent.life.life import LifeHooks, StepEvent
from horde_agent.policies import (
    Behaviour,
    ConstantAction,
    Policy,
    StickyRandom,
    draw_from,
)
from horde_agent.refusals import check_one_of, checked_epsilon
from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.types import Bools, Floats, Integers, Tiles

MOST_OPTIONS = 64
"""Each step evaluates the action probabilities of every option."""

MEAN_STEPS = 10.0
"""Mean duration of an option, given which b is recorded."""
MIXED_STEPS = 2.0
"""The same if b is a mixture."""

EQUAL_SHARE = 0.5
"""Share of the decisions about options that are drawn alike, so that none is left out for long."""

NO_OPTION = -1

_BETA0 = 0.005  # step size of the UDE's trace, over 200 steps with rho > 0
_SMALLEST_DEVIATION = 1e-6  # as in `learning.rupee.UDE`
_LONGEST = 262_144.0
"""Steps that means and deviations reach back, about: what changes is noticed in the same time at any age."""
_LOOK_EVERY = 100  # learning steps between two looks at the predictions of remembered states
_N_REMEMBERED = 16  # states
_CHANGE_SHARE = 0.1  # weight of the latest look in the mean change

# Numbers per demon, each of shape (n_demons,)
_OF_DEMONS = (
    "_n",
    "_mean",
    "_square",
    "_trace",
    "_trace_weight",
    "_change",
    "_here",
    "_elsewhere",
)
# One entry of each for a state in which predictions are compared
_REMEMBERED = ("_remembered", "_readings", "_predicted")


class Options(NamedTuple):
    """The distinct target policies of some questions, without the behaviour itself."""

    policies: tuple[Policy, ...]
    names: tuple[str, ...]  # the questions' names of them, "" for an unnamed one
    # Option of each question, `NO_OPTION` for one about the behaviour, shape (n_questions,)
    of_question: Integers


def options_of(questions: Sequence[GVF]) -> Options:
    """Return the options that questions offer."""
    are_about_options = [q for q in questions if not isinstance(q.target_policy, Behaviour)]
    policies = distinct([q.target_policy for q in are_about_options])
    numbers = {identity(policy): number for number, policy in enumerate(policies)}
    of_question = [numbers.get(identity(q.target_policy), NO_OPTION) for q in questions]
    names = [""] * len(policies)
    for question, number in zip(questions, of_question, strict=True):
        if number != NO_OPTION and not names[number]:
            names[number] = question.policy_name
    return Options(tuple(policies), tuple(names), np.array(of_question, dtype=np.int64))


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


def _are_about_variance(questions: Sequence[GVF]) -> Bools:
    """Return which questions are about a TD error, shape (n_questions,)."""
    return np.array([isinstance(question.cumulant, TDError) for question in questions], dtype=bool)


class OptionDrive(LifeHooks):
    """Measures how much there is to learn about each option while a Horde learns; an observer of its life.

    A demon's numbers change only in steps with rho > 0, so what is not followed is not forgotten.

    Args:
        horde: The Horde; TD errors are read after each step, so it learns in eager mode.
        kind: "ude", the squared UDE; "change", the squared change of the predictions, in which
            the weights' change is seen; "variance", the variance of the returns here over that
            elsewhere, for which there must be questions about variances; or "alike", no drive.

    Attributes:
        kind: As given.
        options: The options.

    Raises:
        ValueError: If there is no such drive, the questions offer no option or too many, or the
            drive lacks its questions.
    """

    def __init__(self, horde: Learner, kind: str = OPTION_DRIVES[0]) -> None:
        check_one_of("drive", kind, OPTION_DRIVES)
        check_options(horde.questions)
        if kind == "variance" and not _are_about_variance(horde.questions).any():
            raise ValueError(
                "the drive 'variance' needs questions about variances of returns: set "
                "variance = true in a [[family]], or add gvf.variance_of(question)"
            )
        self.kind = kind
        self.options = options_of(horde.questions)
        self._are_about_variance = _are_about_variance(horde.questions)
        self._horde = horde
        n_demons = horde.n_demons
        # Of rho delta in the steps with rho > 0
        self._n = np.zeros(n_demons)
        self._mean = np.zeros(n_demons)
        self._square = np.zeros(n_demons)  # sum of squared deviations from the mean
        self._trace = np.zeros(n_demons)
        self._trace_weight = np.zeros(n_demons)
        # Mean squared change of the predictions of remembered states between two looks
        self._change = np.zeros(n_demons)
        self._remembered = np.zeros((0, horde.n_active), dtype=np.int64)
        self._readings = np.zeros((0, 0))
        self._predicted = np.zeros((0, n_demons))
        # Latest prediction, not below 0, and the mean of the predictions so far
        self._here = np.zeros(n_demons)
        self._elsewhere = np.zeros(n_demons)
        self._n_learned = 0

    def after_step(self, event: StepEvent) -> None:
        """Measure the last update, if there was one."""
        n_learned = event.life.student.learning_steps
        if n_learned == self._n_learned or self.kind == "alike":
            return
        self._n_learned = n_learned
        self._add_errors()
        if self.kind == "variance":
            self._here = np.maximum(self._horde.predictions, 0.0)
            self._elsewhere += (self._here - self._elsewhere) / min(max(n_learned, 1), _LONGEST)
        tiles = event.life.robot_stream.tiles
        if self.kind == "change" and n_learned % _LOOK_EVERY == 0 and tiles is not None:
            self._look(tiles, event.life.robot_stream.observation.astype(np.float64))

    def _add_errors(self) -> None:
        """Add the latest rho delta of the demons with rho > 0."""
        rho = self._horde.rho
        error = rho * self._horde.td_error
        is_updated: Bools = (rho > 0.0) & np.isfinite(error)
        error = np.where(is_updated, error, 0.0)
        self._n += is_updated
        deviation = np.where(is_updated, error - self._mean, 0.0)
        self._mean += deviation / np.maximum(self._n, 1.0)
        self._square += deviation * (error - self._mean)
        is_long = self._n > _LONGEST
        self._n[is_long] *= 0.5
        self._square[is_long] *= 0.5
        # `learning.rupee.UnbiasedTrace`, for each demon
        self._trace_weight += is_updated * _BETA0 * (1.0 - self._trace_weight)
        step_size = is_updated * _BETA0 / np.maximum(self._trace_weight, _BETA0)
        self._trace += step_size * (error - self._trace)

    def _look(self, tiles: Tiles, observation: Observation) -> None:
        """Add the change of the predictions of remembered states, and remember this one in place of the oldest."""
        horde = self._horde
        if len(self._remembered):
            predicted = self._predict_remembered()
            change = ((predicted - self._predicted) ** 2).mean(axis=0)
            self._change += _CHANGE_SHARE * (change - self._change)
            self._predicted = predicted
        predictions = horde.predict(tiles, observation)
        self._remembered = np.vstack([self._remembered, tiles])[-_N_REMEMBERED:]
        readings = self._readings.reshape(-1, observation.size)
        self._readings = np.vstack([readings, observation])[-_N_REMEMBERED:]
        self._predicted = np.vstack([self._predicted, predictions])[-_N_REMEMBERED:]

    def _predict_remembered(self) -> Floats:
        """Return the predictions at the remembered states, shape (n_remembered, n_demons)."""
        states = zip(self._remembered, self._readings, strict=True)
        predicted = [self._horde.predict(tiles, observation) for tiles, observation in states]
        return np.array(predicted).reshape(len(predicted), self._horde.n_demons)

    def of_demons(self) -> Floats:
        """Return each demon's drive, in [0, 1], shape (n_demons,): 1 before its second update.

        The squared UDE, or the squared change over the variance of rho delta: in units of what the
        demon cannot predict. A variance V in this state counts as V / (V + mean V), 1/2 everywhere
        for a noise that is the same everywhere.
        """
        variance = self._square / np.maximum(self._n - 1.0, 1.0)
        deviation = np.sqrt(variance) + _SMALLEST_DEVIATION
        match self.kind:
            case "ude":
                drive = (self._trace / deviation) ** 2
            case "change":
                drive = self._change / deviation**2
            case "variance":
                drive = self._here / (self._here + self._elsewhere + _SMALLEST_DEVIATION)
            case _:
                drive = np.ones(self._n.size)
        return np.where(self._n < 2, 1.0, np.minimum(drive, 1.0))

    def probabilities(self) -> Floats:
        """Return the probability of each option at a decision for one, shape (n_options,).

        In proportion to the mean drive of the demons about its policy, but for `EQUAL_SHARE`.
        """
        n_options = len(self.options.policies)
        equal = np.full(n_options, 1.0 / max(n_options, 1))
        option = self.options.of_question
        is_counted = option != NO_OPTION
        if self.kind == "variance":
            is_counted = is_counted & self._are_about_variance
        total = np.bincount(option[is_counted], self.of_demons()[is_counted], n_options)
        drive = total / np.maximum(np.bincount(option[is_counted], minlength=n_options), 1)
        if not drive.sum() > 0.0:
            return equal
        return np.asarray((1.0 - EQUAL_SHARE) * drive / drive.sum() + EQUAL_SHARE * equal)

    def rearrange(self, old_index: Integers) -> None:
        """Continue after demons were added, which are new to the drive, or removed.

        `old_index`, shape (n_demons,), is as in `LifeHooks`.
        """
        is_new = old_index == NEWCOMER
        for name in _OF_DEMONS:
            setattr(self, name, np.where(is_new, 0.0, getattr(self, name)[old_index]))
        self.options = options_of(self._horde.questions)
        self._are_about_variance = _are_about_variance(self._horde.questions)
        self._predicted = self._predict_remembered()

    def state(self) -> State:
        """Return everything that later drives depend on."""
        return attributes(self, *_OF_DEMONS, *_REMEMBERED, "_n_learned")

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, with the same questions."""
        put_back(self, state, *_OF_DEMONS, *_REMEMBERED, "_n_learned")


class CuriousBehaviour:
    """The behaviour that follows options for a random time, drawn by their drive.

    Args:
        drive: The drive of the Horde's options; it observes the life. Several robots share one.
        n_actions: Number of actions.
        epsilon: Probability that the random behaviour is drawn at a decision, in [0, 1].
        repeat: As of `StickyRandom`.

    Attributes:
        n_followed: Steps that followed each option, and last the random behaviour, shape
            (n_options + 1,).
        is_mixture: Whether b is that of the mixture: a question's policy is not a constant action.

    Raises:
        ValueError: If an argument is out of its range.
    """

    def __init__(
        self, drive: OptionDrive, n_actions: int, epsilon: float = 0.1, repeat: float = 0.5
    ) -> None:
        self.drive = drive
        self.n_actions = n_actions
        self.epsilon = checked_epsilon(epsilon)
        self._random = StickyRandom(n_actions, repeat)
        self._options = drive.options
        self.is_mixture = _is_mixture(self._options)
        self._option = NO_OPTION
        self.n_followed: Integers = np.zeros(len(self._options.policies) + 1, dtype=np.int64)

    @property
    def end_probability(self) -> float:
        """Probability before each step that the option ends, beta."""
        if self.is_mixture:
            return 1.0 / MIXED_STEPS
        return 1.0 / MEAN_STEPS

    def option_probabilities(self) -> Floats:
        """Return the probability of each option at a decision, and last of the random behaviour, (n_options + 1,)."""
        if not self._options.policies:
            return np.ones(1)
        return np.append((1.0 - self.epsilon) * self.drive.probabilities(), self.epsilon)

    def draw(
        self, rng: np.random.Generator, observation: Floats, tiles: Tiles
    ) -> tuple[int, float]:
        """Return an action and b, at an observation, (n_channels,), and its tiles, (n_active,).

        Raises:
            ValueError: If a policy returns invalid probabilities.
        """
        self._update_options()
        end = self.end_probability
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
        """Take over the drive's options after questions were added or removed; what is gone ends."""
        options = self.drive.options
        if options is self._options:
            return
        previous_numbers = {
            identity(policy): number for number, policy in enumerate(self._options.policies)
        }
        previous_of_each = [
            previous_numbers.get(identity(policy), NO_OPTION) for policy in options.policies
        ]
        n_followed = []
        for number in previous_of_each:
            n_times = 0
            if number != NO_OPTION:
                n_times = self.n_followed[number]
            n_followed.append(n_times)
        is_random = self._option == len(self._options.policies)
        if is_random:
            self._option = len(previous_of_each)
        elif self._option != NO_OPTION and self._option in previous_of_each:
            self._option = previous_of_each.index(self._option)
        else:
            self._option = NO_OPTION
        self.n_followed = np.array([*n_followed, self.n_followed[-1]], dtype=np.int64)
        self._options = options
        self.is_mixture = _is_mixture(options)

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
        """Return everything that later draws depend on, the drive included."""
        self._update_options()
        fields = attributes(self, "_option", "n_followed")
        return nested(choice=fields, random=self._random.state(), drive=self.drive.state())

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, with the same questions."""
        self._options = self.drive.options
        self.is_mixture = _is_mixture(self._options)
        put_back(self, inner(state, "choice"), "_option", "n_followed")
        self._random.restore(inner(state, "random"))
        self.drive.restore(inner(state, "drive"))


def _is_mixture(options: Options) -> bool:
    """Return whether b must be that of the mixture of the options."""
    return not all(isinstance(policy, ConstantAction) for policy in options.policies)


def shares_of(behaviours: Sequence[CuriousBehaviour]) -> list[dict[str, Any]]:
    """Return what the behaviours of a life's robots, which share a drive, followed: a row for each option.

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
