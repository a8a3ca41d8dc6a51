"""Contract of the learning engines: through any events each learns what its reference learns.

Each kind of engine in KINDS and each update rule with a form for the span engine passes every test
here. The reference of GTD(lambda) is its dense oracle, that of another rule its plain engine, which
`test_rules` compares with known answers. An update rule enters by its file, an engine by a line in
KINDS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numba
import numpy as np
import pytest

from horde_agent.kernels import rules
from horde_agent.kernels.checks import TAIL_TOO_LONG
from horde_agent.kernels.span.arrays import NOW
from horde_agent.learning import LearnerConfig, PlainEngine, SpanEngine, rarity
from horde_agent.learning import plain as plain_module
from horde_agent.learning import span as span_module
from horde_agent.learning.engine import DemonMapping
from horde_agent.learning.mixed import MixedEngine
from horde_agent.learning.rarity import FeatureRarity
from horde_agent.learning.rules import step_sizes_of
from horde_agent.learning.span_storage import rows_of
from horde_agent.learning.stored import NEWCOMER
from horde_agent.saving import State
from tests.agent.engine_events import N_ACTIVE, Choices, EngineStream, Event, Learner, N
from tests.agent.shared import Setup, config_of, learn_all, new_engine, random_stream
from tests.oracles.engine import DenseEngine
from tests.oracles.rarity import RarityByHand

SETUPS = {
    "span-eager": Setup("span", 1),
    "span-deferred": Setup("span", 4),
    "plain": Setup("plain"),
}
IN_ALL = pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS.keys())
GROUPS = [0] * 20 + [1, 1, 2] + [3] * 9 + [4]
TINY = 1e-9  # a bound that each weight passes
SCRATCH = {"run_time", "run_place"}
IS_INTERPRETED = bool(numba.config.DISABLE_JIT)  # type: ignore[attr-defined]
# Interpreted, a step takes 100 times as long
SHORTER = 1 + 4 * IS_INTERPRETED
# Enough for features of all three classes
N_RARE_EVENTS = 400
N_EVENTS_BEFORE_CHANGE = 60
N_ROUNDS = 3  # of beginnings
if IS_INTERPRETED:
    N_RARE_EVENTS = 130
    N_EVENTS_BEFORE_CHANGE = 30
    N_ROUNDS = 1


# ---- engines and their references -------------------------------------------------------------------------------


def plain_engine(stream: EngineStream, config: LearnerConfig) -> PlainEngine:
    return PlainEngine(
        stream.group, N, stream.alpha, stream.alpha_w, config, policy=stream.policy_of_group
    )


class EngineAhead(SpanEngine):
    """A span engine that does what its next step would begin with after most of its steps."""

    def learn(self, tiles: Any, signals: Any, *, is_last: bool = False) -> Any:
        latest = super().learn(tiles, signals, is_last=is_last)
        if self.memory.clock[NOW] % 4:
            self.work_ahead()
        return latest


def span_engine(
    stream: EngineStream,
    config: LearnerConfig,
    batch: int,
    period: int = 8,
    kind: type[SpanEngine] = SpanEngine,
) -> SpanEngine:
    """Return an engine whose ring buffers are so short that a stream wraps around them several times."""
    return kind(
        stream.group,
        N,
        stream.alpha,
        stream.alpha_w,
        config,
        policy=stream.policy_of_group,
        batch=batch,
        period=period,
        widest=16,
        largest_decay=stream.choices.largest_decay,
    )


def reference_of(stream: EngineStream, config: LearnerConfig) -> Any:
    """Return what engines with these options are compared with."""
    if config.algorithm == "gtd" and config.trace_rule in ("clipped", "capped", "plain"):
        return DenseEngine(
            stream.group,
            N,
            stream.alpha,
            stream.alpha_w,
            config,
            policy=stream.policy_of_group,
        )
    return plain_engine(stream, config)


class SeveralRules(MixedEngine):
    """A `MixedEngine` that is rearranged as other engines are, and told the tiles of its streams.

    Args:
        stream: Its demons and their rules.
        config: Options of the first rule; the others have their defaults.
        batch: Steps that are queued before they are processed.
    """

    def __init__(self, stream: EngineStream, config: LearnerConfig, batch: int) -> None:
        self._tiles: dict[int, Any] = {}
        mapping = DemonMapping(
            old_index=np.full(stream.group.size, NEWCOMER),
            group=stream.group,
            policy=stream.policy_of_group,
            algorithm=tuple(stream.algorithm.tolist()),
            largest_decay=stream.choices.largest_decay,
        )
        super().__init__(config, N, N_ACTIVE, batch, mapping, {})

    def rearrange(self, mapping: DemonMapping, *_: Any) -> None:
        super().rearrange(mapping, self._tiles, {})

    def begin(self, tiles: Any) -> Any:
        self._tiles[self.stream] = tiles
        return super().begin(tiles)

    def learn(self, tiles: Any, signals: Any, *, is_last: bool = False) -> Any:
        self._tiles[self.stream] = tiles
        return super().learn(tiles, signals, is_last=is_last)


KINDS: dict[str, Callable[..., Any]] = {
    "plain": plain_engine,
    "span-eager": partial(span_engine, batch=1),
    "span-ahead": partial(span_engine, batch=1, kind=EngineAhead),
    "span-deferred": partial(span_engine, batch=4),
}


# ---- what is compared -------------------------------------------------------------------------------------------


class Trial:
    """An engine and its references on one random stream.

    Args:
        stream: The stream, whose first learner is the engine.
        rules: Update rule of each reference, in their order.
    """

    def __init__(self, stream: EngineStream, rules: tuple[str, ...]) -> None:
        self.stream = stream
        self.rules = rules
        # The span engine has an upper bound, which an engine that takes over keeps
        self.has_exact_max_trace = isinstance(self.engine, PlainEngine)

    @property
    def engine(self) -> Any:
        return self.stream.learners[0].engine

    @property
    def is_idle(self) -> bool:
        """True if demons have skipped every step since their weights were last written."""
        engine = self.engine
        return isinstance(engine, SpanEngine) and bool((engine.arrays.n_pending == 0).any())

    def run(self, n_events: int, check_every: int = 7) -> None:
        """Take random events, with a comparison after each that is no step."""
        stream = self.stream
        for k in range(n_events):
            event = stream.draw()
            if event is Event.LEARN and self.is_idle and stream.rng.random() < 0.15:
                event = Event.CHANGE
            stream.take(event)
            if event is not Event.LEARN or k % check_every == 0 or k == n_events - 1:
                self.check(f"after event {k}, {event.name}")

    def expected(self, read: Callable[[Any], Any]) -> Any:
        """Return what the references read, for each demon that of its own rule."""
        values = [read(reference.engine) for reference in self.stream.references]
        out = values[0].copy()
        for rule, other_values in zip(self.rules[1:], values[1:], strict=True):
            of_rule = self.stream.algorithm == rule
            out[of_rule] = other_values[of_rule]
        return out

    def check(self, when: str) -> None:
        """Compare everything readable with the references, and assert that reading changes no bit of the engine."""
        engine = self.engine
        rng = self.stream.rng
        for learner in (*self.stream.learners, *self.stream.references):
            learner.engine.catch_up()
        state = engine.state()
        elsewhere = rng.choice(N, N_ACTIVE, replace=False)
        demon = int(rng.integers(self.stream.policy.size))
        queries: dict[str, Callable[[Any], Any]] = {
            "theta and w": lambda e: np.hstack(e.rows("theta", "w")),
            "m.w": lambda e: e.mspbe_vector(),
            "s": lambda e: e.numbers("mspbe"),
            "delta": lambda e: e.numbers("td_error"),
            "v": lambda e: e.latest,
            "v elsewhere": lambda e: e.predict(elsewhere),
        }
        pairs = {name: (read(engine), self.expected(read)) for name, read in queries.items()}
        pairs["v of one"] = (engine.predict_one(demon, elsewhere), pairs["v elsewhere"][1][demon])
        first = self.stream.first_predictions
        if len(self.rules) == 1:
            pairs["v at the beginning"] = (first[0], first[len(self.stream.learners)])
        if isinstance(engine, PlainEngine | SpanEngine) and self.rules == ("gtd",):
            pairs["m"] = (engine.rows("m")[0], self.expected(lambda e: e.rows("m")[0]))
        for name, (got, want) in pairs.items():
            scale = 1e-3 + np.abs(np.nan_to_num(want)).max(initial=0.0)
            assert_close(got, want, 1e-11 * scale, f"{name} {when}")
        max_trace = self.expected(lambda e: e.numbers("max_trace"))
        assert (engine.numbers("max_trace") >= max_trace * (1 - 1e-12)).all(), when
        if self.has_exact_max_trace:
            np.testing.assert_allclose(
                engine.numbers("max_trace"), max_trace, rtol=1e-12, err_msg=when
            )
        assert_same_state(engine.state(), state, when)
        if isinstance(engine, SpanEngine):
            assert_running_sums_are_exact(engine, when)

    def check_flags(self) -> None:
        """Assert that at most the demon with the tiny bound is flagged; then give that bound to another one."""
        stream = self.stream
        self.engine.catch_up()
        flagged = list(self.engine.pop_diverged())
        assert stream.is_marked[flagged].all()
        stream.is_marked = np.arange(stream.policy.size) == stream.rng.integers(stream.policy.size)
        self.engine.set_bounds(np.where(stream.is_marked, TINY, 1e9))


def assert_close(got: Any, want: Any, atol: float, when: str) -> None:
    """Assert that numbers are close; NumPy's own comparison, which is slow, describes the difference."""
    if not (np.abs(got - want) <= atol).all():
        np.testing.assert_allclose(got, want, rtol=0, atol=atol, err_msg=when)


