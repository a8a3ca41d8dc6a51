"""The Critterbot of White, Modayil & Sutton (2012): its bytes, rules, body, emulator and simulator."""
