"""Windows that slide over height and width: attributes and output shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qgraph.errors import GraphError
from qgraph.ops.attribute_types import Pads, Pair
from qgraph.ops.attributes import Attributes, attribute

ONE: Pair = (1, 1)
NO_PADS: Pads = ((0, 0), (0, 0))


@dataclass(frozen=True)
class MaxPoolAttrs(Attributes):
    """A window. Raises GraphError for pads that are as large as the window."""

    ksize: Pair = attribute("height and width of the window", low=1)
    strides: Pair = attribute("positions from one window to the next", low=1)
    pads: Pads = attribute("positions around the image; they are ignored", low=0, default=NO_PADS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(max(pads) >= size for pads, size in zip(self.pads, self.ksize, strict=True)):
            raise GraphError(f"pads {self.pads} are as large as the window {self.ksize}")


def slid(
    image: Sequence[int], kernel: Sequence[int], strides: Pair, pads: Pads, dilations: Pair = ONE
) -> Pair:
    """Positions of a window over height and width. Raises GraphError if it does not fit."""

    def along(axis: int) -> int:
        span = (kernel[axis] - 1) * dilations[axis] + 1
        last_start = image[axis] + sum(pads[axis]) - span
        if last_start < 0:
            raise GraphError(f"a window of {span} does not fit into {image} with pads {pads}")
        return last_start // strides[axis] + 1

    return along(0), along(1)
