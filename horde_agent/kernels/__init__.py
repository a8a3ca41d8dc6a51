"""Compiled arithmetic: arrays and numbers in, arrays out, nothing else."""

import os

# Numba colours the message of each overload that it tries and rejects, though it shows none of them: 3 % of compiling.
# It reads this variable when it is imported.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
