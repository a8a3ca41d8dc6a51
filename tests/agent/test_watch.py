"""The live page: the files in `live/`, the values that the page shows, access to it, and its stop button."""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.gvf import GVF, Channel, variance_of
from horde_agent.interface import Interface
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life
from horde_agent.life.status import LiveStatusWriter, checksum_of
from horde_agent.policies import ConstantAction, StickyRandom
from horde_agent.processes import python
from horde_agent.record import Flag, Phase, Recorder, Row, read
from horde_agent.record.segments import encode_header
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.files import write_json
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.stop_request import StopAnswer
from horde_agent.scoring.excursion_table import ExcursionTable
from horde_agent.scoring.returns import policies_under_test
from horde_agent.watch import WatchConfig, server
from horde_agent.watch.reader import RunReader
from tests.agent.doubles import (
    ToyBody,
    horde_of,
    toy_life,
    toy_questions,
    write_question_table,
)
from tests.agent.test_ending import on_terminal

GAMMA = 0.5


class Hand:
    """A clock that advances by a period in each call."""

    def __init__(self, period_s: float) -> None:
        self.now_s = 0.0
        self.period_s = period_s

    def __call__(self) -> float:
        self.now_s += self.period_s
        return self.now_s


def questions(n: int) -> list[GVF]:
    return [
        GVF(f"left/saw-{k}", ConstantAction(0, 3), Channel(1), GAMMA, lam=0.5) for k in range(n)
    ]


def lived(
    folder: Path,
    n_steps: int,
    n_demons: int = 4,
    clock: Any = None,
    mode: Any = "eager",
    midway: Callable[[Life], None] | None = None,
    **options: Any,
) -> Life:
    """Return a short life in a run's folder, with its feed and its record, closed; it continues after `midway`."""
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text('backend = "simulator"\n', encoding="utf-8")
    (folder / "log").mkdir(exist_ok=True)
    env = ToyBody()
    interface = Interface.of(env)
    horde = horde_of(questions(n_demons), interface, mode)
    feed = LiveStatusWriter(folder, interface, horde, clock=clock or Hand(0.1), **options)
    recorder = Recorder(
        3, folder / "log" / "life.rec", {"channels": [], "actions": [], "period_s": 0.1}
    )
    behaviour = StickyRandom(3, 0.9)
    rng = np.random.default_rng(0)
    with Life(
        env, horde, behaviour, rng, interface=interface, recorder=recorder, observers=[feed]
    ) as life:
        life.run(n_steps)
        if midway is not None:
            midway(life)
            life.run(n_steps)
    feed.close(life)
    return life


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "toy-1"
    lived(folder, 900)
    return folder


# ---- files and values ----------------------------------------------------------------------


def test_the_newest_rows_are_read_from_the_record(run: Path, tmp_path: Path) -> None:
    """The feed of the second life writes every tenth step only; its record has all of them."""
    lived(tmp_path / "fast", 900, clock=Hand(0.02))
    for folder in (run, tmp_path / "fast"):
        rows = RunReader(folder).rows()
        record = read(folder / "log" / "life.rec").rows[-600:]
        assert [row["step"] for row in rows] == record["step"].tolist()
        assert rows[-1]["values"] == pytest.approx(record["observation"][-1], abs=1e-4)
        assert rows[-1]["pose"] is None  # the toy body has no heading


def test_a_page_gets_every_new_row_of_a_robot_and_every_third_of_a_fast_run() -> None:
    """2 new rows in a tick: both. 120 new rows: every third, the newest among them."""
    latest = server.Latest(SimpleNamespace(rows=list, status=dict))  # type: ignore[arg-type]
    for n_new, steps in ((2, [1, 2]), (120, list(range(3, 121, 3)))):
        latest.rows = [{"step": step} for step in range(n_new + 1)]
        text, newest = latest.message(after=0)
        assert [row["step"] for row in json.loads(text)["rows"]] == steps
        assert newest == n_new
    latest.rows = latest.rows[:60]  # resumed from an earlier step
    assert len(json.loads(latest.message(after=120)[0])["rows"]) == 60


