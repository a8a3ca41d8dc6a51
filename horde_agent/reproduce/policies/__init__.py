"""Experiment `policies`: a thousand questions about random target policies."""
