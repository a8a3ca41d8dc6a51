"""Experiment `collision`: eleven rules on the Collision problem."""
