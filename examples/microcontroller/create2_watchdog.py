"""A watchdog on the robot itself: MicroPython for a board with two serial ports between cable and plug.

    computer ── UART 0 ── board ── UART 1 ── Create 2        both 115200 8N1; the robot's TXD gives 5 V: divide it

It passes everything on, and says the stop when the computer has been silent for 0.5 s: a pulled cable and a computer
without power are covered, as no program on the computer can cover them. Feed it from Vpwr (200 mA at most).
"""

SILENCE_MS, AGAIN_MS, TIMES = 500, 20, 5
STOP = bytes([0, 0, 0, 0, 145, 0, 0, 0, 0])  # four zeros complete whatever command was cut short
START = bytes([128])  # Passive: the wheels coast, and the robot may charge and sleep


class Watchdog:
    """What to say, and when; times in milliseconds, which may wrap: `apart` is time.ticks_diff on the board."""

    def __init__(self, now_ms, apart):
        self.apart = apart
        self.heard_ms = self.said_ms = now_ms
        self.left = 0  # stops that are still to be said; none before the computer has spoken

    def hear(self, now_ms):
        """The computer has spoken."""
        self.heard_ms, self.left = now_ms, TIMES

    def due(self, now_ms):
        """Return what must be said to the robot now: five stops 20 ms apart, and START with the last."""
        if self.left == 0 or self.apart(now_ms, self.heard_ms) < SILENCE_MS:
            return b""
        if self.left < TIMES and self.apart(now_ms, self.said_ms) < AGAIN_MS:
            return b""
        self.said_ms, self.left = now_ms, self.left - 1
        return STOP if self.left else STOP + START


def main():
    """Run on the board."""
    import time

    from machine import UART, WDT, Pin

    computer = UART(0, 115200, tx=Pin(0), rx=Pin(1), rxbuf=512)
    robot = UART(1, 115200, tx=Pin(4), rx=Pin(5), rxbuf=512)
    watchdog, own = Watchdog(time.ticks_ms(), time.ticks_diff), WDT(timeout=1000)
    while True:
        own.feed()
        if said := computer.read():
            watchdog.hear(time.ticks_ms())
            robot.write(said)
        if told := robot.read():
            computer.write(told)
        if words := watchdog.due(time.ticks_ms()):
            robot.write(words)


if __name__ == "__main__":
    main()
