"""Update rules: known answers of two independent implementations (reference data), identities and fixed points."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import horde_agent
from horde_agent import GVF, Channel, ConstantAction, Gaussian, Greedy, Horde
from horde_agent.kernels import rules
from horde_agent.learning import LearnerConfig, PlainEngine, Signals, SpanEngine, plain
from horde_agent.learning import rules as learning_rules
from tests.agent import hordes
from tests.agent.commands import refused, summary_of, toy
from tests.agent.hordes import BEHAVIOUR, N_ACTIONS, RandomLife, ask, make
from tests.agent.shared import REFERENCE, config_of

ONE = np.zeros(1, dtype=np.int64)
VARIANTS = {  # entries of the reference data that are a rule with other parameters
    "etd_interest": "etd",
    "vtrace_both": "vtrace",
    "intentional_td_realised": "intentional_td",
}


def golden() -> Any:
    """Return the module that checks a learner against the known answers, or skip the test without it."""
    path = REFERENCE / "golden" / "verify_rules_golden.py"
    if not path.exists():
        pytest.skip(f"needs {path.name} of the reference data")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def set_demons(engine: PlainEngine, **arrays: Any) -> None:
    """Set some of the arrays of an engine's demons, by their names in its state."""
    state = engine.state()
    for name, values in arrays.items():
        state[f"_demons/{name}"][...] = values
    engine.restore(state)


def step_sizes_of(engine: PlainEngine) -> Any:
    """Return the step size of each weight of an engine's first demon."""
    (beta,) = engine.rows("beta")
    return engine.numbers("alpha")[0] * np.exp(beta[0])


class OneDemon:
    """A demon of the plain engine in float64 that learns from the steps of the reference data.

    Feature vectors are given in full, because a tile that is named twice counts twice.
    """

    def __init__(self, entry: str, parameters: dict[str, float], n: int) -> None:
        self.entry = entry
        self.n = n
        self.is_first = True
        rule_parameters = {
            key: value for key, value in parameters.items() if key not in ("alpha", "alpha_w")
        }
        rule_parameters |= {"realised": 1.0} if entry == "intentional_td_realised" else {}
        algorithm = VARIANTS.get(entry, entry)
        trace_rule: Any = rules.rule(algorithm).TRACE_RULE or "plain"
        if entry.startswith("vtrace"):
            trace_rule = "clipped"
        config = LearnerConfig.paper(
            trace_rule=trace_rule, algorithm=algorithm, parameters=rule_parameters, dtype="float64"
        )
        self.engine = PlainEngine(
            ONE, n, parameters.get("alpha", 0.0), parameters.get("alpha_w", 0.0), config
        )

    def phi(self, tiles: NDArray[np.int64]) -> Any:
        return np.bincount(tiles, minlength=self.n).astype(np.float64)

    def learn(self, step: Any) -> None:
        """Take a step; a trace rule changes lambda_{t+1} as the setting already did."""
        if self.is_first:
            self.engine.begin(self.phi(step.tiles_t))
            # of running means
            set_demons(self.engine, gamma_t=step.gamma_t, lam_t=step.lam_t)
            self.is_first = False
        interest = 1.0
        if self.entry == "etd_interest":
            interest = step.interest_t
        numbers = (step.rho, step.gamma_tp1, step.lam_tp1, step.c_tp1, step.z_tp1, step.b)
        self.signals = Signals(*(np.full(1, x) for x in numbers), interest_t=np.full(1, interest))
        self.engine.learn(self.phi(step.tiles_tp1), self.signals)

    @property
    def theta(self) -> Any:
        return self.engine.rows("theta")[0][0]

    @property
    def w(self) -> Any:
        return self.engine.rows("w")[0][0]

    @property
    def step_sizes(self) -> Any:
        return step_sizes_of(self.engine)


@pytest.mark.parametrize(
    "entry", [*(n for n in rules.names() if not rules.rule(n).FINDS_POLICY), *VARIANTS]
)
def test_a_rule_gives_the_known_answers_in_every_setting(entry: str) -> None:
    """Eleven settings of policy, lambda and state-dependent gamma, with episode ends, outcomes and interest."""
    module = golden()
    if entry not in module.PARAMETERS:  # a new rule, whose known answers are in a test of its own
        pytest.skip(f"the reference data has no entry {entry!r}")
    worst = module.check(OneDemon, rules=[entry], tolerance=1e-9)
    assert worst[entry] < 1e-9


# ---- a step size per weight -----------------------------------------------------------------------------------------

N = 30


