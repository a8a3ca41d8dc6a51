"""Compiled arithmetic: arrays and numbers in, arrays out, nothing else."""
