"""Experiment `nexting`: learning on-line, the off-line solutions, autoregression, and the real robot's log.

The paper's full text was not available: claims and counts are those of its abstracts, limits are
proposals that were
fixed before the run. Source: Modayil, White & Sutton (2012, 2014).
"""
