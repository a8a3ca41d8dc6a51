"""MixedEngine: an engine for each update rule, for questions that name their own.

The demons of all rules share features and signals; each engine stores its own history of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from horde_agent.kernels.checks import TAIL_TOO_LONG, Signals
from horde_agent.learning.engine import Engine, restored_streams, streams_state
from horde_agent.learning.layout import NEWCOMER, DemonMapping
from horde_agent.learning.plain import PlainEngine
from horde_agent.saving import State, inner, nested
from horde_agent.types import Floats, Integers, Reals, Tiles

DIFFERENT_WEIGHTS = "some of these demons have weights for each action, others do not: read them separately"
NewEngine = Callable[[str, DemonMapping], Engine]
"""Return an engine of a rule, without weights, for the demons of a mapping."""
StepSizes = Callable[[str], tuple[float, float]]
"""Return alpha and alpha_w of a rule."""


class MixedEngine:
    """Engines side by side, each for the demons of one update rule; see `engine.Engine`.

    Args:
        engines: Engine of each rule, by name.
        algorithm: Rule of each demon, shape (n_demons,).
        cumulant: Index of each demon's cumulant in the signals, shape (n_demons,).
        new_engine, step_sizes: For a rule that `rearrange` adds, and for new demons.
        tiles: Current tiles, (n_active,), of each stream that has begun.
    """

    def __init__(
        self,
        engines: dict[str, Engine],
        algorithm: Sequence[str],
        cumulant: Integers,
        new_engine: NewEngine,
        step_sizes: StepSizes,
        tiles: Mapping[int, Tiles],
    ) -> None:
        self._engines, self._new_engine, self._step_sizes = dict(engines), new_engine, step_sizes
        self._tiles = dict(tiles)
        self._assign(algorithm, cumulant)

    def _assign(self, algorithm: Sequence[str], cumulant: Integers) -> None:
        """Record the demons of each engine."""
        self.algorithm, self._cumulant, self.n_demons = tuple(algorithm), cumulant, len(algorithm)
        names = np.array(self.algorithm)
        self._demons = {name: np.flatnonzero(names == name) for name in self._engines}
        self._signals: Signals | None = None
        self._parts: dict[str, Signals] = {}

    def _gather(self, read: Callable[[Engine], Any]) -> Any:
        """Return what `read` returns of each engine, (n, ...), in the order of the demons."""
        parts = {name: np.asarray(read(engine)) for name, engine in self._engines.items()}
        first = next(iter(parts.values()))
        out = np.zeros((self.n_demons, *first.shape[1:]), dtype=first.dtype)
        for name, values in parts.items():
            out[self._demons[name]] = values
        return out

    # ---- the stream -------------------------------------------------------------------------------------------------

    def begin(self, tiles: Tiles) -> Floats:
        """Begin a stream at `tiles`, (n_active,): `Engine.begin`."""
        self._tiles[self.stream] = np.array(tiles)
        for engine in self._engines.values():
            engine.begin(tiles)
        return self.latest

    def select_stream(self, stream: int) -> None:
        """Learn from another stream from now on: `Engine.select_stream`."""
        for engine in self._engines.values():
            engine.select_stream(stream)

    def learn(self, tiles: Tiles, signals: Signals, *, is_last: bool = False) -> Floats:
        """Learn from the transition to `tiles`, (n_active,): `Engine.learn`."""
        self._tiles[self.stream] = np.array(tiles)
        if signals is not self._signals:
            self._signals, self._parts = signals, {name: self._share(signals, name) for name in self._engines}
        for name, engine in self._engines.items():
            part, demons = self._parts[name], self._demons[name]
            part.z_tp1[:] = signals.z_tp1[demons]
            if signals.interest_t.size == self.n_demons:
                part.interest_t[:] = signals.interest_t[demons]
            engine.learn(tiles, part, is_last=is_last)
        return self.latest

    def _share(self, signals: Signals, name: str) -> Signals:
        """Return the signals of one engine: views, except of the values per demon, which each step copies."""
        demons = self._demons[name]
        interest = np.ones(demons.size if signals.interest_t.size == self.n_demons else 1)
        c = signals.c_tp1[: self._cumulant[demons].max() + 1]
        return signals._replace(c_tp1=c, z_tp1=np.zeros(demons.size), interest_t=interest)

    def catch_up(self, algorithms: Collection[str] | None = None) -> None:
        """Process all queued steps, or those of some update rules."""
        for name, engine in self._engines.items():
            if algorithms is None or name in algorithms:
                engine.catch_up()

    @property
    def stream(self) -> int:
        """Number of the selected stream."""
        return next((engine.stream for engine in self._engines.values()), 0)

    @property
    def n_waiting(self) -> int:
        """Number of queued steps."""
        return max(engine.n_waiting for engine in self._engines.values())

    # ---- reading ----------------------------------------------------------------------------------------------------

    @property
    def latest(self) -> Floats:
        """Predictions at the latest completed step, shape (n_demons,)."""
        return np.asarray(self._gather(lambda engine: engine.latest))

    def predict(self, tiles: Tiles) -> Floats:
        """Return the predictions at `tiles`, (n_active,), without learning."""
        return np.asarray(self._gather(lambda engine: engine.predict(tiles)))

    def predict_one(self, demon: int, tiles: Tiles) -> float:
        """Return one demon's prediction at `tiles`, (n_active,)."""
        engine, own = self._engine_of(demon)
        return engine.predict_one(own, tiles)

    def _engine_of(self, demon: int) -> tuple[Engine, int]:
        """Return a demon's engine, and its index there."""
        name = self.algorithm[demon]
        return self._engines[name], int(np.searchsorted(self._demons[name], demon))

    def action_values(self, demon: int, tiles: Tiles) -> Floats:
        """Return the action values of a demon that finds a policy, at `tiles`, (n_active,), shape (n_actions,)."""
        engine, own = self._engine_of(demon)
        assert isinstance(engine, PlainEngine)
        return engine.action_values(own, tiles)

    def weights(self, demons: Integers | None = None) -> tuple[Reals, Reals]:
        """Return copies of theta and w, each (n, n_features), of demons (n,) or all.

        Raises:
            ValueError: If some of them have weights for each action and others do not.
        """
        theta, w = self._rows(lambda engine, own: engine.weights(own), demons)
        return theta, w

    def _rows(self, read: Callable[[Engine, Integers], tuple[Reals, ...]], demons: Integers | None) -> Reals:
        """Return arrays with a row per demon, (n_arrays, n, n_weights), of demons (n,) or all."""
        chosen = np.arange(self.n_demons) if demons is None else demons
        parts: list[tuple[Integers, tuple[Reals, ...]]] = []
        for name, of_rule in self._demons.items():
            here = np.flatnonzero(np.isin(chosen, of_rule))
            if here.size or not (chosen.size or parts):
                parts.append((here, read(self._engines[name], np.searchsorted(of_rule, chosen[here]))))
        first = parts[0][1]
        if any(rows[0].shape[1] != first[0].shape[1] for _, rows in parts):
            raise ValueError(DIFFERENT_WEIGHTS)
        out = np.zeros((len(first), chosen.size, first[0].shape[1]), dtype=first[0].dtype)
        for here, rows in parts:
            out[:, here] = rows
        return out

    def runs(self) -> list[Integers]:
        """Return the indices of the demons in order, cut where the rule changes."""
        changes = [i for i in range(1, self.n_demons) if self.algorithm[i] != self.algorithm[i - 1]]
        return np.split(np.arange(self.n_demons), changes)

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimates m.w, NaN for rules without w."""
        return np.asarray(self._gather(lambda engine: engine.mspbe_vector()))

    def mspbe_trace(self) -> Reals:
        """Return a copy of m, (n_demons, n_features); raise ValueError if a rule has none, or as `weights`."""
        (m,) = self._rows(lambda engine, own: (engine.mspbe_trace()[own],), None)
        return np.asarray(m)

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimates, NaN for rules without w."""
        return np.asarray(self._gather(lambda engine: engine.mspbe_scalar))

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step."""
        return np.asarray(self._gather(lambda engine: engine.td_error))

    @property
    def max_trace(self) -> Floats:
        """Largest |e| of each demon so far."""
        return np.asarray(self._gather(lambda engine: engine.max_trace))

    # ---- diverged demons, weights -----------------------------------------------------------------------------------

    @property
    def flags(self) -> int:
        """Flags of all engines."""
        return int(np.bitwise_or.reduce([engine.flags for engine in self._engines.values()]))

    def pop_flagged(self) -> dict[int, str]:
        """Return the demons flagged since the last call, with the reason."""
        found: dict[int, str] = {}
        for name, engine in self._engines.items():
            found |= {int(self._demons[name][demon]): why for demon, why in engine.pop_flagged().items()}
        return dict(sorted(found.items()))

    def freeze(self, demon: int) -> None:
        """Freeze one demon's weights at zero permanently."""
        engine, own = self._engine_of(demon)
        engine.freeze(own)

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| above which a demon is flagged, shape (n_demons,)."""
        for name, engine in self._engines.items():
            engine.set_bounds(bound[self._demons[name]])

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, (n_demons, n_features), by default to zero: `Engine.reset_weights`."""
        for name, engine in self._engines.items():
            engine.reset_weights(None if theta is None else theta[self._demons[name]])

    # ---- adding and removing demons, state --------------------------------------------------------------------------

    def rearrange(self, mapping: DemonMapping) -> None:
        """Add and remove demons; rules come and go with them."""
        cumulant = np.arange(len(mapping.algorithm)) if mapping.cumulant is None else mapping.cumulant
        own_index = np.full(self.n_demons + 1, NEWCOMER)  # in its engine; the last is for NEWCOMER
        for demons in self._demons.values():
            own_index[demons] = np.arange(demons.size)
        names, engines = np.array(mapping.algorithm), {}
        for name in dict.fromkeys(mapping.algorithm):
            here = np.flatnonzero(names == name)
            alpha, alpha_w = self._step_sizes(name)
            part = mapping._replace(
                old_index=own_index[mapping.old_index[here]],
                group=mapping.group[here],
                cumulant=cumulant[here],
                alpha=alpha,
                alpha_w=alpha_w,
            )
            if name in self._engines:
                engines[name] = self._engines[name]
                engines[name].rearrange(part)
            else:
                engines[name] = self._new_engine(name, part)
                for stream, tiles in self._tiles.items():
                    engines[name].select_stream(stream)
                    engines[name].begin(tiles)
                engines[name].select_stream(self.stream)
        self._engines = engines
        self._assign(mapping.algorithm, cumulant)

    def to_plain(self) -> MixedEngine:
        """Change the engines in which a trace is too long: `Engine.to_plain`."""
        for name, engine in self._engines.items():
            if engine.flags & TAIL_TOO_LONG:
                self._engines[name] = engine.to_plain()
        return self

    @property
    def plain_rules(self) -> set[str]:
        """Update rules that learn by the plain engine."""
        return {name for name, engine in self._engines.items() if isinstance(engine, PlainEngine)}

    def state(self) -> State:
        """Return copies of the complete state, by name."""
        others = {k: {"tiles": tiles} for k, tiles in self._tiles.items() if k != self.stream}
        tiles = {"tiles": self._tiles[self.stream].copy()} if self.stream in self._tiles else {}
        return nested(
            own=tiles | streams_state(self.stream, others),
            **{name: engine.state() for name, engine in self._engines.items()},
        )

    def restore(self, state: State) -> None:
        """Restore a state of engines with the same arguments and the same calls of `rearrange`."""
        for name, engine in self._engines.items():
            engine.restore(inner(state, name))
        own = inner(state, "own")
        self._tiles = {k: of["tiles"] for k, of in restored_streams(own)[1].items()}
        if "tiles" in own:
            self._tiles[self.stream] = own["tiles"].copy()
