"""Exercise 4: ask the Critterbot. Read 4_questions.md, fill in the gaps, then run `python check.py 4`."""

import sys

import gymnasium
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Horde, Interface, Life, StickyRandom

NEAR = 0.6  # reflectance ahead above which a wall is touched, nearly


def light_if_it_turned(interface):
    """Return the question: how much light ahead over about ten steps, if it rotated clockwise?

    `interface.names` are the channels, "light_0" the light ahead; `interface.actions` the actions.
    """
    # gap: a target policy, a cumulant, a continuation; call it "light if it turned"
    policy = ConstantAction(interface.actions.index("rotate_clockwise"), len(interface.actions))
    light = Channel(interface.index("light_0"))
    return GVF("light if it turned", policy, cumulant=light, continuation=0.9)
    # end


def steps_to_the_wall(interface):
    """Return the question: in how many steps would it be near a wall, if it drove forward?

    Near a wall, the channel "ir_distance_0" is above `NEAR`. Beyond about twenty steps it need not
    count exactly.
    """
    # gap: a sum that counts steps; it goes on with probability .95, and ends near a wall
    ahead = interface.index("ir_distance_0")

    def one(observation, tiles):
        return 1.0

    def until_near(observation, tiles):
        if observation[ahead] > NEAR:
            return 0.0
        return 0.95

    policy = ConstantAction(interface.actions.index("forward"), len(interface.actions))
    return GVF("steps to the wall", policy, cumulant=one, continuation=until_near)
    # end


def main(n_steps=3_000):
    """Drive at random, learn both answers, and print them."""
    env = gymnasium.make("horde_env:CritterbotPen-v0", physics="planar")
    interface = Interface.of(env)
    coder = interface.coder
    questions = [light_if_it_turned(interface), steps_to_the_wall(interface)]
    horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active)
    with Life(env, horde, StickyRandom(len(interface.actions)), np.random.default_rng(0)) as life:
        life.run(n_steps)
    env.close()
    for name, prediction in zip(horde.names, horde.predictions, strict=True):
        print(f"{name}: {prediction:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
