"""`horde learn --shards`: the run in one Horde, to the bit, also if processes are killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from rich.console import Console

from horde_agent.cli.learn import described_env
from horde_agent.cluster import ShardedHorde
from horde_agent.runs.sources.relearn import relearn_tables
from horde_agent.runs.storage import run as runs
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.verify import examine
from horde_agent.watch.reader import RunReader
from tests.agent.commands import CONTROL, flip, horde, refused, summary_of
from tests.agent.kills import differences, lived_with_kills, rows_of
from tests.facts import states

pytest.importorskip("ray")

LIFE = "learn --physics planar --seed 3 --snapshot-every never"
OFTEN = LIFE.replace("never", "0.1s")
STEPS = 600


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the paper's 795 questions in one Horde, without a stop."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert horde(LIFE, f"--steps {STEPS} --out {run}") == 0
    return run


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run in two shards, with snapshots before its last."""
    run = tmp_path_factory.mktemp("runs") / "sharded"
    assert horde(OFTEN, f"--steps {STEPS} --shards 2 --out {run}") == 0
    return run


def left_over() -> list[str]:
    """Return the names of this process's remaining Ray processes."""
    deadline_s = time.monotonic() + 20.0
    while True:
        child_names = [
            p.name()
            for p in psutil.Process().children(recursive=True)
            if p.status() != psutil.STATUS_ZOMBIE
        ]
        ray_names = [name for name in child_names if "ray" in name or "gcs" in name]
        if not ray_names or time.monotonic() > deadline_s:
            return ray_names
        time.sleep(0.1)


TIMES = ("wall_s", "steps_per_s", "learn_ms", "cycle_ms")


def test_a_life_in_shards_is_the_life_in_one_horde(sharded: Path, whole: Path) -> None:
    """Summary, tables and record are the same to the bit, except for durations."""
    assert differences(sharded, whole) == []
    one = summary_of(sharded)
    summary = summary_of(whole)
    assert [key for key in summary if one[key] != summary[key] and key not in TIMES] == []
    assert list(one) == list(summary)
    assert left_over() == []


RULES = f"""{CONTROL}tested = false

[[family]]
policies = ["forward"]
gammas = [0.5]
groups = ["light"]
algorithm = "tidbd:meta=0.005"
"""


