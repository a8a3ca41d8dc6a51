"""Experiment `tdrc`: six rules on five problems, relative to TDRC."""
