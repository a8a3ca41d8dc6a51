"""Soak: a life among faults of every kind, and a witness that holds robot and host against each other.

    python -m tests.bench.soak                               # lockstep: 10,000 faults over serial, 2,000 over drops
    python -m tests.bench.soak --link drops --faults 500
    python -m tests.bench.soak --minutes 20                  # in real time, the robot in another thread

Prints one JSON object; exit code 1 if any check failed. See `witness` for the measurements.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from horde_agent.life.life import Life, StepEvent
from horde_env.emulation.faults import KINDS
from horde_env.env import PenEnv
from tests.bench.lives import make_life, rounded_ms, share_within, spread
from tests.bench.witness import WatchedBody

# Per second of the robot's time. Often enough that faults meet one another, seldom enough that the link is mostly up.
RATES = "loss=2,flip=2,burst=2,stall=0.15,unplug=0.05,reboot=0.05,low_battery=0.04,heat=0.04,stuck_wheel=0.06"
CHUNK = 50  # steps between two looks at the counts
SETTLE_STEPS = 300
SPEED_UNITS = 20  # of an action


class Learning:
    """An observer that measures when learning resumes after each loss of the link.

    Attributes:
        delays_s: From the first frame of a new connection to the first update of the weights, seconds.
        n_overtaken: New connections that were lost again before.
    """

    def __init__(self, body: WatchedBody) -> None:
        self._body = body
        self._reconnects, self._back_t, self._steps = 0, np.nan, 0
        self.delays_s: list[float] = []
        self.n_overtaken = 0

    def __call__(self, event: StepEvent) -> None:
        """Look at a step."""
        learned, reconnects = event.life.student.learning_steps, self._body._reconnects
        t = self._body.emulator.t
        if reconnects != self._reconnects:
            self.n_overtaken += not np.isnan(self._back_t)
            self._reconnects, self._back_t, self._steps = reconnects, t, learned
        elif learned > self._steps and not np.isnan(self._back_t):
            self.delays_s.append(t - self._back_t)
            self._back_t = np.nan

    @property
    def is_waiting(self) -> bool:
        """True if no update followed the last connection yet."""
        return not np.isnan(self._back_t)


class Complaints(logging.Handler):
    """Collects logged errors and exceptions that ended a thread."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.said.append(record.getMessage())

    def __enter__(self) -> Complaints:
        self._hook, threading.excepthook = threading.excepthook, self._take
        logging.getLogger("horde_env").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        threading.excepthook = self._hook
        logging.getLogger("horde_env").removeHandler(self)

    def _take(self, args: threading.ExceptHookArgs) -> None:
        self.said.append(f"{args.thread}: {args.exc_type.__name__}: {args.exc_value}")


