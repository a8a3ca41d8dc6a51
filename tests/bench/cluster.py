"""A Horde in shards: what it costs beside one Horde, what an answer waits, what a kill -9 does.

Run it by `python -m tests.bench.cluster`, with the names of parts to run these alone. Ratios are taken by turns, a
block of steps here and one there, with both in memory: machines like the ones this runs on differ from minute to
minute.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from horde_agent.bench import workload
from horde_agent.cluster import ShardedHorde, gibbs_family
from horde_agent.cluster.families import Questions
from horde_agent.cluster.plan import Plan
from horde_agent.cluster.runtime import Cluster
from horde_agent.cluster.stream import Entry, RedoLog, row_type
from horde_agent.horde import Horde, Mode
from horde_agent.learning.rules import PAPER_CONFIG

Stream = workload.Stream
BLOCK, SHORT = 200, 25  # steps of a turn


class Told:
    """A Horde, and how far it is in a stream that it is told again and again.

    Args:
        horde: A Horde of either kind.
        stream: What it is told.
    """

    def __init__(self, horde: Any, stream: Stream) -> None:
        self.horde, self.stream, self.t = horde, stream, 0
        horde.begin(stream.sensors[0], stream.tiles[0])

    def step(self, **how: Any) -> None:
        """Tell it the next step."""
        s, t = self.stream, self.t % (len(self.stream.actions) - 1)
        self.horde.learn(int(s.actions[t]), float(s.probabilities[t]), s.sensors[t + 1], s.tiles[t + 1], **how)
        self.t += 1

    def block(self, n: int, **how: Any) -> float:
        """Tell it n steps, and return the ms that each took until all demons had taken it."""
        began = time.perf_counter()
        for _ in range(n):
            self.step(**how)
        if isinstance(self.horde, ShardedHorde):
            self.horde.wait()
        return (time.perf_counter() - began) / n * 1e3


def quantiles(ms: list[float]) -> str:
    """Return the median, the 99th percentile and the largest."""
    return f"p50 {np.quantile(ms, 0.5):.3f} ms, p99 {np.quantile(ms, 0.99):.3f} ms, max {max(ms):.3f} ms"


def steps(n_demons: int, n_shards: int, turns: int, mode: Mode, *, has_blocks: bool = True) -> None:
    """Compare the wall time of a step, unless left out, and what an asked prediction adds."""
    stream = workload.stream(2_000)
    questions = workload.gibbs_questions(n_demons)
    kind = {"n_features": stream.n_features, "n_active": stream.n_active, "mode": mode}
    one = Told(Horde(questions, **kind), stream)
    with ShardedHorde(questions, shards=n_shards, **kind) as horde:
        many = Told(horde, stream)
        for told in (one, many):
            told.block(300)
        if not has_blocks:
            ask(one, many, turns)
            return
        times = np.array([(one.block(SHORT), many.block(SHORT)) for _ in range(turns * BLOCK // SHORT)])
        mine, theirs = times.T
        low = [np.quantile(ms, 0.1) for ms in (mine, theirs)]
        print(
            f"{mode}: one Horde of {n_demons:,} {np.median(mine):.2f} ms a step, {n_shards} shards "
            f"{np.median(theirs):.2f} ms; ratio of medians {np.median(theirs) / np.median(mine):.2f}, of the tenth "
            f"quickest {low[0]:.2f} and {low[1]:.2f} ms {low[1] / low[0]:.2f}, median ratio "
            f"{np.median(theirs / mine):.2f}",
            flush=True,
        )
        if mode == "eager":
            ask(one, many, turns)


def ask(one: Told, many: Told, turns: int) -> None:
    """Compare the time until predictions are there: of one demon, and of eight of all shards."""
    names = list(many.horde.names[:: many.horde.n_demons // 8][:8])
    for asked_of, pause_s in ((names[:1], 0.09), (names[:1], 0.01), (names, 0.01), (names, 0.0)):
        own: list[float] = []
        asked: list[float] = []
        for _ in range(turns):
            for told, ms, how in ((one, own, {}), (many, asked, {"ask": asked_of})):
                for _ in range(BLOCK // 2):
                    began = time.perf_counter()
                    told.step(**how)
                    ms.append((time.perf_counter() - began) * 1e3)
                    time.sleep(pause_s)
        added = np.sort(asked) - np.sort(own)
        print(f"{len(asked_of)} asked, a pause of {pause_s:g} s between: one Horde {quantiles(own)}", flush=True)
        print(f"    shards {quantiles(asked)}", flush=True)
        print(
            f"    added: p50 {np.median(added):.2f} ms, p99 {np.quantile(asked, 0.99) - np.quantile(own, 0.99):.2f} ms"
        )


def deferred(n_demons: int, n_shards: int, n_steps: int) -> None:
    """Measure what a step costs the driver in deferred mode: at 10 times a robot's pace, and as fast as it goes."""
    stream = workload.stream(2_000)
    family = _family(n_demons, stream)
    kind = {"n_features": stream.n_features, "n_active": stream.n_active}
    with ShardedHorde([family], mode="deferred", shards=n_shards, **kind) as horde:
        told = Told(horde, stream)
        told.block(300)
        for pause_s in (0.01, 0.0):
            ms, cpu_s = [], time.thread_time()
            for _ in range(n_steps):
                began = time.perf_counter()
                told.step()
                ms.append((time.perf_counter() - began) * 1e3)
                time.sleep(pause_s)
            cpu_ms = (time.thread_time() - cpu_s) / n_steps * 1e3
            lag = int(horde.lags.max())
            horde.wait()
            how = f"deferred, {n_demons:,} demons, a pause of {pause_s:g} s"
            print(f"{how}: mean {np.mean(ms):.3f} ms, {quantiles(ms)}; {cpu_ms:.3f} ms of CPU; lag {lag}", flush=True)
        row = row_type(stream.sensors.shape[1], stream.n_active, stream.n_features)
        print(f"bytes a step: {row.itemsize}")


