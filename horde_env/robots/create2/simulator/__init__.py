"""The simulated Create 2: its world, sensors and firmware."""
