"""The live page: what a life leaves for it, what it makes of that, who may see it, and the one thing it may do."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.cluster import ShardedHorde, ShardStatus
from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.feed import Feed
from horde_agent.life.life import Life
from horde_agent.life.observers import Progress
from horde_agent.policies import ConstantAction, StickyRandom
from horde_agent.record import Recorder, read
from horde_agent.record.segments import encode_header
from horde_agent.runs.config import BadInput, LearnConfig
from horde_agent.watch import server
from horde_agent.watch.reader import RunReader
from tests.agent.doubles import ToyBody

GAMMA = 0.5


class Hand:
    """A clock that advances by a period at each look."""

    def __init__(self, period_s: float) -> None:
        self.now_s, self.period_s = 0.0, period_s

    def __call__(self) -> float:
        self.now_s += self.period_s
        return self.now_s


def questions(n: int) -> list[GVF]:
    return [GVF(f"left/saw-{k}", ConstantAction(0, 3), Channel(1), GAMMA, lam=0.5) for k in range(n)]


def lived(
    folder: Path,
    n_steps: int,
    n_demons: int = 4,
    clock: Any = None,
    mode: Any = "eager",
    kind: type[Horde] = Horde,
    **options: Any,
) -> Life:
    """Return a short life in a run's folder, with its feed and its record, closed."""
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text('backend = "simulator"\n', encoding="utf-8")
    (folder / "log").mkdir(exist_ok=True)
    env = ToyBody()
    interface = Interface.of(env)
    horde = kind(
        questions(n_demons), n_features=interface.coder.n_features, n_active=interface.coder.n_active, mode=mode
    )
    feed = Feed(folder, interface, horde, clock=clock or Hand(0.1), **options)
    recorder = Recorder(3, folder / "log" / "life.rec", {"channels": [], "actions": [], "period_s": 0.1})
    behaviour, rng = StickyRandom(3, 0.9), np.random.default_rng(0)
    with Life(env, horde, behaviour, rng, interface=interface, recorder=recorder, observers=[feed]) as life:
        life.run(n_steps)
    feed.close(life)
    recorder.close()
    return life


class Sharded(Horde, ShardedHorde):
    """One Horde that says it has shards, of which none is behind."""

    n_updates = 0

    def wait(self) -> None:
        pass


def shard(number: int, lag: int, state: str, why: str = "") -> ShardStatus:
    return ShardStatus(number, 2, lag, 0, n_bytes=100, node="10.0.0.2", process=7, state=state, why=why)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "toy-1"
    lived(folder, 900)
    return folder


# ---- what a life leaves, and what is made of it ----------------------------------------------------------------------


def test_a_reader_finds_the_last_minute_in_order_whatever_came_before(run: Path) -> None:
    """900 rows went through a ring of 600 slots."""
    rows = RunReader(run).rows()
    newest = rows[-1]["number"]
    assert newest > 800  # drives, which nobody observes, are no rows
    assert [row["number"] for row in rows] == list(range(newest - 599, newest + 1))
    assert rows[-1]["values"][0] == pytest.approx(rows[-1]["step"] / 10_000, abs=1e-3)
    assert rows[-1]["pose"] is None  # the toy tells no heading
    assert [row["number"] for row in RunReader(run).rows(after=newest - 2)] == [newest - 1, newest]


def test_a_page_is_told_of_each_shard_and_of_none_where_there_are_none(tmp_path: Path) -> None:
    rows = [shard(0, 448, "learning"), shard(1, 0, "recovering", why="its process died")]

    class Told(Sharded):
        shards = rows

    lived(tmp_path / "one", 40)
    assert RunReader(tmp_path / "one").status()["shards"] == []
    lived(tmp_path / "two", 40, kind=Told)
    told = RunReader(tmp_path / "two").status()["shards"]
    assert told == [row._asdict() for row in rows]
    assert (told[1]["state"], told[1]["why"], told[0]["lag"]) == ("recovering", "its process died", 448)


