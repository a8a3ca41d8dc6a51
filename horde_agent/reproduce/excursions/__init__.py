"""The paper's first experiment: 795 questions about five policies, learned off-policy and tested by excursions.

Each seed's life is simulated once and learned from under every rule. Compared with the paper's
parameters: two rules for w, three for the trace, larger alpha and smaller alpha_w, and the best
off-line linear predictors.
Source: White, Modayil & Sutton (2012), section 4.
"""
