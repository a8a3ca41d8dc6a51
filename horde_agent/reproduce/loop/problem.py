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
from horde_agent.life.student import Student, predict_along, relearn
from horde_agent.measures.nmsre import nmsre_at_rest
from horde_agent.policies import Behaviour
from horde_agent.record import Stream, read, row_dtype
from horde_agent.reproduce.claims import join
from horde_agent.reproduce.experiment import Cell
from horde_agent.reproduce.lives import LifeSpec, interface_of, new_horde, simulate_lives
from horde_agent.reproduce.loop.worlds import FED_BACK, Ring, learn_corridor, learn_ring
from horde_agent.reproduce.study import Job, Study, cached
from horde_agent.runs.jobs.holdout import returns_of
from horde_agent.types import Bools, Floats

TITLE = "The loop of figure 1: predictions fed back as features"
NEAR, CAP_S = 0.8, 5.0
"""An infrared distance sensor that reads at least NEAR touches the wall; time is counted up to CAP_S seconds."""
GAMMAS = (0.0, 0.8)
MINUTE, HELD_OUT = 600, 3
"""Steps of a piece of a life; every third piece is held out."""
TILINGS: dict[str, Any] = {"intervals": [8], "tilings": 32}
CONFIG = LearnerConfig(vector_mspbe=False)

ALONE, CLOSED, OPEN, TRUTH = "observation alone", "loop closed", "loop open", "the truth itself"
VARIANTS = (ALONE, CLOSED, OPEN, TRUTH)
"""What the tiles code in addition to the observation, one step late.

A prediction fed back is also a new feature of the observation of one step before. With the loop open it is that alone:
demons that see the observation alone make it. The truth is what a perfect memory would hold.
"""


class Outcome(NamedTuple):
    """Result of one variant on one life."""

    nmse: Floats  # mean squared error of the final weights over the variance of the returns, held out, per gamma
    actual: Floats  # the held-out returns at the longest gamma, shape (n_rows,)
    predicted: Floats  # their predictions, shape (n_rows,)


def with_channels(
    interface: Interface, channels: Sequence[ChannelInfo], high: Floats, tables: Sequence[Mapping[str, Any]] = ()
) -> Interface:
    """Return an interface with further channels behind its own, from 0 to `high`, (n,), coded by tables of tilings."""
    low, own = np.zeros(len(high)), interface.scaler
    scaler = Scaler(np.append(own.low, low), np.append(own.high, high))
    coder = interface.coder.extended(tables, [channel.group for channel in channels])
    return replace(interface, channels=(*interface.channels, *channels), coder=coder, scaler=scaler)


def remembering(interface: Interface) -> Interface:
    """Return an interface with a further channel, "since_contact", that no tile reads."""
    return with_channels(interface, [ChannelInfo("since_contact", "memory", "1", is_sensor=True)], np.ones(1))


def with_memory(stream: Stream, interface: Interface) -> Stream:
    """Return a life with the further channel: steps since the last touch over those in CAP_S, at most 1.

    Before the first touch, and after a gap, it is 1.
    """
    near = [i for i, channel in enumerate(interface.channels) if channel.group == "ir_distance"]
    touches = np.asarray((stream.rows["observation"][:, near] >= NEAR).any(axis=1))
    broken = are_broken(stream.rows["flags"])
    since = since_touch(touches, broken, round(CAP_S / interface.period_s))
    return _widened(stream, since[:, np.newaxis])


def _widened(stream: Stream, columns: Floats) -> Stream:
    """Return a life with further channels, shape (n_rows, n), behind its own."""
    n = stream.rows["observation"].shape[1]
    rows = np.zeros(len(stream), dtype=row_dtype(n + columns.shape[1]))
    for name in stream.rows.dtype.names or ():
        if name != "observation":
            rows[name] = stream.rows[name]
    rows["observation"][:, :n], rows["observation"][:, n:] = stream.rows["observation"], columns
    return Stream(rows, stream.header)


def since_touch(touches: Bools, broken: Bools, cap: int) -> Floats:
    """Return the steps since the last touch over `cap`, at most 1 and after a break 1 until the next touch, (n,)."""
    place = np.arange(len(touches))
    last = np.maximum.accumulate(np.where(touches, place, -cap))
    last_break = np.maximum.accumulate(np.where(broken, place, 0))
    since = np.where(last < last_break, cap, place - last)
    return np.asarray(np.minimum(since, cap) / cap, dtype=np.float64)


