"""Experiment `policies`: a thousand random Gibbs policies, and ten thousand, learned from one behaviour.

Progress is seen by the scalar MSPBE estimates alone: no policy is ever followed. Parts of the
    questions learn in
separate Hordes, which can share the cores. Demons are independent, so the results are the same.
Source: White, Modayil & Sutton (2012), section 6.
"""
