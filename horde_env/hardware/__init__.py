"""The physical robot: its bytes, its port, its network drops."""
