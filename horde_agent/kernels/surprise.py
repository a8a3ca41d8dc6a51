"""What a block of TD errors says of each question and signal: the terms of `scoring.surprise`.

By NumPy alone a block takes twice as long: of most arrays, the call takes more time than the numbers.
"""

from __future__ import annotations

import math

from horde_agent.kernels._jit import kernel
from horde_agent.types import Bools, Floats, Integers, Reals

FEWEST_UPDATES = 3  # of a question in a block
SPREAD_BLOCKS = 600  # that the mean and deviation of a question reach back
SETTLED = 10  # blocks of a question before it counts
CUT_OFF_AFTER = 30  # blocks of a question, before which no distance is cut off
LARGEST_SPREAD = 4.0  # z of a spread, beyond which it is cut off
LARGEST_PHI = 0.9
GRAIN = 0.25  # of a signal's values
_LEAST_SPREAD = 0.2  # deviation of a spread, which is a logarithm: 20 %
_TINY = 1e-12


@kernel
def sample_block(sums: Floats, ratios: Floats, least_square: Floats, samples: Floats) -> None:
    """Write each question's spread and lean in a block; NaN if it says too little.

    Args:
        sums: Of rho delta and rho delta^2, shape (2, n_demons).
        ratios: Number of steps with rho > 0, and sum of rho, shape (2, n_demons).
        least_square: Added to each mean of squares, shape (n_demons,).
        samples: Spread and lean, shape (2, n_demons), overwritten.
    """
    for demon in range(sums.shape[1]):
        samples[0, demon] = math.nan
        samples[1, demon] = math.nan
        n_updates = ratios[0, demon]
        weight = ratios[1, demon]
        if n_updates < FEWEST_UPDATES or not sums[1, demon] > 0.0:
            continue
        mean = sums[0, demon] / weight
        mean_square = least_square[demon] + sums[1, demon] / weight
        if math.isfinite(mean) and math.isfinite(mean_square):
            samples[0, demon] = math.log(mean_square)
            samples[1, demon] = mean * math.sqrt(n_updates / mean_square)


@kernel
def standardise(sample: Floats, n: Floats, mean: Floats, variance: Floats, z: Floats) -> None:
    """Write the distances of a sample from the running mean in running deviations, and add it to both.

    A distance beyond `LARGEST_SPREAD` deviations is added cut off.

    Args:
        sample: Shape (n_numbers,), NaN without one.
        n: Number of samples so far, shape (n_numbers,), changed.
        mean: Shape (n_numbers,), changed.
        variance: Shape (n_numbers,), changed.
        z: Shape (n_numbers,), overwritten; NaN without a sample or before `SETTLED`.
    """
    for k in range(sample.size):
        z[k] = math.nan
        if not math.isfinite(sample[k]):
            continue
        distance = sample[k] - mean[k]
        deviation = math.sqrt(variance[k] + _LEAST_SPREAD**2)
        if n[k] > SETTLED:
            z[k] = distance / deviation
        if n[k] > CUT_OFF_AFTER:
            most = LARGEST_SPREAD * deviation
            distance = min(max(distance, -most), most)
        n[k] += 1.0
        rate = 1.0 / min(n[k], SPREAD_BLOCKS)
        mean[k] += rate * distance
        if n[k] > 1.0:
            variance[k] += rate * ((1.0 - rate) * distance**2 - variance[k])


@kernel
def sum_signals(
    z: Floats,
    lean: Floats,
    n_updates: Floats,
    reach: Floats,
    signal: Integers,
    values: Floats,
    weights: Floats,
) -> None:
    """Write the weighted means of spread and lean over each signal's questions.

    Args:
        z: Spread of each question in deviations, shape (n_demons,), cut off at `LARGEST_SPREAD` in the mean; a question
            that is not watched, or says too little, gets 0 here and in `lean`.
        lean: Shape (n_demons,).
        n_updates: Of each question, shape (n_demons,).
        reach: 1 / (1 - gamma), shape (n_demons,).
        signal: Number of each question's signal, -1 if it is not watched, shape (n_demons,).
        values: Means of spread and lean, shape (2, n_signals), overwritten; 0 without an update.
        weights: Sums of the weights of both, shape (2, n_signals), overwritten.
    """
    values[:] = 0.0
    weights[:] = 0.0
    for demon in range(z.size):
        s = signal[demon]
        if s < 0 or not math.isfinite(z[demon]):
            z[demon] = 0.0
            lean[demon] = 0.0
            continue
        spread = min(max(z[demon], -LARGEST_SPREAD), LARGEST_SPREAD)
        spread_weight = n_updates[demon]
        lean_weight = reach[demon] * math.sqrt(n_updates[demon])
        values[0, s] += spread_weight * spread
        values[1, s] += lean_weight * lean[demon]
        weights[0, s] += spread_weight
        weights[1, s] += lean_weight
    for row in range(2):
        for s in range(values.shape[1]):
            values[row, s] /= max(weights[row, s], _TINY)


