"""The span engine's kernels, from top to bottom: transition, step, writing, overlaps; arrays is what they share."""
