"""Experiment `conditioning`: predict the US after a gap, from the present stimuli, from traces, and from predictions.

Weights are learned on one stream and scored, fixed, on another. Weights that change are a memory
    themselves: after a CS
the bias weight drifts step by step.

Source: Rafiee et al. (2023): presence, microstimuli, Adam. They feed no predictions back; that is a
    question of ours.
Published errors could not be read: a claim is the shape of a result.
"""
