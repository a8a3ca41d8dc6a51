"""Experiment `curiosity`: surprise about a changed robot drives the behaviour."""
