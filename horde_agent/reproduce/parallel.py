"""Jobs in other processes, one per core: spawned, with progress, and all ended when the caller is.

A job is a function of a module and its arguments. It is called with an `on_progress` before its arguments, by which it
may say how far it is; what it returns goes through a pipe: large things are written to files, their paths returned.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numba

from horde_agent.life.timing import duration

OnProgress = Callable[[float], None]
"""Says which share of a job is done, in [0, 1]; cheap, may be called on every step."""

_PROGRESS_EVERY_S, _SAY_EVERY_S = 1.0, 10.0
_SURE_FROM = 0.01  # share of the work from which on the time left can be told


class Job(NamedTuple):
    """One piece of work.

    Attributes:
        name: What it is called in progress and errors.
        function: A module-level function (a spawned process imports it), called as function(on_progress, *args).
        args: Its arguments, which go through a pipe.
        cost: About how long it takes, in any unit: progress is counted by it, and the dearest begin first.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    cost: float = 1.0


class JobFailed(RuntimeError):
    """A job raised, or its process died; the message holds the job's name and its own traceback."""


def n_cores() -> int:
    """Return how many cores this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def run_jobs(jobs: Sequence[Job], say: Callable[[str], None], n_workers: int | None = None) -> list[Any]:
    """Do the jobs, as many at once as there are cores, and return what they return, in their order.

    A single job is done in this process, with all of its threads.

    Args:
        jobs: The work.
        say: Takes a line about progress, every ten seconds.
        n_workers: Processes at once; one per core when None.

    Raises:
        JobFailed: If a job fails; the others are ended.
        KeyboardInterrupt: If the user breaks off; all are ended.
    """
    crew = _Crew(jobs, say, n_workers or n_cores())
    return [crew.do_here(0)] if len(jobs) == 1 else crew.work()


def run_here(jobs: Sequence[Job], say: Callable[[str], None]) -> list[Any]:
    """Do the jobs in this process, one after another, and return what they return, in their order.

    A single job has all threads; several have one, as in processes of their own, and so compile no other kernels.

    Args:
        jobs: The work.
        say: Takes a line about progress, every ten seconds.
    """
    crew, n_threads = _Crew(jobs, say, 1), numba.get_num_threads()
    numba.set_num_threads(n_threads if len(jobs) == 1 else 1)
    try:
        return [crew.do_here(k) for k in range(len(jobs))]
    finally:
        numba.set_num_threads(n_threads)


class _Crew:
    """The processes of one call of `run_jobs`."""

    def __init__(self, jobs: Sequence[Job], say: Callable[[str], None], n_workers: int) -> None:
        self.jobs, self.say, self.n_workers = jobs, say, min(n_workers, max(len(jobs), 1))
        self.shares = [0.0] * len(jobs)
        self._whole = sum(job.cost for job in jobs)
        self.results: list[Any] = [None] * len(jobs)
        self._began = self._said = time.perf_counter()
        self._running: dict[Connection, tuple[int, Any]] = {}

    def work(self) -> list[Any]:
        """Do all jobs."""
        waiting = sorted(range(len(self.jobs)), key=lambda k: -self.jobs[k].cost)
        try:
            for _ in range(self.n_workers):
                self._hand(*self._start(), waiting.pop(0))
            while self._running:
                for pipe in wait(list(self._running), timeout=_SAY_EVERY_S):
                    self._hear(pipe, waiting)  # type: ignore[arg-type]
        finally:
            for _, process in self._running.values():
                process.terminate()
                process.join()
        return self.results

    def do_here(self, k: int) -> Any:
        """Do one job in this process."""
        result = self.jobs[k].function(lambda share: self.note(k, share), *self.jobs[k].args)
        self.note(k, 1.0)
        return result

    def note(self, k: int, share: float) -> None:
        """Take in how far a job is, and say it if it is time."""
        self.shares[k] = share
        now = time.perf_counter()
        done = sum(share * job.cost for share, job in zip(self.shares, self.jobs, strict=True)) / self._whole
        if now - self._said < _SAY_EVERY_S or done < _SURE_FROM:
            return
        self._said = now
        left = duration((now - self._began) * (1 - done) / done)
        names = ", ".join(self.jobs[i].name for i, _ in self._running.values()) or self.jobs[k].name
        self.say(f"{names} · {done:.0%} of {len(self.jobs)} job{'s' * (len(self.jobs) > 1)} · {left} left")

    def _start(self) -> tuple[Connection, Any]:
        """Start a process, and return the pipe to it and itself."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        threads = max(1, n_cores() // self.n_workers)
        process = context.Process(target=_work, args=(theirs, threads))
        with _deaf_to_interrupts(), _safe_path():
            process.start()
        theirs.close()
        return ours, process

    def _hand(self, pipe: Connection, process: Any, k: int) -> None:
        """Give a process a job."""
        self._running[pipe] = (k, process)
        pipe.send(self.jobs[k])

    def _hear(self, pipe: Connection, waiting: list[int]) -> None:
        """Take in one message of a process: a share, a result, a failure, or its silence."""
        k, process = self._running[pipe]
        try:
            kind, content = pipe.recv()
        except EOFError:
            process.join()
            kind, content = "failed", f"its process ended with exit code {process.exitcode}"
        if kind == "share":
            self.note(k, content)
            return
        if kind == "failed":
            raise JobFailed(f"{self.jobs[k].name} failed: {content}")
        self.results[k] = content
        del self._running[pipe]
        if waiting:
            self._hand(pipe, process, waiting.pop(0))
        else:
            pipe.close()  # nothing more comes: the process ends
            process.join()
        self.note(k, 1.0)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let a process be started that ignores Ctrl-C for good: the one that started it hears it and ends the others."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let a process be started that does not look into the current folder first for what it imports."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        del os.environ["PYTHONSAFEPATH"]
        if before is not None:
            os.environ["PYTHONSAFEPATH"] = before


def _work(pipe: Connection, n_threads: int) -> None:
    """Do jobs in this process until no more come, and end with the process that started it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    numba.set_num_threads(min(n_threads, numba.get_num_threads()))
    with suppress(EOFError):
        while True:
            _do(pipe.recv(), pipe)
            gc.collect()  # what the last job held in circles, before the next one needs the room


def _do(job: Job, pipe: Connection) -> None:
    """Do one job."""
    last = time.perf_counter()

    def on_progress(share: float) -> None:
        nonlocal last
        if time.perf_counter() - last >= _PROGRESS_EVERY_S:
            last = time.perf_counter()
            pipe.send(("share", share))

    try:
        pipe.send(("done", job.function(on_progress, *job.args)))
    except BaseException:
        with suppress(OSError):  # nobody hears it any more
            pipe.send(("failed", traceback.format_exc()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a job's process was started by another"
    parent.join()
    os._exit(1)
