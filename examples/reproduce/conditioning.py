"""Experiment `conditioning`: predict the US after a gap, from the present stimuli, from traces, and from predictions.

Weights are learned on one stream and scored, fixed, on another. Weights that change are a memory
themselves: after a CS the bias weight drifts step by step.

Source: Rafiee et al. (2023): presence, microstimuli, Adam. They feed no predictions back; that is a
question of ours. Published errors could not be read: a claim is the shape of a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from examples.reproduce.checks import Measured, Number, at_least, at_most, below, check, numbers
from examples.reproduce.experiment import ExperimentContext, Table
from examples.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from examples.reproduce.runner import Job
from examples.reproduce.scores import nmsre_at_rest
from examples.reproduce.stats import format_means, join, mean_ci
from horde_agent.interface import Interface
from horde_agent.kernels._jit import inner_kernel, kernel
from horde_agent.kernels.plain import Demons, Phi, Step, dot
from horde_agent.kernels.rules import learn as update
from horde_agent.kernels.tiles import Tilings, encode
from horde_agent.kernels.vectors import pack
from horde_agent.learning.plain import new_demons
from horde_agent.learning.rules import LearnerConfig
from horde_agent.problems.conditioning import (
    CS_STEPS,
    US_STEPS,
    Conditioning,
    Patterning,
    Signals,
    TraceConditioning,
)
from horde_agent.scoring.returns import returns_along
from horde_agent.types import Floats, Integers, Tiles

TITLE = "Classical conditioning: memory by traces and by predictions fed back"
SHORT = 10
LONG = 30
"""Mean intervals between CS and US, m; gamma = 1 - 1/m."""
LAM = 0.9
PATTERNING_GAMMA = 0.75
N_DISTRACTORS = 10
WITH_DISTRACTORS = " and distractors"
TUNED_ON = (100, 101, 102)
"""Seeds that are not judged."""
OTHER_STREAM = 1_000
"""Added to a seed for the stream of the unrelated predictions."""
BEFORE_CS = 5


CONFIG = LearnerConfig.paper(
    algorithm="td", trace_rule="plain", dtype="float64", vector_mspbe=False
)
"""Rule of all learners, with lambda as `LAM`."""


class StepSignals(NamedTuple):
    """Signals of D demons in a step, as in `kernels.plain.Step`, each of shape (D,)."""

    rho: Floats
    gamma: Floats
    lam: Floats
    c: Floats
    z: Floats
    interest: Floats


class ConditioningSize(NamedTuple):
    """Steps learned from and scored, and the number of seeds."""

    learned: int
    scored: int
    seeds: int


SIZES = {
    "paper": ConditioningSize(200_000, 100_000, 10),
    "quick": ConditioningSize(12_000, 6_000, 1),
}

# ---- hand-made representations, real-valued, with Adam ---------------------------------------------------------------


class Representation(NamedTuple):
    """Real-valued features in addition to a bias and the stimuli."""

    decays: tuple[float, ...] = ()  # of traces that are 1 at the onset of a stimulus
    n_bases: int = 0  # radial bases, at 1/n, 2/n, ..., 1, of a trace that decays by gamma^2


BASE_WIDTH = 0.08
PRESENCE = "presence"
MICRO = "microstimuli"
TRACES = "onset traces"
SHORT_TRACES = "onset traces .5 and .8"
REPRESENTATIONS = {
    PRESENCE: Representation(),
    MICRO: Representation((), 16),
    TRACES: Representation((0.5, 0.8, 0.9, 0.95)),
    SHORT_TRACES: Representation((0.5, 0.8)),
}
ADAM_STEP = 0.001  # .0005, .001 and .01 were tried on the seeds `TUNED_ON`
ADAM_M = 0.9
ADAM_V = 0.999
ADAM_EPSILON = 1e-8
PIECE = 10_000  # steps whose features are computed at a time


def steps_since_onset(signals: Signals) -> Floats:
    """Return the steps since each stimulus last began, infinite before that; both of shape (n_steps, n_stimuli)."""
    begins = np.diff(signals, axis=0, prepend=0.0) > 0
    place = np.arange(len(signals), dtype=np.float64)[:, np.newaxis]
    return np.asarray(place - np.maximum.accumulate(np.where(begins, place, -np.inf)))


def features_of(signals: Signals, since: Floats, of: Representation, gamma: float) -> Floats:
    """Return a bias, the stimuli and their traces, shape (n_steps, n_features).

    `signals` are the stimuli, and `since` is `steps_since_onset` of the whole stream at the same
    steps, both of shape (n_steps, n_stimuli).
    """
    parts: list[Floats] = [np.ones((len(signals), 1)), signals.astype(np.float64)]
    parts += [decay**since for decay in of.decays]
    centres = np.arange(1, of.n_bases + 1) / max(of.n_bases, 1)
    trace = gamma ** (2.0 * since)
    parts += [np.exp(-((trace - centre) ** 2) / (2.0 * BASE_WIDTH**2)) for centre in centres]
    return np.hstack(parts)


class Adam(NamedTuple):
    """Moments of the updates of n weights."""

    m: Floats  # mean of the updates, shape (n,)
    v: Floats  # mean of their squares, shape (n,)
    powers: Floats  # (2,): the products of `ADAM_M` and of `ADAM_V` so far


class AdamLearner:
    """TD(lambda) with Adam's step sizes over n real-valued features, which reads a stream in pieces.

    Source: Rafiee et al. (2023), their program; Kingma & Ba (2015).
    """

    def __init__(self, n: int, gamma: float, step_size: float) -> None:
        self._step_size = step_size
        self._demons = new_demons(CONFIG, 1, n)  # alpha is 0: Adam moves the weights
        self._signals = constant_signals(np.array([gamma]))
        self._adam = Adam(np.zeros(n), np.zeros(n), np.ones(2))
        self._index = np.arange(n)

    @property
    def theta(self) -> Floats:
        """The weights, shape (n,)."""
        return np.asarray(self._demons.theta[0])

    def learn(self, phi: Floats, cumulant: Floats) -> None:
        """Learn from features, (n_steps, n), and the cumulants on reaching each step, (n_steps,).

        The first cumulant is not used. The first features of a piece are the last of the one before.
        """
        _learn_by_adam(
            CONFIG.rule_parameters,
            phi,
            cumulant,
            self._index,
            self._step_size,
            pack(self._demons),
            self._signals,
            self._adam,
        )


def constant_signals(gamma: Floats) -> StepSignals:
    """Return the signals of on-policy learning at constant gammas, shape (D,), and `LAM`; cumulants are 0."""
    return StepSignals(
        rho=np.ones(gamma.shape),
        gamma=gamma.copy(),
        lam=np.full(gamma.shape, LAM),
        c=np.zeros(gamma.shape),
        z=np.zeros(gamma.shape),
        interest=np.ones(gamma.shape),
    )


@kernel
def _learn_by_adam(
    parameters: Any,
    phi: Floats,
    cumulant: Floats,
    index: Integers,
    step_size: float,
    demons: Demons,
    signals: StepSignals,
    adam: Adam,
) -> None:
    """Learn from features, (n_steps, n), and cumulants, (n_steps,), in place; `index` is 0, 1, ..., n - 1."""
    # Two kernels, because an inner one counts no references to the arrays of its tuples.
    _adam_all(parameters, phi, cumulant, index, step_size, demons, signals, adam)


@inner_kernel
def _adam_all(
    parameters: Any,
    phi: Floats,
    cumulant: Floats,
    index: Integers,
    step_size: float,
    demons: Demons,
    signals: StepSignals,
    adam: Adam,
) -> None:
    theta = demons.theta[0]
    e = demons.vectors[0, 0]
    m, v, powers = adam
    for t in range(1, phi.shape[0]):
        signals.c[0] = cumulant[t]
        update(parameters, 0, demons, step_of(Phi(index, phi[t - 1]), Phi(index, phi[t]), signals))
        delta = demons.td_error[0]
        powers[0] *= ADAM_M
        powers[1] *= ADAM_V
        for k in range(theta.shape[0]):
            g = delta * e[k]
            m[k] = ADAM_M * m[k] + (1.0 - ADAM_M) * g
            v[k] = ADAM_V * v[k] + (1.0 - ADAM_V) * g * g
            theta[k] += (
                step_size
                * (m[k] / (1.0 - powers[0]))
                / (np.sqrt(v[k] / (1.0 - powers[1])) + ADAM_EPSILON)
            )


@inner_kernel
def step_of(phi_t: Phi, phi_tp1: Phi, signals: StepSignals) -> Step:
    """Return a transition of the only action."""
    return Step(
        phi_t,
        phi_tp1,
        0,
        1.0,
        signals.rho,
        signals.gamma,
        signals.lam,
        signals.c,
        signals.z,
        signals.interest,
    )


def predict_by_hand(streams: Streams, of: Representation, gamma: float) -> Floats:
    """Learn the US from one stream and return the predictions along another with fixed weights, shape (n_steps,)."""
    learned, scored = streams
    n = 1 + learned.shape[1] * (1 + len(of.decays) + of.n_bases)
    learner = AdamLearner(n, gamma, ADAM_STEP)
    n_steps_since = steps_since_onset(learned)
    us = learned[:, 0].astype(np.float64)
    for first in range(0, len(learned), PIECE):
        piece = slice(max(first - 1, 0), first + PIECE)
        learner.learn(features_of(learned[piece], n_steps_since[piece], of, gamma), us[piece])
    n_steps_since = steps_since_onset(scored)
    predictions = []
    for first in range(0, len(scored), PIECE):
        piece = slice(first, first + PIECE)
        features = features_of(scored[piece], n_steps_since[piece], of, gamma)
        predictions.append(features @ learner.theta)
    return np.concatenate(predictions)


# ---- predictions fed back, in tiles, with constant steps ------------------------------------------------------------

GAMMAS = (0.0, 0.8, 1.0 - 1.0 / SHORT, 1.0 - 1.0 / LONG)
"""Discounts of the demons about the US, and of those about the CS."""
CHANNEL = np.repeat([0, 1], len(GAMMAS))
GAMMA = np.tile(GAMMAS, 2)
LARGEST: Floats = np.array(
    [sum(g**k for k in range(n)) for n in (US_STEPS, CS_STEPS) for g in GAMMAS]
)
"""Each demon's return at the onset of its stimulus: the prediction that is coded as 1."""
TILINGS = {"intervals": [8], "tilings": 8}
ALONE = "presence alone"
CLOSED = "loop closed"
OPEN = "loop open"
FOREIGN = "predictions of another stream"
LOOPS = (ALONE, CLOSED, OPEN, FOREIGN)
"""What the tiles code in addition to the stimuli: nothing; the demons' own last predictions; those of demons that see
only the stimuli; those of a closed loop in another stream."""
STEP_SIZE = 0.01
"""alpha times active features; .01 and .03 were tried for each on the seeds `TUNED_ON`."""


