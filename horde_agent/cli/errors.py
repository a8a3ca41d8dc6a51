"""Errors of commands: which are the user's, and how they read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from horde_agent.refusals import BadInput, one_line
from horde_agent.runs.exit_reason import ExitCause


class Fault(Exception):
    """An error that ended a job, in a sentence that names the run's files."""


@contextmanager
def user_errors(kind: type[BadInput] | type[Fault] = BadInput) -> Iterator[None]:
    """Raise errors that the user can correct as `kind`; others are bugs and keep their traceback.

    A set emergency stop is BadInput in any case: a supervisor must not start the run again before a
    person has cleared it.
    """
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        from gymnasium.error import Error as GymnasiumError  # here, because it takes time to import

        if ExitCause.of_fault(error) is ExitCause.EMERGENCY_STOP:
            raise BadInput(_text_of(error)) from error
        if is_of_body(error) or isinstance(
            error, ValueError | ImportError | OSError | GymnasiumError
        ):
            raise kind(_text_of(error)) from error
        raise


def _text_of(error: Exception) -> str:
    """Return an error's message in one line; of an error of the system, the file and the reason."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{os.fspath(error.filename)} cannot be used ({error.strerror})"
    return one_line(error)


def is_of_body(error: BaseException) -> bool:
    """Return whether the robot's package, which is not imported here, raised the error."""
    return any(kind.__name__ == "HordeEnvError" for kind in type(error).__mro__)


def sentence(error: BaseException) -> str:
    """Return an error's message as one sentence."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be written ({error.strerror})."
    message = one_line(error)
    if message.endswith("."):
        return message
    return f"{message}."
