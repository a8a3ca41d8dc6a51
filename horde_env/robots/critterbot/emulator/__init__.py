"""The emulated Critterbot: its microcontroller program over the simulated body, its lines and its on-board driver."""
