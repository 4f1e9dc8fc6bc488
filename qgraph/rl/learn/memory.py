"""What holds experience between actors and learner, by the algorithm: a replay or a queue."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.learn.limiter import RateLimiter
from qgraph.rl.learn.options import Options
from qgraph.rl.learn.queue import TrajectoryQueue
from qgraph.rl.learn.replay import Batch, Replay


class Memory(Protocol):
    """Records in, batches out. `state` is all that is needed to go on."""

    def __len__(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def nbytes(self) -> int: ...

    def add(self, records: Array) -> None: ...

    def sample(self, count: int, rng: np.random.Generator) -> Batch: ...

    def update(self, places: Array, priorities: Array) -> None: ...

    def state(self) -> dict[str, Array]: ...

    def restore(self, state: dict[str, Array]) -> None: ...


def memory_of(options: Options, dtype: np.dtype[Any]) -> Memory:
    if options.queued:
        return TrajectoryQueue(options.n, dtype)
    return Replay(min(options.capacity, options.steps), dtype, options.alpha)


def limiter_of(options: Options) -> RateLimiter:
    """For a queue too, which it bounds: each step is learnt from once, and two batches are in.

    Of each actor up to n - 1 steps are no whole trajectory yet. As many more steps have to be in
    before a batch is sure to be there.
    """
    if options.queued:
        partial = options.actors * (options.n - 1)
        return RateLimiter(options.spi, options.batch + partial, options.batch)
    return RateLimiter(options.spi, options.least, options.batch)
