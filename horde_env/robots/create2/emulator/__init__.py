"""The emulated Create 2: the simulated robot behind the bytes of its serial line."""
