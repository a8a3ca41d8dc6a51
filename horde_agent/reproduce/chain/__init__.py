"""Experiment `chain`: do the online estimates of the MSPBE follow the true one, and a change?

Four measures of one GTD learner, before and after its weights change; figures and verdicts use the
mean of 100 runs. Five states in a row, an absorbing end on either side (the paper counts seven), +1
on the right exit. Every episode
begins in the middle. Source: White, Modayil & Sutton (2012), section 6; inverted features: Sutton
    et al. (2009).
"""