class SlowAutostep:
    """Autostep for one demon in NumPy, written from its equations: Mahmood et al. (2012), Kearney et al. (2019)."""

    def __init__(self, n: int, alpha: float, meta: float, tau: float) -> None:
        self.step_sizes = np.full(n, alpha)
        self.meta = meta
        self.tau = tau
        self.theta, self.h, self.v, self.e = (np.zeros(n) for _ in range(4))
        self.n_bounded = self.n_negative = 0

    def learn(
        self, phi: Any, phi_tp1: Any, rho: float, decay: float, gamma: float, c: float
    ) -> None:
        """Take a step; `decay` is gamma_t lambda_t of the trace."""
        delta = c + gamma * self.theta @ phi_tp1 - self.theta @ phi
        self.e = rho * (phi + decay * self.e)
        d = phi - gamma * phi_tp1
        m = rho * delta * d * self.h
        pull = self.step_sizes * d * self.e
        self.v = np.maximum(np.abs(m), self.v + pull * (np.abs(m) - self.v) / self.tau)
        changes = np.divide(m, self.v, out=np.zeros_like(m), where=self.v > 0)
        self.step_sizes = self.step_sizes * np.exp(self.meta * changes)
        # Of the error, by this step; negative where phi' has a trace
        removed = self.step_sizes * d * self.e
        if removed.sum() > 1.0:
            self.step_sizes = self.step_sizes / removed.sum()
            self.n_bounded += 1
            self.n_negative += bool((removed < -1e-3).any())
        change = self.step_sizes * delta * self.e
        self.theta = self.theta + change
        self.h = self.h * np.maximum(0.0, 1.0 - self.step_sizes * d * self.e) + change


def test_autostep_gives_the_known_answers_where_its_bound_acts() -> None:
    """With steps so large that the bound acts again and again, also where features of the next state have traces."""
    rng = np.random.default_rng(3)
    n = 12
    gamma = 0.9
    lam = 0.8
    alpha = 0.4
    slow = SlowAutostep(n, alpha, meta=0.05, tau=50.0)
    parameters = {"meta": 0.05, "tau": 50.0}
    config = LearnerConfig.paper(
        algorithm="autostep", parameters=parameters, trace_rule="plain", dtype="float64"
    )
    engine = PlainEngine(ONE, n, alpha, 0.0, config)
    tiles = rng.choice(n, 3, replace=False)
    engine.begin(tiles)
    for _ in range(80):
        tiles_tp1 = rng.choice(n, 3, replace=False)
        rho = float(rng.choice([0.5, 1.0, 2.0]))
        c = float(rng.random())
        numbers = (rho, gamma, lam, c, 0.0, 1.0)
        engine.learn(tiles_tp1, Signals(*(np.full(1, x) for x in numbers)))
        phi, phi_tp1 = (
            np.bincount(active, minlength=n).astype(float) for active in (tiles, tiles_tp1)
        )
        slow.learn(phi, phi_tp1, rho=rho, decay=gamma * lam, gamma=gamma, c=c)
        tiles = tiles_tp1
        np.testing.assert_allclose(step_sizes_of(engine), slow.step_sizes, rtol=1e-10)
        np.testing.assert_allclose(engine.rows("theta", "w")[0][0], slow.theta, rtol=0, atol=1e-11)
    assert min(slow.n_bounded, slow.n_negative) >= 4


# ---- a rule's file is what runs --------------------------------------------------------------------------------------

