"""The Critterbot: wire protocol, body, supervisor, simulator and emulator."""
