"""How a connection to a robot begins again, and how the steps of a beginning wait.

Each robot's `Dialect.opening` is a generator that yields where time must pass, so that the same steps serve a first
connection, which is waited for, and a reconnection, which goes on beside a life that keeps its deadlines.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from horde_env.errors import BackendUnavailable
from horde_env.hardware.port import Port
from horde_env.hardware.settings import LinkSettings

Steps = Generator[None, None, Port]


def reopen_port(
    open_again: Callable[[], Steps],
    settings: LinkSettings,
    monotonic: Callable[[], float],
    refused: Callable[[BackendUnavailable], None],
) -> Steps:
    """Try to connect again, at growing intervals, until it succeeds or was tried often enough.

    Args:
        open_again: Begins an attempt.
        settings: How often, and at what intervals.
        monotonic: The time in seconds.
        refused: Takes the reason why an attempt failed.

    Raises:
        BackendUnavailable: If the last attempt failed.
    """
    interval_s = settings.first_pause_s
    for attempt in range(1, settings.attempts + 1):
        try:
            return (yield from open_again())
        except BackendUnavailable as refusal:
            refused(refusal)
            if attempt == settings.attempts:
                raise
        yield from pause(interval_s, monotonic)
        interval_s = min(2.0 * interval_s, settings.longest_pause_s)
    raise AssertionError("attempts are positive")


def pause(duration_s: float, monotonic: Callable[[], float]) -> Generator[None, None, None]:
    """Yield until `duration_s` has passed."""
    end = monotonic() + duration_s
    while monotonic() < end:
        yield
