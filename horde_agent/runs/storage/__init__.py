"""The folder of a run: its files, tables, snapshots, resuming and checking."""
