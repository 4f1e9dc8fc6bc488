"""The place of calibration: this process, or another one inside a `with` block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.calibrate import Calibration
from qgraph.quant.float_statistics import FloatStatistics


class Calibrator(Protocol):
    """Computes what `FloatStatistics.of` and `calibrate` do, to the bit."""

    def statistics(self, graph: Graph, data: Mapping[str, Array]) -> FloatStatistics: ...

    def calibrate(
        self,
        graph: Graph,
        data: Mapping[str, Array],
        options: Calibration,
        statistics: FloatStatistics | None,
    ) -> None: ...


_current: ContextVar[Calibrator | None] = ContextVar("calibrator", default=None)


def current() -> Calibrator | None:
    """The calibrator of the block; None for this process."""
    return _current.get()


@contextmanager
def calibrating_by(calibrator: Calibrator | None) -> Iterator[None]:
    """Let calibration inside the block run elsewhere, or in this process with None."""
    token = _current.set(calibrator)
    try:
        yield
    finally:
        _current.reset(token)
