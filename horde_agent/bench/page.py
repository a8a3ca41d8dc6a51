"""The page of `horde bench --out`: the figures, the roofline, and curves of cost where matplotlib is installed.

The roofline of the span engine is memory: a demon's step reads the rows of the features that switched, of theta and of
w, and once in K steps it reads and writes every row that was on meanwhile. Both follow from the stream alone.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent.bench import workload
from horde_agent.bench.measure import QUICK, Effort, Times, measure
from horde_agent.bench.sections import Bench
from horde_agent.gvf import GVF

_PERIOD = 64  # K, steps between two writings of the engine
_CURVE = Effort(first=64, chunk=128, n_chunks=1, warm_up=8)
_SIZES = {"w2": 1_000, "w10k": 10_000, "w50k": 50_000}


def bytes_per_demon_step(stream: workload.Stream, itemsize: int = 4) -> dict[str, float]:
    """Return the bytes of weights that a demon's step moves: the rows that switched, and the writing's share."""
    tiles = stream.tiles
    n_switched = 2 * float(np.mean(np.count_nonzero(tiles[1:] != tiles[:-1], axis=1)))
    starts = range(0, max(1, len(tiles) - _PERIOD), _PERIOD)
    n_touched = float(np.mean([np.unique(tiles[t : t + _PERIOD + 1]).size for t in starts]))
    return {"base rows": 2 * itemsize * n_switched, "writing": 4 * itemsize * n_touched / _PERIOD}


def roofline(details: Mapping[str, Any], stream: workload.Stream) -> list[dict[str, float | str]]:
    """Return a row for each size that was measured: what was reached of the bandwidth measured in the same run."""
    per_step, rows = sum(bytes_per_demon_step(stream).values()), []
    for name, n in {**_SIZES, **{k: int(k.split()[1]) for k in details if k.startswith("max ")}}.items():
        if name not in details:
            continue
        reached = 1e-6 * n * per_step / details[name]["f32"]["mean"]
        limit = details["bandwidth"]["48 MB" if n <= 2_000 else "1000 MB"]
        rows.append({"demons": n, "bytes": per_step, "GB/s": reached, "limit": limit, "share": reached / limit})
    return rows


def curves(bench: Bench) -> dict[str, list[tuple[float, float]]]:
    """Return milliseconds per step against the demons, the features, the share that switches, and gamma lambda."""
    whole = workload.stream(_CURVE.n_steps + 1)
    effort = QUICK if bench.effort == QUICK else _CURVE

    def cost(questions: list[GVF], stream: workload.Stream) -> float:
        times: dict[str, Times] = measure({"f32": bench.horde(questions, stream)}, effort)
        return times["f32"].mean

    bench.say("curves")
    found: dict[str, list[tuple[float, float]]] = {
        "demons": [(n, cost(workload.gibbs_questions(n), whole)) for n in (100, 300, 1_000, 3_000)]
    }
    thin = {share: workload.thinned(whole, share) for share in (0.25, 0.5, 1.0)}
    found["features"] = [
        (n, cost(workload.gibbs_questions(1_000, n_features=n), stream))
        for stream in thin.values()
        for n in [int(stream.tiles.max()) + 1]
    ]
    lively = [workload.stream(_CURVE.n_steps + 1, volatility=v) for v in (0.5, 1.0, 2.0, 4.0)]
    found["share of the active features that switches"] = [
        (float(np.mean(s.tiles[1:] != s.tiles[:-1])), cost(workload.gibbs_questions(1_000), s)) for s in lively
    ]
    found["gamma lambda"] = [
        (0.9 * gamma, cost(workload.gibbs_questions(1_000, gammas=(gamma,)), whole)) for gamma in (0.0, 0.5, 0.8, 0.95)
    ]
    return found


def write_page(folder: Path, answer: Mapping[str, Any], details: Mapping[str, Any], stream: workload.Stream) -> Path:
    """Write bench.html, and return where it is."""
    moved = bytes_per_demon_step(stream)
    lines = ["".join(f"<th>{html.escape(h)}</th>" for h in ("demons", "bytes", "GB/s reached", "GB/s limit", "share"))]
    lines += [
        f"<td>{r['demons']:,}</td><td>{r['bytes']:.0f}</td><td>{r['GB/s']:.1f}</td><td>{r['limit']:.1f}</td>"
        f"<td>{r['share']:.0%}</td>"
        for r in roofline(details, stream)
    ]
    figures = [f"<td>{key}</td><td>{'-' if v is None else html.escape(str(v))}</td>" for key, v in answer.items()]
    page = folder / "bench.html"
    page.write_text(
        "<!doctype html><meta charset='utf-8'><title>horde bench</title>"
        "<style>body{font:15px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .8em;text-align:right}"
        "img{max-width:100%}</style><h1>horde bench</h1>"
        f"{_table(figures)}<h2>Roofline</h2><p>Bytes of weights per demon and step: "
        + ", ".join(f"{name} {n:.0f}" for name, n in moved.items())
        + ". The limit is the bandwidth of reading rows of 512 bytes at random, measured in the same run. The numbers "
        f"that a demon keeps of its past are not counted.</p>{_table(lines)}{_pictures(details.get('curves', {}))}\n",
        encoding="utf-8",
    )
    return page


def _table(rows: list[str]) -> str:
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _pictures(found: Mapping[str, list[tuple[float, float]]]) -> str:
    """Return the curves as a picture, or as tables where matplotlib is not installed."""
    if not found:
        return ""
    heading = "<h2>Milliseconds per step</h2>"
    try:
        from matplotlib.figure import Figure
    except ImportError:
        tables = [
            f"<h3>{name}</h3>" + _table([f"<td>{x:g}</td><td>{y:.3f}</td>" for x, y in points])
            for name, points in found.items()
        ]
        return heading + "".join(tables)
    figure = Figure(figsize=(10, 6), layout="constrained")
    for axes, (name, points) in zip(figure.subplots(2, 2).flat, found.items(), strict=False):
        axes.plot(*zip(*points, strict=True), "o-")
        axes.set(xlabel=name, ylabel="ms", ylim=(0, None))
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    data = base64.b64encode(picture.getvalue()).decode()
    return f"{heading}<img alt='curves of cost' src='data:image/png;base64,{data}'>"
