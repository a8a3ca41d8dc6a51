"""Planner: approximate value iteration with the models of options, counted in look-aheads.

    b = max_o (r_o + W_o' w).x          w += alpha (b - w.x) x / (x.x)

x is a remembered feature vector, w the weights of the planned value, r_o and W_o the reward and the
transition part of option o's model. u_o = r_o + W_o' w is kept from one state to the next and renewed
every `renew_every` of them, so that a look-ahead is u_o.x: as many additions as there are active features.

Sources: Sutton, Machado, Holland, Szepesvari, Timbers, Tanner & White (2023), Reward-respecting subtasks,
section 6; Wan, Abbas, White, White & Sutton (2019), Planning with expectation models: with a linear value an
expectation is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from horde_agent.learner import Learner
from horde_agent.options.option import Option
from horde_agent.refusals import number_in, whole_number
from horde_agent.saving import State, attributes, put_back
from horde_agent.types import Floats, Integers, Reals, RNGLike, Tiles, generator

REWARD = "reward"


class OptionModel(NamedTuple):
    """The model of an option, over n features, of which m are predicted at the stop."""

    name: str
    reward: Reals  # r, (n,)
    transition: Reals  # W, (m, n)
    features: Integers  # the predicted features, (m,)


def model_in(learner: Learner, option: Option | str, features: Sequence[int]) -> OptionModel:
    """Return the model of an option as its demons have learned it: the weights that predictions are read from.

    Args:
        learner: A Horde with the questions of `questions.model_of(option, features)`.
        option: The option, or its name.
        features: The features that are predicted.

    Raises:
        ValueError: If the question about the reward or one about a feature is missing.
    """
    name = option if isinstance(option, str) else option.name
    places = {question: place for place, question in enumerate(learner.names)}
    if f"{name}/{REWARD}" not in places:
        raise ValueError(
            f"option {name!r}: no question {name + '/' + REWARD!r} about its reward, without which there is "
            "nothing to plan for: add questions.model_of(option, features)"
        )
    names = [f"{name}/feature_{feature}" for feature in features]
    missing = [question for question in names if question not in places]
    if missing:
        raise ValueError(
            f"option {name!r}: no question {missing[0]!r}; add questions.model_of(option, features)"
        )
    demons = np.array([places[f"{name}/{REWARD}"], *(places[question] for question in names)])
    weights = learner.averaged_weights(demons)
    return OptionModel(name, weights[0], weights[1:], np.array(features, dtype=np.int64))


class Planner:
    """Plans a value function by the models of options.

    Args:
        models: The models, all of the same features.
        step_size: alpha, in (0, 1].
        renew_every: States after which the values u of the options are computed again.
        n_remembered: Number of states that are remembered; a newer one replaces the oldest.
        weights: Weights w of the planned value to begin with, (n_features,); 0 by default.

    Attributes:
        weights: w, (n_features,).
        n_look_ahead: Look-aheads so far: one is one option from one state.

    Raises:
        ValueError: If there is no model, two differ in their features or have one name, or an
            argument is out of its range.

    Examples:
        >>> stay = OptionModel("stay", np.array([1.0]), np.array([[0.5]]), np.array([0]))
        >>> planner = Planner([stay])
        >>> planner.remember(np.array([0]))
        >>> planner.plan(np.random.default_rng(0), n_look_ahead=60)
        >>> planner.weights.round(6), planner.n_look_ahead
        (array([2.]), 60)
    """

    def __init__(
        self,
        models: Sequence[OptionModel],
        *,
        step_size: float = 1.0,
        renew_every: int = 1,
        n_remembered: int = 10_000,
        weights: Floats | None = None,
    ) -> None:
        _check_alike(models)
        first = models[0]
        self.names = [model.name for model in models]
        self.step_size = number_in("step_size", step_size, "(0, 1]")
        self.renew_every = whole_number("renew_every", renew_every, 1)
        self.n_remembered = whole_number("n_remembered", n_remembered, 1)
        self.n_look_ahead = 0
        self._take(models)
        self.weights = np.zeros(len(first.reward))
        if weights is not None:
            if np.shape(weights) != self.weights.shape or not np.isfinite(weights).all():
                raise ValueError(
                    f"weights of a plan must be {self.weights.size:,} finite numbers, one for each feature, "
                    f"not of shape {np.shape(weights)}"
                )
            self.weights[:] = weights
        self._values = np.zeros_like(self._reward, dtype=np.float64)  # u, (n_options, n_features)
        self._n_until_renewal = 0
        self._states: Integers = np.zeros((0, 0), dtype=np.int64)
        self._n_states = 0

    @property
    def n_options(self) -> int:
        """Number of options."""
        return len(self.names)

    def take(self, models: Sequence[OptionModel]) -> None:
        """Plan by newer models of the same options and features from now on; weights and remembered states stay.

        Raises:
            ValueError: If they are of other options, or of other features.
        """
        _check_alike(models)
        names = [model.name for model in models]
        if names != self.names or len(models[0].reward) != self.weights.size:
            raise ValueError(
                f"models of {', '.join(names)} over {len(models[0].reward):,} features, expected those of "
                f"{', '.join(self.names)} over {self.weights.size:,}: make a new Planner"
            )
        self._take(models)
        self._n_until_renewal = 0

    def _take(self, models: Sequence[OptionModel]) -> None:
        self._features = models[0].features
        self._reward = np.array([model.reward for model in models])
        self._transition = [model.transition for model in models]

    def remember(self, tiles: Tiles) -> None:
        """Remember a state by its active features, (n_active,).

        Raises:
            ValueError: If one is no feature of the models, or there are not as many as before.
        """
        is_other = self._n_states > 0 and tiles.size != self._states.shape[1]
        if is_other or tiles.min() < 0 or tiles.max() >= self.weights.size:
            raise ValueError(
                f"a state to remember must have as many active features as others, each below "
                f"{self.weights.size:,}, not {tiles.size:,} from {tiles.min():,} to {tiles.max():,}"
            )
        if not self._n_states:
            self._states = np.zeros((self.n_remembered, tiles.size), dtype=np.int64)
        self._states[self._n_states % self.n_remembered] = tiles
        self._n_states += 1

    def option_values(self, tiles: Tiles) -> Floats:
        """Return what each option is worth by its model at a state, u_o.x, (n_options,)."""
        if self._n_until_renewal == 0:
            self.renew()
        return np.asarray(self._values[:, tiles].sum(axis=1))

    def value(self, tiles: Tiles) -> float:
        """Return the planned value of a state, w.x, by its active features, (n_active,)."""
        return float(self.weights[tiles].sum())

    def renew(self) -> None:
        """Compute the values u of the options from the weights: a product of each transition part with w."""
        weights = self.weights[self._features]
        for values, reward, transition in zip(
            self._values, self._reward, self._transition, strict=True
        ):
            values[:] = reward
            values += weights.astype(transition.dtype) @ transition
        self._n_until_renewal = self.renew_every

    def look_ahead(self, tiles: Tiles) -> float:
        """Back up a state from its active features, (n_active,): a look-ahead of each option; return its new value."""
        target = float(self.option_values(tiles).max())
        self._n_until_renewal -= 1
        self.n_look_ahead += self.n_options
        self.weights[tiles] += self.step_size * (target - self.value(tiles)) / tiles.size
        return target

    def plan(self, rng: RNGLike, n_look_ahead: int) -> None:
        """Back up remembered states, drawn from `rng`, with at most this number of look-aheads.

        Raises:
            ValueError: If that is not a whole number of at least 0.
            RuntimeError: If no state is remembered.
        """
        n_look_ahead = whole_number("n_look_ahead", n_look_ahead, 0)
        n_known = min(self._n_states, self.n_remembered)
        if not n_known:
            raise RuntimeError("no state to plan from: call remember(tiles) first")
        for state in generator(rng).integers(n_known, size=n_look_ahead // self.n_options):
            self.look_ahead(self._states[state])

    def state(self) -> State:
        """Return everything that later plans depend on, beside the models."""
        return attributes(self, *_STATE)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, with the same models.

        Models are no part of it: those of the step at which a Horde was saved are in its weights, `model_in`.

        Raises:
            ValueError: If it is of other numbers of options or features.
        """
        if state["_values"].shape != self._values.shape:
            raise ValueError(
                f"the state is of {state['_values'].shape} options and features, and the plan of "
                f"{self._values.shape}: restore it with the models that it was saved with"
            )
        put_back(self, state, *_STATE)


def _check_alike(models: Sequence[OptionModel]) -> None:
    """Raise ValueError if there is no model, or two differ in their features or have one name."""
    if not models:
        raise ValueError("a plan needs the model of at least one option")
    first = models[0]
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise ValueError(f"the models of a plan must have different names, not {', '.join(names)}")
    for model in models:
        is_alike = model.transition.shape == first.transition.shape and np.array_equal(
            model.features, first.features
        )
        if not is_alike or model.transition.shape != (len(model.features), len(first.reward)):
            raise ValueError(
                f"option {model.name!r}: its model is of other features than that of {first.name!r}"
            )


_STATE = ("weights", "n_look_ahead", "_values", "_n_until_renewal", "_states", "_n_states")
