"""Horde: many demons, each learning the answer to one question, all from one stream of experience.

    horde = Horde(questions, n_features=6065, n_active=457)
    horde.begin(observation, tiles)
    while alive:
        ...take an action drawn with `probability`...
        predictions = horde.learn(action, probability, observation, tiles)

The Horde holds phi_t between calls and turns questions into numbers; an engine behind it learns. Where no prediction is
needed on each step, `mode="deferred"` learns the same for a part of the cost: steps are only noted, and taken many at a
time, or as soon as anything is asked of the Horde.

Source: Sutton et al. (2011), Horde; White, Modayil & Sutton (2012).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, named
from horde_agent.kernels import checks
from horde_agent.kernels.span import TOO_OFTEN
from horde_agent.learning.answers import Answers
from horde_agent.learning.engine import Engine, most
from horde_agent.learning.expected import Expected
from horde_agent.learning.gibbs import GibbsTable
from horde_agent.learning.learner import GTDLambda
from horde_agent.learning.roster import NEWCOMER, Roster
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig
from horde_agent.learning.signals import Cumulants, PolicyTable, StateValues, identity, number, refuse_misfits
from horde_agent.learning.soundness import Soundness
from horde_agent.learning.span import SpanGTD
from horde_agent.learning.telling import Telling
from horde_agent.measures.rupee import RUPEE, rupee_config
from horde_agent.saving import State, attributes, inner, nested, put_back, text, untext

__all__ = ["Horde", "LearnerConfig", "Mode"]

Mode = Literal["eager", "deferred"]

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]

# Of `checks.Told`, what outlives a step.
_TOLD = ("ratios", "rho", "gamma", "lam", "c", "z", "top", "largest", "longest", "bound", "seen", "totals")
_RUPEE_STEP = 5.0  # alpha_h over alpha; White (2015)
_BATCHES = {"eager": 1, "deferred": 64}  # steps


class Horde(Answers):
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

    Attributes:
        questions, names, n_demons: The questions, their names, their number.

    In a process that was forked it learns the same with one thread; spawn processes to have all of them.

    Raises:
        ValueError: If there is no question, two have one name, or one does not fit the others, the features or the
            channels.
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
    ) -> None:
        if mode not in ("eager", "deferred"):
            raise ValueError(f'mode must be "eager" or "deferred", not {mode!r}')
        self.config, self.n_features, self.n_active = config, n_features, n_active
        if not 1 <= n_active <= n_features:
            raise ValueError(f"n_active must be in 1..n_features, not {n_active} of {n_features}")
        # In a batch threads share the policies; in a step one has enough to do with what is observed.
        self._shares = 1 if mode == "eager" else int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        self._channels = tuple(channels)
        asked = named(questions, self._channels)
        self._ask(asked, np.zeros(len(asked), dtype=np.int64))
        self._totals_carried = np.zeros((checks.N_TOTALS, self.n_demons))
        self._engine = self._new_engine(*self._step_sizes, config, _BATCHES[mode], self._table)
        self._rupee = self._new_rupee() if config.rupee_beta0 > 0 else None
        self._held: tuple[NDArray[Any], Tiles] | None = None
        self._soundness = Soundness(self.names)
        self._unasked = self.questions  # whose policies were never asked
        largest, bound = np.zeros((2, self.n_demons))
        self._tell_anew(largest, bound, np.zeros(len(self._leaders)), np.zeros(self._n_policies))
        self._n_sound = np.bincount(self._group)  # demons of each group that are not set aside

    def _ask(self, questions: tuple[GVF, ...], cohort: NDArray[np.int64]) -> None:
        """Take on the questions, and make the tables that turn them into numbers; where they do not fit, do nothing.

        Args:
            questions: All of them.
            cohort: When each demon came, shape (n_demons,): those that did not come together share no trace.
        """
        _check_names(questions)
        keys = [
            (identity(q.target_policy), identity(q.continuation), identity(q.lam), int(k))
            for q, k in zip(questions, cohort, strict=True)
        ]
        group, firsts = number(keys)
        leaders = [questions[i] for i in firsts]
        policy, policy_firsts = number([identity(q.target_policy) for q in leaders])
        policies = PolicyTable([leaders[i].target_policy for i in policy_firsts], self.n_features, self._shares)
        cumulants = Cumulants(questions, self.n_features)
        self.questions, self.names, self.n_demons = questions, [q.name for q in questions], len(questions)
        self._cohort, self._group, self._leaders, self._policy = cohort, group, leaders, policy
        self._policies, self._cumulants, self._n_policies = policies, cumulants, len(policy_firsts)
        self._expected = Expected(self.n_features, self.n_active, cumulants.n_channels, policies.n_actions)
        self._totals_before = np.zeros((checks.N_TOTALS, self._n_policies))
        self._table = policies.entrust() if self._engine_knows_policies and self.config.rupee_beta0 == 0 else None
        self._continuation = StateValues([q.continuation for q in leaders], 0.0, 1.0)
        self._lam = StateValues([q.lam for q in leaders], 0.0, 1.0)
        self._outcome = StateValues([q.outcome for q in questions], -np.inf, np.inf)

    def _tell_anew(self, largest: Floats, bound: Floats, longest: Floats, ratios: Floats) -> None:
        """Make the arrays in which the demons are told about each transition; those given are kept up from now on.

        Args:
            largest: Largest |c| or |z| of each demon so far.
            bound: |theta| that no answer of a demon can need.
            longest: Largest gamma of each group so far.
            ratios: Of each policy in the last step.
        """
        states = (self._policies, self._continuation, self._lam, self._outcome)
        self._asks_functions = any(s.has_functions for s in states) or not self._cumulants.is_read_off
        constant, knows = self._policies.constant_action, self._engine_knows_policies
        says_nothing = (constant < checks.ON_POLICY).all() and (constant == constant[0]).all()
        n_counted = 0 if (constant == checks.ELSEWHERE).all() else constant.size
        n_channels, is_by_channel = self._cumulants.n_channels, self._cumulant is not None
        self._told = told = checks.Told(
            action=constant[:0] if says_nothing else constant,
            ratios=ratios,
            policy=self._policy[:0] if knows else self._policy,
            group=self._group,
            channel=self._cumulants.channel,
            rho=ratios if knows else ratios[self._policy],
            gamma=self._continuation.constant.copy(),
            lam=self._lam.constant.copy(),
            c=np.zeros(n_channels if is_by_channel else self.n_demons),
            z=self._outcome.constant.copy(),
            top=np.zeros(n_channels),
            largest=largest,
            longest=longest,
            bound=bound,
            seen=np.zeros(1, dtype=np.int64),
            totals=np.zeros((checks.N_TOTALS, n_counted)),
            most=most(np.dtype(self.config.dtype)),
            n_features=self.n_features,
            is_fixed=not self._asks_functions,
            is_by_channel=is_by_channel,
        )
        self._telling = Telling(told)
        self._n_steps = 0  # since then

    def _new_engine(
        self, alpha: float, alpha_w: float, config: LearnerConfig, batch: int, table: GibbsTable | None = None
    ) -> Engine:
        """Return an engine that knows nothing yet."""
        if _is_plain(config):
            return GTDLambda(self._group, self.n_features, alpha, alpha_w, config)
        return SpanGTD(
            self._group,
            self.n_features,
            alpha,
            alpha_w,
            config,
            policy=self._policy,
            batch=batch,
            cumulant=self._cumulant,
            table=table,
        )

    @property
    def _engine_knows_policies(self) -> bool:
        """Whether the engine is told the ratio of each policy; the plain one is told that of each group."""
        return not _is_plain(self.config)

    @property
    def _cumulant(self) -> NDArray[np.int64] | None:
        """The channel that each demon sums, where the engines are told the channels instead of each demon's cumulant.

        The plain engine is told cumulants, and so is a RUPEE: TD errors.
        """
        is_told = self._cumulants.is_read_off and not _is_plain(self.config) and self.config.rupee_beta0 == 0
        return self._cumulants.channel if is_told else None

    def _new_rupee(self) -> RUPEE:
        """Return a RUPEE that has seen nothing yet; nobody reads it on each step."""
        config = rupee_config(self.config, self.config.rupee_beta0)
        return RUPEE(self._new_engine(0.0, self._alpha_h, config, _BATCHES["deferred"]), config)

    @property
    def _alpha_h(self) -> float:
        """Step size of a RUPEE's projection."""
        return _RUPEE_STEP * self._step_sizes[0]

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
            tiles: Active features, int64 of shape (n_active,).

        Returns:
            Predictions of all demons there, float64, shape (n_demons,).

        Raises:
            ValueError: If an argument has a wrong shape or type, is NaN or out of range, or a target policy that is
                asked for the first time gives no probabilities; the message names it.
        """
        observation, tiles = self._expected.state(observation, tiles)
        if self._unasked:
            refuse_misfits(self._unasked, observation, tiles)
            self._unasked = ()
        nothing = np.zeros(len(self._leaders))  # to decay: gamma and lambda here are of a trace that is 0 yet
        self._engine.begin(tiles, nothing, nothing)
        if self._engine.alarm:
            self._answer_alarm()
        if self._rupee is not None:
            self._rupee.begin(tiles, nothing, nothing)
        self._held = (observation, tiles)
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
        if self._held is None:
            raise RuntimeError("no stream to learn from: call begin(observation, tiles) first, and after a termination")
        action, probability = self._expected.action(action, probability)
        observation, tiles = self._expected.copied_state(observation, tiles)
        self._soundness.begin_step()
        if self._asks_functions:
            self._expected.refuse(checks.first_wrong(observation, tiles, self.n_features), observation, tiles)
            self._ask_functions(observation, tiles, terminated=terminated)
        if self._table is not None and not self._n_steps:
            self._told.ratios[self._table.position] = 1.0  # the engine makes them: here, that they are above 0
        self._policies.write_ratios(action, probability, *self._held, self._told.ratios)
        if self._policies.misfits:
            self._set_aside_misfits()
        step = (self._telling, observation, tiles, action, probability)
        found = self._engine.meet(*step, False, terminated)
        if found:
            self._attend(found, observation, tiles)
            self._engine.meet(*step, True, terminated)
        self._n_steps += 1
        self._soundness.end_step()
        if self._engine.alarm:
            self._answer_alarm()
        if self._rupee is not None:
            self._teach_rupee(tiles, is_last=terminated)
        if self._soundness.somebody_skips:
            np.nan_to_num(self._told.ratios, copy=False, posinf=0.0)
        self._held = None if terminated else (observation, tiles)
        return self._engine.latest.copy()

    @property
    def n_waiting(self) -> int:
        """Steps that were only noted so far."""
        return self._engine.n_waiting

    def catch_up(self) -> None:
        """Take the steps that were only noted so far; in eager mode there are none."""
        self._engine.catch_up()
        if self._engine.alarm:
            self._answer_alarm()

    def predict(self, tiles: Tiles) -> Floats:
        """Return the predictions of all demons at `tiles`, float64, shape (n_demons,); nothing changes.

        Raises:
            ValueError: If `tiles` has a wrong shape or type, or is out of range.
        """
        tiles = self._expected.tiles(tiles)
        self.catch_up()
        return self._engine.predict(tiles)

    def reset_weights(self, theta: NDArray[Any] | None = None) -> None:
        """Set theta of every demon, to zero unless given, (n_demons, n_features); w, traces and estimates stay.

        Weights that come from elsewhere bring their bound along: they count as if a cumulant as large had been seen.

        Raises:
            ValueError: If `theta` has another shape, is not finite, or is past what the learner's dtype can hold.
        """
        if theta is None:
            self._engine.reset_weights()
        else:
            theta = np.asarray(theta)
            self._engine.reset_weights(theta)
            told = self._told
            np.maximum(told.largest, np.abs(theta).max(axis=1), out=told.largest)
            told.bound[:] = checks.bound(told.largest, told.longest[self._group], told.most)
            self._engine.set_bounds(told.bound)
        if self._held is not None:
            self._engine.latest = self._engine.predict(self._held[1])

    # ---- stopping, and going on from there ------------------------------------------------------------------------

    def state(self) -> State:
        """Return all that the future of this Horde depends on, as copies of arrays, by stable names.

        Steps that were only noted so far stay so: nothing is learned sooner or later for having been asked.
        """
        held = {} if self._held is None else {"observation": self._held[0], "tiles": self._held[1]}
        rupee = {} if self._rupee is None else self._rupee.state()
        table = {} if self._table is None else self._table.state()
        own = attributes(self, "_totals_carried", "_totals_before", "_n_steps", "_n_sound")
        told = {name: np.array(getattr(self._told, name)) for name in _TOLD}
        return nested(
            engine=self._engine.state(),
            soundness=self._soundness.state(),
            policies=self._policies.state(),
            held=held,
            rupee=rupee,
            table=table,
            told=told,
            own={**own, "unasked": text([q.name for q in self._unasked])},
        )

    def restore(self, state: State) -> None:
        """Go on, bit for bit, from what `state` returned.

        This Horde must have been made, and its demons have come and gone, as those of the one that was asked.
        """
        if self._table is not None and not inner(state, "table"):
            self._give_policies_back()
        put_back(self, inner(state, "own"), "_totals_carried", "_totals_before", "_n_steps", "_n_sound")
        for name in _TOLD:
            getattr(self._told, name)[...] = state[f"told/{name}"]
        self._policies.restore(inner(state, "policies"))
        if self._table is not None:
            self._table.restore(inner(state, "table"))
        self._soundness.restore(inner(state, "soundness"))
        unasked = set(untext(state["own/unasked"]))
        self._unasked = tuple(q for q in self.questions if q.name in unasked)
        held = inner(state, "held")
        self._held = (held["observation"], held["tiles"]) if held else None
        self._engine.restore(inner(state, "engine"))
        if self._rupee is not None:
            self._rupee.restore(inner(state, "rupee"))

    # ---- demons that come and go ----------------------------------------------------------------------------------

    def add(self, questions: Sequence[GVF]) -> None:
        """Take on more questions, in mid-life or before; their demons follow the others in every array.

        A new demon knows nothing (theta, w, estimates and trace are 0) and learns from the next transition on, exactly
        as it would in a Horde that calls `begin` at the held state. The others go on as if it had always been there,
        but for rounding: what is owed is written now, and later writings come at other steps. It takes about as long
        as building the Horde anew, and memory for a second copy of one of its weights while they move.

        Raises:
            ValueError: If a name is taken, a question does not fit the others, the features or the channels, or its
                target policy gives no probabilities at the held state; nothing has changed.
        """
        questions = named(questions, self._channels)
        if not questions:
            return
        unasked = (*self._unasked, *questions)
        if self._held is not None:
            refuse_misfits(questions, *self._held)
            unasked = ()
        stays = np.r_[np.arange(self.n_demons), np.full(len(questions), NEWCOMER)]
        self._change(stays, (*self.questions, *questions), unasked)

    def remove(self, names: Sequence[str]) -> None:
        """Drop the demons with these names and free their memory; the others move up and go on as in `add`.

        What else holds numbers in the order of the demons (a `Student`, an `MspbeWatch`, `Ratios`, `UDE`) is of the old
        order: make it anew, here and after `add`; or let `Life.add` and `Life.remove` see to it.

        Raises:
            ValueError: If a name is unknown, no demon would be left, or the cumulant of one that stays is a prediction
                of one that goes; nothing has changed.
        """
        gone = set(names)
        unknown = sorted(gone - set(self.names))
        if isinstance(names, str) or unknown:
            raise ValueError(f"names must be a list of names of demons of this Horde; {unknown or [names]} are not")
        stays = np.array([i for i, name in enumerate(self.names) if name not in gone], dtype=np.int64)
        if gone:
            unasked = tuple(q for q in self._unasked if q.name not in gone)
            self._change(stays, tuple(self.questions[i] for i in stays), unasked)

    def _change(self, stays: NDArray[np.int64], questions: tuple[GVF, ...], unasked: tuple[GVF, ...]) -> None:
        """Go on with other questions; `stays` says which demon each one's was, NEWCOMER where it is new."""
        self.catch_up()
        is_new, group_before, leaders_before = stays == NEWCOMER, self._group, len(self._leaders)
        rho_before, totals_before = self._ratios[self._policy], self.ratio_totals()
        cohort = int(self._cohort.max()) + 1
        self._ask(questions, np.where(is_new, cohort, self._cohort[stays]))
        self._unasked = unasked
        was = np.full(len(self._leaders), leaders_before)  # group that each group was before; a new one's numbers are 0
        was[self._group[~is_new]] = group_before[stays[~is_new]]
        longest, rho = (np.append(values, 0.0)[was] for values in (self._told.longest, rho_before))
        largest, bound = (np.where(is_new, 0.0, values[stays]) for values in (self._told.largest, self._told.bound))
        self._totals_carried = np.where(is_new, 0.0, totals_before[:, stays])
        ratios = np.zeros(self._n_policies)
        np.maximum.at(ratios, self._policy, rho)
        self._tell_anew(largest, bound, longest, ratios)
        roster = Roster(stays, self._group, self._policy, *self._step_sizes, self._cumulant, self._table)
        self._engine.rearrange(roster)
        if self._rupee is not None:
            self._rupee.rearrange(roster._replace(alpha=0.0, alpha_w=self._alpha_h))
        self._soundness.rearrange(stays, self.names)
        is_sound = ~self._soundness.is_aside
        self._n_sound = np.bincount(self._group, is_sound, len(self._leaders)).astype(np.int64)

    # ---- from a transition to numbers -----------------------------------------------------------------------------

    def _attend(self, found: int, observation: NDArray[Any], tiles: Tiles) -> None:
        """Deal with what was found: refuse the state, note for whom the step is a gap, raise bounds.

        Raises:
            ValueError: If the state is not sound.
        """
        if found & checks.STATE_WRONG:
            self._expected.refuse(checks.first_wrong(observation, tiles, self.n_features), observation, tiles)
        if found & checks.BROKEN:
            self._note_broken()
        if found & checks.BOUND_RISES:
            self._engine.set_bounds(self._told.bound)

    def _note_broken(self) -> None:
        """Note for whom the step is a gap, and set aside who is told a number that its engine's type cannot hold."""
        told, group = self._told, self._group
        gamma, lam = told.gamma.copy(), told.lam.copy()
        for values, given in ((gamma, self._continuation.given), (lam, self._lam.given)):
            for g in np.flatnonzero(np.isnan(values)):
                values[g] = given[int(g)]  # what it was when it left [0, 1]
        numbers = {
            "cumulant": told.c[told.channel] if told.is_by_channel else told.c,
            "outcome": told.z,
            "rho = pi(a)/b(a)": told.ratios[self._policy][group],
        }
        for what, values in numbers.items():
            is_broken = ~(np.abs(values) <= told.most)
            for demon in np.flatnonzero(is_broken & np.isfinite(values)).tolist():
                why = f"its {what} was {values[demon]:.6g}, which {self.config.dtype} cannot hold"
                self._set_aside(demon, why, self._soundness.n_steps + 1)
            self._soundness.skip(is_broken, what, values)
        for what, of_group, values in (("continuation", told.gamma, gamma), ("lam", told.lam, lam)):
            self._soundness.skip(np.isnan(of_group)[group], what, values[group])

    def _ask_functions(self, observation: NDArray[Any], tiles: Tiles, *, terminated: bool) -> None:
        """Write what functions give, and other demons predict, at the state reached."""
        told = self._told
        self._continuation.write(observation, tiles, told.gamma)
        self._lam.write(observation, tiles, told.lam)
        if terminated:  # nothing goes on there, whatever they gave
            np.nan_to_num(told.gamma, copy=False)
            np.nan_to_num(told.lam, copy=False)
        self._cumulants.write(observation, tiles, self._prediction_of, told.c)
        self._outcome.write(observation, tiles, told.z)

    def _prediction_of(self, demon: int, tiles: Tiles) -> float:
        """Return what a demon predicts at `tiles`, NaN where it was set aside."""
        return np.nan if self._soundness.is_aside[demon] else self._engine.predict_one(demon, tiles)

    def _teach_rupee(self, tiles: Tiles, *, is_last: bool) -> None:
        """Let the RUPEE take in the step that was just learned from."""
        assert self._rupee is not None
        td_error = np.where(self._soundness.is_skipping, np.nan, self._engine.td_error)
        self._rupee.learn(tiles, self._telling.signals(is_last=is_last), td_error)
        for demon, ailment in self._rupee.newly_broken().items():
            self._set_aside(demon, f"of its RUPEE, {ailment}", self._soundness.n_steps)

    # ---- demons set aside -----------------------------------------------------------------------------------------

    def _set_aside_misfits(self) -> None:
        """Set aside the demons of policies that gave no probabilities, and ask these no more."""
        for policy, misfit in self._policies.misfits.items():
            for demon in np.flatnonzero(self._policy[self._group] == policy).tolist():
                self._set_aside(demon, f"its target policy {misfit}", self._soundness.n_steps + 1)
            self._policies.forget(policy)
            self._told.ratios[policy] = 0.0
        self._policies.misfits.clear()

    def _answer_alarm(self) -> None:
        """Take back the policies that the engine cannot ask any more, and set aside the demons that it flagged."""
        if self._engine.alarm & TOO_OFTEN and self._table is not None:
            self._give_policies_back()
        for demon, ailment in self._engine.newly_broken().items():
            self._set_aside(demon, ailment, self._soundness.n_steps)

    def _give_policies_back(self) -> None:
        """Ask the policies here again that the engine asked itself."""
        assert self._table is not None, "the engine has some"
        self._engine.dismiss()
        self._totals_before, ratios = self._totals, self._ratios
        self._policies.take_back(self._table)
        self._table = None
        self._tell_anew(self._told.largest, self._told.bound, self._told.longest, ratios)

    def _set_aside(self, demon: int, why: str, step: int) -> None:
        """Freeze a demon's weights at zero and note why and when; one that was set aside before keeps its reason."""
        if self._soundness.set_aside(demon, f"{why} (learning step {step:,})"):
            self._n_sound[self._group[demon]] -= 1
            self._engine.set_aside(demon)
            if self._rupee is not None:
                self._rupee.set_aside(demon)


def _is_plain(config: LearnerConfig) -> bool:
    """Whether the plain engine learns: the trace rule "capped" works entry by entry, on no sum of feature vectors."""
    return config.engine == "plain" or config.trace_rule == "capped"


def _check_names(questions: Sequence[GVF]) -> None:
    """Raise ValueError where there is no question, or two have one name."""
    if not questions:
        raise ValueError("questions must hold at least one question")
    names = [q.name for q in questions]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"questions must have different names; {twice!r} is there twice")
