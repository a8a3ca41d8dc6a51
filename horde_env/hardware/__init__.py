"""A robot at the end of a line, whichever it is: its port, its link, its frames, and the body that they are."""
