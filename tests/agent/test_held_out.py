"""Off-policy questions scored on the last 30 % of a data set by importance sampling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Behaviour, Channel, ConstantAction, Interface, learn_from
from horde_agent.cli import main
from horde_agent.record import NO_ACTION, Flag, Phase, Recorder, Row, new_rows
from horde_agent.runs import held_out
from horde_agent.runs.reporting.held_out import comparison_section, held_out_section, paired
from horde_agent.runs.sources.learn_from import Learned
from horde_agent.runs.storage.question_table import (
    HeldOutScore,
    read_held_out,
    write_held_out,
)
from horde_agent.scoring.prediction_error import (
    PredictionError,
    Stretches,
    error_paths,
    size_at,
)
from tests.agent.doubles import ToyBody
from tests.oracles.evaluation import HeldOutEpisode, held_out_nmsre

N_ROWS = 1_500
NEXT = "reading after go"
FAR = "readings of going on and on"


def test_on_policy_it_is_the_mean_squared_error_over_the_variance() -> None:
    """The prediction in the last state stands for what follows; the variance is that of the eight terms."""
    rng = np.random.default_rng(0)
    readings = rng.normal(size=(60, 8))
    predictions = rng.normal(size=(60, 9))
    sums = readings @ 0.5 ** np.arange(8)
    stretches = Stretches(np.ones((60, 8)), np.arange(60) // 3)
    paths = error_paths(predictions, readings, 0.5)
    error = PredictionError(paths, error_paths(np.zeros((60, 9)), readings, 0.5), stretches)
    errors = predictions[:, 0] - sums - 0.5**8 * predictions[:, 8]
    assert error.value == pytest.approx((errors**2).mean() / sums.var())
    assert error.variance == pytest.approx(sums.var())


def test_off_policy_each_step_has_its_own_weights() -> None:
    """Two stretches of two steps with weights (2, 4) and (1, 0), cumulants (1, 1) and (0, 5), gamma = 1; v = 1, then 0.

    Errors: 0, 0 - 1 and 1, 1 - 5. Squares: (2 * 0 + 1 * 1) / 3 + (4 * (1 - 0) + 0) / 4 = 4/3. The
    returns' mean is 2/3 + 1; their square 2/3 + 4 - 1, so their variance 11/3 - 25/9.
    """
    stretches = Stretches(np.array([[2.0, 4.0], [1.0, 0.0]]), np.array([0, 1]))
    cumulant = np.array([[1.0, 1.0], [0.0, 5.0]])
    predictions = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    paths = error_paths(predictions, cumulant, 1.0)
    assert paths.tolist() == [[0.0, -1.0], [1.0, -4.0]]
    error = PredictionError(paths, error_paths(np.zeros((2, 3)), cumulant, 1.0), stretches)
    assert error.variance == pytest.approx(11 / 3 - 25 / 9)
    assert error.value == pytest.approx(4 / 3 / (11 / 3 - 25 / 9))
    assert size_at(stretches, 0) == pytest.approx(9 / 5)
    assert size_at(stretches, 5) == pytest.approx(1.0)


LENGTHS = (40, 7, 23, 61, 3, 18, 90, 12) * 6
"""Steps of episodes."""


class Ready:
    """A Horde with one question; it predicts half of the reading, and a tenth."""

    n_demons = 1

    def __init__(self, question: GVF) -> None:
        self.questions = (question,)
        self.names = [question.name]

    def predict(self, tiles: np.ndarray, observation: np.ndarray) -> np.ndarray:
        return np.array([0.5 * float(observation[0]) + 0.1])


class Careful:
    """Goes on (action 0) the more often the higher the reading."""

    n_actions = 3

    def probabilities(self, observation: np.ndarray, tiles: np.ndarray) -> np.ndarray:
        go = 0.5 + 0.4 * float(observation[0])
        return np.array([go, 1.0 - go, 0.0])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("end", [Flag.NONE, Flag.TERMINATED])
def test_a_score_is_that_of_its_definition(gamma: float, end: Flag) -> None:
    """Episodes of many lengths, which end by a gap or in a terminal state; b differs from row to row.

    A stretch that a gap cuts short is left out; one that ends in a terminal state counts, and no
    reading of the next episode belongs to it. Each episode has stretches of its own.
    """
    rng = np.random.default_rng(3)
    interface = Interface.of(ToyBody())
    recorder = Recorder(3)
    question = GVF("q", Careful(), Channel(0), gamma)
    episodes = []
    step = 0
    for n in LENGTHS:
        readings = rng.random(n + 1).astype(np.float32)
        b = rng.uniform(0.3, 0.7, n)
        actions = (rng.random(n) >= b).astype(int)
        of_action = np.where(actions == 0, b, 1.0 - b).astype(np.float32)
        for k, reading in enumerate(readings):
            flags = Flag.NONE
            phase = Phase.BEHAVE
            if k == 0:
                flags = Flag.GAP
            if k == n:
                flags = end
                phase = Phase.END
            recorder.write(
                Row(
                    step=step,
                    t=0.1 * step,
                    observation=np.array([reading, 0.0, 0.0], dtype=np.float32),
                    action=int(np.append(actions, NO_ACTION)[k]),
                    b=float(np.append(of_action, np.nan)[k]),
                    phase=phase,
                    flags=flags,
                    pose=(np.nan,) * 3,
                )
            )
            step += 1
        exact = readings.astype(np.float64)
        go = 0.5 + 0.4 * exact[:-1]
        episodes.append(
            HeldOutEpisode(
                prediction=0.5 * exact + 0.1,
                reading=exact,
                ratio=np.where(actions == 0, go, 1.0 - go) / of_action,
                is_terminal=end is Flag.TERMINATED,
            )
        )
    horde: Any = Ready(question)
    (score,) = held_out.score(recorder.stream().rows, horde, interface)
    n_terms, stride = {0.0: (1, 1), 0.5: (5, 2), 0.8: (14, 5)}[gamma]
    expected = held_out_nmsre(episodes, gamma, n_terms, stride)
    assert score.n_stretches == expected.n_stretches
    assert score.effective_size == pytest.approx(expected.effective_size, rel=1e-6)
    assert score.nmsre == pytest.approx(expected.nmsre, rel=1e-6)


def test_a_stretch_with_a_missing_reading_is_not_measured() -> None:
    """Of a hundred episodes three have no readings: the score is that of the others."""
    rng = np.random.default_rng(7)
    rows = new_rows(2100, 3)
    rows["step"] = np.arange(2100)
    rows["observation"][:, 0] = rng.random(2100)
    rows["action"] = rng.random(2100) < 0.5
    rows["b"] = 0.5
    rows["flags"][::21] = Flag.GAP
    rows["flags"][20::21] = Flag.TERMINATED
    rows["phase"][20::21] = Phase.END
    episode = np.arange(2100) // 21
    is_dead = np.isin(episode, [5, 6, 19])
    missing = rows.copy()
    missing["observation"][is_dead, 0] = np.nan
    horde: Any = Ready(GVF("q", Careful(), Channel(0), 0.5))
    interface = Interface.of(ToyBody())
    (score,) = held_out.score(missing, horde, interface)
    (expected,) = held_out.score(rows[~is_dead], horde, interface)
    assert score.is_judged
    assert score.nmsre == pytest.approx(expected.nmsre, rel=1e-9)
    assert score.effective_size == pytest.approx(expected.effective_size, rel=1e-9)


class Linear(Ready):
    """Predicts a linear function of the reading."""

    def __init__(self, question: GVF, at_0: float, at_1: float) -> None:
        super().__init__(question)
        self._at_0 = at_0
        self._at_1 = at_1

    def predict(self, tiles: np.ndarray, observation: np.ndarray) -> np.ndarray:
        return np.array([self._at_0 + (self._at_1 - self._at_0) * float(observation[0])])


def periodic_rows(readings: tuple[float, ...]) -> Any:
    """Return 400 rows of a period of readings; action 0 follows high ones, and b is 1/2."""
    rows = new_rows(400, 3)
    rows["step"] = np.arange(400)
    rows["observation"][:, 0] = np.resize(readings, 400)
    rows["action"] = rows["observation"][:, 0] < 0.7
    rows["b"] = 0.5
    rows["flags"][0] = Flag.GAP
    rows["phase"][-1] = Phase.END
    return rows


@pytest.mark.parametrize(
    ("readings", "at_0", "at_1"), [((0.5, 0.5), 1.0, 1.0), ((0.0, 1.0), 4 / 3, 2 / 3)]
)
def test_returns_that_do_not_vary_score_0_if_they_are_predicted_else_1(
    readings: tuple[float, ...], at_0: float, at_1: float
) -> None:
    """At gamma 1/2 readings of 1/2 are worth 1, and of 1, 0, 1 ... 4/3; each second state begins a stretch.

    The same rule holds for excursions and logs. Without it the question is not scored. "The present
    reading lasts" is right about the first, and predicts 0 before the second.
    """
    rows = periodic_rows(readings)
    question = GVF("q", Careful(), Channel(0), 0.5)
    scores = []
    for error in (0.0, 1e-8, 1e-3):
        horde: Any = Linear(question, at_0 + error, at_1 + error)
        scores += held_out.score(rows, horde, Interface.of(ToyBody()))
    assert [score.nmsre for score in scores] == [0.0, 0.0, 1.0]
    assert all((score.low, score.high) == (score.nmsre, score.nmsre) for score in scores)
    assert {score.nmsre_of_persistence for score in scores} == {2 * readings[1] - 1.0}
    assert all(set(score.by_group) == {0.0} for score in scores)


def test_a_variance_below_0_is_no_score() -> None:
    """Readings 1, 0, 1 ..., of which all steps from 1 on have action 0: as if b, 1/2, were another one.

    Under a policy that prefers action 0, squares of returns weigh less than the square of their
    mean.
    """
    horde: Any = Ready(GVF("q", Careful(), Channel(0), 0.8))
    (score,) = held_out.score(periodic_rows((1.0, 0.0)), horde, Interface.of(ToyBody()))
    assert not score.is_judged
    assert "the variance of its returns is not known" in score.reason
    assert score.reason.endswith("more rows are needed")


def learned(out: Path, step_size: float = 0.1) -> Learned:
    """Learn from a walk on a line whose reading follows the position; "go" moves right, "back" left."""
    rng = np.random.default_rng(0)
    action = rng.integers(2, size=N_ROWS)
    x = np.zeros(N_ROWS)
    for t in range(N_ROWS - 1):
        x[t + 1] = np.clip(x[t] + 0.1 * (1 - 2 * action[t]) + 0.03 * rng.normal(), 0.0, 1.0)
    questions = [
        GVF(NEXT, ConstantAction(0, 2), Channel("x"), continuation=0.0),
        GVF(FAR, ConstantAction(0, 2), Channel("x"), continuation=0.95),
        GVF("any policy", Behaviour(), Channel("x"), continuation=0.5),
    ]
    return learn_from(
        x[:, None],
        action,
        b=np.full(N_ROWS, 0.5),
        questions=questions,
        channels=["x"],
        action_names=["go", "back"],
        step_size=step_size,
        out=out,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the walk."""
    out = tmp_path_factory.mktemp("held_out") / "first"
    learned(out)
    return out