def assert_same_state(state: State, previous_state: State, when: str) -> None:
    """Assert that two states are the same to the bit, except scratch arrays and all but two numbers of the clock."""
    assert state.keys() == previous_state.keys()
    for name in state:
        *_, array_name = name.split("/")
        values = state[name]
        previous_values = previous_state[name]
        if array_name == "clock":
            values = values[:2]
            previous_values = previous_values[:2]
        if array_name not in SCRATCH and values.tobytes() != previous_values.tobytes():
            np.testing.assert_array_equal(values, previous_values, err_msg=f"{name} {when}")
            pytest.fail(f"{name} has other bits {when}")


def assert_running_sums_are_exact(engine: SpanEngine, when: str) -> None:
    """Assert that `base` and `base_w` are theta.phi now and w.phi at `w_at`, of the weights as last written."""
    span = engine.arrays
    layout = engine.layout
    step = int(engine.memory.clock[NOW])
    for b in range(layout.n_blocks):
        lanes = slice(int(layout.start[b]), int(layout.start[b + 1]))
        for name, sums, time in (("theta", span.base, step), ("w", span.base_w, int(span.w_at[b]))):
            if not getattr(span, name).size:
                continue  # the rule has no secondary weights
            if not max(step - len(span.bits), -1) < time <= step:
                continue  # NO_TIME, or too old: the next step that needs it computes it
            bits = np.unpackbits(
                span.bits[time % len(span.bits)].view(np.uint8), bitorder="little"
            )[:N]
            rows = rows_of(getattr(span, name), layout, b, 512).reshape(
                -1, lanes.stop - lanes.start
            )
            want = rows[:N][bits.astype(bool)].sum(axis=0)
            atol = 1e-11 * (1e-3 + np.abs(want).max())
            assert_close(sums[lanes], want, atol, f"{name} of block {b} {when}")


