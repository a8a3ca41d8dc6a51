"""A life: the loop of a robot, its behaviour, the student and the observers."""
