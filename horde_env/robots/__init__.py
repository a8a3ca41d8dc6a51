"""Robots beside the Critterbot: one folder each, a data file in `assets/`, and nothing of theirs elsewhere."""
