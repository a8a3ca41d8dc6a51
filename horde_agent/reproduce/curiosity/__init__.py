"""Experiment `curiosity`: surprise about a robot whose friction changes drives the behaviour.

There are two questions about rotating on the spot. In phase A of a life the behaviour is normal.
Then, in phase B, clockwise rotation has more friction. A curious robot follows the target policy of
a question while its surprise, the UDE, is above a threshold.

Source: White, Modayil & Sutton (2014), Surprise and curiosity for big data robotics; on an iRobot
    Create, about its
battery current, with another physical change. Only the abstract could be read: a claim is the shape
    of a result.
"""
