"""Ray: start or join it, create actors that hold shards, and call them.

Measured with Ray 2.60, two cores and four actors (p50, there and back): 1.4 KB as a direct argument
take 1.6 ms, by `ray.put` 3.2 ms; 64 steps, 90 KB, 2.0 and 3.3 ms. Direct arguments below 100 KB
travel with the call, so steps are sent as one argument of bytes, and so is the reply: three
arguments and a tuple take a third longer.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horde_agent.cluster.shard import ClusterError, Shard

# Of Ray's object store: nothing large is put there
_STORE_BYTES = 200_000_000
_SMALLEST_STORE = 80_000_000
_SHARED = Path("/dev/shm")
_PROCESSES = Path("/proc")
_PREFIX = "horde-ray-"  # of a temporary folder, followed by the id of the process that made it
_CONNECT_S = 5.0
_VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # avoids a warning
    "RAY_timeout_ms_task_wait_for_death_info": "100",  # a call to a dead process fails after 0.1 s
    # A process may start slowly on a busy machine; Ray does not retry
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_worker_niceness": "0",  # the priority that a Horde in this process would have
}
_LOOPBACK_VARIABLES = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def _import_ray(address: str | None) -> Any:
    """Return Ray's module, configured for token authentication; raise ClusterError if it is not installed.

    Ray replaces a loopback address by another one of this machine, and then listens on all
    networks, unless ENABLE_RAY_CLUSTER is off. It reads this setting and the kind of authentication
    when it is imported. If it was imported before, the setting is changed here, and a Ray started
    here requires a token anyway.
    """
    is_here = address is None or address.partition(":")[0] in ("127.0.0.1", "localhost")
    if "ray" not in sys.modules:
        variables = dict(_VARIABLES)
        if is_here:
            variables |= _LOOPBACK_VARIABLES
        for name, value in variables.items():
            os.environ.setdefault(name, value)
    elif is_here and "ray._private.ray_constants" in sys.modules:
        sys.modules["ray._private.ray_constants"].ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise ClusterError("a Horde in shards needs Ray: pip install -e '.[ray]'") from None
    # Ray prints the death of a process into this program's output; this package logs it itself.
    importlib.import_module("ray._private.worker").print_to_stdstream = lambda *_, **__: None  # type: ignore[attr-defined]
    return ray


class Unreachable(Exception):
    """A shard's process is gone, or does not answer; the message is the reason."""


@dataclass
class Reply:
    """A reply that may not have arrived yet.

    `Cluster.result` waits for it in Ray itself. `has_arrived` needs a future; its notification
    takes 0.1 ms more. `ray.wait` takes as long in every call.
    """

    reference: Any
    future: Any = None


