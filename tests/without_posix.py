"""This process without what Windows lacks: modules and functions of POSIX systems, and signals.

Only our own code then meets the lack: what the packages import from others is imported before.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec

MODULES = frozenset({"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"})
OS_NAMES = (
    "O_CLOEXEC",
    "O_DIRECTORY",
    "O_NOCTTY",
    "O_NOFOLLOW",
    "O_NONBLOCK",
    "SCHED_FIFO",
    "chown",
    "fchmod",
    "fdatasync",
    "fork",
    "forkpty",
    "getegid",
    "geteuid",
    "getgid",
    "getloadavg",
    "getpgid",
    "getpgrp",
    "getuid",
    "killpg",
    "memfd_create",
    "mkfifo",
    "nice",
    "openpty",
    "sched_getaffinity",
    "sched_param",
    "sched_setscheduler",
    "sched_yield",
    "setsid",
    "sysconf",
    "tcgetpgrp",
    "ttyname",
    "uname",
)
SIGNALS = (
    "SIGALRM",
    "SIGCHLD",
    "SIGCONT",
    "SIGHUP",
    "SIGPIPE",
    "SIGQUIT",
    "SIGSTOP",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGWINCH",
    "SIGXFSZ",
    "pthread_kill",
    "pthread_sigmask",
    "setitimer",
    "sigwait",
)
SELECT_NAMES = ("epoll", "poll")
SOCKET_NAMES = ("AF_UNIX", "recv_fds", "send_fds")
OF_OTHERS = (
    "asyncio",
    "concurrent.futures.process",
    "gymnasium",
    "multiprocessing.util",
    "numba",
    "rich.console",
    "serial.tools.list_ports",
    "subprocess",
    "tempfile",
    "tyro",
)
"""What the packages import, and what these import later on Linux alone."""
OPTIONAL = (
    "matplotlib.pyplot",
    "pyarrow.parquet",
    "pybullet",
    "stable_baselines3",
    "starlette.applications",
    "tensorboard",
    "uvicorn",
)


class _Hidden:
    """A finder that says that `MODULES` are not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def hide(*, with_optional: bool = False) -> None:
    """Hide them from what is imported and run from now on; `with_optional`, so that optional packages can be used."""
    for name in OF_OTHERS:
        import_module(name)
    if with_optional:
        for name in OPTIONAL:
            with suppress(ImportError):
                import_module(name)
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Hidden())
    hidden_names = {os: OS_NAMES, signal: SIGNALS, socket: SOCKET_NAMES, select: SELECT_NAMES}
    for module, names in hidden_names.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