def recorded(
    folder: Path, flags: Sequence[int], actions: Sequence[int], at_20: Sequence[int] = (0,)
) -> NDArray[Any]:
    """Write a run with these rows and a feed of all of them, and return cumulants of channel 1: c_t = t.

    Row 20 is written once for each of `at_20`, flags that are added to its own.
    """
    horde = lived(folder, 20).horde
    shutil.rmtree(folder / "log")
    (folder / "log").mkdir()
    cumulants = np.arange(len(flags), dtype=np.float64)
    with Recorder(3, folder / "log" / "life.rec", {"period_s": 0.1}) as recorder:
        for step, extra in [(s, e) for s in range(len(flags)) for e in (at_20 if s == 20 else [0])]:
            observation = np.array([0, cumulants[step], 0], np.float32)
            pose = (math.nan, math.nan, math.nan)
            recorder.write(
                Row(
                    step,
                    0.1 * step,
                    observation,
                    actions[step],
                    1.0,
                    Phase.BEHAVE,
                    flags[step] | extra,
                    pose,
                )
            )
    steps = np.arange(len(flags))
    np.savez(
        folder / "live" / "demons.npz",
        **dict.fromkeys(("nmsre", "mspbe", "diverged"), np.zeros(horde.n_demons)),
        steps=steps,
        t=0.1 * steps,
        predictions=np.zeros((len(steps), horde.n_demons)),
        checksum=checksum_of(horde.names),
    )
    return cumulants


@pytest.mark.parametrize("broken", ["nothing", "action", "gap", "missing row", "reset"])
def test_a_return_is_shown_if_the_robot_followed_the_policy_without_a_break(
    broken: str, tmp_path: Path
) -> None:
    """Gamma 0.5: a return needs five terms, after which .5^5 < 5 % are missing. Row 20 of 40 breaks the stream.

    From row t the terms are c_{t+1}, c_{t+2}, ...; the break ends them before c_20, or after it if
    the robot took another action *from* row 20 or was reset at it. Those of an unbroken stream end
    with c_39. What is missing is that of the mean reading, but after the end of an episode nothing:
    the return of a row shortly before it is known, too.
    """
    flags = [Flag.GAP if broken == "gap" and step == 20 else Flag.NONE for step in range(40)]
    actions = [1 if broken == "action" and step == 20 else 0 for step in range(40)]
    at_20 = {"missing row": [], "reset": [Flag.TERMINATED, Flag.GAP]}.get(broken, [Flag.NONE])
    c = recorded(tmp_path / "run", flags, actions, at_20)
    # Row of the last term before the break
    last = {"nothing": 39, "action": 20, "reset": 20}.get(broken, 19)
    begins_again = {"action": 21, "missing row": 21}.get(broken, 20)
    mean = np.append(np.delete(c, 20), np.repeat(c[20], len(at_20))).mean()
    shown = RunReader(tmp_path / "run").demon("left/saw-2")["return"]
    for t in range(40):
        end = last if t < begins_again else 39
        is_ended = broken == "reset" and end == 20
        if end - t < 5 and not is_ended:
            assert shown[t] is None, t
        else:
            measured = sum(GAMMA ** (j - t - 1) * c[j] for j in range(t + 1, end + 1))
            missing = GAMMA ** (end - t) * mean / (1.0 - GAMMA)
            if is_ended:
                missing = 0.0
            assert shown[t] == pytest.approx(measured + missing), t


@pytest.mark.parametrize(
    ("silent_s", "is_locked", "state"),
    [(5, False, "living"), (11, True, "silent"), (30, False, "dead")],
)
def test_a_life_that_writes_nothing_is_silent_or_dead(
    silent_s: float, is_locked: bool, state: str, tmp_path: Path
) -> None:
    """A running process holds the lock of the folder."""
    lived(tmp_path, 20)
    status_file = tmp_path / "live" / "now.json"
    status_file.write_text(
        json.dumps(json.loads(status_file.read_text()) | {"state": "living"}), encoding="utf-8"
    )
    changed = time.time() - silent_s
    os.utime(status_file, (changed, changed))
    with RunFolder(tmp_path).locked() if is_locked else nullcontext():
        status = RunReader(tmp_path).status()
    assert status["state"] == state
    if state != "living":
        assert status["silent_s"] == pytest.approx(silent_s, abs=5.0)


