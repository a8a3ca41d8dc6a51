"""Claims about the three tiers."""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.claims import Claims, Finding, Part, at_least, at_most, parts, within
from horde_agent.reproduce.collision.problem import LAMBDAS, VARIANTS
from horde_agent.reproduce.stats import join
from horde_agent.reproduce.sweeps import Sweep

GRADIENT = ("GTD", "GTD2", "HTD", "Proximal GTD2", "TDRC")
CLIPPING = ("Tree Backup", "V-trace", "ABTD")
SENSITIVE = ("TD", "GTD", "GTD2", "HTD", "TDRC")
LEVELS = {
    "TD": (0.343, 0.103, 0.104),
    "GTD": (0.366, 0.102, 0.104),
    "GTD2": (0.363, 0.110, 0.115),
    "HTD": (0.350, 0.111, 0.114),
    "TDRC": (0.345, 0.102, 0.104),
    "ETD": (0.123, 0.097, 0.104),
    "Tree Backup": (0.343, 0.183, 0.168),
    "V-trace": (0.343, 0.183, 0.168),
    "ABTD": (0.343, 0.168, 0.168),
}
"""Best areas at lambda 0, .9 and 1 of another program, 50 runs."""

CLAIMS = Claims("abstract")


@CLAIMS.add(
    "Top tier: emphatic TD has the lowest error, and depends least on lambda.",
    "the emphatic methods are fastest, lowest and most robust",
    "The spread is the largest over the smallest of the best areas at each lambda:",
    source="abstract and figure",
)
def _top(found: Sweep) -> Finding:
    area = {rule: found.best(rule).mean for rule in VARIANTS}
    spread = {f"spread of {rule}": found.spread(rule) for rule in SENSITIVE}
    return Finding(
        [
            Part(
                "best area of ETD over the lowest of all rules",
                area["ETD"] / min(area.values()),
                at_most(1.02),
            ),
            Part("spread of ETD", found.spread("ETD"), at_most(1.5)),
            *parts(spread, at_least(2.5)),
        ],
        f"Best areas: {join(f'{rule} {value:.3g}' for rule, value in area.items())}.",
    )


@CLAIMS.add(
    "Middle tier: TD and the five gradient methods are alike.",
    "gradient methods and TD form the second tier",
)
def _middle(found: Sweep) -> list[Part]:
    areas = np.array([found.best(rule).of_seeds for rule in ("TD", *GRADIENT)])
    return [
        Part(
            "largest over smallest of their best areas",
            areas.max(axis=0) / areas.min(axis=0),
            at_most(1.25),
        )
    ]


@CLAIMS.add(
    "Bottom tier: Tree Backup, V-trace and ABTD end with a higher error.",
    "no faster than TD, with a higher asymptotic error",
    "Best areas over TD's:",
)
def _bottom(found: Sweep) -> list[Part]:
    return parts(
        {rule: found.best(rule).of_seeds / found.best("TD").of_seeds for rule in CLIPPING},
        at_least(1.4),
    )


@CLAIMS.add(
    "The best areas at lambda 0, .9 and 1 have these levels.",
    "published within .01: .32 to .33 at lambda 0 (ETD .12), .10 to .11 at 1 (Tree Backup, V-trace, ABTD .16)",
    f"Best area minus the area of another program's 50 runs, in the order {join(LEVELS)}:",
    source="figure, and another program",
)
def _levels(found: Sweep) -> list[Part]:
    judged = []
    for k, (lam, limit) in enumerate(((0.0, 0.05), (0.9, 0.02), (1.0, 0.02))):
        off = [found.best(rule, lam).mean - levels[k] for rule, levels in LEVELS.items()]
        judged.append(Part(f"lambda {lam:g}", off, within(-limit, limit).in_each(), ".3f"))
    return judged


def identities(found: Sweep) -> dict[str, float]:
    """Return the largest relative differences between errors that must be equal, over all settings and runs."""
    area = {rule: found.errors["area"][:, k] for k, rule in enumerate(VARIANTS)}
    one = LAMBDAS.index(1.0)
    half = LAMBDAS.index(0.5)
    pairs = {f"TD and {rule} at 0": (area["TD"][:, 0], area[rule][:, 0]) for rule in CLIPPING}
    pairs["Tree Backup and V-trace"] = (area["Tree Backup"], area["V-trace"])
    pairs["Tree Backup at 1 and ABTD from .5"] = (
        area["Tree Backup"][:, one, None],
        area["ABTD"][:, half:],
    )
    return {name: float((np.abs(a - b) / np.abs(a)).max()) for name, (a, b) in pairs.items()}


@CLAIMS.add(
    "Rules that are the same rule here have the same errors.",
    "TD = Tree Backup = V-trace = ABTD at 0; Tree Backup = V-trace; ABTD from zeta .5 = Tree Backup at 1",
    "Largest relative differences of the areas of every setting and run:",
    source="definitions",
)
def _identities(found: Sweep) -> list[Part]:
    return parts(identities(found), at_most(1e-12))


REMARKS = ("The grid is reduced: four trace decays, one ratio alpha_w / alpha, one beta.",)
