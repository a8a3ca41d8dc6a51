"""The parts of the emulated robot: its microcontroller, its lines to a host, and what goes wrong with them."""
