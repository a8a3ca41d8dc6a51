"""Learning the time since the wall was touched, with the loop closed, open, and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import LearnerConfig
from horde_agent.interface import ChannelInfo, Interface, Scaler
from horde_agent.life.flags import are_broken
from horde_agent.life.learner import StreamLearner, predict_along, relearn
from horde_agent.measures.nmsre import nmsre_at_rest
from horde_agent.policies import Behaviour
from horde_agent.record import Stream, read, row_dtype
from horde_agent.reproduce.lives import LifeSpec, interface_of, new_horde, simulate_lives
from horde_agent.reproduce.loop.worlds import FED_BACK, Ring, learn_corridor, learn_ring
from horde_agent.reproduce.study import Job, Study, cached
from horde_agent.runs.jobs.holdout import returns_of
from horde_agent.types import Bools, Floats

TITLE = "The loop of figure 1: predictions fed back as features"
NEAR = 0.8
CAP_S = 5.0
"""An infrared distance sensor that reads at least NEAR touches the wall; time is counted up to CAP_S seconds."""
GAMMAS = (0.0, 0.8)
MINUTE = 600
HELD_OUT = 3
"""Steps of a piece of a life; every third piece is held out."""
TILINGS: dict[str, Any] = {"intervals": [8], "tilings": 32}
CONFIG = LearnerConfig(vector_mspbe=False)

ALONE = "observation alone"
CLOSED = "loop closed"
OPEN = "loop open"
TRUTH = "the truth itself"
VARIANTS = (ALONE, CLOSED, OPEN, TRUTH)
"""What the tiles code in addition to the observation, one step late.

A prediction fed back is also a new feature of the observation of one step before. With the loop
    open it is that alone:
demons that see the observation alone make it. The truth is what a perfect memory would hold.
"""


class Outcome(NamedTuple):
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
    rows = np.zeros(len(stream), dtype=row_dtype(n + columns.shape[1]))
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


@cached(Outcome)
def learn_memory(study: Study, life: Path, variant: str, steps: int) -> Outcome:
    """Learn on one part of a life and score the final weights on the other."""
    interface = interface_of(study)
    stream = with_memory(read(life)[: steps + 1], interface)
    return learn_and_score(stream, remembering(interface), variant)


def learn_and_score(stream: Stream, interface: Interface, variant: str) -> Outcome:
    """Learn in turn, and score the predictions made with fixed weights in the second half of the life."""
    if variant == OPEN:
        stream, interface = with_copy(stream, interface)
    learned_pieces = learn_in_turn(stream, *variant_of(interface, variant))
    cuts = pieces(len(stream))
    actual = returns_of(
        stream.rows, np.full(len(GAMMAS), interface.index("since_contact")), np.array(GAMMAS)
    )
    # The loop restarts in each piece, so its first CAP_S seconds cannot be predicted and are not
    # scored.
    late = round(CAP_S / interface.period_s)
    scored = [k for k in range(len(cuts) // 2, len(cuts)) if is_held_out(k)]
    predicted = np.concatenate([learned_pieces[k][late:, : len(GAMMAS)] for k in scored])
    happened = np.concatenate([actual[cuts[k]][late:] for k in scored])
    nmse = nmsre_at_rest(predicted, happened, happened.var(axis=0))
    return Outcome(nmse, happened[:, -1], predicted[:, -1])


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


class Data(NamedTuple):
    """The measurements."""

    outcomes: Mapping[str, Mapping[int, Outcome]]  # by variant, then seed
    ring: Ring  # the cycle world's
    composed: Floats  # the answers in the corridor, shape (5, 2)

    def nmse(self, variant: str, gamma: int) -> Floats:
        """Return a variant's normalised errors at one of `GAMMAS`, one per seed."""
        return np.array([outcome.nmse[gamma] for outcome in self.outcomes[variant].values()])


def gather(study: Study) -> tuple[Data, dict[str, object]]:
    """Learn in every variant from each seed's life, and in both small worlds."""
    steps = STEPS[study.scale]
    seeds = [seed + FRESH_FROM[study.scale] for seed in study.seeds]
    recordings = simulate_lives(study, [LifeSpec(seed, steps, "behaviour") for seed in seeds])
    results = study.in_parallel(
        {
            (variant, seed): Job(
                f"{variant}, life {seed}", learn_memory, (study, path, variant, steps)
            )
            for variant in VARIANTS
            for seed, path in recordings.items()
        }
    )
    outcomes = {variant: {seed: results[variant, seed] for seed in seeds} for variant in VARIANTS}
    ring = Ring(learn_ring(FED_BACK), learn_ring(()), learn_ring(FED_BACK, lam=0.0))
    return Data(outcomes, ring, learn_corridor(np.random.default_rng(0))), {
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
