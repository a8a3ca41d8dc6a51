"""Experiment `chain`: a Markov chain with closed-form answers."""
