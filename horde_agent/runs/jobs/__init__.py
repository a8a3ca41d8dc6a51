"""From a stream to the files of a run: a robot, a recording or a log."""
