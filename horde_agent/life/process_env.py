"""Any registered Gymnasium environment in a separate process: it moves on one core, learning uses another.

Requests and replies are pickles, in memory that both processes share or on a socket that no other
process can open. The standard input of the environment's process carries orders without a reply; it
is closed when this process ends.
"""

from __future__ import annotations

import builtins
import gc
import mmap
import os
import pickle
import platform
import select
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import traceback
import weakref
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import IO, Any

import gymnasium
import numpy as np

from horde_agent.learning.compiling import announced_otherwise
from horde_agent.processes import python

CLOSING_S = 3.0  # how long the environment may take to close
END_MANOEUVRE = b"e"  # the only order
# Of a wait, longer than a step of the simulators; to sleep and to be woken takes longer than a step
AWAKE_S = 4e-4
LOOKS = 64  # between two looks at the clock
# Of a sleep; a message that came through the block while its receiver fell asleep is found after it
NAP_MS = 20
# Bytes of the block that an end writes, of which the first are two words:
HALF = 1 << 16
WORDS = 16
# Bytes of the message in this half, 0 if none; whether the end that writes here is awake
LENGTH = 0
AWAKE = 1
# Elsewhere another process may see writes in another order
IS_ORDERED = platform.machine() in ("x86_64", "AMD64")
SIZE = struct.Struct("<Q")  # of a message, in bytes, which precedes it on the socket
PART = 1 << 16  # bytes of a message that are received at once

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class EnvironmentGone(RuntimeError):
    """The environment's process ended unexpectedly."""

    def __init__(self, name: str, exit_code: int | None) -> None:
        super().__init__(
            f"the process of the environment {name} ended by itself (exit code {exit_code}); a negative code is the "
            "signal that ended it, -9 often a lack of memory"
        )
        self.exit_code = exit_code


