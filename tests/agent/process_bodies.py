"""Bodies for separate processes, made by `gymnasium.make("tests.agent.process_bodies:...")`."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.agent.doubles import ToyBody


class RobotError(Exception):
    """Root of a robot's errors."""


class RobotLost(RobotError, RuntimeError):
    """Its __init__ cannot be called with a message."""

    def __init__(self, port: str, silent_s: float) -> None:
        super().__init__(f"no frame from {port} for {silent_s:.1f} s")


class Odd(gymnasium.Env[np.ndarray, int]):
    """Each action returns another info, raises, or ends the process."""

    def __init__(self, broken: bool = False, dies: bool = False, told: str = "") -> None:
        if broken:
            raise FileNotFoundError("there is no such robot")
        if dies:
            os._exit(3)
        self.observation_space = spaces.Box(-1.0, 1.0, (2, 3), np.float32)
        self.action_space = spaces.Discrete(9)
        self.n = 0
        self._ended = threading.Event()
        self._told = told

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the count; with the option "wait", wait for `end_manoeuvre`."""
        super().reset(seed=seed)
        self.n = 0
        if options == {"wait": True}:
            return self._observation(), {"ended": self._ended.wait(20.0)}
        return self._observation(), {"seed": seed, "options": options}

    def end_manoeuvre(self) -> None:
        self._ended.set()

    def _observation(self) -> np.ndarray:
        return np.full((2, 3), self.n / 1000, np.float32)

    def step(self, action: Any) -> Any:
        self.n += 1
        infos: dict[Any, dict[str, Any]] = {
            0: {"t": 0.1 * self.n, "n": self.n, "odd": bool(self.n % 2)},
            1: {"t": float("nan"), "n": -(2**62), "more": 1.0},
            2: {"huge": 2**70},
            3: {"word": "charging", "array": np.arange(3)},
            7: {},
        }
        match action:
            case 4:
                raise RobotLost("/dev/robot", 0.5)
            case 5:
                raise gymnasium.error.ResetNeeded("call reset() first")
            case 6:
                os._exit(3)
            case 8:
                return self._observation().astype(np.float64), np.float64(2.5), False, False, {}
            case "slow":
                time.sleep(0.3)
                return self._observation(), 0.0, False, False, {}
        if not isinstance(action, int):
            raise ValueError(f"action must be whole, not {action!r}")
        return self._observation(), -0.5 * self.n, self.n % 5 == 0, self.n % 3 == 0, infos[action]

    def close(self) -> None:
        """Create the file `told` if there is one."""
        if self._told:
            Path(self._told).touch()


class DiesInStep(ToyBody):
    """Its process is killed at step 30, as for lack of memory."""

    def step(self, action: int) -> Any:
        if self.age == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class DiesInReset(ToyBody):
    """Its process ends in the first reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        os._exit(3)


gymnasium.register(
    id="DiesInReset-v0", entry_point=DiesInReset, disable_env_checker=True, order_enforce=False
)
gymnasium.register(
    id="DiesInStep-v0", entry_point=DiesInStep, disable_env_checker=True, order_enforce=False
)
gymnasium.register(id="Odd-v0", entry_point=Odd, disable_env_checker=True, order_enforce=False)
gymnasium.register(id="Toy-v0", entry_point=ToyBody, disable_env_checker=True, order_enforce=False)
