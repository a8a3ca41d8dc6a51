"""Experiment `swifttd`: a step size per weight beside rules with one step size."""
