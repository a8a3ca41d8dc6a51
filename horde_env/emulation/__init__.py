"""An emulated robot, whichever it is: its lines to a host, its time, and what goes wrong with it."""
