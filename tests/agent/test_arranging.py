"""A sensor or an action comes or goes in the middle of a life: what does not depend on it keeps its bits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import gymnasium
import numpy as np
import pytest
from rich.console import Console

from horde_agent.cli import learn
from horde_agent.horde import Horde
from horde_agent.record import Flag, Phase, header_of, read
from horde_agent.record.segments import record_files
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.resume import open_trained
from horde_agent.scoring.excursion_table import ExcursionTable
from tests.agent.commands import horde, refused, summary_of
from tests.agent.doubles import ToyBody
from tests.facts import states

NAMES = ("age", "saw", "last")
LIFE = "learn --horizon 8 --seed 2 --questions nexting"


class OtherBody(ToyBody):
    """The toy body with some of its channels, in another order, with new ones, or with one that has no readings."""

    def __init__(self, *names: str, silent: str = "") -> None:
        super().__init__()
        self._names = names
        self._silent = silent
        described = {channel["name"]: channel for channel in self.metadata["channels"]}
        extra = {"name": "extra", "group": "obs", "unit": "1", "sensor": True}
        channels = [described.get(name, extra) for name in names]
        self.metadata = {**self.metadata, "channels": channels}
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (len(names),), np.float32)

    def channel_values(self) -> np.ndarray:
        values = dict(zip(NAMES, super().channel_values(), strict=True))
        values["extra"] = np.float32((self.age % 5) / 5)
        if self._silent:
            values[self._silent] = np.float32(np.nan)
        return np.array([values[name] for name in self._names], np.float32)


def live(patch: pytest.MonkeyPatch, words: str, *names: str, silent: str = "") -> int:
    """Run a command with a body of these channels."""
    patch.setattr(learn, "make_env", lambda _config: OtherBody(*names, silent=silent))
    return horde(words)


def born(run: Path, patch: pytest.MonkeyPatch) -> Path:
    assert live(patch, f"{LIFE} --steps 300 --out {run}", *NAMES) == 0
    return run


def same(one: Path, other: Path) -> bool:
    tables = [
        [(run / name).read_bytes() for name in ("questions.csv", "learning_curve.csv")]
        for run in (one, other)
    ]
    digests = [summary_of(run)["weights_sha256"] for run in (one, other)]
    return tables[0] == tables[1] and digests[0] == digests[1]


def test_what_does_not_read_a_new_sensor_keeps_its_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body has it in front of the others: by their places, they would be read as one another."""
    plain = born(tmp_path / "plain", monkeypatch)
    run = born(tmp_path / "run", monkeypatch)
    for steps in (500, 700):
        assert live(monkeypatch, f"resume {plain} --steps {steps}", *NAMES) == 0
    order = ("extra", "last", "age", "saw")
    assert live(monkeypatch, f"resume {run} --steps 500 --channels new:extra", *order) == 0
    assert live(monkeypatch, f"resume {run} --steps 700", *order) == 0
    assert same(plain, run)
    rows = read(run / "log/life.rec").rows
    first_readings = rows["observation"][rows["step"] < 300]
    assert np.isnan(first_readings[:, 3]).all()
    expected = read(plain / "log/life.rec").rows["observation"]
    np.testing.assert_array_equal(rows["observation"][:, :3], expected)
    later_readings = rows[rows["step"] > 301]["observation"]
    assert not np.isnan(later_readings[:, 3]).any()
    np.testing.assert_allclose(
        later_readings[:, 3], np.round(later_readings[:, 0] * 1e4) % 5 / 5, atol=1e-3
    )


def test_a_lost_sensor_is_one_without_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = born(tmp_path / "silent", monkeypatch)
    run = born(tmp_path / "run", monkeypatch)
    assert live(monkeypatch, f"resume {silent} --steps 500", *NAMES, silent="last") == 0
    words = f"resume {run} --steps 500 --channels lost:last"
    assert live(monkeypatch, words, "saw", "age") == 0
    assert same(silent, run)
    # It is back
    assert live(monkeypatch, f"resume {silent} --steps 700", *NAMES) == 0
    assert live(monkeypatch, f"resume {run} --steps 700", *NAMES) == 0
    assert same(silent, run)


