"""A frame with a different number in each place, and its content as two published drivers decode it."""

from __future__ import annotations

from horde_env.robots.create2.wire import Sensors

GOLDEN = bytes.fromhex(
    "13 51 64 06 01 00 01 00 01 00 08 07 00 a4 04 ff 85 00 2d 02 3b d9 ff 05 1b 08 56 0a 89 01 41 0b 37 0b 63 0b 40 04 "
    "b0 00 00 00 02 01 03 00 01 00 c7 80 00 00 c7 ff 39 b0 f4 79 18 16 00 0e 01 ac 04 31 00 00 0d fd 00 8d a8 ac 01 38 "
    "ff d3 00 00 00 01 01 30"
)
SAID = Sensors(
    bumps=6, wall=1, cliff_front_left=1, cliff_right=1, overcurrents=8, dirt=7, ir_omni=164, buttons=4, distance=-123,
    angle=45, charging_state=2, voltage=15321, current=-251, temperature=27, charge=2134, capacity=2697,
    wall_signal=321, cliff_signal_left=2871, cliff_signal_front_left=2915, cliff_signal_front_right=2880,
    cliff_signal_right=1200, charging_sources=2, mode=1, song=3, n_stream_packets=1, requested_velocity=199,
    requested_radius=-32768, requested_right=199, requested_left=-199, encoder_left=-20236, encoder_right=31000,
    light_bumper=22, light_left=14, light_front_left=428, light_centre_left=1073, light_front_right=3581,
    light_right=141, ir_left=168, ir_right=172, current_left=312, current_right=-45, current_side_brush=1, stasis=1,
)  # fmt: skip
