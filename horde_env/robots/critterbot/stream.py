"""State packets out of the serial line's stream of bytes; `drops` has the reader of the driver's stream."""

from __future__ import annotations

from horde_env.hardware.stream import PacketFinder
from horde_env.robots.critterbot.wire import HEADER, STATE_SIZE, RobotState, decode_states, is_sound


class StateParser(PacketFinder):
    """Turns the robot's stream of bytes into states; never accepts a packet with a wrong CRC."""

    header, size = HEADER, STATE_SIZE

    def is_sound(self, packet: bytes) -> bool:
        """Tell whether a candidate of the right size and header is a state packet."""
        return is_sound(packet)

    def feed(self, data: bytes) -> list[RobotState]:
        """Take the next bytes and return the states that are now complete, in their order."""
        found = self.find(data)
        return decode_states(found) if found else []
