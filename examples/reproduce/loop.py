"""Experiment `loop`: predictions of the step before as features, as the first figure of the paper draws them.

On the robot: how long is it since the wall was touched? A channel with that time is added to the
observation. The tile coder does not read it; it is only a cumulant. The sensor readings are the
same whether the robot turned from a wall a moment ago or was never there. In two small worlds:
answers that are known.

Source: White, Modayil & Sutton (2012), section 3 and figure 1; Sutton & Tanner (2005), TD networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from examples.reproduce.checks import Measured, Number, above, at_least, below, check
from examples.reproduce.experiment import ExperimentContext, Table, cached
from examples.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from examples.reproduce.lives import LifeSpec, interface_of, new_horde, simulate_lives
from examples.reproduce.runner import Job
from examples.reproduce.scores import nmsre_at_rest
from examples.reproduce.stats import mean_ci
from horde_agent.gvf import GVF, Channel, Prediction
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import ChannelInfo, Interface, Scaler
from horde_agent.life.flags import are_broken, are_followed
from horde_agent.life.learner import StreamLearner, predict_along, relearn
from horde_agent.policies import Behaviour, PolicyFunction
from horde_agent.record import Stream, new_rows, read
from horde_agent.scoring.returns import returns_along
from horde_agent.tiles import TileCoder
from horde_agent.types import Bools, Floats

Tables = Sequence[Mapping[str, Any]]

# ---- the cycle world ------------------------------------------------------------------------------------------------

RING = 6
RING_GAMMA = 0.8
FED_BACK: Tables = ({"questions": ["*"], "intervals": [8], "tilings": 8},)


class Ring(NamedTuple):
    """The final predictions in the cycle world, each of shape (6,)."""

    looped: Floats
    without: Floats
    without_trace: Floats


def ring_values() -> Floats:
    """Return gamma^(5 - s) / (1 - gamma^6) for each state s of the ring: the bit is seen 6 - s steps ahead."""
    return np.asarray(RING_GAMMA ** (RING - 1 - np.arange(RING)) / (1 - RING_GAMMA**RING))


def best_without_memory() -> float:
    """Return the least root mean squared error in the ring of a predictor that sees only the bit.

    It gives one value to the five states in which the bit is 0; their own values spread about it.
    """
    return float(np.sqrt(ring_values()[1:].var() * (RING - 1) / RING))


def learn_ring(tables: Tables, lam: float = 0.9, n_steps: int = 12_000) -> Floats:
    """Learn in the cycle world and return the final prediction in each state, shape (6,).

    A ring of six states is walked in order; the one bit that is seen is 1 in the first and 0 in the
    five others. Without `[[feedback]]` tables nothing is fed back.

    Source: Tanner & Sutton (2005), TD(lambda) networks, the cycle world.
    """
    coder = TileCoder([{"group": "bit", "intervals": [2], "tilings": 1}], ["bit"])
    channels = (ChannelInfo("bit", "bit", "1", is_sensor=True),)
    interface = Interface(channels, ("go",), 1.0, coder, Scaler(np.zeros(1), np.ones(1)))
    questions = [GVF("bit", Behaviour(), Channel(0), RING_GAMMA, lam=lam)]
    if tables:
        interface = interface.feeding_back(questions, tables)
    horde = new_horde(
        interface, questions, config=LearnerConfig.paper(secondary_ratio=0.01, dtype="float64")
    )
    horde.begin(np.ones(1), interface.encode(np.ones(1)))
    y = np.zeros(1)
    for t in range(1, n_steps):
        bit = np.array([float(t % RING == 0)])
        tiles = interface.encode(bit, y if tables else None)
        horde.learn(0, 1.0, bit, tiles)
        if tables:
            y = horde.predict(tiles)
    predictions = np.zeros(RING)
    for t in range(3 * RING):  # the loop runs with fixed weights
        y = horde.predict(interface.encode(np.array([float(t % RING == 0)]), y if tables else None))
        predictions[t % RING] = y[0]
    return predictions


# ---- the corridor ---------------------------------------------------------------------------------------------------

N_STATES = 5
_LEFT_WALL = np.eye(N_STATES)[0]
THEN_GAMMA = 0.5
THEN_RIGHT = 0.2
FIRST_GAMMA = 0.8
FIRST_RIGHT = 0.8


def corridor_value(p_right: float, gamma: float, cumulant: Floats = _LEFT_WALL) -> Floats:
    """Return (I - gamma P)^-1 P c of going right with a probability, between walls at both ends, shape (5,)."""
    stay = np.eye(N_STATES)
    to_right = np.vstack([stay[1:], stay[-1:]])
    to_left = np.vstack([stay[:1], stay[:-1]])
    P = p_right * to_right + (1.0 - p_right) * to_left
    return np.asarray(np.linalg.solve(stay - gamma * P, P @ cumulant), dtype=np.float64)


def composed_values() -> Floats:
    """Return the answers of the two questions of `learn_corridor` in each state, shape (5, 2)."""
    then = corridor_value(THEN_RIGHT, THEN_GAMMA)
    return np.stack([then, corridor_value(FIRST_RIGHT, FIRST_GAMMA, then)], axis=1)


def learn_corridor(rng: np.random.Generator, engine: Literal["span", "plain"] = "span") -> Floats:
    """Learn two questions off-policy, the second about the prediction of the first, and return the answers, (5, 2).

    "then" is about the left wall, going mostly left; "first" is about the prediction of "then",
    along a walk that goes mostly right. The behaviour draws both actions equally often. Answers are
    means over the last two thirds of the learning.

    Source: Sutton & Tanner (2005), TD networks.
    """

    def policy(p_right: float) -> PolicyFunction:
        return PolicyFunction(lambda _observation, _tiles: np.array([1.0 - p_right, p_right]), 2)

    questions = [
        GVF("then", policy(THEN_RIGHT), Channel(0), THEN_GAMMA, lam=0.5),
        GVF("first", policy(FIRST_RIGHT), Prediction("then"), FIRST_GAMMA, lam=0.5),
    ]
    config = LearnerConfig.paper(step_size=0.02, dtype="float64", engine=engine)
    horde = Horde(questions, n_features=N_STATES, n_active=1, config=config)
    state = 0
    predictions = []
    n_steps = 15_000
    horde.begin(np.ones(1), np.array([state]))
    for t in range(n_steps):
        action = int(rng.integers(2))
        state = min(max(state + (1 if action else -1), 0), N_STATES - 1)
        horde.learn(action, 0.5, np.array([float(state == 0)]), np.array([state]))
        if t >= n_steps // 3 and t % 20 == 0:
            predictions.append([horde.predict(np.array([s])) for s in range(N_STATES)])
    return np.asarray(np.mean(predictions, axis=0))


TITLE = "The loop of figure 1: predictions fed back as features"
NEAR = 0.8
CAP_S = 5.0
"""An infrared distance sensor that reads at least NEAR touches the wall; time is counted up to CAP_S seconds."""
GAMMAS = (0.0, 0.8)
MINUTE = 600
HELD_OUT = 3
"""Steps of a piece of a life; every third piece is held out."""
TILINGS: dict[str, Any] = {"intervals": [8], "tilings": 32}
CONFIG = LearnerConfig.paper(vector_mspbe=False)

ALONE = "observation alone"
CLOSED = "loop closed"
OPEN = "loop open"
TRUTH = "the truth itself"
VARIANTS = (ALONE, CLOSED, OPEN, TRUTH)
"""What the tiles code in addition to the observation, one step late.

