"""A robot as a Gymnasium environment: the Critterbot in its pen, simulated, replayed or real."""
