"""A task done by qgraph and by a library, timed in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

REPEATS = 11
HEADING = """\
| task | nodes | qgraph, ms | library, ms | with construction, ms | ratio |
|---|---|---|---|---|---|"""

Construct = Callable[[], Any]


@dataclass(frozen=True)
class Task:
    """qgraph's way, and the library's on what `construct` makes; None where it needs nothing."""

    title: str
    nodes: int
    own: Callable[[], object]
    library: Callable[[Any], object]
    construct: Construct | None = None

    def row(self) -> str:
        """A line of the table. Raises ValueError where the results differ."""
        construct = self.construct or (lambda: None)
        held = construct()
        if self.own() != self.library(held):
            raise ValueError(f"{self.title}: qgraph and the library give different results")
        own, alone, whole = milliseconds(
            self.own, lambda: self.library(held), lambda: self.library(construct())
        )
        cells = (f"{own:.3g}", f"{alone:.3g}" if self.construct else "", f"{whole:.3g}")
        return f"| {self.title} | {self.nodes:,} | {' | '.join(cells)} | {rounded(whole / own)} |"


def rounded(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


def milliseconds(*functions: Callable[[], object]) -> list[float]:
    """The median processor time of each function, taken in turns."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(REPEATS):
        for function, taken in zip(functions, times, strict=True):
            start = process_time()
            function()
            taken.append(1e3 * (process_time() - start))
    return [median(taken) for taken in times]