A prediction fed back is also a new feature of the observation of one step before. With the loop
open it is that alone: demons that see only the observation make it. The truth is the content of a
perfect memory.
"""


class MemoryOutcome(NamedTuple):
    """Result of one variant on one life."""

    # Mean squared error of the final weights over the variance of the returns, held out, per gamma
    nmse: Floats
    actual: Floats  # the held-out returns at the longest gamma, shape (n_rows,)
    predicted: Floats  # their predictions, shape (n_rows,)


def with_channels(
    interface: Interface,
    channels: Sequence[ChannelInfo],
    high: Floats,
    tables: Sequence[Mapping[str, Any]] = (),
) -> Interface:
    """Return an interface with further channels behind its own, from 0 to `high`, (n,), coded by tables of tilings."""
    low = np.zeros(len(high))
    base_scaler = interface.scaler
    scaler = Scaler(np.append(base_scaler.low, low), np.append(base_scaler.high, high))
    coder = interface.coder.extended(tables, [channel.group for channel in channels])
    return replace(interface, channels=(*interface.channels, *channels), coder=coder, scaler=scaler)


def remembering(interface: Interface) -> Interface:
    """Return an interface with a further channel, "since_contact", that no tile reads."""
    return with_channels(
        interface, [ChannelInfo("since_contact", "memory", "1", is_sensor=True)], np.ones(1)
    )


def with_memory(stream: Stream, interface: Interface) -> Stream:
    """Return a life with the further channel: steps since the last touch over those in CAP_S, at most 1.

    Before the first touch, and after a gap, it is 1.
    """
    near = [i for i, channel in enumerate(interface.channels) if channel.group == "ir_distance"]
    touches = np.asarray((stream.rows["observation"][:, near] >= NEAR).any(axis=1))
    broken = are_broken(stream.rows["flags"])
    n_steps_since = since_touch(touches, broken, round(CAP_S / interface.period_s))
    return _widened(stream, n_steps_since[:, np.newaxis])


def _widened(stream: Stream, columns: Floats) -> Stream:
    """Return a life with further channels, shape (n_rows, n), behind its own."""
    n = stream.rows["observation"].shape[1]
    rows = new_rows(len(stream), n + columns.shape[1])
    for name in stream.rows.dtype.names or ():
        if name != "observation":
            rows[name] = stream.rows[name]
    rows["observation"][:, :n] = stream.rows["observation"]
    rows["observation"][:, n:] = columns
    return Stream(rows, stream.header)


def since_touch(touches: Bools, broken: Bools, cap: int) -> Floats:
    """Return the steps since the last touch over `cap`, at most 1 and after a break 1 until the next touch, (n,)."""
    place = np.arange(len(touches))
    last = np.maximum.accumulate(np.where(touches, place, -cap))
    last_break = np.maximum.accumulate(np.where(broken, place, 0))
    n_steps_since = np.where(last < last_break, cap, place - last)
    return np.asarray(np.minimum(n_steps_since, cap) / cap, dtype=np.float64)


def variant_of(interface: Interface, variant: str) -> tuple[Interface, list[GVF]]:
    """Return a variant's interface, and the questions about the further channel, on-policy, one per gamma.

    With the loop open, `with_copy` adds the rest.
    """
    channel = Channel(interface.index("since_contact"))
    questions = [GVF(f"since_contact/g{gamma:g}", Behaviour(), channel, gamma) for gamma in GAMMAS]
    if variant == CLOSED:
        return interface.feeding_back(questions, [{"questions": ["*"], **TILINGS}]), questions
    if variant == TRUTH:
        tables = [{"group": "memory", **TILINGS, "tilings": len(GAMMAS) * TILINGS["tilings"]}]
        return replace(interface, coder=interface.coder.extended(tables, [])), questions
    return interface, questions


def learn_in_turn(stream: Stream, interface: Interface, asked: list[GVF]) -> list[Floats]:
    """Learn in two minutes of every three; in the third, weights are fixed and the loop keeps running.

    Returns:
        The predictions made at each row of each minute, shape (n_rows, n_questions).
    """
    horde = new_horde(interface, asked, config=CONFIG)
    student = StreamLearner(horde, interface)
    made: list[Floats] = []
    for k, piece in enumerate(pieces(len(stream))):
        if is_held_out(k):
            made.append(predict_along(stream[piece], horde, interface))
            continue
        seen: list[Floats] = []

        def observe(student: StreamLearner, _step: int, seen: list[Floats] = seen) -> None:
            seen.append(np.array(student.predictions, dtype=np.float64))

        relearn(stream[piece], horde, interface, student=student, observer=observe)
        made.append(np.array(seen))
    return made


def with_copy(stream: Stream, interface: Interface) -> tuple[Stream, Interface]:
    """Return a life with what demons that see the observation alone said one step before, and an interface to it.

    They learn in the same minutes; each begins with 0, as the loop does.
    """
    predictions = np.zeros((len(stream), len(GAMMAS)))
    learned_pieces = learn_in_turn(stream, *variant_of(interface, ALONE))
    for piece, of_piece in zip(pieces(len(stream)), learned_pieces, strict=True):
        predictions[piece.start + 1 : piece.stop] = of_piece[:-1]
    channels = [ChannelInfo(f"copy/g{gamma:g}", "copy", "1", is_sensor=False) for gamma in GAMMAS]
    longest = 1.0 / (1.0 - np.array(GAMMAS))
    widened = with_channels(interface, channels, longest, [{"group": "copy", **TILINGS}])
    return _widened(stream, predictions), widened


@cached(MemoryOutcome)
def learn_memory(context: ExperimentContext, life: Path, variant: str, steps: int) -> MemoryOutcome:
    """Learn on one part of a life and score the final weights on the other."""
    interface = interface_of(context)
    stream = with_memory(read(life)[: steps + 1], interface)
    return learn_and_score(stream, remembering(interface), variant)


def learn_and_score(stream: Stream, interface: Interface, variant: str) -> MemoryOutcome:
    """Learn in turn, and score the predictions made with fixed weights in the second half of the life."""
    if variant == OPEN:
        stream, interface = with_copy(stream, interface)
    learned_pieces = learn_in_turn(stream, *variant_of(interface, variant))
    cuts = pieces(len(stream))
    readings = stream.rows["observation"][:, interface.index("since_contact"), None]
    actual = returns_along(
        np.repeat(readings.astype(np.float64), len(GAMMAS), axis=1),
        np.array(GAMMAS),
        are_followed(stream.rows["flags"]),
    )
    # The loop restarts in each piece, so its first CAP_S seconds cannot be predicted and are not
    # scored.
    late = round(CAP_S / interface.period_s)
    scored = [k for k in range(len(cuts) // 2, len(cuts)) if is_held_out(k)]
    predicted = np.concatenate([learned_pieces[k][late:, : len(GAMMAS)] for k in scored])
    happened = np.concatenate([actual[cuts[k]][late:] for k in scored])
    nmse = nmsre_at_rest(predicted, happened, happened.var(axis=0))
    return MemoryOutcome(nmse, happened[:, -1], predicted[:, -1])


def pieces(n_rows: int) -> list[slice]:
    """Return the minutes of a life; the last row of each is the first of the next.

    The last minute is left out: its returns are cut off.
    """
    return [slice(k, k + MINUTE + 1) for k in range(0, n_rows - 2 * MINUTE, MINUTE)]


def is_held_out(k: int) -> bool:
    """Say whether the k-th minute is scored and not learned from."""
    return k % HELD_OUT == HELD_OUT - 1


STEPS = {"paper": 100_000, "quick": 6_000}
FRESH_FROM = {"paper": 100, "quick": 0}
"""Seed of the first life. Lives 0, 1 and 2 were looked at when the tilings, the scoring and the control were chosen."""


class LoopResults(NamedTuple):
    """The measurements."""

    outcomes: Mapping[str, Mapping[int, MemoryOutcome]]  # by variant, then seed
    ring: Ring  # the cycle world's
    composed: Floats  # the answers in the corridor, shape (5, 2)

    def nmse(self, variant: str, gamma: int) -> Floats:
        """Return a variant's normalised errors at one of `GAMMAS`, one per seed."""
        return np.array([outcome.nmse[gamma] for outcome in self.outcomes[variant].values()])


