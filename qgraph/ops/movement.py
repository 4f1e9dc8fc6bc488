"""Attributes of moves that ops of the graph and of the integer program share."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.errors import GraphError
from qgraph.ops.attributes import Attributes, attribute

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)  # orders of the axes of images


@dataclass(frozen=True)
class TransposeAttrs(Attributes):
    """Another order of the axes. Raises GraphError if `perm` is not a permutation."""

    perm: tuple[int, ...] = attribute("for each axis of the result, the axis of x", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if sorted(self.perm) != list(range(len(self.perm))):
            raise GraphError(f"attribute `perm` is {self.perm}, not a permutation")


@dataclass(frozen=True)
class TakeAttrs(Attributes):
    """Elements by index along one axis."""

    axis: int = attribute("the axis along which elements are picked", low=0)
    indices: tuple[int, ...] = attribute("for each index of the result, the index of x", low=0)
