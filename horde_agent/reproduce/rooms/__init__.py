"""Experiment `rooms`: eight rules on the Rooms and High Variance Rooms problems."""
