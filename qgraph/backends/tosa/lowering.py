"""The lowering of each op to TOSA, or the reason why TOSA lacks it."""

from __future__ import annotations

from qgraph.backends.tosa import elementwise, int32_ops, moves, products, requantize
from qgraph.backends.tosa.emission import TosaLower
from qgraph.ops.lowerings import Lowerings
from qgraph.program.ops import OPS

LOWERINGS: Lowerings[TosaLower] = Lowerings(
    "backends/tosa",
    OPS,
    {
        "conv2d": products.product,
        "depthwise_conv2d": products.product,
        "matmul": products.product,
        "batch_matmul": products.batch_matmul,
        "add": elementwise.add,
        "sub": elementwise.binary,
        "mul": elementwise.binary,
        "maximum": elementwise.binary,
        "minimum": elementwise.binary,
        "abs": elementwise.absolute,
        "clip": elementwise.clip,
        "lookup": elementwise.lookup,
        "softmax": int32_ops.softmax,
        "standardize": int32_ops.standardize,
        "requantize": requantize.requantize,
        "max_pool": moves.max_pool,
        "reduce_max": moves.reduce_max,
        "reshape": moves.reshape,
        "transpose": moves.transpose,
        "slice": moves.cut,
        "concat": moves.concat,
        "pad": moves.pad,
        "take": moves.take,
        "embedding": moves.embedding,
    },
)
