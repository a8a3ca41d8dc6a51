"""Pictures and windows of the robot in its pen."""
