"""Experiment `horde2011`: time to an obstacle, time to stop, and a policy that seeks the light."""
