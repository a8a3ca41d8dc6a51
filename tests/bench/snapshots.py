"""What snapshots cost the steps of a life, and how long a life takes to go on.

    python -m tests.bench.snapshots many FOLDER [--demons 100000] [--turns 3] [--mode eager] [--paced]
    python -m tests.bench.snapshots live FOLDER [--minutes 3] [--every 5s]      1,000 demons at 10 Hz
    python -m tests.bench.snapshots resume FOLDER [--steps 6000]                795 demons
    python -m tests.bench.snapshots replay FOLDER --life RUN                    of a recorded life

Prints one JSON object each. `many` measures by turns, with a snapshot and for as many steps without, a Horde on the
simulated robot's stream; it ends by comparing what was learned with a Horde that goes on from the last snapshot.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from horde_agent import cli
from horde_agent.bench.recorded import recorded
from horde_agent.bench.workload import gibbs_questions
from horde_agent.horde import Horde, Mode
from horde_agent.learning.gradually import GradualSnapshot
from horde_agent.life.life import Life
from horde_agent.record import snapshots
from horde_agent.runs import jobs

_PERIOD_S = 0.1
_ENGINE = "life/student/horde/engine"


def milliseconds(times: list[float]) -> dict[str, float]:
    """Return mean, median, 99th percentile and largest of some times in seconds, in ms."""
    ms = 1e3 * np.array(times)
    found = {"mean": ms.mean(), "p50": np.median(ms), "p99": np.percentile(ms, 99), "max": ms.max()}
    return {name: round(float(value), 1) for name, value in found.items()} | {"n": len(times)}


# ---- very many demons ------------------------------------------------------------------------------------------------


class Stepper:
    """Lets a Horde learn from a stream of the simulated robot, which begins anew where it ends.

    Args:
        n_demons: Each with a policy of its own.
        mode: Of the Horde.
        n_states: Length of the stream.
        paced: Take a step each 100 ms, as a robot does; else one after another.
    """

    def __init__(self, n_demons: int, mode: Mode, n_states: int, *, paced: bool) -> None:
        self._stream, coder = recorded(n_states)
        self._asked = gibbs_questions(n_demons, n_features=coder.n_features)
        self._mode, self._coder, self.paced, self._k = mode, coder, paced, 0
        self.horde = self.new()
        self.horde.begin(self._stream.sensors[0], self._stream.tiles[0])
        self._next_at = time.perf_counter()

    def new(self) -> Horde:
        """Return a Horde of the same kind that knows nothing."""
        kind = {"n_features": self._coder.n_features, "n_active": self._coder.n_active}
        return Horde(self._asked, **kind, mode=self._mode)

    def learn(self, horde: Horde, k: int) -> None:
        """Have a Horde learn from step k."""
        stream, n = self._stream, len(self._stream.tiles)
        before, now = (k - 1) % n, k % n
        action, b = int(stream.actions[before]), float(stream.probabilities[before])
        horde.learn(action, b, stream.sensors[now], stream.tiles[now])

    def step(self, beside: Callable[[], None] | None = None) -> float:
        """Take the next step, and return what it took in seconds; `beside` belongs to it."""
        if self.paced:
            time.sleep(max(self._next_at - time.perf_counter(), 0.0))
            self._next_at = max(self._next_at, time.perf_counter() - _PERIOD_S) + _PERIOD_S
        began = time.perf_counter()
        if beside is not None:
            beside()
        self._k += 1
        self.learn(self.horde, self._k)
        return time.perf_counter() - began

    @property
    def k(self) -> int:
        """Steps taken."""
        return self._k


def one_snapshot(stepper: Stepper, folder: Path) -> dict[str, Any]:
    """Take steps while a snapshot is copied and written, and return what they took."""
    copy = stepper.horde.gradual_copy()
    assert copy is not None, "a stream was begun"
    under_way = GradualSnapshot(copy, folder, may_wait=not stepper.paced, engine=_ENGINE)
    began, copied = time.perf_counter(), list[float]()

    def advance() -> None:
        before = time.perf_counter()
        under_way.advance()
        copied.append(time.perf_counter() - before)

    times = []
    while not under_way.is_complete:
        assert under_way.why_not is None, under_way.why_not
        times.append(stepper.step(advance))
    state, k = stepper.horde.state(has_engine=False), stepper.k
    small = {f"life/student/horde/{name}": array for name, array in state.items()}
    under_way.finish(lambda writer: snapshots.write(folder, k, small, {}, writer))
    while under_way.is_alive:
        times.append(stepper.step())
    took_s = round(time.perf_counter() - began, 1)
    return {"times": times, "copied": copied, "took_s": took_s}


def goes_on_alike(stepper: Stepper, folder: Path) -> dict[str, Any]:
    """Compare the living Horde with one that goes on from its last snapshot."""
    began = time.perf_counter()
    kept = snapshots.read(next(snapshots.found(folder)))
    checked_s, again = time.perf_counter() - began, stepper.new()
    began = time.perf_counter()
    prefix = "life/student/horde/"
    again.restore({name.removeprefix(prefix): array for name, array in kept.state.items() if name.startswith(prefix)})
    restored_s = time.perf_counter() - began
    for k in range(int(kept.facts["step"]) + 1, stepper.k + 1):
        stepper.learn(again, k)
    answers = [(h.predictions, h.mspbe_scalar, h.max_traces, h.td_error) for h in (stepper.horde, again)]
    same = all(np.array_equal(one, other, equal_nan=True) for one, other in zip(*answers, strict=True))
    told = kept.state[f"{_ENGINE}/put_in_at"][:, 0]
    n_bytes = sum(file.stat().st_size for file in kept.path.iterdir())
    return {
        "goes_on_alike": same,
        "gb": round(n_bytes / 1e9, 2),
        "checked_s": round(checked_s, 1),
        "restored_s": round(restored_s, 1),
        "steps_brought_forward": int(told.max() - told.min()),
    }


def many(folder: Path, words: argparse.Namespace) -> dict[str, Any]:
    """Measure the steps of very many demons without a snapshot and with one, by turns."""
    stepper = Stepper(words.demons, words.mode, 4_000, paced=words.paced)
    for _ in range(300):
        stepper.step()
    turns: dict[str, list[Any]] = {"without": [], "with": []}
    copied: list[float] = []
    for _ in range(words.turns):
        found = one_snapshot(stepper, folder)
        copied += found["copied"]
        turns["with"].append(milliseconds(found["times"]) | {"took_s": found["took_s"]})
        turns["without"].append(milliseconds([stepper.step() for _ in found["times"]]))
    alike = goes_on_alike(stepper, folder)
    ratios = {
        key: round(float(np.median([w[key] / o[key] for w, o in zip(turns["with"], turns["without"], strict=True)])), 2)
        for key in ("mean", "p50", "p99", "max")
    }
    return {
        "demons": words.demons,
        "mode": words.mode,
        "paced": words.paced,
        **turns,
        "ratios": ratios,
        "copying_ms": milliseconds(copied),
        **alike,
        "rss_gb": round(psutil.Process().memory_info().rss / 1e9, 2),
        "load": psutil.getloadavg()[0],
    }


# ---- lives -----------------------------------------------------------------------------------------------------------

THOUSAND = """
[[family]]
policies = ["forward", "reverse", "rotate_clockwise", "rotate_counterclockwise", "stop"]
gammas = [0.0, 0.5, 0.8, 0.9]
channels = [{channels}]
"""


def horde(*words: str) -> None:
    """Run the command `horde` in a process of its own."""
    line = [sys.executable, "-m", "horde_agent.cli", *words]
    done = subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with exit code {done.returncode}: {done.stderr}")


def live(folder: Path, words: argparse.Namespace) -> dict[str, Any]:
    """Let 1,000 demons live in real time, without snapshots and with them, by turns."""
    asked, steps = folder / "thousand.toml", str(round(words.minutes * 600))
    channels = [f"ir_distance_{i}" for i in range(10)] + [f"light_{i}" for i in range(4)]
    channels += [c for c in _channels() if c not in channels]
    asked.write_text(THOUSAND.format(channels=", ".join(f'"{c}"' for c in channels[:50])))
    found: dict[str, Any] = {}
    for name, every in (("without", "never"), ("with", words.every)):
        run = folder / name
        settings = ["--questions", str(asked), "--snapshot-every", every, "--realtime", "--physics", "planar"]
        horde("learn", "--steps", steps, *settings, "--seed", "0", "--out", str(run))
        summary = json.loads((run / "summary.json").read_text())
        events = [json.loads(line) for line in (run / "log" / "events.jsonl").read_text().splitlines()]
        found[name] = {
            key: summary[key] for key in ("n_questions", "steps", "deadlines_missed", "learn_ms", "cycle_ms")
        }
        found[name]["overrun_ms"] = json.loads((run / "details.json").read_text()).get("overrun_ms")
        found[name]["snapshots"] = sum(event["event"] == "snapshot" for event in events)
    return found | {"load": psutil.getloadavg()[0]}


def _channels() -> list[str]:
    """Return the names of the robot's sensors."""
    import gymnasium

    env = gymnasium.make("horde_env:CritterbotPen-v0", disable_env_checker=True)
    names = [channel["name"] for channel in env.unwrapped.metadata["channels"]]
    env.close()
    return names


