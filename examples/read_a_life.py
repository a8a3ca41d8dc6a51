"""Live for a while, and read the record as one table: with numpy alone, and, where it is installed, with DuckDB.

python examples/read_a_life.py 600
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

from horde_agent import cli
from horde_agent.record import Phase, read
from horde_agent.runs.export import export

run = Path(mkdtemp()) / "life"
cli.main(["learn", "--steps", sys.argv[1] if len(sys.argv) > 1 else "600", "--out", str(run)])

rows = read(run / "log" / "life.rec").rows
behaved = rows[rows["phase"] == Phase.BEHAVE]
print(f"{len(rows):,} rows, {len(behaved):,} of them of the behaviour; mean b {behaved['b'].mean():.3f}")

try:
    import duckdb

    table = export(run, "parquet")
    print(duckdb.sql(f"select action, count(*) n, avg(b) b from '{table}/*/*.parquet' where phase = 0 group by 1"))
except ImportError:
    print("pip install 'horde-gvf[log]' duckdb  # to ask it questions in SQL")
