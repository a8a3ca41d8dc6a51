"""Experiment `chain`: do the online estimates of the MSPBE follow the true one, and a change?

What is drawn and judged is the mean of 100 runs, as in the paper. Source: White, Modayil & Sutton (2012), section 6.
"""

from __future__ import annotations

from collections.abc import Mapping

from horde_agent.reproduce.chain import learning as world
from horde_agent.reproduce.chain.claims import claims
from horde_agent.reproduce.chain.fit import ONLINE, Curves, Fit, fit, mean_curves
from horde_agent.reproduce.chain.learning import CHANGE_AFTER, GAMMAS, N_EPISODES, N_RUNS, TAU, TAUS
from horde_agent.reproduce.result import Cell, Result, Table, mean_ci, student_t
from horde_agent.reproduce.study import Job, Study

NAME = "chain"
EPISODES_SHOWN = (1, 10, 100, 500, 1000, 1001, 1050, 1200, 2000)


def run(study: Study) -> Result:
    """Do the experiment: 100 runs for each seed and gamma, at either scale."""
    from horde_agent.reproduce.chain.pictures import chain_picture

    keys = [(gamma, seed) for gamma in GAMMAS for seed in study.seeds]
    done = study.in_parallel([Job(f"gamma {g:g}, seed {s}", mean_curves, (s, g)) for g, s in keys])
    curves: dict[tuple[float, int], Curves] = dict(zip(keys, done, strict=True))
    figures = [
        chain_picture(curves[gamma, study.seeds[0]], gamma, study.folder(NAME) / f"gamma-{gamma:g}.png")
        for gamma in GAMMAS
    ]
    of_paper = [curves[GAMMAS[0], seed] for seed in study.seeds]
    return Result(
        name=NAME,
        title="The MSPBE estimates on a small chain",
        claims=claims(of_paper),
        figures=figures,
        tables=[_gammas_table(curves), _episodes_table(of_paper[0]), _seeds_table(curves), _tau_table(of_paper[0])],
        settings=_settings(study),
        remarks=[
            "The paper gives neither gamma nor the time constant tau of the estimates' traces. Judged is gamma 0.9 at "
            f"tau = {TAU} steps (an episode has {world.steps_per_episode():.1f} steps in the mean); gamma 1 and other "
            "taus stand beside it."
        ],
    )


def _settings(study: Study) -> dict[str, Cell]:
    return {
        "runs per seed": N_RUNS,
        "episodes": N_EPISODES,
        "theta := U[0, 1]^5 after episode": CHANGE_AFTER,
        "alpha": world.ALPHA,
        "alpha_w": world.ALPHA_W,
        "lambda": world.LAM,
        "P(right), target": world.TARGET_RIGHT,
        "P(right), behaviour": world.BEHAVIOUR_RIGHT,
        "seeds": ", ".join(f"({seed}, 0..{N_RUNS - 1})" for seed in study.seeds),
    }


# ---- tables ---------------------------------------------------------------------------------------------------------


def _episodes_table(curves: Curves) -> Table:
    t = student_t(N_RUNS - 1)
    shown = [("true", TAU), *((name, tau) for tau in (10, TAU, 100) for name in ("vector", "scalar", "sample"))]
    rows = [
        [
            name if name == "true" else f"{name}, tau {tau}",
            *(
                f"{_short(1e3 * curves.at(name, tau)[k])} ± {_short(1e3 * t * curves.error_at(name, tau)[k])}"
                for k in EPISODES_SHOWN
            ),
        ]
        for name, tau in shown
    ]
    header = ("measure", *(f"{k:,}" for k in EPISODES_SHOWN))
    return Table("1000 x MSPBE by episode: means of 100 runs with 95 % intervals (gamma 0.9)", header, rows)


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def _gammas_table(curves: Mapping[tuple[float, int], Curves]) -> Table:
    rows: list[list[Cell]] = []
    for gamma in GAMMAS:
        mine = [c for (g, _), c in curves.items() if g == gamma]
        for name in (*ONLINE, "sample"):
            fits = [fit(c.at(name), c.at("true")) for c in mine]
            rows.append([gamma, name, *(str(mean_ci(numbers)) for numbers in zip(*fits, strict=True))])
    return Table(f"By gamma, means over the seeds, tau {TAU}", ("gamma", "measure", *_COLUMNS), rows)


def _seeds_table(curves: Mapping[tuple[float, int], Curves]) -> Table:
    rows = [
        [gamma, seed, name, *_columns(fit(c.at(name), c.at("true")))]
        for (gamma, seed), c in curves.items()
        for name in ("vector", "scalar", "sample", "exact_w", "exact_trace")
    ]
    note = (
        "exact_w: the vector estimate with the w that belongs to theta; exact_trace: with E[delta e] in the place of "
        "its trace. Only somebody who knows the chain can compute these."
    )
    return Table(f"By gamma and seed, tau {TAU}", ("gamma", "seed", "measure", *_COLUMNS), rows, note)


def _tau_table(curves: Curves) -> Table:
    rows = [
        [tau, name, *_columns(fit(curves.at(name, tau), curves.at("true")))]
        for tau in TAUS
        for name in (*ONLINE, "sample")
    ]
    return Table("Sensitivity to tau (gamma 0.9)", ("tau", "measure", *_COLUMNS), rows)


_COLUMNS = (
    "correlation 200-1000",
    "area 200-1000",
    "area 1-199",
    "correlation 1001-2000",
    "area 1001-2000",
    "peak after change",
    "episodes to peak",
    "error 1-1000",
    "error 1001-2000",
)


def _columns(numbers: Fit) -> list[float | int]:
    return [round(value, 4) if isinstance(value, float) else value for value in numbers]
