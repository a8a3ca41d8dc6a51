"""A question that needs memory, on the robot: how long is it since the wall was touched?

A channel is added to the observation that tells the time since the last touch. The tile coder does not read it, as it
does not read the battery's voltage: it is there to be asked about. What the robot senses is the same whether it turned
away from a wall a moment ago or has never been there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import ChannelInfo, Interface, Scaler
from horde_agent.life.flags import are_broken
from horde_agent.life.student import Student, predict_along, relearn
from horde_agent.measures.nmsre import nmsre_at_rest
from horde_agent.policies import Behaviour
from horde_agent.record import Stream, read, row_dtype
from horde_agent.reproduce.lessons import OnProgress
from horde_agent.reproduce.lives import interface_of
from horde_agent.reproduce.study import Study
from horde_agent.runs.holdout import returns_of
from horde_agent.types import Bools, Floats

NEAR, CAP_S = 0.8, 5.0
"""An infrared distance sensor that reads at least NEAR touches the wall; time is counted up to CAP_S seconds."""
GAMMAS = (0.0, 0.8)
MINUTE, HELD_OUT = 600, 3
"""A life is cut into pieces of so many steps; every third one is not learned from."""
TILINGS: dict[str, Any] = {"intervals": [8], "tilings": 32}

ALONE, LOOPED, OPENED, TOLD = "observation alone", "loop closed", "loop open", "the truth itself"
VARIANTS = (ALONE, LOOPED, OPENED, TOLD)
"""What the tiles code beside the observation, one step late.

A prediction fed back is also a new feature of the observation of one step before. With the loop open it is that alone:
demons that see the observation alone make it. The truth is what a perfect memory would know.
"""


class Outcome(NamedTuple):
    """What one variant came to on one life.

    Attributes:
        nmse: Mean squared error of the final weights over the variance of the returns, held out, one per gamma.
        actual, predicted: The held-out returns at the longest gamma and what was predicted, shape (n_rows,).
    """

    nmse: Floats
    actual: Floats
    predicted: Floats


def remembering(interface: Interface) -> Interface:
    """Return an interface with a further channel, "since_contact", that no tile reads."""
    channels = (*interface.channels, ChannelInfo("since_contact", "memory", "1", is_sensor=True))
    scaler = Scaler(np.append(interface.scaler.low, 0.0), np.append(interface.scaler.high, 1.0))
    return replace(interface, channels=channels, coder=interface.coder.extended([], ["memory"]), scaler=scaler)


def with_memory(stream: Stream, interface: Interface) -> Stream:
    """Return a life with the further channel: steps since the last touch over those in CAP_S, at most 1.

    Where nothing was touched yet, or since a gap, it is 1.
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


def questions_of(interface: Interface) -> list[GVF]:
    """Return the questions about the further channel, on-policy, one per gamma."""
    channel = interface.index("since_contact")
    return [GVF(f"since_contact/g{gamma:g}", Behaviour(), Channel(channel), gamma) for gamma in GAMMAS]


def variant_of(interface: Interface, variant: str) -> tuple[Interface, list[GVF]]:
    """Return what a variant's tiles code, and what it asks; with the loop open, `with_copy` adds the rest."""
    asked = questions_of(interface)
    if variant == LOOPED:
        return interface.feeding_back(asked, [{"questions": ["*"], **TILINGS}]), asked
    if variant == TOLD:
        tables = [{"group": "memory", **TILINGS, "tilings": len(GAMMAS) * TILINGS["tilings"]}]
        return replace(interface, coder=interface.coder.extended(tables, [])), asked
    return interface, asked


def with_copy(stream: Stream, interface: Interface, on_progress: OnProgress) -> tuple[Stream, Interface]:
    """Return a life with what demons that see the observation alone said one step before, and an interface to it.

    They learn on the way, in the same minutes; a piece begins with 0, as the loop does.
    """
    horde = _horde(*variant_of(interface, ALONE))
    student, said = Student(horde, interface), np.zeros((len(stream), len(GAMMAS)))
    cuts = pieces(len(stream))
    for k, piece in enumerate(cuts):
        if is_held_out(k):
            made = predict_along(stream[piece], horde, interface)
        else:
            made = _made_on_the_way(stream[piece], student)
        said[piece.start + 1 : piece.stop] = made[:-1]
        on_progress((k + 1) / len(cuts))
    channels = tuple(ChannelInfo(f"copy/g{gamma:g}", "copy", "1", is_sensor=False) for gamma in GAMMAS)
    longest = 1.0 / (1.0 - np.array(GAMMAS))
    scaler = Scaler(np.append(interface.scaler.low, 0.0 * longest), np.append(interface.scaler.high, longest))
    coder = interface.coder.extended([{"group": "copy", **TILINGS}], ["copy"] * len(GAMMAS))
    widened = replace(interface, channels=(*interface.channels, *channels), scaler=scaler, coder=coder)
    return _widened(stream, said), widened


def _made_on_the_way(stream: Stream, student: Student) -> Floats:
    """Learn from a stream and return the predictions made at each of its rows."""
    made: list[Floats] = []

    def observe(student: Student, _step: int) -> None:
        made.append(np.array(student.predictions, dtype=np.float64))

    relearn(stream, student.horde, student.interface, student=student, observer=observe)
    return np.array(made)


def _horde(interface: Interface, asked: list[GVF]) -> Horde:
    coder, config = interface.coder, LearnerConfig(vector_mspbe=False)
    return Horde(asked, n_features=coder.n_features, n_active=coder.n_active, config=config)


def learn_memory(on_progress: OnProgress, study: Study, seed: int, life: Path, variant: str, steps: int) -> str:
    """Learn on one part of a life, score the final weights on the other, and return the file that says how."""

    def make(path: Path) -> None:
        interface = interface_of(study)
        stream = with_memory(read(life)[: steps + 1], interface)
        outcome = learn_and_score(stream, remembering(interface), variant, on_progress)
        with path.open("wb") as file:
            np.savez(file, **outcome._asdict())

    name = f"loop-{variant.replace(' ', '-')}-{seed}.npz"
    return str(study.kept(name, make, seed=seed, life=life.name, steps=steps, variant=variant))


def learn_and_score(stream: Stream, interface: Interface, variant: str, on_progress: OnProgress) -> Outcome:
    """Learn in two minutes of every three; in the third ones learning rests, and the loop goes on by itself.

    What is predicted there, in the second half of the life, is scored.
    """
    before = 0.0
    if variant == OPENED:
        before = 0.5
        stream, interface = with_copy(stream, interface, lambda share: on_progress(before * share))
    looped, asked = variant_of(interface, variant)
    horde = _horde(looped, asked)
    student = Student(horde, looped)
    actual = returns_of(stream, np.full(len(GAMMAS), interface.index("since_contact")), np.array(GAMMAS))
    # The loop begins anew in each piece, so nobody can know there when the wall was last touched; scored is the rest.
    late = round(CAP_S / interface.period_s)
    cuts, y, g = pieces(len(stream)), [], []
    for k, piece in enumerate(cuts):
        if not is_held_out(k):
            relearn(stream[piece], horde, looped, student=student)
        elif k >= len(cuts) // 2:
            y.append(predict_along(stream[piece], horde, looped)[late:, : len(GAMMAS)])
            g.append(actual[piece][late:])
        on_progress(before + (1.0 - before) * (k + 1) / len(cuts))
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


def read_outcome(path: str | Path) -> Outcome:
    """Read what `learn_memory` wrote."""
    with np.load(path) as file:
        return Outcome(*(file[name] for name in Outcome._fields))
