"""iRobot Create 2 and Roomba 500 to 900: its bytes, its rules, its emulator and its simulator."""
