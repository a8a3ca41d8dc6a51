"""Experiment `horde2011`: long predictions and a goal-seeking policy, learned while the robot does something else.

One life wanders, and learns the time until an obstacle is met going forward, and to seek the light.
Another one spins and stops on three floors, for which friction settings stand, and learns the time
until it rests.

Source: Sutton, Modayil, Delp, Degris, Pilarski, White & Precup (2011), Horde. Only the abstract
    could be read: a claim
is the shape of a result.
"""
