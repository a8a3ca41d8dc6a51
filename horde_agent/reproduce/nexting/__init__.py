"""Experiment `nexting`: thousands of predictions at four time scales while the robot follows the wall."""
