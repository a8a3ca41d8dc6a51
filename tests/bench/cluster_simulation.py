"""Ten million demons on 64 nodes, by a discrete-event simulation that is fed with what one machine measures.

    python -m tests.bench.cluster_simulation [--nodes 64] [--demons 10000000] [--hours 24] [--failure-days 30] [--json]

A driver sends each step, or each batch of steps, to every node in turn; a message is on its way for a while, waits for
those before it, and is learned from. Nodes fail: another one takes the place, reads the snapshot, is sent what was
recorded since, and catches up while the robot lives on. What is told is how far nodes lag, how late asked predictions
are, what memory, network and recovery take, and what the nodes cost in a month at a list price.

Simulated are queues and failures. What a step, a message and a byte cost is measured elsewhere (`MEASURED`), what a
network between machines adds, how often nodes fail and how long a new one takes to join is assumed (`Plan`): the table
says which is which.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count

import numpy as np

HOURS_A_MONTH = 730
STEPS_A_MESSAGE = {"eager": 1, "deferred": 64}


@dataclass(frozen=True, slots=True)
class Costs:
    """What a machine measured.

    Args:
        step_ms: Of a shard's step, whatever the number of its demons.
        step_ms_per_1000: Of a shard's step, for each 1,000 demons more.
        step_ratios: Durations of steps over their mean, drawn from at random: some take longer than others.
        send_ms: What a message takes the driver, whatever the number of nodes.
        send_ms_per_node: What it takes the driver for each node more.
        latency_ms: Durations of a message's way, one way, drawn from at random.
        bytes_per_demon: Resident.
        bytes_per_process: Resident, of a shard without demons.
        bytes_per_step: Of a message, for each step in it.
    """

    step_ms: float
    step_ms_per_1000: float
    send_ms: float
    send_ms_per_node: float
    latency_ms: tuple[float, ...]
    step_ratios: tuple[float, ...] = (1.0,)
    bytes_per_demon: float = 51_548.0
    bytes_per_process: float = 250e6
    bytes_per_step: float = 2_000.0


@dataclass(frozen=True)
class Plan:
    """What is planned, and what is assumed of a cloud.

    Args:
        n_demons, n_nodes: In all; the demons are spread evenly, a shard to a node.
        period_ms: Between two steps of the robot.
        steps_a_message: 1 where predictions are asked on each step, 64 where steps are only noted.
        network_ms: What the network between two machines adds to a message's way. Assumed.
        failure_days: Mean time between two failures of one node. Assumed.
        replace_s: From a failure to a process on another node. Assumed: noticed, node joined, process started.
        read_mb_per_s: At which a snapshot is read. Assumed.
        snapshot_steps: Steps between two snapshots of a shard.
        dollars_an_hour: List price of a node.
    """

    n_demons: int = 10_000_000
    n_nodes: int = 64
    period_ms: float = 100.0
    steps_a_message: int = 64
    network_ms: float = 0.25
    failure_days: float = 30.0
    replace_s: float = 180.0
    read_mb_per_s: float = 250.0
    snapshot_steps: int = 6_000
    dollars_an_hour: float = 0.1134

    @property
    def demons_a_node(self) -> int:
        """Demons of the fullest node."""
        return -(-self.n_demons // self.n_nodes)


@dataclass(slots=True)
class Outcome:
    """What came of a plan.

    Attributes:
        lags: Steps that each node was behind, each time that a message left; those in recovery are left out.
        answers_ms: From the moment that a step was complete to the last node's answer to it, where each step is a
            message and all nodes are up.
        recoveries_s: From each failure to the moment that the node had caught up.
        most_redone: Most steps that had to be kept for a node that is to be brought back.
        up_share: Share of the demons' time in which they were not in recovery.
    """

    lags: list[int] = field(default_factory=list)
    answers_ms: list[float] = field(default_factory=list)
    recoveries_s: list[float] = field(default_factory=list)
    most_redone: int = 0
    up_share: float = 1.0


@dataclass(slots=True)
class _Node:
    """A shard on its node: `life` counts its processes, so that what was meant for a former one is known."""

    life: int = 0
    is_up: bool = True
    is_busy: bool = False
    waiting: list[tuple[int, float]] = field(default_factory=list)  # messages: the step after it, when it was complete
    taken: int = 0
    failed_at: float | None = None


class Simulation:
    """A cluster over time, in milliseconds.

    Args:
        costs: Measured.
        plan: The cluster.
        rng: Of latencies and durations.
    """

    def __init__(self, costs: Costs, plan: Plan, rng: np.random.Generator) -> None:
        self._costs, self._plan = costs, plan
        self._latencies, self._ratios = _drawn(costs.latency_ms, rng), _drawn(costs.step_ratios, rng)
        self._nodes = [_Node() for _ in range(plan.n_nodes)]
        self._events: list[tuple[float, int, str, int, int, tuple[int, float]]] = []
        self._order = count()
        self._sent = 0
        self._driver_free = 0.0
        self._answered: dict[int, tuple[int, float]] = {}  # by step: how many nodes, and when the last of them
        self._down_ms = 0.0
        self._outcome = Outcome()

    def run(self, duration_ms: float, failures: Sequence[tuple[float, int]]) -> Outcome:
        """Simulate so long; nodes fail as told, (ms, node) each, where they are up then."""
        plan, out = self._plan, self._outcome
        for at, node in failures:
            self._at(at, "fail", node)
        self._at(plan.steps_a_message * plan.period_ms, "send")
        now = 0.0
        while self._events and self._events[0][0] <= duration_ms:
            now, _, what, node, life, message = heapq.heappop(self._events)
            if what in ("send", "fail") or life == self._nodes[node].life:
                getattr(self, f"_{what}")(now, node, message)
        for one in self._nodes:
            if one.failed_at is not None:
                self._down_ms += duration_ms - one.failed_at
        out.up_share = 1.0 - self._down_ms / (duration_ms * plan.n_nodes)
        return out

    def _at(self, when: float, what: str, node: int = 0, message: tuple[int, float] = (0, 0.0)) -> None:
        heapq.heappush(self._events, (when, next(self._order), what, node, self._nodes[node].life, message))

    def _send(self, now: float, _node: int, _message: tuple[int, float]) -> None:
        """The driver has a message complete: it leaves for one node after the other."""
        costs, plan = self._costs, self._plan
        self._sent += plan.steps_a_message
        at = max(now, self._driver_free) + costs.send_ms
        for k, node in enumerate(self._nodes):
            at += costs.send_ms_per_node
            if node.is_up:
                if node.failed_at is None:
                    self._outcome.lags.append(self._sent - node.taken)
                self._at(at + self._way(), "arrive", k, (self._sent, now))
        self._driver_free = at
        oldest = min(self._kept(node) for node in self._nodes)
        self._outcome.most_redone = max(self._outcome.most_redone, self._sent - oldest)
        self._at(now + plan.steps_a_message * plan.period_ms, "send")

    def _arrive(self, now: float, k: int, message: tuple[int, float]) -> None:
        self._nodes[k].waiting.append(message)
        self._begin(now, k)

    def _begin(self, now: float, k: int) -> None:
        """Let a node that has something to do, and does nothing, take its next message."""
        node = self._nodes[k]
        if node.waiting and not node.is_busy:
            node.is_busy = True
            until, complete = node.waiting.pop(0)
            self._at(now + (until - node.taken) * self._step_ms(), "finish", k, (until, complete))

    def _finish(self, now: float, k: int, message: tuple[int, float]) -> None:
        node, plan = self._nodes[k], self._plan
        node.is_busy, node.taken = False, message[0]
        if node.failed_at is None and plan.steps_a_message == 1:
            self._hear(message, now + self._way())
        if node.failed_at is not None and node.taken == self._sent:
            self._outcome.recoveries_s.append((now - node.failed_at) / 1e3)
            self._down_ms += now - node.failed_at
            node.failed_at = None
        self._begin(now, k)

    def _hear(self, message: tuple[int, float], heard: float) -> None:
        """Note a node's answer; the step is answered when all have."""
        step, complete = message
        n, last = self._answered.pop(step, (0, 0.0))
        if n + 1 == self._plan.n_nodes:
            self._outcome.answers_ms.append(max(last, heard) - complete)
        else:
            self._answered[step] = (n + 1, max(last, heard))

    def _fail(self, now: float, k: int, _message: tuple[int, float]) -> None:
        """A node is lost with all that it had; another one reads the snapshot."""
        node, costs, plan = self._nodes[k], self._costs, self._plan
        if not node.is_up:
            return
        if node.failed_at is None:
            node.failed_at = now
        node.life, node.is_up, node.is_busy = node.life + 1, False, False
        node.waiting.clear()
        node.taken = self._kept(node)
        read_ms = 1e3 * plan.demons_a_node * costs.bytes_per_demon / (1e6 * plan.read_mb_per_s)
        self._at(now + 1e3 * plan.replace_s + read_ms, "recover", k)

    def _recover(self, now: float, k: int, _message: tuple[int, float]) -> None:
        """A node is back: what was recorded since its snapshot is the first that it is sent."""
        node = self._nodes[k]
        node.is_up = True
        if self._sent > node.taken:
            node.waiting.append((self._sent, now))
        self._begin(now, k)

    def _kept(self, node: _Node) -> int:
        """Return the step of a node's newest snapshot."""
        return node.taken // self._plan.snapshot_steps * self._plan.snapshot_steps

    def _way(self) -> float:
        return self._plan.network_ms + next(self._latencies)

    def _step_ms(self) -> float:
        return step_ms(self._costs, self._plan) * next(self._ratios)