def resume(folder: Path, words: argparse.Namespace) -> dict[str, Any]:
    """Measure how long the paper's 795 questions take to go on, from the start of the process to the first new step."""
    run = folder / "resumed"
    settings = ["--snapshot-every", "never", "--physics", "planar", "--seed", "0", "--out", str(run)]
    horde("learn", "--steps", str(words.steps), *settings)
    found = []
    for k in range(3):
        line = [sys.executable, "-m", "tests.bench.snapshots", "timed", str(run), "--steps", str(words.steps + 1 + k)]
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        found.append(json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{"))))
    return {"resumed": found, "load": psutil.getloadavg()[0]}


def timed(run: Path, words: argparse.Namespace) -> dict[str, Any]:
    """Resume a life in this process, and print when each part was done, in seconds since the process began."""
    began, at = psutil.Process().create_time(), dict[str, float]()

    def note(where: Any, name: str, what: str) -> None:
        done = getattr(where, name)

        def noting(*arguments: Any, **settings: Any) -> Any:
            found = done(*arguments, **settings)
            at.setdefault(what, round(time.time() - began, 2))
            return found

        setattr(where, name, noting)

    at["imported"] = round(time.time() - began, 2)
    note(cli, "resumption", "snapshot read and checked")
    note(cli, "make_run", "Horde made")
    note(jobs, "warm_up", "compiled")
    note(jobs.Job, "_restore", "restored")
    note(Life, "_step", "first new step")
    cli.main(["resume", str(run), "--steps", str(words.steps)])
    return at


def replay(folder: Path, words: argparse.Namespace) -> dict[str, Any]:
    """Learn from a recorded life again, and compare what was learned."""
    began = time.perf_counter()
    horde("learn", "--backend", "replay", "--log", str(words.life), "--out", str(folder / "replayed"))
    took_s = time.perf_counter() - began
    lived, again = (json.loads((path / "summary.json").read_text()) for path in (words.life, folder / "replayed"))
    known = {key: again[key] for key in ("steps", "n_questions", "wall_s", "steps_per_s", "learn_ms")}
    same = lived["weights_sha256"] == again["weights_sha256"]
    return {"took_s": round(took_s, 1), **known, "same_weights": same, "load": psutil.getloadavg()[0]}


def main(arguments: list[str]) -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["many", "live", "resume", "timed", "replay"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--demons", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--mode", default="eager", choices=["eager", "deferred"])
    parser.add_argument("--paced", action="store_true", help="a step each 100 ms, as a robot takes them")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--every", default="5s")
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--life", type=Path)
    words = parser.parse_args(arguments)
    words.folder.mkdir(parents=True, exist_ok=True)
    measure = {"many": many, "live": live, "resume": resume, "timed": timed, "replay": replay}[words.what]
    print(json.dumps(measure(words.folder, words), indent=None if words.what == "timed" else 1))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main(sys.argv[1:]))
