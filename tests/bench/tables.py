"""Count false alarms of `--surprise 1/day` in tables that never change: `python -m tests.bench.tables SEED ...`.

A table has 40,000 rows of one second and eight columns, to each of which nothing happens: noise with a short and a
long memory, noise with bursts, a sawtooth of a minute, a wave of an hour, two valves that seldom switch, and what
one of them heats. Printed is how many alarms name each column, and when the last one came.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from horde_agent import learn_from
from horde_agent.types import Floats

N_ROWS = 40_000
MINUTE_S = 60.0
HOUR_S = 3_600.0


def remembered(noise: Floats, memory: float) -> Floats:
    """Return x_t = memory x_{t-1} + noise_t, shape (n_rows,)."""
    x = np.zeros(len(noise))
    for t in range(1, len(noise)):
        x[t] = memory * x[t - 1] + noise[t]
    return x


def valve(rng: np.random.Generator, switches: float) -> Floats:
    """Return 0 or 1, shape (n_rows,), which switches with a probability in each row."""
    return np.cumsum(rng.random(N_ROWS) < switches) % 2.0


def made_up_table(seed: int) -> dict[str, Floats]:
    """Return a table, columns by name, each of shape (n_rows,), with four decimals."""
    rng = np.random.default_rng(seed)
    t = np.arange(N_ROWS, dtype=np.float64)
    noise = rng.standard_normal((7, N_ROWS))
    heater = valve(rng, switches=0.02)
    bursts = np.exp(0.5 * remembered(0.3 * noise[2], memory=0.95))
    columns = {
        "short_memory": remembered(noise[0], memory=0.5),
        "long_memory": remembered(0.1 * noise[1], memory=0.99),
        "bursts": bursts * remembered(noise[3], memory=0.9),
        "sawtooth": (t % MINUTE_S) / MINUTE_S + 0.02 * noise[4],
        "wave": np.sin(2.0 * np.pi * t / HOUR_S) + 0.1 * noise[5],
        "door": valve(rng, switches=0.01),
        "heater": heater,
        "heat": 20.0 + 0.1 * remembered(heater - 0.5, memory=0.98) + 0.05 * noise[6],
    }
    return {name: column.round(4) for name, column in columns.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("seeds", type=int, nargs="+")
    options = parser.parse_args()
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            table = made_up_table(seed)
            readings = np.column_stack(list(table.values()))
            learn_from(
                readings, channels=list(table), questions="nexting", surprise="1/day", out=out
            )
            events = json.loads((out / "surprise.json").read_text())["events"]
        alarms = [event for event in events if event["event"] == "surprise"]
        named = Counter(event["signals"][0] for event in alarms)
        last = max((event["step"] for event in alarms), default=0)
        print(
            f"seed {seed}: {len(alarms)} alarms, the last at row {last:,}; first named: {dict(named)}"
        )


if __name__ == "__main__":
    main()
