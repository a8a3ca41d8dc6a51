"""The reward of the environment as a cumulant: in a Horde, a life, its record, question files and data sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import (
    GVF,
    Behaviour,
    Channel,
    ConstantAction,
    Horde,
    Interface,
    LearnerConfig,
    Reward,
    learn_from,
)
from horde_agent.formats.minari import open_minari, write_minari
from horde_agent.formats.tables import episodes_of
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.learner import relearn
from horde_agent.life.life import Life, refuse_not_followed
from horde_agent.parametric import Gaussian
from horde_agent.policies import PolicyFunction
from horde_agent.questions import from_file, question_columns, values
from horde_agent.record import Flag, Phase, Recorder
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig, refuse_early
from horde_agent.scoring.returns import policies_under_test
from tests.agent.doubles import (
    N_ACTIONS,
    SAW,
    PaidBody,
    PaidWithoutDrive,
    ToyBody,
    constant,
    horde_of,
    live,
)
from tests.oracles.evaluation import nmsre

EVERY_STATE = np.array([0])


FACE = Interface.of(ToyBody())


def wander(_observation: Any, _tiles: Any) -> list[float]:
    return [0.5, 0.5, 0.0]


def pair(name: str, policy: Any, gamma: float) -> list[GVF]:
    """Return a question about the reward, and one about the channel with the same readings."""
    return [
        GVF(f"{name}/reward", policy, Reward(), gamma),
        GVF(f"{name}/saw", policy, Channel(SAW), gamma),
    ]


def pairs() -> list[GVF]:
    questions = pair("left", constant(0), 0.8)
    questions += pair("behaviour", Behaviour(), 0.8)
    questions += pair("wander", PolicyFunction(wander, N_ACTIONS), 0.8)
    return questions


# ---- in a Horde ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["plain", "span"])
@pytest.mark.parametrize("offset", [0.0, 2.0])
def test_the_value_of_a_reward_is_that_of_a_channel_with_the_same_readings(
    engine: Any, offset: float
) -> None:
    """Bit for bit, over gaps and ends of episodes, beside questions about channels."""
    faults = {20: {"gap": 1}, 30: {"terminated": 1}, 41: {"truncated": 1}}
    horde = horde_of(pairs(), FACE, engine=engine, offset=offset)
    live(60, PaidBody(faults), horde)
    theta, w = horde.weights()
    assert np.abs(theta[::2]).max() > 0.0
    np.testing.assert_array_equal(theta[::2], theta[1::2])
    np.testing.assert_array_equal(w[::2], w[1::2])


def test_a_step_with_an_unknown_reward_is_skipped_by_questions_about_the_reward_only() -> None:
    """With gamma = 0 and alpha = 1 the prediction is the latest reward; 7.0 stays while it is unknown."""
    questions = [
        GVF("reward", Behaviour(), Reward(), 0.0),
        GVF("channel", Behaviour(), Channel(0), 0.0),
    ]
    config = LearnerConfig.paper(step_size=1.0, engine="plain", offset=0.0)
    horde = Horde(questions, n_features=1, n_active=1, config=config)
    horde.begin(np.zeros(1), EVERY_STATE)
    horde.learn(0, 1.0, np.array([3.0]), EVERY_STATE, reward=7.0)
    np.testing.assert_allclose(horde.predictions, [7.0, 3.0])
    for unknown in (np.nan, np.inf):
        horde.learn(0, 1.0, np.array([4.0]), EVERY_STATE, reward=unknown)
    np.testing.assert_allclose(horde.predictions, [7.0, 4.0])
    horde.learn(0, 1.0, np.array([4.0]), EVERY_STATE)
    assert horde.n_skipped.tolist() == [3, 0]
    assert horde.diverged == []


def test_an_automatic_offset_is_the_value_of_a_constant_reward() -> None:
    """It is r / (1 - gamma) = 10, from the first transition on; there is nothing left to learn."""
    questions = [GVF("value", Behaviour(), Reward(), 0.9)]
    config = LearnerConfig.paper(engine="plain", offset="mean")
    horde = Horde(questions, n_features=1, n_active=1, config=config)
    horde.begin(np.zeros(1), EVERY_STATE)
    for _ in range(3):
        horde.learn(0, 1.0, np.zeros(1), EVERY_STATE, reward=1.0)
    np.testing.assert_allclose(horde.predictions, [10.0], rtol=1e-6)


# ---- in a life, and its record ---------------------------------------------------------------------------------------


def test_a_record_has_the_reward_of_the_transition_to_each_row() -> None:
    recorder = Recorder(3)
    often = ExcursionConfig(0.2, 4)
    live(
        60, PaidBody(), horde_of(pairs(), FACE, engine="plain"), recorder=recorder, excursions=often
    )
    rows = recorder.stream().rows
    readings = rows["observation"][:, SAW].astype(float)
    is_of_step = np.append(False, np.isin(rows["phase"][:-1], (Phase.BEHAVE, Phase.EXCURSION)))
    np.testing.assert_array_equal(rows["reward"], np.where(is_of_step, readings, np.nan))
    assert np.isnan(rows["unix_s"]).all(), "a life without a clock does not know the time"


def test_a_record_with_rewards_is_learned_from_again_to_the_bit() -> None:
    """Weights, and the NMSRE of excursions, in which the return of a value is a sum of rewards."""
    recorder = Recorder(3)
    often = ExcursionConfig(0.1, 14)
    horde = horde_of(pairs(), FACE, engine="plain")
    life = live(600, PaidBody(), horde, recorder=recorder, excursions=often)
    second_horde = horde_of(pairs(), FACE, engine="plain")
    student = relearn(recorder.stream(), second_horde, FACE, excursions=often)
    assert second_horde.weights_sha256() == horde.weights_sha256()
    scores = life.student.errors.nmsre()
    np.testing.assert_array_equal(student.errors.nmsre(), scores)
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores[::2], scores[1::2])


def test_the_wall_clock_is_recorded_and_nothing_depends_on_it() -> None:
    hashes = []
    seconds = iter(range(1_000))
    for unix_clock in (None, lambda: 1.7e9 + next(seconds)):
        recorder = Recorder(3)
        horde = horde_of(pairs(), FACE, engine="plain")
        settings = {"recorder": recorder, "excursions": ExcursionConfig(0.1, 4)}
        live(60, PaidBody(), horde, unix_clock=unix_clock, **settings)
        hashes.append(horde.weights_sha256())
    assert hashes[0] == hashes[1]
    unix_s = recorder.stream().rows["unix_s"]
    assert (unix_s >= 1.7e9).all()
    assert (np.diff(unix_s) >= 0.0).all()


@pytest.mark.parametrize(
    ("drive_s", "frames_s"),
    [(0.4, [0.1, 0.2, 0.3]), (0.0, [0.0, 0.0, 0.0]), (0.2, [0.0, 0.0, 0.1])],
    ids=["in real time", "simulated at once", "simulated in half the time"],
)
def test_the_frames_of_a_drive_have_the_wall_clock_at_which_they_came(
    drive_s: float, frames_s: list[float]
) -> None:
    """A period apart before its end, and none before its beginning. By the clock at its end: all drive_s."""

    class TimedBody(ToyBody):
        now_s = 1.7e9
        drives_s: list[float] = []  # noqa: RUF012  when each began

        def reset(self, **arguments: Any) -> Any:
            if arguments.get("options"):
                self.drives_s.append(self.now_s)
                self.now_s += drive_s
            return super().reset(**arguments)

        def step(self, action: int) -> Any:
            self.now_s += 0.1
            return super().step(action)

    body = TimedBody()
    body.drives_s = []
    recorder = Recorder(3)
    settings = {"recorder": recorder, "excursions": ExcursionConfig(1.0, 4)}
    questions = pair("left", constant(0), 0.8)
    live(20, body, horde_of(questions, FACE), unix_clock=lambda: body.now_s, **settings)
    rows = recorder.stream().rows
    of_drive = rows[rows["phase"] == Phase.CENTRE]
    # The first row of a drive is the last observation before it
    frames = of_drive[(of_drive["flags"] & Flag.GAP) == 0]["unix_s"].reshape(-1, 4)
    assert len(frames) == len(body.drives_s) >= 2
    for began_s, unix_s in zip(body.drives_s, frames, strict=True):
        assert unix_s - began_s == pytest.approx([0.0, *frames_s], abs=1e-6)


# ---- test excursions in any environment ------------------------------------------------------------------------------


def outcomes_of(life: Life) -> list[tuple[int, Any, Any]]:
    """Return step, predictions and returns of each excursion."""
    outcomes_found = []
    for outcomes in life.student.errors.table.outcomes():
        if not outcomes.policy.is_behaviour:
            outcomes_found += list(
                zip(outcomes.step.tolist(), outcomes.predictions, outcomes.returns, strict=True)
            )
    return outcomes_found


def test_an_excursion_without_a_drive_follows_the_policy_learns_nothing_and_goes_on() -> None:
    """Returns, predictions and NMSRE are computed by hand, from the record."""
    horizon = 4
    gamma = 0.4
    questions = pair("left", constant(0), gamma)
    horde = horde_of(questions, FACE, engine="plain", offset=0.0)
    body = PaidWithoutDrive()
    recorder = Recorder(3)
    config = ExcursionConfig(0.1, horizon, without_drive=True)
    life = live(300, body, horde, recorder=recorder, excursions=config)

    rows = recorder.stream().rows
    in_excursion = rows["phase"] == Phase.EXCURSION
    assert (rows["action"][in_excursion] == 0).all()
    assert life.student.learning_steps + in_excursion.sum() == 300
    assert body.age == 300, "the environment was never reset"

    outcomes_found = outcomes_of(life)
    assert len(outcomes_found) > 10
    returns = []
    for step, _, measured in outcomes_found:
        rewards = body_rewards(step, horizon)
        expected = float(np.sum(gamma ** np.arange(horizon) * rewards))
        np.testing.assert_allclose(measured, expected, rtol=1e-6)
        returns.append(expected)
    predictions = np.array([prediction[0] for _, prediction, _ in outcomes_found])
    (outcomes,) = life.student.errors.table.outcomes()
    remainder = np.asarray(outcomes.remainder)[:, 0]
    last = remainder / gamma**horizon
    assert np.ptp(last) > 0.0
    assert life.student.errors.nmsre()[0] == pytest.approx(
        nmsre(predictions - remainder, np.array(returns))[-1]
    )

    second_horde = horde_of(questions, FACE, engine="plain", offset=0.0)
    student = relearn(recorder.stream(), second_horde, FACE, excursions=config)
    assert second_horde.weights_sha256() == horde.weights_sha256()
    np.testing.assert_array_equal(student.errors.nmsre(), life.student.errors.nmsre())


def test_a_reward_before_a_gap_is_recorded_once_and_belongs_to_no_row_after_it() -> None:
    """Each excursion ends with two rows of one observation: its last, and the first of the behaviour's new stream.

    The rewards of the record sum to those that the body paid. With the reward in the second row too,
    each excursion's last one would count twice, and an exported data set would pay it at a reset.
    """
    recorder = Recorder(3)
    config = ExcursionConfig(0.1, 4, without_drive=True)
    horde = horde_of(pair("left", constant(0), 0.8), FACE, engine="plain")
    live(300, PaidWithoutDrive(), horde, recorder=recorder, excursions=config)
    rows = recorder.stream().rows
    begins_stream = (rows["flags"] & Flag.GAP) > 0
    assert np.count_nonzero(begins_stream) > 10
    assert np.isnan(rows["reward"][begins_stream]).all()
    assert np.isfinite(rows["reward"][~begins_stream]).all()
    assert np.nansum(rows["reward"]) == pytest.approx(body_rewards(0, 300).sum())


def body_rewards(step: int, n: int) -> np.ndarray:
    """Return the rewards of the n steps after `step` of a body that is never reset."""
    return (np.arange(step + 1, step + 1 + n) % 7) / 7


def test_nothing_is_learned_across_an_excursion_without_a_drive() -> None:
    """A Horde that is given the steps of the behaviour alone, with a new beginning after each excursion."""
    questions = pair("left", constant(0), 0.8)
    horde = horde_of(questions, FACE, engine="plain")
    recorder = Recorder(3)
    config = ExcursionConfig(0.1, 4, without_drive=True)
    live(100, PaidWithoutDrive(), horde, recorder=recorder, excursions=config)

    second_horde = horde_of(questions, FACE, engine="plain")
    previous = None
    for row in recorder.stream().rows:
        state = (row["observation"], FACE.encode(row["observation"]))
        if previous is not None and previous["phase"] == Phase.BEHAVE:
            action = int(previous["action"])
            second_horde.learn(action, float(previous["b"]), *state, reward=float(row["reward"]))
        elif row["phase"] == Phase.BEHAVE:
            second_horde.begin(*state)
        previous = row
    assert second_horde.weights_sha256() == horde.weights_sha256()


def test_the_return_is_complete_where_an_episode_terminates_in_an_excursion() -> None:
    """It has the terms up to the end; a truncated one lacks terms, and is no test."""
    questions = pair("left", constant(0), 0.5)
    config = ExcursionConfig(1.0, 6, without_drive=True)
    for kind, is_scored in (("terminated", True), ("truncated", False)):
        body = PaidWithoutDrive(faults={3: {kind: 1}})
        life = live(4, body, horde_of(questions, FACE, engine="plain"), excursions=config)
        outcomes_found = outcomes_of(life)
        assert len(outcomes_found) == is_scored
        if is_scored:
            expected = (1 + 0.5 * 2 + 0.25 * 3) / 7
            np.testing.assert_allclose(outcomes_found[0][2], expected, rtol=1e-6)


def test_without_a_drive_excursions_are_off_unless_asked_for() -> None:
    horde = horde_of(pair("left", constant(0), 0.5), FACE, engine="plain")
    life = live(30, PaidWithoutDrive(), horde, excursions=ExcursionConfig(1.0, 3))
    assert life.student.errors.n_excursions == 0


def test_a_policy_over_real_valued_actions_cannot_be_followed() -> None:
    gaussian = Gaussian(mean=[0.0], std=[1.0], channels=[0], b=1)
    questions = [GVF("torque", gaussian, Channel(0), 0.5)]
    with pytest.raises(ValueError, match="'torque': its target policy is Gaussian"):
        refuse_not_followed(policies_under_test(questions), questions)


@pytest.mark.parametrize("source", [{}, {"minari": "a/b-v0"}])
def test_excursions_are_refused_where_they_change_nothing(source: dict[str, Any]) -> None:
    """Robots make them in any case, recorded data never."""
    with pytest.raises(BadInput, match="--excursions is for an environment of --env"):
        refuse_early(replace(LearnConfig(), excursions=True, **source))


# ---- families and question files -------------------------------------------------------------------------------------


def test_values_asks_about_the_reward_under_each_policy_and_time_scale() -> None:
    questions = values(FACE, gammas=(0.0, 0.9))
    assert [question.name for question in questions[:4]] == [
        "behaviour/g0/reward",
        "behaviour/g0.9/reward",
        "uniform/g0/reward",
        "uniform/g0.9/reward",
    ]
    assert len(questions) == 2 * (2 + N_ACTIONS)
    assert {type(question.cumulant) for question in questions} == {Reward}
    columns = question_columns(questions, FACE)
    assert {(one.family, one.channel) for one in columns} == {("values", "reward")}


def questions_in(tmp_path: Path, text: str) -> list[GVF]:
    path = tmp_path / "questions.toml"
    path.write_text(text)
    return from_file(path, FACE)


def test_a_question_file_asks_about_the_reward(tmp_path: Path) -> None:
    text = '[[family]]\npolicies = ["left"]\ngammas = [0.5]\nreward = true\nlam = 0.7\n'
    (alone,) = questions_in(tmp_path, text)
    assert (alone.name, alone.cumulant, alone.lam) == ("left/g0.5/reward", Reward(), 0.7)
    both = questions_in(tmp_path, text + 'channels = ["saw"]\n')
    assert [question.name for question in both] == ["left/g0.5/saw", "left/g0.5/reward"]
    control = '[[control]]\nname = "best"\nreward = true\ngamma = 0.9\n'
    (best,) = questions_in(tmp_path, control)
    assert best.finds_policy
    assert best.cumulant == Reward()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[family]]\npolicies = ["left"]\ngammas = [0.5]\nreward = 1\n', "true or false, not 1"),
        ('[[control]]\nname = "x"\ngamma = 0.5\n', "a channel or reward = true"),
        (
            '[[control]]\nname = "x"\ngamma = 0.5\nchannel = "saw"\nreward = true\n',
            "a channel or reward = true",
        ),
    ],
)
def test_a_mistake_about_the_reward_is_named(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        questions_in(tmp_path, text)


# ---- data sets -------------------------------------------------------------------------------------------------------

NEXT_REWARD = [GVF("next reward", ConstantAction(0, n_actions=2), Reward(), 0.0)]
N_ROWS = 60
ACTIONS = np.arange(N_ROWS) // 2 % 2
OBSERVATIONS = (np.arange(N_ROWS) % 3 / 2)[:, np.newaxis]
REWARDS = np.where(ACTIONS == 0, 5.0, -1.0)
B = np.full(N_ROWS, 0.5)


def learned(tmp_path: Path, **settings: Any) -> Any:
    """Learn the reward that follows action 0, which is 5."""
    defaults = {"b": B, "out": tmp_path / "run", "offset": "0", "step_size": 0.5, "passes": 1}
    return learn_from(OBSERVATIONS, ACTIONS, questions=NEXT_REWARD, **{**defaults, **settings})


def test_learn_from_takes_the_reward_of_each_action(tmp_path: Path) -> None:
    run = learned(tmp_path, rewards=REWARDS)
    np.testing.assert_allclose(run.predictions()[:, 0], 5.0, atol=0.1)


def test_the_first_channel_of_rewards_is_the_reward(tmp_path: Path) -> None:
    run = learn_from(
        np.column_stack([OBSERVATIONS, REWARDS]),
        ACTIONS,
        questions=NEXT_REWARD,
        b=B,
        channels=["place", "payment"],
        rewards=["payment"],
        out=tmp_path / "run",
        offset="0",
        step_size=0.5,
        passes=1,
    )
    np.testing.assert_allclose(run.predictions()[:, 0], 5.0, atol=0.1)
    assert run.interface.names == ("place", "payment")


def test_data_without_rewards_are_refused_for_a_question_about_the_reward(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'next reward' is about the reward, but these data"):
        learned(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_reward_of_a_terminal_transition_is_learned(tmp_path: Path) -> None:
    """Rows (s, a, r, done): every second action ends an episode; its reward 5 leads to the added terminal row."""
    is_done = np.arange(N_ROWS) % 2 == 1
    run = learned(
        tmp_path,
        rewards=np.where(is_done, 5.0, np.nan),
        terminations=is_done,
        convention="transition",
    )
    assert run.summary["learning_steps"] == N_ROWS
    np.testing.assert_allclose(
        run.horde.predict(run.interface.encode(np.ones(1, np.float32)), np.ones(1)),
        5.0,
        atol=0.2,
    )


def recorded_stream() -> Any:
    recorder = Recorder(3, header={"period_s": 0.1})
    faults = {20: {"terminated": 1}, 33: {"gap": 1}}
    horde = horde_of(pairs(), FACE, engine="plain")
    live(50, PaidBody(faults), horde, recorder=recorder)
    return recorder.stream()


def header_of_toy() -> dict[str, Any]:
    return {
        "channels": [channel._asdict() for channel in FACE.channels],
        "actions": list(FACE.actions),
        "period_s": 0.1,
        "low": [0.0] * 3,
        "high": [1.0] * 3,
        "tile_layout": None,
    }


def test_minari_gets_the_rewards_and_gives_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    stream = recorded_stream()
    write_minari(tmp_path, "toy/paid-v0", header_of_toy(), episodes_of([stream]))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    data = minari.load_dataset("toy/paid-v0")
    expected = np.concatenate([episode.reward for episode in episodes_of([stream])])
    stored = np.concatenate([episode.rewards for episode in data.iterate_episodes()])
    np.testing.assert_array_equal(stored, expected)
    assert len(set(stored.tolist())) == 7

    table = open_minari("toy/paid-v0")
    assert table.header["reward_known"]
    rows = np.concatenate([part.rows for part in table])
    read_back = rows["reward"][np.isfinite(rows["reward"])]
    np.testing.assert_array_equal(read_back, expected)


def test_unknown_rewards_of_a_record_stay_unknown_in_minari(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari")
    stream = recorded_stream()
    stream.rows["reward"] = np.nan
    write_minari(tmp_path, "toy/paid-v0", header_of_toy(), episodes_of([stream]))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    table = open_minari("toy/paid-v0")
    assert not table.header["reward_known"]