def test_the_map_has_a_family_for_each_policy_and_time_scale(tmp_path: Path) -> None:
    lived(tmp_path, 20, n_demons=5)
    facts = tmp_path / "live" / "facts.json"
    table = json.loads(facts.read_text())
    about = [("light", "left", 0.5), ("a/b/c/d", "left", 0.5), ("c", "a/b", None)]
    table["questions"] = [
        {"name": name, "family": "", "policy": policy, "gamma": gamma}
        for name, policy, gamma in about
    ]
    facts.write_text(json.dumps(table))
    assert RunReader(tmp_path).families() == [
        {"name": "left/g0.5", "n": 2},
        {"name": "a/b", "n": 1},
    ]


def test_the_share_of_questions_better_than_the_mean_is_that_of_the_tested_ones(
    tmp_path: Path,
) -> None:
    """Of a living run and of a finished one."""
    lived(tmp_path, 900, n_demons=40)
    nmsre = RunReader(tmp_path).measures()[0]
    status = RunReader(tmp_path).status()
    assert np.isfinite(nmsre).any()
    assert status["share_nmsre_below_1"] == pytest.approx(np.mean(nmsre[np.isfinite(nmsre)] < 1.0))
    (tmp_path / "summary.json").write_text(
        '{"steps": 900, "share_nmsre_below_1": 0.25}', encoding="utf-8"
    )
    assert RunReader(tmp_path).status()["share_nmsre_below_1"] == 0.25


@pytest.mark.parametrize("is_over", [False, True])
def test_the_status_has_the_discarded_excursions_by_reason(is_over: bool, tmp_path: Path) -> None:
    """The frame of step 5 is a gap; a finished run has its counts in details.json."""
    (tmp_path / "config.toml").write_text('backend = "simulator"\n', encoding="utf-8")
    body = ToyBody({5: {"gap": 1}})
    toy_horde = horde_of(toy_questions(), Interface.of(body))
    status_writer = LiveStatusWriter(tmp_path, Interface.of(body), toy_horde)
    config = ExcursionConfig(probability=1.0, horizon=20)
    with toy_life(body, toy_horde, excursions=config, observers=[status_writer]) as life:
        life.run(12)
    status_writer.close(life)
    expected = {"a gap": 1}
    if is_over:
        expected = {"stale frames": 2}
        (tmp_path / "summary.json").write_text('{"steps": 12}', encoding="utf-8")
        write_json(tmp_path / "details.json", {"n_discarded": 2, "discarded_by": expected})
    status = RunReader(tmp_path).status()
    assert status["discarded_by"] == expected
    assert status["n_discarded"] == sum(expected.values())


def test_a_resumed_run_with_tables_is_shown_as_living(tmp_path: Path) -> None:
    lived(tmp_path, 20)
    (tmp_path / "summary.json").write_text('{"steps": 10}', encoding="utf-8")
    write_question_table(tmp_path / "questions.csv", [{"name": "a", "nmsre": 7.0}] * 4)
    reader = RunReader(tmp_path)
    status_file = tmp_path / "live" / "now.json"
    assert (reader.status()["state"], reader.status()["step"], reader.measures()[0, 0]) == (
        "over",
        10,
        7.0,
    )
    status_file.write_text(status_file.read_text().replace('"over"', '"living"'), encoding="utf-8")
    assert (reader.status()["state"], reader.status()["step"]) == ("living", 20)
    assert np.isnan(reader.measures()[0, 0])


def test_the_feed_does_not_change_the_weights(tmp_path: Path) -> None:
    """Steps are deferred; a feed that writes after each row and one that never does end in the same bits."""
    weights = []
    for name, period_s in (("often", 1.0), ("never", 0.0)):
        life = lived(tmp_path / name, 400, clock=Hand(period_s), mode="deferred")
        weights.append(life.horde.weights()[0].tobytes())
    assert weights[0] == weights[1]


def test_files_do_not_grow_with_the_run(tmp_path: Path) -> None:
    """A minute of predictions: 300 samples, five a second of the clock."""
    for n_steps in (700, 900):
        lived(tmp_path / str(n_steps), n_steps)
        with np.load(tmp_path / str(n_steps) / "live" / "demons.npz") as demons:
            assert demons["predictions"].shape == (300, 4)
            assert demons["steps"][-1] > n_steps - 20
            assert np.std(demons["predictions"]) > 0.0


