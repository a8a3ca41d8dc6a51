"""The live page's stop button stops the robot of its run, and no other, whether or not the live feed works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.stop_button import press_stop

STOP_S = 0.1
"""From the press to the stop, as docs/create2.md and docs/critterbot.md promise."""
N_STOPS = {"create2": 3, "critterbot": 1}
"""Within STOP_S of the first: the life's own, and of a Create 2 the two of its watchdog."""
REST_S = {"straight": 0.6, "turning": 0.8}
"""From the press to rest. The Critterbot's wheels coast after its ramp: in a turn that takes 0.64 s by itself."""


@pytest.mark.parametrize("kind", ["create2", "critterbot"])
@pytest.mark.parametrize(
    ("motion", "has_feed"),
    [
        ("straight", False),
        pytest.param("straight", True, marks=pytest.mark.slow),
        pytest.param("turning", False, marks=pytest.mark.slow),
        pytest.param("turning", True, marks=pytest.mark.slow),
    ],
)
def test_the_stop_button_stops_the_robot_of_its_life_and_no_other(
    kind: str, motion: str, has_feed: bool, tmp_path: Path
) -> None:
    """Without a feed: an error has ended it, because a file is in the place of the folder `live/`.

    The stop must be the life's: `horde-robot stop` starts 0.2 s after the press, and a robot that only
    that command stopped was at rest in time. The watchdog alone would send two stops.
    """
    pytest.importorskip("uvicorn")
    press = press_stop(kind, tmp_path, motion=motion, has_feed=has_feed)
    first_stop_s = press.stops_s[0]
    assert first_stop_s < STOP_S
    assert sum(stop_s < first_stop_s + STOP_S for stop_s in press.stops_s) >= N_STOPS[kind]
    assert press.rest_s < REST_S[motion]
    assert press.latches == {kind: "requested on the live page"}
    assert press.answer["is_confirmed"]
    assert press.answer_s < 2.0
    assert f"`horde-robot stop --clear --robot {kind}`" in press.answer["said"]
    assert press.summary["stopped_early"]
