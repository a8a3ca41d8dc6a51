"""Read the recording of a run as one table, with numpy, DuckDB, polars and pandas.

The last three read Parquet files, which the record becomes with `pip install -e '.[log]'`.
Run it: python examples/read_a_life.py [steps]
"""

import sys
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

from horde_agent import cli
from horde_agent.record import Phase, read
from horde_agent.runs.reporting.exporting import export

STEPS = "600"
if len(sys.argv) > 1:
    STEPS = sys.argv[1]
run = Path(mkdtemp()) / "life"
cli.main(["learn", "--steps", STEPS, "--out", str(run)])

rows = read(run / "log" / "life.rec").rows
behaved = rows[rows["phase"] == Phase.BEHAVE]
print(f"{len(rows):,} rows, {len(behaved):,} of them of the behaviour")
print(f"mean b {behaved['b'].mean():.3f}")

try:
    table = export(run, "parquet")
except ValueError as missing:
    sys.exit(f"{missing}")
files = f"{table}/*/*.parquet"

with suppress(ImportError):
    import duckdb

    query = "select action, count(*) n, avg(b) b from '{}' where phase = 0 group by action"
    print(duckdb.sql(query.format(files)))

with suppress(ImportError):
    import polars as pl

    frame = pl.scan_parquet(files).filter(pl.col("phase") == Phase.BEHAVE)
    print(frame.group_by("action").agg(pl.len().alias("n"), pl.col("b").mean()).collect())

with suppress(ImportError):
    import pandas as pd

    frame = pd.read_parquet(table).query("phase == 0")
    print(frame.groupby("action").agg(n=("b", "size"), b=("b", "mean")))
