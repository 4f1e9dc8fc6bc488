"""The C function of a layer: packed weights where a layer can have them, else plain loops."""

from __future__ import annotations

from collections.abc import Callable

from qgraph.backends.c.context import CContext, CFunction
from qgraph.backends.c.elements import EXPRESSIONS
from qgraph.backends.c.functions import FunctionWriter
from qgraph.backends.c.moves import WALKS
from qgraph.backends.c.packed_layers import byte_depthwise, packed_product
from qgraph.ops.lowerings import Lowerings
from qgraph.program import Step
from qgraph.program.layers import Layer
from qgraph.program.ops import OPS


def function(layer: Layer, source: CContext) -> CFunction:
    """Write a layer; adds helpers and constants that it needs to `source`."""
    head = layer.head
    return FunctionWriter(layer, source).function(LOWERINGS.of(head.op, head.output))


def _conv2d(writer: FunctionWriter, head: Step) -> None:
    if not packed_product(writer, head):
        writer.conv2d(head)


def _depthwise(writer: FunctionWriter, head: Step) -> None:
    if not byte_depthwise(writer, head):
        writer.depthwise(head)


def _matmul(writer: FunctionWriter, head: Step) -> None:
    if not packed_product(writer, head):
        writer.matmul(head)


# The function that writes a layer, by the op of its first step.
LOWERINGS: Lowerings[Callable[[FunctionWriter, Step], None]] = Lowerings(
    "backends/c/layer_functions",
    OPS,
    {
        "conv2d": _conv2d,
        "depthwise_conv2d": _depthwise,
        "matmul": _matmul,
        "batch_matmul": FunctionWriter.batch_matmul,
        **dict.fromkeys(EXPRESSIONS, FunctionWriter.elements),
        "max_pool": FunctionWriter.max_pool,
        "reduce_max": FunctionWriter.elements,
        "standardize": FunctionWriter.standardize,
        "softmax": FunctionWriter.softmax,
        **dict.fromkeys(WALKS, FunctionWriter.walk),
        "pad": FunctionWriter.pad,
        "take": FunctionWriter.take,
        "embedding": FunctionWriter.embedding,
    },
)
