"""Rates of false alarms, such as "1/month", in words of settings; without a module that needs the compiler."""

from __future__ import annotations

import math

from horde_agent.refusals import BadInput

UNITS_S = {
    "hour": 3_600.0,
    "day": 86_400.0,
    "week": 604_800.0,
    "month": 2_592_000.0,  # 30 days
    "year": 31_536_000.0,  # 365 days
}


def seconds_between(rate: str) -> float:
    """Return the mean time between false alarms in seconds, of a rate such as "1/month" or "2/day".

    Raises:
        BadInput: If it is not a positive number per hour, day, week, month (30 days) or year.

    Examples:
        >>> seconds_between("2/day")
        43200.0
    """
    number, _, unit = rate.partition("/")
    try:
        n_alarms = float(number)
    except ValueError:
        n_alarms = 0.0
    if unit not in UNITS_S or not 0.0 < n_alarms < math.inf:
        raise BadInput(
            f"the rate of false alarms must be a positive number per {', '.join(UNITS_S)}, such as 1/month, not "
            f"{rate!r}"
        )
    return UNITS_S[unit] / n_alarms