def test_progress_says_how_far_shards_are_behind(tmp_path: Path) -> None:
    class Told(Sharded):
        shards = (shard(0, 448, "learning"), shard(1, 1_216, "recovering"), shard(2, 64, "lost"))

    life = lived(tmp_path, 40, kind=Told)
    facts = dict(Progress(40, 0.1, every_s=0.0).facts(40, 1.0, life.horde, None))
    assert facts["shards"] == "3, at most 1,216 steps behind (2 (1 recovering, 2 lost) not learning)"
    assert "shards" not in dict(Progress(40, 0.1).facts(40, 1.0, lived(tmp_path / "one", 40).horde, None))


def test_snapshots_are_counted_where_a_life_keeps_them(tmp_path: Path) -> None:
    """One that is still being written is none yet."""
    lived(tmp_path, 20)
    assert RunReader(tmp_path).status()["snapshots"] == 0
    for name in ("000000000010", "000000000020", ".unfinished-1"):
        (tmp_path / "checkpoint" / name).mkdir(parents=True)
    assert RunReader(tmp_path).status()["snapshots"] == 2


def test_a_return_is_shown_where_the_robot_did_what_the_policy_does_and_nowhere_else(run: Path) -> None:
    """Gamma 0.5: six terms reach 0.02. Each is summed by hand from the record; rows with another action have none."""
    told = RunReader(run).demon("left/saw-2")
    record = read(run / "log" / "life.rec").rows
    rows = {int(row["step"]): row for row in record}
    n_known = 0
    for seen, shown in zip(RunReader(run).rows(), told["return"], strict=True):
        ahead: list[Any] = [rows.get(seen["step"] + j) for j in range(7)]
        followed = all(row is not None for row in ahead) and all(row["action"] == 0 for row in ahead[:-1])
        whole = followed and not any(row["flags"] & 1 for row in ahead[1:])
        assert (shown is not None) == whole
        if whole:
            n_known += 1
            assert shown == pytest.approx(
                sum(GAMMA**j * row["observation"][1] for j, row in enumerate(ahead[1:])), abs=1e-4
            )
    assert n_known > 20
    assert len(told["prediction"]) == 600
    assert np.std(told["prediction"]) > 0.0


def test_what_is_learned_does_not_depend_on_who_looks(tmp_path: Path) -> None:
    """Steps are taken many together; a feed that looks at each row and one that never does end in the same bits."""
    weights = []
    for name, period_s in (("often", 1.0), ("never", 0.0)):
        life = lived(tmp_path / name, 400, clock=Hand(period_s), mode="deferred")
        weights.append(life.horde.weights()[0].tobytes())
    assert weights[0] == weights[1]


def test_files_stay_as_large_as_they_are_made(tmp_path: Path) -> None:
    sizes = []
    for n_steps in (50, 1500):
        folder = tmp_path / str(n_steps)
        lived(folder, n_steps)
        names = ("ring.rec", "predictions.f32", "measures.f32")
        sizes.append([(folder / "live" / name).stat().st_size for name in names])
    assert sizes[0] == sizes[1]


