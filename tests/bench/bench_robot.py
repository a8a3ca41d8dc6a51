"""Ten minutes in real time over the serial line of a robot emulated in another process, with 795 questions.

    python -m tests.bench.bench_robot [--minutes 10]

Prints one JSON object. Absolute times depend on the machine and its neighbours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium

from horde_env.hardware.latch import EmergencyLatch
from tests.bench.lives import make_life, rounded_ms, scores


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_robot")
    parser.add_argument("--minutes", type=float, default=10.0)
    print(json.dumps(in_real_time(parser.parse_args().minutes)))
