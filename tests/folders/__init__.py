"""Run folders that each released version wrote, a .tar.xz each in a folder of the version; `python -m` makes them."""
