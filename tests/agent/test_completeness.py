"""A life that is restored from a snapshot equals the saved one in every attribute."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.horde import Mode
from horde_agent.interface import Interface
from horde_agent.kernels.span.arrays import SpanArrays
from horde_agent.life.excursions import DockingConfig, ExcursionConfig
from horde_agent.life.life import Life
from horde_agent.life.observers import MspbeWatch, Sampler
from horde_agent.policies import Behaviour, Gibbs, PolicyFunction, StickyRandom, Uniform
from horde_agent.questions import excursions
from horde_agent.record import Flag, Phase, Recorder, snapshots
from horde_agent.saving import State, inner, nested
from tests.agent.doubles import N_ACTIONS, BeforeStep, constant, horde_of, life_of
from tests.agent.object_graphs import differences
from tests.agent.test_docking import BatteryBody

MAY_DIFFER = {
    "BeforeStep": "of these tests",
    "Life._end": "set by the program that runs the life: the last step of this run",
    "Life.is_cut": "about the drive with which this run ended",
    "Worker": "a thread of this process",
    "Durations": "times measured in this process",
    "StreamLearner._untimed_s": "a time measured in this process",
    **dict.fromkeys(
        (
            "PlainEngine._packed",
            "PlainEngine._packed_of",
            "SpanEngine._packed_arrays",
            "SpanEngine._packed_of",
            "SpanEngine._step",
            "SpanEngine._step_of",
            "PolicyRatios._write_constants",
            "SignalMaker._finish",
            "Readout._read",
            "Readout._write",
            "Readout._add",
        ),
        "compiled functions bound to addresses in this process",
    ),
    **dict.fromkeys(
        ("SpanEngine._signals", "MixedEngine._signals", "MixedEngine._parts"),
        "arguments of the latest step",
    ),
    **dict.fromkeys(
        ("PolicyRatios.given", "PolicyRatios.has_rho", "Signals.has_rho"),
        "which policies had no ratio in the latest step; the next step sets all of them first",
    ),
    "SpanArrays.n_threads": "threads of this process; no sum crosses a lane",
    "SpanArrays.overlap": "computed from `bits` for each batch",
    **dict.fromkeys(
        [f"SpanArrays.{name}" for name in SpanArrays._fields if name.startswith("run_")]
        + [
            "SpanArrays.n_runs",
            "SpanArrays.rates",
            "SpanArrays.tail_needed",
            "SpanArrays.table",
            "SpanArrays.precomputed",
            "OffsetArrays.is_due",
            "InputChecker._seen",
        ],
        "scratch memory of one call of a kernel",
    ),
    "Gibbs._by_feature": "a cache, filled when the policy is first asked",
    "GibbsTable": "the logits of the next tiles are sums of whole numbers, or are summed in one order",
}
"""Classes, and attributes as "Class.attribute", that may differ, with the reason."""

N_STEPS = 500
FAULTS = {
    50: {"gap": 1},
    90: {"clipped": 2, "overrun_s": 0.2},
    120: {"applied": 0},
    121: {"applied": 0},
    140: {"link_losses": 1, "s_without_link": 2.5, "crc_errors": 3},
    200: {"terminated": 1},
    333: {"truncated": 1},
    500: {"gap": 1},
}


class RestorableBody(BatteryBody):
    """A restorable body with a dock, which charges in every third stay."""

    def __init__(self, *, is_restorable: bool) -> None:
        super().__init__(capacity=150, helps=(False, False, True) * 9)
        self.metadata["restorable"] = is_restorable
        self.faults = copy.deepcopy(FAULTS)  # several robots share nothing

    def save_state(self) -> State:
        return {"pickle": np.frombuffer(pickle.dumps(vars(self)), np.uint8)}

    def restore_state(self, state: State) -> None:
        vars(self).update(pickle.loads(state["pickle"].tobytes()))
        vars(self)["metadata"] = self.metadata


def leaning(observation: Any, _tiles: Any) -> list[float]:
    p = 0.2 + 0.6 * float(observation[1] > 0.5)
    return [p, (1 - p) / 2, (1 - p) / 2]


def becomes_invalid(observation: Any, _tiles: Any) -> list[float]:
    if observation[0] < 0.01:
        return [0.5, 0.5, 0.0]
    return [2.0, 0.0, 0.0]


def saw(observation: Any, _tiles: Any) -> float:
    return float(observation[1] > 0.5)


def fades(observation: Any, _tiles: Any) -> float:
    return 0.9 * float(observation[1] < 0.8)


def breaks(observation: Any, _tiles: Any) -> float:
    if observation[1] > 0.8:
        return float("nan")
    return 1.0


def explodes(observation: Any, _tiles: Any) -> float:
    if observation[0] > 0.012:
        return 1e300
    return 1.0


def functions() -> list[GVF]:
    """Return questions with functions, some of which break, and a prediction as a cumulant."""
    leftward = constant(0)
    return [
        GVF("left/function", leftward, saw, 0.5),
        GVF("left/fading", leftward, Channel(1), fades, lam=0.5, outcome=1.0),
        GVF("looks/function", PolicyFunction(leaning, N_ACTIONS), saw, fades, outcome=saw),
        GVF("looks/plain", PolicyFunction(leaning, N_ACTIONS), Channel(2), 0.8),
        GVF(
            "lost policy", PolicyFunction(becomes_invalid, N_ACTIONS), Channel(1), 0.8, tested=False
        ),
        GVF("breaking", Uniform(N_ACTIONS), breaks, 0.8),
        GVF("exploding", constant(1), explodes, 0.8, tested=False),
        GVF("of another", constant(2), Prediction("left/function"), 0.5),
        GVF("of a feature", constant(2), Feature(3), 0.5),
        GVF("on policy", Behaviour(), Channel(1), 0.9),
    ]


def gibbs_questions(n_features: int, n_policies: int) -> list[GVF]:
    rng = np.random.default_rng(3)
    policies = [Gibbs.random(rng, N_ACTIONS, n_features, 9) for _ in range(n_policies)]
    return [
        GVF(f"gibbs {i}/{g}", p, Channel(1), g) for i, p in enumerate(policies) for g in (0.0, 0.9)
    ]


def make_life(
    *,
    with_functions: bool = False,
    feedback: bool = False,
    n_gibbs: int = 3,
    mode: Mode = "deferred",
    is_restorable: bool = True,
    n_robots: int = 1,
    **config: Any,
) -> Life:
    """Return a new life, with most kinds of events within 700 steps."""
    body = RestorableBody(is_restorable=is_restorable)
    interface = Interface.of(body)
    questions = excursions(interface, (0.0, 0.5, 0.9)) + (functions() if with_functions else [])
    if feedback:
        interface = interface.feeding_back(
            questions, [{"questions": ["*/g0.5/*"], "intervals": [4], "tilings": 2}]
        )
    questions += gibbs_questions(interface.coder.n_features, n_gibbs)
    horde = horde_of(questions, interface, mode, **config)
    options: dict[str, Any] = {
        "interface": interface,
        "excursions": ExcursionConfig(probability=0.05, horizon=12),
        "docking": DockingConfig(pause_s=2.0, attempts=4),
        "observers": [Sampler(every=50), MspbeWatch(horde)],
    }
    behaviours = [StickyRandom(N_ACTIONS) for _ in range(n_robots)]
    bodies = [body, *(RestorableBody(is_restorable=is_restorable) for _ in behaviours[1:])]
    return life_of(
        bodies,
        horde,
        behaviours,
        [np.random.default_rng(4 + k) for k in range(n_robots)],
        **options,
    )


KINDS: dict[str, Callable[[], Life]] = {
    "span": make_life,
    "span, eager, functions": partial(make_life, with_functions=True, mode="eager"),
    "span, many policies": partial(make_life, n_gibbs=40),
    "span, plain trace, vector": partial(make_life, trace_rule="plain", vector_mspbe=True),
    "span, feedback": partial(make_life, feedback=True),
    "plain, capped, feedback": partial(make_life, feedback=True, trace_rule="capped"),
    "span, robots, functions": partial(make_life, n_robots=3, with_functions=True),
    "plain, robots, functions": partial(make_life, n_robots=3, with_functions=True, engine="plain"),
    "span, offsets": partial(make_life, offset="mean", average=20.0),
    "span, offsets, robots, functions": partial(
        make_life, n_robots=3, with_functions=True, offset="mean"
    ),
}
DEFERRED = {
    "span",
    "span, many policies",
    "span, plain trace, vector",
    "span, feedback",
    "span, robots, functions",
} | {
    "span, offsets",
    "span, offsets, robots, functions",
}


def add(life: Life) -> None:
    life.add(
        [
            GVF(f"new {a} {c}", constant(a), Channel(c), 0.7)
            for a in range(N_ACTIONS)
            for c in (0, 1)
        ]
    )
    life.add([GVF("new/function", constant(0), saw, 0.4)])


def remove(life: Life) -> None:
    life.remove(
        [name for name in life.horde.names[:9] if "/g0.5/" not in name and name != "left/function"]
    )


def followed_steps(life: Life) -> tuple[str, int]:
    """Return the policy that an excursion follows, and for how many actions; "" and 0 without one."""
    state = life.excursions.state()
    if life.excursions.phase is not Phase.EXCURSION:
        return "", 0
    return str(state["followed"]), int(state["_n_taken"])


def saved(life: Life) -> State:
    return nested(
        life=life.state(), **{f"observer{k}": o.state() for k, o in enumerate(life.observers)}
    )


def restored(life: Life, state: State, folder: Path) -> Life:
    """Restore a life from a snapshot on the disk, and overwrite the arrays that were read."""
    read = snapshots.read(snapshots.write(folder, 1, state, {})).state
    life.restore(inner(read, "life"))
    for k, observer in enumerate(life.observers):
        observer.restore(inner(read, f"observer{k}"))
    for array in read.values():
        if array.dtype.kind != "U":
            array[...] = np.ones(1, array.dtype)[0]
        else:
            array[...] = "x"
    return life


class Whole:
    """A life that is compared, at random steps, with one that was restored from its state at that step.

    They are compared before the steps `at` and in each new situation: phase, flags, whether steps
    are deferred, and whether the observation was learned, `seen` at each comparison. One restored
    life of `every` is continued.
    """

    def __init__(
        self, make: Callable[[], Life], folder: Path, at: set[int], every: int = 1
    ) -> None:
        self._make = make
        self._folder = folder
        self._at = at
        self._every = every
        self.life = self._made()
        self.seen = list[tuple[Phase, int, bool, bool]]()
        self.followers = list[Life]()
        self._changes: list[Callable[[Life], None]] = []

    def _made(self) -> Life:
        life = self._make()
        life.observers.append(BeforeStep(self._before_step))
        return life

    def _before_step(self, life: Life) -> None:
        if life is self.life and (life.steps in self._at or self._situation not in self.seen):
            self.compare()

    @property
    def _situation(self) -> tuple[Phase, int, bool, bool]:
        life = self.life
        return (
            life.student.phase,
            life.robot_stream.flags,
            life.horde.n_waiting > 0,
            life.student.position.is_observed,
        )

    def run(self, end: int) -> None:
        """Run the life, and the restored ones, up to a step."""
        self.life.run(end - self.life.steps)
        for follower in self.followers:
            follower.run(end - follower.steps)
        self.compare()

    def change(self, change: Callable[[Life], None], *, is_repeated: bool = True) -> None:
        """Change the life and the restored ones; with `is_repeated`, later ones, too."""
        for life in (self.life, *self.followers):
            change(life)
        self._changes += [change] if is_repeated else []
        self.compare()

    def compare(self) -> None:
        """Compare the life with one that is restored from its state."""
        second_life = self._made()
        for change in self._changes:
            change(second_life)
        self.assert_same(restored(second_life, saved(self.life), self._folder))
        if len(self.seen) % self._every == self._every - 1:
            self.followers.append(second_life)
        self.seen.append(self._situation)

    def assert_same(self, again: Life) -> None:
        deviations = differences(self.life, again, "life", MAY_DIFFER.keys())
        if deviations:
            pytest.fail(
                "\n".join((f"step {self.life.steps}, {self._situation}:", *deviations)),
                pytrace=False,
            )


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _file: None)


# They have what the last kind has, too
CONTAINED = ("span, robots, functions", "span, offsets")


@pytest.mark.parametrize(
    "kind",
    [
        *(kind for kind in KINDS if kind not in CONTAINED),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in CONTAINED),
    ],
)
def test_a_restored_life_equals_the_saved_one(kind: str, tmp_path: Path) -> None:
    """At once, and after both were continued."""
    rng = np.random.default_rng(list(KINDS).index(kind))
    whole = Whole(KINDS[kind], tmp_path, set(rng.choice(N_STEPS, 6).tolist()), every=5)
    whole.compare()  # before it begins
    ends = np.sort(rng.choice(np.arange(20, N_STEPS), 6, replace=False)).tolist()
    for k, end in enumerate([*ends, N_STEPS]):
        whole.run(end)
        if k in (1, 3):
            whole.change(add if k == 1 else remove)
        elif k == 5:
            whole.change(lambda life: life.horde.reset_weights(), is_repeated=False)
    assert len(whole.followers) > 3
    for follower in whole.followers:
        whole.assert_same(follower)
    phases, flags, waits, are_learned = (set(values) for values in zip(*whole.seen, strict=True))
    assert phases == {Phase.BEHAVE, Phase.EXCURSION, Phase.CENTRE, Phase.DOCK, Phase.END}
    assert {0, Flag.GAP, Flag.NOT_APPLIED} <= flags
    assert waits == ({False, True} if kind in DEFERRED else {False})
    assert are_learned == {False, True}


def remove_followed(life: Life) -> None:
    life.remove(
        [
            q.name
            for q in life.horde.questions
            if q.target_policy == constant(0) or q.name == "of another"
        ]
    )


@pytest.mark.parametrize("change", [add, remove, remove_followed])
def test_a_life_whose_questions_change_during_an_excursion_is_restored(
    change: Callable[[Life], None], tmp_path: Path
) -> None:
    """Demons are moved, new ones are not tested by it; the excursion ends if its policy was removed."""
    whole = Whole(partial(make_life, with_functions=True), tmp_path, set())
    while followed_steps(whole.life) != ("action 0", 3):
        whole.life.run(1)
    whole.followers.clear()
    whole.change(change)
    whole.run(whole.life.steps + 1)
    assert (whole.life.student.phase is Phase.EXCURSION) == (change is not remove_followed)
    whole.run(whole.life.steps + 60)
    for follower in whole.followers:
        whole.assert_same(follower)


def test_an_excursion_of_a_real_robot_is_not_continued_after_the_gap() -> None:
    """The robot has moved: it follows the behaviour again, and the excursion is discarded."""
    whole = make_life(is_restorable=False)
    while followed_steps(whole)[1] != 3:
        whole.run(1)
    robot_life = make_life(is_restorable=False)
    robot_life.restore(whole.state())
    robot_life.excursions.config = ExcursionConfig(probability=0.0)
    robot_life.recorder = Recorder(len(robot_life.interface.channels))
    n_before = robot_life.student.errors.n_excursions
    n_discarded = robot_life.student.errors.n_discarded
    robot_life.run(30)
    robot_life.close()
    assert set(robot_life.recorder.stream().rows["phase"].tolist()) == {Phase.BEHAVE, Phase.END}
    assert robot_life.student.errors.n_excursions == n_before
    assert robot_life.student.errors.n_discarded == n_discarded + 1
