"""A watchdog on the robot itself: MicroPython for a board between the cable and the robot's plug.

    computer ── UART 0 ── board ── UART 1 ── Create 2

Both lines are 115200 8N1. The robot's TXD gives 5 V: divide it. Power the board from Vpwr (200 mA at
most). It forwards all bytes, and sends the stop when the computer has been silent for 0.5 s. That
covers a pulled cable and a computer without power, which no program on the computer can.
"""

SILENCE_MS = 500
AGAIN_MS = 20
TIMES = 5
STOP = bytes([0, 0, 0, 0, 145, 0, 0, 0, 0])  # the four zeros complete a partial command
START = bytes([128])  # Passive: the wheels coast, and the robot may charge and sleep


class Watchdog:
    """Decides what to send and when. Times are milliseconds and may wrap.

    `apart` subtracts two of them: time.ticks_diff on the board.
    """

    def __init__(self, now_ms, apart):
        self.apart = apart
        self.received_ms = now_ms
        self.sent_ms = now_ms
        self.left = 0  # stops that are still to be sent; none before the computer's first byte

    def received(self, now_ms):
        """Record that the computer sent bytes."""
        self.received_ms = now_ms
        self.left = TIMES

    def due(self, now_ms):
        """Return the bytes to send now: five stops 20 ms apart, and START with the last."""
        if self.left == 0 or self.apart(now_ms, self.received_ms) < SILENCE_MS:
            return b""
        if self.left < TIMES and self.apart(now_ms, self.sent_ms) < AGAIN_MS:
            return b""
        self.sent_ms = now_ms
        self.left -= 1
        if self.left == 0:
            return STOP + START
        return STOP


def main():
    """Run on the board."""
    import time

    from machine import UART, WDT, Pin

    computer = UART(0, 115200, tx=Pin(0), rx=Pin(1), rxbuf=512)
    robot = UART(1, 115200, tx=Pin(4), rx=Pin(5), rxbuf=512)
    watchdog = Watchdog(time.ticks_ms(), time.ticks_diff)
    timer = WDT(timeout=1000)
    while True:
        timer.feed()
        data = computer.read()
        if data:
            watchdog.received(time.ticks_ms())
            robot.write(data)
        data = robot.read()
        if data:
            computer.write(data)
        data = watchdog.due(time.ticks_ms())
        if data:
            robot.write(data)


if __name__ == "__main__":
    main()
