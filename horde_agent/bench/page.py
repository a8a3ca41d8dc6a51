"""The page of `horde bench --out`: the figures, the roofline, what the estimates cost, and curves of cost."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from horde_agent.bench.curves import Curve
from horde_agent.bench.estimates import Cost
from horde_agent.bench.roofline import Row

# What each key of the answer means, and its unit; in the order of the page.
MEANINGS: dict[str, tuple[str, str]] = {
    "w1_ms": ("795 questions about 5 constant actions, float32, all predicted on each step", "ms per step"),
    "w1_f64_ms": ("the same, float64", "ms per step"),
    "w1_vs_numpy": ("the same, float32, against the better of two NumPy float32 versions", "times as fast"),
    "w1_f64_vs_numpy_f64": ("the same, float64, against the better of two NumPy float64 versions", "times as fast"),
    "w1_every_step_ms": ('the same, float32, w rule "every-step"', "ms per step"),
    "w2_ms": ("1,000 questions, each about a Gibbs policy of its own, float32, eager", "ms per step"),
    "w2_f64_ms": ("the same, float64, eager", "ms per step"),
    "w2_vs_numpy": ("float32, eager, against the better NumPy float32", "times as fast"),
    "w2_f64_vs_numpy_f64": ("float64, eager, against the better NumPy float64", "times as fast"),
    "w2_vs_dense": ("float32, eager, against a compiled dense pass on all threads", "times as fast"),
    "w2_deferred_ms": ("float32, deferred", "ms per step"),
    "w2_deferred_vs_numpy": ("float32, deferred, against the better NumPy float32", "times as fast"),
    "w10k_ms": ("10,000 Gibbs policies, float32, eager", "ms per step"),
    "w10k_deferred_ms": ("the same, deferred", "ms per step"),
    "w50k_ms": ("50,000 Gibbs policies, float32, eager", "ms per step"),
    "w50k_max_ms": ("their slowest step", "ms"),
    "max_demons_at_10hz": ("the most Gibbs policies whose every step takes less than 100 ms, in 24 GB", "demons"),
    "max_demons_ms": ("their step", "ms per step"),
    "max_demons_worst_ms": ("their slowest step", "ms"),
    "env_steps_per_s": ("the simulated robot alone", "steps per second"),
    "life_261681_s": ("the paper's 7.3 hours by `horde learn`: simulator, 795 questions and report", "s"),
    "tile_us": ("an observation to its active features", "µs"),
    "cluster_vs_one": ("four shards of 10,000 demons, on this machine, against one Horde of 40,000", "times as long"),
    "cluster_ask_ms": ("a step in four small shards of which one is asked a prediction", "ms per step, p50"),
    "cluster_ask_p99_ms": ("the same", "ms per step, p99"),
    "cluster_driver_ms": (
        "a step in four small shards of which nothing is asked, deferred: the driver's part",
        "ms per step",
    ),
    "threads": ("threads", ""),
    "cpu": ("processor", ""),
}
_AXES = {
    "demons": "demons",
    "features": "features (active ones in proportion)",
    "active share": "active features / all features",
    "switching share": "share of the active features that switches per step",
    "gamma lambda": "γλ",
}
_EAGER, _DEFERRED = "#3b6fb6", "#d1622b"
_NO_PICTURE = "The curves are drawn where matplotlib is installed: <code>pip install 'horde-gvf[viz]'</code>."

_ROOFLINE = """
A demon's step has to move some bytes, whatever the processor can do. Eager, it reads the rows of θ and w whose features
went on or off since the last step (reading), and its own few numbers per step since the last writing (past); once in K
steps each row that was on meanwhile is read and written (writing). Deferred, the rows of a tile of demons stay in a
core's cache for a batch of 64 steps, so that each comes from memory once a batch. Of the 795 questions, a fifth follows
the action on each step: θ is read for all, w for that fifth. A demon's present, some 26 numbers, is not counted."""
_LIMIT = """
The limit is the speed at which this machine, in this run, reads rows of that size in random order from as much memory
as is touched between two writings, with all threads and by the engine's own kernel. Writing is dearer than reading, so
that 100 % cannot be reached; where a step takes a fraction of a millisecond, Python and the start of threads count.
The floor is the time that these bytes would take at the limit."""
_CURVES = """
1,000 Gibbs policies on this stream, float32, unless the curve says otherwise: eager, every step is taken when it comes;
deferred, 64 at a time. With the features the active ones grow in proportion; with the active share the features stay,
and the share that switches stays too."""
_SWITCHING = {
    "synthetic": "More switches where the random walks stride wider.",
    "simulator": "More switches where only every second, fourth or eighth step of the robot's is looked at.",
}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #f5f5f3; margin: 0; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: .4rem 0 .2rem; } h2 { font-size: 1.1rem; margin: 0 0 .6rem; }
section { background: #fff; border: 1px solid #e3e3df; border-radius: 8px; padding: 1rem 1.2rem; margin: 1rem 0 0; }
img { max-width: 100%; height: auto; display: block; } p { max-width: 56rem; color: #444; margin: .4rem 0 .8rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th { font-weight: 600; color: #555; vertical-align: bottom; } code { background: #f0f0ee; padding: 0 .25em; }
td, th { padding: .22rem 1.1rem .22rem 0; border-bottom: 1px solid #eee; text-align: right; }
td.words, th.words { text-align: left; } td.name { font-family: ui-monospace, monospace; font-size: .82rem; }
td.strong, td.bar { font-weight: 600; }
td.bar { min-width: 9rem; text-align: left; padding-left: .4rem; background: linear-gradient(#c9d8ee, #c9d8ee) no-repeat
left center; border-left: 1px solid #999; border-right: 1px solid #999; }
"""


def write_page(folder: Path, answer: Mapping[str, Any], details: Mapping[str, Any], rows: Sequence[Row]) -> Path:
    """Write bench.html, and return where it is.

    Args:
        folder: Where to.
        answer: The object that was measured.
        details: What is behind it; with "curves" and "estimates" where those were measured.
        rows: The roofline.
    """
    page = folder / "bench.html"
    sections = [
        _figures(answer, details),
        _roofline(rows, details),
        _estimates(details.get("estimates", {})),
        _pictures(details.get("curves", {}), details["stream"]["name"]),
    ]
    page.write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>What learning costs · horde bench</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body><main><h1>What learning costs</h1>{_about(answer, details)}\n"
        + "\n".join(section for section in sections if section)
        + "\n</main></body></html>\n",
        encoding="utf-8",
    )
    return page


def _about(answer: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    """Return where and on what it was measured, and how much others disturbed it."""
    stream, others = details["stream"], details.get("share_of_others")
    disturbed = "" if others is None else f" Meanwhile other programs took {others:.0%} of the processors."
    kinds = {"synthetic": "53 random walks", "simulator": "a life of the simulated robot"}
    return (
        f"<p>{escape(str(answer['cpu']))}, {answer['threads']} threads. Stream: {stream['name']}, "
        f"{kinds[stream['name']]}; {stream['n_active']:,} of {stream['n_features']:,} features are active "
        f"({stream['active_share']:.1%}), and {stream['switched_share']:.1%} of the active ones switch per step. "
        "Times belong to this machine in this hour. Ratios were taken by turns in one run: quote those."
        f"{disturbed}</p>"
    )


def _figures(answer: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    """Return the table of the figures."""
    values = {**answer, **details.get("ratios", {})}
    lines = [
        f'<tr><td class="name words">{key}</td><td class="strong">{number(values.get(key))}</td>'
        f'<td class="words">{unit}</td><td class="words">{escape(meaning)}</td></tr>'
        for key, (meaning, unit) in MEANINGS.items()
        if key not in ("threads", "cpu")
    ]
    head = '<tr><th class="words">key</th><th>figure</th><th class="words">unit</th><th class="words">of what</th></tr>'
    return (
        f"<section><h2>Figures</h2><p>Means; a dash: not measured.</p><table>{head}{''.join(lines)}</table></section>"
    )


def number(value: float | None) -> str:
    """Return a number with three or four digits that count, or a dash."""
    if value is None:
        return "-"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"


def _bar(share: float) -> str:
    """Return a cell with a share, on a bar as long."""
    stop = f"{min(share, 1.0):.0%}"
    return f'<td class="bar" style="background-size: {stop} 70%">{share:.0%}</td>'


def _memory(details: Mapping[str, Any]) -> str:
    """Return a sentence about the memory that a demon took, of the largest Hordes measured."""
    found = [(name, details[name]["float32"]) for name in details if name.split()[0] in ("w50k", "max")]
    said = [
        f"{d['bytes_per_demon']:,.0f} bytes each of {d['n_demons']:,}" for _, d in found if d.get("bytes_per_demon")
    ]
    return f"<p>Memory of the demons, with their policies and all: {'; '.join(said)}.</p>" if said else ""


def _roofline(rows: Sequence[Row], details: Mapping[str, Any]) -> str:
    """Return the table of bytes, and of what was reached of the limit."""
    if not rows:
        return ""
    names = ("demons", "reading", "writing", "past", "all bytes", "ms", "floor, ms", "GB/s", "limit, GB/s", "share")
    lines = ["".join(['<th class="words">what</th>', *(f"<th>{name}</th>" for name in names)])]
    for row in rows:
        moved = row.moved
        numbers = [f"{n:,.0f}" for n in (row.n_demons, moved.reading, moved.writing, moved.past, moved.total)]
        numbers += [number(row.ms), number(row.floor_ms), f"{row.reached:.1f}", f"{row.limit:.1f}"]
        cells = "".join(f"<td>{n}</td>" for n in numbers)
        lines.append(f'<td class="words">{row.name}</td>{cells}{_bar(row.share)}')
    table = "".join(f"<tr>{line}</tr>" for line in lines)
    read = ", ".join(f"{name}: {speed:.1f} GB/s" for name, speed in details["bandwidth"].items())
    return (
        f"<section><h2>Roofline: bytes per demon and step</h2><p>{_ROOFLINE}</p><table>{table}</table>"
        f"<p>{_LIMIT}</p><p>Measured: {read}.</p>{_memory(details)}</section>"
    )


def _estimates(costs: Mapping[str, Cost]) -> str:
    """Return what the estimates of the MSPBE cost, in a table and in words."""
    if not costs:
        return ""
    lines = ['<th class="words">estimate</th><th>without, ms</th><th>with, ms</th><th>on top</th>']
    lines += [
        f'<td class="words">{name}</td><td>{cost.without:.4f}</td><td>{cost.with_it:.4f}</td>'
        f'<td class="strong">{cost.share:+.2%}</td>'
        for name, cost in costs.items()
    ]
    table = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f"<section><h2>What the online estimates of the MSPBE cost</h2><table>{table}</table>"
        "<p>The <b>scalar</b> estimate is a filter of δ (e·w), which a step of the span engine has at hand: one line "
        "among those for a demon's numbers, as in the plain engine. Here it was timed by itself, on one thread over "
        "numbers in cache, the quickest of 40 turns, and set against the whole step: it costs at most that.</p>"
        "<p>The <b>vector</b> estimate keeps a third row, m, beside θ and w. In the span engine it is not read for a "
        "prediction; it is written with the others, once in K steps. In the plain engine it is a third pass over the "
        "live features. With and without it by turns, in one run.</p></section>"
    )


def _pictures(found: Mapping[str, Curve], stream: str) -> str:
    """Return the curves as a picture, or as tables where matplotlib is not installed."""
    if not found:
        return ""
    words = f"<h2>Curves of cost</h2><p>{_CURVES} {_SWITCHING[stream]}</p>"
    try:
        picture = _draw(found)
    except ImportError:
        picture = f"<p>{_NO_PICTURE}</p>" + "".join(_points(name, curve) for name, curve in found.items())
    return f"<section>{words}{picture}</section>"


def _points(name: str, curve: Curve) -> str:
    """Return a curve as a table."""
    rows = zip(curve["x"], curve["eager"], curve["deferred"], strict=True)
    lines = [f"<tr><td>{x:g}</td><td>{a:.3f}</td><td>{b:.3f}</td></tr>" for x, a, b in rows]
    head = f"<tr><th>{_AXES[name]}</th><th>eager, ms</th><th>deferred, ms</th></tr>"
    return f"<table>{head}{''.join(lines)}</table>"


def _draw(found: Mapping[str, Curve]) -> str:
    """Return the curves as one picture inside the page."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    figure = Figure(figsize=(11, 7), layout=ConstrainedLayoutEngine(h_pad=0.12))
    panels = list(figure.subplots(2, 3).flat)
    for axes, (name, curve) in zip(panels, found.items(), strict=False):
        axes.plot(curve["x"], curve["eager"], "o-", color=_EAGER, label="eager")
        axes.plot(curve["x"], curve["deferred"], "s-", color=_DEFERRED, label="deferred")
        axes.set(xlabel=_AXES[name], ylabel="ms per step", title=f"against {name.replace('gamma lambda', 'γλ')}")
        if name == "demons":
            axes.set(xscale="log", yscale="log")
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(0, None)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.grid(visible=True, color="0.92")
        axes.set_axisbelow(True)
    for axes in panels[len(found) :]:
        axes.set_axis_off()
        axes.legend(*panels[0].get_legend_handles_labels(), loc="upper left", frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=130, metadata={"Software": None})
    data = base64.b64encode(picture.getvalue()).decode()
    return f'<img alt="Milliseconds per step, eager and deferred, in five panels" src="data:image/png;base64,{data}">'