def variant_of(interface: Interface, variant: str) -> tuple[Interface, list[GVF]]:
    """Return a variant's interface, and the questions about the further channel, on-policy, one per gamma.

    With the loop open, `with_copy` adds the rest.
    """
    channel = Channel(interface.index("since_contact"))
    asked = [GVF(f"since_contact/g{gamma:g}", Behaviour(), channel, gamma) for gamma in GAMMAS]
    if variant == CLOSED:
        return interface.feeding_back(asked, [{"questions": ["*"], **TILINGS}]), asked
    if variant == TRUTH:
        tables = [{"group": "memory", **TILINGS, "tilings": len(GAMMAS) * TILINGS["tilings"]}]
        return replace(interface, coder=interface.coder.extended(tables, [])), asked
    return interface, asked


def with_copy(stream: Stream, interface: Interface) -> tuple[Stream, Interface]:
    """Return a life with what demons that see the observation alone said one step before, and an interface to it.

    They learn on the way, in the same minutes; a piece begins with 0, as the loop does.
    """
    horde = new_horde(*variant_of(interface, ALONE), config=CONFIG)
    student, said = Student(horde, interface), np.zeros((len(stream), len(GAMMAS)))
    cuts = pieces(len(stream))
    for k, piece in enumerate(cuts):
        if is_held_out(k):
            made = predict_along(stream[piece], horde, interface)
        else:
            made = _made_on_the_way(stream[piece], student)
        said[piece.start + 1 : piece.stop] = made[:-1]
    channels = [ChannelInfo(f"copy/g{gamma:g}", "copy", "1", is_sensor=False) for gamma in GAMMAS]
    longest = 1.0 / (1.0 - np.array(GAMMAS))
    widened = with_channels(interface, channels, longest, [{"group": "copy", **TILINGS}])
    return _widened(stream, said), widened


def _made_on_the_way(stream: Stream, student: Student) -> Floats:
    """Learn from a stream and return the predictions made at each of its rows."""
    made: list[Floats] = []

    def observe(student: Student, _step: int) -> None:
        made.append(np.array(student.predictions, dtype=np.float64))

    relearn(stream, student.horde, student.interface, student=student, observer=observe)
    return np.array(made)


@cached(Outcome)
def learn_memory(study: Study, life: Path, variant: str, steps: int) -> Outcome:
    """Learn on one part of a life and score the final weights on the other."""
    interface = interface_of(study)
    stream = with_memory(read(life)[: steps + 1], interface)
    return learn_and_score(stream, remembering(interface), variant)


def learn_and_score(stream: Stream, interface: Interface, variant: str) -> Outcome:
    """Learn in two minutes of every three; in the third, weights are fixed and the loop keeps running.

    Predictions made there, in the second half of the life, are scored.
    """
    if variant == OPEN:
        stream, interface = with_copy(stream, interface)
    looped, asked = variant_of(interface, variant)
    horde = new_horde(looped, asked, config=CONFIG)
    student = Student(horde, looped)
    actual = returns_of(stream.rows, np.full(len(GAMMAS), interface.index("since_contact")), np.array(GAMMAS))
    # The loop restarts in each piece, so its first CAP_S seconds cannot be predicted and are not scored.
    late = round(CAP_S / interface.period_s)
    cuts, y, g = pieces(len(stream)), [], []
    for k, piece in enumerate(cuts):
        if not is_held_out(k):
            relearn(stream[piece], horde, looped, student=student)
        elif k >= len(cuts) // 2:
            y.append(predict_along(stream[piece], horde, looped)[late:, : len(GAMMAS)])
            g.append(actual[piece][late:])
    predicted, happened = np.concatenate(y), np.concatenate(g)
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


def gather(study: Study) -> Data:
    """Learn in every variant from each seed's life, and in both small worlds."""
    steps, seeds = STEPS[study.scale], [seed + FRESH_FROM[study.scale] for seed in study.seeds]
    lived = simulate_lives(study, [LifeSpec(seed, steps, "behaviour") for seed in seeds])
    found = study.in_parallel(
        {
            (variant, seed): Job(f"{variant}, life {seed}", learn_memory, (study, path, variant, steps))
            for variant in VARIANTS
            for seed, path in lived.items()
        }
    )
    outcomes = {variant: {seed: found[variant, seed] for seed in seeds} for variant in VARIANTS}
    ring = Ring(learn_ring(FED_BACK), learn_ring(()), learn_ring(FED_BACK, lam=0.0))
    return Data(outcomes, ring, learn_corridor(np.random.default_rng(0)))


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the experiment."""
    return {
        "steps of each life": STEPS[study.scale],
        "of these not learned from": f"every third piece of {MINUTE} steps",
        "a prediction fed back": f"{TILINGS['tilings']} tilings of {TILINGS['intervals'][0]}",
        "touch": f"an infrared distance of at least {NEAR:g}",
        "time is counted up to, in seconds": CAP_S,
        "alpha": "0.1 / active features",
        "alpha_w": "0.001 alpha (cycle world: 0.01)",
        "lambda": 0.9,
        "seeds": join(data.outcomes[ALONE]),
    }
