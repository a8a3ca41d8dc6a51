"""Experiment `measures`: RUPEE and UDE beside the errors that they estimate."""
