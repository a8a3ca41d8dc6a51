"""Several robots that take turns: each behaves as it would alone, and all learn one set of weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life import life as module
from horde_agent.life.counts import RobotCounts
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.learner import StreamLearner, relearn
from horde_agent.life.life import Life, StepEvent
from horde_agent.life.robot_stream import RobotStream
from horde_agent.policies import StickyRandom
from horde_agent.record import NO_ACTION, Flag, Phase, Recorder, rows_in, snapshots
from horde_agent.runs.sources.relearn import relearn_tables
from horde_agent.runs.storage.folder import RunFolder
from tests.agent import commands
from tests.agent.commands import QUESTIONS, summary_of
from tests.agent.doubles import (
    N_ACTIONS,
    ToyBody,
    age_of,
    horde_of,
    life_of,
    live,
    toy_questions,
)
from tests.agent.kills import SAME, differences, lived_with_kills

OFTEN = ExcursionConfig(probability=0.05, horizon=12)
NEVER = ExcursionConfig(probability=0.0, horizon=12)
INTERFACE = Interface.of(ToyBody())
FAULTS = {40: {"gap": 1}, 90: {"terminated": 1}, 130: {"applied": 0}, 150: {"truncated": 1}}


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN", 20)


def horde(**config: Any) -> Horde:
    return horde_of(toy_questions(), INTERFACE, "deferred", **config)


def robots(seeds: Sequence[int], of: Horde, steps: int = 700) -> Life:
    """Return a life of robots that have taken some steps, with faults and excursions."""
    recorder = Recorder(len(INTERFACE.channels), header={"robots": len(seeds)})
    behaviours = [StickyRandom(N_ACTIONS) for _ in seeds]
    rngs = [np.random.default_rng(seed) for seed in seeds]
    bodies = [ToyBody(FAULTS) for _ in seeds]
    with life_of(bodies, of, behaviours, rngs, excursions=OFTEN, recorder=recorder) as life:
        life.run(steps)
    return life


def rows(life: Life) -> Any:
    assert life.recorder is not None
    return life.recorder.stream().rows


def test_each_robot_behaves_as_it_would_alone() -> None:
    """Its observations, actions, phases and probabilities are those of a life with its seed, turns apart."""
    together = rows(robots([3, 4, 5], horde()))
    for robot, seed in enumerate([3, 4, 5]):
        robot_rows = together[together["robot"] == robot]
        robot_rows = robot_rows[robot_rows["action"] != NO_ACTION]
        recorder = Recorder(len(INTERFACE.channels))
        alone = rows(
            live(400, ToyBody(FAULTS), horde(), seed=seed, excursions=OFTEN, recorder=recorder)
        )
        alone = alone[alone["action"] != NO_ACTION][: len(robot_rows)]
        assert len(robot_rows) > 100
        for name in ("t", "observation", "action", "b", "phase", "policy"):
            np.testing.assert_array_equal(
                robot_rows[name], alone[name], err_msg=f"{name} of robot {robot}"
            )
        np.testing.assert_array_equal(robot_rows["flags"] & ~np.uint8(Flag.TURN), alone["flags"])


def test_turns_are_in_order_and_never_cut_an_excursion() -> None:
    life = robots([0, 1, 2], horde())
    life_rows = rows(life)
    begins = np.flatnonzero(np.diff(life_rows["robot"], prepend=0))
    np.testing.assert_array_equal(life_rows["robot"][begins], np.arange(1, begins.size + 1) % 3)
    assert (life_rows["flags"][begins] & Flag.TURN).all()
    assert np.count_nonzero(life_rows["flags"] & Flag.TURN) == begins.size
    assert not (life_rows["phase"][begins - 1] == Phase.EXCURSION).any()
    assert np.diff(life_rows["step"][begins]).min() >= 20
    assert life.steps_of.sum() == life.steps == 700
    assert life.steps_of.min() > 150


class FailingReset(ToyBody):
    """A reset at the age of 40 fails."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.age == 40:
            raise KeyboardInterrupt
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("failing", [0, 1])
def test_the_robot_whose_reset_fails_has_each_row_once(failing: int) -> None:
    """Its episode ends at the age of 40; the other robot has taken 40 or 60 steps by then."""
    bodies = [ToyBody(), ToyBody()]
    bodies[failing] = FailingReset({40: {"terminated": 1}})
    recorder = Recorder(len(INTERFACE.channels), header={"robots": 2})
    behaviours = [StickyRandom(N_ACTIONS) for _ in bodies]
    rngs = [np.random.default_rng(seed) for seed in range(2)]
    of_life = horde()
    with (
        pytest.raises(KeyboardInterrupt),
        life_of(bodies, of_life, behaviours, rngs, excursions=NEVER, recorder=recorder) as life,
    ):
        life.run(700)
    ages = [(int(row["robot"]), age_of(row["observation"])) for row in recorder.stream().rows]
    assert len(set(ages)) == len(ages)
    assert ages[-1] == (failing, 40)
    of_record = horde()
    student = relearn(recorder.stream(), of_record, INTERFACE)
    assert student.learning_steps == life.student.learning_steps
    np.testing.assert_array_equal(of_record.weights()[0], of_life.weights()[0])