def _drawn(values: Sequence[float], rng: np.random.Generator) -> Iterator[float]:
    """Yield values at random, for ever."""
    while True:
        yield from rng.choice(values, 4096).tolist()


def step_ms(costs: Costs, plan: Plan) -> float:
    """Return what a step takes a node in the mean."""
    return costs.step_ms + costs.step_ms_per_1000 * plan.demons_a_node / 1e3


def drawn_failures(plan: Plan, duration_ms: float, rng: np.random.Generator) -> list[tuple[float, int]]:
    """Draw when which node fails: independent of one another, at a constant rate."""
    mean_ms = plan.failure_days * 86_400_000.0
    times = [(at, node) for node in range(plan.n_nodes) for at in _arrivals(duration_ms, mean_ms, rng)]
    return sorted(times)


def _arrivals(duration: float, mean: float, rng: np.random.Generator) -> list[float]:
    found, at = [], rng.exponential(mean)
    while at < duration:
        found.append(at)
        at += rng.exponential(mean)
    return found


def figures(costs: Costs, plan: Plan, outcome: Outcome) -> dict[str, float | None]:
    """Return what a reader asks of a plan; units are in the names."""
    batch = plan.steps_a_message
    driver_ms = (costs.send_ms + plan.n_nodes * costs.send_ms_per_node) / batch
    memory = plan.demons_a_node * costs.bytes_per_demon + costs.bytes_per_process
    return {
        "demons_per_node": plan.demons_a_node,
        "step_ms": step_ms(costs, plan),
        "driver_ms_per_step": driver_ms,
        "most_steps_per_s": 1e3 / max(step_ms(costs, plan), driver_ms),
        "lag_steps_p50": _percentile(outcome.lags, 50),
        "lag_steps_p99": _percentile(outcome.lags, 99),
        "lag_steps_max": _percentile(outcome.lags, 100),
        "answer_ms_p50": _percentile(outcome.answers_ms, 50),
        "answer_ms_p99": _percentile(outcome.answers_ms, 99),
        "memory_gb_per_node": memory / 1e9,
        "memory_gb": plan.n_nodes * memory / 1e9,
        "network_mb_per_s_of_driver": plan.n_nodes * costs.bytes_per_step / plan.period_ms / 1e3,
        "n_failures": len(outcome.recoveries_s),
        "recovery_s_p50": _percentile(outcome.recoveries_s, 50),
        "recovery_s_max": _percentile(outcome.recoveries_s, 100),
        "redo_log_mb": outcome.most_redone * costs.bytes_per_step / 1e6,
        "share_of_time_up": outcome.up_share,
        "dollars_per_month": plan.n_nodes * plan.dollars_an_hour * HOURS_A_MONTH,
    }


