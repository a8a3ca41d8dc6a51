"""Who drives the robot beside its agent: manoeuvres, docking, charging; and whether it obeys."""
