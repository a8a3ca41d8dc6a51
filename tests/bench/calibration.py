"""Print the table of simulated against real readings: `python -m tests.bench.calibration [LOG] [--steps N]`.

The real side is the Critterbot's own log of 5 October 2010 (100 Hz, 99.7 s; not part of this
repository), the simulated side a wandering life: a random action, repeated with probability 1/2
every 100 ms. All numbers are raw counts.

Ranges and the lag of 0.1 s are those of the 10 Hz frames; noise at rest and the lag of 0.01 s those
of 100 Hz packets.
Rest: the wheels read 0 and the gyroscope is still; the noise is the spread within half a second.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_env.robot import RobotSpec, critterbot
from horde_env.robots.critterbot.log import COLUMNS, IR_DISTANCE_SCALE
from horde_env.robots.critterbot.simulator.backend import SimulatedBody
from horde_env.robots.critterbot.wire import decode_states, drive, encode_control
from tests.env.critterbot.emulated import robot as awake
from tests.env.recording import REAL_LOG

Floats = NDArray[np.float64]

WINDOW = 50  # packets, half a second
APART = ("acceleration", "magnetic")  # groups with channels too different for one row


class Stream(NamedTuple):
    """Raw counts of the 53 sensors: `frames` at 10 Hz, `packets` at 100 Hz, shape (n, 53)."""

    frames: Floats
    packets: Floats


class Row(NamedTuple):
    """What the table says of some channels on one side."""

    low: float
    p1: float
    p99: float
    high: float
    rest_sd: float
    lag_10_ms: float
    lag_100_ms: float


def real(path: Path, spec: RobotSpec) -> Stream:
    # The first row is all -1
    table = np.genfromtxt(path, delimiter=",", names=True, deletechars="")[1:]
    packets = np.column_stack([table[column] for columns in COLUMNS.values() for column in columns])
    packets[:, spec.group("ir_distance")] *= IR_DISTANCE_SCALE
    packets = averaged(packets, spec)
    return Stream(packets[9::10], packets[1:])


def averaged(packets: Floats, spec: RobotSpec) -> Floats:
    """Return packets in which ir_light is the mean of the last two, as in an observation."""
    ir_light = packets[:, spec.group("ir_light")]
    ir_light[1:] = 0.5 * (ir_light[1:] + ir_light[:-1])
    return packets


def wander(spec: RobotSpec, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield requests: the last one again with probability 1/2, else one of the five actions."""
    action = int(rng.integers(5))
    while True:
        yield spec.requests[action]
        if rng.random() >= 0.5:
            action = int(rng.integers(5))


def pausing(requests: Iterator[Floats], spec: RobotSpec) -> Iterator[Floats]:
    """Yield ten seconds of `requests` and two of standing still, by turns: the log has such pauses too."""
    while True:
        yield from (next(requests) for _ in range(100))
        yield from (spec.requests[-1] for _ in range(20))


def simulated(spec: RobotSpec, n_steps: int, n_packets: int, seed: int = 0) -> Stream:
    """Live `n_steps` of 100 ms in the simulator, and `n_packets` of the emulated robot, wandering and pausing."""
    body = SimulatedBody()
    body.reset(np.random.default_rng(seed))
    requests = wander(spec, np.random.default_rng(seed + 1))
    values = np.array([body.exchange(next(requests)).values for _ in range(n_steps)])
    body.close()
    steps = (values - spec.offset) / np.where(spec.lsb == 0.0, 1.0, spec.lsb)
    frames = np.round(2 * steps[:, : spec.n_sensors]) / 2  # halves where two packets are averaged
    robot = awake(seed)
    requests = pausing(requests, spec)
    packets = []
    for i in range(n_packets):
        if i % 10 == 0:
            robot.receive(encode_control(drive(next(requests), spec)))
        packets.append(robot.cycle())
    robot.close()
    raw = np.array([state.raw[: spec.n_sensors] for state in decode_states(packets)])
    return Stream(frames, averaged(raw, spec)[1:])


def resting(packets: Floats, spec: RobotSpec) -> list[slice]:
    """Return windows of half a second in which the robot stands still, a tenth of a second after it stopped."""
    wheels = packets[:, spec.group("motor_velocity")]
    still = np.all(wheels == 0, axis=1) & (
        np.abs(packets[:, spec.index("rotational_velocity")] - 5) < 12
    )
    windows = []
    run = 0
    for i, quiet in enumerate(still):
        run = run + 1 if quiet else 0
        if run > 10 and (run - 10) % WINDOW == 0:
            windows.append(slice(i + 1 - WINDOW, i + 1))
    return windows


def lag_1(x: Floats) -> float:
    """Return the autocorrelation of one channel at one sample's distance."""
    x = x - x.mean()
    return float((x[1:] * x[:-1]).mean() / max(float(x.var()), 1e-12))


def row(stream: Stream, channels: slice, rest: list[slice]) -> Row:
    """Summarise some channels: extremes over all, percentiles pooled, medians of noise and autocorrelation."""
    frames = stream.frames[:, channels]
    packets = stream.packets[:, channels]
    n = packets.shape[1]
    if rest:
        variance = np.array([packets[window].var(axis=0) for window in rest]).mean(axis=0)
    else:
        variance = np.full(n, np.nan)
    return Row(
        frames.min(),
        *np.percentile(frames, [1, 99]),
        frames.max(),
        float(np.median(np.sqrt(variance))),
        float(np.median([lag_1(packets[:, i]) for i in range(n)])),
        float(np.median([lag_1(frames[:, i]) for i in range(n)])),
    )


def table(spec: RobotSpec, log: Stream, life: Stream) -> str:
    """Return the comparison as a Markdown table."""
    lines = [
        "| sensors | real: min..max (p1..p99) | simulated | rest sd: real, sim | lag 0.01 s | lag 0.1 s |",
        "|---|---|---|---|---|---|",
    ]
    rests = [resting(stream.packets, spec) for stream in (log, life)]
    for group in COLUMNS:
        at = spec.group(group)
        if group in APART:
            parts = [slice(i, i + 1) for i in range(at.start, at.stop)]
        else:
            parts = [at]
        for part in parts:
            a, b = (
                row(stream, part, rest) for stream, rest in zip((log, life), rests, strict=True)
            )
            if group in APART:
                name = spec.channels[part.start].name
            else:
                name = f"{group} ({at.stop - at.start})"
            spans = [f"{r.low:.0f}..{r.high:.0f} ({r.p1:.0f}..{r.p99:.0f})" for r in (a, b)]
            pairs = [
                f"{x:.{d}f}, {y:.{d}f}" for x, y, d in zip(a[4:], b[4:], (1, 2, 2), strict=True)
            ]
            lines.append(f"| {name} | {' | '.join(spans)} | {' | '.join(pairs)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", nargs="?", type=Path, default=REAL_LOG)
    parser.add_argument("--steps", type=int, default=20_000, help="100 ms steps of simulated life")
    parser.add_argument("--packets", type=int, default=50_000, help="10 ms packets sensed after it")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    spec = critterbot()
    log = real(arguments.log, spec)
    life = simulated(spec, arguments.steps, arguments.packets, arguments.seed)
    print(table(spec, log, life))


if __name__ == "__main__":
    main()
