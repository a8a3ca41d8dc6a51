"""The simulated body: physics, motors, senses."""
