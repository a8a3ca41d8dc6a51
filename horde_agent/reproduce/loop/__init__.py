"""Experiment `loop`: predictions of the step before as features, as the first figure of the paper draws them.

On the robot: how long is it since the wall was touched? A channel with that time is added to the
    observation. The tile
coder does not read it; it is only a cumulant. The sensor readings are the same whether the robot
turned from a wall a
moment ago or was never there. In two small worlds: answers that are known.
Source: White, Modayil & Sutton (2012), section 3 and figure 1; Sutton & Tanner (2005), TD networks.
"""
