"""Settings of all tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A first call may compile, on a busy machine
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

# Compiling creates millions of objects that live on: collections at the usual thresholds take a
# tenth of its time, and those of the middle generation find next to nothing.
gc.set_threshold(50_000, 100, 50)


@pytest.fixture(scope="session", autouse=True)
def _log_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set the folder of stable-baselines3's logs: by default each model leaves one in the system's temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SB3_LOGDIR", str(tmp_path_factory.mktemp("sb3")))
        yield
