"""Restoring the two bits of IR light that the firmware loses."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horde_env.robot import critterbot
from horde_env.robots.critterbot.stream import IrLightUnwrapper
from horde_env.robots.critterbot.wire import N_CHANNELS, RobotState
from tests.env.hardware.packets import RELAXED

IR_LIGHT = critterbot().group("ir_light")


def unwrap(unwrapper: IrLightUnwrapper, wrapped: float | np.ndarray) -> np.ndarray:
    raw = np.zeros(N_CHANNELS)
    raw[IR_LIGHT] = wrapped
    return unwrapper.unwrap(RobotState(raw))


@RELAXED
@given(st.lists(st.tuples(st.integers(-31, 31), st.integers(-31, 31)), max_size=80))
def test_ir_light_is_restored_exactly_if_each_level_changes_by_less_than_32(steps: list[tuple[int, int]]) -> None:
    """Alternating bright and dark packets, each level in a random walk over 0..1023."""
    levels = np.clip(np.cumsum([(20, 60), *steps], axis=0), 0, 1023).ravel()
    unwrapper = IrLightUnwrapper()

    assert [unwrap(unwrapper, level % 256.0)[5] for level in levels] == levels.tolist()


def test_ir_light_is_restored_if_the_beacon_swaps_bright_and_dark_packets() -> None:
    """Dark 20 and bright 340 (sent as 84) alternate, then swap, because the beacon runs at 49.4 Hz.

    Comparing only with two packets ago, or only with the last packet, would read 20 as 276.
    """
    unwrapper = IrLightUnwrapper()
    approach = [level for bright in range(20, 341, 20) for level in (20, bright)]
    levels = [*approach, 20, 340, 20, 20, 340, 20, 340, 340, 20]

    assert [unwrap(unwrapper, level % 256.0)[3] for level in levels] == levels


def test_the_first_two_packets_are_not_changed() -> None:
    unwrapper = IrLightUnwrapper()
    wrapped = np.array([0, 40, 100, 127, 128, 196, 254, 255.0])

    for _ in range(2):
        assert unwrap(unwrapper, wrapped).tolist() == wrapped.tolist()
    assert unwrap(unwrapper, 10.0)[6:].tolist() == [266, 266]
    unwrapper.forget()
    assert unwrap(unwrapper, wrapped).tolist() == wrapped.tolist()
