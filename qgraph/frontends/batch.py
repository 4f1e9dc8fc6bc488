"""Which tensors share one unknown batch size.

`Reshape(y, [Shape(x)[0], -1])` flattens `y` only if the batch of `y` is the batch of `x`. Both
are traced back, through ops that leave axis 0 alone, to the value where that axis was born.
"""

from __future__ import annotations

import math

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.attributes import AxesAttrs, AxisAttrs
from qgraph.ir.ops.movement import PaddingAttrs, PartAttrs, TargetAttrs
from qgraph.ir.types import Shape
from qgraph.ops.movement import TransposeAttrs

KEEP = frozenset(
    (
        "identity", "cast", "conv2d", "depthwise_conv2d", "matmul", "bias_add", "batch_norm",
        "max_pool", "avg_pool", "relu", "relu6", "leaky_relu", "sigmoid", "tanh", "swish",
        "hard_swish", "hard_sigmoid", "elu", "selu", "gelu", "softplus", "softsign", "softmax",
        "log_softmax", "neg", "abs", "exp", "log", "sqrt", "rsqrt", "square", "reciprocal",
        "erf", "expm1", "log1p", "floor", "logical_not", "resize_nearest", "space_to_depth",
        "depth_to_space",
    )
)  # fmt: skip
BROADCAST = frozenset(
    (
        "add", "sub", "mul", "div", "maximum", "minimum", "squared_difference", "pow",
        "greater", "greater_equal", "equal", "not_equal", "logical_and", "logical_or",
        "select",
    )
)  # fmt: skip


class BatchTracker:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._origins: dict[str, str] = {}

    def origin(self, value: str) -> str:
        """The value whose axis 0 is that of `value`, as far back as can be told."""
        waiting = [value]
        while waiting:
            current = waiting[-1]
            sources = [] if current in self._origins else self._sources(current)
            unknown = [s for s in sources if s not in self._origins]
            if unknown:
                waiting += unknown
                continue
            waiting.pop()
            found = {self._origins[s] for s in sources}
            self._origins.setdefault(current, found.pop() if len(found) == 1 else current)
        return self._origins[value]

    def forget(self, value: str) -> None:
        self._origins.pop(value, None)

    def _sources(self, value: str) -> list[str]:
        """Inputs of the node behind `value` whose axis 0, of unknown size, it leaves alone."""
        node, types = self._graph.nodes.get(value), self._graph.types
        if node is None or not node.inputs:
            return []
        if node.op in BROADCAST:
            rank = types[value].rank
            return [v for v in node.inputs if types[v].rank == rank and _open(types[v].shape)]
        first = types[node.inputs[0]].shape
        kept = node.op in KEEP or _leaves_first_axis(node, first)
        return [node.inputs[0]] if kept and _open(first) else []


def _open(shape: Shape | None) -> bool:
    return bool(shape) and shape is not None and shape[0] is None


def _leaves_first_axis(node: Node, shape: Shape | None) -> bool:
    if shape is None:
        return False
    attrs, rank = node.attributes, len(shape)
    match attrs:
        case AxisAttrs() if node.op == "expand_dims":
            return bool(attrs.axis % (rank + 1))
        case AxisAttrs() if node.op in ("concat", "argmax"):
            return bool(attrs.axis % rank)
        case AxesAttrs():
            return 0 not in {a % rank for a in attrs.axes}
        case PaddingAttrs():
            return attrs.paddings[0] == (0, 0)
        case TransposeAttrs():
            return attrs.perm[0] == 0
        case PartAttrs():
            return attrs.slices[0] == slice(None, None, 1)
        case TargetAttrs():
            rest, target = shape[1:], attrs.shape
            known = None not in rest and bool(target) and target[0] == -1 and -1 not in target[1:]
            return known and math.prod(d or 0 for d in rest) == math.prod(target[1:])
    return False