@pytest.mark.slow
def test_a_stopped_run_resumes_in_the_same_number_of_shards(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started with `--shards auto` on two processors, and three are there when it is resumed."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("horde_agent.cluster.sharded.os.cpu_count", lambda: 2)
        assert horde(LIFE, f"--steps {STEPS // 3} --shards auto --out {run}") == 0
    monkeypatch.setattr("horde_agent.cluster.sharded.os.cpu_count", lambda: 3)
    assert horde(f"resume {run} --steps {STEPS} --shards 2") == 0
    assert differences(run, whole) == []
    assert len(json.loads((run / "details.json").read_text())["shards"]) == 2


def test_each_shard_is_in_the_status_of_the_live_page_and_in_details_json(sharded: Path) -> None:
    for rows in (
        RunReader(sharded).status()["shards"],
        json.loads((sharded / "details.json").read_text())["shards"],
    ):
        assert [row["number"] for row in rows] == [0, 1]
        assert sum(row["n_demons"] for row in rows) == 795
        assert [(row["state"], row["lag"]) for row in rows] == [("learning", 0)] * 2
        assert all(row["n_bytes"] > 50e6 for row in rows)


@pytest.mark.slow
def test_doctor_puts_a_damaged_snapshot_of_a_shard_aside_and_the_one_before_is_used(
    sharded: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bit flips in the weights of shard 1: `resume` refuses and names `horde doctor`."""
    run = Path(shutil.copytree(sharded, tmp_path / "run"))
    (run / "summary.json").unlink()
    sound = [
        finding for finding in examine(run, described_env) if finding.what.startswith("shards/")
    ]
    assert [finding.what.split("/")[2] for finding in sound] == ["shard-0000"] * 2 + [
        "shard-0001"
    ] * 2
    assert all(finding.state == "sound" for finding in sound)
    theta = max(run.glob("shards/*/shard-0001/*/horde.engine.span.theta.npy"))
    flip(theta, -1)
    assert horde(f"resume {run} --steps {STEPS}") == 2
    assert "horde doctor" in capsys.readouterr().err
    wrong = [
        finding
        for finding in examine(run, described_env)
        if finding.what.startswith("shards/") and finding.state != "sound"
    ]
    assert [
        theta.parent.name in finding.what and finding.state == "repaired" for finding in wrong
    ] == [True]
    assert horde(f"resume {run} --steps {STEPS}") == 0
    resumed = re.search(r"resumed at step ([\d,]+)", capsys.readouterr().err)
    assert resumed is not None
    assert 0 < int(resumed[1].replace(",", "")) < STEPS
    assert differences(run, whole) == []


@pytest.mark.slow
def test_a_damaged_newest_snapshot_ends_no_life_that_resumes_from_the_one_before(
    sharded: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last snapshot of the resumed life stands beside the damaged one, whose shards are unknown."""
    run = Path(shutil.copytree(sharded, tmp_path / "run"))
    (run / "summary.json").unlink()
    flip(max(run.glob("checkpoint/*/manifest.json")), -1)
    assert horde(f"resume {run}") == 0
    assert "using the previous snapshot" in capsys.readouterr().err
    assert differences(run, whole) == []
    assert left_over() == []


def test_missing_tables_are_learned_again_without_a_cluster(
    sharded: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "ShardedHorde", None)
    weights = summary_of(sharded)["weights_sha256"]
    (sharded / "summary.json").unlink()
    assert relearn_tables(RunFolder(sharded), Console(quiet=True))["weights_sha256"] == weights


def test_a_resume_in_another_number_of_shards_is_refused_and_changes_nothing(
    sharded: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for run, shards, where in (
        (sharded, 3, "2 shards"),
        (whole, 2, "one Horde"),
        (whole, "auto", "one Horde"),
    ):
        monkeypatch.chdir(run)
        message = refused(f"resume {run} --steps {STEPS + 9} --shards {shards}".split(), capsys)
        assert states(message, "horde: ", f"--shards {shards}", run, where, "omit it")
        assert left_over() == []


@pytest.mark.slow
def test_ray_that_is_started_here_listens_on_the_loopback_only_and_requires_a_token() -> None:
    """In a new process, in which Ray was not configured otherwise."""
    facts = json.loads(
        subprocess.run(
            [sys.executable, "-c", ALONE], check=True, capture_output=True, text=True
        ).stdout
    )
    assert facts["hosts"] == ["127.0.0.1"]
    assert facts["mode"] == "token"


ALONE = """
import json, os
import psutil
from horde_agent import GVF, Channel, ConstantAction
from horde_agent.cli.learn import described_env
from horde_agent.cluster import ShardedHorde
asked = [GVF(f"{a}/{i}", ConstantAction(a, 3), Channel(0), 0.5) for a in range(3) for i in range(99)]
with ShardedHorde(asked, n_features=100, n_active=10, shards=2):
    mine = {p.pid for p in psutil.Process().children(recursive=True)} | {os.getpid()}
    found = [c for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.pid in mine]
    hosts = sorted({c.laddr.ip.removeprefix("::ffff:") for c in found})
print(json.dumps({"hosts": hosts, "mode": os.environ["RAY_AUTH_MODE"]}))
"""


@pytest.mark.slow
def test_after_a_shard_is_killed_horde_resume_continues_to_the_same_bits(tmp_path: Path) -> None:
    """SIGKILL to one shard: the run ends with one sentence that names it; after the resume all tables are the same.

    Demons of several rules, one of which finds the policy that the robot follows: it is in one
    shard, and its values choose the robot's actions and those of test excursions.
    """
    questions = tmp_path / "q.toml"
    questions.write_text(RULES)
    words = f"--questions {questions} --behaviour greedy:lamp --epsilon 0.3 --steps 800"
    words += " --excursion-probability 0.05 --horizon 12"
    whole = tmp_path / "whole"
    assert horde(f"{LIFE} {words} --out {whole}") == 0
    run = tmp_path / "killed"
    line = [*OFTEN.split(), *words.split(), "--shards=2", f"--out={run}"]
    with subprocess.Popen(
        [sys.executable, "-m", "horde_agent.cli", *line],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and not list(run.glob("checkpoint/[0-9]*")):
            time.sleep(0.005)
        children = psutil.Process(process.pid).children(recursive=True)
        _, shard = (p for p in children if p.name().startswith("ray::Shard"))
        shard.kill()
        assert process.stderr is not None
        output = process.stderr.read()
    assert process.returncode == 1, output
    (sentence,) = (text for text in output.splitlines() if text.startswith("horde: "))
    assert sentence.startswith("horde: shard ")
    assert f"`horde resume {run}`" in sentence
    assert psutil.wait_procs(children, timeout=30.0)[1] == []
    ends = [
        event
        for event in map(json.loads, (run / "log" / "events.jsonl").read_text().splitlines())
        if "cause" in event
    ]
    assert [event["cause"] for event in ends] == ["shard_lost"]
    assert horde(f"resume {run}") == 0
    assert differences(run, whole) == []
    shards = json.loads((run / "details.json").read_text())["shards"]
    assert sum(shard["n_demons"] for shard in shards) == 7
    assert left_over() == []


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_sharded_run_with_its_tables_and_processes(
    number: int, code: int, tmp_path: Path
) -> None:
    """SIGTERM goes to the one process, as from an init system; Ctrl-C to Ray's processes too, as from a terminal."""
    run = tmp_path / "run"
    line = [
        sys.executable,
        "-m",
        "horde_agent.cli",
        *LIFE.split(),
        "--steps=1000000",
        "--shards=2",
        f"--out={run}",
    ]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, text=True, start_new_session=True, **pipes) as process:
        while process.poll() is None and rows_of(run) < 100_000:
            time.sleep(0.05)
        children = psutil.Process(process.pid).children(recursive=True)
        (os.kill if number == signal.SIGTERM else os.killpg)(process.pid, number)
        assert process.stderr is not None
        output = process.stderr.read()
    assert process.returncode == code, output
    assert (summary_of(run)["stopped_early"], summary_of(run)["n_questions"]) == (True, 795)
    assert psutil.wait_procs(children, timeout=30.0)[1] == []


@pytest.mark.slow
def test_a_killed_driver_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    words = ["--physics", "planar", "--seed", "3", "--steps", "12000", "--snapshot-every", "1s"]
    run = tmp_path / "killed"
    assert (
        lived_with_kills(
            run,
            [*words, "--shards", "2"],
            np.random.default_rng(0),
            kills=3,
            span_s=2.0,
        )
        == 3
    )
    assert horde("learn", *words, f"--out {tmp_path / 'whole'}") == 0
    assert differences(run, tmp_path / "whole") == []
    of_ray = [p for p in psutil.process_iter(["environ", "name"]) if "ray" in p.info["name"]]
    assert not [p for p in of_ray if str(run) in " ".join(p.info["environ"] or {})]


def test_shards_have_the_public_methods_of_a_horde() -> None:
    from horde_agent.horde import Horde

    missing = {name for name in dir(Horde) if not name.startswith("_")} - set(dir(ShardedHorde))
    # A shard learns from one stream; its engines are in other processes; `resume --tilings` refuses shards.
    one_process = {"stream", "step_sizes", "engines", "take_over"}
    assert missing == {"new_rupee", "copy_for_stream", "merge", *one_process}
