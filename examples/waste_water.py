"""A year of a waste-water plant: is it worth to go on learning after the history?

The plant is the Benchmark Simulation Model 1 of the IWA, five reactors and a settler, with the influent of
BSM 2, whose temperature, flow and load change with the seasons, the weather and the holidays
(`pip install bsm2-python`). A row per 15 minutes; the probes are noisy, and that of the effluent's ammonium is
dead for a month. The Horde learns from the first days as a table, then from a pipe, beside weights frozen in between.

Run it: python examples/waste_water.py [days of history] [further days] [folder]
"""

import csv
import subprocess
import sys
from collections import defaultdict
from enum import IntEnum
from pathlib import Path
from statistics import median

import numpy as np

HISTORY_DAYS = 120
FURTHER_DAYS = 365
DEAD_DAYS = range(180, 210)
"""Days of the further ones on which the probe of the effluent's ammonium gives nothing."""
ROWS_A_DAY = 96
NOISE = 0.01
"""Standard deviation of a probe, as a share of its range."""
CHANNELS = {
    "influent_flow": 80_000.0,  # m3/d
    "influent_ammonium": 60.0,  # g/m3, as all that follow
    "temperature": 25.0,  # degrees Celsius
    "anoxic_nitrate": 20.0,
    "aerobic_oxygen": 10.0,
    "aerobic_ammonium": 40.0,
    "effluent_ammonium": 40.0,
    "effluent_nitrate": 30.0,
    "effluent_solids": 60.0,
}
"""Channels, each with the upper end of its range."""
QUESTIONS = f"""
[[family]]
policies = ["behaviour"]
gammas = [0.75, 0.9583333]  # an hour, six hours
channels = {list(CHANNELS)}
"""


class Place(IntEnum):
    """Places in the model's state."""

    OXYGEN = 7
    NITRATE = 8
    AMMONIUM = 9
    SOLIDS = 13
    FLOW = 14
    TEMPERATURE = 15


def simulated(n_days):
    """Yield the readings of each quarter of an hour, without noise."""
    from bsm2_python import BSM1OL

    plant = BSM1OL(timestep=1 / ROWS_A_DAY, endtime=n_days + 1, tempmodel=True)
    for i in range(n_days * ROWS_A_DAY):
        plant.step(i)
        influent = plant.y_in[i]
        anoxic = plant.y_out2_all[i]
        aerobic = plant.y_out5_all[i]
        effluent = plant.ys_eff_all[i]
        yield (
            influent[Place.FLOW],
            influent[Place.AMMONIUM],
            influent[Place.TEMPERATURE],
            anoxic[Place.NITRATE],
            aerobic[Place.OXYGEN],
            aerobic[Place.AMMONIUM],
            effluent[Place.AMMONIUM],
            effluent[Place.NITRATE],
            effluent[Place.SOLIDS],
        )


def lines_of(readings, n_history, rng):
    """Yield a header and a row of CSV for each reading of the plant, as its probes give it."""
    yield ",".join(["t", *CHANNELS])
    highest = np.array(list(CHANNELS.values()))
    dead = list(CHANNELS).index("effluent_ammonium")
    for row, exact in enumerate(readings):
        values = np.clip(exact + NOISE * highest * rng.normal(size=len(highest)), 0.0, highest)
        cells = [f"{value:.5g}" for value in values]
        if (row - n_history) // ROWS_A_DAY in DEAD_DAYS:
            cells[dead] = ""
        yield ",".join([f"{row * 900}", *cells])


def main(history_days=HISTORY_DAYS, further_days=FURTHER_DAYS, folder="waste_water"):
    """Simulate, learn, and print the scores."""
    out = Path(folder)
    out.mkdir(parents=True)
    channels = [
        f'[[channel]]\ncolumn = "{name}"\nlow = 0.0\nhigh = {high}\n'
        for name, high in CHANNELS.items()
    ]
    (out / "columns.toml").write_text("\n".join(['period_s = 900\ntime = "t"', *channels]))
    (out / "questions.toml").write_text(QUESTIONS)
    n_history = history_days * ROWS_A_DAY
    readings = simulated(history_days + further_days)
    header, *rows = lines_of(readings, n_history, np.random.default_rng(0))
    (out / "history.csv").write_text("\n".join([header, *rows[:n_history]]) + "\n")
    (out / "further.csv").write_text("\n".join([header, *rows[n_history:]]) + "\n")

    horde = [sys.executable, "-m", "horde_agent.cli"]
    history = ["learn", "--data", "history.csv", "--columns", "columns.toml", "--horizon", "72"]
    subprocess.run(
        [*horde, *history, "--questions", "questions.toml", "--out", "run"], cwd=out, check=True
    )
    further = ["resume", "run", "--data", "-", "--compare-frozen"]
    with (out / "further.csv").open() as pipe:
        subprocess.run([*horde, *further], cwd=out, check=True, stdin=pipe)

    families = defaultdict(list)
    with (out / "run" / "frozen.csv").open() as table:
        for line in csv.DictReader(table):
            if line["late_nmsre"] and line["late_nmsre_frozen"]:
                family = (line["channel"].split("_")[0], line["gamma"])
                families[family].append((line["late_nmsre"], line["late_nmsre_frozen"]))
    print("second half, median NMSRE: learning, frozen, ratio")
    for (place, gamma), scores in families.items():
        pairs = np.array(scores, dtype=float)
        ratio = median(pairs[:, 0] / pairs[:, 1])
        print(
            f"{place}, gamma {gamma}: {median(pairs[:, 0]):.3f} {median(pairs[:, 1]):.3f} {ratio:.2f}"
        )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(*map(int, arguments[:2]), *arguments[2:])
