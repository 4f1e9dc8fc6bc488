"""Process chunks of a data set in parallel, one chunk per thread.

Matrix products of numpy run in BLAS, whose threads wait for each other by spinning. On a busy
machine this makes them ten times slower or worse. Chunks are independent, so each has its own
thread, BLAS uses one thread, and native kernels use no others. Both release the interpreter's lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from threadpoolctl import threadpool_limits

from qgraph import kernels

T = TypeVar("T")
R = TypeVar("R")


class Each(Protocol):
    """Like the builtin `map`: applies a function to each chunk, with results in order."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterable[R]: ...


@contextmanager
def over_chunks(count: int) -> Iterator[Each]:
    """A `map` for `count` chunks; the builtin one for a single chunk."""
    threads = min(count, len(os.sched_getaffinity(0)))
    if threads < 2:
        yield map
        return
    alone = kernels.stay_on_calling_thread
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads, "", alone) as pool:

        def each(function: Callable[[T], R], items: Iterable[T], /) -> Iterable[R]:
            return _claimed(pool, threads, function, list(items))

        yield each


def _claimed(
    pool: ThreadPoolExecutor, threads: int, function: Callable[[T], R], items: list[T]
) -> list[R]:
    """Use one task per thread, not per item: starting a task costs as much as a small op.

    A thread that has finished an item takes the next one, so no thread waits for slow ones.
    """
    left = iter(range(len(items)))  # threads take from it one at a time

    def work(_: int) -> dict[int, R]:
        return {i: function(items[i]) for i in left}

    done: dict[int, R] = {}
    for part in pool.map(work, range(threads)):
        done |= part
    return [done[i] for i in range(len(items))]