class LoopInputs(NamedTuple):
    """What D demons in tiles read, and arrays that a step is computed in."""

    largest: Floats  # the prediction that is coded as 1, shape (D,)
    channel: Tiles  # the cumulant, shape (D,)
    coded: Floats  # input of the tile coder, shape (n_inputs,)
    tiles_t: Tiles  # active tiles of the step before, the bias last, shape (n_active,)
    tiles_tp1: Tiles  # active tiles of this step
    ones: Floats  # values of active tiles, shape (n_active,)


@kernel
def _run_loop(
    parameters: Any,
    stimuli: Signals,
    fed: Floats,
    made: Floats,
    tilings: Tilings,
    learns: bool,
    is_closed: bool,
    demons: Demons,
    signals: StepSignals,
    inputs: LoopInputs,
) -> None:
    """Predict, and learn by TD(lambda), along a stream; the prediction made at step t is an input of step t + 1.

    Args:
        parameters: Of the rule.
        stimuli: The stream, shape (n_steps, n_stimuli).
        fed: Predictions as the tile coder reads them, in [0, 1], shape (n_steps, D), or (n_steps,
            0) for none.
        made: Receives the predictions, shape (n_steps, D).
        tilings: Of the stimuli, followed by those of `fed`.
        learns: False to predict with fixed weights.
        is_closed: Whether `fed` are the demons' own predictions, and written here.
        demons: Changed in place.
        signals: Of the demons; the cumulants are written here.
        inputs: Of the demons.
    """
    _run_loop_all(
        parameters, stimuli, fed, made, tilings, learns, is_closed, demons, signals, inputs
    )


