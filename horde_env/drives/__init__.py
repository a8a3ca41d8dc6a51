"""Driving without the agent: manoeuvres, docking and charging; checks that the robot follows its commands."""
