"""Horde: many demons, each learning the answer to one question, all from one stream of experience.

    horde = Horde(questions, n_features=6065, n_active=457)
    horde.begin(observation, tiles)
    while alive:
        ...take an action drawn with `probability`...
        predictions = horde.learn(action, probability, observation, tiles)

The Horde holds phi_t between calls; `learning/signals` turns questions into numbers, and an engine learns from these.
Where no prediction is needed on each step, `mode="deferred"` learns the same for a part of the cost: steps are only
noted, and taken many at a time, or as soon as anything is asked of the Horde.

Source: Sutton et al. (2011), Horde; White, Modayil & Sutton (2012).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, named
from horde_agent.kernels import checks
from horde_agent.kernels.checks import TAIL_TOO_LONG, Signals
from horde_agent.learning.engine import DROP_BELOW, Engine, check_weights
from horde_agent.learning.layout import NEWCOMER, DemonMapping, ShardContext
from horde_agent.learning.plain import PlainEngine
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig
from horde_agent.learning.signals import SignalMaker
from horde_agent.learning.soundness import Soundness
from horde_agent.learning.span import LARGEST_TAIL, BatchOptions, SpanEngine, trace_length
from horde_agent.learning.values import refuse_misfits
from horde_agent.measures.rupee import RUPEE, rupee_config
from horde_agent.saving import State, inner, nested, text, untext
from horde_agent.types import Floats, Integers, Tiles

__all__ = ["Horde", "LearnerConfig", "Mode"]

Mode = Literal["eager", "deferred"]


_BATCHES = {"eager": 1, "deferred": 64}  # steps

_log = logging.getLogger(__name__)


class Horde:
    """The demons that answer `questions` from shared tiles.

    Args:
        questions: The questions; their names must differ.
        n_features: Number of features.
        n_active: Number of active features in each state; `config.step_size` is divided by it.
        config: How they learn.
        mode: "eager": each step is taken when it comes. "deferred": steps are noted and taken up to 64 at a time. What
            is learned, and every answer, is the same but for rounding; only the return values of `learn` are late. A
            demon that diverges is noticed at the end of its batch. The plain engine is always eager.
        channels: Names of the observation's channels, for questions that name theirs: `interface.names`.
        real_valued: Learn of feature vectors phi in full, as those of a network's layer, instead of tiles: wherever a
            method takes `tiles`, give phi, floats of shape (n_features,). `n_active` is then the squared length of phi
            that the step size is divided by. The plain engine learns.
        share: What these demons must know of the larger Horde that they are a part of, if they are (`cluster`).

    Attributes:
        questions, names, n_demons: The questions, their names, their number.

    The plain engine learns where the fast one cannot: under the trace rule "capped", by another update rule than GTD,
    and from traces that reach back further than 1,000 steps, which is logged. In a process that was forked a Horde
    learns the same with one thread; spawn processes to have all of them.

    Raises:
        ValueError: If there is no question, two have one name, or one does not fit the others, the features or the
            channels.

    Example:
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
        config: LearnerConfig = PAPER_CONFIG,
        mode: Mode = "eager",
        channels: Sequence[str] = (),
        real_valued: bool = False,
        share: ShardContext | None = None,
    ) -> None:
        config = replace(config, engine="plain") if real_valued else config
        self._real_valued = real_valued
        if mode not in ("eager", "deferred"):
            raise ValueError(f'mode must be "eager" or "deferred", not {mode!r}')
        if not 1 <= n_active <= n_features:
            raise ValueError(f"n_active must be in 1..n_features, not {n_active} of {n_features}")
        self.config, self.n_features, self.n_active = config, n_features, n_active
        self._channels, self._batch, self._share = tuple(channels), _BATCHES[mode], share
        asked = named(questions, self._channels)
        self._ask(asked, np.zeros(len(asked), dtype=np.int64))
        self._engine = self._new_engine()
        self._state: tuple[NDArray[Any], Tiles] | None = None  # that the next transition leads from
        self._soundness = Soundness(self.names)
        self._unasked = self.questions  # whose policies were never asked

    def _ask(self, questions: tuple[GVF, ...], cohort: Integers) -> None:
        """Take on the questions; where they do not fit, do nothing. `cohort` is as in `SignalMaker`."""
        dtype, is_real = np.dtype(self.config.dtype), self._real_valued
        n_gibbs = self._share.n_gibbs if self._share else 0
        args = (questions, cohort, self.n_features, self.n_active, dtype)
        self._maker = SignalMaker(*args, real_valued=is_real, n_gibbs=n_gibbs)
        self.questions, self.names, self.n_demons = questions, [q.name for q in questions], len(questions)

    def _new_engine(self) -> Engine:
        """Return an engine that knows nothing yet: the fast one, unless it is not wanted or cannot."""
        of, config = self._maker, self.config
        decay = self._share.largest_decay if self._share else of.largest_decay
        n_trace_steps = trace_length(decay, DROP_BELOW[config.dtype]) if config.trace_rule == "clipped" else 0
        is_long = decay < 1.0 and n_trace_steps > LARGEST_TAIL
        if is_long and not config.needs_plain_engine:
            self._say_why(f"traces with gamma lambda = {decay:g} reach back {n_trace_steps:,} steps")
        if is_long or config.needs_plain_engine:
            return self._plain_engine()
        args = (of.group, self.n_features, *self._step_sizes, config)
        pace = BatchOptions(batch=self._batch, share=self._share)
        return SpanEngine(*args, policy=of.policy, cumulant=of.cumulant, largest_decay=decay, **pace)

    def _plain_engine(self) -> PlainEngine:
        """Return a plain engine that knows nothing yet."""
        of = self._maker
        args = (of.group, self.n_features, *self._step_sizes, self.config)
        return PlainEngine(*args, policy=of.policy, cumulant=of.cumulant)

    def new_rupee(self, beta0: float, step: float = 5.0) -> RUPEE:
        """Return a RUPEE of these demons with alpha_h = `step` alpha, for the caller to keep up; see there.

        Where demons come or go it is to be made anew.
        """
        config, of = rupee_config(self.config, beta0), self._maker
        kind = PlainEngine if config.needs_plain_engine else SpanEngine
        args = (of.group, self.n_features, 0.0, step * self._step_sizes[0], config)
        return RUPEE(kind(*args, policy=of.policy), config)

    @staticmethod
    def _say_why(why: str) -> None:
        """Log why the plain engine learns."""
        _log.warning(
            "%s, and the fast engine keeps %d: the plain engine learns from here on, which is slower", why, LARGEST_TAIL
        )

    @property
    def _step_sizes(self) -> tuple[float, float]:
        """The step sizes alpha and alpha_w."""
        alpha = self.config.step_size / self.n_active
        return alpha, self.config.secondary_ratio * alpha

    # ---- the three verbs ------------------------------------------------------------------------------------------

    def begin(self, observation: NDArray[Any], tiles: Tiles) -> Floats:
        """Start a stream, at the beginning of life and after every gap: traces are cleared, nothing is learned.

        Args:
            observation: What cumulants and functions read, shape (n_channels,), finite.
            tiles: Active features, int64 of shape (n_active,), all different.

        Returns:
            Predictions of all demons there, float64, shape (n_demons,).

        Raises:
            ValueError: If an argument has a wrong shape or type, is NaN or out of range, or a target policy that is
                asked for the first time gives no probabilities; the message names it.
        """
        state = self._maker.states.checked(observation, tiles)
        if self._unasked:
            refuse_misfits(self._unasked, *state)
            self._unasked = ()
        self._engine.begin(state[1])
        if self._engine.flags:
            self._handle_flags()
        self._state = state
        return self._engine.latest.copy()

    def learn(
        self, action: int, probability: float, observation: NDArray[Any], tiles: Tiles, *, terminated: bool = False
    ) -> Floats:
        """Learn from one transition: from the state held since the last call, by `action`, to the state given.

        Args:
            action: The discrete action that the agent drew in the held state.
            probability: b(action), with which the behaviour policy drew it, in (0, 1].
            observation: Of the state reached, as in `begin`.
            tiles: Of the state reached, as in `begin`.
            terminated: True where the stream ended there: the continuation is 0 for all. Go on with `begin`.

        Returns:
            Predictions of the new weights at `tiles`, float64, shape (n_demons,); in deferred mode those of the latest
            step that was taken.

        Raises:
            ValueError: If an argument has a wrong shape or type, is NaN or out of range; the message names it.
            RuntimeError: If no stream was begun.
        """
        if self._state is None:
            raise RuntimeError("no stream to learn from: call begin(observation, tiles) first, and after a termination")
        maker, soundness = self._maker, self._soundness
        action, probability = maker.states.action(action, probability)
        state = maker.states.copied(observation, tiles)
        soundness.begin_step()
        found = maker.make(action, probability, self._state, state, self._prediction_of, terminated=terminated)
        self._set_aside_all(maker.misfits(), soundness.n_steps + 1)
        if found:
            self._handle_findings(found)
        self._engine.learn(state[1], maker.signals, is_last=terminated)
        soundness.end_step()
        if self._engine.flags:
            self._handle_flags()
        if soundness.somebody_skips:
            maker.clear_non_finite_ratios()
        self._state = None if terminated else state
        return self._engine.latest.copy()

    @property
    def n_waiting(self) -> int:
        """Steps that were only noted so far."""
        return self._engine.n_waiting

    def catch_up(self) -> None:
        """Take the steps that were only noted so far; in eager mode there are none."""
        self._engine.catch_up()
        if self._engine.flags:
            self._handle_flags()

    def predict(self, tiles: Tiles) -> Floats:
        """Return the predictions of all demons at `tiles`, float64, shape (n_demons,); nothing changes.

        Raises:
            ValueError: If `tiles` has a wrong shape or type, or is out of range.
        """
        tiles = self._maker.states.tiles(tiles)
        self.catch_up()
        return self._engine.predict(tiles)

    def reset_weights(self, theta: NDArray[Any] | None = None) -> None:
        """Set theta of every demon, to zero unless given, (n_demons, n_features); w, traces and estimates stay.

        Weights that come from elsewhere bring their bound along: they count as if a cumulant as large had been seen.

        Raises:
            ValueError: If `theta` has another shape, is not finite, or is past what the learner's dtype can hold.
        """
        self.catch_up()
        if theta is not None:
            theta = np.asarray(theta)
            check_weights(theta, (self.n_demons, self.n_features), np.dtype(self.config.dtype))
            self._maker.raise_bounds(np.abs(theta).max(axis=1))
            self._engine.set_bounds(self._maker.bound)
        self._engine.reset_weights(theta)

    # ---- what it can be asked: nothing is learned by asking ---------------------------------------------------------

    @property
    def predictions(self) -> Floats:
        """Predictions of all demons at the latest state, float64, shape (n_demons,)."""
        self.catch_up()
        return self._engine.latest

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step, shape (n_demons,)."""
        self.catch_up()
        return self._engine.td_error

    @property
    def signals(self) -> Signals:
        """What the demons were told of the last transition, in arrays that the next one overwrites."""
        return self._maker.signals

    @property
    def rho(self) -> Floats:
        """Importance sampling ratios of the last step, shape (n_demons,)."""
        return np.asarray(self._maker.signals.rho_t[self._maker.policy_of])

    def ratio_totals(self) -> Floats:
        """Return what each demon's ratios added up to since it came, shape (3, n_demons).

        The rows are the number of steps with rho > 0, the sum of rho and the sum of its squares.
        """
        return self._maker.totals()

    @property
    def n_updated(self) -> int:
        """Demons that learned in the last step: rho > 0, not set aside, and for whom it was no gap."""
        idle = self._soundness.is_aside | self._soundness.is_skipping
        return int(np.count_nonzero((self.rho > 0) & ~idle))

    @property
    def max_trace(self) -> float:
        """Largest |e| so far, of all demons."""
        return float(self.max_traces.max())

    @property
    def max_traces(self) -> Floats:
        """Largest |e| so far of each demon, shape (n_demons,)."""
        self.catch_up()
        return self._engine.max_trace

    @property
    def diverged(self) -> list[str]:
        """Names of the demons that were set aside."""
        self.catch_up()
        return list(self._soundness.reasons)

    @property
    def n_diverged(self) -> int:
        """Demons that were set aside in the steps taken so far; those that wait are not taken for it."""
        return len(self._soundness.reasons)

    @property
    def divergence_reason(self) -> dict[str, str]:
        """Why each demon was set aside and at which learning step that was noticed, by name."""
        self.catch_up()
        return dict(self._soundness.reasons)

    set_aside_because = divergence_reason  # deprecated name, until 0.2

    @property
    def n_skipped(self) -> Integers:
        """Steps that each demon skipped, shape (n_demons,): of the ones told so far, those that were gaps for it alone.

        That is a step on which its cumulant, outcome, continuation, trace decay or rho was not a number, or a
        continuation or trace decay outside [0, 1]. Its trace is cleared and its weights stand. However many these are,
        it is not set aside for them. The cumulant of a demon about one that was set aside is none either.
        """
        return self._soundness.n_skipped.copy()

    @property
    def skipped_because(self) -> dict[str, str]:
        """How often each demon skipped a step, and why the first time, by name; those that never did are left out."""
        return self._soundness.skipped_because()

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimates s, signed, shape (n_demons,): s += (delta (e.w) - s) / tau."""
        self.catch_up()
        return self._engine.mspbe_scalar

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimates m.w, shape (n_demons,): m += (delta e - m) / tau.

        Raises:
            ValueError: If `config.vector_mspbe` is False.
        """
        self.catch_up()
        return self._engine.mspbe_vector()

    def mspbe_trace(self) -> NDArray[Any]:
        """Return a copy of m, the trace of delta e in the vector estimate, (n_demons, n_features), the learner's dtype.

        Raises:
            ValueError: If `config.vector_mspbe` is False.
        """
        if not self.config.vector_mspbe:
            raise ValueError("this Horde keeps no vector MSPBE estimate: set vector_mspbe=True in its LearnerConfig")
        self.catch_up()
        return self._engine.mspbe_trace()

    def weights(self, demons: Integers | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return copies of theta and w, each (n_demons, n_features), in the learner's dtype.

        Args:
            demons: Places of the ones asked about, shape (n,): then each is (n, n_features); all unless given.
        """
        self.catch_up()
        return self._engine.weights(demons)

    def weights_sha256(self) -> str:
        """Return the SHA-256 of theta, then w: little-endian, C order (demon, feature), in the learner's dtype."""
        digest = hashlib.sha256()
        for array in self.weights():
            digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()

    # ---- stopping, and going on from there --------------------------------------------------------------------------

    def state(self) -> State:
        """Return everything this Horde's future depends on, as copies of arrays, by name.

        Steps that wait to be learned keep waiting, so that asking for the state changes nothing.
        """
        there = {} if self._state is None else {"observation": self._state[0], "tiles": self._state[1]}
        is_plain = np.array(isinstance(self._engine, PlainEngine))
        return nested(
            engine=self._engine.state(),
            signals=self._maker.state(),
            soundness=self._soundness.state(),
            there={name: array.copy() for name, array in there.items()},
            own={"is_plain": is_plain, "unasked": text([q.name for q in self._unasked])},
        )

    def restore(self, state: State) -> None:
        """Go on, bit for bit, from what `state` returned, here or elsewhere, with any number of threads.

        This Horde must have been made, and its demons have come and gone, as those of the one that was asked.
        """
        is_plain = bool(state["own/is_plain"])
        if is_plain != isinstance(self._engine, PlainEngine):  # a Horde may change to the plain engine in mid-life
            self._engine = self._plain_engine() if is_plain else self._new_engine()
        self._engine.restore(inner(state, "engine"))
        self._maker.restore(inner(state, "signals"))
        self._soundness.restore(inner(state, "soundness"))
        there, unasked = inner(state, "there"), set(untext(state["own/unasked"]))
        self._state = (there["observation"].copy(), there["tiles"].copy()) if there else None
        self._unasked = tuple(q for q in self.questions if q.name in unasked)

    # ---- demons that come and go ----------------------------------------------------------------------------------

    def add(self, questions: Sequence[GVF]) -> None:
        """Take on more questions, in mid-life or before; their demons follow the others in every array.

        A new demon knows nothing (theta, w, estimates and trace are 0) and learns from the next transition on, exactly
        as it would in a Horde that calls `begin` at the held state. The others go on as if it had always been there,
        but for rounding: what is pending is written now, and later writings come at other steps. It takes about as long
        as building the Horde anew, and memory for a second copy of one of its weights while they move.

        Raises:
            ValueError: If a name is taken, a question does not fit the others, the features or the channels, or its
                target policy gives no probabilities at the held state; nothing has changed.
        """
        questions = named(questions, self._channels)
        if not questions:
            return
        unasked = (*self._unasked, *questions)
        if self._state is not None:
            refuse_misfits(questions, *self._state)
            unasked = ()
        old_index = np.r_[np.arange(self.n_demons), np.full(len(questions), NEWCOMER)]
        self._change(old_index, (*self.questions, *questions), unasked)

    def remove(self, names: Sequence[str]) -> None:
        """Drop the demons with these names and free their memory; the others move up and go on as in `add`.

        What else holds numbers in the order of the demons (a `Student`, an `MspbeWatch`, `UDE`, `RUPEE`) is of the old
        order: make it anew, here and after `add`; or let `Life.add` and `Life.remove` see to it.

        Raises:
            ValueError: If a name is unknown, no demon would be left, or the cumulant of one that stays is a prediction
                of one that goes; nothing has changed.
        """
        gone = set(names)
        unknown = sorted(gone - set(self.names))
        if isinstance(names, str) or unknown:
            raise ValueError(f"names must be a list of names of demons of this Horde; {unknown or [names]} are not")
        old_index = np.array([i for i, name in enumerate(self.names) if name not in gone], dtype=np.int64)
        if gone:
            unasked = tuple(q for q in self._unasked if q.name not in gone)
            self._change(old_index, tuple(self.questions[i] for i in old_index), unasked)

    def _change(self, old_index: Integers, questions: tuple[GVF, ...], unasked: tuple[GVF, ...]) -> None:
        """Go on with other questions; `old_index` says which demon each one's was, NEWCOMER where it is new."""
        self.catch_up()
        before, is_new = self._maker, old_index == NEWCOMER
        self._ask(questions, np.where(is_new, int(before.cohort.max()) + 1, before.cohort[old_index]))
        self._unasked, of = unasked, self._maker
        of.copy_state_from(before, old_index)
        self._engine.rearrange(DemonMapping(old_index, of.group, of.policy, *self._step_sizes, of.cumulant))
        self._engine.set_bounds(of.bound)
        self._soundness.rearrange(old_index, self.names)

    # ---- several streams --------------------------------------------------------------------------------------------

    def copy_for_stream(self) -> Horde:
        """Return a Horde with the same weights for another stream of experience; see `merge`.

        Raises:
            ValueError: If the span engine learns: only the plain one keeps traces per stream.
        """
        other = Horde(
            self.questions,
            n_features=self.n_features,
            n_active=self.n_active,
            config=self.config,
            channels=self._channels,
            real_valued=self._real_valued,
        )
        own, its = self._plain_engines([self, other])
        its.copy_weights_from(own)
        self._share_what_is_known([other])
        return other

    twin = copy_for_stream  # deprecated name, until 0.2

    def merge(self, others: Sequence[Horde]) -> None:
        """Share with other Hordes what each has learned from a stream of its own since they last shared: the mean.

            theta_{t+1} = theta_t + (1/n) sum_k (theta^k_{t+1} - theta_t)

        where n Hordes began at theta_t; likewise w and the estimates of the MSPBE. Traces stay each stream's own, and
        who is set aside in one is so in all. Merged after each step, this is one learner that takes a batch of n
        transitions: their order matters for nothing but rounding, and a step size n times as large makes as much of
        each transition as one stream would.

        Args:
            others: Copies of this one by `copy_for_stream`; changed in place.

        Raises:
            ValueError: If their questions or features differ, or the plain engine is not what learns: the fast one
                keeps the history of one stream in the place of traces.
        """
        alike = (self, *others)
        if any((horde.names, horde.n_features) != (self.names, self.n_features) for horde in others):
            raise ValueError(
                "only Hordes of the same questions and features can be merged: make the others by copy_for_stream()"
            )
        first, *rest = self._plain_engines(alike)
        self._share_what_is_known(others)
        first.merge(rest)

    @staticmethod
    def _plain_engines(hordes: Sequence[Horde]) -> list[PlainEngine]:
        """Return the engines of some Hordes, all of them plain ones."""
        engines = [horde._engine for horde in hordes if isinstance(horde._engine, PlainEngine)]
        if len(engines) < len(hordes):
            raise ValueError(
                "several streams need traces of their own, which only the plain engine keeps: make the Horde with "
                'config=LearnerConfig(engine="plain")'
            )
        return engines

    def _share_what_is_known(self, others: Sequence[Horde]) -> None:
        """Let all of these Hordes know who was set aside, and how large weights may be."""
        alike = (self, *others)
        reasons = {name: why for horde in reversed(alike) for name, why in horde._soundness.reasons.items()}
        for horde in alike:
            for name, why in reasons.items():
                if horde._soundness.mark_diverged(demon := self.names.index(name), why):
                    horde._engine.freeze(demon)
        self._maker.share_bounds([horde._maker for horde in others])
        for horde in alike:
            horde._engine.set_bounds(horde._maker.bound)

    # ---- what goes wrong --------------------------------------------------------------------------------------------

    def _prediction_of(self, demon: int, tiles: Tiles) -> float:
        """Return what a demon predicts at `tiles`, NaN where it was set aside."""
        return np.nan if self._soundness.is_aside[demon] else self._engine.predict_one(demon, tiles)

    def _handle_findings(self, found: int) -> None:
        """Deal with what `checks.finish_signals` found: note for whom the step is a gap, raise bounds."""
        if found & checks.BROKEN:
            beyond = self._maker.mark_skips(self._soundness)
            reasons = {i: f"{why}, which {self.config.dtype} cannot hold" for i, why in beyond.items()}
            self._set_aside_all(reasons, self._soundness.n_steps + 1)
        if found & checks.BOUND_RISES:
            self._engine.set_bounds(self._maker.bound)

    def _handle_flags(self) -> None:
        """Set aside the demons that the engine flagged; go on with the plain one where a trace reaches too far back."""
        self._set_aside_all(self._engine.pop_flagged(), self._soundness.n_steps)
        if self._engine.flags & TAIL_TOO_LONG and isinstance(self._engine, SpanEngine):
            self._say_why(f"a trace reaches back more than {LARGEST_TAIL:,} steps")
            plain = self._plain_engine()
            plain.take_over(*self._engine.in_full())
            self._engine = plain

    def _set_aside_all(self, reasons: dict[int, str], step: int) -> None:
        """Freeze demons' weights at zero and note why and when; one that was set aside before keeps its reason."""
        for demon, why in reasons.items():
            if self._soundness.mark_diverged(demon, f"{why} (learning step {step:,})"):
                self._engine.freeze(demon)