@inner_kernel
def _run_loop_all(
    parameters: Any,
    stimuli: Signals,
    fed: Floats,
    made: Floats,
    tilings: Tilings,
    learns: bool,
    is_closed: bool,
    demons: Demons,
    signals: StepSignals,
    inputs: LoopInputs,
) -> None:
    n_stimuli = stimuli.shape[1]
    phi_t = Phi(inputs.tiles_t, inputs.ones)
    phi_tp1 = Phi(inputs.tiles_tp1, inputs.ones)
    for t in range(stimuli.shape[0]):
        for k in range(n_stimuli):
            inputs.coded[k] = stimuli[t, k]
        for k in range(fed.shape[1]):
            inputs.coded[n_stimuli + k] = fed[t, k]
        encode(inputs.coded, tilings, inputs.tiles_tp1)
        for i in range(demons.theta.shape[0]):
            if t > 0 and learns:
                signals.c[i] = stimuli[t, inputs.channel[i]]
                update(parameters, i, demons, step_of(phi_t, phi_tp1, signals))
            made[t, i] = dot(demons.theta[i], phi_tp1)
            if is_closed and t + 1 < stimuli.shape[0]:
                fed[t + 1, i] = min(max(made[t, i] / inputs.largest[i], 0.0), 1.0)
        for k in range(inputs.tiles_t.shape[0]):
            inputs.tiles_t[k] = inputs.tiles_tp1[k]