@kernel
def compare_with_group(
    values: Floats,
    weights: Floats,
    is_muted: Bools,
    group: Integers,
    has_group: Bools,
    sums: Floats,
    apart: Floats,
) -> None:
    """Write how far values are from the mean of the group's other signals that have an update and are not muted.

    Args:
        values: Spread and lean of each signal, shape (2, n_signals).
        weights: Sums of the weights of both, 0 without an update, shape (2, n_signals).
        is_muted: Shape (n_signals,).
        group: Number of each signal's group, shape (n_signals,).
        has_group: Signals that are compared with their group, shape (n_signals,).
        sums: For the groups' sums and, in its last row, their members, shape (3, n_groups), overwritten.
        apart: Shape (2, n_signals), overwritten; 0 without an update, a group, or another one in it.
    """
    n_signals = values.shape[1]
    apart[:] = 0.0
    sums[:] = 0.0
    for s in range(n_signals):
        if weights[1, s] > 0.0 and not is_muted[s]:
            sums[0, group[s]] += values[0, s]
            sums[1, group[s]] += values[1, s]
            sums[2, group[s]] += 1.0
    for s in range(n_signals):
        if not has_group[s] or weights[1, s] <= 0.0:
            continue
        for row in range(2):
            included = 0.0
            n_others = sums[2, group[s]]
            if not is_muted[s]:
                included = values[row, s]
                n_others -= 1.0
            if n_others > 0.0:
                apart[row, s] = values[row, s] - (sums[row, group[s]] - included) / n_others


@kernel
def subtract_expected(
    values: Floats,
    is_muted: Bools,
    has_phi: bool,
    reach: float,
    mean: Floats,
    square: Floats,
    product: Floats,
    previous: Floats,
    residuals: Floats,
) -> None:
    """Write what the running mean and the preceding value do not say of the newest values, and estimate phi.

    All arrays have the shape (n_values, n_series), but that of muted series.

    Args:
        values: The newest ones.
        is_muted: Series that change no estimate, shape (n_series,).
        has_phi: Whether phi is used.
        reach: Step of the estimate of phi; 0 to estimate nothing.
        mean: Of each series.
        square: Running mean of the squared previous distances, changed.
        product: Running mean of their products with the distances, changed.
        previous: Distances of the preceding values, overwritten by those of the newest.
        residuals: Overwritten.
    """
    for value in range(values.shape[0]):
        for s in range(values.shape[1]):
            distance = values[value, s] - mean[value, s]
            preceding = previous[value, s]
            phi = 0.0
            if has_phi:
                # Of less than a grain nothing is estimated: a constant series would say at its first change that
                # it lasts
                phi = product[value, s] / max(square[value, s], GRAIN**2)
                phi = min(max(phi, 0.0), LARGEST_PHI)
            residuals[value, s] = distance - phi * preceding
            previous[value, s] = distance
            if is_muted[s]:
                continue
            product[value, s] += reach * (distance * preceding - product[value, s])
            # Of the previous distances, so that phi is their regression
            square[value, s] += reach * (preceding**2 - square[value, s])


@kernel
def follow_trend(values: Floats, is_left_out: Bools, reach: float, mean: Floats) -> None:
    """Move the means toward values, both (n_values, n_series), but of the series that are left out, (n_series,)."""
    for value in range(values.shape[0]):
        for s in range(values.shape[1]):
            if not is_left_out[s]:
                mean[value, s] += reach * (values[value, s] - mean[value, s])


@kernel
def stands(
    observation: Reals, places: Integers, middles: Floats, least: Floats, n_speeds: int
) -> bool:
    """Return whether no speed differs from its middle, and a request does.

    Args:
        observation: Shape (n_channels,); a missing speed says that it does not stand.
        places: Of speeds, and then of requests, shape (n_parts,).
        middles: Readings at rest, shape (n_parts,).
        least: Distances from there up to which a reading is none, shape (n_parts,).
        n_speeds: Number of speeds.
    """
    for k in range(n_speeds):
        if not abs(observation[places[k]] - middles[k]) <= least[k]:
            return False
    is_driven = False
    for k in range(n_speeds, places.size):
        is_driven |= abs(observation[places[k]] - middles[k]) > least[k]
    return is_driven
