"""Slow, obvious twins of `horde_env.robots.critterbot.wire` and `stream`: bit by bit, byte by byte, field by field."""

from __future__ import annotations

from horde_env.robots.critterbot.wire import Control

HEADER = [0xDE, 0xAD, 0xBE, 0xEF]


def crc_bit_by_bit(data: bytes) -> int:
    """CRC-16/XMODEM as long division: polynomial 0x1021, start 0, most significant bit first."""
    crc = 0
    for byte in data:
        for bit in range(7, -1, -1):
            carry = (crc >> 15) ^ (byte >> bit & 1)
            crc = (crc << 1 & 0xFFFF) ^ (0x1021 if carry else 0)
    return crc


def signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def decode_field_by_field(p: bytes) -> dict[str, list[int]]:
    """The 83 bytes as the table of the protocol has them, one line a field."""
    motors = [p[9:13], p[13:17], p[17:21]]
    light_lsb = [p[48]]
    ir_light_lsb = [p[73], p[74]]
    return {
        "bus_voltage": [p[4]],
        "battery_voltage": [p[6], p[7], p[8]],
        "motor_voltage": [signed(m[0]) for m in motors],
        "motor_velocity": [signed(m[1]) for m in motors],
        "motor_current": [m[2] for m in motors],
        "motor_temperature": [m[3] for m in motors],
        "acceleration": [
            signed(p[21]) * 16 + p[24] // 16,
            signed(p[22]) * 16 + p[24] % 16,
            signed(p[23]) * 16 + p[25] // 16,
        ],
        "magnetic": [
            p[26] * 4 + (p[30] >> 6),
            p[27] * 4 + (p[30] >> 4) % 4,
            p[28] * 4 + (p[30] >> 2) % 4,
        ],
        "rotational_velocity": [signed(p[29]) * 4 + p[30] % 4],
        "ir_distance": [p[31 + i] * 4 + pair([p[41], p[42], p[43]], i) for i in range(10)],
        "ir_light": [p[65 + i] * 4 + pair(ir_light_lsb, i) for i in range(8)],
        "light": [p[44 + i] * 4 + pair(light_lsb, i) for i in range(4)],
        "thermal": [p[49 + 2 * i] + 256 * p[50 + 2 * i] for i in range(8)],
    }


def pair(packed: list[int], i: int) -> int:
    """The i-th pair of bits, four to a byte, the first on top."""
    return packed[i // 4] >> (6 - 2 * (i % 4)) & 3


def find_states(stream: bytes) -> tuple[list[bytes], int]:
    """The sound packets of a whole stream and the number of unsound ones, trying every byte as a beginning."""
    packets = []
    refused = 0
    i = 0
    while i + 83 <= len(stream):
        p = stream[i : i + 83]
        if list(p[:4]) != HEADER:
            i += 1
        elif (
            crc_bit_by_bit(p[4:]) == 0 and p[4] != 0 and p[25] % 16 == p[43] % 16 == p[76] // 4 == 0
        ):
            packets.append(p)
            i += 83
        else:
            refused += 1
            i += 1
    return packets, refused


class RingReader:
    """The firmware's receive buffer as the ring of 1,024 places that it is, and its reader of control packets."""

    def __init__(self) -> None:
        self.ring = [0] * 1024
        self.write_at = self.read_at = 0
        self.stage = "header"
        self.n_header = 0

    def put(self, byte: int) -> None:
        self.ring[self.write_at] = byte
        self.write_at = (self.write_at + 1) % 1024

    def get(self) -> int:
        if self.read_at == self.write_at:
            return 0xFF
        byte = self.ring[self.read_at]
        self.read_at = (self.read_at + 1) % 1024
        return byte

    def count(self) -> int:
        """Walk to the writer, over a place 1024 that there is not."""
        place = self.read_at
        n = 0
        while place != self.write_at:
            if place == 1024:
                place = 0
            else:
                place = place + 1
            n += 1
        return n

    def cycle(self) -> list[Control]:
        """Return the controls completed by these bytes."""
        controls = []
        while self.count() >= {"header": 1, "body": 5, "leds": 48}[self.stage]:
            if self.stage == "header":
                if self.get() == HEADER[self.n_header]:
                    self.n_header = self.n_header + 1
                else:
                    self.n_header = 0
                if self.n_header == 4:
                    self.stage = "body"
                    self.n_header = 0
            elif self.stage == "body":
                mode, a, b, c, led_mode = (self.get() for _ in range(5))
                controls.append(Control(mode, signed(a), signed(b), signed(c), led_mode))
                if led_mode == 7:
                    self.stage = "leds"
                else:
                    self.stage = "header"
            else:
                for _ in range(48):
                    self.get()
                self.stage = "header"
        return controls