# Learn a walk by a Horde with the default engine, interpreted, and by the loops of
# examples/gtd_in_one_file.py, once with each mistake in a rule's file; each in a fork, which
# imports the package anew.
COMPARED = """
import json, os, runpy, sys
from pathlib import Path
import numba
import numpy as np

def is_same(path):
    from horde_agent import GVF, Channel, ConstantAction, Horde, LearnerConfig

    example = runpy.run_path(path)
    walk = example["random_walk"](80, np.random.default_rng(1))
    config = LearnerConfig.paper(step_size=0.1, secondary_ratio=0.1, dtype="float64")
    question = GVF("light ahead", ConstantAction(1, 2), Channel(0), continuation=0.9, lam=0.9)
    horde = Horde([question], n_features=example["N_FEATURES"], n_active=example["N_TILINGS"], config=config)
    state = lambda x: (np.array([example["light"](x)]), np.array(example["active_tiles"](x)))
    horde.begin(*state(walk[0].position))
    for step in walk:
        horde.learn(step.action, 0.5, *state(step.next_position))
    weights = zip(horde.weights(), example["learn"](walk))
    return max(np.abs(got[0] - want).max() for got, want in weights) < 1e-12

file = Path(sys.argv[2])
text = file.read_text(encoding="utf-8")
for name, (right, wrong) in json.loads(sys.argv[3]).items():
    assert right in text, right
    file.write_text(text.replace(right, wrong), encoding="utf-8")
    child = os.fork()
    if child == 0:
        print(name, is_same(sys.argv[1]), sep=": ", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
MISTAKES = {
    "none": ("", ""),
    "a step's h": ("(step.gamma * (1.0 - step.lam) * trace.w)", "(step.gamma * trace.w)"),
    "a step's q": ("by_w_rule(span, step.rho, step.w_phi)", "zero"),
    "the sum of past steps": ("d=multiply_add(pending.d, u, sums.d)", "d=sums.d"),
    "the written weights": ("theta_next=-1.0 * pending.h", "theta_next=pending.h"),
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_mistake_in_the_file_of_gtd_is_one_of_the_default_engine(tmp_path: Path) -> None:
    """In a copy of the package: what a reader finds in `gtd.py` is what runs."""
    package = Path(horde_agent.__file__).parent
    shutil.copytree(package, tmp_path / "horde_agent", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "horde_agent" / "kernels" / "rules" / "gtd.py"
    example = package.parent / "examples" / "gtd_in_one_file.py"
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_DISABLE_JIT": "1",
    }
    words = [sys.executable, "-c", COMPARED, str(example), str(file), json.dumps(MISTAKES)]
    process = subprocess.run(
        words,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    expected = [f"{name}: {name == 'none'}" for name in MISTAKES]
    assert process.stdout.splitlines() == expected, process.stderr


# ---- identities and fixed points ------------------------------------------------------------------------------------

ON_POLICY = {"rho": 1.0}
LAMBDA_0 = {"lam": 0.0}
LAMBDA_1 = {"lam": 1.0}
NO_W = {"alpha_w": 0.0}
IDENTITIES: list[tuple[str, dict[str, Any], str, dict[str, Any], dict[str, float]]] = [
    ("td", {"trace_rule": "clipped"}, "vtrace", {}, {}),
    ("td", {"trace_rule": "tree-backup"}, "tree_backup", {}, {}),
    ("td", {"trace_rule": "abtd"}, "abtd", {}, {}),
    ("tree_backup", {}, "vtrace", {}, {"pi": 1.0}),
    ("abtd", {"parameters": {"psi": 1e3}}, "vtrace", {}, LAMBDA_1),
    ("htd", {}, "td", {}, ON_POLICY),
    ("vtrace", {}, "td", {}, ON_POLICY),
    ("gtd", {}, "td", {}, NO_W),
    ("tree_backup", {}, "td", {}, LAMBDA_0),
    ("etd", {}, "td", {}, LAMBDA_1),
    ("gtd", {}, "td", {}, LAMBDA_1),
    ("tdrc", {}, "td", {}, LAMBDA_1),
    ("true_online_td", {}, "td", {}, LAMBDA_0),
    ("true_online_gtd", {}, "gtd", {}, LAMBDA_0),
    ("true_online_gtd", {}, "true_online_td", {}, NO_W),
    ("tdrc", {"parameters": {"beta": 0.0}}, "gtd", {}, {}),
    ("swift_td", {"parameters": {"meta": 0.0, "eta": np.inf}}, "true_online_td", {}, {}),
    ("tidbd", {"parameters": {"meta": 0.0}}, "td", {}, {}),
    ("autostep", {"parameters": {"meta": 0.0}}, "td", {}, {"rho": 0.5}),
    ("intentional_td", {"parameters": {"realised": 1.0}}, "intentional_td", {}, ON_POLICY),
]


@pytest.mark.kernels
@pytest.mark.parametrize(("one", "settings", "other", "other_settings", "where"), IDENTITIES)
def test_rules_are_equal_where_the_algebra_says_so(
    one: str,
    settings: dict[str, Any],
    other: str,
    other_settings: dict[str, Any],
    where: dict[str, float],
) -> None:
    def made(name: str, own: dict[str, Any]) -> PlainEngine:
        settings = {"parameters": {}} | own
        if not rules.rule(name).TRACE_RULE:
            settings = {"trace_rule": "plain"} | settings
        return PlainEngine(ONE, N, 0.02, where.get("alpha_w", 0.03), config_of(name, **settings))

    engines = [made(one, settings), made(other, other_settings)]
    rng = np.random.default_rng(4)
    for engine in engines:
        engine.begin(np.arange(5))
    for _ in range(150):
        b = rng.uniform(0.1, 0.9)
        tiles = rng.choice(N, 5, replace=False)
        pi = 0.0
        if rng.random() < 0.7:
            pi = where.get("pi", rng.uniform())
        rho = where.get("rho", pi / b)
        lam = where.get("lam", rng.choice([0.0, 0.4, 0.9]))
        numbers = (rho, rng.choice([0.0, 0.5, 0.9]), lam, rng.normal(), rng.normal(), b)
        for engine in engines:
            engine.learn(tiles, Signals(*(np.full(1, x) for x in numbers)))
    weights, want = (engine.rows("theta", "w")[0] for engine in engines)
    assert np.abs(want).max() > 1e-3
    np.testing.assert_allclose(weights, want, rtol=0, atol=1e-13)


class SmallMDP:
    """An MDP of the reference data, and the expected update of a rule at lambda 0: a sum over all transitions."""

    def __init__(self, mdp: str, config: LearnerConfig, alpha: float, alpha_w: float) -> None:
        self.reference = golden()
        with np.load(self.reference.FILE) as file:
            self.m = {
                key.split("/", 2)[2]: file[key]
                for key in file.files
                if key.startswith(f"mdp/{mdp}/")
            }
        self.n = self.m["Phi"].shape[1]
        self.has_w = "w" in rules.rule(config.algorithm).vectors
        self.engine = PlainEngine(ONE, self.n, alpha, alpha_w, config)
        self.e = rules.rule(config.algorithm).vectors.index("e")

    def expect_traces(self, backup: str, lam: float) -> Any:
        """Return M_t phi_t and E[z_t | s_t] in each state by the matrices of the reference, each (n_states, n)."""
        m = self.m
        d = self.m["d_b"]
        weight, cut, _ = self.reference.shares(m, backup, lam)
        under = lambda share: np.einsum("sa,ast->st", m["b"] * share, m["P"])  # noqa: E731
        emphasis = np.ones(d.size)
        if backup == "etd":
            emphasis = (
                lam
                + (1 - lam)
                * np.linalg.solve(np.eye(d.size) - m["gamma"][:, None] * under(weight).T, d)
                / d
            )
        source = emphasis[:, None] * m["Phi"]
        z = np.linalg.solve((np.eye(d.size) - under(cut) * m["gamma"]).T, d[:, None] * source)
        return emphasis, source, z / d[:, None]

    def change(
        self, theta: Any, w: Any, lam: float = 0.0, traces: Any = None
    ) -> tuple[Any, Any, Any]:
        """Return the expected changes of theta and w, each (n,), and of the next traces, times d(s'), (n_states, n).

        `traces` are those of `expect_traces`; the trace from before the step is then such that they
        result.
        """
        m = self.m
        engine = self.engine
        total = [np.zeros(self.n), np.zeros(self.n)]
        later = np.zeros(m["Phi"].shape)
        for a, s, s1 in np.argwhere((m["P"] > 0) & (m["b"].T[:, :, None] > 0)):
            engine.reset_weights(theta[None])
            engine.begin(m["Phi"][s].astype(float))
            rho = m["pi"][s, a] / m["b"][s, a]
            vectors = engine.state()["_demons/vectors"]
            if self.has_w:
                vectors[0] = w
            set_demons(engine, vectors=vectors)
            if traces is not None:
                emphasis, source, z = traces
                vectors[self.e, 0] = (z[s] - source[s]) / lam
                set_demons(engine, vectors=vectors, alive=True, gamma_t=1.0, lam_t=lam)
                if engine.config.algorithm == "etd":  # F_t is 1 and what rho gamma F adds
                    numbers = [[(emphasis[s] - lam) / (1 - lam) - 1.0], [1.0]]
                    set_demons(engine, numbers=numbers)
            numbers = (rho, m["gamma"][s1], lam, m["R"][a, s, s1], m["z"][s1], m["b"][s, a])
            engine.learn(
                m["Phi"][s1].astype(float), Signals(*(np.full(1, float(x)) for x in numbers))
            )
            weight = m["d_b"][s] * m["b"][s, a] * m["P"][a, s, s1]
            for sums, before, after in zip(
                total, (theta, w), engine.rows("theta", "w"), strict=True
            ):
                sums += weight * (after[0] - before)
            state = engine.state()
            decay = float(state["_demons/gamma_t"][0] * state["_demons/lam_t"][0])
            later[s1] += weight * decay * engine.rows("e")[0][0]
        return total[0], total[1], later


@pytest.mark.parametrize("name", ["td", "gtd", "gtd2", "tdrc"])
@pytest.mark.parametrize("mdp", ["two", "baird"])
def test_expected_updates_are_those_of_the_matrices(name: str, mdp: str) -> None:
    """Ten expected updates from theta_0 on w -> 2w and on Baird's star, where td diverges."""
    alpha, alpha_w, beta = golden().EXPECTED[name]
    config = config_of(
        name, trace_rule="plain", parameters={"beta": beta} if name == "tdrc" else {}
    )
    small = SmallMDP(mdp, config, alpha, alpha_w)
    theta = small.m["theta_0"].astype(float)
    w = np.zeros(small.n)
    for k in range(10):
        change = small.change(theta, w)
        theta = theta + change[0]
        w = w + change[1]
        if k in (0, 9):
            np.testing.assert_allclose(
                theta, small.m[f"expected/{name}"][1 if k == 0 else 2], rtol=1e-9
            )


@pytest.mark.parametrize("lam", [0.4, 0.9])
@pytest.mark.parametrize(
    ("name", "settings", "entry"),
    [(name, {"trace_rule": "plain"}, "td") for name in ("td", "gtd", "gtd2", "tdrc", "htd")]
    + [(name, {"trace_rule": "clipped"}, "clipped") for name in ("td", "gtd")]
    + [("vtrace", {}, "clipped"), ("vtrace", {"parameters": {"rho_bar": 1.0}}, "vtrace_both")]
    + [("tree_backup", {}, "tree_backup"), ("abtd", {"parameters": {"psi": 1.05}}, "abtd")]
    + [("etd", {"trace_rule": "plain"}, "etd")],
)
def test_fixed_points_with_traces(
    name: str, settings: dict[str, Any], entry: str, lam: float
) -> None:
    """The rule's trace keeps its expectation, and at the fixed point neither theta nor w moves, if w = 0."""
    small = SmallMDP("five", config_of(name, **{"parameters": {}} | settings), 0.01, 0.01)
    theta = small.m[f"{entry}/{lam}/theta"]
    zero = np.zeros(small.n)
    traces = small.expect_traces(entry, lam)
    of_theta, of_w, later = small.change(theta, zero, lam, traces)
    _, source, z = traces
    np.testing.assert_allclose(later / small.m["d_b"][:, None] + source, z, rtol=0, atol=1e-13)
    assert max(np.abs(of_theta).max(), np.abs(of_w).max()) < 1e-14
    elsewhere = small.change(theta + 0.1, zero, lam, traces)
    assert max(np.abs(change).max() for change in elsewhere[:2]) > 1e-5


# ---- invalid input, and several rules in one Horde ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"algorithm": "tdrc", "parameters": {"beta": 11.0}}, r"tdrc.*beta.*\[0, 10\]"),
        ({"algorithm": "tdrc", "parameters": {"beta": float("nan")}}, "tdrc.*beta"),
        ({"algorithm": "td", "parameters": {"beta": 1.0}}, "td.*no parameter 'beta'"),
        ({"algorithm": "vtrace", "parameters": {"rho_bar": 0.5}}, "c_bar.*rho_bar"),
        ({"algorithm": "abtd", "parameters": {"psi": 0.0}}, "psi"),
        ({"algorithm": "gtd", "trace_rule": "abtd", "parameters": {"psi": -1.0}}, "psi"),
        ({"algorithm": "tree_backup", "trace_rule": "plain"}, "tree_backup.*trace_rule"),
        ({"algorithm": "etd", "trace_rule": "capped"}, "etd.*capped"),
        ({"algorithm": "htd", "w_rule": "importance-weighted"}, "htd.*w_rule"),
        ({"algorithm": "intentional_td", "parameters": {"eta": 1.5}}, "eta"),
        ({"algorithm": "swift_td", "engine": "span"}, "swift_td.*engine"),
        ({"trace_rule": "capped", "engine": "span"}, "capped.*engine"),
        ({"step_size": 0.0}, "^step_size must be a positive number, not 0.0"),
        ({"step_size": float("nan")}, "^step_size must be a positive number, not nan"),
        (
            {"secondary_ratio": -1.0},
            "^secondary_ratio must be a number that is not negative, not -1",
        ),
        ({"secondary_ratio": float("nan")}, "^secondary_ratio must be .*, not nan"),
        (
            {"trace_rule": "clip"},
            "unknown trace rule 'clip': choose clipped, capped, plain.*; did you mean 'clipped'",
        ),
        ({"w_rule": "never"}, "unknown w rule 'never': choose every-step"),
        ({"dtype": "float16"}, "unknown dtype 'float16': choose float32, float64"),
        ({"dtype": np.float32}, "unknown dtype <class 'numpy.float32'>: choose float32, float64"),
        ({"mspbe_tau": 1.0}, "mspbe_tau must be above 1 step, not 1.0"),
        ({"check_every": 0}, "check_every must be at least 1 step, not 0"),
        ({"engine": "fast"}, "unknown engine 'fast': choose auto, span, plain"),
        ({"algorithm": "sarsa"}, "algorithm .*gtd.*'sarsa'"),
        (
            {"algorithm": "td", "secondary_ratio": 0.1},
            "'td' has no secondary weights.*secondary_ratio = 0.1.*omit it",
        ),
        ({"algorithm": "td", "w_rule": "importance-weighted"}, "'td' does not support w_rule"),
        (
            {"algorithm": "intentional_td", "step_size": 0.3},
            "step_size = 0.3 has no effect: omit it, or set eta",
        ),
        ({"algorithm": "tdrc:beta=0.1,beta=0.2"}, "'tdrc:beta=0.1,beta=0.2' gives 'beta' twice"),
        (
            {"algorithm": "tdrc:beta=0.1", "parameters": {"beta": 0.1}},
            "parameters gives 'beta' too",
        ),
        ({"algorithm": "tdrc:beta"}, "name=number, not 'beta'"),
        ({"algorithm": "tdrc:"}, "name=number, not ''"),
        ({"algorithm": "sarsa:beta=1"}, "algorithm .*gtd.*'sarsa'"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_by_name(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        LearnerConfig.paper(**settings)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"algorithm": "gtd2", "secondary_ratio": 0.009}, "secondary_ratio"),
        ({"secondary_ratio": 0.0009}, "secondary_ratio"),
        ({"algorithm": "intentional_td", "parameters": {"realised": 1.0}}, "realised"),
        ({}, ""),
        ({"algorithm": "gtd2"}, ""),
        ({"algorithm": "tdrc", "secondary_ratio": 0.001}, ""),
    ],
)
def test_an_unsafe_setting_is_warned_of_once(
    settings: dict[str, Any], word: str, caplog: pytest.LogCaptureFixture
) -> None:
    learning_rules.warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            LearnerConfig.paper(**settings)
    assert [word in record.message for record in caplog.records] == [True] * bool(word)


