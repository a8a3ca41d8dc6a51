"""Experiment `reset`: half of the weights are lost in mid-life."""
