"""Data sets: tables of observations and actions as streams that a Horde learns from."""