# ---- against the references -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A stream of random events, and options of the rule."""

    seed: int
    n_events: int
    w_rule: str
    trace_rule: str = "clipped"
    tau: float = 30.0
    n_streams: int = 1
    check_every: int = 7


EVERY_STEP = "every-step"
WEIGHTED = "importance-weighted"
# At tau = 2 the MSPBE trace m halves on each step: without a change of its scale it would overflow
# after 1,075 steps.
CASES = [
    Case(0, 150 // SHORTER, EVERY_STEP),
    Case(1, 150 // SHORTER, WEIGHTED, "plain", tau=2.0, n_streams=4),
    Case(2, 250, WEIGHTED),
    Case(3, 250, EVERY_STEP, "capped", tau=2.0, n_streams=4),
    Case(4, 250, WEIGHTED, "plain"),
    Case(5, 250, EVERY_STEP, n_streams=4),
    Case(9, 1_100, EVERY_STEP, "plain", tau=2.0, check_every=50),
]
LONG = 1_000  # events; of the long case one kind of engine is not slow
# Seeds of the short cases that run interpreted, too: one for each kind of engine
INTERPRETED = {"plain": 1, "span-eager": 1, "span-deferred": 0}


def cases_of_kinds() -> list[Any]:
    """Return each kind of engine with each case."""
    parameters = []
    for case in CASES:
        for kind in KINDS:
            marks = []
            if case.seed == INTERPRETED.get(kind):
                marks = [pytest.mark.kernels]
            if case.n_events > LONG and kind != "span-deferred":
                marks = [pytest.mark.slow]
            name = f"{case.seed}-{case.w_rule}-{kind}"
            parameters.append(pytest.param(kind, case, marks=marks, id=name))
    return parameters


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # interpreted, NumPy warns of inf - inf
@pytest.mark.parametrize(("kind", "case"), cases_of_kinds())
def test_an_engine_equals_the_oracle_through_random_events(
    kind: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gaps, ends, other streams, resets, copies, restored states, demons added, removed and marked as diverged.

    Each event happens in the middle of a batch, too. Each transition of a stream is one update of
    the weights that all streams share; traces are each stream's own.
    """
    if case.seed == 0:  # two threads share the demons
        monkeypatch.setattr(span_module, "SMALLEST_SHARED_WORK", 0)
        monkeypatch.setattr(plain_module, "SMALLEST_SHARED_WORK", 0)
    trace_rule = case.trace_rule
    if trace_rule == "capped" and kind != "plain":
        trace_rule = "clipped"
    config = config_of(
        "gtd", w_rule=case.w_rule, trace_rule=trace_rule, mspbe_tau=case.tau, parameters={}
    )
    stream = EngineStream(case.seed, n_streams=case.n_streams)
    engine = KINDS[kind](stream, config)
    if isinstance(engine, SpanEngine):
        engine.memory.n_threads = 1 + (case.seed == 0)
    stream.start([Learner(engine)], [Learner(reference_of(stream, config))])
    trial = Trial(stream, ("gtd",))
    for _ in range(10):
        trial.run(case.n_events // 10, case.check_every)
        trial.check_flags()
    assert len(stream.tiles_of_stream) >= case.n_streams - 1


@pytest.fixture
def classes_for_few_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """A feature is active in a fourteenth of the states: the boundaries are set so that all classes occur."""
    monkeypatch.setattr(rarity, "BOUNDARIES", (0.085, 0.065))
    monkeypatch.setattr(rarity, "N_IMAGINED", 3)


RARE_CASES = [
    pytest.param(6, "span-eager", marks=pytest.mark.kernels),
    (6, "span-deferred"),
    (7, "span-eager"),
    (7, "span-deferred"),
    pytest.param(6, "plain", marks=pytest.mark.kernels),
    (7, "plain"),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # interpreted, NumPy warns of inf - inf
@pytest.mark.usefixtures("classes_for_few_states")
@pytest.mark.parametrize(("seed", "kind"), RARE_CASES)
def test_rare_features_have_larger_step_sizes_through_random_events(seed: int, kind: str) -> None:
    by_hand = RarityByHand(N, often=0.085, seldom=0.065, n_imagined=3)
    stream = EngineStream(seed, n_streams=3, rarity=FeatureRarity(N, N_ACTIVE))
    config = config_of("gtd", rarity=True, mspbe_tau=30.0)
    engine = KINDS[kind](stream, config)
    reference = DenseEngine(
        stream.group,
        N,
        stream.alpha,
        stream.alpha_w,
        replace(config, rarity=False),
        policy=stream.policy_of_group,
        rarity=by_hand,
    )
    stream.start([Learner(engine)], [Learner(reference)])
    Trial(stream, ("gtd",)).run(N_RARE_EVENTS)
    assert len(set(by_hand.scale)) == 3


SPAN_RULES = [name for name in rules.names() if rules.rule(name).SPAN is not None]
# Each compiles for 30 s
MARKS = {name: () if name in ("gtd", "tdrc") else pytest.mark.slow for name in SPAN_RULES}
# Trace rules with one of the w rules each; the oracle of `gtd` has every combination above.
W_RULES = {"clipped": EVERY_STEP, "plain": WEIGHTED, "abtd": EVERY_STEP}


def settings_of(name: str) -> list[tuple[str, str, str]]:
    """Return the rule with each trace rule that it can have, and a w rule that it has."""
    rule = rules.rule(name)
    has_choice = "w" in rule.vectors and rule.CAN_WEIGHT
    settings = []
    for trace_rule, w_rule in W_RULES.items():
        if rule.TRACE_RULE in ("", trace_rule):
            settings.append((name, trace_rule, w_rule if has_choice else EVERY_STEP))
    return settings


SETTINGS = [
    ("tree_backup", "tree-backup", EVERY_STEP),
    ("gtd", "tree-backup", EVERY_STEP),
    ("gtd", "abtd", EVERY_STEP),
]
for other_name in SPAN_RULES:
    if other_name != "gtd":
        SETTINGS += settings_of(other_name)
RULES_DRAW = Choices(gamma=(0.0, 0.5, 0.9), lam=(0.0, 0.4, 0.9), alpha=0.02, alpha_w=0.03)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(
    ("name", "trace_rule", "w_rule"),
    [pytest.param(*setting, marks=MARKS[setting[0]]) for setting in SETTINGS],
)
def test_the_span_engine_learns_what_the_plain_engine_learns(
    name: str, trace_rule: Any, w_rule: Any, batch: int
) -> None:
    """From three streams."""
    config = config_of(name, trace_rule=trace_rule, w_rule=w_rule)
    stream = EngineStream(1, RULES_DRAW, n_streams=3)
    engine = span_engine(stream, config, batch=batch, period=7)
    stream.start([Learner(engine)], [Learner(plain_engine(stream, config))])
    Trial(stream, (name,)).run(150)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy warns of 0 inf
@pytest.mark.usefixtures("classes_for_few_states")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS[name]) for name in SPAN_RULES if name != "gtd"]
)
def test_the_engines_learn_the_same_with_rare_features(name: str) -> None:
    """The step size is so large that every rule's bound of it counts."""
    config = config_of(name, rarity=True, parameters={})
    alpha = 5.0 * rules.rule(name).STEP_SIZE / N_ACTIVE
    choices = Choices(gamma=(0.0, 0.5, 0.9), lam=(0.0, 0.4, 0.9), alpha=alpha, alpha_w=0.01)
    stream = EngineStream(4, choices, n_streams=3, rarity=FeatureRarity(N, N_ACTIVE))
    engine = span_engine(stream, config, batch=4, period=7)
    stream.start([Learner(engine)], [Learner(plain_engine(stream, config))])
    Trial(stream, (name,)).run(200)
    gains = engine.arrays.largest_gain
    assert gains.max() > 1.0 or name.startswith("intentional")


@pytest.mark.parametrize(
    ("trace_rule", "parameters"), [("clipped", {"c_bar": 0.6}), ("abtd", {"psi": 0.7})]
)
def test_the_span_engine_bounds_traces_as_the_plain_engine_does(
    trace_rule: Any, parameters: dict[str, float]
) -> None:
    """With bounds other than 1, their default, where a bound that is left out changes nothing."""
    config = config_of("gtd", trace_rule=trace_rule, parameters=parameters)
    stream = EngineStream(3, RULES_DRAW, n_streams=2)
    engine = span_engine(stream, config, batch=1, period=7)
    stream.start([Learner(engine)], [Learner(plain_engine(stream, config))])
    Trial(stream, ("gtd",)).run(150)


FEW = Choices(
    gamma=(0.0, 0.5, 0.9), lam=(0.0, 0.4, 0.9), alpha=0.02, alpha_w=0.03, demons=(3, 3, 1, 1)
)


# Interpreted, no rule takes long to compile
MARKS_IF_SHORT = MARKS
if IS_INTERPRETED:
    MARKS_IF_SHORT = dict.fromkeys(SPAN_RULES, pytest.mark.kernels)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS_IF_SHORT[name]) for name in SPAN_RULES]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # interpreted, NumPy warns of inf - inf
@pytest.mark.usefixtures("classes_for_few_states")
@pytest.mark.parametrize("has_rarity", [False, True])
def test_the_plain_engine_takes_over_every_trace(
    name: str, has_rarity: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After random events, among them gaps and changes of the stream, it continues from what the other learned."""
    monkeypatch.setattr(rarity, "FIRST", 16)
    config = config_of(name, rarity=has_rarity)
    features = None
    if has_rarity:
        features = FeatureRarity(N, N_ACTIVE)
    stream = EngineStream(5, FEW, n_streams=2, rarity=features)
    learner = Learner(span_engine(stream, config, batch=3, period=7))
    stream.start([learner], [Learner(plain_engine(stream, config))])
    stream.run(N_EVENTS_BEFORE_CHANGE)
    trial = Trial(stream, (name,))
    trial.check("before the change of engine")
    learner.engine = learner.engine.to_plain()
    for _ in range(8):
        stream.learn()
        trial.check("after the change of engine")


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "plain") for name in rules.names()]
    + [pytest.param(name, "span-eager", marks=MARKS[name]) for name in SPAN_RULES],
)
@pytest.mark.usefixtures("classes_for_few_states")
def test_a_restored_engine_continues_to_the_bit(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the midst of three streams, in an engine that was made anew."""
    monkeypatch.setattr(rarity, "FIRST", 16)
    config = config_of(name, rarity=rules.rule(name).SPAN is not None)
    stream = EngineStream(2, RULES_DRAW, n_streams=3, rarity=FeatureRarity(N, N_ACTIVE))
    learned = KINDS[kind](stream, config)
    stream.start([Learner(learned)])
    for k in range(30):
        stream.learn()
        stream.select(k % 3)
    restored = KINDS[kind](stream, config)
    restored.begin(stream.tiles)
    restored.restore(learned.state())
    stream.learners.append(Learner(restored))
    for k in range(30):
        stream.learn()
        stream.select(k % 3)
    stream.begin()
    for values, restored_values in zip(
        learned.rows("theta", "w"), restored.rows("theta", "w"), strict=True
    ):
        np.testing.assert_array_equal(values, restored_values)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("kind", ["auto", "plain"])
def test_demons_of_two_rules_learn_what_each_learns_alone(kind: Any, batch: int) -> None:
    """An engine made of two, on the same events as the reference of each rule."""
    algorithms = ("gtd", "tdrc:beta=2")
    config = config_of("gtd", engine=kind, parameters={}, secondary_ratio=0.1)
    alpha, alpha_w = step_sizes_of(config, "gtd", N_ACTIVE)
    choices = Choices(alpha=alpha, alpha_w=alpha_w)
    stream = EngineStream(2, choices, n_streams=3, algorithms=algorithms)
    engine = SeveralRules(stream, config, batch)
    tdrc_alpha, tdrc_alpha_w = step_sizes_of(config, algorithms[1], N_ACTIVE)
    tdrc = PlainEngine(
        stream.group,
        N,
        tdrc_alpha,
        tdrc_alpha_w,
        config_of("tdrc"),
        policy=stream.policy_of_group,
    )
    references = [
        Learner(reference_of(stream, config)),
        Learner(tdrc, tdrc_alpha, tdrc_alpha_w),
    ]
    stream.start([Learner(engine)], references)
    Trial(stream, algorithms).run(150)


@IN_ALL
@pytest.mark.parametrize("trace_rule", ["clipped", "plain"])
def test_long_traces_are_exact(setup: Setup, trace_rule: str) -> None:
    """On-policy with gamma lambda up to 0.931: traces of some 500 steps, through gaps and demons added and removed.

    Under "plain" nothing is dropped; a ratio of 0 every now and then ends the traces.
    """
    p_turn = 0.0
    if trace_rule == "plain":
        p_turn = 1 / 200
    choices = Choices(
        gamma=(0.0, 0.8, 0.9, 0.95), lam=(0.98,), rho=(1.0,), p_turn=(p_turn,) * 4, alpha=1e-4
    )
    config = config_of("gtd", trace_rule=trace_rule, mspbe_tau=30.0, parameters={})
    stream = EngineStream(4, choices)
    engine: Any = plain_engine(stream, config)
    if setup.engine == "span":
        engine = span_engine(stream, config, setup.batch)
    stream.start([Learner(engine)], [Learner(reference_of(stream, config))])
    trial = Trial(stream, ("gtd",))
    for t in range(1_200):
        stream.learn()
        if t in (750, 757):
            stream.begin()
        if t % 300 == 299:
            trial.check(f"before the change after step {t}")
            stream.change()
        if t % 100 == 0:
            trial.check(f"after step {t}")
    assert not trial.engine.flags & TAIL_TOO_LONG


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # interpreted, NumPy warns of inf - inf
@IN_ALL
@pytest.mark.parametrize("n_learned", [0, pytest.param(3, marks=pytest.mark.kernels)])
def test_a_stream_may_begin_again_and_again(setup: Setup, n_learned: int) -> None:
    """More often than the span engine's ring has times, with and without pending steps: a robot that is carried."""
    stream = EngineStream(1, Choices(gamma=(0.0, 0.3, 0.5)))
    config = config_of("gtd", parameters={})
    engine: Any = plain_engine(stream, config)
    if setup.engine == "span":
        engine = span_engine(stream, config, setup.batch, period=3)
        assert engine.memory.allocation.n_times < 80
    stream.start([Learner(engine)], [Learner(reference_of(stream, config))])
    for _ in range(N_ROUNDS):
        for _ in range(80):
            stream.begin()
        for _ in range(n_learned):
            stream.learn()
    Trial(stream, ("gtd",)).check("at the end")


# ---- invariants -------------------------------------------------------------------------------------------------


@IN_ALL
def test_permuting_demons_changes_nothing(setup: Setup) -> None:
    stream = random_stream(5, 80, GROUPS)
    order = np.random.default_rng(0).permutation(len(GROUPS))
    c, z = (np.ascontiguousarray(numbers[:, order]) for numbers in (stream.c, stream.z))
    permuted = stream._replace(group=stream.group[order], c=c, z=z)
    engines = [
        learn_all(new_engine(setup, s.group, dtype="float32"), s) for s in (stream, permuted)
    ]
    for want, got in zip(*(engine.rows("theta", "w") for engine in engines), strict=True):
        np.testing.assert_array_equal(got, want[order])


@IN_ALL
def test_threads_do_not_change_a_bit(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one core only")
    monkeypatch.setattr(
        span_module, "SMALLEST_SHARED_WORK", 0
    )  # else one thread does so little alone
    stream = random_stream(10, 100, list(range(40)) * 15, n_new=3)
    results = []
    n_threads_before = numba.get_num_threads()
    dtype = (
        "float32" if setup.engine == "span" else "float64"
    )  # of which other tests compile the kernels
    for n_threads in (1, 2):
        monkeypatch.setattr(plain_module, "SMALLEST_SHARED_WORK", 10**9 if n_threads == 1 else 0)
        numba.set_num_threads(n_threads)
        engine = new_engine(setup, stream.group, dtype=dtype, pace={"period": 8})
        if isinstance(engine, SpanEngine):
            engine.memory.n_threads = n_threads
        learn_all(engine, stream)
        results.append((*engine.rows("theta", "w"), engine.mspbe_vector(), engine.numbers("mspbe")))
        numba.set_num_threads(n_threads_before)
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


@IN_ALL
def test_an_engine_answers_before_its_first_state(setup: Setup) -> None:
    engine = new_engine(setup, np.arange(3))
    engine.reset_weights(np.ones((3, 30)))
    np.testing.assert_array_equal(engine.predict(np.arange(4)), 4.0)
    np.testing.assert_array_equal(engine.rows("theta", "w")[0], 1.0)
    np.testing.assert_array_equal(engine.mspbe_vector(), 0.0)


@IN_ALL
def test_an_engine_refuses_to_learn_from_a_stream_that_has_not_begun(setup: Setup) -> None:
    """Neither at first nor in another stream; the refused steps leave no trace in what it learns afterwards."""
    stream = random_stream(34, 30, [0] * 9 + [1])
    engine = new_engine(setup, stream.group)
    for number in (0, 1):
        engine.select_stream(number)
        for _ in range(3):
            with pytest.raises(RuntimeError, match=r"no stream .* call begin\(tiles\) first"):
                engine.learn(stream.tiles[1], stream.signals(0))
    engine.select_stream(0)
    learn_all(engine, stream)
    engine.select_stream(1)
    with pytest.raises(RuntimeError, match="no stream"):
        engine.learn(stream.tiles[1], stream.signals(0))
    expected = learn_all(new_engine(setup, stream.group), stream)
    for weights, expected_weights in zip(
        engine.rows("theta", "w"), expected.rows("theta", "w"), strict=True
    ):
        np.testing.assert_array_equal(weights, expected_weights)


@IN_ALL
def test_a_signal_that_the_dtype_cannot_hold_is_skipped_as_nan_is(setup: Setup) -> None:
    """The Horde freezes such a demon; an engine learns nothing from the step."""
    stream = random_stream(34, 30, [0] * 9 + [1])
    weights = []
    for bad in (np.nan, 1e300):
        stream.c[10, [2, 9]] = bad
        engine = learn_all(new_engine(setup, stream.group, dtype="float32"), stream)
        assert not engine.pop_diverged()
        weights.append(engine.rows("theta", "w")[0])
    np.testing.assert_array_equal(*weights)
