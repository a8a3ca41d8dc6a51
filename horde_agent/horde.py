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

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, named
from horde_agent.kernels import checks
from horde_agent.kernels.checks import TAIL_TOO_LONG, Signals
from horde_agent.kernels.rules import rule
from horde_agent.learner import ShardStatus
from horde_agent.learning.divergence import DivergenceMonitor
from horde_agent.learning.engine import (
    DemonMapping,
    Engine,
    RuleEngine,
    check_weights,
    max_finite,
    no_step_sizes,
)
from horde_agent.learning.groups import trace_groups
from horde_agent.learning.inputs import CurrentStates, InputChecker
from horde_agent.learning.lstd import LSTD, n_random_features
from horde_agent.learning.mixed import MixedEngine
from horde_agent.learning.offsets import checked_offsets
from horde_agent.learning.plain import PlainEngine
from horde_agent.learning.rarity import UNSEEN, FeatureRarity, visit_counter
from horde_agent.learning.ratios import ErrorTotals, PolicyRatios, refuse_misfits
from horde_agent.learning.readout import Readout
from horde_agent.learning.rules import (
    DEFAULT_CONFIG,
    LearnerConfig,
    parse_algorithm,
    rules_of,
    step_sizes_of,
    with_rules,
)
from horde_agent.learning.rupee import RUPEE, rupee_config
from horde_agent.learning.signals import SignalMaker, check_features, check_names
from horde_agent.learning.span import SpanEngine
from horde_agent.learning.span_storage import WHOLE, ShardContext
from horde_agent.learning.stored import NEWCOMER, Stored, with_further_features
from horde_agent.learning.values import AgentState, Cumulants, Observation, largest_decay
from horde_agent.policies import Gibbs, Greedy
from horde_agent.refusals import whole_number
from horde_agent.saving import State, inner, nested, text, untext
from horde_agent.types import Floats, Integers, Tiles, listed

__all__ = ["Horde", "LearnerConfig", "Mode"]

Mode = Literal["eager", "deferred"]
DEFERRED_STEPS = 64
"""Steps that are queued before they are processed in deferred mode."""
_BATCHES = {"eager": 1, "deferred": DEFERRED_STEPS}


