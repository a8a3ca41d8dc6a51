"""The folder of a run: its files, snapshots, resuming, checking and exporting."""
