"""What `horde-robot` does: check, monitor, stop, emulate."""