def soak(
    link: Literal["serial", "drops"] = "serial",
    *,
    n_faults: int = 10_000,
    minutes: float | None = None,
    seed: int = 0,
    rates: str = RATES,
    few: bool = False,
    settle_steps: int = SETTLE_STEPS,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run a life with faults and return the figures; "failed" names the failed checks.

    Args:
        link: "serial" or "drops".
        n_faults: In lockstep: run until this many faults have happened.
        minutes: In real time: duration in minutes.
        seed: Of everything.
        rates: Of the faults (`FaultRates.parse`).
        few: Ask 20 questions instead of 795.
        settle_steps: Steps without further faults at the end, for the last of them to be over.
        say: Takes a line about progress.
    """
    body = WatchedBody(link=link, faults=rates, seed=seed, speed=None if minutes is None else 1.0)
    env = PenEnv(body, body.clock, spec=body.spec, pen=body.pen)
    env.metadata["manoeuvres"] = ["centre"]  # low voltage sends a life to its dock, and hours of charging soak nothing
    learning, began, died = Learning(body), time.perf_counter(), ""
    with Complaints() as complaints:
        life = make_life(env, seed, few=few)
        life.observers.append(learning)
        try:
            with life:
                end = np.inf if minutes is None else began + 60.0 * minutes
                while time.perf_counter() < end and (minutes is not None or sum(body.counts().values()) < n_faults):
                    life.run(CHUNK)
                    if life.steps // 5_000 != (life.steps - CHUNK) // 5_000:
                        say(f"{life.steps} steps, {sum(body.counts().values())} faults")
                complete(life, body)
                body.end_of_faults()
                for _ in range(4):
                    life.run(settle_steps)
                    if not learning.is_waiting:
                        break
                final = body.body.stats
                is_open = bool(body.body._link and body.body._link.is_open)
        except Exception as error:  # the finding of a soak, not the end of it
            died, final, is_open = f"{type(error).__name__}: {error}", None, False
            logging.getLogger(__name__).exception("the life ended")
        finally:
            env.close()
    wall_s = time.perf_counter() - began
    if final is not None and not (is_open and final.reconnects == final.losses):
        complaints.said.append(f"the link was not back at the end: {final}")
    return report(link, body, life, learning, [died] * bool(died) + complaints.said, wall_s, minutes, seed, rates)


def complete(life: Life, body: WatchedBody) -> None:
    """Inject each kind of fault that has not happened by chance, and a cut while the robot moves."""
    for kind in KINDS:
        if not body.counts()[kind]:
            body.emulator.inject(kind)
            life.run(CHUNK)
    for _ in range(10):
        if not body.stopwatch.stops:
            body.emulator.inject("unplug", for_s=1.5)
            life.run(CHUNK)


def report(
    link: str,
    body: WatchedBody,
    life: Life,
    learning: Learning,
    complaints: list[str],
    wall_s: float,
    minutes: float | None,
    seed: int,
    rates: str,
) -> dict[str, Any]:
    """Return the figures of a soak, the checks first."""
    checks = checks_of(body, learning, complaints, in_time=minutes is not None)
    tally, stops = body.tally, body.stopwatch.stops
    told = [stop for stop in stops if stop.units <= SPEED_UNITS]
    return {
        "failed": [name for name, is_well in checks.items() if not is_well],
        "checks": checks,
        "complaints": complaints[:20],
        "link": link,
        "time": "lockstep" if minutes is None else "real",
        "seed": seed,
        "rates": rates,
        "faults": sum(tally.faults.values()),
        "faults_of_each_kind": dict(tally.faults),
        "robot_s": round(tally.robot_s, 1),
        "wall_s": round(wall_s, 1),
        "steps": life.steps,
        "steps_per_s": round(life.steps / wall_s, 1),
        "questions": life.horde.n_demons,
        "diverged": list(life.horde.diverged),
        "learning_steps": life.student.learning_steps,
        "excursions": life.student.errors.n_excursions,
        "dockings": life.dockings.n_done + life.dockings.n_failed,
        "robots": tally.robots,
        "slips": tally.slips,
        "deadlines_missed": life.deadlines_missed,
        "sensor_age_ms": rounded_ms(life.sensor_age_s),
        "overrun_ms": rounded_ms(life.overrun_s),
        "damage": dict(tally.where),
        "packets": ledger_summary(body.wire),
        "drops": ledger_summary(body.drops) if link == "drops" else None,
        "host": dict(tally.stats),
        "frames": {
            key: getattr(tally, key) for key in ("n_frames", "n_gaps", "n_stale", "n_not_applied", "n_moving_unsafe")
        },
        "shown": shown_summary(body),
        "not_shown": [vars(event) for event in tally.events if event.kind != "stuck_wheel" and not event.shown][:5],
        "stops": {
            "n": len(stops),
            "n_rescued": body.stopwatch.n_rescued,
            "n_above_20_units": len(stops) - len(told),
            "most_units": max((stop.units for stop in stops), default=0),
            "ramp_begins_s": spread([stop.ramp_s for stop in stops]),
            "zero_s": spread([stop.zero_s for stop in told]),
            "zero_s_all": spread([stop.zero_s for stop in stops]),
            "zero_after_loss_s": spread([stop.after_loss_s for stop in told]),
            "share_zero_within_0.6_s_of_loss": share_within([stop.after_loss_s for stop in told], 0.6),
            "wheels_stand_s": spread([stop.stand_s for stop in told]),
        },
        "learning_after_loss": {
            "n": len(learning.delays_s),
            "n_overtaken": learning.n_overtaken,
            "delay_s": spread(learning.delays_s),
        },
    }


def checks_of(body: WatchedBody, learning: Learning, complaints: list[str], *, in_time: bool) -> dict[str, bool]:
    """Return each check's verdict by name."""
    tally, ledgers = body.tally, (body.wire, body.drops)
    unplugged = [event for event in tally.events if event.kind == "unplug" and event.was_open]
    return {
        "no exception, no thread died, the link is back": not complaints,
        "every kind of fault happened": all(tally.faults[kind] for kind in KINDS),
        "no bad packet accepted": not any(ledger.n_forged for ledger in ledgers),
        "every damaged packet's bytes counted": not any(ledger.n_unseen for ledger in ledgers),
        # In real time a buffer may overflow; in lockstep only faults drop packets.
        "no sound packet missed": in_time or not any(ledger.n_missing for ledger in ledgers),
        "every unplug of an open link a loss": tally.stats["losses"] >= len(unplugged),
        "every loss ended": tally.stats["reconnects"] == tally.stats["losses"],
        "every cut shown in a frame": all(event.shown for event in tally.events if event.kind != "stuck_wheel"),
        "a gap after every return": tally.n_no_gap == 0,
        "never moving in heat or on a low bus": tally.n_moving_unsafe == 0,
        "no working robot reported as ignoring commands": tally.n_suspected == 0,
        "no motor runs on under a stop": body.stopwatch.n_runaways == 0,
        "motors at zero within patience and ramp": body.stopwatch.n_late == 0 and len(body.stopwatch.stops) > 0,
        "learning resumed after every loss": not learning.is_waiting and len(learning.delays_s) > 0,
    }


def ledger_summary(ledger: Any) -> dict[str, int]:
    """Return a ledger's counts."""
    return {key: value for key, value in vars(ledger).items() if key.startswith("n_")}


def shown_summary(body: WatchedBody) -> dict[str, str]:
    """Return for each kind that lasts how many the host's frames have shown, of how many."""
    events = body.tally.events
    happened, shown = Counter(e.kind for e in events), Counter(e.kind for e in events if e.shown)
    return {kind: f"{shown[kind]} of {n}" for kind, n in happened.items() if kind != "stuck_wheel"}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--link", choices=("serial", "drops"), help="both in lockstep, serial in real time if not said")
    parser.add_argument("--faults", type=int, default=10_000, help="in lockstep: a fifth of them over drops")
    parser.add_argument("--minutes", type=float, help="in real time, for so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rates", default=RATES, help="per second of the robot's time")
    parser.add_argument("--few", action="store_true", help="20 questions instead of 795")
    args = parser.parse_args(arguments)
    jobs: list[tuple[Any, int]] = [("serial", args.faults), ("drops", max(args.faults // 5, 1))]
    if args.link or args.minutes:
        jobs = [(args.link or "serial", args.faults)]
    n_failed = 0
    for link, n_faults in jobs:
        said = soak(
            link,
            n_faults=n_faults,
            minutes=args.minutes,
            seed=args.seed,
            rates=args.rates,
            few=args.few,
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
        n_failed += len(said["failed"])
        print(json.dumps(said, indent=1), flush=True)
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
