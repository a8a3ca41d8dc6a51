"""The physics engines as parameters of tests, of which PyBullet's has wheels for few Pythons."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from horde_env.sim.physics import PHYSICS

NEEDS_PYBULLET = pytest.mark.skipif(
    find_spec("pybullet") is None, reason="PyBullet has no wheel for this Python"
)
ENGINES = [pytest.param("bullet", marks=NEEDS_PYBULLET), "planar"]
"""Each of `PHYSICS`."""
assert len(ENGINES) == len(PHYSICS)
