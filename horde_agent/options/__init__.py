"""Options: ways of behaving that end by themselves, their models as questions, and plans made of these models."""