def scores_of(path: Path) -> dict[str, HeldOutScore]:
    """Return the lines of held_out.csv by question."""
    return {score.question: score for score in read_held_out(path / "held_out.csv")}


def test_a_question_with_enough_weight_is_judged_and_another_one_is_not(run: Path) -> None:
    """Half of the 450 held-out rows have the action of the policy; 20 of them in a row next to never."""
    scores = scores_of(run)
    assert set(scores) == {NEXT, FAR}
    near_score = scores[NEXT]
    assert near_score.is_judged
    assert (near_score.policy, near_score.gamma) == ("go", 0.0)
    assert near_score.effective_size == pytest.approx(225, abs=40)
    assert near_score.low < near_score.nmsre < near_score.high
    assert near_score.nmsre < 0.6
    far_score = scores[FAR]
    assert not far_score.is_judged
    assert np.isnan(far_score.nmsre)
    assert "the effective sample size is" in far_score.reason


def test_scores_read_back_as_they_were_written(tmp_path: Path) -> None:
    """A function as gamma and an unjudged question have empty cells; what a group weighs has five digits."""
    judged = HeldOutScore(
        question="a, b",
        policy="go",
        gamma=0.8,
        n_stretches=30,
        effective_size=21.5,
        nmsre=0.25,
        nmsre_of_persistence=0.5,
        low=0.125,
        high=0.375,
        by_group=(0.12345, -2.0),
    )
    unjudged = HeldOutScore(question="c", policy="go", gamma=np.nan, reason="why")
    table = tmp_path / "held_out.csv"
    write_held_out(table, [judged, unjudged])
    (first, second) = read_held_out(table)
    assert first == judged
    assert first.is_judged
    np.testing.assert_equal(second._asdict(), unjudged._asdict())
    assert not second.is_judged
    assert table.read_text().splitlines()[1].endswith(",1,,0.12345 -2")
    assert read_held_out(tmp_path / "none.csv") == []


