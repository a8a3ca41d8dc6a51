"""The robots, one folder each, with its data in `assets/`: what is its own and nobody else's. None knows another."""
