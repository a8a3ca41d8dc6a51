"""Experiment `swifttd`: SwiftTD against TD, true-online TD and GTD on the sensors of nexting, with its parts left out.

Features that are never active in a life are left out, which changes no result. Published figures
are of Atari
prediction and could not be read: the claims are the abstract's, with limits fixed before the run.
    Source: Javed,
Sharifnassab & Sutton (2024), SwiftTD: a fast and robust algorithm for temporal difference learning,
RLJ 2, 840-863.
"""
