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


def test_the_dock_shows_three_sides_and_stands_against_the_south_wall() -> None:
    pen = load_pen()
    cx, cy, sx, sy, height = pen.boxes()[4]
    west, face, east = pen.segments()[4:]
    assert (cy - sy / 2, cy + sy / 2) == pytest.approx((-1.0, -0.91))
    np.testing.assert_allclose(face, [cx - sx / 2, -0.91, cx + sx / 2, -0.91])
    np.testing.assert_allclose([west[:2], east[2:]], [[0.33, -1.0], [0.57, -1.0]])
    np.testing.assert_array_equal(pen.heights(), [0.25] * 4 + [height] * 3)
    assert pen.reflectances()[0] > pen.reflectances()[5]


def test_the_beacon_stands_before_the_docks_face() -> None:
    """On the face itself, or behind it, the dock would hide its own lamp."""
    pen = load_pen()
    assert pen.beacon.position_m[1] > pen.segments()[5, 1]


def test_a_moved_lamp_leaves_the_old_pen_unchanged_and_takes_its_warmth_along() -> None:
    pen = load_pen()
    moved = pen.lit_from("lamp", (-0.5, 0.5, 0.4))
    assert moved.lamps == (pen.lamps[0]._replace(position_m=(-0.5, 0.5, 0.4)), *pen.lamps[1:])
    assert {w.name: w.position_m for w in moved.warm}["lamp"] == (-0.5, 0.5)
    assert pen == load_pen()
    with pytest.raises(ValueError, match="unknown lamp 'sun'; the pen has lamp, window"):
        pen.lit_from("sun", (0.0, 0.0, 0.0))