def kept(n_demons: int, n_shards: int, folder: Path, every: int = 500, turns: int = 3, pause_s: float = 0.03) -> None:
    """Measure what a step waits for asked predictions while shards copy and write snapshots, and otherwise."""
    stream = workload.stream(2_000)
    kind = {"n_features": stream.n_features, "n_active": stream.n_active, "folder": folder, "snapshot_every": every}
    with ShardedHorde([_family(n_demons, stream)], shards=n_shards, **kind) as horde:
        told = Told(horde, stream)
        of_each = [horde.names[int(link.demons[0])] for link in horde._shards.links]
        told.block(every - 100)
        begun: set[int] = set()
        ms: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(turns * every):
            at = told.t + 2  # the number of the entry that is told next
            begun |= {at for k in range(n_shards) if (at + k * every // 8) % every == 0}
            began = time.perf_counter()
            told.step(ask=of_each)
            is_kept = any(0 <= at - first < every // 4 for first in begun)
            ms[is_kept].append((time.perf_counter() - began) * 1e3)
            time.sleep(pause_s)
        size = sum(path.stat().st_size for path in folder.glob("*/shard-*/**/*.npy")) / 1e9
        for is_kept, what in ((False, "otherwise"), (True, f"in the {every // 4} steps after a snapshot is begun")):
            print(f"{n_demons:,} demons in {n_shards} shards, {what}: {quantiles(ms[is_kept])}", flush=True)
            print(f"    the longest: {', '.join(f'{x:.1f}' for x in sorted(ms[is_kept])[-8:])} ms", flush=True)
        print(f"    {size:.2f} GB of snapshots on the disk")


def _family(n: int, stream: Stream, seed: int = 1) -> Any:
    return gibbs_family(
        n, seed, n_features=stream.n_features, n_actions=workload.N_ACTIONS, channels=range(workload.N_SENSORS)
    )


def broadcast(most: int) -> None:
    """Measure how long a step takes to reach 1 to 16 actors that learn nothing, by each way there is."""
    # Where torch is installed, each actor of a compiled graph imports it at its first step, for longer than the 10 s
    # after which Ray takes the graph to hang.
    os.environ |= {"RAY_CGRAPH_get_timeout": "300", "RAY_CGRAPH_submit_timeout": "300"}
    cluster = Cluster(None, most)
    ray = cluster._ray
    rows = {"a step": os.urandom(1_400), "64 steps": os.urandom(88_000)}
    actors = [cluster.actor(k, 1, 50_000_000) for k in range(most)]
    ways: dict[str, Callable[[list[Any], bytes], Any]] = {
        "direct": lambda some, data: ray.get([a.echo.remote(data) for a in some]),
        "put": lambda some, data: _put(ray, some, data),
    }
    ray.get([a.process.remote() for a in actors])
    for n in (1, 2, 4, 8, 16):
        some = actors[:n]
        if n > most:
            break
        for what, data in rows.items():
            for way, tell in ways.items():
                print(f"{n:2d} actors, {what}, {way}: {quantiles(_times(lambda: tell(some, data)))}", flush=True)  # noqa: B023
            sent = _times(lambda: [a.echo.remote(data) for a in some], 50)  # noqa: B023
            print(f"{n:2d} actors, {what}, sent alone: {quantiles(sent)}", flush=True)
            ray.get([a.process.remote() for a in some])
        if n <= 4:
            _compiled(ray, some, rows)
    cluster.close()


def _put(ray: Any, some: list[Any], data: bytes) -> None:
    put = ray.put(data)
    ray.get([a.echo.remote(put) for a in some])


def _compiled(ray: Any, some: list[Any], rows: dict[str, bytes]) -> None:
    """Measure a compiled graph from here to all actors and back, beside calls: its time, and what it costs to wait."""
    from ray.dag import InputNode, MultiOutputNode

    with InputNode() as given:
        graph = MultiOutputNode([a.echo.bind(given) for a in some])
    compiled = graph.experimental_compile(_buffer_size_bytes=200_000)
    for what, data in rows.items():
        ms = _times(functools.partial(_through, ray, compiled, data))
        print(f"{len(some):2d} actors, {what}, compiled graph: {quantiles(ms)}", flush=True)
    at_rest = {"compiled graph": _cpu_ms(lambda: ray.get(compiled.execute(rows["a step"])))}
    compiled.teardown()
    at_rest["direct"] = _cpu_ms(lambda: ray.get([a.echo.remote(rows["a step"]) for a in some]))
    for way, cpu_ms in at_rest.items():
        print(f"{len(some):2d} actors, a step each 20 ms, {way}: {cpu_ms:.2f} ms of CPU a step, of all processes")


def _cpu_ms(do: Callable[[], Any], n: int = 100) -> float:
    """Return the CPU time that something done every 20 ms takes this process and those that it started, in ms."""
    here = psutil.Process()
    family = [here, *here.children(recursive=True)]
    began = [process.cpu_times() for process in family]
    for _ in range(n):
        do()
        time.sleep(0.02)
    ended = [process.cpu_times() for process in family]
    return sum(e.user + e.system - b.user - b.system for b, e in zip(began, ended, strict=True)) / n * 1e3


def _through(ray: Any, compiled: Any, data: bytes) -> None:
    ray.get(compiled.execute(data))


def _times(do: Callable[[], Any], n: int = 200) -> list[float]:
    do()
    ms = []
    for _ in range(n):
        began = time.perf_counter()
        do()
        ms.append((time.perf_counter() - began) * 1e3)
    return ms


def kills(n_kills: int, n_steps: int, n_shards: int, mode: Mode, folder: Path) -> None:
    """Kill actors at random steps of a life; in the end the weights must be those of one Horde, undisturbed."""
    stream, rng = workload.stream(4_000), np.random.default_rng(11)
    questions = workload.constant_action_questions()
    kind = {"n_features": stream.n_features, "n_active": stream.n_active, "mode": mode}
    one = Told(Horde(questions, **kind), stream)
    one.block(n_steps)
    one.horde.catch_up()
    expected = one.horde.weights_sha256()
    at = set(rng.choice(np.arange(50, n_steps - 50), n_kills, replace=False).tolist())
    away: list[float] = []
    began = time.perf_counter()
    with ShardedHorde(questions, shards=n_shards, folder=folder, snapshot_every=2_000, **kind) as horde:
        many, killed = Told(horde, stream), 0
        for t in range(n_steps):
            many.step()
            if t in at:
                while any(status.state != "learning" for status in horde.shards):  # one that is there is to die
                    time.sleep(0.01)
                os.kill(horde.shards[int(rng.integers(n_shards))].process, signal.SIGKILL)
                since, killed = time.perf_counter(), killed + 1
                while all(status.state == "learning" for status in horde.shards):
                    _ = horde.td_error  # who is asked nothing is not missed
                while any(status.state != "learning" for status in horde.shards):
                    time.sleep(0.002)
                away.append((time.perf_counter() - since) * 1e3)
                if killed % 10 == 0:
                    print(f"    {killed} kills at step {t:,}, {time.perf_counter() - began:.0f} s", flush=True)
        horde.wait()
        found, restarts = horde.weights_sha256(), sum(status.n_restarts for status in horde.shards)
    print(f"{mode}: {killed} kill -9 in {n_steps:,} steps, {restarts} restarts; back after {quantiles(away)}")
    print(f"    weights_sha256 {'the same' if found == expected else 'ANOTHER'}: {found[:16]} and {expected[:16]}")


def described(n: int, n_shards: int) -> None:
    """Measure what it takes to describe very many questions, and to cut them into shards."""
    stream = workload.stream(10)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    questions = Questions([_family(n, stream)])
    cuts = Plan(questions, PAPER_CONFIG, "eager").cut(n_shards)
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
    kept = sum(cut.demons.nbytes + cut.share.seating.order.nbytes for cut in cuts) / 1e9
    took = f"{time.perf_counter() - began:.1f} s, {taken:.2f} GB at most, {kept:.2f} GB kept"
    print(f"{n:,} questions in {n_shards} shards: {took}", flush=True)
    began = time.perf_counter()
    questions.families[0].make(range(n // 2, n // 2 + 10_000))
    print(f"10,000 of them made in {time.perf_counter() - began:.1f} s")


def logged(n_steps: int) -> None:
    """Measure what it takes to note a step in the redo log and to read it."""
    stream = workload.stream(200)
    log = RedoLog(row_type(stream.sensors.shape[1], stream.n_active, stream.n_features))
    began = time.perf_counter()
    for t in range(n_steps):
        k = t % 200
        log.append(Entry(1, int(stream.actions[k]), float(stream.probabilities[k]), stream.sensors[k], stream.tiles[k]))
    noted = (time.perf_counter() - began) / n_steps * 1e6
    began = time.perf_counter()
    for first in range(1, n_steps - 64, 64):
        log.read(first, first + 63)
    print(f"redo log: {noted:.1f} us to note a step, {(time.perf_counter() - began) / n_steps * 1e6:.2f} us to read it")
    log.close()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "only", nargs="*", help="steps, ask, deferred, kept, broadcast, kills, described, log; all unless given"
    )
    parser.add_argument("--demons", type=int, default=40_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--described", type=int, default=10_000_000)
    given = parser.parse_args()
    wanted = given.only or ["log", "described", "broadcast", "steps", "deferred", "kept", "kills"]
    if "log" in wanted:
        logged(20_000)
    if "described" in wanted:
        described(given.described, 64)
    if "broadcast" in wanted:
        broadcast(16)
    if "steps" in wanted:
        for mode in ("eager", "deferred"):
            steps(given.demons, given.shards, given.turns, mode)
    if "ask" in wanted:
        steps(given.demons, given.shards, given.turns, "eager", has_blocks=False)
    if "deferred" in wanted:
        deferred(given.demons, given.shards, 1_000)
    if "kept" in wanted:
        folder = Path(tempfile.mkdtemp(prefix="horde-kept-"))
        kept(given.demons // 2, 2, folder)
        shutil.rmtree(folder)
    if "kills" in wanted:
        folder = Path(tempfile.mkdtemp(prefix="horde-kills-"))
        kills(given.kills, given.steps, given.shards, "eager", folder)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
