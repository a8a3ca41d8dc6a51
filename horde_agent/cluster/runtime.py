"""Ray: all of it that is used here. Starting and finding it, actors that hold shards, calls whose answers come later.

What a step costs on two cores, with four actors, measured with Ray 2.60 (p50): 1.4 KB as a direct argument 1.6 ms there
and back, by `ray.put` 3.2 ms; 64 steps, 90 KB, 2.0 and 3.3 ms. A direct argument below 100 KB travels with the call, so
that a step is sent so. It is one argument of bytes, and so is the answer: with three arguments and a tuple it takes a
third longer.
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
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from horde_agent.cluster.errors import ClusterError
from horde_agent.cluster.shard import Shard

_STORE_BYTES = 200_000_000  # of Ray's object store, where it is started here: nothing large goes through it
_SMALLEST_STORE = 80_000_000
_SHARED = Path("/dev/shm")
_PROCESSES = Path("/proc")
_PREFIX = "horde-ray-"  # of a temporary folder, then the number of the process that made it
_REACHED_S = 5.0
_VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns of a change to come
    "RAY_timeout_ms_task_wait_for_death_info": "100",  # who asked a process that died waits no longer to be told
    "RAY_worker_register_timeout_seconds": "600",  # on a busy machine a process takes its time, and is not tried again
    "RAY_worker_niceness": "0",  # a shard is as urgent as a Horde here would be
}

_HERE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def _ray(address: str | None) -> Any:
    """Return Ray's module.

    Ray takes the loopback for a mistake where there may be other machines: it would put another address of this one in
    its place, and listen on all of its networks. What tells it otherwise, and how it knows who may speak to it, it
    reads when it is imported. Where somebody has done that before, it asks for a token by itself where it is started.

    Raises:
        ClusterError: If it is not installed.
    """
    is_here = address is None or address.partition(":")[0] in ("127.0.0.1", "localhost")
    if "ray" not in sys.modules:
        for name, value in (_VARIABLES | (_HERE if is_here else {})).items():
            os.environ.setdefault(name, value)
    elif is_here and (constants := sys.modules.get("ray._private.ray_constants")) is not None:
        constants.ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise ClusterError("a Horde in shards needs Ray: pip install -e '.[ray]'") from None
    # It prints that a process died, into the output of whatever runs here: it is told by this package's own log.
    importlib.import_module("ray._private.worker").print_to_stdstream = lambda *_, **__: None  # type: ignore[attr-defined]
    return ray


class Call:
    """An answer that is on its way: as much of a `Future` as is asked of one here.

    Who waits for it waits for Ray; only where somebody looks whether it is there does Ray have to say so by itself, in
    a thread of its own, which costs .1 ms more.

    Args:
        ray: The module.
        reference: Of the answer.
    """

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference = ray, reference
        self._future: Future[Any] | None = None

    def done(self) -> bool:
        """Say whether it is there."""
        if self._future is None:
            self._future = self._reference.future()
        return self._future.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for it, and return what was raised in its place; None where nothing was.

        Raises:
            TimeoutError: If it is not there in so many seconds.
        """
        if self._future is None:
            self._future = self._waited_for(timeout)
        return self._future.exception(timeout)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for it, and return it, or raise what was raised in its place; `exception` says how."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._future is not None, "it was waited for"
        return self._future.result()

    def _waited_for(self, timeout: float | None) -> Future[Any]:
        """Wait for it."""
        future: Future[Any] = Future()
        try:
            future.set_result(self._ray.get(self._reference, timeout=timeout))
        except self._ray.exceptions.GetTimeoutError:
            raise
        except Exception as error:
            future.set_exception(error)
        return future


