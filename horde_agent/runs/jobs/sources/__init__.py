"""Sources of a run: a robot, or recorded rows."""
