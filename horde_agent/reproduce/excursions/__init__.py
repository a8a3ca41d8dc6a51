"""Experiment `excursions`: predictions against the returns of test excursions."""
