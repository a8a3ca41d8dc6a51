"""Questions about the reward in whole runs: folders, resumes, exports, shards, robots, judged policies."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest

from horde_agent import (
    GVF,
    Behaviour,
    Channel,
    ConstantAction,
    Horde,
    Interface,
    Reward,
    evaluate,
)
from horde_agent.cli import learn
from horde_agent.cluster import ShardedHorde, sharded
from horde_agent.formats.registry import format_of
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life
from horde_agent.policies import StickyRandom
from horde_agent.record import Flag, Phase, Recorder, read
from tests.agent.commands import horde, refused, summary_of
from tests.agent.doubles import (
    N_ACTIONS,
    SAW,
    PaidBody,
    RestorablePaidBody,
    constant,
    horde_of,
    life_of,
    live,
)
from tests.agent.test_cluster import LocalCluster
from tests.oracles.evaluation import nmsre, truncated_return

LIFE = "learn --questions values --horizon 12 --excursion-probability 0.03 --seed 1"
FACE = Interface.of(PaidBody())
GAMMA = 0.8
ADDED = """
[[family]]
policies = ["left"]
gammas = [0.5]
channels = ["saw"]
reward = true
"""


def pair(name: str, policy: Any) -> list[GVF]:
    """Return a question about the reward, and one about the channel with the same readings."""
    return [
        GVF(f"{name}/reward", policy, Reward(), GAMMA),
        GVF(f"{name}/saw", policy, Channel(SAW), GAMMA),
    ]


QUESTIONS = [*pair("left", constant(0)), *pair("behaviour", Behaviour())]


@pytest.fixture(scope="module")
def paid_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 400 steps with the family `values`, and with a live feed."""
    path = tmp_path_factory.mktemp("runs") / "paid"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learn, "make_env", lambda _config: RestorablePaidBody())
        assert horde(LIFE, f"--steps 400 --out {path}") == 0
    return path


# ---- the folder of a run ---------------------------------------------------------------------------------------------


def test_status_and_report_show_the_reward(paid_run: Path) -> None:
    """The mean of the readings of the sawtooth is about 3/7, and the family's channel is `reward`."""
    rewards = read(paid_run / "log" / "life.rec").rows["reward"]
    status = json.loads((paid_run / "live" / "now.json").read_text())
    assert status["reward"] == pytest.approx(np.nanmean(rewards[:-1])), "before the last step"
    assert horde(f"report {paid_run}") == 0
    page = (paid_run / "report.html").read_text()
    match = re.search(r"<b>([^<]*)</b><span>mean reward of a step</span>", page)
    assert match is not None
    assert float(match[1]) == pytest.approx(np.nanmean(rewards), abs=5e-4)


def test_a_run_that_is_resumed_from_a_snapshot_equals_an_uninterrupted_one(
    paid_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learn, "make_env", lambda _config: RestorablePaidBody())
    assert horde(LIFE, f"--steps 230 --out {tmp_path / 'run'}") == 0
    assert horde(f"resume {tmp_path / 'run'} --steps 400") == 0
    for key in ("weights_sha256", "mean_nmsre", "n_excursions"):
        assert summary_of(tmp_path / "run")[key] == summary_of(paid_run)[key]


