"""DropsLine: the program on the robot that turns its packets into drops, and drops into its controls.

Source: the original Critterdriver (CritterSerialLink, ActionWriter and its drop servers), June 2011.
"""

from __future__ import annotations

from collections.abc import Callable

from horde_env.emulation.sockets import SocketLine
from horde_env.hardware import drops
from horde_env.hardware.control import MI_ON, Control, encode_control
from horde_env.hardware.stream import PacketFinder
from horde_env.hardware.wire import decode_state

N_DROPS_KEPT = 16
WAKE_AFTER = 100  # cycles without a packet after which the driver types "mi on"


class DropsLine(SocketLine):
    """The robot's on-board driver: state drops out, control drops in (`hardware.drops`).

    As the original: each sound state packet becomes a drop, IR distance scrambled; after each packet the newest control
    that has come since the last one goes to the robot, older ones are lost; what comes in must be whole control drops,
    else the host is cut off. It leaves its socket as the operating system made it: drops wait until the host has
    acknowledged the last ones. It differs in taking one host and in checking the CRC, so that a packet spoiled on its
    way from the microcontroller is missing, where the original passes it on.

    Args:
        host: Address to listen on.
        port: Its port; 0 for any.
        clock: The driver's wall clock, in seconds, for the drops' time.
    """

    waits_for_company = True

    def __init__(self, host: str, port: int, clock: Callable[[], float]) -> None:
        super().__init__(host, port)
        self._clock = clock
        self._finder = PacketFinder()
        self._drops: dict[bytes, bytes] = {}
        self._slot: bytes | None = None
        self._ready = encode_control(Control(0))  # the driver's first word: all zeros
        self._silent = WAKE_AFTER

    def read(self) -> bytes:
        """Return what the driver writes to the robot."""
        data = super().read()
        for start in range(0, len(data), drops.CONTROL_SIZE):
            drop = data[start : start + drops.CONTROL_SIZE]
            if len(drop) < drops.CONTROL_SIZE:
                self._hang_up()
                break
            self._slot = encode_control(drops.decode_control_drop(drop))
        ready, self._ready = self._ready, b""
        if self._silent >= WAKE_AFTER:
            self._silent = 0
            return MI_ON + ready
        return ready

    def write(self, data: bytes) -> None:
        """Turn the robot's packets into drops."""
        packets = self._finder.find(data)
        self._silent = 0 if packets else self._silent + 1
        for packet in packets:
            self._send(self._drop(packet))
        if packets and self._slot is not None:
            self._ready, self._slot = self._slot, None

    def _drop(self, packet: bytes) -> bytes:
        """Return the drop of a packet; those of repeated ones (`Microcontroller.cycle`) are not computed again."""
        if packet not in self._drops:
            if len(self._drops) >= N_DROPS_KEPT:
                self._drops.clear()
            self._drops[packet] = drops.encode_state_drop(drops.drop_of(decode_state(packet), 0.0))
        drop, start = self._drops[packet], len(drops.STATE_START)
        seconds, microseconds = divmod(round(self._clock() * 1e6), 1_000_000)
        now = seconds.to_bytes(4, "little") + microseconds.to_bytes(4, "little")
        return drop[:start] + now + drop[start + 8 :]

    def _send(self, drop: bytes) -> None:
        """Send a whole drop or none: one for which there is no room is lost."""
        if len(self._outbox) < len(drop) or self.in_lockstep:
            self._outbox += drop
        if not self.in_lockstep:
            self.flush()

    def flush(self) -> None:
        """Send what has not been sent; a drop of which the network took a part is kept."""
        n = self._put(bytes(self._outbox)) if self._outbox else 0
        self.n_sent += n
        del self._outbox[:n]

    def _hang_up(self) -> None:
        super()._hang_up()
        self._slot = None
        self._outbox.clear()
