"""The environment's process: `python -m horde_agent.life.process_env_child SOCKET`, orders on standard input."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import sys
import threading
from typing import Any

import gymnasium

from horde_agent.life.process_env import END_MANOEUVRE, Disconnected, Frame, Line, error_parts


class Child:
    """Answers requests for one environment."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._env: gymnasium.Env[Any, Any] | None = None
        self._was_reset = False
        threading.Thread(target=self._take_orders, name="orders", daemon=True).start()

    def serve(self) -> None:
        """Answer until the request to close.

        Raises:
            Disconnected: If the agent's process has ended.
        """
        while (request := self._line.receive())[0] != "close":
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
            return env.observation_space, env.action_space, dict(env.unwrapped.metadata), drive_of(env.unwrapped)
        assert self._env is not None, "the first request makes the environment"
        if name == "step":
            return self._env.step(*arguments)
        if name == "reset":
            seed, options = arguments
            observation, info = self._env.reset(seed=seed, options=options)
            if not self._was_reset:
                self._was_reset = True
                gc.freeze()  # excludes what was imported and made from every later collection
            return observation, info, drive_of(self._env.unwrapped)
        return getattr(self._env.unwrapped, name)(*arguments)  # save_state, restore_state

    def _take_orders(self) -> None:
        while order := os.read(0, 1):
            end_manoeuvre = getattr(self._env and self._env.unwrapped, "end_manoeuvre", None)
            if order == END_MANOEUVRE and end_manoeuvre is not None:
                end_manoeuvre()
        os._exit(0)  # the agent's process has ended


def drive_of(body: Any) -> dict[str, Any]:
    """Return the attributes of a body that describe the drive in its last reset; none if it cannot drive."""
    names = ("manoeuvre_frames", "manoeuvre_observations", "manoeuvre_at")
    drive = {name: getattr(body, name) for name in names if hasattr(body, name)}
    frames = drive.get("manoeuvre_frames", [])
    sent = [Frame(f.t, f.crc_errors, f.stale, getattr(f, "applied", True), dict(f.extras)) for f in frames]
    return drive | ({"manoeuvre_frames": sent} if drive else {})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent's process handles Ctrl-C
    try:
        Child(Line(socket.socket(fileno=int(sys.argv[1])))).serve()
    except Disconnected:
        sys.exit()
