"""Stages: nodes that run in one pass over memory (quantizer, bias, ReLU, ceiling), or on codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, Overflow
from qgraph.kernels.coded_conv import CodedConv
from qgraph.kernels.plain import Stage
from qgraph.quant.code_scales import CodeScales

# The order of computation in `kernels.stage`.
ORDER = {"quantize": 0, "bias_add": 1, "relu": 2, "relu6": 2, "minimum": 3}


@dataclass(frozen=True)
class JoinedNodes:
    """Nodes that each take the result of the previous one, and the stage that computes all of them.

    Without a stage, it is a single node; `conv` computes a convolution of codes.
    """

    nodes: tuple[Node, ...]
    stage: Stage | None = None
    conv: CodedConv | None = None

    @property
    def first(self) -> Node:
        return self.nodes[0]

    @property
    def values(self) -> Sequence[str]:
        return self.nodes[-1].values


def linked(
    nodes: Sequence[Node],
    constants: Mapping[str, Array],
    has_single_user: Callable[[str], bool],
    scales: CodeScales | None = None,
) -> list[JoinedNodes]:
    """Group `nodes`, in order, by the stages that compute them. constants: by name.

    has_single_user: whether a single node uses a value, and nothing else needs it. scales: those of
    earlier values; those of `nodes` are added. Without scales, convolutions are in float.
    """
    links: list[JoinedNodes] = []
    for node in nodes:
        stage = _extended(Stage(), node, constants)
        last = links[-1] if links else None
        if (
            last is not None
            and last.stage is not None
            and stage is not None
            and ORDER[last.nodes[-1].op] < ORDER[node.op]
            and node.inputs[0] == last.nodes[-1].name
            and has_single_user(node.inputs[0])
        ):
            both = _extended(last.stage, node, constants)
            links[-1] = JoinedNodes((*last.nodes, node), both)
        else:
            conv = None if scales is None else scales.conv(node, constants)
            links.append(JoinedNodes((node,), stage, conv))
        if scales is not None:
            scales.see(node)
    return links


def _extended(stage: Stage, node: Node, constants: Mapping[str, Array]) -> Stage | None:
    """`stage` extended by `node`; None if no stage computes the node."""
    match node.op:
        case "quantize":
            spec = spec_of(node)
            if not isinstance(spec.exponent, int) or spec.overflow != Overflow.SATURATE:
                return None
            return replace(stage, quantizer=(spec.exponent, spec.lo, spec.hi, spec.rounding))
        case "bias_add":
            bias = constants.get(node.inputs[1])
            if bias is None or bias.dtype != np.float32 or not bias.size:
                return None
            return replace(stage, bias=bias)
        case "relu":
            return replace(stage, low=0.0)
        case "relu6":
            return replace(stage, low=0.0, high=6.0)
        case "minimum":  # the ceiling of ReLU6 after channels were equalized
            ceiling = constants.get(node.inputs[1])
            if ceiling is None or ceiling.ndim != 1 or ceiling.dtype != np.float32:
                return None
            return replace(stage, ceiling=ceiling) if (ceiling > 0).all() else None
        case _:
            return None
