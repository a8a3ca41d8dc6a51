"""A life on the emulated Create 2 in lockstep, twelve hours of it, among faults; docking and charging by itself.

    python -m tests.bench.create_life                    # 432,000 steps in lockstep, then 20 kill -9 of each process
    python -m tests.bench.create_life --hours 0.5 --battery 0.05 --kills 0
    python -m tests.bench.create_life --hours 0 --kills 20

The witness sits at the robot's end of the line and notes each of its ticks: its mode, and the speeds that it was last
told. What a life may learn from is held against that. Prints one JSON object; exit code 1 if any check failed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter, deque
from typing import Any

import numpy as np
import psutil

from horde_agent import questions
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.flags import is_learned
from horde_agent.life.life import Life, Moment
from horde_agent.policies import StickyRandom
from horde_agent.runs.jobs import warm_up
from horde_env.backend import Floats, Frame
from horde_env.env import PenEnv
from horde_env.errors import HordeEnvError
from horde_env.robots.create2.commands import drive
from horde_env.robots.create2.emulated import EmulatedCreate
from horde_env.robots.create2.wire import SAFE, TICK_S
from tests.bench.create_kills import kills
from tests.bench.lives import rounded_ms, scores
from tests.bench.soak import Complaints

# Per second of the robot's time, 0.5 in all: in one step of twenty a fault begins.
RATES = (
    "loss=0.15,flip=0.12,burst=0.06,text=0.05,stall=0.03,lift=0.02,cliff=0.02,mode=0.02,unplug=0.01,stuck_wheel=0.01,"
    "reboot=0.004,sleep=0.004,low_battery=0.002"
)
STEPS_PER_H, CHUNK = 36_000, 500
LATE_TICKS = 3  # of a command, which is sent again after 50 ms where a byte of it was lost
N_TICKS_KEPT = 64 * 60


class Tick:
    """What the robot was in one tick: in Safe and awake or not, and the speeds of its last command, right and left."""

    __slots__ = ("is_safe", "n", "requested")

    def __init__(self, n: int, is_safe: bool, requested: tuple[int, int]) -> None:
        self.n, self.is_safe, self.requested = n, is_safe, requested


class WitnessedCreate(EmulatedCreate):
    """An emulated Create 2 whose every tick is noted, and held against what its host's frames claim.

    Attributes:
        frames: How many frames there were of each kind.
        wrong: Steps whose frame claims to be whole although it is not, with what happened; must stay empty.
        n_late: Whole frames in whose step a command came late or again.
        longest_held_s: The longest time without a step that was done, off the dock and not on the way there, seconds.
        unguarded_s: How long wheels turned while no host could reach the robot, seconds.
        lowest_share: Of the battery's charge.
    """

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        self.frames: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.n_late = 0
        self.longest_held_s = self._held_s = self.unguarded_s = 0.0
        self.lowest_share = 1.0
        self._ticks: deque[Tick] = deque(maxlen=N_TICKS_KEPT)
        self._last_tick = -1

    def _connect(self, url: str, emulator: Any) -> Any:
        robot, cycle = emulator.robot, emulator.robot.cycle

        def watched(look: bool = True) -> bytes:
            said: bytes = cycle(look)
            firmware = robot.firmware
            is_safe = firmware.mode == SAFE and not firmware.is_asleep and not robot.is_hung
            self._ticks.append(Tick(robot.n_cycles, is_safe, tuple(firmware.requested)))
            if firmware.is_driven and emulator._faults.is_on("unplug"):
                self.unguarded_s += TICK_S
            return said

        robot.cycle = watched
        return super()._connect(url, emulator)

    def reset(self, rng: np.random.Generator) -> Frame:
        """Begin as ever; what lies before the first frame is no step."""
        frame = super().reset(rng)
        self._last_tick = self.emulator.robot.n_cycles
        return frame

    def exchange(self, command: Floats) -> Frame:
        """Exchange as ever, and hold the frame against what the robot was in each tick that it spans."""
        frame = super().exchange(command)
        machine = self.emulator.robot.machine
        self.lowest_share = min(self.lowest_share, machine.charge_ah / machine.capacity_ah)
        is_held = not frame.applied and not self.body.pilot.is_charging
        self._held_s = self._held_s + self.period_s if is_held else 0.0
        self.longest_held_s = max(self.longest_held_s, self._held_s)
        self._hold(frame, drive(command, self.spec))
        return frame

    def _hold(self, frame: Frame, asked: tuple[int, int]) -> None:
        is_whole = frame.applied and not frame.gap and not frame.stale
        for kind in ("gap", "stale"):
            self.frames[kind] += getattr(frame, kind)
        self.frames["not applied"] += not frame.applied
        self.frames["whole"] += is_whole
        self.frames["in all"] += 1
        if frame.stale:
            return
        newest = self.emulator.robot.n_cycles - round(frame.sensor_age_s / TICK_S)
        spanned = [tick for tick in self._ticks if self._last_tick < tick.n <= newest]
        self._last_tick = newest
        if not is_whole or not spanned:
            return
        self.n_late += any(tick.requested != asked for tick in spanned)
        if not all(tick.is_safe for tick in spanned):
            self.wrong.append(f"tick {newest}: whole, though the robot was not in Safe all the while")
        elif spanned[-1].requested != asked and len(spanned) > LATE_TICKS:
            self.wrong.append(f"tick {newest}: whole, though it was told {spanned[-1].requested} in place of {asked}")


class Counted:
    """An observer that counts what may be learned from by the flags of the record."""

    def __init__(self) -> None:
        self.n_learned, self._phase = 0, None

    def __call__(self, moment: Moment) -> None:
        """Look at a step: its row's observation was led to by the phase of the row before."""
        row = moment.row
        if self._phase is not None:
            self.n_learned += is_learned(self._phase, row.flags)
        self._phase = row.phase


