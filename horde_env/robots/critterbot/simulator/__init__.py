"""The simulated Critterbot: firmware, motors, power, senses and the pen."""
