"""Any environment that `gymnasium.make` knows, in a process of its own."""

from __future__ import annotations

import operator
import os
import socket
import subprocess
import tempfile
import weakref
from contextlib import suppress
from multiprocessing import Pipe
from typing import IO, Any

import gymnasium
import numpy as np

from horde_agent.life.process_env import channel as ch
from horde_agent.life.process_env.channel import Channel, Gone, InfoFormat
from horde_agent.life.process_env.faults import Fault, rebuilt
from horde_agent.life.process_env.messages import Answer, DriveFrame, Drives, Hello, Request
from horde_agent.processes import python

CLOSING_S = 3.0  # how long the environment may take to close

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class EnvironmentGone(RuntimeError):
    """The environment's process ended, though nobody asked it to."""

    def __init__(self, name: str, exit_code: int | None) -> None:
        super().__init__(
            f"the process of the environment {name} ended by itself (exit code {exit_code}); a negative code is the "
            "signal that ended it, -9 often a lack of memory"
        )
        self.exit_code = exit_code


class ProcessEnv(gymnasium.Env[Any, Any]):
    """An environment whose steps run in a process of their own, bit for bit as they would run here.

    `step` is `send` and then `receive`; what is done between the two is done while the body moves. An error of the
    environment is raised here by `receive` or `reset`, as an exception of the same name with the same sentence. The
    process leaves Ctrl-C to this one, and ends with it, whatever ends this one.

    Args:
        name: An id of `gymnasium.make`, such as "horde_env:CritterbotPen-v0".
        **settings: Of `gymnasium.make`; they are pickled. What renders, renders there.

    Attributes:
        metadata: That of the environment.
        manoeuvre_frames, manoeuvre_observations, manoeuvre_at: Of the last reset's drive; only where it has them.

    Raises:
        Exception: Whatever making the environment raises, by its name.
        EnvironmentGone: If the process ended; so do `step`, `receive` and `reset`.
    """

    manoeuvre_frames: list[DriveFrame]
    manoeuvre_observations: list[Any]
    manoeuvre_at: list[int]

    def __init__(self, name: str, **settings: Any) -> None:
        self._name = name
        self._channel, self._process, self._orders = _start()
        self._end = weakref.finalize(self, _end, self._channel, self._process, self._orders)
        self._format, self._is_asked = InfoFormat({}), False
        hello: Hello = self._call("make", name, settings)
        self.observation_space, self.action_space = hello.observation_space, hello.action_space
        self.metadata = hello.metadata
        self._keep(hello.drives)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and wait for it."""
        answer: Answer = self._call("reset", seed, options)
        self._keep(answer.drives)
        return answer.observation, answer.info

    def step(self, action: Any) -> Step:
        """Take a step and wait for it."""
        self.send(action)
        return self.receive()

    def send(self, action: Any) -> None:
        """Begin a step; `receive` must come before anything else is asked."""
        words = self._open().words
        try:
            words[ch.ACTION] = operator.index(action)
        except (TypeError, ValueError):  # no whole number: the environment's own check is to answer
            self._request("step", action)
            return
        words[ch.KIND] = ch.STEP
        self._is_asked = True
        self._channel.post()

    def receive(self) -> Step:
        """Wait for the end of the step and return what it brought."""
        channel = self._wait()
        ends = channel.words[ch.ENDS]
        if ends & ch.SENT:
            answer = self._answer()
            self._format = InfoFormat(answer.info)
            return answer.observation, answer.reward, answer.terminated, answer.truncated, answer.info
        self._is_asked = False
        box: Any = self.observation_space
        observation = np.ndarray(box.shape, box.dtype, channel.memory, ch.DATA).copy()
        info = self._format.read(channel.memory, ch.DATA + observation.nbytes)
        return observation, channel.reals[ch.REWARD], bool(ends & ch.TERMINATED), bool(ends & ch.TRUNCATED), info

    def save_state(self) -> dict[str, Any]:
        """Return what the environment's future depends on, where it can tell."""
        state: dict[str, Any] = self._call("save_state")
        return state

    def restore_state(self, state: dict[str, Any]) -> None:
        """Have the environment go on from what `save_state` returned."""
        self._call("restore_state", state)

    def end_manoeuvre(self) -> None:
        """Ask a manoeuvre that is under way in `reset` to end early; safe to call from a signal handler."""
        if self._end.alive:
            os.write(self._orders, ch.END_MANOEUVRE)

    def close(self) -> None:
        """Close the environment and end its process. Closing twice does nothing."""
        if self._end.alive and self._process.poll() is None:
            self.end_manoeuvre()
            self._channel.words[ch.KIND] = ch.CLOSE
            self._channel.post()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSING_S)
        self._end()

    def _keep(self, drives: Drives | None) -> None:
        if drives is None:
            return
        self.manoeuvre_frames = drives.frames
        if drives.observations is not None:
            self.manoeuvre_observations = drives.observations
        if drives.at is not None:
            self.manoeuvre_at = drives.at

    def _call(self, name: str, *arguments: Any) -> Any:
        self._request(name, *arguments)
        self._wait()
        return self._answer()

    def _request(self, name: str, *arguments: Any) -> None:
        self._open().words[ch.KIND] = ch.CALL
        self._is_asked = True
        try:
            self._channel.send(Request(name, arguments))
        except Gone:
            raise self._gone() from None

    def _open(self) -> Channel:
        if not self._end.alive:
            raise gymnasium.error.ClosedEnvironmentError(f"the environment {self._name} is closed; make a new one")
        if self._is_asked:  # somebody was interrupted before the answer came: it is nobody's now
            self._wait()
            if self._channel.words[ch.ENDS] & ch.SENT:
                self._channel.receive()
            self._is_asked = False
        return self._channel

    def _wait(self) -> Channel:
        try:
            self._channel.wait()
        except Gone:
            raise self._gone() from None
        return self._channel

    def _answer(self) -> Any:
        try:
            answer = self._channel.receive()
        except Gone:
            raise self._gone() from None
        self._is_asked = False
        if isinstance(answer, Fault):
            raise rebuilt(answer)
        return answer

    def _gone(self) -> EnvironmentGone:
        try:
            exit_code: int | None = self._process.wait(CLOSING_S)
        except subprocess.TimeoutExpired:
            exit_code = None
        return EnvironmentGone(self._name, exit_code)


