"""The robots, one folder each; `registry.robot` returns the `ROBOT` of its module `robot`.

A new robot is a new folder, with a subclass of `registry.Robot`, and its numbers in
`assets/NAME.toml` and `assets/layouts/NAME.toml`. No robot imports another.
"""