class Line:
    """One end of a line between two processes, of which each waits for the other's message before it sends its own.

    A message is a pickle. It passes through memory that both share, if it fits and the receiver is
    awake, and otherwise through the socket, after its size. Through the socket alone, a life with
    PyBullet takes 1.1 times as long; a step through a `multiprocessing.Pipe`, beside 100 us of
    learning, 1.2 times (PyBullet) or 1.3 times (planar engine) as long. The memory has no name, as
    `multiprocessing.shared_memory` has, so nothing of it outlives a killed process.

    Args:
        end: This process's end of the socket.
        block: File descriptor of `2 * HALF` bytes that both share; each end writes one half.
        is_first: Whether this end writes the first half.
    """

    def __init__(self, end: socket.socket, block: int, *, is_first: bool) -> None:
        self._end = end
        self._received = bytearray()
        self._waiting = select.poll()
        self._waiting.register(end, select.POLLIN)
        block_bytes = memoryview(mmap.mmap(block, 2 * HALF))
        out = block_bytes[:HALF]
        incoming = block_bytes[HALF:]
        if not is_first:
            out, incoming = incoming, out
        self._out = out[WORDS:]
        self._out_words = out[:WORDS].cast("q")
        self._in = incoming[WORDS:]
        self._in_words = incoming[:WORDS].cast("q")

    def send(self, pickled: bytes) -> None:
        """Send a message; raise OSError if the other process has ended and was asleep."""
        self._in_words[LENGTH] = 0  # not in `receive`, which can be repeated if it is interrupted
        n = len(pickled)
        if self._in_words[AWAKE] and n <= len(self._out):
            self._out[:n] = pickled
            self._out_words[LENGTH] = n  # last: it tells the receiver that the message is complete
        else:
            self._end.sendall(SIZE.pack(n) + pickled)

    def receive(self) -> Any:
        """Wait for a message, at first without sleeping; raise EOFError or OSError if the other process has ended."""
        self._out_words[AWAKE] = IS_ORDERED
        if not self._comes_soon():
            self._out_words[AWAKE] = False
            while not self._in_words[LENGTH] and not self._waiting.poll(NAP_MS):
                pass
        n = self._in_words[LENGTH]
        if n:
            return pickle.loads(self._in[:n])
        return self._receive_from_socket()

    def _comes_soon(self) -> bool:
        """Wait awake for at most AWAKE_S; return whether there is a message or the other process has ended."""
        words = self._in_words
        end = time.perf_counter() + AWAKE_S
        while time.perf_counter() < end:
            for _ in range(LOOKS):
                if words[LENGTH]:
                    return True
            if self._waiting.poll(0):
                return True
            os.sched_yield()  # to the other process, if the two share a core
        return False

    def _receive_from_socket(self) -> Any:
        self._receive_bytes(SIZE.size)
        (n,) = SIZE.unpack_from(self._received)
        end = SIZE.size + n
        self._receive_bytes(end)
        message = self._received
        self._received = message[end:]
        return pickle.loads(memoryview(message)[SIZE.size : end])

    def _receive_bytes(self, n: int) -> None:
        """Receive until there are `n` bytes; an interrupted call can be repeated, as none is lost."""
        while len(self._received) < n:
            part = self._end.recv(PART)
            if not part:
                raise EOFError
            self._received += part

    def close_copy(self) -> None:
        """Close the copy of this end in a fork's child: the line stays open for the process that made it."""
        self._end.close()

    def close(self) -> None:
        """Close this end: the other one's `receive` then raises, after a message that was sent before."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()


class ProcessEnv(gymnasium.Env[Any, Any]):
    """An environment that runs in another process, with the same results to the bit.

    `step` is `send`, then `receive`; the robot moves while the caller works between the two. An
    exception in the environment is raised here by `receive` or `reset`, with the same class name
    and message. The process ignores Ctrl-C, and ends when this one does.

    Args:
        name: An id of `gymnasium.make`, such as "horde_env:CritterbotPen-v0".
        **settings: Of `gymnasium.make`; they are pickled. Rendering happens in the other process.

    Attributes:
        metadata: The environment's.
        manoeuvre_frames, manoeuvre_observations, manoeuvre_at: Of the drive in the last reset, if
            it has them.

    Raises:
        Exception: Whatever making the environment raises, with its class name.
        EnvironmentGone: If the process ended; so do `step`, `receive` and `reset`.
    """

    def __init__(self, name: str, **settings: Any) -> None:
        self._name = name
        self._line, self._process = _start()
        self._pid = os.getpid()
        self._end = weakref.finalize(self, _end, self._line, self._process, self._pid)
        self._awaits_reply = False
        self.observation_space, self.action_space, self.metadata, drive = self._call(
            "make", name, settings
        )
        vars(self).update(drive)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and wait for it."""
        observation, info, drive = self._call("reset", seed, options)
        vars(self).update(drive)
        return observation, info

    def step(self, action: Any) -> Step:
        """Take a step and wait for it."""
        self.send(action)
        return self.receive()

    def send(self, action: Any) -> None:
        """Begin a step; call `receive` before any other method."""
        self._request("step", action)

    def receive(self) -> Step:
        """Wait for the end of the step and return its result."""
        observation, *others = self._reply()
        return unpacked(*observation), *others

    def save_state(self) -> dict[str, Any]:
        """Return everything that the environment's future depends on, if it is restorable."""
        state: dict[str, Any] = self._call("save_state")
        return state

    def restore_state(self, state: dict[str, Any]) -> None:
        """Restore the environment to a saved state."""
        self._call("restore_state", state)

    def end_manoeuvre(self) -> None:
        """End a manoeuvre of `reset` early; safe in a signal handler."""
        if self._end.alive and os.getpid() == self._pid:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                os.write(self._process.stdin.fileno(), END_MANOEUVRE)

    def close(self) -> None:
        """Close the environment and end its process, unless this is a fork's child. Closing twice does nothing."""
        if self._end.alive and os.getpid() == self._pid and self._process.poll() is None:
            self.end_manoeuvre()
            self._line.close()  # no message: a reply may be due, if the caller was interrupted
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSING_S)
        self._end()

    def _call(self, name: str, *arguments: Any) -> Any:
        self._request(name, *arguments)
        return self._reply()

    def _request(self, name: str, *arguments: Any) -> None:
        if not self._end.alive:
            raise gymnasium.error.ClosedEnvironmentError(
                f"the environment {self._name} is closed; make a new one"
            )
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"the environment {self._name} belongs to process {self._pid}, of which this one is a fork: make a new "
                "one here"
            )
        if self._awaits_reply:  # the caller was interrupted before this reply came
            self._receive()
        message = pickle.dumps((name, *arguments))
        self._awaits_reply = True
        try:
            self._line.send(message)
        except OSError:
            raise self._gone() from None

    def _reply(self) -> Any:
        is_result, value = self._receive()
        if not is_result:
            raise error_from(*value)
        return value

    def _receive(self) -> Any:
        try:
            reply = self._line.receive()
        except (EOFError, OSError):
            raise self._gone() from None
        self._awaits_reply = False
        return reply

    def _gone(self) -> EnvironmentGone:
        try:
            return EnvironmentGone(self._name, self._process.wait(CLOSING_S))
        except subprocess.TimeoutExpired:
            return EnvironmentGone(self._name, None)


def is_worthwhile() -> bool:
    """Return whether a separate process makes a life faster here: on POSIX with at least two cores."""
    if hasattr(os, "sched_getaffinity"):
        n_cores = len(os.sched_getaffinity(0))
    else:
        n_cores = os.cpu_count() or 1
    return os.name == "posix" and n_cores >= 2


def _start() -> tuple[Line, subprocess.Popen[bytes]]:
    for number in range(3):  # the socket must not take the number of a standard file that is closed
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    own_socket, child_socket = socket.socketpair()
    with child_socket, _shared_file() as block:
        block.truncate(2 * HALF)
        shared = [child_socket.fileno(), block.fileno()]
        command, environment = python("horde_agent.life.process_env", *map(str, shared))
        # A separate process group does not receive Ctrl-C.
        process = subprocess.Popen(
            command,
            pass_fds=shared,
            process_group=0,
            stdin=subprocess.PIPE,
            bufsize=0,
            env=environment,
        )
        return Line(own_socket, block.fileno(), is_first=True), process