class Streams(NamedTuple):
    """Stimuli, each (n_steps, n_stimuli)."""

    learned: Signals
    scored: Signals


class Predictions(NamedTuple):
    """The predictions along both streams, each (n_steps, D)."""

    learned: Floats
    scored: Floats


def predict(
    env: Conditioning, streams: Streams, variant: str, others: Predictions | None = None
) -> Predictions:
    """Learn along one stream of an environment and predict along another with fixed weights, by one of `LOOPS`.

    `others` are the predictions that are coded with the loop open, made one step before.
    """
    coder = Interface.of(env).coder
    n = len(GAMMA)
    if variant != ALONE:
        coder = coder.extended([{"group": "fed back", **TILINGS}], ["fed back"] * n)
    demons = new_demons(CONFIG, n, coder.n_features)
    demons.alpha[:] = STEP_SIZE / coder.n_active
    inputs = LoopInputs(
        largest=LARGEST,
        channel=CHANNEL,
        coded=np.zeros(coder.n_inputs),
        tiles_t=np.zeros(coder.n_active, dtype=np.int64),
        tiles_tp1=np.full(coder.n_active, coder.n_features - 1, dtype=np.int64),
        ones=np.ones(coder.n_active),
    )
    n_fed = n
    if variant == ALONE:
        n_fed = 0
    predictions = Predictions(*(np.zeros((len(stream), n)) for stream in streams))
    for k, learns in enumerate((True, False)):
        fed = np.zeros((len(streams[k]), n_fed))
        if others is not None:
            fed[1:] = np.clip(others[k][:-1] / LARGEST, 0.0, 1.0)
        _run_loop(
            CONFIG.rule_parameters,
            streams[k],
            fed,
            predictions[k],
            coder.tilings,
            learns,
            variant == CLOSED,
            pack(demons),
            constant_signals(GAMMA),
            inputs,
        )
    return predictions