def run(context: ExperimentContext) -> tuple[LoopResults, dict[str, object]]:
    """Learn in every variant from each seed's life, and in both small worlds."""
    steps = STEPS[context.scale]
    seeds = [seed + FRESH_FROM[context.scale] for seed in context.seeds]
    recordings = simulate_lives(context, [LifeSpec(seed, steps, "behaviour") for seed in seeds])
    results = context.in_parallel(
        {
            (variant, seed): Job(
                f"{variant}, life {seed}", learn_memory, (context, path, variant, steps)
            )
            for variant in VARIANTS
            for seed, path in recordings.items()
        }
    )
    outcomes = {variant: {seed: results[variant, seed] for seed in seeds} for variant in VARIANTS}
    ring = Ring(learn_ring(FED_BACK), learn_ring(()), learn_ring(FED_BACK, lam=0.0))
    return LoopResults(outcomes, ring, learn_corridor(np.random.default_rng(0))), {
        "steps of each life": steps,
        "of these not learned from": f"every third piece of {MINUTE} steps",
        "a prediction fed back": f"{TILINGS['tilings']} tilings of {TILINGS['intervals'][0]}",
        "touch": f"an infrared distance of at least {NEAR:g}",
        "time is counted up to, in seconds": CAP_S,
        "alpha": "0.1 / active features",
        "alpha_w": "0.001 alpha (cycle world: 0.01)",
        "lambda": 0.9,
        "seeds": seeds,
    }