def test_a_full_disk_ends_the_feed_and_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:

    def full(_self: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    lived(tmp_path / "run", 50)
    shutil.rmtree(tmp_path / "run" / "log")
    files = [tmp_path / "run" / "live" / name for name in ("facts.json", "now.json", "demons.npz")]
    contents = [file.read_bytes() for file in files]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", full)
        life = lived(tmp_path / "run", 100, n_demons=5)
    assert life.steps == 100
    assert [file.read_bytes() for file in files] == contents
    assert [r.message for r in caplog.records] == [
        "live page updates stopped (No space left on device); the run continues"
    ]


def test_added_demons_are_on_the_page(tmp_path: Path) -> None:
    facts = tmp_path / "run" / "live" / "facts.json"
    old_facts = list[bytes]()

    def add(life: Life) -> None:
        old_facts.append(facts.read_bytes())
        life.add([GVF("new", ConstantAction(1, 3), Channel(0), 0.0)])

    lived(tmp_path / "run", 30, n_demons=2, midway=add)
    new_facts = facts.read_bytes()
    # A reader that has read it before and demons.npz after its replacement
    facts.write_bytes(old_facts[0])
    assert np.isnan(RunReader(tmp_path / "run").measures()).all()
    facts.write_bytes(new_facts)
    demon = RunReader(tmp_path / "run").demon("new")
    assert 13 <= len(demon["t"]) <= 16
    assert any(value is not None for value in demon["return"])


def watch_for_surprise(life: Life) -> None:
    """Watch the errors from here on."""
    life.student.watch("1/day")


def test_the_evidence_of_a_watched_life_is_on_the_page(tmp_path: Path) -> None:
    """With what is missing for a first test; a life that is not watched has none."""
    lived(tmp_path / "run", 30, n_demons=2, midway=watch_for_surprise)
    table = RunReader(tmp_path / "run").surprise()
    assert table["rate"] == "1/day"
    assert table["steps_missing"] > 5_000
    assert set(table["evidence_of_groups"]) == {"obs"}
    assert table["events"] == []
    lived(tmp_path / "other", 30)
    assert RunReader(tmp_path / "other").surprise() == {}


def test_a_question_with_twenty_tests_has_a_band_and_the_share_of_returns_in_it(
    tmp_path: Path,
) -> None:
    """Errors 1 to 20, then 100: half the band is the largest of 19; neither of two returns with a band was in it."""
    lived(tmp_path / "run", 50, n_demons=2)
    reader = RunReader(tmp_path / "run")
    assert "half_width" not in reader.demon("left/saw-0")
    policies = policies_under_test(questions(2))
    table = ExcursionTable(policies, 2)
    table.record_to(RunFolder(tmp_path / "run").excursions)
    for number, error in enumerate([*range(1, 21), 100]):
        values = dict.fromkeys(("remainder", "share", "persistence", "return"), np.zeros(1))
        table.append(
            policies[0].name,
            step=number,
            online=1.0,
            demons=np.array([0]),
            values={**values, "prediction": np.array([float(error)])},
        )
    table.close()
    demon = RunReader(tmp_path / "run").demon("left/saw-0")
    assert demon["half_width"] == 100.0
    assert demon["n_bands"] == 2
    assert demon["in_band"] == 0.0
    assert "half_width" not in reader.demon("left/saw-1")


def ask_about_variance(life: Life) -> None:
    """Add a question about the variance of the first question's return."""
    life.add([variance_of(life.horde.questions[0])])


def test_a_question_whose_variance_is_learned_has_a_deviation(tmp_path: Path) -> None:
    """The root of what the question about the variance predicts, which counts as 0 below 0; no other has one."""
    lived(tmp_path / "run", 300, n_demons=2, midway=ask_about_variance)
    reader = RunReader(tmp_path / "run")
    demon = reader.demon("left/saw-0")
    variance = np.array(reader.demon("left/saw-0/variance")["prediction"])
    assert variance.max() > 0.0
    np.testing.assert_allclose(demon["deviation"], np.sqrt(np.maximum(variance, 0.0)))
    assert "deviation" not in reader.demon("left/saw-1")
    assert "deviation" not in reader.demon("left/saw-0/variance")


def test_the_deviations_of_a_finished_run_are_those_of_its_tables(
    run: Path, tmp_path: Path
) -> None:
    """traces.csv of the version before has no such column, and a question without a variance no number there."""
    head = "question,channel,panel,t_s,prediction,actual"
    tables = {
        f"{head}\nleft/saw-0,saw,left,0,1,2\n": None,
        f"{head},deviation\nleft/saw-0,saw,left,0,1,2,\n": None,
        f"{head},deviation\nleft/saw-0,saw,left,0,1,2,.5\n": [0.5],
    }
    for number, (table, deviation) in enumerate(tables.items()):
        folder = tmp_path / f"{number}"
        shutil.copytree(run, folder)
        (folder / "summary.json").write_text("{}", encoding="utf-8")
        (folder / "traces.csv").write_text(table, encoding="utf-8")
        shown = RunReader(folder).demon("left/saw-0")
        assert shown["prediction"] == [1.0]
        assert shown.get("deviation") == deviation


def test_a_run_without_a_feed_is_shown_from_its_record(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    (run / "summary.json").write_text("{}", encoding="utf-8")
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("live"))
    scores: list[dict[str, object]] = [
        {"name": "a", "nmsre": 0.5, "mspbe_scalar": 1e-3},
        {"name": "b", "nmsre": 9.0, "diverged": 1},
        {"name": "c", "nmsre": 2.0},
        {"name": "d"},
    ]
    write_question_table(folder / "questions.csv", scores)
    header = json.loads((folder / "log" / "life.rec").read_bytes().split(b"\n", 1)[0])
    assert header["channels"] == []
    with pytest.raises(BadInput, match="neither a live feed nor a recording"):
        RunReader(folder)
    body = (folder / "log" / "life.rec").read_bytes()[header["offset"] :]
    header["channels"] = [{"name": n, "unit": "1"} for n in "abc"]
    (folder / "log" / "life.rec").write_bytes(
        encode_header({k: v for k, v in header.items() if k != "offset"}) + body
    )
    reader = RunReader(folder)
    assert len(reader.rows()) == 600
    for descending, names in ((True, "bcad"), (False, "acbd")):  # unknown values come last
        rows = reader.demons("", "nmsre", descending, 0, 9)["rows"]
        assert "".join(row["name"] for row in rows) == names
    assert reader.demon("a")["why"] == "this run has no predictions of this question"


# ---- the server ------------------------------------------------------------------------------------------------------


@contextmanager
def served(folder: Path, port: int = 0, **options: Any) -> Iterator[str]:
    """Serve a run on the loopback, and yield the address of its page."""
    uvicorn = pytest.importorskip("uvicorn")
    with server.listening_socket("127.0.0.1", port) as listening:
        app = server.make_app(folder, **options)
        web_server = uvicorn.Server(
            uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
        )
        thread = threading.Thread(target=web_server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            web_server.should_exit = True
            thread.join()


@pytest.fixture
def page(run: Path) -> Iterator[str]:
    with served(
        run, stop=lambda: StopAnswer(is_confirmed=True, said="the robot stands")
    ) as address:
        yield address


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
    """Return the status and the JSON of an answer."""
    request = urllib.request.Request(
        url, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_stop_needs_two_requests_of_the_page(page: str) -> None:
    """The first returns a word; the second one with that word stops the run; the word is valid once."""
    assert ask(f"{page}/api/stop", "POST")[0] == 403
    code, answer = ask(f"{page}/api/stop", "POST", x_horde="stop")
    assert code == 200
    assert "is_confirmed" not in answer
    assert ask(f"{page}/api/stop?word=guess", "POST", x_horde="stop")[0] == 409
    confirmed = {"is_confirmed": True, "said": "the robot stands"}
    assert ask(f"{page}/api/stop?word={answer['word']}", "POST", x_horde="stop") == (200, confirmed)
    assert ask(f"{page}/api/stop?word={answer['word']}", "POST", x_horde="stop")[0] == 409


def test_another_host_name_is_refused(page: str) -> None:
    """DNS rebinding: another site's name resolves to this machine."""
    assert ask(f"{page}/api/run", host="evil.example:80")[0] == 403
    assert ask(f"{page}/api/run")[0] == 200


def test_with_a_token_every_request_needs_it(run: Path) -> None:
    with served(run, token="secret") as address:
        url = f"{address}/api/run"
        codes = [ask(url)[0], ask(url + "?token=wrong")[0], ask(url + "?token=secret")[0]]
        assert [*codes, ask(url, cookie="horde=secret")[0]] == [403, 403, 200, 200]


def test_unknown_questions_columns_and_files_are_refused(page: str) -> None:
    code, answer = ask(f"{page}/api/demon?name=left/saw-22")
    assert code == 400
    assert answer["error"] == "there is no question 'left/saw-22'; did you mean 'left/saw-2'?"
    assert ask(f"{page}/api/demons?sort=beauty")[0] == 400
    for path in ("..%2Fserver.py", "server.py", "page/index.html", "api/nothing"):
        with pytest.raises(urllib.error.HTTPError, match="404") as refusal:
            urllib.request.urlopen(f"{page}/{path}", timeout=10)
        refusal.value.close()


BAD_QUERIES = (
    ("demons?index=-1", "index must be a whole number from 0 to 1,000,000,000, not '-1'"),
    ("demons?index=4", "there is no question number 4; the last of 4 is 3"),
    ("demons?index=1_0", "index must be a whole number"),
    ("demons?index=%D9%A3", "index must be a whole number"),  # an Arabic 3
    ("demons?index=", "index must be a whole number"),
    ("demons?index=" + 5000 * "9", "index must be a whole number"),
    ("demons?index=1&index=2", "the parameter 'index' is given twice; give it once"),
    ("demons?index=1&sort=name", "there is no parameter 'sort' here; choose from index"),
    ("demons?offset=-1", "offset must be a whole number"),
    ("demons?limit=1e2", "limit must be a whole number from 0 to 500, not '1e2'"),
    ("demons?limit=501", "limit must be a whole number from 0 to 500, not '501'"),
    ("demons?descending=yes", "descending must be a whole number from 0 to 1, not 'yes'"),
    (
        "demons?order=name",
        "there is no parameter 'order' here; choose from find, sort, descending, offset, limit",
    ),
    ("demon", "there is no question ''; /api/demons lists them"),
    ("demon?index=1", "there is no parameter 'index' here; choose from name"),
    ("heat?x=1", "there is no parameter 'x' here; leave it out"),
    ("curves?x=1", "there is no parameter 'x' here; leave it out"),
    ("run?x=1", "there is no parameter 'x' here; leave it out"),
)


@pytest.mark.parametrize(
    ("query", "sentence"), BAD_QUERIES, ids=[query[:40] for query, _ in BAD_QUERIES]
)
def test_a_bad_query_is_refused_in_one_sentence(query: str, sentence: str, page: str) -> None:
    code, answer = ask(f"{page}/api/{query}")
    assert code == 400
    assert sentence in answer["error"]
    assert len(answer["error"]) < 200


def test_the_stream_sends_all_rows_first_and_then_new_ones(page: str) -> None:
    with urllib.request.urlopen(f"{page}/api/stream", timeout=10) as stream:
        first = json.loads(stream.readline().removeprefix(b"data: "))
        assert len(first["rows"]) == 600
        assert first["status"]["state"] == "over"
        assert "final" not in first
        stream.readline()
        line = stream.readline()
        assert line.startswith(b":") or not json.loads(line.removeprefix(b"data: "))["rows"]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ({"port": 70000}, "--port must be from 0 to 65535, got 70000"),
        ({"port": -1}, "--port must be from 0 to 65535, got -1"),
        ({"host": "no.such.host.invalid"}, "the host 'no.such.host.invalid' is not an address"),
    ],
)
def test_an_address_that_cannot_be_is_refused(
    address: dict[str, Any], sentence: str, run: Path
) -> None:
    pytest.importorskip("uvicorn")
    with pytest.raises(BadInput, match=sentence):
        server.watch(WatchConfig(run, **address))


def test_a_feed_of_another_version_is_refused(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    write_json(copy / "live" / "facts.json", {"format": "horde-live", "version": 99})
    with pytest.raises(BadInput, match=r"facts\.json has version 99 of the format horde-live"):
        RunReader(copy).facts()


def test_a_port_that_is_taken_is_refused_in_one_sentence(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("uvicorn")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert cli.main(["watch", str(run), "--port", str(taken.getsockname()[1])]) == 2
    output = capsys.readouterr().err
    assert "cannot be opened" in output
    assert len(output.splitlines()) == 1


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_no_child_process_imports_modules_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "logging.py").write_text("raise SystemExit('foreign code runs')")
    command, environment = python("horde_agent.watch.server", str(tmp_path / "no-run"))
    assert command.count("-P") == 1
    outputs = [
        subprocess.run(
            words,
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        ).stderr
        for words in (command, [word for word in command if word != "-P"])
    ]
    assert ["foreign code runs" in stderr for stderr in outputs] == [False, True]


def test_the_unspecified_address_of_ipv6_stands_for_every_address() -> None:
    with server.listening_socket("::", 0) as opened:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, opened.getsockname()[1]), 5.0).close()