def draw_streams(env: Conditioning, seed: int, size: ConditioningSize) -> Streams:
    """Return independent streams of an environment to learn from and to score."""
    rng = np.random.default_rng(seed)
    learned = env.stream(rng, size.learned)
    return Streams(learned, env.stream(rng, size.scored))


def predict_by_loops(
    isi: int, seed: int, streams: Streams, size: ConditioningSize
) -> dict[str, Floats]:
    """Return the predictions of the US along the scored stream, shape (n_steps,), of each of `LOOPS`."""
    env = TraceConditioning(isi)
    elsewhere = predict(env, draw_streams(env, seed + OTHER_STREAM, size), CLOSED)
    predictions = {name: predict(env, streams, name) for name in (ALONE, CLOSED)}
    predictions |= {
        OPEN: predict(env, streams, OPEN, predictions[ALONE]),
        FOREIGN: predict(env, streams, FOREIGN, elsewhere),
    }
    return {
        name: of_streams.scored[:, GAMMAS.index(1.0 - 1.0 / isi)]
        for name, of_streams in predictions.items()
    }


def mean_around_cs(values: Floats, signals: Signals, isi: int) -> Floats:
    """Return the mean over the trials of values, (n,), by the steps after the onset of the CS, shape (5 + 2 m,).

    It begins `BEFORE_CS` steps before it.
    """
    onsets = np.flatnonzero(np.diff(signals[:, 1], prepend=0.0) > 0)
    places = onsets[:, np.newaxis] + np.arange(-BEFORE_CS, 2 * isi)
    return np.asarray(
        values[places[(places[:, 0] >= 0) & (places[:, -1] < len(values))]].mean(axis=0)
    )


def score(
    isi: int, seed: int, size: ConditioningSize
) -> tuple[dict[str, float], dict[str, Floats]]:
    """Measure everything that learns trace conditioning; or, at isi 0, the hand-made features in noisy patterning.

    Returns:
        Mean squared errors over the variance of the returns by name; `mean_around_cs` of
        predictions and of the return.
    """
    gamma = PATTERNING_GAMMA
    if isi:
        gamma = 1.0 - 1.0 / isi
    errors = {}
    around_cs = {}
    envs: dict[str, Conditioning] = {"": Patterning(task=seed)}
    if isi:
        envs = {"": TraceConditioning(isi), WITH_DISTRACTORS: TraceConditioning(isi, N_DISTRACTORS)}
    for ending, env in envs.items():
        streams = draw_streams(env, seed, size)
        # The end of the stream cuts off the last returns.
        actual = returns_along(streams.scored[:, 0].astype(np.float64), gamma)[
            : -round(10 / (1 - gamma))
        ]
        predictions = {
            name: predict_by_hand(streams, of, gamma) for name, of in REPRESENTATIONS.items()
        }
        if isi and not ending:
            predictions |= predict_by_loops(isi, seed, streams, size)
            shown = predictions | {"return": actual}
            around_cs = {name: mean_around_cs(y, streams.scored, isi) for name, y in shown.items()}
        for name, y in predictions.items():
            errors[name + ending] = float(nmsre_at_rest(y[: len(actual)], actual, actual.var()))
    return errors, around_cs


class ConditioningErrors(NamedTuple):
    """The measurements."""

    # Error over variance in trace conditioning, by mean interval and name, per seed
    gap: dict[int, dict[str, Floats]]
    patterning: dict[str, Floats]  # the same in noisy patterning, by name
    # `mean_around_cs` in the first seed by mean interval and name
    around_cs: dict[int, dict[str, Floats]]


