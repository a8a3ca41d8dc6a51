"""The iRobot Create 2: its bytes, rules, body, watchdog, emulator and simulator."""
