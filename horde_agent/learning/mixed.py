"""MixedEngine: the engines of a Horde, one for each update rule of its questions.

The demons of all rules share features and signals; each engine stores its own history of them.
"""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable, Collection, Mapping

import numpy as np

from horde_agent.kernels.checks import TAIL_TOO_LONG, Signals
from horde_agent.kernels.rules import rule
from horde_agent.learning.engine import (
    SEPARATE_TRACES,
    DemonMapping,
    Engine,
    MergingEngine,
    NumberName,
    RuleEngine,
    WeightsName,
)
from horde_agent.learning.plain import PlainEngine
from horde_agent.learning.rarity import Rarity
from horde_agent.learning.rules import (
    LARGEST_TAIL,
    LearnerConfig,
    config_of,
    is_too_long,
    step_sizes_of,
    trace_length,
)
from horde_agent.learning.span import SpanEngine
from horde_agent.learning.span_storage import ShardLayout
from horde_agent.learning.stored import NEWCOMER
from horde_agent.saving import State, inner, nested
from horde_agent.types import Floats, Integers, Reals, Tiles

DIFFERENT_WEIGHTS = (
    "some of these demons have weights for each action, others do not: read them separately"
)

_log = logging.getLogger(__name__)


class MixedEngine:
    """An engine made of engines, each for the demons of one update rule.

    Args:
        config: Options of the Horde; the rules of questions that name their own follow from it.
        n_features, n_active: Numbers of features and of active tiles of a state.
        batch: Steps that the span engine queues before it processes them.
        mapping: The demons, all of them new.
        layouts: Layout of the demons of each rule as in the whole Horde, if they are a shard of it.
        made_plain: Rules that changed to the plain engine, because a trace became too long for the
            fast one.

    Attributes:
        engines: The engine of each rule: the fast one if it is wanted and able.
        direct: What takes a step and has its results: the engine of the only rule, or else this
            object.
    """

    direct: Engine

    def __init__(
        self,
        config: LearnerConfig,
        n_features: int,
        n_active: int,
        batch: int,
        mapping: DemonMapping,
        layouts: Mapping[str, ShardLayout],
        made_plain: Collection[str] = (),
    ) -> None:
        self.config = config
        self._n_features = n_features
        self._n_active = n_active
        self._batch = batch
        self.engines: dict[str, RuleEngine] = {}
        self.made_plain = set(made_plain)
        self._demons: dict[str, Integers] = {}
        self.n_demons = 0
        self._is_nested = len(layouts) > 1
        self.rearrange(mapping, {}, layouts)

    def _new_engine(
        self, algorithm: str, mapping: DemonMapping, layout: ShardLayout | None
    ) -> RuleEngine:
        """Return an engine of a rule, without weights, for the demons of a mapping."""
        config = config_of(self.config, algorithm)
        decay = mapping.largest_decay
        is_long = is_too_long(config, decay)
        if is_long and not config.needs_plain_engine:
            n_steps = trace_length(config, decay)
            _warn_of_plain_engine(
                f"traces with gamma lambda = {decay:g} reach back {n_steps:,} steps"
            )
        if is_long or config.needs_plain_engine or algorithm in self.made_plain:
            n_actions = 1
            if rule(config.algorithm).FINDS_POLICY:
                n_actions = mapping.n_actions
            return PlainEngine(
                group=mapping.group,
                n_features=self._n_features,
                alpha=mapping.alpha,
                alpha_w=mapping.alpha_w,
                config=config,
                policy=mapping.policy,
                cumulant=mapping.cumulant,
                n_actions=n_actions,
            )
        return SpanEngine(
            group=mapping.group,
            n_features=self._n_features,
            alpha=mapping.alpha,
            alpha_w=mapping.alpha_w,
            config=config,
            policy=mapping.policy,
            cumulant=mapping.cumulant,
            largest_decay=decay,
            batch=self._batch,
            share=layout,
        )

    def rearrange(
        self,
        mapping: DemonMapping,
        tiles: Mapping[int, Tiles],
        layouts: Mapping[str, ShardLayout],
        rarity: Rarity | None = None,
    ) -> None:
        """Add and remove demons; rules come and go with them.

        Args:
            mapping: The demons.
            tiles: Current tiles, (n_active,), of each stream that has begun.
            layouts: As for the class.
            rarity: The latest classes of features, None before the first.
        """
        stream = self.stream
        names = np.array(mapping.algorithm)
        engines = dict[str, RuleEngine]()
        cumulant = mapping.cumulant
        if cumulant is None:
            cumulant = np.arange(names.size)
        own_index = np.full(self.n_demons + 1, NEWCOMER)  # in its engine; the last is for NEWCOMER
        for demons in self._demons.values():
            own_index[demons] = np.arange(demons.size)
        for name in dict.fromkeys(mapping.algorithm):
            members = np.flatnonzero(names == name)
            alpha, alpha_w = step_sizes_of(self.config, name, self._n_active)
            part = mapping._replace(
                old_index=own_index[mapping.old_index[members]],
                group=mapping.group[members],
                cumulant=cumulant[members],
                alpha=alpha,
                alpha_w=alpha_w,
            )
            if name in self.engines:
                engines[name] = self.engines[name]
                engines[name].rearrange(part)
            else:
                engines[name] = engine = self._new_engine(name, part, layouts.get(name))
                if rarity is not None:
                    engine.set_scales(rarity)
                for k, of_stream in tiles.items():
                    engine.select_stream(k)
                    engine.begin(of_stream)
                engine.select_stream(stream)
        self.engines = engines
        self.n_demons = names.size
        self._cumulant = cumulant
        self._choose_direct()
        self.algorithm = mapping.algorithm
        self._is_nested = self._is_nested or len(engines) > 1
        self._demons = {name: np.flatnonzero(names == name) for name in engines}
        self._signals: Signals | None = None
        self._parts: dict[str, Signals] = {}

    def to_plain(self) -> None:
        """Replace the engines in which a trace is too long."""
        for name, engine in self.engines.items():
            if engine.flags & TAIL_TOO_LONG:
                _warn_of_plain_engine(f"a trace reaches back more than {LARGEST_TAIL:,} steps")
                self.engines[name] = engine.to_plain()
                self.made_plain.add(name)
        self._choose_direct()

    def _choose_direct(self) -> None:
        self.direct = self
        if len(self.engines) == 1:
            (self.direct,) = self.engines.values()

    # ---- the stream -----------------------------------------------------------------------------

    def begin(self, tiles: Tiles) -> Floats:
        """Begin a stream at `tiles`, (n_active,), and return the predictions."""
        for engine in self.engines.values():
            engine.begin(tiles)
        return self.latest

    def select_stream(self, stream: int) -> None:
        """Learn from another stream from now on."""
        for engine in self.engines.values():
            engine.select_stream(stream)

    def learn(self, tiles: Tiles, signals: Signals, *, is_last: bool = False) -> Floats:
        """Learn from the transition to `tiles`, (n_active,), or queue it; return the latest predictions."""
        if signals is not self._signals:
            self._signals = signals
            self._parts = {name: self._share(signals, name) for name in self.engines}
        for name, engine in self.engines.items():
            part = self._parts[name]
            demons = self._demons[name]
            if part is not signals:
                part.z_tp1[:] = signals.z_tp1[demons]
                if signals.interest_t.size == self.n_demons:
                    part.interest_t[:] = signals.interest_t[demons]
            engine.learn(tiles, part, is_last=is_last)
        return self.latest

    def _share(self, signals: Signals, name: str) -> Signals:
        """Return the signals of one engine: views, except of the values per demon, which each step copies."""
        demons = self._demons[name]
        if demons.size == self.n_demons:
            return signals
        interest = np.ones(1)
        if signals.interest_t.size == self.n_demons:
            interest = np.ones(demons.size)
        c = signals.c_tp1[: self._cumulant[demons].max() + 1]
        return signals._replace(c_tp1=c, z_tp1=np.zeros(demons.size), interest_t=interest)

    def catch_up(self, algorithms: Collection[str] | None = None) -> None:
        """Process all queued steps, or those of some update rules."""
        for name, engine in self.engines.items():
            if algorithms is None or name in algorithms:
                engine.catch_up()

    def work_ahead(self) -> None:
        """Do now what the next step would begin with."""
        for engine in self.engines.values():
            engine.work_ahead()

    def move_averages(self, rates: Floats) -> None:
        """Move the averaged weights toward theta, by a rate for each demon, shape (n_demons,)."""
        for name, engine in self.engines.items():
            engine.move_averages(rates[self._demons[name]])

    def set_scales(self, rarity: Rarity) -> None:
        """Set the factors of the features' step sizes, by their rarity."""
        for engine in self.engines.values():
            engine.set_scales(rarity)

    @property
    def stream(self) -> int:
        """Number of the selected stream."""
        return next((engine.stream for engine in self.engines.values()), 0)

    @property
    def n_waiting(self) -> int:
        """Number of queued steps."""
        return max(engine.n_waiting for engine in self.engines.values())

    @property
    def mergeable(self) -> MergingEngine:
        """The only engine, which can share its weights with those of other streams.

        Raises:
            ValueError: If there are several engines, or it cannot.
        """
        engine, *others = self.engines.values()
        if others or not engine.can_merge:
            raise ValueError(SEPARATE_TRACES)
        return engine.to_plain()  # itself

    # ---- reading --------------------------------------------------------------------------------

    def _read(self, read: Callable[[Engine], Floats]) -> Floats:
        """Return what `read` returns of each engine, (n, ...), in the order of the demons."""
        parts = {name: read(engine) for name, engine in self.engines.items()}
        first = next(iter(parts.values()))
        out = np.zeros((self.n_demons, *first.shape[1:]), dtype=first.dtype)
        for name, values in parts.items():
            out[self._demons[name]] = values
        return out

    @property
    def latest(self) -> Floats:
        """Predictions at the latest completed step, float64, shape (n_demons,)."""
        return self._read(lambda engine: engine.latest)

    @property
    def latest_averaged(self) -> Floats:
        """theta_bar.phi at the latest completed step, float64, shape (n_demons,)."""
        return self._read(lambda engine: engine.latest_averaged)

    def numbers(self, name: NumberName) -> Floats:
        """Return a number of each demon after all queued steps, shape (n_demons,): `EngineResults.numbers`."""
        return self._read(lambda engine: engine.numbers(name))

    def pop_errors(self) -> Floats:
        """Return the sums of rho delta and rho delta^2, shape (2, n_demons), and set them to 0: `Engine.pop_errors`."""
        return self._read(lambda engine: engine.pop_errors().T).T

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimate m.w, shape (n_demons,); raise ValueError without m."""
        return self._read(lambda engine: engine.mspbe_vector())

    def predict(self, tiles: Tiles, weights: WeightsName = "theta") -> Floats:
        """Return theta.phi or average.phi of all demons at `tiles`, (n_active,), float64, shape (n_demons,)."""
        return self._read(lambda engine: engine.predict(tiles, weights))

    def predict_one(self, demon: int, tiles: Tiles, weights: WeightsName = "theta") -> float:
        """Return one demon's theta.phi or average.phi at `tiles`, (n_active,)."""
        engine, index = self._engine_of(demon)
        return engine.predict_one(index, tiles, weights)

    def _engine_of(self, demon: int) -> tuple[RuleEngine, int]:
        """Return a demon's engine, and its index there."""
        name = self.algorithm[demon]
        return self.engines[name], int(np.searchsorted(self._demons[name], demon))

    def action_values(self, demon: int, tiles: Tiles) -> Floats:
        """Return the action values of a demon that finds a policy, at `tiles`, (n_active,), shape (n_actions,)."""
        engine, index = self._engine_of(demon)
        return engine.action_values(index, tiles)

    def rows(self, *names: str, demons: Integers | None = None) -> tuple[Reals, ...]:
        """Return copies of arrays, each (n, n_features), of demons (n,) or all: `EngineResults.rows`.

        Raises:
            ValueError: If some of them have weights for each action and others do not, or there is no
                such array.
        """
        chosen = np.arange(self.n_demons)
        if demons is not None:
            chosen = demons
        parts: list[tuple[Integers, tuple[Reals, ...]]] = []
        for name, of_rule in self._demons.items():
            places = np.flatnonzero(np.isin(chosen, of_rule))
            if places.size or not (chosen.size or parts):
                indices = np.searchsorted(of_rule, chosen[places])
                parts.append((places, self.engines[name].rows(*names, demons=indices)))
        first = parts[0][1]
        n_weights = first[0].shape[1]
        if any(rows[0].shape[1] != n_weights for _, rows in parts):
            raise ValueError(DIFFERENT_WEIGHTS)
        out = np.zeros((len(first), chosen.size, n_weights), dtype=first[0].dtype)
        for places, rows in parts:
            out[:, places] = rows
        return tuple(out)

    def runs(self) -> list[Integers]:
        """Return the indices of the demons in order, cut where the rule changes."""
        changes = [i for i in range(1, self.n_demons) if self.algorithm[i] != self.algorithm[i - 1]]
        return np.split(np.arange(self.n_demons), changes)

    # ---- diverged demons, weights ---------------------------------------------------------------

    @property
    def flags(self) -> int:
        """Flags of all engines."""
        return functools.reduce(operator.or_, [engine.flags for engine in self.engines.values()])

    def pop_diverged(self) -> dict[int, str]:
        """Return the demons that diverged since the last call, with the reason."""
        found: dict[int, str] = {}
        for name, engine in self.engines.items():
            found |= {
                int(self._demons[name][demon]): why for demon, why in engine.pop_diverged().items()
            }
        return dict(sorted(found.items()))

    def mark_diverged(self, demon: int) -> None:
        """Set one demon's weights to zero for good."""
        engine, index = self._engine_of(demon)
        engine.mark_diverged(index)

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| above which a demon has diverged, shape (n_demons,)."""
        for name, engine in self.engines.items():
            engine.set_bounds(bound[self._demons[name]])

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, (n_demons, n_features), by default to zero."""
        for name, engine in self.engines.items():
            if theta is None:
                engine.reset_weights()
            else:
                engine.reset_weights(theta[self._demons[name]])

    # ---- state ----------------------------------------------------------------------------------

    def state(self) -> State:
        """Return copies of the complete state, by name."""
        states = {name: engine.state() for name, engine in self.engines.items()}
        if self._is_nested:
            return nested(**states)
        return next(iter(states.values()))

    def restore(self, state: State) -> None:
        """Restore a state of engines with the same arguments and the same calls of `rearrange`."""
        self._is_nested = any(key.startswith(f"{name}/") for name in self.engines for key in state)
        for name, engine in self.engines.items():
            engine.restore(inner(state, name) if self._is_nested else state)


def _warn_of_plain_engine(why: str) -> None:
    _log.warning(
        "%s, but the fast engine stores %d: switching to the slower plain engine", why, LARGEST_TAIL
    )
