"""A life: the loop of a body, its behaviour, what learns and who watches."""
