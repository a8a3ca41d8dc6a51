"""Experiment `conditioning`: predict the US across a gap, with hand-made traces and with predictions fed back."""
