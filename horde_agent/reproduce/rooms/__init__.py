"""Experiment `rooms`: which of eight rules suffer from the variance of the ratios? On eight questions in four rooms.

Source: Ghiassian & Sutton (2021), arXiv 2109.05110; code: sinaghiassian/OffpolicyAlgorithms. The
    grid is reduced to
seven step sizes, three trace decays and one ratio alpha_w / alpha.
"""