def _shared_file() -> IO[bytes]:
    """Return a file without a name, which both processes map into their memory; nothing is left if one is killed."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("horde"), "r+b")
    return tempfile.TemporaryFile()


def _end(line: Line, process: subprocess.Popen[bytes], pid: int) -> None:
    assert process.stdin is not None
    if os.getpid() != pid:  # a fork's child has copies, and the environment is not its own
        process.stdin.close()
        line.close_copy()
        process.poll()  # this process has no such child: no warning that it still runs
        return
    process.stdin.close()  # ends the process
    try:
        process.wait(CLOSING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    line.close()


def packed(observation: Any) -> tuple[Any, str, tuple[int, ...]]:
    """Return an array's bytes, dtype and shape, which pickle five times as fast; anything else with dtype ""."""
    if type(observation) is np.ndarray and observation.dtype.kind in "biuf":
        return observation.tobytes(), observation.dtype.str, observation.shape
    return observation, "", ()


def unpacked(data: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """Return the observation from its parts."""
    if dtype:
        return np.frombuffer(data, dtype).reshape(shape).copy()
    return data


# ---- exceptions ------------------------------------------------------------------------------------------------------


def error_parts(error: BaseException) -> tuple[tuple[str, ...], str, str, str]:
    """Return class names up to the first class of Python or Gymnasium, that class's name, message and traceback."""
    names = [kind.__name__ for kind in type(error).__mro__]
    n_own = next(n for n, kind in enumerate(type(error).__mro__) if _known(kind.__name__) is kind)
    return (
        tuple(names[:n_own]),
        names[n_own],
        str(error),
        "".join(traceback.format_exception(error)),
    )


def error_from(names: tuple[str, ...], base: str, text: str, trace: str) -> BaseException:
    """Return an exception from its parts. Its classes have the original names only: their package is not imported."""
    error = _kind(names, base)(text)
    error.add_note(f"In the environment's process:\n{trace}")
    return error


def _known(name: str) -> Any:
    return getattr(builtins, name, None) or getattr(gymnasium.error, name, None)


@cache
def _kind(names: tuple[str, ...], base: str) -> type[BaseException]:
    kind: type[BaseException] = _known(base)
    for name in reversed(names):
        kind = type(name, (kind,), {})
    return kind


# ---- the environment's process ---------------------------------------------------------------------------------------


class Child:
    """Answers requests for one environment."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._env: gymnasium.Env[Any, Any] | None = None
        self._was_reset = False
        threading.Thread(target=self._take_orders, name="orders", daemon=True).start()

    def serve(self) -> None:
        """Answer until the agent closes its end of the line, or its process has ended; then close the environment."""
        with suppress(EOFError, OSError):
            while True:
                request = self._line.receive()
                try:
                    reply = pickle.dumps((True, self._answer(*request)))
                except BaseException as error:  # raised again in the agent's process
                    reply = pickle.dumps((False, error_parts(error)))
                self._line.send(reply)
        if self._env is not None:
            self._env.close()

    def _answer(self, name: str, *arguments: Any) -> Any:
        if name == "make":
            env_id, settings = arguments
            env = self._env = gymnasium.make(env_id, **settings)
            return (
                env.observation_space,
                env.action_space,
                dict(env.unwrapped.metadata),
                drive_of(env.unwrapped),
            )
        assert self._env is not None, "the first request makes the environment"
        if name == "step":
            observation, *others = self._env.step(*arguments)
            return packed(observation), *others
        if name == "reset":
            seed, options = arguments
            observation, info = self._env.reset(seed=seed, options=options)
            if not self._was_reset:
                self._was_reset = True
                gc.freeze()  # no later collection visits the modules and objects made so far
            return observation, info, drive_of(self._env.unwrapped)
        return getattr(self._env.unwrapped, name)(*arguments)  # save_state, restore_state

    def _take_orders(self) -> None:
        while order := os.read(0, 1):
            if order == END_MANOEUVRE and self._env is not None:
                end_manoeuvre = getattr(self._env.unwrapped, "end_manoeuvre", None)
                if end_manoeuvre is not None:
                    end_manoeuvre()
        os._exit(0)  # the agent's process has ended


def drive_of(body: Any) -> dict[str, Any]:
    """Return the attributes of a body that describe the drive in its last reset; none if it cannot drive."""
    names = ("manoeuvre_frames", "manoeuvre_observations", "manoeuvre_at")
    drive = {name: getattr(body, name) for name in names if hasattr(body, name)}
    if not drive:
        return drive
    drive["manoeuvre_frames"] = [  # what a life reads of them
        SimpleNamespace(
            t=f.t,
            crc_errors=f.crc_errors,
            stale=f.stale,
            applied=getattr(f, "applied", True),
            extras=dict(f.extras),
        )
        for f in drive.get("manoeuvre_frames", [])
    ]
    return drive


def main(socket_number: str, block: str) -> None:
    """Serve the agent's process at an inherited socket and block."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent's process handles Ctrl-C
    with announced_otherwise():  # the agent's process says that it waits for kernels
        Child(Line(socket.socket(fileno=int(socket_number)), int(block), is_first=False)).serve()