class Progress:
    """An observer that says how far a life has come, and how much memory it takes, now and then."""

    def __init__(self, body: WitnessedCreate) -> None:
        self._body, self._next, self._process = body, 0, psutil.Process()
        self.began, self.memory_mb = time.perf_counter(), list[float]()

    def __call__(self, moment: Moment) -> None:
        """Look at a step."""
        life = moment.life
        if life.steps < self._next:
            return
        self._next += CHUNK
        self.memory_mb.append(self._process.memory_info().rss / 1e6)
        if self._next % (20 * CHUNK) == 0:
            speed = life.steps / (time.perf_counter() - self.began)
            stays, wrong = life.dockings.n_done, len(self._body.wrong)
            print(
                f"{life.steps} steps, {speed:.0f}/s, {stays} stays, {wrong} wrong, {self.memory_mb[-1]:.0f} MB",
                file=sys.stderr, flush=True,
            )  # fmt: skip


def live(hours: float, *, rates: str, battery: float, seed: int) -> dict[str, Any]:
    """Live so long in lockstep and return what came of it, the checks first."""
    body, counted = WitnessedCreate(faults=rates, seed=seed, battery_scale=battery), Counted()
    env = PenEnv(body, body.clock, spec=body.spec)
    interface = Interface.of(env)
    horde = Horde(
        questions.excursions(interface),
        n_features=interface.coder.n_features,
        n_active=interface.coder.n_active,
        mode="deferred",
    )
    warm_up(horde, interface)
    life = Life(
        env, horde, StickyRandom(len(interface.actions)), np.random.default_rng(seed), interface=interface,
        observers=[counted],
    )  # fmt: skip
    steps, watch = round(hours * STEPS_PER_H), Progress(body)
    life.observers.append(watch)
    signal.signal(signal.SIGTERM, lambda *_: life.stop())  # what was lived by then is reported
    with Complaints() as complaints, life:
        try:
            life.run(steps)
        except HordeEnvError as error:  # the finding of a life, not the end of its figures
            complaints.said.append(f"the life ended after {life.steps} steps: {error}")
        faults, link = body.emulator.fault_counts, body.body.stats._asdict()
    env.close()
    wall_s = time.perf_counter() - watch.began
    n_more = counted.n_learned - life.student.learning_steps  # one may wait to be learned from
    checks = {
        "no exception, no error": not complaints.said,
        "every step was lived": life.steps == steps,
        "every kind of fault happened": all(n for kind, n in faults.items() if kind != "heat"),
        "no frame across a fault claims to be whole": not body.wrong,
        "learned from what the flags allow, and from nothing else": 0 <= n_more <= 1,
        "docked and charged by itself": life.dockings.n_done > 0,
        "no stay at the dock in vain": life.dockings.n_failed == 0,
        "never held for longer than a minute": body.longest_held_s < 60.0,
        "the battery was never empty": body.lowest_share > 0.02,
        "nobody diverged": not life.horde.diverged,
    }  # fmt: skip
    return {
        "failed": [name for name, is_well in checks.items() if not is_well],
        "checks": checks,
        "complaints": complaints.said[:20],
        "wrong": body.wrong[:20],
        "seed": seed,
        "rates": rates,
        "physics": body.physics,
        "battery_scale": battery,
        "steps": life.steps,
        "hours_of_the_robot": round(life.steps / STEPS_PER_H, 3),
        "wall_s": round(wall_s, 1),
        "steps_per_s": round(life.steps / wall_s, 1),
        "faults": sum(faults.values()),
        "faults_per_step": round(sum(faults.values()) / max(life.steps, 1), 4),
        "faults_of_each_kind": faults,
        "link": link,
        "frames": dict(body.frames),
        "frames_with_a_late_command": body.n_late,
        "longest_held_s": round(body.longest_held_s, 1),
        "wheels_turned_without_a_host_s": round(body.unguarded_s, 1),
        "dockings": life.dockings.n_done,
        "dockings_in_vain": life.dockings.n_failed,
        "lowest_share_of_charge": round(body.lowest_share, 3),
        "memory_mb": [round(watch.memory_mb[i], 1) for i in (len(watch.memory_mb) // 10, -1)],
        "sensor_age_ms": rounded_ms(life.sensor_age_s),
        **scores(life),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 1 if a check failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.create_life", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--hours", type=float, default=12.0, help="of the robot's time, in lockstep")
    parser.add_argument("--kills", type=int, default=20, help="of each process, in real time")
    parser.add_argument("--battery", type=float, default=1.0, help="share of the battery's capacity")
    parser.add_argument("--rates", default=RATES, help="of the faults, per second of the robot's time")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    n_failed = 0
    if args.hours > 0.0:
        said = live(args.hours, rates=args.rates, battery=args.battery, seed=args.seed)
        n_failed += len(said["failed"])
        print(json.dumps(said, indent=1), flush=True)
    if args.kills > 0:
        said = kills(args.kills, seed=args.seed)
        n_failed += len(said["failed"])
        print(json.dumps(said, indent=1), flush=True)
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
