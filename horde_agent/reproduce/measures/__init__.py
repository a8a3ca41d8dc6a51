"""Experiment `measures`: RUPEE and UDE on the chain, on noise, on Baird's star and on the 795 questions.

The small problems are learned in independent runs at once, one per row of an array. Source: White
    (2015), Developing a
predictive approach to knowledge, chapter 7. No figure of the thesis could be read: the claims are
    its shapes, with
limits fixed before the run.
"""