class Horde:
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
            engine, without `rarity`, as only tiles are counted.
        share: Properties of the whole Horde, if these demons are a shard of it (`cluster`).

    Attributes:
        questions, names, n_demons: The questions, their names, their number.
        signals: Signals of the last transition, in arrays that the next one overwrites.

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

    def __init__(
        self,
        questions: Sequence[GVF],
        *,
        n_features: int,
        n_active: int,
        config: LearnerConfig = DEFAULT_CONFIG,
        mode: Mode = "eager",
        channels: Sequence[str] = (),
        real_valued: bool = False,
        share: ShardContext = WHOLE,
    ) -> None:
        if real_valued and config.engine == "span":
            raise ValueError(
                'engine="span" does not support real-valued features: omit engine, or choose "plain"'
            )
        check_size(n_features, n_active, mode)
        self._channels = tuple(channels)
        resolved = named(questions, self._channels)
        self.config = replace(config, lstd=n_random_features(config.lstd, resolved))
        if real_valued:
            self.config = replace(self.config, engine="plain", rarity=False)
        self.n_features = n_features
        self.n_active = n_active
        self._batch = _BATCHES[mode]
        self._share = share
        self._real_valued = real_valued
        self._set_questions(resolved, np.zeros(len(resolved), dtype=np.int64))
        self._current = CurrentStates()
        self._engine = self._new_engine()
        self._rarity: FeatureRarity | None = None
        if self.config.rarity:
            self._rarity = FeatureRarity(n_features, n_active)
        self._unchecked = self.questions  # questions with policies that were never evaluated
        # `n_updates` less the steps with rho > 0 of the present demons: those of removed demons, and
        # negative for the steps in which a demon had diverged or skipped
        self._n_updates_apart = 0

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

    # ---- learning and predicting -----------------------------------------------------------------

    def begin(self, observation: NDArray[Any], tiles: Tiles) -> Floats:
        """Begin a stream, at the first state and after every gap: clear the traces and learn nothing.

        Args:
            observation: The input of cumulants and functions, shape (n_channels,), finite, or NaN where a
                reading is missing: questions whose cumulant, continuation, outcome or policy is then
                NaN skip the step, and the others learn.
            tiles: Active features, int64 of shape (n_active,), all different.

        Returns:
            Predictions, as `predictions`, float64, shape (n_demons,).

        Raises:
            ValueError: If an argument has a wrong shape or type or is out of range, or a
                target policy returns invalid probabilities the first time it is evaluated; the
                message names it.
        """
        state = self._inputs.checked(observation, tiles)
        if self._unchecked:
            refuse_misfits(self._unchecked, *state)
            self._unchecked = ()
        if self._rarity is not None:
            visit_counter()(self._rarity.visits, state[1])
        lstd = self._readout.lstd
        if lstd is not None and lstd.n_since:
            self._compare_lstd(lstd)
        engine = self._engine.direct
        engine.begin(state[1])
        if engine.flags:
            self._handle_flags()
        self._current.state = state
        self._maker.begin(*state)
        return self._readout.latest(self._engine.direct, n_waiting=0)

    def learn(
        self,
        action: int,
        probability: float,
        observation: NDArray[Any],
        tiles: Tiles,
        *,
        terminated: bool = False,
        reward: float = np.nan,
    ) -> Floats:
        """Learn from one transition: from the state of the last call, by `action`, to the given state.

        Args:
            action: The discrete action that the agent drew in the state of the last call.
            probability: b(action), the probability with which the behaviour policy drew it, in (0,
                1].
            observation: Observation of the next state, as in `begin`.
            tiles: Tiles of the next state, as in `begin`.
            terminated: True if the stream ended there: all continuations are 0. Call `begin` next.
            reward: Reward of the transition; NaN if unknown. Questions about `Reward()` skip a
                transition with a reward that is not finite.

        Returns:
            Predictions at `tiles` after this step, as `predictions`, float64, shape (n_demons,); in
            deferred mode those of the latest processed step.

        Raises:
            ValueError: If an argument has a wrong shape or type, is NaN or out of range; the
                message names it.
            RuntimeError: If no stream was begun.
        """
        previous_state = self._current.state
        if previous_state is None:
            raise RuntimeError(
                "no stream to learn from: call begin(observation, tiles) first, and after a termination"
            )
        action, probability = self._inputs.action(action, probability)
        state = self._inputs.checked(observation, tiles)
        self._write_signals(
            action, probability, previous_state, state, terminated=terminated, reward=reward
        )
        divergence = self._divergence
        engine = self._engine.direct
        engine.learn(state[1], self.signals, is_last=terminated)
        divergence.n_steps += 1
        rarity = self._rarity
        if rarity is not None:
            visit_counter()(rarity.visits, state[1])
            if divergence.n_steps >= rarity.next_at:
                self._engine.set_scales(rarity.classify(divergence.n_steps))
        if engine.flags:
            self._handle_flags()
        lstd = self._readout.lstd
        if lstd is not None:
            lstd.note(state[0], action, reward, terminated=terminated)
            if terminated or lstd.n_since == DEFERRED_STEPS:
                self._compare_lstd(lstd)
            if lstd.is_due:
                lstd.add()
        averages = self._readout.averages
        if averages is not None and divergence.n_steps >= averages.due_at:
            self._readout.move_averages(self._processed(), divergence.n_steps, is_last=terminated)
        if divergence.somebody_skips or divergence.reasons:
            self._n_updates_apart += self.n_updated - int(np.count_nonzero(self.rho > 0.0))
        if terminated:
            self._current.state = None
        else:
            self._current.state = state
        engine = self._engine.direct  # another one if a trace became too long
        return self._readout.latest(engine, engine.n_waiting)

    def _write_signals(
        self,
        action: int,
        probability: float,
        previous_state: AgentState,
        state: AgentState,
        *,
        terminated: bool,
        reward: float,
    ) -> None:
        """Write the signals of a transition between two states; mark demons that skip it or diverged."""
        if self._divergence.somebody_skips:
            self._divergence.begin_step()
        if self._share.predicted:
            self._engine.catch_up(self._share.predicted)
        self._ratios.write(action, probability, *previous_state)
        findings = self._maker.make(
            previous_state, state, self._prediction_of, terminated=terminated, reward=reward
        )
        if self._ratios.given:
            findings |= checks.BROKEN
        if self._ratios.misfits:
            self._mark_all_diverged(self._ratios.pop_misfits(), self._divergence.n_steps + 1)
        if findings:
            self._handle_findings(findings)

    def _compare_lstd(self, lstd: LSTD) -> None:
        """Compare the TD errors of weights and LSTD in the latest transition, with the last one of a deferred batch."""
        if not lstd.is_measured:
            lstd.n_since = 0
            return
        td_error = self._processed().numbers("td_error")
        divergence = self._divergence
        learned = (self.rho > 0.0) & ~divergence.is_diverged & ~divergence.is_skipping
        lstd.compare(td_error, learned)

    def select_stream(self, stream: int) -> None:
        """Learn from another stream of experience from now on, such as another robot's: `begin` and `learn` go there.

        Streams have separate traces and current states, and share everything else; the result
        depends on the order of their transitions. A change takes as long as some 60 steps, 3 ms for
        795 questions: take turns of many steps.

        Args:
            stream: Its number, from 0, the first one; call `begin` after the first selection of any
                other.

        Raises:
            ValueError: If `stream` is not a whole number from 0 on.

        Examples:
            >>> from horde_agent import Behaviour, Channel
            >>> question = GVF("light", Behaviour(), Channel(0), 0.5)
            >>> horde = Horde([question], n_features=4, n_active=1, config=LearnerConfig.paper())
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
        self._current.select(stream)
        observation = None
        if self._current.state is not None:
            observation = self._current.state[0]
        self._readout.select_stream(stream, observation)
        if self._engine.flags:
            self._handle_flags()

    def predict(self, tiles: Tiles, observation: NDArray[Any] | None = None) -> Floats:
        """Return the predictions of all demons at a state, float64, shape (n_demons,), without learning.

        Args:
            tiles: Its tiles, as in `begin`.
            observation: Its observation, as in `begin`; needed if an offset follows the reading.

        Raises:
            ValueError: If an argument is missing, has a wrong shape or type, is NaN or out of range.
        """
        if observation is None:
            tiles = self._inputs.tiles(tiles)
        else:
            observation, tiles = self._inputs.checked(observation, tiles)
        return self._readout.elsewhere(self._processed(), tiles, observation)

    def action_values(self, name: str, tiles: Tiles) -> Floats:
        """Return the action values of a question that finds a policy, at `tiles`, float64, shape (n_actions,).

        Args:
            name: Name of the question.
            tiles: Active features, shape (n_active,); not checked, because policies read this on
                every step.

        Raises:
            ValueError: If no question of this name finds a policy.
        """
        demon = -1
        if name in self.names:
            demon = self.names.index(name)
        if demon < 0 or not self.questions[demon].finds_policy:
            names_found = ", ".join(q.name for q in self.questions if q.finds_policy) or "none"
            raise ValueError(f"no question finds the policy {name!r}: there are {names_found}")
        values = self._engine.action_values(demon, tiles)
        if self._readout.offsets.is_on:
            values = values + self._readout.offsets.arrays.added[demon]
        return values

    @property
    def shards(self) -> Sequence[ShardStatus]:
        """Empty: all demons are in this process."""
        return ()

    @property
    def stream(self) -> int:
        """Number of the selected stream."""
        return self._current.stream

    @property
    def n_waiting(self) -> int:
        """Number of queued steps."""
        return self._engine.direct.n_waiting

    def catch_up(self) -> None:
        """Process the queued steps; in eager mode there are none."""
        engine = self._engine.direct
        engine.catch_up()
        self._readout.mark_processed()
        if engine.flags:
            self._handle_flags()

    def work_ahead(self) -> None:
        """Do now what the next step would begin with: the same life to the bit, and a shorter step.

        Call it once the predictions were used, before the next observation comes. In eager mode
        pending updates are written and averages moved by turns, a part of the demons at a time:
        `learn` does so before its transition unless it is done. `predictions` do not change.
        """
        self._engine.direct.work_ahead()

    # ---- results: reading them learns nothing ----------------------------------------------------

    @property
    def predictions(self) -> Floats:
        """Predictions of all demons at the latest state, float64, shape (n_demons,).

        Each is its demon's answer: the offset, theta.phi by the averaged weights, and their shift
        (`learning.readout`). A demon without an average reads its latest weights.
        """
        return self._readout.latest(self._processed(), n_waiting=0)

    @property
    def offsets(self) -> Floats:
        """Offset added to theta.phi of each demon, shape (n_demons,); 0 if the demon diverged."""
        self.catch_up()
        return self._readout.offsets.arrays.added.copy()

    @property
    def reading_shares(self) -> Floats:
        """Share of the reading's deviation that an offset follows, kappa, shape (n_demons,); 0 if it does not."""
        return self._readout.following.shares

    @property
    def reading_sums(self) -> Floats:
        """Sums of products and squares of readings that these shares are estimated from, shape (2, n_demons)."""
        return self._readout.following.sums

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step, shape (n_demons,)."""
        return self._processed().numbers("td_error")

    def error_totals(self) -> Floats:
        """Return sums over each demon's steps, shape (2, n_demons): of rho delta, and of rho delta^2.

        They are of its TD errors delta, weighted by its ratios rho. The engine adds up those since the last call.
        """
        self._errors.totals += self._processed().pop_errors()
        return self._errors.totals.copy()

    @property
    def rho(self) -> Floats:
        """Importance sampling ratios of the last step, shape (n_demons,)."""
        return self._ratios.of_demons

    def ratio_totals(self) -> Floats:
        """Return sums over each demon's steps: count of rho > 0, sum of rho, sum of rho squared; (3, n_demons)."""
        return self._ratios.totals()

    @property
    def n_updated(self) -> int:
        """Number of demons that learned in the last step: with rho > 0, not diverged, and not skipping it."""
        n_updated = checks.count_updated(
            self.signals.rho_t,
            self._groups.policy,
            self._groups.group,
            self._divergence.is_diverged,
            self._divergence.is_skipping,
        )
        return int(n_updated)

    @property
    def n_updates(self) -> int:
        """Number of demons that learned, summed over all steps: `n_updated`."""
        n_positive = self.ratio_totals()[checks.N_POSITIVE]
        return int(n_positive.sum()) + self._n_updates_apart

    @property
    def max_trace(self) -> float:
        """Largest |e| so far, of all demons."""
        return float(self.max_traces.max())

    @property
    def max_traces(self) -> Floats:
        """Largest |e| so far of each demon, shape (n_demons,)."""
        return self._processed().numbers("max_trace")

    @property
    def diverged(self) -> list[str]:
        """Names of the diverged demons."""
        self.catch_up()
        return list(self._divergence.reasons)

    @property
    def n_diverged(self) -> int:
        """Number of diverged demons, without processing queued steps."""
        return len(self._divergence.reasons)

    @property
    def divergence_reason(self) -> dict[str, str]:
        """Why each diverged demon diverged, and the learning step at which that was found, by name."""
        self.catch_up()
        return dict(self._divergence.reasons)

    @property
    def n_skipped(self) -> Integers:
        """Number of steps that each demon skipped, shape (n_demons,).

        A demon skips a step if one of its signals is not finite, or a continuation or trace decay
        lies outside [0, 1]. Its trace is cleared and its weights do not change.
        """
        return self._divergence.n_skipped.copy()

    @property
    def skipped_because(self) -> dict[str, str]:
        """Number of skips and the first reason of each demon that skipped a step, by name."""
        return self._divergence.skipped_because()

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimates s, signed, shape (n_demons,): s += (delta (e.w) - s) / tau."""
        return self._processed().numbers("mspbe")

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimates m.w, shape (n_demons,): m += (delta e - m) / tau.

        Raises:
            ValueError: If `config.vector_mspbe` is False.
        """
        return self._processed().mspbe_vector()

    def weights(self, demons: Integers | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return copies of the latest theta and w, each (n_demons, n_features), in the learner's dtype.

        Args:
            demons: Indices of some demons, shape (n,), for arrays of shape (n, n_features); all by
                default. A demon that finds a policy has n_actions n_features weights.

        Raises:
            ValueError: If some of them find policies and others do not.
        """
        theta, w = self._processed().rows("theta", "w", demons=demons)
        return theta, w

    def averaged_weights(self, demons: Integers | None = None) -> NDArray[Any]:
        """Return a copy of the weights that predictions are read from, (n_demons, n_features).

        These are the averages of theta with `config.average`, otherwise theta, as of a demon that was
        added and has no average yet; `demons` and errors are as of `weights`. A prediction is their
        sum over the active features, the offset, and the shift.
        """
        return self._readout.averaged_weights(self._processed(), demons)

    @property
    def shifts(self) -> Floats:
        """Shift added to each demon's averaged prediction, shape (n_demons,), as in `learning.averages`; 0 without."""
        return self._readout.shifts

    def step_sizes(self) -> NDArray[Any]:
        """Return a copy of every weight's step size, (n_demons, n_features), of a rule that adapts them.

        Raises:
            ValueError: If the Horde's rule has one step size for all weights, or its questions name
                several rules.
        """
        algorithms = {parse_algorithm(name)[0] for name in self._algorithms}
        if len(set(self._algorithms)) > 1 or "beta" not in rule(*algorithms).vectors:
            raise no_step_sizes(self.config.algorithm)
        engine = self._processed()
        (beta,) = engine.rows("beta")
        alpha = engine.numbers("alpha")
        return np.asarray(alpha[:, None] * np.exp(beta), dtype=beta.dtype)

    def weights_sha256(self) -> str:
        """Return the SHA-256 of theta, then w: little-endian, C order (demon, feature), in the learner's dtype."""
        digest = hashlib.sha256()
        parts = [self.weights(run) for run in self._engine.runs()]
        for array in (of_part[which] for which in (0, 1) for of_part in parts):
            digest.update(
                np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
            )
        return digest.hexdigest()

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
        alpha = np.array(
            [step_sizes_of(self.config, name, self.n_active)[0] for name in self._algorithms]
        )
        groups = self._groups
        engine: Engine
        if config.needs_plain_engine:
            engine = PlainEngine(
                groups.group, self.n_features, 0.0, step * alpha, config, policy=groups.policy
            )
        else:
            engine = SpanEngine(
                groups.group, self.n_features, 0.0, step * alpha, config, policy=groups.policy
            )
        return RUPEE(engine, config)

    # ---- setting weights and offsets -------------------------------------------------------------

    def reset_weights(self, theta: NDArray[Any] | None = None) -> None:
        """Set theta, (n_demons, n_features), by default to zero; offsets, w, traces and estimates do not change.

        Averages of the weights begin again.

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
            self._engine.set_bounds(self._maker.arrays.bound)
        self._engine.reset_weights(theta)
        self._readout.restart(self._divergence.n_steps)

    def set_offsets(self, offsets: Floats, reading_sums: Floats | None = None) -> None:
        """Set the offsets of demons that estimate theirs; they stand still from now on.

        Args:
            offsets: Shape (n_demons,); NaN leaves a demon's offset as it is.
            reading_sums: `reading_sums` of a Horde that learned, shape (2, n_demons), for offsets that
                follow the reading; NaN leaves a demon's as they are.

        Raises:
            ValueError: If the shape is another, a demon's offset is a given number, or demons with
                the same channel, continuation and outcome that were added together would get
                different offsets; nothing has changed.
        """
        self.catch_up()
        self._readout.set_offsets(*checked_offsets(offsets, reading_sums, self.n_demons))

    # ---- adding and removing demons --------------------------------------------------------------

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
        unchecked = (*self._unchecked, *questions)
        current_state = self._current.state
        if current_state is not None:
            refuse_misfits(questions, *current_state)
            unchecked = ()
        old_index = np.r_[np.arange(self.n_demons), np.full(len(questions), NEWCOMER)]
        self._change(old_index, (*self.questions, *questions), unchecked)
        if current_state is not None:
            self._maker.join(*current_state)

    def remove(self, names: Sequence[str]) -> None:
        """Remove the demons with these names and free their memory; the others move up and continue as in `add`.

        Objects indexed by demon (`StreamLearner`, `MspbeWatch`, `UDE`, `RUPEE`) become invalid, here and
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
            unchecked = tuple(q for q in self._unchecked if q.name not in removed)
            self._change(old_index, tuple(self.questions[i] for i in old_index), unchecked)

    # ---- several Hordes that learn one thing from several streams --------------------------------

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
        copy._engine.mergeable.restore(self._engine.mergeable.state())  # `begin` clears the traces
        copy._readout.copy_estimates_from(self._readout)
        if self._readout.averages is not None or self._rarity is not None:
            copy._divergence.n_steps = self._divergence.n_steps
        if copy._rarity is not None and self._rarity is not None:
            copy._rarity.restore(self._rarity.state())
        self._share_divergence([copy])
        return copy

    def merge(self, others: Sequence[Horde]) -> None:
        """Average the changes that several Hordes have learned, each from its stream, since they were last merged.

            theta_{t+1} = theta_t + (1/n) sum_k (theta^k_{t+1} - theta_t)

        for n Hordes that started at theta_t; likewise w and the MSPBE estimates. Each stream keeps
        its traces, and a demon that diverged in one Horde is diverged in all. Merging after each
        step is one learner with batches of n transitions: n times the step size gives each
        transition the weight that it has in a single stream.

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
        engine, *other_engines = [horde._engine.mergeable for horde in alike]
        self._share_divergence(others)
        engine.merge(other_engines)

    def _share_divergence(self, others: Sequence[Horde]) -> None:
        """Synchronise diverged demons, weight bounds, offsets and shifts across Hordes."""
        alike = (self, *others)
        reasons = {
            name: why
            for horde in reversed(alike)
            for name, why in horde._divergence.reasons.items()
        }
        for horde in alike:
            for name, why in reasons.items():
                demon = self.names.index(name)
                is_new = horde._divergence.note(demon, why)
                if is_new:
                    horde._mark_diverged(demon)
        for name, part in self._parts.items():
            part.merge([horde._parts[name] for horde in others])
        for horde in alike:
            horde._readout.write_references()
            horde._engine.set_bounds(horde._maker.arrays.bound)

    # ---- saving and restoring --------------------------------------------------------------------

    def state(self) -> State:
        """Return copies of the complete state, as arrays by name; queued steps stay queued."""
        facts = {
            "made_plain": text(sorted(self._engine.made_plain)),
            "unchecked": text([q.name for q in self._unchecked]),
            "n_updates_apart": np.array(self._n_updates_apart),
        }
        parts = {name: part.state() for name, part in self._parts.items()}
        return nested(
            facts=facts, engine=self._engine.state(), current=self._current.saved(), **parts
        )

    def restore(self, state: State) -> None:
        """Restore a state of a Horde with the same arguments and the same calls of `add` and `remove`.

        Learning continues bit for bit, with any number of threads.
        """
        made_plain = set(untext(state["facts/made_plain"]))
        if made_plain != self._engine.made_plain:
            self._engine = self._new_engine(made_plain)
        self._engine.restore(inner(state, "engine"))
        self._current.restore(inner(state, "current"))
        for name, part in self._parts.items():
            part.restore(inner(state, name))
        self._n_updates_apart = int(state["facts/n_updates_apart"])
        unchecked = set(untext(state["facts/unchecked"]))
        self._unchecked = tuple(q for q in self.questions if q.name in unchecked)

    def take_over(self, former: Horde) -> None:
        """Continue with what a Horde of the same demons has learned, whose features are the first of this one's.

        Weights, averages, estimates and counts are kept, and weights of further features are 0. Traces are
        not kept: call `begin`.

        Args:
            former: The other one, of one stream. It is at another stream afterwards.
        """
        former.catch_up()
        if former._engine.made_plain != self._engine.made_plain:
            self._engine = self._new_engine(former._engine.made_plain)
        learned = former.state()
        former.select_stream(former.stream + 1)  # which writes what waits, and has no traces
        learned |= {
            name: array for name, array in former.state().items() if name.startswith("engine/")
        }
        self.restore(with_further_features(learned, self.state(), former.n_features))
        if self._rarity is not None and self._rarity.latest is not None:
            self._rarity.class_of[former.n_features :] = UNSEEN
            self._engine.set_scales(self._rarity.latest)

    @property
    def _parts(self) -> dict[str, Stored]:
        """What is stored beside the engine and the current states, by name."""
        parts: dict[str, Stored] = {
            "ratios": self._ratios,
            "errors": self._errors,
            "signals": self._maker,
            "divergence": self._divergence,
            **self._readout.parts,
        }
        if self._rarity is not None:
            parts["rarity"] = self._rarity
        return parts

    # ---- skips and divergence --------------------------------------------------------------------

    def _handle_findings(self, found: int) -> None:
        """Process the bits of `checks.finish_signals`: mark demons that skip the step, raise bounds."""
        if found & checks.BROKEN:
            rho = None
            if self._ratios.given:
                rho = self._ratios.given_to_demons
            beyond = self._maker.mark_skips(self._divergence, rho)
            reasons = {
                i: f"{why}, which {self.config.dtype} cannot hold" for i, why in beyond.items()
            }
            self._mark_all_diverged(reasons, self._divergence.n_steps + 1)
        if found & checks.BOUND_RISES:
            self._engine.set_bounds(self._maker.arrays.bound)

    def _handle_flags(self) -> None:
        """Mark the demons that the engine found diverged; switch to the plain engine if a trace is too long."""
        self._mark_all_diverged(self._engine.pop_diverged(), self._divergence.n_steps)
        if self._engine.flags & TAIL_TOO_LONG:
            self._engine.to_plain()

    def _mark_diverged(self, demon: int) -> None:
        """Mark a demon as diverged: its weights are zero from now on, and so is its prediction."""
        self._engine.mark_diverged(demon)
        for part in self._parts.values():
            part.mark_diverged(demon)

    def _mark_all_diverged(self, reasons: dict[int, str], step: int) -> None:
        """Mark demons, and those about a policy that one of them finds, as diverged; keep each one's first reason."""
        for demon, why in reasons.items():
            is_new = self._divergence.note(demon, f"{why} (learning step {step:,})")
            if not is_new:
                continue
            self._mark_diverged(demon)
            if self.questions[demon].finds_policy:
                name = self.names[demon]
                reason = f"{name!r}, which finds its policy, diverged"
                self._mark_all_diverged(dict.fromkeys(self._demons_about(name), reason), step)

    def _demons_about(self, name: str) -> list[int]:
        """Return the demons whose target policy the demon of this name finds, itself included."""
        policies = [question.target_policy for question in self.questions]
        return [
            demon
            for demon, policy in enumerate(policies)
            if isinstance(policy, Greedy) and policy.of == name
        ]

    # ---- what the questions determine ------------------------------------------------------------

    def _set_questions(self, questions: tuple[GVF, ...], cohort: Integers) -> None:
        """Set the questions, or raise ValueError and change nothing; `cohort` is as in `TraceGroups`."""
        questions = with_rules(questions, self.config, self.action_values)
        check_names(questions)
        check_features(questions, self.n_features)
        if self._real_valued and any(isinstance(q.target_policy, Gibbs) for q in questions):
            raise ValueError(
                "a Gibbs policy is one over active tiles; for real-valued features write a policy of your own"
            )
        dtype = np.dtype(self.config.dtype)
        groups = trace_groups(questions, cohort)
        ratios = PolicyRatios(groups, max_finite(dtype), self._share.n_gibbs)
        cumulants = Cumulants(questions, self.n_features)
        readout = Readout(questions, cumulants, cohort, self.config, is_deferred=self._batch > 1)
        maker = SignalMaker(
            questions=questions,
            groups=groups,
            cumulants=cumulants,
            readout=readout,
            max_finite=max_finite(dtype),
            n_features=self.n_features,
        )
        self._inputs = InputChecker(
            n_features=self.n_features,
            n_active=self.n_active,
            n_channels=cumulants.n_channels,
            n_actions=ratios.n_actions,
            real_valued=self._real_valued,
        )
        self._groups = groups
        self._ratios = ratios
        self._errors = ErrorTotals(len(questions))
        self._maker = maker
        self._readout = readout
        self.signals = Signals(
            rho_t=ratios.arrays.rho,
            gamma_tp1=maker.arrays.gamma,
            lam_tp1=maker.arrays.lam,
            c_tp1=maker.arrays.c,
            z_tp1=maker.arrays.z,
            b_t=ratios.b,
            action_t=ratios.action,
            interest_t=maker.interest,
            has_rho=ratios.has_rho,
            is_fixed=maker.arrays.is_fixed and not ratios.has_functions,
        )
        self.questions = questions
        self.names = [q.name for q in questions]
        self._divergence = DivergenceMonitor(self.names)
        self.n_demons = len(questions)
        self._largest_decay = max(largest_decay(questions), self._share.largest_decay)
        self._algorithms = rules_of(questions, self.config)

    def _change(
        self, old_index: Integers, questions: tuple[GVF, ...], unchecked: tuple[GVF, ...]
    ) -> None:
        """Continue with other questions; `old_index` is as in `DemonMapping`."""
        self.catch_up()
        maker = self._maker
        ratios = self._ratios
        errors = self._errors
        readout = self._readout
        divergence = self._divergence
        groups = self._groups
        n_updates = self.n_updates
        cohort = groups.cohort
        is_new = old_index == NEWCOMER
        self._set_questions(questions, np.where(is_new, int(cohort.max()) + 1, cohort[old_index]))
        self._unchecked = unchecked
        self._share = self._share._replace(layouts={})
        earlier = self._groups.earlier(groups, old_index)
        self._maker.carry_over(maker, earlier)
        self._ratios.carry_over(ratios, earlier)
        self._errors.carry_over(errors, earlier)
        self._divergence.carry_over(divergence, earlier)
        self._readout.carry_over(readout, earlier, divergence.n_steps)
        self._n_updates_apart += n_updates - self.n_updates
        latest_rarity = None
        if self._rarity is not None:
            latest_rarity = self._rarity.latest
        self._engine.rearrange(
            self._mapping(old_index), self._current.tiles(), {}, rarity=latest_rarity
        )
        self._engine.set_bounds(self._maker.arrays.bound)

    def _new_engine(self, made_plain: Collection[str] = ()) -> MixedEngine:
        """Return an engine without weights; rules in `made_plain` get the plain engine."""
        return MixedEngine(
            config=self.config,
            n_features=self.n_features,
            n_active=self.n_active,
            batch=self._batch,
            mapping=self._mapping(np.full(self.n_demons, NEWCOMER)),
            layouts=self._share.layouts,
            made_plain=made_plain,
        )

    def _mapping(self, old_index: Integers) -> DemonMapping:
        """Return the demons and how they learn; `old_index` is as in `DemonMapping`."""
        return DemonMapping(
            old_index,
            self._groups.group,
            self._groups.policy,
            cumulant=self._maker.arrays.cumulant,
            algorithm=self._algorithms,
            largest_decay=self._largest_decay,
            n_actions=self._inputs.n_actions,
        )

    @property
    def engines(self) -> dict[str, RuleEngine]:
        """The engine of each update rule, by the rule's name as questions write it; for reading only."""
        return dict(self._engine.engines)

    # ---- reading the engine ----------------------------------------------------------------------

    def _processed(self) -> Engine:
        """Return the engine after it has processed all queued steps."""
        self.catch_up()
        return self._engine.direct

    def _prediction_of(self, demon: int, observation: Observation, tiles: Tiles) -> float:
        """Return a demon's prediction at a state, (n_channels,) and (n_active,), NaN if it diverged."""
        if self._divergence.is_diverged[demon]:
            return np.nan
        prediction = self._readout.of_demon(self._engine.direct, demon, observation, tiles)
        if not self.n_waiting:
            self._readout.mark_processed()
        return prediction


def check_size(n_features: int, n_active: int, mode: str) -> None:
    """Raise ValueError if these arguments of a Horde are invalid."""
    if mode not in _BATCHES:
        raise ValueError(f'mode must be "eager" or "deferred", not {mode!r}')
    if not 1 <= n_active <= n_features:
        raise ValueError(f"n_active must be in 1..n_features, not {n_active} of {n_features}")
