"""The Critterbot: its bytes, its rules, its body and its emulator; its simulator is `horde_env.sim`."""
