"""How demons learn: the rules, the engines that keep to them, and the numbers that both are told."""