def test_a_full_disk_ends_the_feed_and_not_the_life(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Full:
        def seek(self, *_: int) -> None:
            """Nowhere."""

        def write(self, _: bytes) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            """Nothing is open."""

    original = Feed._describe

    def described(self: Feed, horde: Horde) -> None:
        original(self, horde)
        self._files["ring.rec"].close()
        self._files["ring.rec"] = Full()  # type: ignore[assignment]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Feed, "_describe", described)
        life = lived(tmp_path / "run", 100)
    assert life.steps == 100
    assert [r.message for r in caplog.records] == [
        "the live page is told no more (No space left on device); the life goes on"
    ]


def test_demons_that_come_in_mid_life_are_on_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text("", encoding="utf-8")
    env = ToyBody()
    interface = Interface.of(env)
    horde = Horde(questions(2), n_features=interface.coder.n_features, n_active=interface.coder.n_active, mode="eager")
    feed = Feed(folder, interface, horde, clock=Hand(0.1))
    with Life(env, horde, StickyRandom(3), np.random.default_rng(0), interface=interface, observers=[feed]) as life:
        life.run(30)
        life.add([GVF("new", ConstantAction(1, 3), Channel(0), 0.0)])
        life.run(30)
    feed.close(life)
    told = RunReader(folder).demon("new")
    assert 25 <= len(told["t"]) <= 31
    assert any(value is not None for value in told["return"])


def test_a_run_without_a_feed_is_shown_from_its_record(run: Path, tmp_path: Path) -> None:
    """As those of earlier versions: its rows, its table of questions, its curves."""
    folder = tmp_path / "old"
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("live"))
    (folder / "questions.csv").write_text(
        "name,nmsre,mspbe_scalar,diverged\na,0.5,1e-3,0\nb,2.5,,1\n", encoding="utf-8"
    )
    header = json.loads((folder / "log" / "life.rec").read_bytes().split(b"\n", 1)[0])
    assert header["channels"] == []
    with pytest.raises(BadInput, match="neither a live feed nor a record"):
        RunReader(folder)
    body = (folder / "log" / "life.rec").read_bytes()[header["offset"] :]
    header["channels"] = [{"name": n, "unit": "1"} for n in "abc"]
    (folder / "log" / "life.rec").write_bytes(encode_header({k: v for k, v in header.items() if k != "offset"}) + body)
    reader = RunReader(folder)
    assert len(reader.rows()) == 600
    assert [row["name"] for row in reader.demons("", "nmsre", True, 0, 9)["rows"]] == ["b", "a"]
    assert reader.demon("a")["why"] == "this run kept no predictions of this question"


def test_of_a_life_that_is_over_its_last_minute_is_shown_whole(tmp_path: Path) -> None:
    """A life of 10 steps a tick of its clock leaves every second row or less in the ring, and all in its record."""
    folder = tmp_path / "fast"
    lived(folder, 700, clock=Hand(0.02))
    assert len(RunReader(folder).rows()) < 300
    (folder / "summary.json").write_text("{}", encoding="utf-8")
    steps = [row["step"] for row in RunReader(folder).rows()]
    assert len(steps) == 600
    assert np.diff(steps).tolist() == [1] * 599


# ---- the server ------------------------------------------------------------------------------------------------------


@pytest.fixture
def page(run: Path) -> Iterator[str]:
    """Serve the run on the loopback."""
    uvicorn = pytest.importorskip("uvicorn")
    with server._bound("127.0.0.1", 0) as listening:
        app = server.make_app(run, stop=lambda: "stopped")
        own = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=own.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        own.should_exit = True
        thread.join()


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
    """Return the status and the JSON of an answer."""
    request = urllib.request.Request(url, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_the_stop_is_asked_twice_by_the_page_alone(page: str) -> None:
    """Without its header nothing; once, a word; with that word, once; with it again, too late."""
    assert ask(f"{page}/api/stop", "POST")[0] == 403
    code, told = ask(f"{page}/api/stop", "POST", x_horde="stop")
    assert code == 200
    assert "stopped" not in told
    assert ask(f"{page}/api/stop?word=guess", "POST", x_horde="stop")[0] == 409
    assert ask(f"{page}/api/stop?word={told['word']}", "POST", x_horde="stop") == (200, {"stopped": "stopped"})
    assert ask(f"{page}/api/stop?word={told['word']}", "POST", x_horde="stop")[0] == 409


def test_a_stop_that_was_asked_for_reaches_the_life_and_not_a_later_one(tmp_path: Path) -> None:
    folder, asked = tmp_path / "run", list[int]()

    class Asking(Hand):
        def __call__(self) -> float:
            if self.now_s < 1.0 <= self.now_s + self.period_s:
                assert "asked to end" in server.request_stop(folder)
            return super().__call__()

    lived(folder, 30, clock=Asking(0.1), ask_to_stop=lambda: asked.append(1))
    assert asked
    shutil.rmtree(folder / "log")
    lived(folder, 30, ask_to_stop=lambda: pytest.fail("that was asked of the life before"))


def test_who_asks_by_another_name_is_refused(page: str) -> None:
    """A site whose name was made to mean this machine reads nothing here."""
    assert ask(f"{page}/api/run", host="evil.example:80")[0] == 403
    assert ask(f"{page}/api/run")[0] == 200


def test_elsewhere_than_on_the_loopback_a_token_is_wanted(run: Path) -> None:
    uvicorn = pytest.importorskip("uvicorn")
    with server._bound("127.0.0.1", 0) as listening:
        app = server.make_app(run, token="secret")
        own = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=own.run, kwargs={"sockets": [listening]})
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/api/run"
        answers = [ask(url)[0], ask(url + "?token=wrong")[0], ask(url + "?token=secret")[0]]
        answers.append(ask(url, cookie="horde=secret")[0])
        own.should_exit = True
        thread.join()
    assert answers == [403, 403, 200, 200]