def test_a_question_about_the_reward_added_to_a_life_learns_from_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of the channel with the same readings does, to the bit; offsets would begin with other readings."""
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "added.toml").write_text(ADDED)
    monkeypatch.setattr(learn, "make_env", lambda _config: RestorablePaidBody())
    run = tmp_path / "run"
    words = "learn --questions values --offset 0 --seed 1 --steps 100"
    assert horde(words, f"--out {run}") == 0
    added = f"--add {tmp_path / 'added.toml'} --learn-from-record"
    assert horde(f"resume {run} --steps 120", added) == 0
    tables = tmp_path / "tables"
    assert horde(f"export {run} --to parquet --predictions --out {tables}") == 0
    table = parquet.read_table(tmp_path / "tables-predictions.parquet")
    reward = table["left/g0.5/reward"].to_numpy()
    assert np.abs(reward).max() > 0.01
    np.testing.assert_array_equal(reward, table["left/g0.5/saw"].to_numpy())


# ---- exports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["parquet", "mcap"])
def test_an_exported_life_with_rewards_is_learned_from_to_the_bit(
    to: str, paid_run: Path, tmp_path: Path
) -> None:
    pytest.importorskip({"parquet": "pyarrow", "mcap": "mcap"}[to])
    data = tmp_path / f"life.{to}"
    assert horde(f"export {paid_run} --to {to} --out {data}") == 0
    columns = next(tmp_path.glob("*-columns.toml"))
    source = f"--data {data} --columns {columns}"
    words = f"learn {source} --questions values --horizon 12 --out {tmp_path / 'again'}"
    assert horde(words) == 0
    for key in ("weights_sha256", "learning_steps", "n_excursions"):
        assert summary_of(tmp_path / "again")[key] == summary_of(paid_run)[key]


def test_lerobot_gets_the_rewards_and_gives_them_back(paid_run: Path, tmp_path: Path) -> None:
    """The same transitions are learned from, in the same order; so the weights are the same."""
    pytest.importorskip("pyarrow")
    data = tmp_path / "arm"
    assert horde(f"export {paid_run} --to lerobot --out {data}") == 0
    run = tmp_path / "again"
    assert horde(f"learn --data {data} --questions values --horizon 12 --out {run}") == 0
    assert summary_of(run)["weights_sha256"] == summary_of(paid_run)["weights_sha256"]
    original = read(paid_run / "log" / "life.rec").rows
    is_learned = np.isfinite(original["reward"]) & np.append(
        False, original["phase"][:-1] == Phase.BEHAVE
    )
    replayed = read(run / "log" / "life.rec").rows["reward"]
    np.testing.assert_array_equal(replayed[np.isfinite(replayed)], original["reward"][is_learned])


@pytest.fixture(scope="module")
def unpaid_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table without rewards."""
    folder = tmp_path_factory.mktemp("unpaid")
    rows = [f"{k % 7 / 7:.3f},{k % 2},0.5" for k in range(80)]
    (folder / "t.csv").write_text("\n".join(["x,a,p", *rows, ""]))
    columns = 'period_s = 0.1\naction = "a"\nb = "p"\n[[channel]]\ncolumn = "x"\n'
    (folder / "columns.toml").write_text(columns)
    run = folder / "run"
    words = (
        f"learn --data {folder / 't.csv'} --columns {folder / 'columns.toml'} --questions nexting"
    )
    assert horde(f"{words} --out {run}") == 0
    return run