def test_a_page_that_cannot_be_opened_closes_the_body_and_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are open by then; without that, the recording would stay open, and its folder on a network's disk."""

    def refuse(*_: Any) -> None:
        raise BadInput("no port is free")

    class Body(ToyBody):
        def close(self) -> None:
            calls.append("body")

    calls = list[str]()
    close = Recorder.close

    def close_and_note(recorder: Recorder) -> None:
        calls.append("recording")
        close(recorder)

    monkeypatch.setattr(learn, "make_env", lambda _: Body())
    monkeypatch.setattr(learn, "open_beside", refuse)
    monkeypatch.setattr(learn, "need_extras", lambda: None)
    monkeypatch.setattr(Recorder, "close", close_and_note)
    out = tmp_path / "run"
    assert cli.main(["learn", "--watch", "--steps", "20", "--out", str(out)]) == 2
    assert "no port is free" in capsys.readouterr().err
    assert calls == ["body", "recording"]
    assert not out.exists()


def await_refusal(address: str, patience_s: float = 10.0) -> None:
    """Wait until no server listens at `address`: a stream ends before its server does."""
    ends_at = time.monotonic() + patience_s
    while time.monotonic() < ends_at:
        try:
            urllib.request.urlopen(address, timeout=patience_s).close()
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionRefusedError):
                return
        except (ConnectionError, http.client.HTTPException):
            continue  # it ended during the request: ask again
    raise AssertionError(f"{address} still answers after {patience_s} s")


