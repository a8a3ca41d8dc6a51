from __future__ import annotations

import numpy as np
import pytest

from horde_env.backend import Frame
from horde_env.robot import critterbot
from horde_env.robots.critterbot.drives import SPEED, CentringDrive
from tests.env.toy import ToyBody

SPEC = critterbot()


def drive(body: ToyBody, frame: Frame) -> int:
    """Drive the body to the middle; return the number of steps."""
    centring = CentringDrive(SPEC, side_m=2.0)
    while (request := centring.request(SPEC.scale(frame.values)[0])) is not None:
        assert np.hypot(request[0], request[1]) <= SPEED + 1e-9
        assert request[2] == 0.0
        frame = body.exchange(request)
    return centring.n_steps


@pytest.mark.parametrize(
    ("reach_m", "gain", "lag_s", "spin"),
    [(0.09, 1.0, 0.15, 0.0), (0.12, 0.9, 0.25, 0.0), (0.08, 1.0, 0.1, 2.0)],
    ids=["as assumed", "brighter walls, slower wheels", "darker walls, still turning"],
)
def test_it_comes_near_the_middle_from_nine_poses_in_ten(
    reach_m: float, gain: float, lag_s: float, spin: float
) -> None:
    """From anywhere beyond 0.4 m, the distance to the middle falls by 40 % or more, also on other reflectance curves.

    A wall is out of range 0.72 m from the body's centre, so simply avoiding walls would end 0.28 m from the middle.
    """
    body, rng = ToyBody(reach_m=reach_m, gain=gain, lag_s=lag_s), np.random.default_rng(1)
    body.reset(rng)
    before, after = [], []
    while len(before) < 100:
        frame = body.place(*rng.uniform(-0.95, 0.95, 2), rng.uniform(-np.pi, np.pi))
        distance = np.hypot(*body.pose[:2])
        if distance < 0.4:
            continue
        body.velocity[2] = spin
        assert drive(body, frame) <= 20
        before.append(distance)
        after.append(np.hypot(*body.pose[:2]))
    assert np.mean(np.array(after) < 0.6 * np.array(before)) >= 0.9
    assert np.median(after) < 0.28


def test_it_hardly_moves_from_the_middle() -> None:
    body = ToyBody()
    for heading in np.linspace(-3.0, 3.0, 13):
        body.reset(np.random.default_rng(0))
        drive(body, body.place(0.0, 0.0, heading))
        assert np.hypot(*body.pose[:2]) < 0.25


def test_the_same_observations_give_the_same_drive() -> None:
    """No clock, no randomness and no earlier drive has an effect."""
    body = ToyBody()
    frame = body.reset(np.random.default_rng(3))
    first, observations, requests = CentringDrive(SPEC, 2.0), [], []
    for _ in range(8):
        observations.append(SPEC.scale(frame.values)[0])
        requests.append(first.request(observations[-1]))
        frame = body.exchange(requests[-1])
    second = CentringDrive(SPEC, 2.0)
    assert all(np.array_equal(second.request(o), r) for o, r in zip(observations, requests, strict=True))


def test_it_reads_infrared_distance_alone() -> None:
    body = ToyBody()
    observation = SPEC.scale(body.reset(np.random.default_rng(3)).values)[0]
    blind = np.zeros_like(observation)
    infrared = SPEC.group("ir_distance")
    blind[infrared] = observation[infrared]
    assert np.array_equal(CentringDrive(SPEC, 2.0).request(blind), CentringDrive(SPEC, 2.0).request(observation))


def test_a_drive_is_over_after_two_seconds() -> None:
    """A wall at a constant distance: twenty requests, then none."""
    centring, stuck = CentringDrive(SPEC, 2.0), np.zeros(SPEC.n_channels, np.float32)
    stuck[SPEC.index("ir_distance_0")] = 0.95
    requests = [centring.request(stuck) for _ in range(22)]
    assert [r is None for r in requests] == [False] * 20 + [True] * 2
    assert all(r[0] < 0.0 for r in requests[:20])