# ---- checks ---------------------------------------------------------------------------------------------------------


@check(
    claim="Predictions fed back as features give the Horde a memory that the observation is not.",
    paper="the predictions can be used as input: predictive state information; no experiment",
    source="section 3, figure 1",
    terms=(
        "Least is the smallest gain of all seeds, or the lower end of the 95 % interval of "
        "their mean, whichever is less:"
    ),
    limit=above(0.0),
)
def _loop_is_a_memory(data: LoopResults) -> Measured:
    least = {}
    sentences = []
    n_wide = 0
    for k, gamma in enumerate(GAMMAS):
        errors = {variant: data.nmse(variant, k) for variant in VARIANTS}
        for variant in (ALONE, OPEN):
            gains = errors[variant] - errors[CLOSED]
            gain = mean_ci(gains)
            lower_end = gain.mean - gain.half_width
            least[f"least gain over {variant}, gamma {gamma:g}"] = np.nanmin(
                [gains.min(), lower_end]
            )
            sentences.append(f"gain over {variant} {gain}")
            n_wide += bool(gains.min() > 0 >= lower_end)
        of_truth = (errors[ALONE] - errors[TRUTH]).mean()
        sentences += [f"{variant} {error.mean():.3f}" for variant, error in errors.items()]
        sentences[-1] += f" at gamma {gamma:g}"
        if of_truth > 0:
            of_loop = (errors[ALONE] - errors[CLOSED]).mean()
            sentences[-1] += f" (the loop has {of_loop / of_truth:.0%} of its gain)"
    cause = ""
    if n_wide:
        cause = (
            f"{n_wide} of {len(least)} gains are above 0 in every life, with an interval that holds "
            "0 all the same."
        )
    return Measured(
        least,
        f"Error over variance of the time since the wall was touched: {'; '.join(sentences)}.",
        cause,
    )


