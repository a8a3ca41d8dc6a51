"""Experiment `nexting`: returns, scores of windows, and the off-line solutions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.reproduce import TUNING_SEED
from examples.reproduce.experiment import ExperimentContext
from examples.reproduce.lives import LifeSpec, simulate_life
from examples.reproduce.nexting import autoregression
from examples.reproduce.nexting_life import (
    NextingLife,
    NextingQuestions,
    Until,
    learn_life,
    wall_follower,
)
from horde_agent.horde import LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_agent.record import Stream, read
from tests.agent.doubles import ToyBody
from tests.agent.reproducing import record_life, toy_context

SCALES = (0.1, 0.5)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """A life of 400 steps of a toy body, without excursions."""
    return read(record_life(toy_context(tmp_path, monkeypatch), 0, 400, "behaviour"))


@pytest.fixture(scope="module")
def asked() -> NextingQuestions:
    """Three sensors and five features at two time scales, and a question that ends when the sawtooth is high."""
    return NextingQuestions(Interface.of(ToyBody()), 5, SCALES, (Until("age", "saw", 0.8),))


def test_returns_have_every_term_up_to_a_thousandth(toy: Stream, asked: NextingQuestions) -> None:
    """sum_k gamma^k c_{t+k+1}: a return that began at t, not t + 1, or that runs on to the end, is another one."""
    nexting_life = NextingLife(toy, asked)
    [(rows, returns)] = nexting_life.chunks(range(50, 60))
    observation = toy.rows["observation"].astype(np.float64)
    is_active = np.zeros((len(toy), asked.interface.coder.n_features))
    np.put_along_axis(is_active, nexting_life.rows.tiles.astype(np.int64), 1.0, axis=1)
    targets = np.column_stack([observation, is_active[:, asked.bits]])
    t = 53
    terms = {0.0: 1, 0.8: 31}
    expected = [sum(g**k * targets[t + k + 1] for k in range(n)) for g, n in terms.items()]
    end = t + 1 + int(np.argmax(observation[t + 1 :, 1] >= 0.8))
    final_return = sum(0.9875 ** (k - t - 1) * observation[k, 0] for k in range(t + 1, end + 1))
    np.testing.assert_allclose(
        returns[rows == t][0], [*np.concatenate(expected), final_return], rtol=1e-12
    )
    assert len(asked.questions()) == len(asked.scale) == len(asked.is_sensor) == returns.shape[1]


def test_no_return_crosses_a_gap_or_the_end(toy: Stream, asked: NextingQuestions) -> None:
    """The longest return has 31 terms: rows from 170 on reach the gap before row 200, those from 370 on the end."""
    rows = toy.rows.copy()
    rows["flags"][200] |= 1
    broken = NextingLife(Stream(rows), asked)
    used = np.concatenate([found for found, _ in broken.chunks(range(1, 401))])
    assert not set(used) & {*range(169, 200), *range(370, 401)}
    assert {168, 200, 369} <= set(used)


def test_windows_score_the_predictions_as_they_were_made(
    toy: Stream, asked: NextingQuestions
) -> None:
    """Weights move within a window; frozen weights are those after its first update."""
    nexting_life = NextingLife(toy, asked)
    config = LearnerConfig.paper(vector_mspbe=False)
    scores = learn_life(nexting_life, asked.horde(config), 150, n_windows=2)
    horde = asked.horde(config)
    observation = toy.rows["observation"]
    tiles = nexting_life.rows.tiles.astype(np.int64)
    predictions = [horde.begin(observation[0], tiles[0])]
    for t in range(1, 301):
        predictions.append(
            horde.learn(toy.rows["action"][t - 1], toy.rows["b"][t - 1], observation[t], tiles[t])
        )
        if t == 151:
            frozen = [horde.predict(tiles[k]) for k in range(151, 301, 4)]
    [(rows, returns)] = nexting_life.chunks(range(151, 301))
    assert len(rows) == 150
    np.testing.assert_allclose(
        scores.online[1], ((np.array(predictions)[rows] - returns) ** 2).mean(axis=0), rtol=1e-4
    )
    np.testing.assert_allclose(
        scores.frozen[1], ((frozen - returns[::4]) ** 2).mean(axis=0), rtol=1e-3, atol=1e-9
    )
    np.testing.assert_allclose(scores.zero[1], (returns**2).mean(axis=0), rtol=1e-12)
    assert scores.sound.all()
    assert scores.ms.shape == (400,)


def test_autoregression_finds_what_the_past_of_a_sensor_determines(
    toy: Stream, asked: NextingQuestions
) -> None:
    """20 readings determine the future of a sawtooth of 7 and of the age, not of the action that led here."""
    errors = autoregression(NextingLife(toy, asked), [range(1, 250)], range(250, 350))
    assert errors.shape == (3,)
    assert errors[:2].max() < 1e-8
    assert errors[2] > 1e-2


def test_the_wall_follower_circles_the_pen() -> None:
    """In 70 s on the tuning seed: at least one and a half laps, with the wall on the left."""
    env = make_body("simulator", physics="planar")
    interface = Interface.of(env)
    behaviour = wall_follower(interface)
    rng = np.random.default_rng(TUNING_SEED)
    readings = []
    observation, _ = env.reset(seed=TUNING_SEED)
    for _ in range(700):
        action, b = behaviour.draw(rng, observation, np.zeros(0, dtype=np.int64))
        assert 0.01 <= b <= 0.97
        observation, _, _, _, info = env.step(action)
        readings.append(
            (np.arctan2(info["y_m"], info["x_m"]), observation[interface.index("ir_distance_2")])
        )
    env.close()
    angle, left_distance = np.array(readings).T
    assert abs(np.unwrap(angle)[-1] - angle[0]) > 3 * np.pi
    assert np.mean(left_distance > 0.2) > 0.8


def test_a_life_is_that_of_its_behaviour_and_engine(tmp_path: Path) -> None:
    """The same seed with another behaviour or length is another life, in another file."""
    context = ExperimentContext(tmp_path, "quick", (0,), "simulator", lambda line: None)
    followed = LifeSpec(0, 60, "behaviour", behaviour=wall_follower, physics="planar")
    random = LifeSpec(0, 60, "behaviour")
    paths = [simulate_life(context, spec) for spec in (followed, random, random._replace(steps=30))]
    actions = [read(path).rows["action"][:60] for path in paths]
    assert len(set(paths)) == 3
    np.testing.assert_array_equal(actions[1][:30], actions[2][:30])
    assert np.mean(actions[0] == 0) > np.mean(actions[1] == 0)