def _percentile(values: Sequence[float], q: float) -> float | None:
    return float(np.percentile(values, q)) if len(values) else None


_WAY = (0.8,) * 99 + (4.0,)  # half of 1.6 ms, the median there and back of four actors; one in a hundred of 7.9
_RATIOS = (1.0,) * 527 + (96.0 / 54.0,)  # of 528 steps of 500,000 demons the slowest, over the mean

MEASURED: dict[str, Costs] = {
    "eager": Costs(0.02, 54.0 / 500.0, 0.0, 0.023, _WAY, _RATIOS, 51_548.0 + 24_260.0, 400e6, 1_383.0),
    "deferred": Costs(0.02, 0.50 / 10.0, 0.0, 0.102, _WAY, _RATIOS, 51_548.0 + 24_260.0, 400e6, 1_383.0),
}
"""On two cores: docs/PERFORMANCE.md has what demons cost (500,000 in 54 ms eager, 10,000 in .50 ms deferred; bytes),
the part `broadcast` of tests/bench/cluster.py what a message of a step, and of 64, takes the driver for each actor."""


def main(arguments: list[str]) -> int:
    """Simulate both ways of learning and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=Plan.n_nodes)
    parser.add_argument("--demons", type=int, default=Plan.n_demons)
    parser.add_argument("--hours", type=float, default=24.0, help="simulated; of the eager way a 120th of it")
    parser.add_argument("--failure-days", type=float, default=Plan.failure_days, help="between two of one node")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    found = {}
    for mode, costs in MEASURED.items():
        kind = {"steps_a_message": STEPS_A_MESSAGE[mode], "failure_days": asked.failure_days}
        plan = Plan(asked.demons, asked.nodes, **kind)
        rng = np.random.default_rng(asked.seed)
        duration_ms = 3.6e6 * asked.hours / (120.0 if mode == "eager" else 1.0)
        outcome = Simulation(costs, plan, rng).run(duration_ms, drawn_failures(plan, duration_ms, rng))
        found[mode] = {"figures": figures(costs, plan, outcome), "plan": asdict(plan), "costs": asdict(costs)}
    if asked.json:
        print(json.dumps(found, indent=1))
        return 0
    print(f"{'':28}" + "".join(f"{mode:>12}" for mode in found))
    for name in next(iter(found.values()))["figures"]:
        values = [one["figures"][name] for one in found.values()]
        print(f"{name:28}" + "".join(f"{'-' if v is None else format(v, '.4g'):>12}" for v in values))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
