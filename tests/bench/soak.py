"""Soak: a life among faults of every kind, and a witness that holds robot and host against each other.

See `witness` for the measurements, and tests/env/test_soak.py for the life.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from horde_agent import Interface, StickyRandom, questions
from horde_agent.life.life import Life, StepEvent
from horde_agent.runs.jobs.warm import warm_up
from horde_env.emulation.faults import FaultRates
from horde_env.env import PenEnv
from tests.agent.doubles import horde_of
from tests.bench.witness import WatchedBody

FEW = ("/light_0", "/ir_light_0", "/rotational_velocity", "/ir_distance_0")
CHUNK = 50  # steps between two looks at the counts
SETTLE_STEPS = 100


class Learning:
    """An observer of when learning resumes after each loss of the link.

    Attributes:
        n_resumed: How often the weights were updated after a new connection.
        is_waiting: Whether no update followed the last connection yet.
    """

    def __init__(self, body: WatchedBody) -> None:
        self._body = body
        self._reconnects = self._steps = self.n_resumed = 0
        self.is_waiting = False

    def __call__(self, event: StepEvent) -> None:
        """Look at a step."""
        learned, reconnects = event.life.student.learning_steps, self._body._reconnects
        if reconnects != self._reconnects:
            self._reconnects, self._steps, self.is_waiting = reconnects, learned, True
        elif self.is_waiting and learned > self._steps:
            self.n_resumed += 1
            self.is_waiting = False


def make_life(env: PenEnv) -> Life:
    """Return a life with 20 questions, its kernels compiled."""
    interface = Interface.of(env)
    asked = [q for q in questions.excursions(interface) if q.name.endswith(FEW) and "/g0.8/" in q.name]
    horde = horde_of(asked, interface)
    warm_up(horde, interface)
    return Life(env, horde, StickyRandom(len(interface.actions)), np.random.default_rng(0), interface=interface)


def soak(link: Literal["serial", "drops"], n_faults: int, rates: str) -> dict[str, Any]:
    """Run a life of 20 questions with faults and return the failed checks and the counts.

    Args:
        link: "serial" or "drops".
        n_faults: Run until this many faults have happened, then until the last of them is over.
        rates: Of the faults (`FaultRates.parse`), per second of the robot's time.
    """
    body = WatchedBody(link=link, faults=rates, seed=0, speed=None)
    env = PenEnv(body, body.clock, spec=body.spec, pen=body.pen)
    env.metadata["manoeuvres"] = ["centre"]  # low voltage sends a life to its dock, and hours of charging soak nothing
    learning = Learning(body)
    life = make_life(env)
    life.observers.append(learning)
    try:
        with life:
            while sum(body.counts().values()) < n_faults:
                life.run(CHUNK)
            complete(life, body)
            body.end_of_faults()
            for _ in range(4):
                life.run(SETTLE_STEPS)
                if not learning.is_waiting:
                    break
            is_open = bool(body.body._link and body.body._link.is_open)
    finally:
        env.close()
    tally, checks = body.tally, {"the link is back": is_open, **checks_of(body, learning)}
    return {
        "failed": [name for name, is_well in checks.items() if not is_well],
        "not_shown": [vars(event) for event in tally.events if event.kind != "stuck_wheel" and not event.shown][:5],
        "faults": sum(tally.faults.values()),
        "packets_damaged": tally.n_damaged,
        "packets_refused": body.wire.n_damaged,
        "drops_refused": body.drops.n_damaged,
    }


def complete(life: Life, body: WatchedBody) -> None:
    """Inject each kind of fault that has not happened by chance, and a cut while the robot moves."""
    for kind in FaultRates.kinds():
        if not body.counts()[kind]:
            body.emulator.inject(kind)
            life.run(CHUNK)
    for _ in range(10):
        if not body.stopwatch.n_stops:
            body.emulator.inject("unplug", for_s=1.5)
            life.run(CHUNK)


def checks_of(body: WatchedBody, learning: Learning) -> dict[str, bool]:
    """Return each check's verdict by name."""
    tally, ledgers = body.tally, (body.wire, body.drops)
    unplugged = [event for event in tally.events if event.kind == "unplug" and event.was_open]
    return {
        "every kind of fault happened": all(tally.faults[kind] for kind in FaultRates.kinds()),
        "no bad packet accepted": not any(ledger.n_forged for ledger in ledgers),
        "every damaged packet's bytes counted": not any(ledger.n_unseen for ledger in ledgers),
        "no sound packet missed": not any(ledger.n_missing for ledger in ledgers),
        "every unplug of an open link a loss": tally.stats["losses"] >= len(unplugged),
        "every loss ended": tally.stats["reconnects"] == tally.stats["losses"],
        "every cut shown in a frame": all(event.shown for event in tally.events if event.kind != "stuck_wheel"),
        "a gap after every return": tally.n_no_gap == 0,
        "never moving in heat or on a low bus": tally.n_moving_unsafe == 0,
        "no working robot reported as ignoring commands": tally.n_suspected == 0,
        "no motor runs on under a stop": body.stopwatch.n_runaways == 0,
        "motors at zero within patience and ramp": body.stopwatch.n_late == 0 and body.stopwatch.n_stops > 0,
        "learning resumed after every loss": not learning.is_waiting and learning.n_resumed > 0,
    }
