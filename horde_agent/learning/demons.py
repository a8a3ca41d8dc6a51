"""Demons: the demons of a Horde: created, read, saved, changed, and frozen if diverged. `horde.py` learns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, named
from horde_agent.kernels import checks
from horde_agent.kernels.checks import TAIL_TOO_LONG, Signals
from horde_agent.learning.engine import NEWCOMER, DemonMapping, restored_streams, streams_state
from horde_agent.learning.mixed import Engine, MixedEngine
from horde_agent.learning.plain import PlainEngine
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig, rules_of, with_rules
from horde_agent.learning.signals import SignalMaker
from horde_agent.learning.soundness import Soundness
from horde_agent.learning.span_storage import WHOLE, ShardContext
from horde_agent.learning.values import largest_decay
from horde_agent.policies import Greedy
from horde_agent.saving import State, inner, nested, text, untext
from horde_agent.types import Floats, Integers, Tiles

Mode = Literal["eager", "deferred"]
_BATCHES = {"eager": 1, "deferred": 64}  # steps that are queued before they are processed


class Demons:
    """The demons of a Horde; arguments as there.

    Attributes:
        questions, names, n_demons: The questions, their names, their number.
        stream: Number of the selected stream.
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
        share: ShardContext = WHOLE,
    ) -> None:
        if real_valued and config.engine == "span":
            raise ValueError(
                'engine="span" does not support real-valued features: omit engine, or choose "plain"'
            )
        check_size(n_features, n_active, mode)
        if real_valued:
            self.config = replace(config, engine="plain")
        else:
            self.config = config
        self.n_features = n_features
        self.n_active = n_active
        self._batch = _BATCHES[mode]
        self._channels = tuple(channels)
        self._share = share
        self._real_valued = real_valued
        resolved = named(questions, self._channels)
        self._set_questions(resolved, np.zeros(len(resolved), dtype=np.int64))
        # The state that the next transition starts from
        self._state: tuple[NDArray[Any], Tiles] | None = None
        # Of the streams that are not selected
        self._states: dict[int, tuple[NDArray[Any], Tiles] | None] = {}
        self.stream = 0
        self._engine = self._new_engine()
        self._soundness = Soundness(self.names)
        self._unchecked = self.questions  # questions with policies that were never evaluated

    def _set_questions(self, questions: tuple[GVF, ...], cohort: Integers) -> None:
        """Set the questions, or raise ValueError and change nothing; `cohort` is as in `SignalMaker`."""
        questions = with_rules(questions, self.config, self.action_values)
        dtype = np.dtype(self.config.dtype)
        sizes = (self.n_features, self.n_active, dtype)
        self._maker = SignalMaker(
            questions,
            cohort,
            *sizes,
            real_valued=self._real_valued,
            n_gibbs=self._share.n_gibbs,
            offset=self.config.offset,
        )
        self.questions = questions
        self.names = [q.name for q in questions]
        self.n_demons = len(questions)
        self._largest_decay = max(largest_decay(questions), self._share.largest_decay)
        self._algorithms = rules_of(questions, self.config)

    def _new_engine(self, made_plain: Collection[str] = ()) -> MixedEngine:
        """Return an engine without weights; rules in `made_plain` get the plain engine."""
        sizes = (self.n_features, self.n_active, self._batch)
        mapping = self._mapping(np.full(self.n_demons, NEWCOMER))
        return MixedEngine(self.config, *sizes, mapping, self._share.layouts, made_plain)

    def _mapping(self, old_index: Integers) -> DemonMapping:
        maker = self._maker
        return DemonMapping(
            old_index,
            maker.group,
            maker.policy,
            cumulant=maker.cumulant,
            algorithm=self._algorithms,
            largest_decay=self._largest_decay,
            n_actions=maker.states.n_actions,
        )

    @property
    def n_waiting(self) -> int:
        """Number of queued steps."""
        return self._engine.n_waiting

    def catch_up(self) -> None:
        """Process the queued steps; in eager mode there are none."""
        self._engine.catch_up()
        if self._engine.flags:
            self._handle_flags()

    def _read(self, read: Callable[[Engine], Floats]) -> Floats:
        """Return what `read` returns of the engines after all queued steps, in the order of the demons."""
        self.catch_up()
        return self._engine.read(read)

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
        if self._maker.offsets.is_on:
            values = values + self._maker.offsets.added[demon]
        return values

    def _with_offsets(self, values: Floats) -> Floats:
        """Return predictions from theta.phi, shape (n_demons,), in a new array."""
        offsets = self._maker.offsets
        if offsets.is_on:
            return values + offsets.added
        return values.copy()

    # ---- results: reading them learns nothing ------------------------------------------------------------------------

    @property
    def predictions(self) -> Floats:
        """Predictions of all demons at the latest state, float64, shape (n_demons,)."""
        return self._with_offsets(self._read(lambda engine: engine.latest))

    @property
    def offsets(self) -> Floats:
        """What is added to theta.phi of each demon, shape (n_demons,): its offset, 0 if it diverged."""
        self.catch_up()
        return self._maker.offsets.added.copy()

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step, shape (n_demons,)."""
        return self._read(lambda engine: engine.td_error)

    @property
    def signals(self) -> Signals:
        """Signals of the last transition, in arrays that the next one overwrites."""
        return self._maker.signals

    @property
    def rho(self) -> Floats:
        """Importance sampling ratios of the last step, shape (n_demons,)."""
        return np.asarray(self._maker.signals.rho_t[self._maker.policy_of])

    def ratio_totals(self) -> Floats:
        """Return sums over each demon's steps: count of rho > 0, sum of rho, sum of rho squared; (3, n_demons)."""
        return self._maker.totals()

    @property
    def n_updated(self) -> int:
        """Number of demons that learned in the last step: with rho > 0, not diverged, and not skipping it."""
        idle = self._soundness.is_aside | self._soundness.is_skipping
        return int(np.count_nonzero((self.rho > 0) & ~idle))

    @property
    def max_trace(self) -> float:
        """Largest |e| so far, of all demons."""
        return float(self.max_traces.max())

    @property
    def max_traces(self) -> Floats:
        """Largest |e| so far of each demon, shape (n_demons,)."""
        return self._read(lambda engine: engine.max_trace)

    @property
    def diverged(self) -> list[str]:
        """Names of the diverged demons."""
        self.catch_up()
        return list(self._soundness.reasons)

    @property
    def n_diverged(self) -> int:
        """Number of diverged demons, without processing queued steps."""
        return len(self._soundness.reasons)

    @property
    def divergence_reason(self) -> dict[str, str]:
        """Why each diverged demon diverged, and the learning step at which that was found, by name."""
        self.catch_up()
        return dict(self._soundness.reasons)

    @property
    def n_skipped(self) -> Integers:
        """Number of steps that each demon skipped, shape (n_demons,).

        A demon skips a step if one of its signals is not finite, or a continuation or trace decay
        lies outside [0, 1]. Its trace is cleared and its weights do not change.
        """
        return self._soundness.n_skipped.copy()

    @property
    def skipped_because(self) -> dict[str, str]:
        """Number of skips and the first reason of each demon that skipped a step, by name."""
        return self._soundness.skipped_because()

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimates s, signed, shape (n_demons,): s += (delta (e.w) - s) / tau."""
        return self._read(lambda engine: engine.mspbe_scalar)

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimates m.w, shape (n_demons,): m += (delta e - m) / tau.

        Raises:
            ValueError: If `config.vector_mspbe` is False.
        """
        return self._read(lambda engine: engine.mspbe_vector())

    def weights(self, demons: Integers | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return copies of theta and w, each (n_demons, n_features), in the learner's dtype.

        Args:
            demons: Indices of some demons, shape (n,), for arrays of shape (n, n_features); all by
                default. A demon that finds a policy has n_actions n_features weights.

        Raises:
            ValueError: If some of them find policies and others do not.
        """
        self.catch_up()
        return self._engine.weights(demons)

    def step_sizes(self) -> NDArray[Any]:
        """Return a copy of every weight's step size, (n_demons, n_features), of a rule that adapts them.

        Raises:
            ValueError: If the Horde's rule has one step size for all weights, or its questions name
                several rules.
        """
        engines = list(self._engine.engines.values())
        if len(engines) > 1 or not isinstance(engines[0], PlainEngine):
            raise ValueError(
                f"algorithm {self.config.algorithm!r} has no step size per weight: choose a rule that has"
            )
        return engines[0].step_sizes()

    def weights_sha256(self) -> str:
        """Return the SHA-256 of theta, then w: little-endian, C order (demon, feature), in the learner's dtype."""
        digest = hashlib.sha256()
        parts = [self.weights(run) for run in self._engine.runs()]
        for array in (of_part[which] for which in (0, 1) for of_part in parts):
            digest.update(
                np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
            )
        return digest.hexdigest()

    # ---- saving and restoring ----------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return copies of the complete state, as arrays by name; queued steps stay queued."""
        current = _named_state(self._state)
        other_states = {stream: _named_state(state) for stream, state in self._states.items()}
        return nested(
            engine=self._engine.state(),
            signals=self._maker.state(),
            soundness=self._soundness.state(),
            there={name: array.copy() for name, array in current.items()},
            streams=streams_state(self.stream, other_states),
            own={
                "made_plain": text(sorted(self._engine.made_plain)),
                "unasked": text([q.name for q in self._unchecked]),
            },
        )

    def restore(self, state: State) -> None:
        """Restore a state of a Horde with the same arguments and the same calls of `add` and `remove`.

        Learning continues bit for bit, with any number of threads.
        """
        made_plain = set(untext(state["own/made_plain"]))
        if made_plain != self._engine.made_plain:
            self._engine = self._new_engine(made_plain)
        self._engine.restore(inner(state, "engine"))
        self._maker.restore(inner(state, "signals"))
        self._soundness.restore(inner(state, "soundness"))
        current = inner(state, "there")
        unasked = set(untext(state["own/unasked"]))
        if current:
            self._state = (current["observation"].copy(), current["tiles"].copy())
        else:
            self._state = None
        self.stream, other_states = restored_streams(inner(state, "streams"))
        self._states = {
            stream: (of["observation"], of["tiles"]) for stream, of in other_states.items()
        }
        self._unchecked = tuple(q for q in self.questions if q.name in unasked)

    def _change(
        self, old_index: Integers, questions: tuple[GVF, ...], unasked: tuple[GVF, ...]
    ) -> None:
        """Continue with other questions; `old_index` is as in `DemonMapping`."""
        self.catch_up()
        previous = self._maker
        is_new = old_index == NEWCOMER
        self._set_questions(
            questions, np.where(is_new, int(previous.cohort.max()) + 1, previous.cohort[old_index])
        )
        self._unchecked = unasked
        maker = self._maker
        self._share = self._share._replace(layouts={})
        maker.copy_state_from(previous, old_index)
        states = {**self._states, self.stream: self._state}
        tiles = {stream: state[1] for stream, state in states.items() if state is not None}
        self._engine.rearrange(self._mapping(old_index), tiles, {})
        self._engine.set_bounds(maker.bound)
        self._soundness.rearrange(old_index, self.names)

    # ---- skips and divergence ---------------------------------------------------------------------------------------

    def _prediction_of(self, demon: int, tiles: Tiles) -> float:
        """Return a demon's prediction at `tiles`, NaN if it diverged."""
        if self._soundness.is_aside[demon]:
            return np.nan
        value = self._engine.direct.predict_one(demon, tiles)
        if self._maker.offsets.is_on:
            value += float(self._maker.offsets.added[demon])
        return value

    def _handle_findings(self, found: int) -> None:
        """Process the bits of `checks.finish_signals`: mark demons that skip the step, raise bounds."""
        if found & checks.BROKEN:
            beyond = self._maker.mark_skips(self._soundness)
            reasons = {
                i: f"{why}, which {self.config.dtype} cannot hold" for i, why in beyond.items()
            }
            self._freeze_all(reasons, self._soundness.n_steps + 1)
        if found & checks.BOUND_RISES:
            self._engine.set_bounds(self._maker.bound)

    def _handle_flags(self) -> None:
        """Freeze the demons that the engine flagged; switch to the plain engine if a trace is too long."""
        self._freeze_all(self._engine.pop_flagged(), self._soundness.n_steps)
        if self._engine.flags & TAIL_TOO_LONG:
            self._engine.to_plain()

    def _freeze(self, demon: int) -> None:
        """Freeze a demon: its weights are zero from now on, and so is its prediction."""
        self._engine.freeze(demon)
        if self._maker.offsets.is_on:
            self._maker.offsets.freeze(demon)

    def _freeze_all(self, reasons: dict[int, str], step: int) -> None:
        """Freeze demons, and those about a policy that one of them finds; keep the first reason and step of each."""
        for demon, why in reasons.items():
            if self._soundness.mark_diverged(demon, f"{why} (learning step {step:,})"):
                self._freeze(demon)
                if self.questions[demon].finds_policy:
                    name = self.names[demon]
                    policies = [q.target_policy for q in self.questions]
                    about = [
                        i
                        for i, of in enumerate(policies)
                        if isinstance(of, Greedy) and of.of == name
                    ]
                    self._freeze_all(
                        dict.fromkeys(about, f"{name!r}, which finds its policy, diverged"), step
                    )

    def _share_divergence(self, others: Sequence[Demons]) -> None:
        """Synchronise diverged demons and weight bounds across Hordes."""
        alike = (self, *others)
        reasons = {
            name: why for horde in reversed(alike) for name, why in horde._soundness.reasons.items()
        }
        for horde in alike:
            for name, why in reasons.items():
                if horde._soundness.mark_diverged(demon := self.names.index(name), why):
                    horde._freeze(demon)
        makers = [horde._maker for horde in others]
        self._maker.share_bounds(makers)
        if self._maker.offsets.is_on:
            self._maker.share_offsets(makers)
        for horde in alike:
            horde._engine.set_bounds(horde._maker.bound)


def check_size(n_features: int, n_active: int, mode: str) -> None:
    """Raise ValueError if these arguments of a Horde are invalid."""
    if mode not in _BATCHES:
        raise ValueError(f'mode must be "eager" or "deferred", not {mode!r}')
    if not 1 <= n_active <= n_features:
        raise ValueError(f"n_active must be in 1..n_features, not {n_active} of {n_features}")


def _named_state(state: tuple[NDArray[Any], Tiles] | None) -> State:
    """Return the arrays of a state by name; none if the stream has not begun or has ended."""
    if state is None:
        return {}
    return {"observation": state[0], "tiles": state[1]}
