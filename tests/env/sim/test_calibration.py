"""The simulated robot against the real one's log, if that log is present."""

import numpy as np
import pytest

from horde_env.robot import critterbot

pytest.importorskip("pybullet")
from tests.bench import calibration
from tests.env.recording import REAL_LOG

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sim,
    pytest.mark.skipif(
        not REAL_LOG.exists(), reason="the real robot's log is not part of the repository"
    ),
]

SPEC = critterbot()
SENSED = (
    "acceleration",
    "magnetic",
    "rotational_velocity",
    "ir_distance",
    "ir_light",
    "light",
    "thermal",
)


@pytest.fixture(scope="module")
def streams() -> tuple[calibration.Stream, calibration.Stream]:
    return calibration.real(REAL_LOG, SPEC), calibration.simulated(SPEC, 5_000, 10_000, seed=3)


@pytest.mark.parametrize("group", SENSED)
def test_a_life_covers_a_real_robots_range(
    group: str, streams: tuple[calibration.Stream, calibration.Stream]
) -> None:
    """The middle 98 % of each channel overlap by at least half of the narrower one."""
    for i in range(SPEC.group(group).start, SPEC.group(group).stop):
        (a, b), (c, d) = (np.percentile(stream.frames[:, i], [1, 99]) for stream in streams)
        assert min(b, d) - max(a, c) >= 0.5 * min(b - a, d - c), SPEC.channels[i].name


@pytest.mark.parametrize("group", SENSED)
def test_noise_at_rest_is_within_a_factor_of_three_of_the_real_robots(
    group: str, streams: tuple[calibration.Stream, calibration.Stream]
) -> None:
    """Within half a second of rest, the median over a group's channels."""
    at = SPEC.group(group)
    real, simulated = (
        calibration.row(stream, at, calibration.resting(stream.packets, SPEC)).rest_sd
        for stream in streams
    )
    assert real / 3 < simulated < 3 * real