def test_scoring_changes_no_weights(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored = learned(tmp_path / "scored").horde.weights_sha256()
    monkeypatch.setattr(held_out, "score", lambda *_: [])
    assert learned(tmp_path / "not scored").horde.weights_sha256() == scored
    assert not (tmp_path / "not scored" / "held_out.csv").exists()
    assert (tmp_path / "scored" / "held_out.csv").read_bytes() == (
        run / "held_out.csv"
    ).read_bytes()


def test_the_report_shows_the_scores(run: Path) -> None:
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert "Held-out rows" in page
    assert "1 of 2 off-policy questions are scored" in page
    assert held_out_section([]) == ""


def test_two_runs_are_compared_on_the_same_rows_in_pairs(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step size of 0.001 has hardly learned; the errors of both are correlated, so the interval is narrow."""
    monkeypatch.chdir(tmp_path)
    learned(tmp_path / "slow", step_size=0.001)
    first = read_held_out(run / "held_out.csv")
    second = read_held_out(tmp_path / "slow" / "held_out.csv")
    (difference,) = paired(first, second)
    assert difference.question == NEXT
    assert difference.difference == pytest.approx(
        scores_of(tmp_path / "slow")[NEXT].nmsre - scores_of(run)[NEXT].nmsre
    )
    assert difference.low > 0.0
    section = comparison_section(["first", "slow"], first, second)
    assert "slow answers 0 better and 1 worse than first" in section
    assert main(["report", str(run), str(tmp_path / "slow")]) == 0
    page = Path(capsys.readouterr().out.strip()).read_text()
    assert "slow against first on held-out rows" in page


def test_other_rows_are_not_compared(run: Path) -> None:
    scores = read_held_out(run / "held_out.csv")
    assert len(paired(scores, scores)) == 1
    assert paired(scores, [score._replace(n_stretches=7) for score in scores]) == []