def run(context: ExperimentContext) -> tuple[ConditioningErrors, dict[str, object]]:
    """Learn and score everything for each seed."""
    size = SIZES[context.scale]
    seeds = context.at_least(size.seeds)
    costs = {SHORT: 8.0, LONG: 8.0, 0: 1.0}  # 0: noisy patterning
    results = context.in_parallel(
        {
            (m, s): Job(f"m {m}, seed {s}", score, (m, s, size), cost)
            for m, cost in costs.items()
            for s in seeds
        }
    )
    errors = {
        m: {name: np.array([results[m, s][0][name] for s in seeds]) for name in results[m, 0][0]}
        for m in costs
    }
    return ConditioningErrors(
        errors, errors.pop(0), {m: results[m, 0][1] for m in (SHORT, LONG)}
    ), {
        "seeds": seeds,
        "step sizes tried on seeds": TUNED_ON,
        "step sizes": "; ".join(
            [f"{name}: Adam, {ADAM_STEP:g}" for name in REPRESENTATIONS]
            + [f"{name}: {STEP_SIZE:g} / active tiles" for name in LOOPS]
        ),
        "steps learned from": size.learned,
        "steps scored": size.scored,
        "lambda": LAM,
        "gamma": "1 - 1/m; noisy patterning .75",
        "a prediction fed back": "8 tilings of 8",
        "fed back": f"US and CS at gamma {join(GAMMAS, '.3g')}",
    }


# ---- checks ---------------------------------------------------------------------------------------------------------


def _by_gap(data: ConditioningErrors, *names: str, ending: str = "") -> dict[str, Floats]:
    """Return the errors by name and interval, one per seed."""
    return {f"{name}, m {m}": data.gap[m][name + ending] for name in names for m in data.gap}


@check(
    claim="The present stimuli alone cannot bridge the gap between CS and US.",
    paper="representations without memory fail; no figure could be read",
    source="Rafiee et al. (2023)",
    terms="Error over variance:",
    limit=at_least(0.8),
)
def _presence_cannot_bridge_the_gap(data: ConditioningErrors) -> Mapping[str, ArrayLike]:
    return _by_gap(data, PRESENCE)


@check(
    claim="Hand-made traces bridge it.",
    paper="hand-made traces are the baselines",
    source="Rafiee et al. (2023)",
    terms="Error over variance:",
    limit=at_most(0.35),
)
def _traces_bridge_the_gap(data: ConditioningErrors) -> Mapping[str, ArrayLike]:
    return _by_gap(data, MICRO, TRACES)


@check(
    claim="A short memory fails on long gaps.",
    paper="the shape only",
    source="Rafiee et al. (2023)",
    terms="With the traces .5 and .8 alone:",
)
def _short_traces_fail_on_long_gaps(data: ConditioningErrors) -> Measured:
    errors = _by_gap(data, SHORT_TRACES)
    short, long = (of_seeds.mean() for of_seeds in errors.values())
    ratio = Number(f"mean error at m {LONG} over m {SHORT}", long / short, at_least(1.5))
    return Measured([ratio], f"{format_means(errors)}.")


@check(
    claim="Predictions fed back are a memory.",
    paper="nothing: the authors' representations use no predictions",
    source="a question of ours",
    terms=f"Error at m {SHORT}:",
)
def _predictions_are_a_memory(data: ConditioningErrors) -> Measured:
    gaps = data.gap[SHORT]
    alone = data.gap[SHORT][ALONE]
    is_less = gaps[CLOSED] <= 0.6 * alone
    controls = {
        f"mean of {name} over {ALONE}": gaps[name].mean() / alone.mean() for name in (OPEN, FOREIGN)
    }
    share = f"share of seeds with {CLOSED} at most .6 of {ALONE}"
    return Measured(
        [Number(share, is_less.mean(), at_least(0.8), ".0%"), *numbers(controls, at_least(0.85))],
        f"{format_means(_by_gap(data, *LOOPS))}.",
    )


