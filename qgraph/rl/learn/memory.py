"""The interface of stores between actors and learner: a replay, a queue."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.learn.replay import Batch


class Memory(Protocol):
    """The interface: records in, batches out. `restore` continues from `state`."""

    def __len__(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[np.void]: ...

    @property
    def nbytes(self) -> int: ...

    def add(self, records: Array) -> None: ...

    def sample(self, count: int, rng: np.random.Generator) -> Batch: ...

    def update(self, places: Array, priorities: Array) -> None: ...

    def state(self) -> dict[str, Array]: ...

    def restore(self, state: dict[str, Array]) -> None: ...
