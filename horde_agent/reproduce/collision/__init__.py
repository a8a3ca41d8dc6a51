"""Experiment `collision`: do eleven rules of off-policy prediction fall into the three tiers of the paper?

Source: Ghiassian & Sutton (2021), arXiv 2106.00922; code: sinaghiassian/OffpolicyAlgorithms. The
    authors' grid has more
trace decays, ratios alpha_w / alpha (here 1) and betas (here one).
"""
