"""Experiment `league`: every update rule that predicts, on the same questions and the same recorded lives.

Each rule learns with its defaults, and with the best settings of its grid, chosen on a life that is
not reported. The paper leaves other gradient-TD rules to future work (section 7).
"""