def is_worthwhile() -> bool:
    """Whether a process of its own gains anything here: two cores to run on, and files that can be handed down."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return os.name == "posix" and n_cores >= 2


def _start() -> tuple[Channel, subprocess.Popen[bytes], int]:
    """Start the environment's process; return this end of the channel, the process, and the file for orders."""
    _open_standard_files()
    with _block() as block:
        bell, their_bell = socket.socketpair()
        line, their_line = Pipe()
        their_orders, orders = os.pipe()
        handed = block.fileno(), their_bell.fileno(), their_line.fileno(), their_orders
        command, environment = python("horde_agent.life.process_env.child", *map(str, handed))
        # In a group of its own Ctrl-C does not reach it.
        process = subprocess.Popen(command, pass_fds=handed, process_group=0, stdin=subprocess.DEVNULL, env=environment)
        their_bell.close()
        their_line.close()
        os.close(their_orders)
        mine, theirs = (ch.ASKED, ch.BODY_SLEEPS), (ch.ANSWERED, ch.AGENT_SLEEPS)
        return Channel(block.fileno(), bell, line, mine, theirs), process, orders


def _open_standard_files() -> None:
    """Open the null device in the place of a standard file that is closed: the next file would take its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _block() -> IO[bytes]:
    """Return an open file of the block's size that has no name; in memory where the system can do that."""
    can = hasattr(os, "memfd_create")
    block = open(os.memfd_create("horde"), "r+b") if can else tempfile.TemporaryFile()  # noqa: SIM115
    block.truncate(ch.BLOCK_BYTES)
    return block


def _end(channel: Channel, process: subprocess.Popen[bytes], orders: int) -> None:
    """Let go of the process, which ends when nobody is left to give it orders, and wait for that."""
    os.close(orders)
    try:
        process.wait(CLOSING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    channel.close()