def test_tdc_is_gtd() -> None:
    assert LearnerConfig.paper(algorithm="tdc") == LearnerConfig.paper()


@pytest.mark.parametrize("written", ["tdrc:beta=0.5", "tdrc:beta=.50", "tdrc: beta = 5e-1"])
def test_a_rule_is_written_alike_in_a_config_and_in_a_question(written: str) -> None:
    """A question by the Horde's own rule has the Horde's step sizes, however its number is written."""
    config = LearnerConfig.paper(algorithm=written, step_size=0.3, secondary_ratio=0.2)
    assert (config.algorithm, config.parameters) == ("tdrc", {"beta": 0.5})
    assert config == LearnerConfig.paper(
        algorithm="tdrc", parameters={"beta": 0.5}, step_size=0.3, secondary_ratio=0.2
    )
    assert learning_rules.config_of(config, written) == config
    assert learning_rules.rules_of(asked([None, "tdrc:beta=0.5", written, "tdc"]), config) == (
        *("tdrc:beta=0.5",) * 3,
        "gtd",
    )


def test_a_parameter_keeps_all_its_digits() -> None:
    """With six digits, 0.1234567 was another rule than the Horde's own, with other step sizes."""
    config = LearnerConfig.paper(algorithm="tdrc:beta=0.1234567", step_size=0.3)
    assert learning_rules.with_parameters(config) == "tdrc:beta=0.1234567"
    assert learning_rules.config_of(config, "tdrc:beta=0.1234567") == config


