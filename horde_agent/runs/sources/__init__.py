"""What a run learns from: a robot, recorded rows, a data set or a log."""
