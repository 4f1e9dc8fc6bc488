"""Time a task in qgraph and in a library, in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

REPEATS = 11

Construct = Callable[[], Any]


@dataclass(frozen=True)
class Task:
    """A task: qgraph's function, the library's function, and `construct`, which makes its argument
    or is None.
    """

    title: str
    nodes: int
    own: Callable[[], object]
    library: Callable[[Any], object]
    construct: Construct | None = None

    def row(self) -> tuple[str, int, float, float | None, float, float]:
        """A row of the table. Raises ValueError if the results differ."""
        construct = self.construct or (lambda: None)
        held = construct()
        if self.own() != self.library(held):
            raise ValueError(f"{self.title}: qgraph and the library give different results")
        own, alone, whole = milliseconds(
            self.own, lambda: self.library(held), lambda: self.library(construct())
        )
        return self.title, self.nodes, own, alone if self.construct else None, whole, whole / own


def milliseconds(*functions: Callable[[], object]) -> list[float]:
    """The median processor time of each function, taken in turns."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(REPEATS):
        for function, taken in zip(functions, times, strict=True):
            start = process_time()
            function()
            taken.append(1e3 * (process_time() - start))
    return [median(taken) for taken in times]
