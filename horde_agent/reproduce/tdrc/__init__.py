"""Experiment `tdrc`: is TDRC as good as TD where TD is good, and sound where TD diverges? On five small problems.

Step sizes are those of the authors' script, and AdaGrad's, which their published bars seem to be
made with ("AdaGrad, inferred"); its alpha is the best of a grid in runs that are not reported.

Source: Ghiassian et al. (2020), "Gradient temporal-difference learning with regularized
    corrections", arXiv
2007.00611, figure 1; the script is figure1.py of rlai-lab/Regularized-GradientTD.
"""
