"""Jobs of an experiment: independent work in spawned processes, one per core, with progress.

A job is a module-level function and its arguments. Its result is pickled: write large results to a
file and return the path.
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
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, NamedTuple

import numba

from horde_agent.life.counts import duration

_PRINT_EVERY_S = 10.0


class Job(NamedTuple):
    """One piece of work."""

    name: str  # shown in progress and errors
    function: Callable[..., Any]  # a module-level function, called as function(*args)
    args: tuple[Any, ...] = ()  # its arguments; must be picklable
    # Expected duration in any unit: weights the progress, and the most expensive jobs start first
    cost: float = 1.0


class JobFailed(RuntimeError):
    """A job raised, or its process died; the message holds the job's name and traceback."""


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")
    if has_affinity:
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_jobs(
    jobs: Sequence[Job], say: Callable[[str], None], n_workers: int | None = None
) -> list[Any]:
    """Run jobs in worker processes and return their results in order.

    There is one worker per core when `n_workers` is None. `say` takes a line of progress every ten
    seconds.

    Raises:
        JobFailed: If a job fails. The workers are terminated then, and on Ctrl-C.
    """
    n_workers = min(n_workers or n_cores(), max(len(jobs), 1))
    progress = _Progress(jobs, say)
    results = [None] * len(jobs)
    context = multiprocessing.get_context("spawn")
    other_children = set(multiprocessing.active_children())
    order = sorted(range(len(jobs)), key=lambda k: -jobs[k].cost)
    with _worker_environment():
        pool = ProcessPoolExecutor(
            n_workers, context, _start_worker, (max(1, n_cores() // n_workers),)
        )
        unfinished = {pool.submit(_run, jobs[k]): k for k in order}
    try:
        while unfinished:
            finished, _ = wait(unfinished, timeout=_PRINT_EVERY_S, return_when=FIRST_COMPLETED)
            running = [jobs[k] for k in unfinished.values()][:n_workers]
            for future in finished:
                k = unfinished.pop(future)
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    names = ", ".join(job.name for job in running)
                    raise JobFailed(f"{names} failed: a process died; killed, or out of memory?")
                if error is not None:
                    raise JobFailed(
                        f"{jobs[k].name} failed: {''.join(traceback.format_exception(error))}"
                    )
                results[k] = future.result()
            progress.say_if_due([jobs[k] for k in unfinished.values()], n_workers)
    except BaseException:
        for process in set(multiprocessing.active_children()) - other_children:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return results


def run_here(jobs: Sequence[Job], say: Callable[[str], None]) -> list[Any]:
    """Run jobs one after another in this process and return their results in order.

    A single job uses all threads; several use one each, as in worker processes, and so compile the
    same kernels.
    """
    progress = _Progress(jobs, say)
    results = []
    n_threads = numba.get_num_threads()
    numba.set_num_threads(n_threads if len(jobs) == 1 else 1)
    try:
        for k, job in enumerate(jobs):
            results.append(job.function(*job.args))
            progress.say_if_due(jobs[k + 1 :])
    finally:
        numba.set_num_threads(n_threads)
    return results


class _Progress:
    """Prints the running jobs, the number of finished ones and the time left, at most every ten seconds."""

    def __init__(self, jobs: Sequence[Job], say: Callable[[str], None]) -> None:
        self._say = say
        self._n = len(jobs)
        self._cost = sum(job.cost for job in jobs)
        self._began = self._printed = time.perf_counter()

    def say_if_due(self, unfinished: Sequence[Job], n_workers: int = 1) -> None:
        """Print a line if ten seconds have passed; the first `n_workers` of the unfinished jobs are running."""
        time_s = time.perf_counter()
        share_done = 1.0 - sum(job.cost for job in unfinished) / self._cost
        if not unfinished or time_s - self._printed < _PRINT_EVERY_S:
            return
        self._printed = time_s
        time_left = ""
        if share_done > 0.0:
            time_left = (
                f" · {duration((time_s - self._began) * (1.0 - share_done) / share_done)} left"
            )
        names = ", ".join(job.name for job in unfinished[:n_workers])
        self._say(f"{names} · {self._n - len(unfinished)} of {self._n} jobs done{time_left}")


@contextmanager
def _worker_environment() -> Iterator[None]:
    """Start workers with SIGINT ignored (the parent handles Ctrl-C), and without the current folder in sys.path."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    handler = None
    if in_main_thread:
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    safe_path = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        del os.environ["PYTHONSAFEPATH"]
        if safe_path is not None:
            os.environ["PYTHONSAFEPATH"] = safe_path
        if in_main_thread:
            signal.signal(signal.SIGINT, handler)


def _start_worker(n_threads: int) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "workers have a parent"

    def exit_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
    numba.set_num_threads(min(n_threads, numba.get_num_threads()))


def _run(job: Job) -> Any:
    gc.collect()  # frees the last job's reference cycles
    return job.function(*job.args)