CHANGES: list[dict[str, Any]] = [
    {"step_size": 0.03},
    {"secondary_ratio": 0.3},
    {"w_rule": "importance-weighted"},
]


WITHOUT_W = [name for name in rules.names() if "w" not in rules.rule(name).vectors]
REFUSED = {
    *((name, "secondary_ratio") for name in WITHOUT_W),
    *((name, "w_rule") for name in (*WITHOUT_W, "greedy_gq", "htd", "qrc", "qrc_2025")),
    *((name, "step_size") for name in ("intentional_td", "intentional_td_rmsprop")),
}


@pytest.mark.kernels
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
@pytest.mark.parametrize("name", rules.names())
def test_a_setting_of_a_rule_changes_what_it_learns_or_is_refused(
    name: str, change: dict[str, Any]
) -> None:
    policy: Any = ConstantAction(0, N_ACTIONS)
    if rules.rule(name).FINDS_POLICY:
        policy = Greedy(N_ACTIONS)
    settings = {"dtype": "float64", "engine": "plain", "algorithm": name}
    usual = new_horde([ask("0", policy)], LearnerConfig.paper(**settings))
    (setting,) = change
    if (name, setting) in REFUSED:
        with pytest.raises(ValueError, match=setting):
            LearnerConfig.paper(**settings, **change)
        return
    changed = new_horde([ask("0", policy)], LearnerConfig.paper(**settings, **change))
    RandomLife(usual, changed).run(60)
    assert np.abs(usual.weights()[0] - changed.weights()[0]).max() > 1e-12