class Cluster:
    """Ray, started here or found.

    Args:
        address: Of a cluster that runs, "auto" for the one on this machine; None starts one here that nobody else can
            reach: on loopback, with a token, without its dashboard.
        n_cpus: That the one started here offers: one for each shard.

    Attributes:
        is_own: Whether it was started here, and is ended by `close`.
        n_cpus: That all machines offer.
        memory: That all machines offer, in bytes.

    Raises:
        ClusterError: If Ray is not installed, does not start, or nobody answers at the address.
    """

    def __init__(self, address: str | None, n_cpus: int) -> None:
        self._ray = ray = _ray(address)
        self._folder: str | None = None
        self.is_own = address is None and not ray.is_initialized()
        with _sigterm_kept():
            if self.is_own:
                self._start(n_cpus)
            elif address is not None and not ray.is_initialized():
                self._find(address)
        offered = ray.cluster_resources()
        self.n_cpus, self.memory = int(offered.get("CPU", 0)), int(offered.get("memory", 0))

    def _start(self, n_cpus: int) -> None:
        """Start Ray on this machine alone."""
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        _remove_stale()
        self._folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
        atexit.register(self.close)
        room = shutil.disk_usage(_SHARED).free if _SHARED.exists() else _STORE_BYTES
        try:
            self._ray.init(
                num_cpus=n_cpus,
                include_dashboard=False,
                object_store_memory=max(_SMALLEST_STORE, min(_STORE_BYTES, room // 2)),
                log_to_driver=False,
                configure_logging=False,
                logging_level=logging.ERROR,
                _node_ip_address="127.0.0.1",
                _temp_dir=self._folder,
            )
        except Exception as error:
            self.close()
            raise ClusterError(f"Ray could not be started on this machine: {_first_line(error)}") from error

    def _find(self, address: str) -> None:
        """Join a cluster that runs."""
        _refuse_unreachable(address)
        try:
            self._ray.init(address=address, log_to_driver=False, configure_logging=False, logging_level=logging.ERROR)
        except Exception as error:
            self._ray.shutdown()
            raise ClusterError(_nobody(address, _first_line(error))) from error

    def actor(self, number: int, n_threads: int, n_bytes: int) -> Any:
        """Have a shard's process started, with so many threads and so much memory, and return what is called on."""
        variables = {"NUMBA_NUM_THREADS": str(n_threads), "OMP_NUM_THREADS": str(n_threads)}
        if self.is_own:  # another machine has folders of its own
            variables["PYTHONPATH"] = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
            if "NUMBA_CACHE_DIR" in os.environ:
                variables["NUMBA_CACHE_DIR"] = os.environ["NUMBA_CACHE_DIR"]
        kind = self._ray.remote(Shard)
        options = kind.options(
            num_cpus=1,
            memory=n_bytes,
            max_restarts=0,
            max_task_retries=0,
            runtime_env={"env_vars": variables},
        )
        return options.remote(number)

    def call(self, actor: Any, verb: str, *given: Any) -> Call:
        """Call a shard's method, and return where its answer will be."""
        return Call(self._ray, getattr(actor, verb).remote(*given))

    def is_loss(self, error: BaseException) -> bool:
        """Say whether an error means that an actor, or its machine, is gone, for now or for good."""
        return isinstance(error, self._ray.exceptions.RayActorError | self._ray.exceptions.NodeDiedError)

    def cause(self, error: BaseException) -> BaseException:
        """Return what an actor raised."""
        return error.cause if isinstance(error, self._ray.exceptions.RayTaskError) and error.cause else error

    def end(self, actor: Any) -> None:
        """End a shard's process."""
        if self._ray.is_initialized():
            self._ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """End Ray, where it was started here, and what it left."""
        atexit.unregister(self.close)
        if self.is_own and self._ray.is_initialized():
            self._ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


@contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Have SIGTERM do what it did before: Ray takes it for itself, and a life would end without its tables."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _remove_stale() -> None:
    """Remove what processes left that were killed: their Ray has ended with them, but not its folder."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        number = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if number.isdigit() and _PROCESSES.exists() and not (_PROCESSES / number).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _refuse_unreachable(address: str) -> None:
    """Refuse an address where nobody listens: Ray itself would try for five minutes.

    Raises:
        ClusterError: If it is so, or no address.
    """
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if not (host and port.isdigit()) or "/" in host:
        raise ClusterError(_nobody(address, "that is no host:port"))
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACHED_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(_nobody(address, _first_line(error))) from None


def _nobody(address: str, why: str) -> str:
    """Say that there is no cluster."""
    return (
        f"no Ray cluster could be joined at {address!r} ({why}): start one by `ray start --head`, give its address, "
        "such as 192.0.2.1:6379, and have its token in ~/.ray/auth_token or RAY_AUTH_TOKEN"
    )


def _first_line(error: BaseException) -> str:
    """Return what an error says, without the rest."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
