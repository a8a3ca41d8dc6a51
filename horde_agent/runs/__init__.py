"""A run of `horde learn`: its settings, its folder, its tables and its report."""
