"""Sources of a run, one per file: a robot, recorded rows, a data set, or a log."""