class Cluster:
    """A Ray cluster, started here or joined.

    Args:
        address: Of a running cluster, "auto" for the one on this machine; None starts one that only
            this program can reach: on loopback, with a token, without a dashboard.
        n_cpus: Number of cores of a cluster started here, one for each shard.

    Attributes:
        is_own: Whether it was started here, and ends in `close`.
        n_cpus: Number of cores of all machines.
        memory: Memory of all machines, in bytes.

    Raises:
        ClusterError: If Ray is not installed or does not start, or no cluster is at the address.
    """

    def __init__(self, address: str | None, n_cpus: int) -> None:
        self._ray = ray = _import_ray(address)
        self._folder: str | None = None
        self.is_own = address is None and not ray.is_initialized()
        with _sigterm_restored():
            if self.is_own:
                self._start(n_cpus)
            elif address is not None and not ray.is_initialized():
                self._join(address)
        resources = ray.cluster_resources()
        self.n_cpus = int(resources.get("CPU", 0))
        self.memory = int(resources.get("memory", 0))

    def _start(self, n_cpus: int) -> None:
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        _remove_stale_folders()
        self._folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
        # Ray opens its own folder to all users; other users cannot enter this one, which has the mode
        # 0700.
        # A short name: paths of sockets have at most 107 bytes
        own_folder = os.path.join(self._folder, "r")
        atexit.register(self.close)
        room = _STORE_BYTES
        if _SHARED.exists():
            room = shutil.disk_usage(_SHARED).free
        try:
            self._ray.init(
                num_cpus=n_cpus,
                include_dashboard=False,
                object_store_memory=max(_SMALLEST_STORE, min(_STORE_BYTES, room // 2)),
                log_to_driver=False,
                configure_logging=False,
                logging_level=logging.ERROR,
                _node_ip_address="127.0.0.1",
                _temp_dir=own_folder,
            )
        except Exception as error:
            self.close()
            raise ClusterError(
                f"Ray could not be started on this machine: {_first_line(error)}"
            ) from error

    def _join(self, address: str) -> None:
        """Join a running cluster, if a server listens at the address: Ray itself would try for five minutes."""
        host, _, port = address.rpartition(":")
        try:
            if address != "auto":
                if not (host and port.isdigit()) or "/" in host:
                    raise ValueError("it is not of the form host:port")
                socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
            self._ray.init(
                address=address,
                log_to_driver=False,
                configure_logging=False,
                logging_level=logging.ERROR,
            )
        except Exception as error:
            self._ray.shutdown()
            raise ClusterError(
                f"no Ray cluster could be joined at {address!r} ({_first_line(error)}): start one by `ray start "
                "--head`, give its address, such as 192.0.2.1:6379, and have its token in ~/.ray/auth_token or "
                "RAY_AUTH_TOKEN"
            ) from error

    def actor(self, number: int, n_threads: int, n_bytes: int) -> Any:
        """Start the process of a shard with `n_threads` threads and `n_bytes` of memory, and return its handle."""
        variables = {"NUMBA_NUM_THREADS": str(n_threads), "OMP_NUM_THREADS": str(n_threads)}
        if self.is_own:  # paths of this machine
            variables["PYTHONPATH"] = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
            if "NUMBA_CACHE_DIR" in os.environ:
                variables["NUMBA_CACHE_DIR"] = os.environ["NUMBA_CACHE_DIR"]
        options = self._ray.remote(Shard).options(
            num_cpus=1,
            memory=n_bytes,
            max_restarts=0,
            max_task_retries=0,
            runtime_env={"env_vars": variables},
        )
        return options.remote(number)

    def call(self, actor: Any, method: str, *arguments: Any) -> Reply:
        """Call a method of a shard without waiting, and return the reply, for `has_arrived` and `result`."""
        return Reply(getattr(actor, method).remote(*arguments))

    def has_arrived(self, reply: Reply) -> bool:
        """Return whether a reply has arrived."""
        if reply.future is None:
            reply.future = reply.reference.future()
        return bool(reply.future.done())

    def result(self, reply: Reply, patience_s: float) -> Any:
        """Wait for a reply and return it; raise Unreachable, or the exception that the method raised."""
        errors = self._ray.exceptions
        try:
            if reply.future is None:
                return self._ray.get(reply.reference, timeout=patience_s)
            return reply.future.result(patience_s)
        except errors.RayTaskError as error:
            raise error.cause or error from None
        except (errors.RayActorError, errors.NodeDiedError) as error:
            raise Unreachable(_first_line(error)) from None
        except TimeoutError:  # Ray's is one, too
            raise Unreachable(f"it did not answer for {patience_s:g} s") from None

    def end(self, actor: Any) -> None:
        """End the process of a shard."""
        if self._ray.is_initialized():
            self._ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """End Ray if it was started here, and remove its files."""
        atexit.unregister(self.close)
        if self.is_own and self._ray.is_initialized():
            self._ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


@contextmanager
def _sigterm_restored() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces: a run would end without its tables."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _remove_stale_folders() -> None:
    """Remove the folders of killed processes; their Ray has ended by itself."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        process = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and _PROCESSES.exists() and not (_PROCESSES / process).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
