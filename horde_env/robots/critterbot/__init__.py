"""The Critterbot: its bytes, its rules, its body and its emulator, and its simulator."""
