"""`horde evaluate`: data, policies, what it writes, and what it refuses."""

from __future__ import annotations

import json
import re
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import ConstantAction, PolicyFunction, evaluate
from horde_agent.cli import main
from horde_agent.formats.columns import Columns
from horde_agent.formats.tables import Table
from horde_agent.interface import Interface
from horde_agent.judging.recorded import recorded_data
from horde_agent.judging.result import remarks
from horde_agent.record import NO_ACTION, Flag, Phase, new_rows
from horde_agent.refusals import BadInput
from horde_agent.scoring import horde_value
from horde_agent.scoring.judgement import LABELS
from horde_agent.scoring.verdict import WeightShare
from tests.agent.table_files import draft_columns

FAST = ["wdr", "dr", "cwpdis", "pdis", "wis", "ois", "fqe"]
COLUMNS = """
period_s = 1.0
action = "a"
actions = ["left", "right"]
b = "b"
episode = "episode"
terminated = "done"
convention = "transition"
[[channel]]
column = "x"
low = 0.0
high = 1.0
[[channel]]
column = "r"
name = "reward"
transition = true
"""
POLICIES = """
def right(observation, tiles):
    assert observation.shape == (1,)
    return [0.4, 0.6]

def three(observation, tiles):
    return [0.2, 0.2, 0.6]

def alone(observation):
    return [0.5, 0.5]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 80 episodes of at most 8 steps on a line, its columns, and a file of policies."""
    path = tmp_path_factory.mktemp("judged")
    rng = np.random.default_rng(0)
    lines = ["episode,x,a,b,r,done"]
    for episode in range(80):
        x = 0.5
        for _ in range(8):
            p_right = 0.4
            if x > 0.5:
                p_right = 0.6
            action = int(rng.random() < p_right)
            b = 1.0 - p_right
            if action:
                b = p_right
            x_next = x + 0.1 * (2 * action - 1)
            is_done = x_next > 0.85 or x_next < 0.15
            lines.append(f"{episode},{x:.2f},{action},{b:.1f},{float(x_next > 0.7)},{int(is_done)}")
            x = x_next
            if is_done:
                break
    (path / "log.csv").write_text("\n".join(lines) + "\n")
    (path / "columns.toml").write_text(COLUMNS)
    (path / "mine.py").write_text(POLICIES)
    return path


def command(folder: Path, *words: str) -> list[str]:
    """Return the words of `horde evaluate` on the log."""
    columns = ["--columns", str(folder / "columns.toml")]
    return ["evaluate", str(folder / "log.csv"), *columns, "--resamples", "200", *words]