@check(
    claim="Where only the loop can tell the states apart, it learns the exact answers.",
    paper="predictive state information; no experiment",
    source="section 3 (after Littman et al., 2002; Sutton & Tanner, 2005)",
    terms="Without the loop no error is smaller than that of the best predictor without memory:",
)
def _loop_tells_states_apart(data: LoopResults) -> Measured:
    true = ring_values()
    least = best_without_memory()
    worst = {
        name: float(np.abs(predictions - true).max())
        for name, predictions in data.ring._asdict().items()
    }
    without = float(np.sqrt(((data.ring.without - true) ** 2).mean()))
    return Measured(
        [
            Number(
                f"largest error with the loop in the cycle world of {RING} states",
                worst["looped"],
                below(0.01),
            ),
            Number("root mean squared error without it", without, at_least(least)),
        ],
        f"With the loop and lambda 0: largest error {worst['without_trace']:.2f}, as TD(0) networks fail there.",
    )


@check(
    claim="A question may be about the prediction of another demon, under another policy.",
    paper="learning of compositional predictions, similar to a TD network; no experiment",
    source="section 3",
    terms=(
        f"In a corridor of {N_STATES} states, both learned off-policy; with mistaken policies "
        "or cumulants more than 1:"
    ),
    limit=below(0.12),
)
def _composed_questions_are_learned(data: LoopResults) -> Measured:
    true = composed_values()
    prediction, about_it = np.abs(data.composed - true).max(axis=0)
    errors = {
        "largest error of the prediction": prediction,
        "largest error of the one about it": about_it,
    }
    return Measured(
        errors,
        f"Answers of the latter lie between {true[:, 1].min():.2f} and {true[:, 1].max():.2f}.",
    )