def test_the_steps_of_each_robot_are_those_of_its_turns() -> None:
    """Without excursions turns have 20 steps: after 50 steps the third robot has 10. They agree with the record."""
    recorder = Recorder(len(INTERFACE.channels), header={"robots": 3})
    behaviours = [StickyRandom(N_ACTIONS) for _ in range(3)]
    rngs = [np.random.default_rng(seed) for seed in range(3)]
    bodies = [ToyBody() for _ in range(3)]
    steps_of = []
    never = ExcursionConfig(0.0)
    with life_of(bodies, horde(), behaviours, rngs, excursions=never, recorder=recorder) as life:
        for n_steps in (20, 1, 29, 10, 5):
            life.run(n_steps)
            steps_of.append(life.steps_of.tolist())
    assert steps_of == [[20, 0, 0], [20, 1, 0], [20, 20, 10], [20, 20, 20], [25, 20, 20]]
    acted = rows(life)["robot"][rows(life)["action"] != NO_ACTION]
    assert np.bincount(acted).tolist() == steps_of[-1]
    assert [len(body.actions) for body in bodies] == steps_of[-1]


def test_a_life_shows_the_robot_whose_turn_it_is_and_counts_the_faults_of_all() -> None:
    """Each body has one gap and one step without its action within its first 150 steps."""
    bodies = [ToyBody(FAULTS) for _ in range(3)]
    behaviours = [StickyRandom(N_ACTIONS) for _ in bodies]
    rngs = [np.random.default_rng(seed) for seed in range(3)]
    robots_seen = set[int]()

    def compare(event: StepEvent) -> None:
        life = event.life
        robot = event.row.robot
        assert life.env is life.robots[robot].env
        assert life.env.unwrapped is bodies[robot]
        assert life.behaviour is behaviours[robot]
        assert life.rng is rngs[robot]
        assert life.dockings is life.robots[robot].dockings
        assert life.excursions is life.robots[robot].excursions
        assert life.t == event.row.t
        robots_seen.add(robot)

    with life_of(bodies, horde(), behaviours, rngs, excursions=OFTEN, observers=[compare]) as life:
        life.run(700)
    assert robots_seen == {0, 1, 2}
    assert life.steps_of.min() > 150
    assert life.counts.gaps == 3
    assert life.counts.n_not_applied == 3


def test_a_robot_is_restored_from_its_own_state() -> None:
    """A toy body cannot be put back: it continues after a gap, with the same random numbers."""
    for robot_stream in robots([3, 4, 5], horde()).robots:
        restored = RobotStream(
            ToyBody(),
            StickyRandom(N_ACTIONS),
            np.random.default_rng(0),
            interface=INTERFACE,
            excursions=OFTEN,
            docking=None,
            counts=RobotCounts(),
        )
        restored.restore(robot_stream.state())
        np.testing.assert_array_equal(restored.observation, robot_stream.observation)
        np.testing.assert_equal(restored.info_fields, robot_stream.info_fields)
        assert restored.flags == robot_stream.flags
        assert restored.counts.steps == 700
        assert restored.rng.random() == robot_stream.rng.random()
        assert robot_stream.has_begun
        assert not restored.has_begun
        assert restored.is_resumed


def test_a_trace_does_not_reach_from_one_robot_to_the_next() -> None:
    """As if each robot's rows were learned from in a stream of their own, in the order of the recording."""
    life = robots([0, 1, 2], horde(engine="plain"))
    by_hand = horde(engine="plain")
    streams = {}
    assert life.recorder is not None
    student = StreamLearner(by_hand, INTERFACE, OFTEN)
    for row in rows_in(rows(life)):
        robot = row.robot
        if robot not in streams:
            streams[robot] = student
            if robot != 0:
                streams[robot] = StreamLearner(by_hand, INTERFACE, OFTEN)
        by_hand.select_stream(robot)
        streams[robot].take_row(row._replace(robot=0))
    assert by_hand.weights_sha256() == life.horde.weights_sha256()
    assert (robots([0, 1, 2], horde()).horde.weights()[0] != 0).any()


def of_three_robots(folder: Path) -> str:
    """Return the arguments of a run of three robots."""
    (folder / "own.toml").write_text(QUESTIONS)
    words = "--robots 3 --physics planar --excursion-probability 0.05 --horizon 12 --seed 1"
    return f"{words} --questions {folder / 'own.toml'}"


@pytest.mark.sim
def test_a_resumed_run_of_several_robots_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """So do the tables made again from its log, and the weights learned again from its recording."""
    whole, run, replay = (tmp_path / name for name in ("whole", "run", "again"))
    words = of_three_robots(tmp_path)
    assert commands.horde("learn", words, f"--steps 600 --out {whole}") == 0
    assert commands.horde("learn", words, f"--steps 310 --out {run}") == 0
    assert commands.horde(f"resume {run} --steps 600") == 0
    assert differences(run, whole) == []
    assert sum(json.loads((run / "details.json").read_text())["steps_of_robots"]) == 600
    assert commands.horde(f"learn --backend replay --log {run} --out {replay}") == 0
    assert differences(replay, whole) == []
    (run / "summary.json").unlink()
    # The one before it is from the middle of the run
    shutil.rmtree(next(snapshots.found(run / "checkpoint")))
    summary = relearn_tables(RunFolder(run), Console(quiet=True))
    assert summary["weights_sha256"] == summary_of(whole)["weights_sha256"]
    for name in SAME:
        assert (run / name).read_text() == (whole / name).read_text()


@pytest.mark.slow
@pytest.mark.sim
def test_a_run_of_several_robots_survives_kills(tmp_path: Path) -> None:
    run = tmp_path / "run"
    whole = tmp_path / "whole"
    words = [*of_three_robots(tmp_path).split(), "--steps", "20000", "--snapshot-every", "1s"]
    assert lived_with_kills(run, words, np.random.default_rng(0), kills=3, span_s=1.0) >= 2
    # Also in another process: its TURN
    lived_with_kills(whole, words, np.random.default_rng(0), kills=0, span_s=2.0)
    assert differences(run, whole) == []