def new_horde(questions: list[GVF], config: LearnerConfig) -> Horde:
    return Horde(questions, n_features=hordes.N, n_active=hordes.N_ACTIVE, config=config)


@pytest.mark.parametrize(
    "settings", [{"algorithm": "tree_backup"}, {"algorithm": "abtd"}, {"trace_rule": "abtd"}]
)
def test_a_trace_cut_by_b_is_refused_for_a_density(settings: dict[str, Any]) -> None:
    """A density may exceed 1, and these data have one discrete action of probability 1: it would be TD(lambda)."""
    gaussian = GVF("real", Gaussian([0.0], [1.0], channels=[1], b=2), Channel(0), 0.8)
    with pytest.raises(ValueError, match=r"question 'real': the trace rule .* density"):
        new_horde([gaussian], LearnerConfig.paper(**settings))
    with pytest.raises(ValueError, match=r"question 'real': the trace rule .* density"):
        new_horde([replace(gaussian, algorithm="tree_backup")], LearnerConfig.paper())
    new_horde([gaussian], LearnerConfig.paper())


@pytest.mark.parametrize("settings", [{"algorithm": "tidbd"}, {"trace_rule": "capped"}])
def test_the_span_engine_refuses_what_only_the_plain_one_can(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="|".join(settings.values())):
        SpanEngine(ONE, N, 0.02, 0.03, LearnerConfig.paper(**settings))


