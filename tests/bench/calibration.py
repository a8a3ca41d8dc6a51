"""Print the table of simulated against real readings: `python -m tests.bench.calibration [LOG] [--steps N]`.

The real side is the Critterbot's own log of 5 October 2010 (100 Hz, 99.7 s; not part of this repository), the simulated
side a wandering life: a random action, repeated with probability 1/2 every 100 ms. All numbers are raw counts.

Ranges and the lag of 0.1 s are those of the 10 Hz frames; noise at rest and the lag of 0.01 s those of 100 Hz packets.
Rest: the wheels read 0 and the gyroscope is still; the noise is the spread within half a second.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_env.robot import RobotSpec, critterbot
from horde_env.robots.critterbot.simulator import firmware, period
from horde_env.robots.critterbot.simulator.backend import SimulatedBody

Floats = NDArray[np.float64]

LOG = Path(__file__).resolve().parents[2].parent / "shared/data/critterbot_real_wandering_2010-10-05.csv.gz"
WINDOW = 50  # packets, half a second
# Which of the log's columns hold a group's channels; IRDistance is the old driver's eight bits, x 4 at best.
COLUMNS = {
    "bus_voltage": ["BusVoltage"],
    "battery_voltage": [f"Bat{i}" for i in range(3)],
    "motor_voltage": [f"MotorCommand{i}" for i in range(3)],
    "motor_velocity": [f"MotorSpeed{i}" for i in range(3)],
    "motor_current": [f"MotorCurrent{i}" for i in range(3)],
    "motor_temperature": [f"MotorTemperature{i}" for i in range(3)],
    "acceleration": ["AccelX", "AccelY", "AccelZ"],
    "magnetic": ["MagX", "MagY", "MagZ"],
    "rotational_velocity": ["RotationVel"],
    "ir_distance": [f"IRDistance{i}" for i in range(10)],
    "ir_light": [f"IRLight{i}" for i in range(8)],
    "light": [f"Light{i}" for i in range(4)],
    "thermal": [f"Thermal{i}" for i in range(8)],
}
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
    """Read the robot's log; ir_light becomes the mean of the last two packets, as in an observation."""
    with gzip.open(path, "rt", newline="") as file:
        reader = csv.reader(file)
        names = {name: i for i, name in enumerate(next(reader))}
        table = np.array([[float(cell or "nan") for cell in row] for row in reader])[1:]  # the first row is all -1
    packets = table[:, [names[column] for columns in COLUMNS.values() for column in columns]]
    packets[:, spec.group("ir_distance")] *= 4
    seen = packets[:, spec.group("ir_light")]
    seen[1:] = 0.5 * (seen[1:] + seen[:-1])
    return Stream(packets[9::10], packets[1:])


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


def counts(values: Floats, spec: RobotSpec) -> Floats:
    """Return the raw counts of the 53 sensors (halves where two packets are averaged)."""
    n = spec.n_sensors
    return np.round(2 * (values[..., :n] - spec.offset[:n]) / spec.lsb[:n]) / 2


def simulated(spec: RobotSpec, n_steps: int, n_packets: int, seed: int = 0) -> Stream:
    """Live `n_steps` of 100 ms, and then `n_packets` of 10 ms of wandering and pausing, each of them sensed."""
    body, rng = SimulatedBody(spec), np.random.default_rng(seed)
    body.reset(rng)
    requests = wander(spec, np.random.default_rng(seed + 1))
    frames = np.array([body.exchange(next(requests)).values for _ in range(n_steps)])
    packets = np.array(list(_packets(body, pausing(requests, spec), n_packets, rng)))
    body.close()
    return Stream(counts(frames, spec), counts(packets, spec))


def _packets(
    body: SimulatedBody, requests: Iterator[Floats], n_packets: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Yield what the robot senses every 10 ms: the steps of `SimulatedBody.exchange`, sampled at each tick."""
    machine, spec, units = body.machine, body.spec, np.array([0.0176, -0.0176, 0.196])
    path, scales = np.tile(machine.body.motion, (3, 1)), period.scales_of(spec)
    for i in range(n_packets):
        if i % 10 == 0:
            x, y, theta = np.rint(next(requests) / units)
            machine.firmware.command(firmware.XYTHETA_SPACE, int(x), int(y), int(theta))
        path = np.vstack([path[1:], machine.tick(rng.standard_normal(3))])
        t_s = machine.n_ticks * 0.01
        noise = rng.standard_normal(period.N_NOISE + body.senses.n_normal), rng.random((2, body.senses.n_uniform))
        own, still, values = (
            (machine.plant, body.senses.at(t_s), scales, path),
            (0.0, 0.0, 0.0),
            np.zeros(spec.n_channels),
        )
        period.sample(*own, machine.body.contact_impulse(), still, t_s, *noise, values)
        yield values


def resting(packets: Floats, spec: RobotSpec) -> list[slice]:
    """Return windows of half a second in which the robot stands still, a tenth of a second after it stopped."""
    wheels = packets[:, spec.group("motor_velocity")]
    still = np.all(wheels == 0, axis=1) & (np.abs(packets[:, spec.index("rotational_velocity")] - 5) < 12)
    windows, run = [], 0
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
    frames, packets = stream.frames[:, channels], stream.packets[:, channels]
    n = packets.shape[1]
    variance = np.array([packets[window].var(axis=0) for window in rest]).mean(axis=0) if rest else np.full(n, np.nan)
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
        parts = [slice(i, i + 1) for i in range(at.start, at.stop)] if group in APART else [at]
        for part in parts:
            a, b = (row(stream, part, rest) for stream, rest in zip((log, life), rests, strict=True))
            name = spec.channels[part.start].name if group in APART else f"{group} ({at.stop - at.start})"
            spans = [f"{r.low:.0f}..{r.high:.0f} ({r.p1:.0f}..{r.p99:.0f})" for r in (a, b)]
            pairs = [f"{x:.{d}f}, {y:.{d}f}" for x, y, d in zip(a[4:], b[4:], (1, 2, 2), strict=True)]
            lines.append(f"| {name} | {' | '.join(spans)} | {' | '.join(pairs)} |")
    return "\n".join(lines)


def main() -> None:
    """Read the arguments, live, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", nargs="?", type=Path, default=LOG)
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
