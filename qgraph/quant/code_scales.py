"""Find the values of a graph that are 8-bit codes on one scale, and the convolutions of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array
from qgraph.kernels.coded_conv import CodedConv, CodeScale

MIN_WEIGHTS = 1 << 12  # number of weights from which packing them is faster


class CodeScales:
    """Scales of values: those of quantizers, and those of ops that only move codes."""

    def __init__(self) -> None:
        self._scales: dict[str, CodeScale] = {}

    def see(self, node: Node) -> None:
        """Add a node. Its inputs must have been added before."""
        scale = self._scale(node)
        for value in node.values:
            if scale is None:
                self._scales.pop(value, None)
            else:
                self._scales[value] = scale

    def _scale(self, node: Node) -> CodeScale | None:
        if node.op == "quantize":
            spec = spec_of(node)
            if not isinstance(spec.exponent, int) or spec.bits > 8:
                return None
            return CodeScale(spec.exponent, spec.signed)
        if not op_definition(node.op).moves:
            return None
        found = {self._scales.get(value) for value in node.inputs}
        return found.pop() if len(found) == 1 else None

    def conv(self, node: Node, constants: Mapping[str, Array]) -> CodedConv | None:
        """The convolution of codes that a node computes; None for other nodes."""
        if node.op != "conv2d":
            return None
        x, w = (self._scales.get(value) for value in node.inputs)
        filters = constants.get(node.inputs[1])
        if x is None or w is None or filters is None or filters.size < MIN_WEIGHTS:
            return None
        if filters.dtype != np.float32:
            return None
        attrs = node.typed(ConvAttrs)
        return CodedConv.of(filters, x, w, attrs.strides, attrs.dilations)
