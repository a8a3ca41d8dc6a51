"""Experiment `loop`: predictions of the step before as features."""