@check(
    claim="Distractors cost little with traces.",
    paper="the shape only",
    source="Rafiee et al. (2023)",
    terms=f"Mean error with {N_DISTRACTORS} distractors over that without:",
    limit=below(1.5),
)
def _distractors_cost_little(data: ConditioningErrors) -> Mapping[str, ArrayLike]:
    without = _by_gap(data, MICRO, TRACES)
    having = _by_gap(data, MICRO, TRACES, ending=WITH_DISTRACTORS)
    return {name: having[name].mean() / without[name].mean() for name in without}


REMARKS = [
    "A simulated stream, as in the paper. The interval between CS and US is m on average, and varies by a third.",
    "Weights are fixed before scoring, since weights that change are a memory of their own.",
]


# ---- figure and tables ----------------------------------------------------------------------------------------------

_SHOWN = {PRESENCE: COLOURS[0], MICRO: COLOURS[2], CLOSED: COLOURS[1]}
_BARS = (
    PRESENCE,
    MICRO,
    TRACES,
    ALONE,
    CLOSED,
    OPEN,
    FOREIGN,
)


def pictures(data: ConditioningErrors) -> dict[str, Picture]:
    """Draw the mean predictions around the CS, and every representation's error."""
    canvas, panels = new_canvas(13.0, 3.8, 3)
    y = np.arange(len(_BARS))
    bars = panels[-1]
    for k, (m, axes) in enumerate(zip((SHORT, LONG), panels, strict=False)):
        curves = data.around_cs[m]
        t = np.arange(len(curves["return"])) - BEFORE_CS
        axes.plot(t, curves["return"], color="black", linewidth=2.0, label="return")
        for name, colour in _SHOWN.items():
            axes.plot(t, curves[name], color=colour, linewidth=1.3, label=name)
        axes.axvline(0, color="0.7", linewidth=0.9, linestyle=":")
        style_axes(
            axes, f"US about {m} steps after the CS", legend=k == 0, xlabel="steps since the CS"
        )
        means, half_widths = np.transpose([mean_ci(data.gap[m][name]) for name in _BARS])
        bars.barh(
            y + 0.38 * k,
            means,
            0.36,
            color=COLOURS[3 + k],
            xerr=np.nan_to_num(half_widths),
            label=f"m {m}",
        )
    panels[0].set_ylabel("prediction of the US")
    bars.set_yticks(y + 0.19, _BARS, fontsize=8)
    bars.invert_yaxis()
    style_axes(bars, legend=True, xlabel="error / variance")
    caption = (
        "Left and middle: mean return of the US and mean predictions by the time since the onset of the CS, with "
        "fixed weights on a fresh stream of the first seed. Right: mean squared error over the variance of the "
        "return, means over the seeds with 95 % intervals; the first three learn with Adam, the others with "
        "constant steps."
    )
    return {"conditioning": Picture(canvas, caption)}


def tables(data: ConditioningErrors) -> list[Table]:
    """Return the errors of all representations in trace conditioning and in noisy patterning."""
    rows = []
    for name in data.gap[SHORT]:
        kind = "Adam (the authors')"
        if name in LOOPS:
            kind = "constant steps (the Horde's)"
        errors = {f"m {m}": mean_ci(of_seeds[name]) for m, of_seeds in data.gap.items()}
        rows.append({"features": name, "TD(.9) with": kind, **errors})
    note = (
        "Mean squared error over the variance of the return, on a fresh stream with fixed weights; means over the "
        "seeds with 95 % intervals. Loop open: predictions of demons that see only the stimuli."
    )
    not_judged = (
        "Four CS, two patterns (sizes of ours). Not judged: a linear prediction from single stimuli, present or "
        "past, cannot distinguish a pattern from its parts."
    )
    patterning = [
        {"features": name, "error": mean_ci(of_seeds)} for name, of_seeds in data.patterning.items()
    ]
    return [
        Table.of("Trace conditioning: error over variance", rows, note),
        Table.of("Noisy patterning: error over variance", patterning, not_judged),
    ]
