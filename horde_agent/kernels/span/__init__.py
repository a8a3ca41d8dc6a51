"""The span engine's kernels, top down: transition, step, writing, overlaps; they share the arrays of arrays.py."""