def test_an_unknown_question_is_answered_by_a_sentence(page: str) -> None:
    code, told = ask(f"{page}/api/demon?name=left/saw-22")
    assert code == 400
    assert told["error"] == "there is no question 'left/saw-22'; did you mean 'left/saw-2'?"
    assert ask(f"{page}/api/demons?sort=beauty")[0] == 400
    for path in ("page/..%2Fserver.py", "page/server.py", "api/nothing"):
        with pytest.raises(urllib.error.HTTPError, match="404") as refusal:
            urllib.request.urlopen(f"{page}/{path}", timeout=10)
        refusal.value.close()


def test_the_stream_tells_what_is_new_and_then_only_that(page: str) -> None:
    with urllib.request.urlopen(f"{page}/api/stream", timeout=10) as stream:
        first = json.loads(stream.readline().removeprefix(b"data: "))
        assert len(first["rows"]) == 600
        assert first["status"]["state"] == "over"
        stream.readline()
        line = stream.readline()
        assert line.startswith(b":") or not json.loads(line.removeprefix(b"data: "))["rows"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "there is no folder nowhere"),
        (["empty"], "empty holds no run"),
        (["other"], "of another version"),
        (["{run}", "--port", "{taken}"], "cannot be opened"),
        (["{run}", "--port", "70000"], "--port must be from 0 to 65535"),
        (["{run}", "--host", "no.such.host.invalid"], "none of this machine's"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_sentence(
    words: list[str], sentence: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("uvicorn")
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    (Path("other") / "live").mkdir(parents=True)
    Path("other/config.toml").write_text("", encoding="utf-8")
    Path("other/live/facts.json").write_text('{"format": "horde-live", "version": 99}', encoding="utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        filled = [w.format(run=run, taken=taken.getsockname()[1]) for w in words]
        assert cli.main(["watch", *filled]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.splitlines()) == 1


def test_without_the_extra_both_commands_say_what_to_install(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    real = importlib.util.find_spec
    monkeypatch.setattr("horde_agent.watch.command.find_spec", lambda n: None if n == "starlette" else real(n))
    monkeypatch.setitem(__import__("sys").modules, "starlette.applications", None)
    for words in (["watch", str(run)], ["learn", "--watch", "--steps", "20"]):
        assert cli.main(words) == 2
        assert "pip install 'horde-gvf[dash]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


KILLED = """
import os, signal, sys
from pathlib import Path
from horde_agent.watch.command import open_beside
page = open_beside(Path(sys.argv[1]), lambda line: None)
print(page.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_page_that_cannot_be_opened_leaves_no_body_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """The robot has made its first observation by then."""

    def refuse(*_: Any) -> None:
        raise BadInput("no port is free")

    monkeypatch.setattr(cli, "open_beside", refuse)
    done = list[str]()
    run = SimpleNamespace(config=LearnConfig(watch=True), folder=SimpleNamespace(path=Path("run")), close=lambda: None)
    job: Any = SimpleNamespace(
        run=run, stop_body=lambda: done.append("stopped"), obey_second_ctrl_c=lambda: done.append("obeyed")
    )
    with pytest.raises(BadInput, match="no port is free"):
        cli._finished(job)
    assert done == ["stopped", "obeyed"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks in /proc for the page")
def test_the_page_of_a_life_that_was_killed_ends_too(run: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(run)], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    page, until = Path(f"/proc/{int(done.stdout)}/stat"), time.monotonic() + 20
    while page.is_file() and page.read_text().rsplit(")", 1)[1].split()[0] != "Z":
        assert time.monotonic() < until, "the page is still served"
        time.sleep(0.05)


# ---- in a browser ----------------------------------------------------------------------------------------------------

CONTRAST = """() => {
  const one = (x) => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
  const lum = (c) => { const v = c.map((x) => one(x / 255));
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const rgb = (t) => { const m = t.match(/[\\d.]+/g).map(Number);
    return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3); };
  const ground = (e) => { for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor); if (c) return c; }
    return [255, 255, 255]; };
  const worst = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.offsetParent || e.disabled) continue;
    const a = lum(rgb(getComputedStyle(e).color)), b = lum(ground(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) worst.push([e.tagName, e.className, e.textContent.slice(0, 30), ratio]);
  }
  return worst;
}"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(tmp_path: Path, scheme: Any) -> None:
    """10,000 questions, 375 px: no error, nothing wider than the screen, contrast 4.5, all of it by keyboard."""
    playwright = pytest.importorskip("playwright.sync_api")
    uvicorn = pytest.importorskip("uvicorn")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium here")
    folder, stopped = tmp_path / "many", list[int]()
    lived(folder, 200, n_demons=10_000)
    with server._bound("127.0.0.1", 0) as listening, playwright.sync_playwright() as driver:
        app = server.make_app(folder, stop=lambda: stopped.append(1) or "the robot stands")  # type: ignore[func-returns-value]
        own = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=own.run, kwargs={"sockets": [listening]})
        thread.start()
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 375, "height": 800}, color_scheme=scheme, bypass_csp=False)
            said: list[str] = []
            page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: said.append(str(error)))
            page.goto(f"http://127.0.0.1:{listening.getsockname()[1]}/")
            page.wait_for_function("() => document.querySelectorAll('#demons tr').length === 50")
            page.wait_for_function("() => document.querySelector('#headline').textContent.includes('10,000 questions')")
            assert page.evaluate("document.documentElement.scrollWidth") <= 375
            assert page.evaluate(CONTRAST) == []
            # By keyboard alone: skip to the main part, search, pick the second answer.
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.className") == "skip"
            for _ in range(10):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.id") == "find":
                    break
            assert page.evaluate("document.activeElement.id") == "find"
            page.keyboard.press("ControlOrMeta+a")
            page.keyboard.type("saw-999")
            page.wait_for_function("() => document.querySelectorAll('#found li').length === 11")
            page.keyboard.press("ArrowDown")
            page.keyboard.press("ArrowDown")
            page.keyboard.press("Enter")
            page.wait_for_function(
                "() => document.querySelector('#demon-said').textContent.startsWith('left/saw-9990 ')"
            )
            # The stop is disabled in a life that is over; in one that goes on it wants two presses.
            assert page.evaluate("document.querySelector('#stop').disabled")
            status = folder / "live" / "status.json"
            status.write_text(status.read_text().replace('"over"', '"living"'))
            page.wait_for_function("() => !document.querySelector('#stop').disabled")
            page.focus("#stop")
            page.keyboard.press("Enter")
            page.wait_for_function("() => document.querySelector('#stop').textContent.startsWith('Really')")
            assert not stopped
            page.keyboard.press("Enter")
            page.wait_for_function("() => document.querySelector('#stop-said').textContent === 'the robot stands'")
            assert stopped == [1]
            assert said == []
        finally:
            browser.close()
            own.should_exit = True
            thread.join()
