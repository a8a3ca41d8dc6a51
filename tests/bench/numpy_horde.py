"""The NumPy yardsticks; they live in the package, for `horde bench`."""

from __future__ import annotations

from horde_agent.bench.numpy_horde import FeatureMajor, LearnerMajor

__all__ = ["FeatureMajor", "LearnerMajor"]
