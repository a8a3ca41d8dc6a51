"""The environment's process: `python -m horde_agent.life.process_env.child BLOCK BELL LINE ORDERS`, four open files.

It makes the environment, then answers steps and calls until it is told to close, or the agent's process is gone.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from horde_agent.life.process_env import channel as ch
from horde_agent.life.process_env.channel import Channel, Gone, InfoFormat
from horde_agent.life.process_env.faults import fault_of
from horde_agent.life.process_env.messages import Answer, DriveFrame, Drives, Hello, Request


class Body:
    """Serves one environment over a channel.

    Args:
        channel: The environment's end.
        orders: File on which orders come that do not wait for their turn; at its end the agent is gone.
    """

    def __init__(self, channel: Channel, orders: int) -> None:
        self._channel = channel
        self._env: gymnasium.Env[Any, Any] | None = None
        self._format, self._has_begun = InfoFormat({}), False
        self._observation = np.zeros(0)
        threading.Thread(target=self._obey, args=(orders,), name="orders", daemon=True).start()

    def serve(self) -> None:
        """Answer until told to close."""
        channel, words = self._channel, self._channel.words
        while True:
            channel.wait()
            kind = words[ch.KIND]
            if kind == ch.CLOSE:
                break
            try:
                if kind == ch.STEP:
                    self._step(words[ch.ACTION])
                else:
                    self._call(channel.receive())
            except Gone:
                raise
            except BaseException as error:  # raised again in the agent's process
                self._send(fault_of(error))
        if self._env is not None:
            self._env.close()

    def _step(self, action: Any) -> None:
        """Take a step and answer, in the block where it fits."""
        assert self._env is not None, "the first call makes the environment"
        observation, reward, terminated, truncated, info = self._env.step(action)
        if self._write(observation, reward, info):
            self._channel.words[ch.ENDS] = ch.TERMINATED * bool(terminated) | ch.TRUNCATED * bool(truncated)
            self._channel.post()
        else:
            self._format = InfoFormat(info)
            self._send(Answer(observation, reward, terminated, truncated, info))

    def _write(self, observation: Any, reward: Any, info: dict[str, Any]) -> bool:
        """Write into the block what fits there as it is; return False where something does not."""
        view, memory = self._observation, self._channel.memory
        fits = view.size and isinstance(observation, np.ndarray) and observation.shape == view.shape
        if not fits or observation.dtype != view.dtype or type(reward) is not float or not self._format.fits(info):
            return False
        view[...] = observation
        self._channel.reals[ch.REWARD] = reward
        return self._format.write(memory, ch.DATA + view.nbytes, info)

    def _send(self, message: object) -> None:
        self._channel.words[ch.ENDS] = ch.SENT
        self._channel.send(message)

    def _call(self, request: Request) -> None:
        """Make the environment, reset it, or take a step whose action is no whole number."""
        if request.name == "make":
            self._send(self._make(*request.arguments))
        elif request.name == "reset":
            assert self._env is not None, "the first call makes the environment"
            seed, options = request.arguments
            observation, info = self._env.reset(seed=seed, options=options)
            if not self._has_begun:
                self._has_begun = True
                gc.freeze()  # what was imported and made stays: no collection need look at it again
            self._send(Answer(observation, 0.0, False, False, info, drives_of(self._env.unwrapped)))
        else:
            self._step(*request.arguments)

    def _make(self, name: str, settings: dict[str, Any]) -> Hello:
        env = self._env = gymnasium.make(name, **settings)
        box, body = env.observation_space, env.unwrapped
        if isinstance(box, spaces.Box) and box.low.nbytes < ch.MOST_OBSERVED:
            self._observation = np.ndarray(box.shape, box.dtype, self._channel.memory, ch.DATA)
        return Hello(box, env.action_space, dict(body.metadata), drives_of(body))

    def _obey(self, orders: int) -> None:
        """Run in a thread: take orders until the agent is gone, and then end, whatever is under way."""
        while order := os.read(orders, 1):
            end_manoeuvre = getattr(self._env and self._env.unwrapped, "end_manoeuvre", None)
            if order == ch.END_MANOEUVRE and end_manoeuvre is not None:
                end_manoeuvre()
        os._exit(0)


def drives_of(body: Any) -> Drives | None:
    """Return the frames of a body's last drive, or None where it does not drive."""
    frames = getattr(body, "manoeuvre_frames", None)
    if frames is None:
        return None
    kept = [
        DriveFrame(frame.t, frame.crc_errors, frame.stale, getattr(frame, "applied", True), dict(frame.extras))
        for frame in frames
    ]
    return Drives(kept, getattr(body, "manoeuvre_observations", None), getattr(body, "manoeuvre_at", None))


def main(arguments: list[str]) -> None:
    """Serve the environment over the four files that were handed down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's to answer
    block, bell, line, orders = map(int, arguments)
    mine, theirs = (ch.ANSWERED, ch.AGENT_SLEEPS), (ch.ASKED, ch.BODY_SLEEPS)
    channel = Channel(block, socket.socket(fileno=bell), Connection(line), mine, theirs)
    try:
        Body(channel, orders).serve()
    except Gone:
        return


if __name__ == "__main__":
    main(sys.argv[1:])
