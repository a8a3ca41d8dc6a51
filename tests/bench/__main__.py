"""`make bench`: the figures of the README, measured here and now.

    python -m tests.bench                    # all of it: some ten minutes
    python -m tests.bench physics rules    # sections: numpy, physics, vector, rules, data,
                                           # watch, trips

Prints one JSON object per section. Absolute times depend on the machine and its neighbours; the
ratios were measured in one run and do not.
"""

from __future__ import annotations

import json
import sys
import time

from tests.bench import (
    bench_data,
    bench_numpy,
    bench_physics,
    bench_rules,
    bench_trips,
    bench_vector,
    bench_watch,
)

SECTIONS = {
    "numpy": bench_numpy.main,
    "physics": bench_physics.main,
    "vector": bench_vector.rates,
    "rules": bench_rules.main,
    "data": bench_data.main,
    "watch": bench_watch.main,
    "trips": bench_trips.main,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        print(f"unknown section {unknown[0]!r}: choose {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    for name in names or SECTIONS:
        began = time.perf_counter()
        figures = SECTIONS[name]()
        print(
            json.dumps(
                {
                    "section": name,
                    **(figures or {}),
                    "took_s": round(time.perf_counter() - began, 1),
                },
                indent=1,
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
