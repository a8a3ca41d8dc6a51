"""Experiment `league`: every update rule on the same questions and lives."""
