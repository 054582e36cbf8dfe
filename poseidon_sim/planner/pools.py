"""Where the points of a sweep run: in this process, in worker processes, or on a cluster through joblib.

A pool takes slices of work and yields (slice, answer) as they finish, in any order. Answers never depend on the pool.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from poseidon_sim.errors import InputError, unknown_name

Slice = TypeVar("Slice", bound=Sequence[Any])
Answer = TypeVar("Answer")
Work = Callable[[Slice], Answer]

BACKENDS = ("processes", "dask", "ray")
#: a point is given up when it has ended so many workers of its own
ATTEMPTS = 2


class DeadWorkerError(Exception):
    """The worker that ran a slice was ended by the system."""


def run_slices(
    work: Work[Slice, Answer], slices: Sequence[Slice], jobs: int, backend: str
) -> Iterator[tuple[Slice, Answer | DeadWorkerError]]:
    """Yield (slice, answer) of every slice, in order of finishing.

    Parameters
    ----------
    work : a function that can be pickled.
    jobs : worker processes; 1 with backend 'processes' runs in this process.
    backend : 'processes' on this machine; 'dask' or 'ray': joblib's backends, inside :func:`connected`.
    """
    if backend != "processes":
        yield from _on_cluster(work, slices, jobs, backend)
    elif jobs == 1 or len(slices) <= 1:
        for each in slices:
            yield each, work(each)
    else:
        yield from _in_processes(work, slices, jobs)


def _in_processes(
    work: Work[Slice, Answer], slices: Sequence[Slice], jobs: int
) -> Iterator[tuple[Slice, Answer | DeadWorkerError]]:
    """Run in worker processes; what a dead worker left undone runs again, point by point, each in a worker of its own."""
    left = list(slices)
    while left:
        suspects: list[Slice] = []
        with ProcessPoolExecutor(min(jobs, len(left)), _context(), _end_with_parent, (os.getpid(),)) as pool:
            waiting = {pool.submit(work, each): each for each in left}
            try:
                while waiting:
                    finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in finished:
                        each = waiting.pop(future)
                        try:
                            answer = future.result()
                        except BrokenProcessPool:
                            suspects.append(each)
                        else:
                            yield each, answer
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if not suspects:
            return
        order = {id(each): place for place, each in enumerate(left)}
        suspects.sort(key=lambda each: order[id(each)])
        text = "a worker process was ended by the system (out of memory?); its scenarios run again"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        for each in suspects[: 2 * jobs + 1]:  # running or handed out when the worker died
            for place in range(len(each)):
                yield _alone(work, each[place : place + 1])
        left = suspects[2 * jobs + 1 :]


def _alone(work: Work[Slice, Answer], one: Any) -> tuple[Slice, Answer | DeadWorkerError]:
    for _ in range(ATTEMPTS):
        with ProcessPoolExecutor(1, _context(), _end_with_parent, (os.getpid(),)) as pool:
            try:
                return one, pool.submit(work, one).result()
            except BrokenProcessPool:
                continue
    return one, DeadWorkerError(f"its worker process was ended by the system {ATTEMPTS} times (out of memory?)")


def _end_with_parent(parent: int) -> None:
    """Let a worker end when the process that made it is gone, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _context() -> Any:
    """Fork where the system can: workers then begin with everything that is loaded."""
    return multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else None)


def check_backend(backend: str) -> None:
    """Raise InputError when a backend is unknown or not installed."""
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    for module in {"dask": ("joblib", "distributed"), "ray": ("joblib", "ray")}.get(backend, ()):
        if importlib.util.find_spec(module) is None:
            hint = f'write `pip install "poseidon-sim[{backend}]"`'
            raise InputError(f"backend={backend} needs {module}, which is not installed; {hint}")


@contextmanager
def connected(jobs: int, backend: str) -> Iterator[None]:
    """Keep a cluster for several calls of :func:`run_slices`: the one this process is connected to, or a local one."""
    client = _dask_client(jobs) if backend == "dask" else None
    try:
        yield
    finally:
        if client is not None:
            client.close()


def _on_cluster(
    work: Work[Slice, Answer], slices: Sequence[Slice], jobs: int, backend: str
) -> Iterator[tuple[Slice, Answer | DeadWorkerError]]:
    import joblib

    if backend == "ray":
        from ray.util.joblib import register_ray

        register_ray()
    with joblib.parallel_config(backend=backend, n_jobs=jobs):
        if backend == "dask":
            parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="all")
            yield from parallel(joblib.delayed(_paired)(work, each) for each in slices)
        else:  # Ray's backend hands nothing over before all is done: ask for some slices at a time
            for at in range(0, len(slices), 2 * jobs):
                some = slices[at : at + 2 * jobs]
                yield from joblib.Parallel(batch_size=1)(joblib.delayed(_paired)(work, each) for each in some)


def _dask_client(jobs: int) -> Any:
    """Return a client of a cluster of our own, or None when the process is connected to one already."""
    from distributed import Client, get_client

    try:
        get_client()
    except ValueError:
        return Client(n_workers=jobs, threads_per_worker=1, dashboard_address=":0")
    return None


def _paired(work: Work[Slice, Answer], each: Slice) -> tuple[Slice, Answer]:
    return each, work(each)
