"""Work over chunks of a data set, one chunk a thread.

Numpy's products run in BLAS, whose own threads wait for each other by spinning: on a machine with
other work that costs ten times and more. Chunks are independent, so each gets a thread, BLAS only
one, and native kernels none beside it; numpy and they release the interpreter's lock meanwhile.
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
    """Like the builtin `map`: a function of one chunk, over chunks, results in order."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterable[R]: ...


@contextmanager
def over_chunks(count: int) -> Iterator[Each]:
    """A `map` for `count` chunks; the plain one where there is only one."""
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
    """One task a thread, not one an item: handing over a task costs as much as a small op.

    A thread that is done with an item takes the next one, so none waits where others are slow.
    """
    left = iter(range(len(items)))  # threads take from it one at a time

    def work(_: int) -> dict[int, R]:
        return {i: function(items[i]) for i in left}

    done: dict[int, R] = {}
    for part in pool.map(work, range(threads)):
        done |= part
    return [done[i] for i in range(len(items))]
