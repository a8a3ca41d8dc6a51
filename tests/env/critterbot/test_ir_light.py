"""IR light with the two bits that the firmware loses."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horde_env.robots.critterbot.stream import IrLightUnwrapper
from tests.env.hardware.packets import RELAXED


@RELAXED
@given(st.lists(st.tuples(st.integers(-31, 31), st.integers(-31, 31)), max_size=80))
def test_ir_light_is_unwrapped_exactly_while_each_phase_moves_by_less_than_32(steps: list[tuple[int, int]]) -> None:
    """Bright and dark packets by turns, each level wandering as it likes over 0..1023, through every coincidence."""
    levels = np.clip(np.cumsum([(20, 60), *steps], axis=0), 0, 1023).ravel()
    unwrapper = IrLightUnwrapper()

    assert [unwrapper.unwrap(np.full(8, level % 256.0))[5] for level in levels] == levels.tolist()


def test_the_beacon_may_swap_its_bright_and_dark_packets() -> None:
    """Dark 20 and bright 340 by turns, then the other way round (the beacon runs at 49.4 Hz): 340 is sent as 84.

    The nearest reading to two packets ago alone would take 20 for 276, and to the previous packet alone likewise.
    """
    unwrapper = IrLightUnwrapper()
    approach = [level for bright in range(20, 341, 20) for level in (20, bright)]
    levels = [*approach, 20, 340, 20, 20, 340, 20, 340, 340, 20]

    assert [unwrapper.unwrap(np.full(8, level % 256.0))[3] for level in levels] == levels


def test_the_first_ir_light_is_taken_as_it_is() -> None:
    unwrapper = IrLightUnwrapper()
    wrapped = np.array([0, 40, 100, 127, 128, 196, 254, 255.0])

    for _ in range(2):
        assert unwrapper.unwrap(wrapped).tolist() == wrapped.tolist()
    assert unwrapper.unwrap(np.full(8, 10.0))[6:].tolist() == [266, 266]
    unwrapper.forget()
    assert unwrapper.unwrap(wrapped).tolist() == wrapped.tolist()
