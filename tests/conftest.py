"""Settings of all tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings
from numba.core.targetconfig import TargetConfig

# A first call may compile, on a busy machine
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

# Compiling creates millions of objects that live on: collections at the usual thresholds take a
# tenth of its time.
gc.set_threshold(50_000, 20, 50)


def values_of_options(config: TargetConfig) -> dict[str, object]:
    """Return what `TargetConfig.values` does, without a property for each of 30 options."""
    values = {name: option.default for name, option in type(config).options.items()}
    return values | config._values


# Numba compares options at each call that it types, which takes a seventh of the time of compiling
TargetConfig.values = values_of_options


@pytest.fixture(scope="session", autouse=True)
def _log_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set the folder of stable-baselines3's logs: by default each model leaves one in the system's temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SB3_LOGDIR", str(tmp_path_factory.mktemp("sb3")))
        yield
