"""Work over chunks of a data set, one chunk a thread.

Numpy's products run in BLAS, whose own threads wait for each other by spinning: on a machine with
other work that costs ten times and more. Chunks are independent, so each gets a thread and BLAS
only one; numpy and the native kernels release the interpreter's lock meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

# Like the builtin `map`: a function of one chunk, over chunks, results in order.
Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@contextmanager
def over_chunks(count: int) -> Iterator[Each]:
    """A `map` for `count` chunks; the plain one where there is only one."""
    threads = min(count, len(os.sched_getaffinity(0)))
    if threads < 2:
        yield map
        return
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        yield lambda function, items: _striped(pool, threads, function, list(items))


def _striped(
    pool: ThreadPoolExecutor, threads: int, function: Callable[[Any], Any], items: list[Any]
) -> list[Any]:
    """One task a thread, not one an item: handing over a task costs as much as a small op."""
    stripes = [items[start::threads] for start in range(threads)]
    results: list[Any] = [None] * len(items)
    done = pool.map(lambda stripe: [function(item) for item in stripe], stripes)
    for start, stripe in enumerate(done):
        results[start::threads] = stripe
    return results
