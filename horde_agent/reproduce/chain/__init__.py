"""Experiment `chain`: a Markov chain whose answers are known in closed form."""
