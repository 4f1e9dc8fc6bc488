"""Memory that is written in pieces: between two of them another process may look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qgraph.ir.types import Array

PIECES = 4


class TornArray(np.ndarray):
    """An array whose writes by numpy are done in pieces, each a step of the scheduler."""

    step: Callable[[], object]

    @staticmethod
    def of(array: Array, step: Callable[[], object]) -> TornArray:
        torn = array.view(TornArray)
        torn.step = step
        return torn

    def __array_finalize__(self, base: Any) -> None:
        self.step = getattr(base, "step", _nothing)

    def __setitem__(self, key: Any, value: Any) -> None:
        plain = self.view(np.ndarray)
        self.step()
        if isinstance(key, str) or not isinstance(plain[key], np.ndarray):
            plain[key] = value
        else:
            self._write(plain[key], value)

    def __array_function__(self, function: Any, types: Any, given: Any, named: Any) -> Any:
        given = [one.view(np.ndarray) if isinstance(one, TornArray) else one for one in given]
        if function is np.copyto:
            return self._write(given[0], given[1])
        return function(*given, **named)

    def _write(self, target: Array, value: Any) -> None:
        values = np.broadcast_to(np.asarray(value), target.shape)
        size = -(-len(target) // PIECES) if target.ndim else 0
        if not size:
            target[...] = values
        for begin in range(0, len(target) if target.ndim else 0, max(size, 1)):
            self.step()
            target[begin : begin + size] = values[begin : begin + size]


def _nothing() -> None:
    """Do nothing: an array without a scheduler."""
