"""The span engine's kernels, a step from top to bottom: transition, step, writing, overlaps; arrays has what they share."""
