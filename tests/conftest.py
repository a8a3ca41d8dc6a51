"""Settings of all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("untimed", settings(), deadline=None)  # a first call may compile, on a busy machine
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def _log_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where stable-baselines3 logs: by default each model leaves a folder in the system's temporary one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SB3_LOGDIR", str(tmp_path_factory.mktemp("sb3")))
        yield
