"""The same life over the simulator, the emulated robot's serial line and its drops; and in real time.

    python -m tests.bench.bench_robot life [--steps 2000]
    python -m tests.bench.bench_robot realtime [--minutes 10]
    python -m tests.bench.bench_robot excursions [--seeds 3] [--excursions 300] [--bodies simulator,serial,drops]
    python -m tests.bench.bench_robot compare FILE           # the lines that `excursions` printed

Prints one JSON object per life, as it ends. Absolute times depend on the machine and its neighbours.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import gymnasium

from horde_env.hardware.latch import EmergencyLatch
from tests.bench.lives import make_life, rounded_ms, scores

BODIES: dict[str, dict[str, str]] = {
    "simulator": {"id": "horde_env:CritterbotPen-v0"},
    "serial": {"id": "horde_env:CritterbotEmulated-v0", "link": "serial"},
    "drops": {"id": "horde_env:CritterbotEmulated-v0", "link": "drops"},
}
CHUNK = 200
COMPARED = ("median_nmsre", "share_nmsre_below_1")
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)  # Student's t, 1..10 degrees of freedom


def life(body: str, steps: int, seed: int = 0) -> dict[str, Any]:
    """Live for `steps` and return the counts and the speed."""
    env = gymnasium.make(**BODIES[body], disable_env_checker=True)
    try:
        with make_life(env, seed) as lived:
            lived.begin()
            began = time.perf_counter()
            lived.run(steps)
            wall_s = time.perf_counter() - began
        return {
            "body": body,
            "seed": seed,
            "steps": lived.steps,
            "steps_per_s": round(lived.steps / wall_s, 1),
            "gaps": lived.gaps,
            "crc_errors": lived.crc_errors,
            "not_applied": lived.n_not_applied,
            "deadlines_missed": lived.deadlines_missed,
            "clipped": lived.n_clipped,
            "learn_ms": rounded_ms(lived.student.learn_s),
            **scores(lived),
        }
    finally:
        env.close()


def excursions(body: str, n: int, seed: int) -> dict[str, Any]:
    """Live until `n` excursions were completed and return the scores."""
    env = gymnasium.make(**BODIES[body], disable_env_checker=True)
    try:
        with make_life(env, seed) as lived:
            began = time.perf_counter()
            while lived.student.errors.n_excursions < n:
                lived.run(CHUNK)
            wall_s = time.perf_counter() - began
        return {
            "body": body,
            "seed": seed,
            "steps": lived.steps,
            "steps_per_s": round(lived.steps / wall_s, 1),
            "n_discarded": lived.student.errors.n_discarded,
            **scores(lived),
        }
    finally:
        env.close()


def compare(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return each body's means over its seeds, and its ratio to the simulator's life of the same seed (`ratio`)."""
    figures: dict[str, Any] = {}
    lives = {(line["body"], line["seed"]): line for line in lines}
    for body in BODIES:
        seeds = [seed for name, seed in lives if name == body]
        if not seeds:
            continue
        figures[body] = {"seeds": len(seeds)}
        figures[body] |= {key: round(mean(lives[body, seed][key] for seed in seeds), 4) for key in COMPARED}
        pairs = [(lives[body, seed], lives["simulator", seed]) for seed in seeds if ("simulator", seed) in lives]
        if body != "simulator" and len(pairs) > 1:
            figures[body]["ratio"] = {key: ratio([(x[key], own[key]) for x, own in pairs]) for key in COMPARED}
    return figures


def ratio(pairs: list[tuple[float, float]]) -> dict[str, float]:
    """Return the geometric mean of the pairs' ratios, and the ends of its 95 % interval by Student's t.

    Two lives of one seed choose the same actions, but not in the same places: the pairs take out little of the chance.
    """
    logs = [math.log(x / own) for x, own in pairs]
    half = T_95[min(len(logs) - 1, len(T_95)) - 1] * stdev(logs) / math.sqrt(len(logs))
    low, middle, high = (round(math.exp(mean(logs) + shift), 3) for shift in (-half, 0.0, half))
    return {"pairs": len(logs), "low": low, "mean": middle, "high": high}


def in_real_time(minutes: float, seed: int = 0) -> dict[str, Any]:
    """Live at 10 Hz over the pseudo terminal of a robot emulated in another process."""
    with emulated(seed) as port, tempfile.TemporaryDirectory() as folder:
        latch = EmergencyLatch(Path(folder) / "stop")
        env = gymnasium.make(
            "horde_env:CritterbotSerial-v0", port=port, parity="none", latch=latch, disable_env_checker=True
        )
        try:
            with make_life(env, seed) as lived:
                lived.begin()
                lived.run(round(600 * minutes))
                body: Any = env.unwrapped
                stats, missed = body.backend.stats, body.clock.missed
        finally:
            env.close()
    return {
        "steps": lived.steps,
        "deadlines_missed": lived.deadlines_missed,
        "deadlines_missed_drives_included": missed,
        "cycle_ms": rounded_ms(lived.cycle_s),
        "overrun_ms": rounded_ms(lived.overrun_s),
        "sensor_age_ms": rounded_ms(lived.sensor_age_s),
        "learn_ms": rounded_ms(lived.student.learn_s),
        "gaps": lived.gaps,
        "crc_errors": lived.crc_errors,
        "not_applied": lived.n_not_applied,
        "link": stats._asdict(),
        **scores(lived),
    }


@contextmanager
def emulated(seed: int) -> Iterator[str]:
    """Run `horde-robot emulate` and yield the path of its pseudo terminal."""
    command = [sys.executable, "-u", "-m", "horde_env.cli", "emulate", "--seed", str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                kind, _, rest = line.partition(" ")
                if kind == "serial":
                    yield rest.split()[0]
                    break
            else:
                raise RuntimeError(f"no serial line from {' '.join(command)}: exit code {process.wait()}")
        finally:
            process.terminate()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.bench_robot", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("what", choices=("life", "realtime", "excursions", "compare"))
    parser.add_argument("file", nargs="?", type=Path, help="of compare")
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--excursions", type=int, default=300)
    parser.add_argument("--bodies", default="simulator,serial,drops")
    args = parser.parse_args(arguments)
    bodies = args.bodies.split(",")
    if args.what == "realtime":
        tell(in_real_time(args.minutes, args.first_seed))
    elif args.what == "life":
        for body in bodies:
            tell(life(body, args.steps, args.first_seed))
    elif args.what == "excursions":
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            for body in bodies:
                tell(excursions(body, args.excursions, seed))
    else:
        tell(compare([json.loads(line) for line in args.file.read_text().splitlines() if line.startswith("{")]))
    return 0


def tell(figures: dict[str, Any]) -> None:
    """Print one line of JSON."""
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    sys.exit(main())