def test_the_command_prints_a_verdict_and_writes_result_and_page(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    policy = f"{folder / 'mine.py'}:right"
    words = ["--policy", policy, "--policy", "constant:right", "--out", str(out)]
    assert main(command(folder, *words, "--gamma", "0.9", "--estimators", *FAST)) == 0
    shown = capsys.readouterr().out
    assert f"{policy}: better than the logged behaviour by" in " ".join(shown.split())
    assert re.search(
        r"constant:right: these data cannot judge this policy: \d+% of the weight", shown
    )
    result = json.loads((out / "result.json").read_text())
    assert result["n_episodes"] == 80
    assert result["n_terminated"] + result["n_truncated"] == 80
    assert [line["estimator"] for line in result["policies"][0]["estimates"]] == FAST
    assert [policy["can_judge"] for policy in result["policies"]] == [True, False]
    page = (out / "report.html").read_text()
    for key in FAST:
        assert LABELS[key].replace("importance sampling", "IS") in page
    pytest.importorskip("matplotlib")
    assert page.count('<img src="data:image/png;base64,') == 2


def test_python_gives_the_numbers_of_the_command(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--policy", "uniform", "--estimators", "cwpdis", "--out", str(out)]
    assert main(command(folder, *words)) == 0
    from_command = json.loads((out / "result.json").read_text())["policies"][0]["estimates"][0]
    evaluation = evaluate(
        folder / "log.csv",
        PolicyFunction(lambda observation, tiles: [0.5, 0.5], 2),
        columns=folder / "columns.toml",
        estimators=("cwpdis",),
        n_resamples=200,
    )
    line = evaluation.judgements[0].line("cwpdis")
    assert line.value == from_command["value"]
    assert (line.low, line.high) == (from_command["low"], from_command["high"])
    # The behaviour's own value is its mean return, with weights of 1
    alone = evaluate(
        folder / "log.csv",
        {"as logged": lambda observation: _as_logged(observation[0])},
        columns=folder / "columns.toml",
        estimators=("ois", "wis"),
        n_resamples=50,
    )
    for line in alone.judgements[0].lines:
        assert line.value == pytest.approx(alone.behaviour.value)
        assert line.effective_size == pytest.approx(80.0)


def _as_logged(x: float) -> list[float]:
    """Return the probabilities with which the log was made."""
    if x > 0.505:
        return [0.4, 0.6]
    return [0.6, 0.4]


def test_the_gvf_of_the_horde_is_among_the_estimates(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fitted Q and the GVF have the same tiles and nearly the same fixed point."""
    monkeypatch.setattr(horde_value, "UPDATES", 3_000)
    evaluation = evaluate(
        folder / "log.csv",
        "uniform",
        columns=folder / "columns.toml",
        estimators=("fqe", "gvf"),
        gamma=0.8,
        n_resamples=50,
    )
    judged = evaluation.judgements[0]
    assert judged.line("gvf").value == pytest.approx(judged.line("fqe").value, abs=0.1)
    assert judged.line("gvf").low < judged.line("gvf").high
    assert judged.line("gvf").low == judged.line("fqe").low


def test_a_notebook_shows_a_table_and_the_verdict(folder: Path) -> None:
    """Names come from users: they are escaped."""
    evaluation = evaluate(
        folder / "log.csv",
        {"<b>half</b>": _half, "never": "constant:left"},
        columns=folder / "columns.toml",
        estimators=("wdr", "wis"),
        n_resamples=50,
    )
    shown = evaluation._repr_html_()
    assert shown.count("<table>") == shown.count("</table>") == 2
    first = evaluation.judgements[0]
    assert f"<caption>&lt;b&gt;half&lt;/b&gt;: {first.verdict}</caption>" in shown
    assert "<b>" not in shown
    for line in (*first.lines, evaluation.behaviour):
        assert f"<td>{line.value:.4g}</td>" in shown
    assert shown.index("weighted doubly robust") < shown.index("weighted importance sampling")


def _half(observation: np.ndarray) -> list[float]:
    return [0.5, 0.5]


def test_a_policy_of_which_nothing_is_known_is_called_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log always goes right, by b = 1/2."""
    rows = [(k // 3, 1, 1.0 + k % 2) for k in range(60)]
    columns = described(tmp_path, TOP + OWN_REWARD + X)
    words = ["evaluate", str(table_of(tmp_path, rows)), "--columns", str(columns)]
    words += ["--policy", "constant:left", "--out", str(tmp_path / "out"), "--resamples", "50"]
    assert main([*words, "--estimators", "wdr", "ois"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"ordinary importance sampling +unknown +- +- +0\.0", shown)
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [line["value"] for line in result["policies"][0]["estimates"]] == [None, None]
    assert not result["policies"][0]["can_judge"]


def test_a_value_after_truncations_needs_an_end_or_a_discount(tmp_path: Path) -> None:
    rows = stream([B, B, E, B, B, E], [Flag.GAP, 0, 0, Flag.GAP, 0, 0], [0, 1, 2, 0, 3, 4])
    assert recorded_data("rows", rows, HEADER).n_unknown_ends == 0
    rows["observation"][:, 0] = np.nan  # a dead sensor, and not two unknown ends
    recorded = recorded_data("rows", rows, HEADER)
    assert recorded.n_unknown_ends == 0
    assert np.isfinite(recorded.observations).all()
    columns = TOP + LED_HERE + 'convention = "observation"\n' + X
    with pytest.raises(BadInput, match="so a value after a truncation is infinite at gamma = 1"):
        evaluate(
            table_of(tmp_path, [(0, 1, 0.0), (0, 1, 2.0), (1, 1, 0.0), (1, 1, 4.0)]),
            "uniform",
            columns=described(tmp_path, columns),
            truncated="fitted",
        )


def test_a_value_outside_of_its_interval_is_remarked_with_the_reason(folder: Path) -> None:
    """The interval is that of the corrected value, which a fitted Q with too few tiles contradicts."""
    evaluation = evaluate(
        folder / "log.csv",
        "uniform",
        columns=folder / "columns.toml",
        estimators=("wdr", "fqe"),
        n_resamples=50,
    )
    judged = evaluation.judgements[0]
    corrected, fitted = judged.lines
    inside = judged._replace(lines=[corrected, fitted._replace(value=corrected.value)])
    outside = judged._replace(lines=[corrected, fitted._replace(value=fitted.high + 1.0)])
    assert remarks(inside) == []
    (remark,) = remarks(outside)
    assert remark.startswith("Outside of the interval: fitted Q. The interval is that of")


def test_a_model_of_stable_baselines_is_judged(folder: Path, tmp_path: Path) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    gymnasium = pytest.importorskip("gymnasium")
    model = sb3.PPO("MlpPolicy", _Line(gymnasium), n_steps=8, batch_size=8, device="cpu", seed=0)
    model.save(tmp_path / "model.zip")
    other_model = sb3.PPO(
        "MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=8, batch_size=8, device="cpu"
    )
    other_model.save(tmp_path / "other.zip")
    settings: dict[str, Any] = {"columns": folder / "columns.toml", "estimators": ("wis",)}
    judged = evaluate(folder / "log.csv", str(tmp_path / "model.zip"), **settings).judgements[0]
    by_hand = evaluate(folder / "log.csv", model, **settings).judgements[0]
    assert judged.line("wis").value == by_hand.line("wis").value
    with pytest.raises(
        BadInput, match=r"observes numbers of shape \[4\], but the data have 1 chan"
    ):
        evaluate(folder / "log.csv", str(tmp_path / "other.zip"), **settings)


def _Line(gymnasium: Any) -> Any:  # noqa: N802  it makes an environment
    """Return an environment with the spaces of the log."""

    class LineEnv(gymnasium.Env):  # type: ignore[misc,name-defined]
        observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            return np.zeros(1, np.float32), 0.0, False, False, {}

    return LineEnv()


# ---- episodes of rows --------------------------------------------------------------------------------


def stream(phases: list[Phase], flags: list[int], rewards: list[float]) -> np.ndarray:
    """Return rows of a recording with the channels x and reward, of which the latter led to each row."""
    rows = new_rows(len(phases), 2)
    rows["observation"] = np.column_stack([np.zeros(len(phases)), rewards])
    rows["phase"] = phases
    rows["flags"] = flags
    rows["step"] = np.arange(len(phases))
    rows["action"] = np.where(rows["phase"] == Phase.BEHAVE, 0, NO_ACTION)
    rows["b"] = np.where(rows["phase"] == Phase.BEHAVE, 0.5, np.nan)
    return rows


HEADER = {
    "channels": [
        {"name": "x", "group": "x", "unit": "1", "is_sensor": True, "step": None},
        {"name": "reward", "group": "reward", "unit": "1", "is_sensor": True, "step": None},
    ],
    "actions": ["stay", "go"],
    "period_s": 1.0,
    "low": [0.0, -10.0],
    "high": [1.0, 10.0],
    "tile_layout": '[[tiling]]\ngroup = "x"\nintervals = [2]\ntilings = 1\n',
    "notes": [],
}
B = Phase.BEHAVE
E = Phase.END


def test_a_reward_belongs_to_the_step_that_led_to_its_row() -> None:
    """Two episodes of two steps; the reward in the first row of each led to it from nowhere."""
    rows = stream([B, B, E, B, B, E], [Flag.GAP, 0, 4, Flag.GAP, 0, 0], [9, 1, 2, 9, 3, 4])
    data = recorded_data("rows", rows, HEADER)
    assert data.episodes.reward.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert data.episodes.is_terminated.tolist() == [True, False]
    assert data.channels == ("x",)
    assert any("1 of 2 episodes were truncated, after 2 to 2 steps" in note for note in data.notes)


def test_the_recorded_reward_counts_before_a_channel_of_that_name() -> None:
    rows = stream([B, B, E], [Flag.GAP, 0, 4], [9, 1, 2])
    rows["reward"] = [np.nan, 5.0, 6.0]
    assert recorded_data("rows", rows, HEADER).episodes.reward.tolist() == [5.0, 6.0]


def test_rewards_after_a_gap_within_an_episode_are_refused_not_lost() -> None:
    """Of an episode's five rewards, those of the rows 3, 4, 5 come after the gap."""
    rows = stream([B, B, B, B, B, E], [Flag.GAP, 0, 0, Flag.GAP, 0, 4], [0, 1, 2, 9, 3, 4])
    sentence = "rows has 1 gaps within episodes, the first before step 3: the 3 rewards after them"
    with pytest.raises(BadInput, match=sentence):
        recorded_data("rows", rows, HEADER)
    data = recorded_data("rows", rows, HEADER, horizon=2)
    assert data.episodes.reward.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_horizon_cuts_a_life_into_stretches_with_every_reward() -> None:
    """Of 7 steps, four stretches of two: the last one overlaps, so that no reward is lost."""
    rewards = [0.0, *range(1, 8)]
    life = stream([B] * 7 + [E], [Flag.GAP] + [0] * 7, rewards)
    data = recorded_data("rows", life, HEADER, horizon=2)
    assert data.episodes.length.tolist() == [2, 2, 2, 2]
    assert data.episodes.reward.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.0, 7.0]
    with pytest.raises(BadInput, match="choose a smaller --horizon"):
        recorded_data("rows", life, HEADER, horizon=8)
    life["flags"][-1] = Flag.TERMINATED
    data = recorded_data("rows", life, HEADER, horizon=2)
    assert data.episodes.length.tolist() == [2, 2, 2, 1]
    assert data.episodes.is_terminated.tolist() == [False, False, False, True]


def test_pieces_shorter_than_the_horizon_are_counted_with_their_rewards() -> None:
    """After the gap, two steps are left, of which no value of three steps is known."""
    life = stream([B] * 6 + [E], [Flag.GAP, 0, 0, 0, Flag.GAP, 0, 0], [0, 1, 2, 3, 9, 4, 5])
    data = recorded_data("rows", life, HEADER, horizon=3)
    assert data.episodes.reward.tolist() == [1.0, 2.0, 3.0]
    sentence = "1 pieces of fewer steps than --horizon were left out, with their 2 rewards."
    assert sentence in data.notes


def test_rewards_that_lack_within_an_episode_are_refused() -> None:
    rows = stream([B, B, E], [Flag.GAP, 0, 4], [0.0, np.nan, 1.0])
    with pytest.raises(BadInput, match="rows has no finite reward after step 0"):
        recorded_data("rows", rows, HEADER)


def test_an_action_of_probability_0_is_refused() -> None:
    rows = stream([B, B, E], [Flag.GAP, 0, 4], [0.0, 1.0, 1.0])
    rows["b"][1] = 0.0
    with pytest.raises(BadInput, match="rows has no probability b of the actions taken"):
        recorded_data("rows", rows, HEADER)


# ---- tables whose episodes end without a terminal flag -------------------------------------------------

TOP = """
period_s = 1.0
action = "a"
actions = ["left", "right"]
b = "b"
episode = "episode"
"""
X = '[[channel]]\ncolumn = "x"\nlow = 0.0\nhigh = 8.0\n'
OWN_REWARD = 'next_reward = "r"\n'
LED_HERE = 'reward = "r"\n'
MOVED_CHANNEL = '[[channel]]\ncolumn = "r"\nname = "reward"\ntransition = true\n'


def table_of(path: Path, rows: list[tuple[int, int, float]]) -> Path:
    """Write rows of (episode, action, reward), each with b = 1/2 and its number as x; return the file."""
    lines = ["episode,x,a,b,r"]
    lines += [f"{episode},{k % 8},{a},0.5,{r}" for k, (episode, a, r) in enumerate(rows)]
    file = path / "table.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def described(path: Path, text: str) -> Path:
    """Write a columns file and return it."""
    columns = path / "described.toml"
    columns.write_text(text)
    return columns


@pytest.mark.parametrize(
    "columns",
    [
        TOP + OWN_REWARD + X,
        TOP + X + MOVED_CHANNEL,
        TOP + 'convention = "transition"\n' + OWN_REWARD + X,
    ],
)
def test_the_reward_of_the_last_action_before_a_time_limit_is_in_a_return(
    columns: str, tmp_path: Path
) -> None:
    """Rows (s, a, b, reward of the action): returns 1 + 2 + 4 and 8 + 16 + 32, in the mean 31.5.

    Without the reward of the last action it would be 13.5; moved by a row as well, so that the last
    one belongs to the action before it, 30. The target goes right: the first episode did, at each
    step, and has the weight 8, so the value is 7.
    """
    rows = [(0, 1, 1.0), (0, 1, 2.0), (0, 1, 4.0), (1, 1, 8.0), (1, 0, 16.0), (1, 1, 32.0)]
    evaluation = evaluate(
        table_of(tmp_path, rows),
        "constant:right",
        columns=described(tmp_path, columns),
        estimators=("wis",),
        n_resamples=50,
    )
    assert evaluation.behaviour.value == pytest.approx(31.5)
    assert evaluation.judgements[0].line("wis").value == pytest.approx(7.0)
    assert evaluation.episodes.length.tolist() == [3, 3]
    assert evaluation.episodes.is_terminated.tolist() == [False, False]


def test_a_reward_with_an_origin_and_a_scale_counts_in_its_own_unit(tmp_path: Path) -> None:
    """Its readings are (r - 1,000) x 10; two returns of 2,003 and 2,007, where readings sum to 30 and 70."""
    rows = [(0, 1, 1001.0), (0, 1, 1002.0), (1, 1, 1003.0), (1, 0, 1004.0)]
    columns = TOP + X + MOVED_CHANNEL + "origin = 1000.0\nscale = 10.0\n"
    evaluation = evaluate(
        table_of(tmp_path, rows),
        "uniform",
        columns=described(tmp_path, columns),
        estimators=("wis",),
        n_resamples=50,
    )
    assert evaluation.behaviour.value == pytest.approx(2005.0)


def test_an_episode_may_be_one_row(tmp_path: Path) -> None:
    """Right pays 3 and left 1: the log's value is 2, the target's 3. Nothing follows any of the rows."""
    rows = [(k, k % 2, 1.0 + 2.0 * (k % 2)) for k in range(8)]
    evaluation = evaluate(
        table_of(tmp_path, rows),
        "constant:right",
        columns=described(tmp_path, TOP + OWN_REWARD + X),
        estimators=("wis",),
        n_resamples=50,
    )
    assert evaluation.behaviour.value == pytest.approx(2.0)
    assert evaluation.judgements[0].line("wis").value == pytest.approx(3.0)


def test_b_is_estimated_from_episodes_of_one_row(tmp_path: Path) -> None:
    """A coin, of which nothing follows from the row before: b is about 1/2 in each of them."""
    rows = [(k, k * k % 7 % 2, 1.0) for k in range(3_000)]
    share = np.mean([action for _, action, _ in rows])
    columns = (TOP + OWN_REWARD + X).replace('b = "b"', 'b = "estimate"')
    evaluation = evaluate(
        table_of(tmp_path, rows),
        "uniform",
        columns=described(tmp_path, columns),
        estimators=("wis",),
        n_resamples=50,
    )
    assert evaluation.episodes.n_episodes == 3_000
    expected = np.array([1.0 - share, share])[evaluation.episodes.action]
    np.testing.assert_allclose(evaluation.episodes.b, expected, atol=0.05)


def test_the_last_reward_counts_at_the_border_of_two_parts_of_a_table(tmp_path: Path) -> None:
    """A part ends with the first episode, and one within the second."""
    whole = {
        "episode": np.array([0, 0, 1, 1, 1]),
        "x": np.zeros(5),
        "a": np.ones(5),
        "b": np.full(5, 0.5),
        "r": np.array([1.0, 2.0, 4.0, 8.0, 16.0]),
    }
    borders = [0, 2, 3, 5]
    parts = [
        {name: values[begin:end] for name, values in whole.items()}
        for begin, end in pairwise(borders)
    ]
    table = Table(lambda: parts, Columns.read(described(tmp_path, TOP + OWN_REWARD + X)), "parts")
    table.counts_each_reward = True
    rows = np.concatenate([stream.rows for stream in table])
    data = recorded_data("parts", rows, table.header)
    assert data.episodes.reward.tolist() == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert data.episodes.length.tolist() == [2, 3]
    # Learning needs the state that an action led to: there are rows of the table alone
    table.counts_each_reward = False
    assert sum(len(stream.rows) for stream in table) == 5


def test_the_draft_credits_a_reward_to_the_action_of_its_row(tmp_path: Path) -> None:
    """Of five steps the last pays its action, 1 for right: the value of going right is 1.

    Credited to the action before, it would be about 1/2, that of a coin.
    """
    rng = np.random.default_rng(0)
    lines = ["episode,x,a,b,reward,done"]
    paid = 0
    for episode in range(400):
        for step in range(5):
            action = int(rng.integers(2))
            reward = 0
            if step == 4:
                reward = action
            paid += reward
            lines.append(f"{episode},{step / 5},{action},0.5,{reward},0")
    file = tmp_path / "limited.csv"
    file.write_text("\n".join(lines) + "\n")
    evaluation = evaluate(
        file,
        "constant:1",
        columns=described(tmp_path, draft_columns(file)),
        estimators=("wdr",),
        n_resamples=50,
    )
    assert evaluation.behaviour.value == pytest.approx(paid / 400)
    assert evaluation.judgements[0].line("wdr").value == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        (
            TOP + LED_HERE + X,
            [(0, 1, 0.0), (0, 1, 2.0), (1, 1, 3.0), (1, 1, 4.0)],
            "row 3, column 'r': 3 is the reward of no step, because no transition led to",
        ),
        (
            TOP + 'convention = "observation"\n' + OWN_REWARD + X,
            [(0, 1, 1.0), (0, 1, 2.0), (1, 1, 3.0), (1, 1, 0.0)],
            "row 2, column 'r': 2 is the reward of no step, because the row ends its",
        ),
        (
            TOP + OWN_REWARD + X + '[[channel]]\ncolumn = "r"\n',
            [(0, 1, 1.0), (0, 1, 2.0)],
            'the channel "r" shows the reward of an action before it is taken',
        ),
    ],
)
def test_a_reward_that_would_be_in_no_return_is_refused(
    columns: str, rows: list[tuple[int, int, float]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message):
        evaluate(table_of(tmp_path, rows), "uniform", columns=described(tmp_path, columns))


@pytest.mark.parametrize("horizon", [0, -1])
def test_stretches_have_at_least_a_step(horizon: int, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"--horizon must be at least 1, not {horizon}"):
        evaluate(
            table_of(tmp_path, [(0, 1, 1.0), (0, 1, 2.0)]),
            "uniform",
            columns=described(tmp_path, TOP + OWN_REWARD + X),
            horizon=horizon,
        )


def test_a_value_after_the_last_action_needs_its_state(tmp_path: Path) -> None:
    rows = [(0, 1, 1.0), (0, 1, 2.0), (1, 1, 3.0), (1, 1, 0.0)]
    with pytest.raises(BadInput, match="not have the state after the last action of 2 truncated"):
        evaluate(
            table_of(tmp_path, rows),
            "uniform",
            columns=described(tmp_path, TOP + OWN_REWARD + X),
            truncated="fitted",
        )


# ---- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "mine.py:three"], "3 actions|shape (3,), but the data have 2 actions: left"),
        (["--policy", "mine.py:none"], "has no 'none'; there are right, three, alone"),
        (["--policy", "lost.py:right"], "does not exist"),
        (["--policy", "lost.zip"], "does not exist"),
        (["--policy", "columns.toml"], "--policy must be uniform, constant:N, FILE.py:function"),
        (["--policy", "constant:2"], "constant:2 names none of the 2 actions of the data"),
        (["--policy", "uniform", "--gamma", "1.1"], "gamma must be in [0, 1], not 1.1"),
        (["--policy", "uniform", "--truncated", "no"], "truncated must be stretch or fitted"),
        (["--policy", "uniform", "--horizon", "0"], "--horizon must be at least 1"),
        (["--policy", "uniform", "--estimators", "best"], "estimators must be among wdr"),
        (["--policy", "uniform", "--policy", "uniform"], "--policy uniform is there twice"),
        (["--policy", "uniform", "--resamples", "1000000000"], "n_resamples must be from 50 to"),
        (
            ["--policy", "uniform", "--seed", "-1"],
            "seed must be a whole number of at least 0, not -1",
        ),
        ([], "name a policy to judge"),
    ],
)
def test_invalid_input_is_one_sentence_and_nothing_is_written(
    folder: Path,
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    placed = [
        str(folder / word) if word.startswith(("mine", "lost", "columns")) else word
        for word in words
    ]
    assert main(command(folder, *placed)) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert any(part in error for part in message.split("|"))
    assert error.count("horde: ") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'name = "reward"\n',
            'name = "gain"\n',
            "has no reward, whose sum is the value of a policy",
        ),
        ('b = "b"\n', "", "has no probability b of the actions taken"),
        (
            'action = "a"\nactions = ["left", "right"]\nb = "b"\n',
            "",
            "has no column of discrete actions",
        ),
        (
            "transition = true\n",
            "",
            'is "r" the reward of the row\'s action, or of the transition that led to the row?',
        ),
    ],
)
def test_data_without_rewards_actions_or_b_are_refused(
    folder: Path,
    old: str,
    new: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    columns = tmp_path / "columns.toml"
    assert old in COLUMNS
    columns.write_text(COLUMNS.replace(old, new))
    words = ["evaluate", str(folder / "log.csv"), "--columns", str(columns), "--policy", "uniform"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_run_of_data_without_b_is_refused_as_they_are(folder: Path, tmp_path: Path) -> None:
    """Its rows have b = 1, by which importance sampling divided."""
    columns = tmp_path / "columns.toml"
    columns.write_text(COLUMNS.replace('b = "b"\n', ""))
    words = ["learn", "--data", str(folder / "log.csv"), "--columns", str(columns)]
    run = tmp_path / "run"
    assert main([*words, "--questions", "nexting", "--out", str(run)]) == 0
    with pytest.raises(BadInput, match="run has no probability b of the actions taken"):
        evaluate(run, "uniform")


def test_b_of_0_is_refused_with_its_row(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "log.csv").read_text().splitlines()
    cells = lines[5].split(",")
    cells[3] = "0"
    lines[5] = ",".join(cells)
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInput, match=r"row 5, column 'b': '?0'? must be in \(0, 1\]"):
        evaluate(tmp_path / "log.csv", "uniform", columns=folder / "columns.toml")


RAISING = """
def unknown_name(observation):
    return [right, 1 - right]

def lacking(observation):
    return observation.action

def failing(observation):
    raise RuntimeError("the network is not there")

def leaving(observation):
    raise SystemExit(0)

def asserting(observation):
    assert observation is None
"""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unknown_name", r"NameError: name 'right' is not defined \(.*raising.py, line 3\)"),
        ("lacking", r"AttributeError: .* \(.*raising.py, line 6\)"),
        ("failing", r"RuntimeError: the network is not there \(.*raising.py, line 9\)"),
        ("leaving", r"SystemExit: 0 \(.*raising.py, line 12\)"),
        ("asserting", r"AssertionError \(.*raising.py, line 15\)"),
    ],
)
def test_what_a_policy_raises_is_said_with_its_line(
    name: str, reason: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "raising.py"
    file.write_text(RAISING)
    assert main(command(folder, "--policy", f"{file}:{name}", "--out", str(tmp_path / "out"))) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert re.search(rf"the policy .*:{name} fails in row 0: {reason}", error)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1\nraise SystemExit(0)", r"cannot be run: SystemExit: 0 \(.*mine.py, line 2\)"),
        ("import missing_module", r"ModuleNotFoundError: .*missing_module.* \(.*mine.py, line 1\)"),
        ("def right(", r"mine.py, line 1, is no Python: "),
    ],
)
def test_what_a_file_of_policies_raises_is_said_with_its_line(
    text: str, reason: str, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(BadInput, match=reason):
        evaluate(folder / "log.csv", f"{file}:right", columns=folder / "columns.toml")


def test_no_policy_is_run_before_all_are_known_to_have_a_form(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n{POLICIES}")
    policies = [f"{file}:right", str(tmp_path / "lost.zip")]
    with pytest.raises(BadInput, match=r"lost\.zip: the file does not exist"):
        evaluate(folder / "log.csv", policies, columns=folder / "columns.toml")
    assert not (tmp_path / "ran").exists()


def model_file(path: Path, facts: dict[str, Any], n_bytes: int = 0) -> Path:
    """Write a file that says what a model is and has a member of so many bytes; nothing in it can be loaded."""
    file = path / "model.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", json.dumps(facts))
        archive.writestr("policy.pth", "")
        archive.infolist()[1].file_size = n_bytes
    return file


BOX = {":type:": "<class 'gymnasium.spaces.box.Box'>", "_shape": [4], ":serialized:": "!"}
DISCRETE = {":type:": "<class 'gymnasium.spaces.discrete.Discrete'>", "n": "3"}


@pytest.mark.parametrize(
    ("facts", "n_bytes", "reason"),
    [
        ({}, 2**29 + 2**20, "has 513 MiB unpacked, at most 512 are read"),
        (
            {"observation_space": BOX},
            0,
            r"observes numbers of shape \[4\], but the data have 1 chan",
        ),
        ({"action_space": DISCRETE}, 0, "has 3 actions, but the data have 2"),
    ],
)
def test_a_model_is_checked_before_its_code_runs(
    facts: dict[str, Any], n_bytes: int, reason: str, folder: Path, tmp_path: Path
) -> None:
    """Loading it would say that it is no model."""
    file = model_file(tmp_path, facts, n_bytes)
    with pytest.raises(BadInput, match=reason):
        evaluate(folder / "log.csv", str(file), columns=folder / "columns.toml")


def test_a_file_without_facts_of_a_model_is_refused(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "other.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme", "nothing")
    with pytest.raises(BadInput, match="no PPO, A2C or DQN of stable-baselines3: it has no member"):
        evaluate(folder / "log.csv", str(file), columns=folder / "columns.toml")


def test_an_interval_that_leaves_the_picture_ends_in_an_arrow(folder: Path) -> None:
    evaluation = evaluate(
        folder / "log.csv",
        ConstantAction(1, 2),
        columns=folder / "columns.toml",
        estimators=("ois", "wis", "fqe"),
        n_resamples=50,
    )
    behaviour = evaluation.behaviour
    narrow = behaviour._replace(low=behaviour.value - 0.1, high=behaviour.value + 0.1)
    wide = narrow._replace(estimator="ois", high=narrow.value + 1e6)
    pictures = pytest.importorskip("horde_agent.runs.reporting.pictures")
    for lines, arrows in (({"wis": narrow}, ""), ({"wis": narrow, "ois": wide}, ">")):
        (axes,) = pictures.interval_canvas(lines, "logged", narrow).axes
        markers = [line.get_marker() for line in axes.lines]
        assert "".join(marker for marker in markers if marker in {"<", ">"}) == arrows
        low, high = axes.get_xlim()
        assert (low, high) == pytest.approx((narrow.low, narrow.high), abs=0.02)
    share = evaluation.judgements[0].share
    assert isinstance(share, WeightShare)
    assert share.n_episodes == 80


def test_the_interface_of_the_rows_is_that_of_their_header() -> None:
    from horde_agent.runs.storage.run import HeaderEnv

    interface = Interface.of(HeaderEnv(HEADER))
    rows = stream([B, E], [Flag.GAP, 4], [0.0, 1.0])
    data = recorded_data("rows", rows, HEADER)
    assert data.episodes.tiles[0].tolist() == interface.encode(rows["observation"][0]).tolist()