def asked(algorithms: list[str | None], **settings: Any) -> list[GVF]:
    """Return a question for each algorithm, named by its place."""
    policy = ConstantAction(0, N_ACTIONS)
    return [
        ask(str(i), policy, algorithm=algorithm, **settings)
        for i, algorithm in enumerate(algorithms)
    ]


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_each_question_learns_by_its_own_rule(mode: Any) -> None:
    """Demons of four rules learn what they learn in Hordes of one rule each."""
    algorithms = [None, "tdrc", "tdrc:beta=0.5", "tidbd", "tdrc", None]
    mixed = make(asked(algorithms), "auto", mode)
    alone = [make(asked([name]), "auto", mode) for name in algorithms]
    RandomLife(mixed, *alone).run(90)
    for i, horde in enumerate(alone):
        np.testing.assert_allclose(mixed.weights()[0][i], horde.weights()[0][0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(mixed.predictions[i], horde.predictions[0], rtol=0, atol=1e-12)


def test_the_interest_of_a_step_is_that_of_the_state_left() -> None:
    """One step of ETD at gamma 0 from a state of interest 2 to one of interest 0 moves theta by 2 alpha delta."""
    question = ask(
        "q",
        BEHAVIOUR,
        Channel(1),
        0.0,
        algorithm="etd",
        interest=lambda observation, _: observation[0],
    )
    horde = make([question], "plain", algorithm="etd", step_size=0.4)
    tiles = np.arange(hordes.N_ACTIVE)
    horde.begin(np.array([2.0, 0.0]), tiles)
    horde.learn(0, 1.0, np.array([0.0, 3.0]), tiles)
    assert horde.predict(tiles) == pytest.approx(2.0 * 0.4 * 3.0, rel=1e-12)
    horde.learn(0, 1.0, np.array([2.0, 9.0]), tiles)
    assert horde.predict(tiles) == pytest.approx(2.0 * 0.4 * 3.0, rel=1e-12)


@pytest.mark.parametrize("others", [[], ["tdrc"]])
def test_only_the_rule_with_an_endless_trace_changes_to_the_plain_engine(
    others: list[str | None], caplog: pytest.LogCaptureFixture
) -> None:
    """Gamma, a function of the state, and lambda are 1. A Horde restored from before or after continues to the bit."""
    questions = [
        ask("endless", hordes.BEHAVIOUR, continuation=lambda *_: 1.0, lam=1.0),
        *asked(others),
    ]
    horde, twin = (make(questions, step_size=0.001) for _ in range(2))
    life = RandomLife(horde)
    life.run(900)
    span_state = horde.state()
    life.run(300)
    engine_kinds = {name: type(engine) for name, engine in horde.engines.items()}
    assert engine_kinds.pop("gtd") is PlainEngine
    assert PlainEngine not in engine_kinds.values()
    assert caplog.text.count("switching to the slower plain engine") == 1
    life.hordes = (horde, twin)
    for start, steps in ((span_state, 300), (horde.state(), 50), (span_state, 50)):
        twin.restore(start)
        horde.restore(start)
        life.run(steps)
        assert horde.weights_sha256() == twin.weights_sha256()


@pytest.mark.parametrize("others", [[], ["tdrc"]])
def test_a_question_with_a_longer_trace_lengthens_the_history_of_the_span_engine(
    others: list[str | None],
) -> None:
    """Of two streams, in the midst of traces; and a Horde restored from an earlier state stores the shorter one."""
    plain, span = (make(asked([None, *others]), engine) for engine in ("plain", "auto"))
    life = RandomLife(plain, span)
    life.run(60)
    earlier = span.state()
    for horde in life.hordes:
        horde.select_stream(1)
        horde.begin(*life.state)
    life.run(30)
    for horde in life.hordes:
        horde.add([ask("longer", ConstantAction(0, N_ACTIONS), continuation=0.97, lam=1.0)])
    for stream in (0, 1, 0):
        for horde in life.hordes:
            horde.select_stream(stream)
        life.run(700)
    np.testing.assert_allclose(span.weights()[0], plain.weights()[0], rtol=0, atol=1e-11)
    assert not any(isinstance(engine, PlainEngine) for engine in span.engines.values())
    span.remove(["longer"])
    twin = make(asked([None, *others]), "auto")
    life.hordes = (span, twin)
    for horde in life.hordes:
        horde.restore(earlier)
    life.run(200)
    assert span.weights_sha256() == twin.weights_sha256()


def test_the_last_demon_of_a_mixed_horde_keeps_its_interest() -> None:
    """With interest 2 followed by 1 the emphasis, and with it the first step, would be half as large."""
    interested = asked(["etd"], interest=2.0)
    mixed = make([ask("other", algorithm="tdrc"), *interested], "plain")
    alone = make(interested, "plain")
    mixed.remove(["other"])
    RandomLife(mixed, alone).run(40)
    np.testing.assert_allclose(mixed.weights()[0], alone.weights()[0], rtol=0, atol=1e-12)
    assert mixed.weights(np.zeros(0, dtype=np.int64))[0].shape == (0, hordes.N)


@pytest.mark.parametrize(
    ("give", "words"),
    [
        (lambda: make(asked(["sarsa"])), r"question '0': algorithm .*'sarsa'"),
        (lambda: make(asked(["tidbd", None]), "span"), r"question '0': .*tidbd.*engine"),
        (lambda: make(asked([None], interest=2.0)), r"question '0': .*interest"),
        (lambda: asked(["etd"], interest=-1.0), r"question '0': interest"),
    ],
)
def test_a_question_cannot_have_an_unknown_rule_or_an_unused_interest(
    give: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        give()


# ---- rules from other modules ---------------------------------------------------------------------------------------

OWN_RULE = '''
from typing import NamedTuple

from horde_agent.kernels import plain


class half_td:
    """TD(lambda) with a share of its step."""

    RANGES = {"share": "(0, 1]"}

    class Parameters(NamedTuple):
        share: float = SHARE

    @staticmethod
    def learn(rule, i, demons, step):
        e = demons.vectors[0, i]
        delta = plain.td_error(i, demons, step)
        if plain.update_trace(i, demons, e, step, 1.0):
            plain.add_vector(demons.theta[i], rule.share * demons.alpha[i] * delta, e)
        plain.update_estimates(i, demons, step, delta, e, 0.0)


class no_rule:
    pass


class without_default:
    class Parameters(NamedTuple):
        share: float

    learn = half_td.learn


number = 1
'''


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder the current one; rules and modules that are imported from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("own_rule", "broken_rule", "leaving_rule", "huber_rules", "huber_rules.huber_td"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    rules.rule.cache_clear()
    return tmp_path


def write_own_rule(folder: Path, share: float) -> None:
    (folder / "own_rule.py").write_text(OWN_RULE.replace("SHARE", str(share)))


def learned(algorithm: str, engine: str = "auto", mode: Any = "eager", **settings: Any) -> Any:
    """Return the weights of two demons after 200 steps with gaps."""
    questions = [ask("forward", ConstantAction(0, N_ACTIONS)), ask("off", cumulant=Channel(1))]
    horde = make(questions, engine, mode, algorithm=algorithm, **settings)
    RandomLife(horde, p_break=0.02).run(200)
    return horde.weights()[0]


def test_a_rule_of_another_module_learns_and_kernels_notice_its_content(own_folder: Path) -> None:
    """With a share of .5 it is `td` with half of the step size; then the file says .25."""
    for share in (0.5, 0.25):
        write_own_rule(own_folder, share)
        sys.modules.pop("own_rule", None)
        rules.rule.cache_clear()
        half = learned("own_rule:half_td", step_size=0.2)
        np.testing.assert_allclose(half, learned("td", "plain", step_size=0.2 * share), atol=1e-13)
    whole = learned("own_rule:half_td:share=1", step_size=0.2)
    np.testing.assert_allclose(whole, learned("td", "plain", step_size=0.2), atol=1e-13)
    with pytest.raises(ValueError, match=r"parameter share must be in \(0, 1\], not 2"):
        LearnerConfig.paper(algorithm="own_rule:half_td:share=2")


def test_a_kernels_parameters_can_be_read_where_their_module_is_not(own_folder: Path) -> None:
    """Numba's cache refers to the class by its name; another process takes an empty class for it."""
    write_own_rule(own_folder, 0.5)
    kind = rules.rule("own_rule:half_td").parameters
    assert pickle.loads(pickle.dumps(kind)) is kind
    elsewhere = f"import pickle; kind = pickle.loads({pickle.dumps(kind)!r}); print(kind._fields)"
    result = subprocess.run(
        [sys.executable, "-c", elsewhere], capture_output=True, text=True, check=True, cwd="/"
    )
    assert result.stdout == "()\n"


@pytest.mark.parametrize(("engine", "mode"), [*hordes.ENGINES, ("auto", "eager")])
def test_the_rule_of_the_examples_learns_the_same_on_both_engines(
    engine: str, mode: str, own_folder: Path
) -> None:
    """With a limit that no error reaches it is `td`; with .3 it is not."""
    (own_folder / "huber_rules").symlink_to(Path(__file__).parents[2] / "examples" / "my_rules")
    settings: Any = {"step_size": 0.4}
    limited = learned("huber_rules:huber_td:limit=0.3", engine, mode, **settings)
    want = learned("huber_rules:huber_td:limit=0.3", "plain", **settings)
    np.testing.assert_allclose(limited, want, rtol=0, atol=1e-12)
    td = learned("td", "plain", **settings)
    assert np.abs(limited - td).max() > 0.1
    np.testing.assert_allclose(
        learned("huber_rules:huber_td:limit=1e6", engine, mode, **settings), td, rtol=0, atol=1e-12
    )


MISSING: list[tuple[str, str]] = [
    ("nowhere:half_td", "there is no module 'nowhere', neither installed nor in .*: start in its"),
    ("own_rule:nothing", "the module 'own_rule' has no 'nothing'"),
    ("own_rule:no_rule", "is no update rule: 'no_rule' must be a class, or a module, with a ker"),
    ("own_rule:number", "is no update rule"),
    ("own_rule:without_default", "its parameter 'share' needs a default"),
    ("own_rule:half_td:size=1", "has no parameter 'size': it has share"),
    ("broken_rule:a", "importing the module 'broken_rule' failed with NameError: name 'oh' is no"),
    ("leaving_rule:a", "importing the module 'leaving_rule' failed with SystemExit: 0"),
]


@pytest.mark.parametrize(("algorithm", "sentence"), MISSING)
def test_what_is_no_rule_is_refused_in_a_sentence(
    algorithm: str, sentence: str, own_folder: Path
) -> None:
    write_own_rule(own_folder, 0.5)
    (own_folder / "broken_rule.py").write_text("oh")
    (own_folder / "leaving_rule.py").write_text("raise SystemExit(0)")
    with pytest.raises(ValueError, match=sentence) as refusal:
        LearnerConfig.paper(algorithm=algorithm)
    assert "\n" not in str(refusal.value)


def test_a_run_records_the_rule_of_another_module_and_resumes_with_it(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # On one thread, whose kernel compiles in a fifth of the time
    monkeypatch.setattr(plain, "SMALLEST_SHARED_WORK", 10**9)
    write_own_rule(own_folder, 0.5)
    begin = "learn --steps 60 --questions policies --algorithm own_rule:half_td --out r"
    assert toy(begin, monkeypatch) == 0
    assert 'algorithm = "own_rule:half_td"\n' in (own_folder / "r" / "config.toml").read_text()
    assert toy("resume r --steps 90", monkeypatch) == 0
    assert summary_of("r")["steps"] == 90
    (own_folder / "own_rule.py").unlink()
    sys.modules.pop("own_rule")
    rules.rule.cache_clear()
    assert "there is no module 'own_rule'" in refused(["resume", "r", "--steps", "120"], capsys)
