"""Simulate a short run and read its recording as one table, with numpy, DuckDB, polars and pandas.

DuckDB, polars and pandas read the Parquet files that `pip install -e '.[log]'` lets the record
become.

python examples/read_a_life.py 600
"""

import sys
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

from horde_agent import cli
from horde_agent.record import Phase, read
from horde_agent.runs.reporting.exporting import export

run = Path(mkdtemp()) / "life"
cli.main(["learn", "--steps", sys.argv[1] if len(sys.argv) > 1 else "600", "--out", str(run)])

rows = read(run / "log" / "life.rec").rows
behaved = rows[rows["phase"] == Phase.BEHAVE]
print(
    f"{len(rows):,} rows, {len(behaved):,} of them of the behaviour; mean b {behaved['b'].mean():.3f}"
)

try:
    table = export(run, "parquet")
except ValueError as missing:
    sys.exit(f"{missing}")

with suppress(ImportError):
    import duckdb

    print(
        duckdb.sql(
            f"select action, count(*) n, avg(b) b from '{table}/*/*.parquet' where phase = 0 group by 1"
        )
    )

with suppress(ImportError):
    import polars as pl

    frame = pl.scan_parquet(table / "*/*.parquet").filter(pl.col("phase") == Phase.BEHAVE)
    print(frame.group_by("action").agg(pl.len().alias("n"), pl.col("b").mean()).collect())

with suppress(ImportError):
    import pandas as pd

    frame = pd.read_parquet(table).query("phase == 0")
    print(frame.groupby("action").agg(n=("b", "size"), b=("b", "mean")))
