"""Horde: many demons, each learning the answer to one question, all from one stream of experience.

    horde = Horde(questions, n_features=6065, n_active=457)
    horde.begin(observation, tiles)
    while True:
        ...take an action drawn with `probability`...
        predictions = horde.learn(action, probability, observation, tiles)

If predictions are not needed on each step, `mode="deferred"` learns the same at a lower cost: steps
are queued, and processed in batches or as soon as a method reads a result.

Source: Sutton et al. (2011), Horde; White, Modayil & Sutton (2012).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, named
from horde_agent.learning.demons import Demons, Mode
from horde_agent.learning.engine import NEWCOMER, check_weights
from horde_agent.learning.plain import PlainEngine
from horde_agent.learning.rules import LearnerConfig, step_sizes_of
from horde_agent.learning.span import SpanEngine
from horde_agent.learning.values import refuse_misfits
from horde_agent.measures.online import RUPEE, rupee_config
from horde_agent.types import Floats, Tiles, listed, whole_number

__all__ = ["Horde", "LearnerConfig", "Mode"]


class Horde(Demons):
    """The demons that answer `questions` from shared tiles.

    Args:
        questions: The questions; their names must differ.
        n_features: Number of features.
        n_active: Number of active features in each state; `config.step_size` is divided by it.
        config: Options of the learning algorithm.
        mode: "eager": each step is processed at once. "deferred": steps are queued and processed up
            to 64 at a time. Results differ only by rounding, but `learn` returns the predictions of
            the latest processed step, and a diverged demon is found at the end of its batch. The
            plain engine is always eager.
        channels: Names of the observation's channels, for questions that use names:
            `interface.names`.
        real_valued: Learn from real-valued feature vectors, such as a network's last layer, instead
            of tiles: pass phi, floats of shape (n_features,), wherever a method has `tiles`. The
            step size is divided by `n_active`, the expected squared length of phi. Uses the plain
            engine.
        share: Properties of the whole Horde, if these demons are a shard of it (`cluster`).

    Attributes:
        questions, names, n_demons: The questions, their names, their number.
        stream: Number of the selected stream.

    The plain engine replaces the fast one under the trace rule "capped", for update rules that the
    fast one does not support, and for traces longer than 1,000 steps (with a warning). In a forked
    process a Horde learns the same with one thread; spawn processes to use all threads.

    Raises:
        ValueError: If there is no question, two have one name, or one does not fit the others, the
            features or the channels.

    Examples:
        >>> from horde_agent import Behaviour, Channel
        >>> light, tiles = np.array([1.0]), np.array([0])
        >>> horde = Horde([GVF("next light", Behaviour(), Channel(0), continuation=0.0)], n_features=2, n_active=1)
        >>> predictions = horde.begin(light, tiles)
        >>> for _ in range(200):
        ...     predictions = horde.learn(action=0, probability=1.0, observation=light, tiles=tiles)
        >>> predictions.round(2)
        array([1.])
    """

    def __repr__(self) -> str:
        algorithms = ", ".join(sorted(set(self._algorithms)))
        facts = [
            f"{self.n_demons} demons: {listed(self.names)}",
            f"n_features={self.n_features}",
            f"n_active={self.n_active}",
            f"algorithm={algorithms}",
            f"trace_rule={self.config.trace_rule}",
        ]
        return f"Horde({'; '.join(facts)})"

    def new_rupee(self, beta0: float, step: float = 5.0) -> RUPEE:
        """Return a RUPEE of these demons with alpha_h = `step` alpha, which the caller updates on each step.

        Each demon's alpha is that of its own update rule.

        Create a new one after `add` and `remove`.

        Raises:
            ValueError: If a question finds a policy: RUPEE has weights for states only.
        """
        if any(q.finds_policy for q in self.questions):
            raise ValueError(
                "RUPEE does not support questions that find policies: use a Horde without them"
            )
        config = rupee_config(self.config, beta0)
        maker = self._maker
        kind: type[SpanEngine | PlainEngine] = SpanEngine
        if config.needs_plain_engine:
            kind = PlainEngine
        alpha = np.array(
            [step_sizes_of(self.config, name, self.n_active)[0] for name in self._algorithms]
        )
        args = (maker.group, self.n_features, 0.0, step * alpha, config)
        return RUPEE(kind(*args, policy=maker.policy), config)

    # ---- learning and predicting -------------------------------------------------------------------------------------

    def begin(self, observation: NDArray[Any], tiles: Tiles) -> Floats:
        """Begin a stream, at the first state and after every gap: clear the traces and learn nothing.

        Args:
            observation: The input of cumulants and functions, shape (n_channels,), finite.
            tiles: Active features, int64 of shape (n_active,), all different.

        Returns:
            Predictions of all demons, float64, shape (n_demons,).

        Raises:
            ValueError: If an argument has a wrong shape or type, is NaN or out of range, or a
                target policy returns invalid probabilities the first time it is evaluated; the
                message names it.
        """
        state = self._maker.states.checked(observation, tiles)
        if self._unchecked:
            refuse_misfits(self._unchecked, *state)
            self._unchecked = ()
        self._engine.begin(state[1])
        if self._engine.flags:
            self._handle_flags()
        self._state = state
        self._maker.begin(*state)
        return self._with_offsets(self._engine.direct.latest)

    def learn(
        self,
        action: int,
        probability: float,
        observation: NDArray[Any],
        tiles: Tiles,
        *,
        terminated: bool = False,
    ) -> Floats:
        """Learn from one transition: from the state of the last call, by `action`, to the given state.

        Args:
            action: The discrete action that the agent drew in the state of the last call.
            probability: b(action), the probability with which the behaviour policy drew it, in (0,
                1].
            observation: Observation of the next state, as in `begin`.
            tiles: Tiles of the next state, as in `begin`.
            terminated: True if the stream ended there: all continuations are 0. Call `begin` next.

        Returns:
            Predictions of the new weights at `tiles`, float64, shape (n_demons,); in deferred mode
            those of the latest processed step.

        Raises:
            ValueError: If an argument has a wrong shape or type, is NaN or out of range; the
                message names it.
            RuntimeError: If no stream was begun.
        """
        if self._state is None:
            raise RuntimeError(
                "no stream to learn from: call begin(observation, tiles) first, and after a termination"
            )
        maker = self._maker
        soundness = self._soundness
        action, probability = maker.states.action(action, probability)
        state = maker.states.copied(observation, tiles)
        soundness.begin_step()
        if self._share.predicted:
            self._engine.catch_up(self._share.predicted)
        findings = maker.make(
            action, probability, self._state, state, self._prediction_of, terminated=terminated
        )
        self._freeze_all(maker.misfits(), soundness.n_steps + 1)
        if findings:
            self._handle_findings(findings)
        engine = self._engine.direct
        engine.learn(state[1], maker.signals, is_last=terminated)
        soundness.n_steps += 1
        if engine.flags:
            self._handle_flags()
            engine = self._engine.direct
        if soundness.somebody_skips:
            maker.clear_non_finite_ratios()
        if terminated:
            self._state = None
        else:
            self._state = state
        return self._with_offsets(engine.latest)

    def select_stream(self, stream: int) -> None:
        """Learn from another stream of experience from now on, such as another robot's: `begin` and `learn` go there.

        Streams have separate traces and current states, and share everything else; the result
        depends on the order of
        their transitions. A change takes as long as some 60 steps, 3 ms for 795 questions: take
            turns of many steps.

        Args:
            stream: Its number, from 0, the first one; call `begin` after the first selection of any
                other.

        Raises:
            ValueError: If `stream` is not a whole number from 0 on.

        Examples:
            >>> from horde_agent import Behaviour, Channel
            >>> horde = Horde([GVF("light", Behaviour(), Channel(0), 0.5)], n_features=4, n_active=1)
            >>> for step in range(100):
            ...     horde.select_stream(step % 2)
            ...     state = np.ones(1), np.array([step % 2])
            ...     predictions = horde.begin(*state) if step < 2 else horde.learn(0, 1.0, *state)
            >>> [horde.predict(np.array([tile])).round(1).tolist() for tile in range(3)]
            [[2.0], [2.0], [0.0]]
        """
        stream = whole_number("stream", stream, 0)
        if stream == self.stream:
            return
        self.catch_up()
        self._engine.select_stream(stream)
        self._states[self.stream] = self._state
        self._state = self._states.pop(stream, None)
        self.stream = stream
        if self._engine.flags:
            self._handle_flags()

    def predict(self, tiles: Tiles) -> Floats:
        """Return the predictions of all demons at `tiles`, float64, shape (n_demons,), without learning.

        Raises:
            ValueError: If `tiles` has a wrong shape or type, or is out of range.
        """
        tiles = self._maker.states.tiles(tiles)
        return self._with_offsets(self._read(lambda engine: engine.predict(tiles)))

    def reset_weights(self, theta: NDArray[Any] | None = None) -> None:
        """Set theta, (n_demons, n_features), by default to zero; offsets, w, traces and estimates do not change.

        Bounds of weights are raised as if a cumulant of the size of the largest given weight had
        been observed.

        Raises:
            ValueError: If `theta` has another shape, is not finite, or exceeds the range of the
                learner's dtype.
        """
        self.catch_up()
        if theta is not None:
            theta = np.asarray(theta)
            check_weights(theta, (self.n_demons, self.n_features), np.dtype(self.config.dtype))
            self._maker.raise_bounds(np.abs(theta).max(axis=1))
            self._engine.set_bounds(self._maker.bound)
        self._engine.reset_weights(theta)

    def set_offsets(self, offsets: Floats) -> None:
        """Set the offsets of demons that estimate theirs; they stand still from now on.

        Args:
            offsets: Shape (n_demons,); NaN leaves a demon's offset as it is.

        Raises:
            ValueError: If the shape is another, a demon's offset is a given number, or demons with
                the same channel, continuation and outcome that were added together would get
                different offsets; nothing has changed.
        """
        self.catch_up()
        values = np.asarray(offsets, dtype=np.float64)
        if values.shape != (self.n_demons,):
            raise ValueError(f"offsets must have the shape ({self.n_demons},), not {values.shape}")
        self._maker.set_offsets(values)

    # ---- adding and removing demons ----------------------------------------------------------------------------------

    def add(self, questions: Sequence[GVF]) -> None:
        """Add questions, at any time; their demons follow the others in every array.

        A new demon starts at zero and learns from the next transition on, exactly as in a Horde
        that calls `begin` at the current state. The others change only by rounding, because pending
        updates are written at other steps. This takes about as long as creating the Horde, and
        memory for a second copy of one of its weight arrays.

        Raises:
            ValueError: If a name exists already, a question does not fit the others, the features
                or the channels, or its target policy returns invalid probabilities at the current
                state; nothing has changed.
        """
        questions = named(questions, self._channels)
        if not questions:
            return
        unasked = (*self._unchecked, *questions)
        if self._state is not None:
            refuse_misfits(questions, *self._state)
            unasked = ()
        old_index = np.r_[np.arange(self.n_demons), np.full(len(questions), NEWCOMER)]
        self._change(old_index, (*self.questions, *questions), unasked)
        if self._state is not None:
            self._maker.begin(*self._state)

    def remove(self, names: Sequence[str]) -> None:
        """Remove the demons with these names and free their memory; the others move up and continue as in `add`.

        Objects indexed by demon (`Student`, `MspbeWatch`, `UDE`, `RUPEE`) become invalid, here and
        in `add`: create new ones, or use `Life.add` and `Life.remove`.

        Raises:
            ValueError: If a name is unknown, no demon would remain, or the cumulant of a remaining
                demon is the prediction of a removed one; nothing has changed.
        """
        removed = set(names)
        unknown = sorted(removed - set(self.names))
        if isinstance(names, str) or unknown:
            raise ValueError(
                f"names must be a list of names of demons of this Horde; {unknown or [names]} are not"
            )
        old_index = np.array(
            [i for i, name in enumerate(self.names) if name not in removed], dtype=np.int64
        )
        if removed:
            unasked = tuple(q for q in self._unchecked if q.name not in removed)
            self._change(old_index, tuple(self.questions[i] for i in old_index), unasked)

    # ---- several streams --------------------------------------------------------------------------------------------

    def copy_for_stream(self) -> Horde:
        """Return a Horde with the same weights for another stream of experience; see `merge`.

        Raises:
            ValueError: If the engine is the span engine: only the plain one stores traces per
                stream.
        """
        copy = Horde(
            self.questions,
            n_features=self.n_features,
            n_active=self.n_active,
            config=self.config,
            channels=self._channels,
            real_valued=self._real_valued,
        )
        engine, engine_of_copy = self._plain_engines([self, copy])
        engine_of_copy.copy_weights_from(engine)
        if self._maker.offsets.is_on:
            copy._maker.copy_offsets_from(self._maker)
        self._share_divergence([copy])
        return copy

    def merge(self, others: Sequence[Horde]) -> None:
        """Average the changes that several Hordes have learned, each from its stream, since they were last merged.

            theta_{t+1} = theta_t + (1/n) sum_k (theta^k_{t+1} - theta_t)

        for n Hordes that started at theta_t; likewise w and the MSPBE estimates. Each stream keeps
        its traces, and a demon that diverged in one Horde is diverged in all. Merging after each
        step is one learner with batches of n
        transitions: n times the step size gives each transition the weight that it has in a single
            stream.

        Args:
            others: Copies of this one by `copy_for_stream`; changed in place.

        Raises:
            ValueError: If their questions or features differ, or one uses the span engine.
        """
        alike = (self, *others)
        if any(
            (horde.names, horde.n_features) != (self.names, self.n_features) for horde in others
        ):
            raise ValueError(
                "only Hordes with the same questions and features can be merged: create the others by copy_for_stream()"
            )
        first, *rest = self._plain_engines(alike)
        self._share_divergence(others)
        first.merge(rest)

    @staticmethod
    def _plain_engines(hordes: Sequence[Horde]) -> list[PlainEngine]:
        engines = [engine for horde in hordes for engine in horde._engine.engines.values()]
        plain = [engine for engine in engines if isinstance(engine, PlainEngine)]
        if not len(engines) == len(plain) == len(hordes):
            raise ValueError(
                "several streams need separate traces, which only the plain engine stores: create the Horde with "
                'config=LearnerConfig(engine="plain")'
            )
        return plain
