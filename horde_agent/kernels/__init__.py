"""Compiled arithmetic: arrays and numbers in, arrays out, nothing else."""

import os

# Numba colours each message of the overloads that it tries and rejects, which nobody reads: 3 % of compiling. It reads
# this when it is imported.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