@pytest.mark.skipif(sys.platform == "win32", reason="it kills, and opens a terminal")
@pytest.mark.parametrize(
    "end",
    ["at a terminal", pytest.param("without a terminal", marks=pytest.mark.slow), "killed"],
)
def test_the_final_message_of_a_page_names_horde_watch(end: str, tmp_path: Path) -> None:
    """At a terminal it ends after Ctrl-C; else with the run, after 600 steps or kill -9 at step 300."""
    pytest.importorskip("uvicorn")
    words = ["learn", "--watch", "--steps", "600", "--out", str(tmp_path / "a")]
    command = [sys.executable, "-m", "tests.agent.toy_command", str(tmp_path), *words]
    text = b""
    with ExitStack() as stack:
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        if end == "at a terminal":
            options, shown, keys = stack.enter_context(on_terminal())
        life = stack.enter_context(subprocess.Popen(command, **options))
        stack.callback(life.kill)
        if life.stderr is not None:
            shown = life.stderr.readline

        def read_until(pattern: bytes) -> str:
            nonlocal text
            while not (found := re.search(pattern, text)):
                more = shown()
                assert more, text.decode()
                text += more
            return found[1].decode()

        address = read_until(rb"watch at (http://\S+/)\s")
        with urllib.request.urlopen(f"{address}api/stream", timeout=60) as stream:
            while not (tmp_path / "reached").exists():
                assert life.poll() is None
                stream.readline()  # four a second
            if end == "killed":
                life.kill()
            else:
                (tmp_path / "go").touch()
            if end == "at a terminal":
                assert read_until(rb"the page stays at (http://\S+/) until Ctrl-C") == address
                assert ask(f"{address}api/run")[0] == 200
                keys.write(b"\x03")  # Ctrl-C
            *_, last = [json.loads(line[6:]) for line in stream if line.startswith(b"data: ")]
        assert "final" in last
        assert f"`horde watch {tmp_path / 'a'}`" in last["final"]
        assert last["status"]["state"] == ("dead" if end == "killed" else "over")
        assert life.wait(60) == (-signal.SIGKILL if end == "killed" else 0)
        await_refusal(address)