REMARKS = [
    "Learning rests in every third minute, as in the paper's test excursions, and the loop runs on its own "
    "predictions: no signal shows when the wall was last touched. These minutes are scored in the "
    f"second half of each life, but for their first {CAP_S:g} s, since the loop restarts there.",
    "The 32 tilings of a fed-back prediction were chosen among 8 tilings of 8, 32 of 8, 64 of 8 and 32 of 32 "
    "after a look at the life of seed 0; the scoring and the control after a look at those of seeds 0, 1 and "
    "2. Lives at the paper's scale have seeds from 100 on; others were inspected, and their verdicts are no test.",
]


# ---- figure and tables ----------------------------------------------------------------------------------------------

_SHOWN = 600  # steps: a minute


def pictures(data: LoopResults) -> dict[str, Picture]:
    """Draw a minute of the first life's predictions, and its errors."""
    outcomes = {
        variant: next(iter(of_variant.values())) for variant, of_variant in data.outcomes.items()
    }
    canvas, (left, right) = new_canvas(12.0, 3.8, 2, width_ratios=[2.4, 1.0])
    actual = outcomes[ALONE].actual
    first = _liveliest(actual)
    span = slice(first, first + _SHOWN)
    t = np.arange(len(actual[span])) * 0.1
    left.plot(t, actual[span], color="black", linewidth=1.8, label="what happened")
    for colour, variant in zip(COLOURS, (ALONE, CLOSED), strict=False):
        left.plot(t, outcomes[variant].predicted[span], color=colour, linewidth=1.1, label=variant)
    left.set_ylim(top=1.2 * float(actual[span].max()))
    legend = {"loc": "upper center", "ncols": 3}
    ylabel = f"return at gamma {GAMMAS[-1]:g}"
    style_axes(
        left, "time since the wall was touched", legend=legend, xlabel="time (s)", ylabel=ylabel
    )
    y = np.arange(len(outcomes))
    for k, (gamma, colour) in enumerate(zip(GAMMAS, COLOURS[2:], strict=False)):
        errors = [outcome.nmse[k] for outcome in outcomes.values()]
        right.barh(y + 0.36 * k, errors, 0.34, color=colour, label=f"gamma {gamma:g}")
    right.set_yticks(y + 0.18, [variant.replace(" ", "\n", 1) for variant in outcomes], fontsize=8)
    right.invert_yaxis()
    style_axes(right, legend=True, xlabel="error / variance")
    caption = (
        "Left: a minute in which nothing was learned, the liveliest one of the first life (such minutes are joined end "
        "to end): what happened, and what is predicted from the observation alone and with the predictions of the step "
        "before fed back. Right: mean squared error over variance of each variant in that life."
    )
    return {"memory": Picture(canvas, caption)}


def _liveliest(actual: np.ndarray) -> int:
    """Return where the minute begins in which the return changes most."""
    changes = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(actual)))])
    n = max(len(actual) - _SHOWN, 1)
    if len(actual) > _SHOWN:
        return int(np.argmax(changes[-n:] - changes[:n]))
    return 0


def tables(data: LoopResults) -> list[Table]:
    """Return every seed's errors, and the corridor's learned and known answers."""
    rows = []
    for (k, gamma), variant in product(enumerate(GAMMAS), VARIANTS):
        errors = data.nmse(variant, k)
        row = {
            "gamma": f"{gamma:g}",
            "coded in addition to the observation": variant,
            "mean": mean_ci(errors),
        }
        rows.append(
            row
            | {f"seed {s}": error for s, error in zip(data.outcomes[variant], errors, strict=True)}
        )
    note = (
        "The truth itself is the time since the touch, known one step late: what a perfect memory would have. A "
        "prediction fed back is also a new feature of the observation of one step before; with the loop open it is "
        "that alone, since demons that see only the observation make it."
    )
    names = ("then: known", "then: learned", "first: known", "first: learned")
    pairs = np.stack([composed_values(), data.composed], axis=2).reshape(-1, 4)
    answers = [{"state": s, **dict(zip(names, row, strict=True))} for s, row in enumerate(pairs)]
    of_answers = (
        '"then": discounted time at the left wall, going mostly left (gamma 0.5). "first": the discounted sum of what '
        '"then" predicts along a walk that goes mostly right (gamma 0.8).'
    )
    return [
        Table.of(
            "Time since the wall was touched: mean squared error over variance, held out",
            rows,
            note,
        ),
        Table.of("Compositional questions in a corridor of five states", answers, of_answers),
    ]
