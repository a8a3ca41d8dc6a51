"""A life that is restored from a snapshot is the life that was saved, in every attribute that can be reached."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.horde import Horde, LearnerConfig, Mode
from horde_agent.interface import Interface
from horde_agent.kernels.span.arrays import SpanArrays
from horde_agent.life.docking import DockingConfig
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life
from horde_agent.life.observers import MspbeWatch, Sampler
from horde_agent.policies import Behaviour, Gibbs, PolicyFunction, StickyRandom, Uniform
from horde_agent.questions import excursions
from horde_agent.record import Flag, Phase, snapshots
from horde_agent.saving import State, inner, nested
from tests.agent.doubles import N_ACTIONS, constant
from tests.agent.object_graphs import differences
from tests.agent.test_docking import BatteryBody

MAY_DIFFER = {
    "Life.keeper": "set by the program that runs the life",
    "Life._end": "set by the program that runs the life: the last step of this run",
    "Life.is_cut": "about the drive with which this run ended",
    "Worker": "a thread of this process",
    "Durations": "times measured in this process",
    "Student._untimed_s": "a time measured in this process",
    **dict.fromkeys(
        ("SpanEngine._held", "SpanEngine._entry", "SpanEngine._signals", "SpanEngine._step", "SignalMaker._complete"),
        "compiled functions bound to addresses in this process, and for what they were bound",
    ),
    "SpanArrays.n_threads": "threads of this process; no sum crosses a lane",
    "SpanArrays.overlap": "computed from `bits` for each batch",
    **dict.fromkeys(
        [f"SpanArrays.{name}" for name in SpanArrays._fields if name.startswith("run_")]
        + ["SpanArrays.n_runs", "SpanArrays.table", "SpanArrays.foreseen", "SignalArrays.seen", "States._seen"],
        "scratch memory of one call of a kernel",
    ),
    "Gibbs._by_feature": "a cache, filled when the policy is first asked",
    "GibbsTable": "the logits of the next tiles are sums of whole numbers, or are summed in one order",
}
"""What need not be as it was, attributes as "Class.attribute" and classes, and why."""

N_STEPS = 700
FAULTS = {
    50: {"gap": 1},
    90: {"clipped": 2, "overrun_s": 0.2},
    120: {"applied": 0},
    121: {"applied": 0},
    160: {"link_losses": 1, "s_without_link": 2.5, "crc_errors": 3},
    200: {"terminated": 1},
    333: {"truncated": 1},
    500: {"gap": 1},
}


class RestorableBody(BatteryBody):
    """A body with a dock, which helps at every third stay, and all of whose state can be saved."""

    def __init__(self) -> None:
        super().__init__(capacity=150, helps=(False, False, True) * 9)
        self.metadata["restorable"] = True
        self.faults = FAULTS

    def save_state(self) -> State:
        return {"pickle": np.frombuffer(pickle.dumps(vars(self)), np.uint8)}

    def restore_state(self, state: State) -> None:
        vars(self).update(pickle.loads(state["pickle"].tobytes()))
        vars(self)["metadata"] = self.metadata


def looks(observation: Any, _tiles: Any) -> list[float]:
    p = 0.2 + 0.6 * float(observation[1] > 0.5)
    return [p, (1 - p) / 2, (1 - p) / 2]


def turns_into_none(observation: Any, _tiles: Any) -> list[float]:
    return [0.5, 0.5, 0.0] if observation[0] < 0.01 else [2.0, 0.0, 0.0]


def saw(observation: Any, _tiles: Any) -> float:
    return float(observation[1] > 0.5)


def fades(observation: Any, _tiles: Any) -> float:
    return 0.9 * float(observation[1] < 0.8)


def breaks(observation: Any, _tiles: Any) -> float:
    return float("nan") if observation[1] > 0.8 else 1.0


def explodes(observation: Any, _tiles: Any) -> float:
    return 1e300 if observation[0] > 0.012 else 1.0


def functions() -> list[GVF]:
    """Return questions with functions, some of which break, and a prediction as a cumulant."""
    left = constant(0)
    return [
        GVF("left/function", left, saw, 0.5),
        GVF("left/fading", left, Channel(1), fades, lam=0.5, outcome=1.0),
        GVF("looks/function", PolicyFunction(looks, N_ACTIONS), saw, fades, outcome=saw),
        GVF("looks/plain", PolicyFunction(looks, N_ACTIONS), Channel(2), 0.8),
        GVF("lost policy", PolicyFunction(turns_into_none, N_ACTIONS), Channel(1), 0.8, tested=False),
        GVF("breaking", Uniform(N_ACTIONS), breaks, 0.8),
        GVF("exploding", constant(1), explodes, 0.8, tested=False),
        GVF("of another", constant(2), Prediction("left/function"), 0.5),
        GVF("of a feature", constant(2), Feature(3), 0.5),
        GVF("on policy", Behaviour(), Channel(1), 0.9),
    ]


def plain_questions(interface: Interface, n_gibbs: int = 3) -> list[GVF]:
    rng = np.random.default_rng(3)
    n_features = interface.coder.n_features
    gibbs = [Gibbs.random(rng, N_ACTIONS, n_features, 9) for _ in range(n_gibbs)]
    more = [GVF(f"gibbs {i}/{g}", p, Channel(1), g) for i, p in enumerate(gibbs) for g in (0.0, 0.9)]
    return [*excursions(interface, (0.0, 0.5, 0.9)), *more]


def newcomers() -> list[GVF]:
    return [GVF(f"new {a} {c}", constant(a), Channel(c), 0.7) for a in range(N_ACTIONS) for c in (0, 1)] + [
        GVF("new/function", constant(0), saw, 0.4)
    ]


def make_life(
    *, with_functions: bool = False, feedback: bool = False, n_gibbs: int = 3, mode: Mode = "deferred", **config: Any
) -> Life:
    """Return a life that has not begun: most of what can happen to one does, within 700 steps."""
    body = RestorableBody()
    interface = Interface.of(body)
    asked = excursions(interface, (0.0, 0.5, 0.9)) + (functions() if with_functions else [])
    if feedback:
        interface = interface.feeding_back(asked, [{"questions": ["*/g0.5/*"], "intervals": [4], "tilings": 2}])
    asked += plain_questions(interface, n_gibbs)[len(excursions(interface, (0.0, 0.5, 0.9))) :]
    coder = interface.coder
    rules = LearnerConfig(**config)
    horde = Horde(asked, n_features=coder.n_features, n_active=coder.n_active, config=rules, mode=mode)
    life = Life(
        body,
        horde,
        StickyRandom(N_ACTIONS),
        np.random.default_rng(4),
        interface=interface,
        excursions=ExcursionConfig(probability=0.05, horizon=12),
        docking=DockingConfig(pause_s=2.0, attempts=4),
        observers=[Sampler(every=50), MspbeWatch(horde)],
    )
    return life


KINDS: dict[str, Callable[[], Life]] = {
    "span": make_life,
    "span, eager, functions": partial(make_life, with_functions=True, mode="eager"),
    "span, deferred, functions": partial(make_life, with_functions=True),
    "span, many policies": partial(make_life, n_gibbs=40),
    "span, plain trace, vector": partial(make_life, trace_rule="plain", vector_mspbe=True),
    "span, feedback": partial(make_life, feedback=True),
    "plain, functions": partial(make_life, with_functions=True, engine="plain"),
    "plain, capped, feedback": partial(make_life, feedback=True, trace_rule="capped"),
}


def add(life: Life) -> None:
    life.add(newcomers())


def remove(life: Life) -> None:
    life.remove([name for name in life.horde.names[:9] if "/g0.5/" not in name and name != "left/function"])


def reset(life: Life) -> None:
    life.horde.reset_weights()


def saved(life: Life) -> State:
    """Return the state of a life and its observers."""
    return nested(life=life.state(), **{f"observer{k}": o.state() for k, o in enumerate(life.observers)})


def restored(life: Life, state: State, folder: Path) -> Life:
    """Restore a life from a snapshot on the disk, whose arrays are then overwritten: they are no part of the life."""
    read = snapshots.read(snapshots.write(folder, 1, state, {})).state
    life.restore(inner(read, "life"))
    for k, observer in enumerate(life.observers):
        observer.restore(inner(read, f"observer{k}"))
    for array in read.values():
        array[...] = np.ones(1, array.dtype)[0] if array.dtype.kind != "U" else "x"
    return life


class Whole:
    """A life that is never stopped for good: at random steps another one is restored from its state, and compared.

    Attributes:
        seen: Phase, flags and whether steps wait and the observation was learned from, of each comparison.
    """

    def __init__(self, make: Callable[[], Life], folder: Path, at: set[int], n_followed: int) -> None:
        self.make, self.folder, self.at, self.every = make, folder, at, max(len(at) // n_followed, 1)
        self.life, self.seen, self.followers = make(), list[Any](), list[Life]()
        self.changes: list[Callable[[Life], None]] = []
        self.life.keeper = self.keeper
        self._end = 0

    def keeper(self, life: Life) -> None:
        if life.steps in self.at or self.situation not in self.seen:
            self.compare()

    @property
    def situation(self) -> Any:
        life = self.life
        return life.student.phase, life._flags, life.horde.n_waiting > 0, life.is_seen

    def run(self, end: int, *changes: Callable[[Life], None]) -> None:
        """Live up to a step, with all who follow; then change something, and compare after it."""
        self._end = end
        self.life.run(end - self.life.steps)
        for follower in self.followers:
            follower.run(end - follower.steps)
        self.compare()
        for change in changes:
            for life in (self.life, *self.followers):
                change(life)
            self.changes += [change] if change is not reset else []
            self.compare()

    def compare(self) -> None:
        again = self.make()
        for change in self.changes:
            change(again)
        restored(again, saved(self.life), self.folder)
        self.assert_same(again)
        if len(self.seen) % self.every == 0:
            self.followers.append(again)
        self.seen.append(self.situation)

    def assert_same(self, again: Life) -> None:
        found = differences(self.life, again, "life", MAY_DIFFER.keys())
        if found:
            pytest.fail("\n".join((f"step {self.life.steps}, {self.situation}:", *found)), pytrace=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_life_is_the_life_that_was_saved(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Now, and after it was continued."""
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    rng = np.random.default_rng(list(KINDS).index(kind))
    whole = Whole(KINDS[kind], tmp_path, set(rng.choice(N_STEPS, 20).tolist()), n_followed=4)
    assert_state_before_it_begins(whole)
    ends = np.sort(rng.choice(np.arange(20, N_STEPS), 9, replace=False)).tolist()
    for end, changes in zip([*ends, N_STEPS], [(), (), (add,), (), (remove,), (), (reset,), (), (), ()], strict=True):
        whole.run(end, *changes)
    assert len(whole.followers) > 4
    for follower in whole.followers:
        whole.assert_same(follower)
    phases = {phase for phase, *_ in whole.seen}
    assert {Phase.BEHAVE, Phase.EXCURSION, Phase.CENTRE, Phase.DOCK} <= phases
    flags = {flag for _, flag, *_ in whole.seen}
    assert {0, Flag.GAP, Flag.NOT_APPLIED} <= flags


def assert_state_before_it_begins(whole: Whole) -> None:
    whole.compare()
    whole.followers.clear()
