"""The paper's second experiment: three measures of learning when the weights are lost, and when the world changes.

265 questions at gamma .8 learn from six hours of life. In one run theta := 0 after learning step
40,000, as in the paper; in the other the lamp is moved at that step, which is the change that the
paper speaks of and did not make.
Source: White, Modayil & Sutton (2012), section 5, figure 4.
"""
