import numpy as np
import pytest

from horde_env.robots.critterbot.place import load_pen


def test_the_walls_enclose_two_metres_and_stand_behind_their_inner_faces() -> None:
    """Each wall's box touches +-1 m from outside: its inner face is the segment that rays meet."""
    pen = load_pen()
    for axis, (cx, cy, sx, sy, _) in zip("xyxy", pen.boxes(), strict=False):
        centre, size = (cx, sx) if axis == "x" else (cy, sy)
        assert abs(centre) - size / 2 == pytest.approx(1.0)
    assert np.abs(pen.segments()[:4]).max() == 1.0