@pytest.mark.parametrize("to", ["parquet", "mcap", "lerobot"])
def test_an_export_of_a_record_without_rewards_names_none(
    to: str,
    unpaid_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So a question about the reward is refused, and does not skip each step."""
    pytest.importorskip({"parquet": "pyarrow", "mcap": "mcap", "lerobot": "pyarrow"}[to])
    data = tmp_path / f"unpaid.{to}"
    assert horde(f"export {unpaid_run} --to {to} --out {data}") == 0
    words = f"learn --data {data} --questions values --out {tmp_path / 'run'}"
    if to != "lerobot":
        columns = tmp_path / "unpaid-columns.toml"
        if to == "parquet":
            columns = tmp_path / "unpaid.parquet-columns.toml"
        assert "reward" not in tomllib.loads(columns.read_text())
        words += f" --columns {columns}"
    monkeypatch.chdir(tmp_path)
    assert "is about the reward, but these data have no rewards" in refused(words.split(), capsys)


def test_a_record_without_rewards_is_not_replayed_with_questions_about_them(
    unpaid_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = f"learn --backend replay --log {unpaid_run} --questions values --out again"
    assert "is about the reward, but these data have no rewards" in refused(words.split(), capsys)


def test_excursions_without_a_policy_to_follow_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "learn --env CartPole-v1 --excursions --questions nexting --steps 50 --out run"
    assert "--excursions has no policy to follow" in refused(words.split(), capsys)


# ---- judged policies -------------------------------------------------------------------------------------------------


def test_a_reward_that_is_no_channel_is_what_policies_are_judged_by(tmp_path: Path) -> None:
    """Episodes of one step; action 1 pays 3, action 0 pays 1, each taken half of the time."""
    actions = np.arange(40) % 2
    lines = ["episode,x,a,b,gain,done"]
    lines += [f"{i},0.5,{a},0.5,{1 + 2 * a},1" for i, a in enumerate(actions.tolist())]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "columns.toml").write_text(
        'period_s = 1.0\nepisode = "episode"\naction = "a"\nb = "b"\nnext_reward = "gain"\n'
        'terminated = "done"\nconvention = "transition"\n\n'
        '[[channel]]\ncolumn = "x"\nlow = 0.0\nhigh = 1.0\n'
    )
    judged = evaluate(
        tmp_path / "log.csv",
        ["constant:1", "uniform"],
        columns=tmp_path / "columns.toml",
        n_resamples=100,
        estimators=("wis",),
    )
    values = [judgement.line("wis").value for judgement in judged.judgements]
    np.testing.assert_allclose(values, [3.0, 2.0])


PAID = """period_s = 1.0
episode = "episode"
action = "a"
actions = ["left", "right"]
b = "b"
next_reward = "gain"
convention = "transition"
[[channel]]
column = "x"
low = 0.0
high = 1.0
"""


def write_paid_table(folder: Path, gains: list[str], columns: str = PAID, x: str = "0.5") -> None:
    """Write log.csv with one episode, in which a row has each of the gains, and columns.toml."""
    lines = ["episode,x,a,b,gain"]
    lines += [f"0,{x},{i % 2},0.5,{gain}" for i, gain in enumerate(gains)]
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    (folder / "columns.toml").write_text(columns)


@pytest.mark.parametrize("command", ["learn --data", "learn --steps 20 --data", "evaluate"])
@pytest.mark.parametrize("cell", ["nan", "", "inf"])
def test_rewards_of_which_none_is_a_number_are_refused(
    command: str,
    cell: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each step of a question about the reward would be skipped; the last row of 40 leads to no row.

    Its reward counts in evaluate, which needs one at each step.
    """
    monkeypatch.chdir(tmp_path)
    write_paid_table(tmp_path, [cell] * 39 + ["1.0"])
    words = f"{command} log.csv --columns columns.toml".split()
    message = "the column 'gain' has no reward of any of the 39 steps"
    if command == "evaluate":
        words += ["--policy", "uniform"]
        message = "log.csv has no finite reward after step 0: each step of an episode needs one"
    assert message in refused(words, capsys)


@pytest.mark.parametrize(
    ("replaced", "by", "message"),
    [
        ("low = 0.0\nhigh = 1.0\n", "", "has no number in the column 'x'; its first cell is"),
        ("[[channel]]", 'missing = "gap"\n[[channel]]', "every one lacks a number"),
        ("[[channel]]", 'missing = "error"\n[[channel]]', "row 1, column 'x'"),
    ],
)
def test_a_channel_of_which_no_reading_is_a_number_is_refused(
    replaced: str,
    by: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_paid_table(tmp_path, ["1.0"] * 40, PAID.replace(replaced, by), x="nan")
    words = ["learn", "--data", "log.csv", "--columns", "columns.toml"]
    assert message in refused(words, capsys)


def test_steps_without_a_reward_are_counted_in_the_notes(tmp_path: Path) -> None:
    write_paid_table(tmp_path, ["1.0", "nan", "nan"] * 10)
    table = format_of(tmp_path / "log.csv").open(tmp_path / "log.csv", tmp_path / "columns.toml")
    assert sum(len(part.rows) for part in table) == 30
    assert "19 of 29 steps have no reward in the column 'gain'" in " ".join(table.notes)


@pytest.mark.parametrize("source", ["run", "minari"])
def test_policies_are_judged_by_the_rewards_of_a_life(
    source: str, paid_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The toy body pays the same whatever is done: 20 steps of a sawtooth of mean 3/7."""
    words = f"{paid_run}"
    if source == "minari":
        pytest.importorskip("minari")
        sets = tmp_path / "sets"
        assert horde(f"export {paid_run} --to minari --out {sets}") == 0
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(sets))
        words = "--minari horde/paid-v0"
    out = tmp_path / "judged"
    options = f"--horizon 7 --resamples 100 --estimators wis --out {out}"
    assert horde(f"evaluate {words} --policy uniform", options) == 0
    result = json.loads((out / "result.json").read_text())
    (policy,) = result["policies"]
    (estimate,) = policy["estimates"]
    assert estimate["value"] == pytest.approx(3.0, abs=1e-3)


# ---- shards, robots, new demons --------------------------------------------------------------------------------------


def test_shards_learn_about_the_reward_as_one_horde_to_the_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharded, "Cluster", lambda address, n_cpus: LocalCluster())
    alone = horde_of(QUESTIONS, FACE, engine="plain")
    live(60, PaidBody(), alone)
    coder = FACE.coder
    kind = {"n_features": coder.n_features, "n_active": coder.n_active}
    with ShardedHorde(QUESTIONS, config=alone.config, shards=2, **kind) as together:
        live(60, PaidBody(), together)
        assert together.weights_sha256() == alone.weights_sha256()
    assert np.abs(alone.weights()[0][0]).max() > 0.0


def test_several_robots_learn_the_value_of_the_rewards_of_each() -> None:
    """Bit for bit that of a channel with the same readings."""
    shared = horde_of(QUESTIONS, FACE, "deferred", engine="plain")
    recorder = Recorder(3, header={"robots": 2})
    bodies = [PaidBody({20: {"terminated": 1}}), PaidBody({31: {"gap": 1}})]
    behaviours = [StickyRandom(N_ACTIONS) for _ in bodies]
    rngs = [np.random.default_rng(seed) for seed in range(2)]
    tests = ExcursionConfig(0.05, 4)
    with life_of(bodies, shared, behaviours, rngs, excursions=tests, recorder=recorder) as life:
        life.run(400)
    theta, _ = shared.weights()
    assert np.abs(theta[0]).max() > 0.0
    np.testing.assert_array_equal(theta[::2], theta[1::2])
    rows = recorder.stream().rows
    for robot in range(2):
        assert np.isfinite(rows["reward"][rows["robot"] == robot]).sum() > 100


def test_demons_added_in_a_life_learn_about_the_reward_from_then_on() -> None:
    """As one of a channel with the same readings."""
    learner = horde_of(QUESTIONS[:2], FACE, engine="plain")
    with Life(PaidBody(), learner, StickyRandom(N_ACTIONS), np.random.default_rng(0)) as life:
        life.run(30)
        life.add(QUESTIONS[2:])
        life.run(60)
    theta, _ = learner.weights()
    assert np.abs(theta[2]).max() > 0.0
    np.testing.assert_array_equal(theta[::2], theta[1::2])


# ---- excursions in an environment of Gymnasium -----------------------------------------------------------------------


def test_the_nmsre_of_excursions_in_cartpole_is_that_computed_by_hand() -> None:
    """Predictions by a Horde that is given the behaviour's steps; returns are sums of the recorded rewards.

    An excursion ends after 14 steps or when the pole falls; one at whose end nothing is known is
    no test. After a fall nothing follows; else .8^14 of the return does, for which the prediction
    there stands in the error, and the mean return in the variance.
    """
    horizon = 14
    env = gymnasium.make("CartPole-v1")
    face = Interface.of(env)
    left = ConstantAction(0, n_actions=2)
    questions = [GVF("value", left, Reward(), GAMMA), GVF("angle", left, Channel(2), GAMMA)]
    learner = horde_of(questions, face, engine="plain")
    recorder = Recorder(len(face.channels))
    config = ExcursionConfig(0.05, horizon, without_drive=True)
    behaviour = StickyRandom(2)
    rng = np.random.default_rng(0)
    with Life(env, learner, behaviour, rng, excursions=config, recorder=recorder) as life:
        life.run(1_500)

    rows = recorder.stream().rows
    by_hand = horde_of(questions, face, engine="plain")
    tests = retold(rows, by_hand, face, horizon)
    assert len(tests.returns) > 20
    n_values = len(set(tests.returns[:, 0].round(3)))
    assert n_values > 3, "the pole falls in some, at different times"
    assert sorted(set(tests.share)) == [0.0, GAMMA**horizon]
    share = tests.share[:, None]
    mean = tests.returns.mean(axis=0) / (1.0 - share.mean())
    predictions = tests.predictions + share * (mean - tests.last)
    returns = tests.returns + share * mean
    expected = [nmsre(predictions[:, i], returns[:, i])[-1] for i in range(2)]
    np.testing.assert_allclose(life.student.errors.nmsre(), expected, rtol=1e-5)
    assert by_hand.weights_sha256() == learner.weights_sha256()


class Excursions(NamedTuple):
    """Complete excursions: arrays of shape (n_excursions, n_questions); `share` of shape (n_excursions,)."""

    predictions: np.ndarray  # at their beginnings
    last: np.ndarray  # at their ends
    returns: np.ndarray
    share: np.ndarray  # of the return after their ends


def retold(rows: np.ndarray, by_hand: Horde, face: Interface, horizon: int) -> Excursions:
    """Give a Horde the behaviour's steps of a record, and return the excursions in it.

    The cumulants are the reward and channel 2.
    """
    excursions = excursions_in(rows, horizon)
    predictions = []
    last = []
    returns = []
    share = []
    for i, row in enumerate(rows):
        state = (row["observation"], face.encode(row["observation"]))
        follows_behaviour = i > 0 and rows["phase"][i - 1] == Phase.BEHAVE
        if follows_behaviour and not row["flags"] & Flag.GAP:
            by_hand.learn(
                int(rows["action"][i - 1]),
                float(rows["b"][i - 1]),
                *state,
                terminated=bool(row["flags"] & Flag.TERMINATED),
                reward=float(row["reward"]),
            )
        elif row["phase"] == Phase.BEHAVE:
            by_hand.begin(*state)
        steps = excursions.get(i, [])
        if len(steps) == horizon or (steps and rows["flags"][steps[-1]] & Flag.TERMINATED):
            cumulants = [rows["reward"][steps], rows["observation"][steps, 2]]
            predictions.append(by_hand.predict(state[1]))
            returns.append(truncated_return(cumulants, np.full(2, GAMMA), horizon))
            last.append(by_hand.predict(face.encode(rows["observation"][steps[-1]])))
            is_over = rows["flags"][steps[-1]] & Flag.TERMINATED
            share.append(0.0 if is_over else GAMMA**horizon)
    return Excursions(*(np.array(values) for values in (predictions, last, returns, share)))


def excursions_in(rows: np.ndarray, horizon: int) -> dict[int, list[int]]:
    """Return the first row of each excursion in a record, and the rows that its steps led to."""
    excursions: dict[int, list[int]] = {}
    steps: list[int] = []
    for i in range(len(rows) - 1):
        if rows["phase"][i] != Phase.EXCURSION:
            steps = []
            continue
        if not steps or len(steps) == horizon:
            steps = []
            excursions[i] = steps
        steps.append(i + 1)
    return excursions