def test_questions_about_a_new_sensor_are_learned_and_the_folder_is_whole(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its reading is the number of the step modulo 5, over 5, which the features do not tell: NMSRE about 1."""
    run = born(elsewhere / "run", monkeypatch)
    (elsewhere / "own.toml").write_text(
        '[[family]]\npolicies = ["behaviour"]\ngammas = [0.0]\nchannels = ["extra"]\n'
    )
    order = ("extra", *NAMES)
    words = "resume run --steps 1500 --channels new:extra --add own.toml"
    assert live(monkeypatch, words, *order) == 0
    questions = (run / "questions.csv").read_text().splitlines()
    (line,) = [line for line in questions if line.startswith("behaviour/g0/extra")]
    assert float(line.split(",")[1]) > 0.5
    folder = RunFolder(run)
    assert len(record_files(folder.life)) == 2
    names = [channel["name"] for channel in header_of(folder.life)["channels"]]
    assert names == [*NAMES, "extra"]

    capsys.readouterr()
    assert horde("doctor run") == 0
    assert "DAMAGED" not in capsys.readouterr().out
    table = (run / "questions.csv").read_bytes()
    for name in ("summary.json", "questions.csv"):
        (run / name).unlink()
    assert horde("report run") == 0
    assert (run / "questions.csv").read_bytes() == table
    assert horde("export run --out exported") == 0
    counts: Any = duckdb.sql(
        "select count(*), count(*) filter (isnan(extra)) from 'exported/**/*.parquet'"
    ).fetchall()
    n_rows = len(read(folder.life))
    assert counts[0][0] == n_rows
    assert 300 <= counts[0][1] <= 302


def test_channels_that_are_not_named_or_do_not_fit_are_refused(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    born(elsewhere / "run", monkeypatch)
    monkeypatch.setattr(learn, "make_env", lambda _config: OtherBody("saw", "age", "extra"))
    refusals = {
        "": ("channels", "--channels"),
        "--channels new:extra": ("no last any more", "lost:last"),
        "--channels lost:last": ("has extra besides", "new:extra"),
        "--channels new:saw,lost:last": ("new:saw", "the record must not"),
        "--channels new:extra,lost:age": ("lost:age", "the body must not"),
        "--channels extra": ("write new:NAME", "lost:NAME"),
    }
    for options, facts in refusals.items():
        line = refused(["resume", "run", "--steps", "400", *options.split()], capsys)
        assert states(line, *facts)


LAYOUT = """
[[tiling]]
channels = ["age"]
intervals = [4]
tilings = 2
"""
CHOSEN = LAYOUT.replace("[4]", "[8]")
OTHER = LAYOUT.replace("age", "saw")


def laid_out(tile_layout: str | None, chosen_layout: str | None, high: float = 1.0) -> Any:
    """Return what makes a body for which this program has these layouts."""

    def make(_config: object) -> ToyBody:
        body = ToyBody()
        layouts = {"tile_layout": tile_layout, "chosen_layout": chosen_layout}
        body.metadata = {**body.metadata, **layouts}
        body.observation_space = gymnasium.spaces.Box(0.0, high, (3,), np.float32)
        return body

    return make


@pytest.mark.parametrize("features", ["chosen", "fixed"])
def test_a_life_keeps_the_layouts_with_which_it_began(
    features: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By those of the later program, of as many tiles over another channel, it would learn other weights.

    A life that began without a chosen layout goes on without one.
    """
    for first in ((LAYOUT, CHOSEN), (None, None)):
        name = f"{features}{first[0] is None}"
        for run, later in ((f"{name}-same", first), (f"{name}-other", (OTHER, OTHER))):
            words = f"{LIFE} --features {features} --steps 100 --out {tmp_path / run}"
            monkeypatch.setattr(learn, "make_env", laid_out(*first))
            assert horde(words) == 0
            monkeypatch.setattr(learn, "make_env", laid_out(*later))
            assert horde(f"resume {tmp_path / run} --steps 200") == 0
        assert same(tmp_path / f"{name}-same", tmp_path / f"{name}-other")


def test_observations_with_other_bounds_are_refused(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same reading would be another tile."""
    monkeypatch.setattr(learn, "make_env", laid_out(LAYOUT, None))
    assert horde(f"{LIFE} --steps 100 --out run") == 0
    monkeypatch.setattr(learn, "make_env", laid_out(LAYOUT, None, high=2.0))
    line = refused(["resume", "run", "--steps", "200"], capsys)
    assert states(
        line, "observations of age from 0.0 to 1.0", "from 0.0 to 2.0", "--backend replay"
    )


ACTIONS = ("left", "right", "stay")
NAMES_OF_ALL = (*ACTIONS, "jump")
OWN = """
[[family]]
policies = ["left", "right", "uniform", "behaviour"]
gammas = [0.0, 0.5]
channels = ["saw", "last"]

[[control]]
name = "rise"
channel = "last"
gamma = 0.5
"""
UNCONTROLLED = OWN[: OWN.index("[[control]]")]


class ActingBody(ToyBody):
    """The toy body with these actions in this order; the channel "last" says which it took by its name."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self._names = names
        self.metadata = {**self.metadata, "actions": list(names)}
        self.action_space = gymnasium.spaces.Discrete(len(names))

    def step(self, action: int) -> Any:
        return super().step(NAMES_OF_ALL.index(self._names[action]))

    def channel_values(self) -> np.ndarray:
        *others, last = super().channel_values()
        return np.array([*others, 0.75 * last], np.float32)  # within [0, 1]


def act(patch: pytest.MonkeyPatch, words: str, *names: str) -> int:
    """Run a command with a body of these actions."""
    patch.setattr(learn, "make_env", lambda _config: ActingBody(*names))
    return horde(words)


def acted(run: Path, since: int, up_to: int) -> Any:
    """Return the rows of the behaviour between two steps, with the name of the action that each next one shows."""
    rows = read(run / "log/life.rec").rows
    is_followed = (rows["phase"][:-1] == Phase.BEHAVE) & (np.diff(rows["step"]) == 1)
    is_followed &= (rows["flags"][1:] & Flag.GAP) == 0
    is_followed &= (rows["step"][:-1] >= since) & (rows["step"][:-1] < up_to)
    place = np.flatnonzero(is_followed)
    shown = np.round(rows["observation"][place + 1, 2] * 4).astype(int)
    return rows[place], [NAMES_OF_ALL[k] for k in shown]


def relearned(run: Path, folder: Path) -> str:
    """Return the digest of the weights that the record of a life alone teaches."""
    copy = Path(shutil.copytree(run, folder))
    shutil.rmtree(copy / "checkpoint")
    for table in (*copy.glob("*.csv"), *copy.glob("*.json")):
        table.unlink()
    assert horde(f"report {copy}") == 0
    digest: str = summary_of(copy)["weights_sha256"]
    return digest


@pytest.mark.parametrize("questions", ["own.toml", "policies"])
def test_a_new_action_is_taken_and_questions_asked_before_keep_their_bits(
    questions: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body has it in front: by its numbers, left would become jump.

    The weights are those of a Horde that knew of the action from the first row on, so none was lost or
    moved when it came; a policy over three actions, uniform or Gibbs, does not take it.
    """
    (elsewhere / "own.toml").write_text(UNCONTROLLED)
    words = f"learn --horizon 8 --seed 2 --questions {questions} --steps 300 --out run"
    assert act(monkeypatch, words, *ACTIONS) == 0
    order = ("jump", "stay", "left", "right")
    assert act(monkeypatch, "resume run --steps 500 --actions new:jump", *order) == 0
    assert act(monkeypatch, "resume run --steps 800", *order) == 0
    run = Path("run")
    for since, up_to, n_actions in ((0, 300, 3), (301, 800, 4)):
        rows, names = acted(run, since, up_to)
        assert [NAMES_OF_ALL[k] for k in rows["action"]] == names
        assert set(names) == set(NAMES_OF_ALL[:n_actions])
        b = [1 / n_actions, 0.5 / n_actions, 0.5 + 0.5 / n_actions]
        np.testing.assert_allclose(np.unique(rows["b"]), sorted(b))
    assert relearned(run, Path("again")) == summary_of(run)["weights_sha256"]
    assert horde("doctor run") == 0


def weights_of(run: str) -> dict[str, np.ndarray]:
    """Return theta of each question of a run, by its name."""
    trained = open_trained(RunFolder(Path(run)), Console(quiet=True))
    assert trained is not None
    assert isinstance(trained.horde, Horde)
    names = trained.horde.names
    return {
        name: trained.horde.weights(np.array([demon]))[0][0] for demon, name in enumerate(names)
    }


def test_the_values_of_a_found_policy_are_kept_and_that_of_a_new_action_begins_at_0(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each action has a block of weights. Then jump is taken too, which is the best by the channel "last"."""
    (elsewhere / "own.toml").write_text(OWN)
    words = "learn --horizon 8 --seed 2 --questions own.toml --steps 300 --out"
    for run in ("twin", "run"):
        assert act(monkeypatch, f"{words} {run}", *ACTIONS) == 0
    # A resume begins with a gap: nothing is learned in this step
    assert act(monkeypatch, "resume twin --steps 301", *ACTIONS) == 0
    assert act(monkeypatch, "resume run --steps 301 --actions new:jump", *NAMES_OF_ALL) == 0
    former = weights_of("twin")
    present = weights_of("run")
    for name, theta in former.items():
        np.testing.assert_array_equal(present[name][: len(theta)], theta)
        assert not present[name][len(theta) :].any()
    assert np.abs(former["rise"]).max() > 0.0
    assert len(present["rise"]) == 4 / 3 * len(former["rise"])
    assert act(monkeypatch, "resume run --steps 3000", *NAMES_OF_ALL) == 0
    *_, of_stay, of_jump = np.split(weights_of("run")["rise"], 4)
    assert of_jump.sum() > of_stay.sum() > 0.0


def test_questions_about_a_new_action_are_learned(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After jump the channel "last" shows 0.75. Its file is read again at each resume, as one of then."""
    (elsewhere / "own.toml").write_text(UNCONTROLLED)
    (elsewhere / "more.toml").write_text(
        '[[family]]\npolicies = ["jump"]\ngammas = [0.0]\nchannels = ["last"]\n'
    )
    words = "learn --paper --horizon 8 --seed 2 --questions own.toml --steps 300 --out run"
    assert act(monkeypatch, words, *ACTIONS) == 0
    words = "resume run --steps 4000 --actions new:jump --add more.toml"
    assert act(monkeypatch, words, *NAMES_OF_ALL) == 0
    table = (elsewhere / "run/questions.csv").read_text().splitlines()
    (line,) = [line for line in table if line.startswith("jump/g0/last")]
    assert int(line.split(",")[8]) > 300
    assert act(monkeypatch, "resume run --steps 4100", *NAMES_OF_ALL) == 0
    trained = open_trained(RunFolder(Path("run")), Console(quiet=True))
    assert trained is not None
    prediction = trained.horde.predictions[trained.horde.names.index("jump/g0/last")]
    assert prediction == pytest.approx(0.75, abs=0.1)


def test_a_lost_action_is_not_taken_and_what_is_known_of_it_stays_until_it_returns(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (elsewhere / "own.toml").write_text(UNCONTROLLED)
    words = "learn --horizon 8 --seed 2 --excursion-probability 0.1 --questions own.toml"
    assert act(monkeypatch, f"{words} --steps 600 --out run", *ACTIONS) == 0
    former = weights_of("run")
    capsys.readouterr()
    words = "resume run --steps 1200 --actions lost:right"
    assert act(monkeypatch, words, "stay", "left") == 0
    assert states(capsys.readouterr().err, "Lost actions: right", "not tested until")
    run = Path("run")
    rows, names = acted(run, 601, 1200)
    assert set(names) == {"left", "stay"}
    assert [NAMES_OF_ALL[k] for k in rows["action"]] == names
    np.testing.assert_allclose(np.unique(rows["b"]), [0.25, 0.5, 0.75])
    present = weights_of("run")
    for name in former:
        is_same = np.array_equal(present[name], former[name])
        assert is_same == name.startswith("right/"), name
    tested = excursion_policies(run, since=601)
    assert tested == {"action 0"}
    # It is back
    assert act(monkeypatch, "resume run --steps 2000", "right", "stay", "left") == 0
    _, names = acted(run, 1201, 2000)
    assert set(names) == set(ACTIONS)
    assert excursion_policies(run, since=1201) == {"action 0", "action 1", "uniform"}
    assert relearned(run, Path("again")) == summary_of(run)["weights_sha256"]


def excursion_policies(run: Path, since: int) -> set[str]:
    """Return the names of the policies that excursions followed from a step on."""
    table = ExcursionTable.read(run / "log/excursions.rec")
    names = set()
    for outcome in table.outcomes():
        if outcome.policy.name != "behaviour" and (outcome.step >= since).any():
            names.add(outcome.policy.name)
    return names


def test_actions_that_are_not_named_or_cannot_change_are_refused(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (elsewhere / "own.toml").write_text(OWN)
    words = "learn --horizon 8 --seed 2 --questions own.toml --steps 100 --out run"
    assert act(monkeypatch, words, *ACTIONS) == 0
    monkeypatch.setattr(learn, "make_env", lambda _config: ActingBody("stay", "jump", "left"))
    refusals = {
        "": ("actions", "such as jump", "--actions"),
        "--actions new:jump": ("no right any more", "lost:right", "--actions"),
        "--actions lost:right": ("has jump besides", "new:jump"),
        "--actions new:left,lost:right": ("new:left", "the record must not"),
        "--actions jump": ("--actions jump", "new:NAME"),
        "--actions new:jump,lost:right": ("'rise'", "best of all actions", "--remove 'rise'"),
    }
    for options, facts in refusals.items():
        line = refused(
            ["resume", "run", "--steps", "400", *options.split()], capsys, is_alone=False
        )
        assert states(line, *facts), line
    words = "resume run --steps 400 --actions new:jump,lost:right --remove rise"
    assert act(monkeypatch, words, "stay", "jump", "left") == 0
    words = ["resume", "run", "--steps", "500", "--columns", "own.toml"]
    assert states(refused(words, capsys), "--columns", "rows of data", "omit it")


TILINGS = """
[[tiling]]
channels = ["extra"]
intervals = [5]
tilings = 2

[[tiling]]
channels = ["extra", "saw"]
intervals = [5, 7]
tilings = 1
"""
ABOUT_EXTRA = '[[family]]\npolicies = ["behaviour"]\ngammas = [0.0]\nchannels = ["extra"]\n'


@pytest.mark.parametrize(
    "options", ["", "--features unknown", "--algorithm tdrc --trace-rule capped"]
)
def test_tilings_of_a_new_sensor_begin_at_0_and_all_other_weights_keep_their_bits(
    options: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles, bias and tiles "unknown" keep their numbers.

    The resume goes on after a gap, and nothing is learned in its one step, nor from the transition before.
    """
    (elsewhere / "tilings.toml").write_text(TILINGS)
    assert live(monkeypatch, f"{LIFE} {options} --steps 300 --out run", *NAMES) == 0
    former = weights_of("run")
    n_active = summary_of("run")["n_active"]
    words = "resume run --steps 301 --channels new:extra --tilings tilings.toml"
    assert live(monkeypatch, words, "extra", *NAMES) == 0
    present = weights_of("run")
    n_further = 2 * 5 + 35 + 3 * ("unknown" in options)
    assert any(theta.any() for theta in former.values())
    for name, theta in former.items():
        np.testing.assert_array_equal(present[name][: len(theta)], theta)
        np.testing.assert_array_equal(present[name][len(theta) :], np.zeros(n_further))
    assert summary_of("run")["n_active"] == n_active + 3


def test_questions_see_a_new_sensor_through_its_tilings(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its next reading follows from its present one: NMSRE near 0, and about 1 without these tilings."""
    (elsewhere / "tilings.toml").write_text(TILINGS)
    (elsewhere / "own.toml").write_text(ABOUT_EXTRA)
    born(elsewhere / "run", monkeypatch)
    order = ("extra", *NAMES)
    words = "resume run --steps 1500 --channels new:extra --add own.toml --tilings tilings.toml"
    assert live(monkeypatch, words, *order) == 0
    assert live(monkeypatch, "resume run --steps 3000", *order) == 0
    table = (elsewhere / "run/questions.csv").read_text().splitlines()
    (line,) = [line for line in table if line.startswith("behaviour/g0/extra")]
    assert float(line.split(",")[1]) < 0.1
    # More of them, over another channel; and a folder that is whole
    (elsewhere / "more.toml").write_text(CHOSEN)
    assert live(monkeypatch, "resume run --steps 3100 --tilings more.toml", *order) == 0
    assert live(monkeypatch, "resume run --steps 3200", *order) == 0
    capsys.readouterr()
    assert horde("doctor run") == 0
    assert "DAMAGED" not in capsys.readouterr().out
    for name in ("summary.json", "questions.csv"):
        (elsewhere / "run" / name).unlink()
    assert horde("report run") == 0
    assert horde("export run --predictions --out exported") == 0


def test_tilings_that_do_not_fit_are_refused(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    born(elsewhere / "run", monkeypatch)
    (elsewhere / "tilings.toml").write_text(TILINGS)
    (elsewhere / "none.toml").write_text("bias = true\n")
    refusals = {
        "tilings.toml": ("unknown channel 'extra'", "age, saw, last"),
        "none.toml": ("--tilings none.toml", "'bias'"),
        "absent.toml": ("--tilings absent.toml cannot be read",),
    }
    for file, facts in refusals.items():
        words = ["resume", "run", "--steps", "400", "--tilings", file]
        line = refused(words, capsys, is_alone=False)
        assert states(line, *facts), line
