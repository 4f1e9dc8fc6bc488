"""The bytes that the constants of a network take."""

from __future__ import annotations

from qgraph.evaluation.result import Sizes
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of, value_of
from qgraph.quant.topology import QUANTIZERS


def sizes_of(floating: Graph, quantized: Graph) -> Sizes:
    """Bytes of all constants, in the float network and as codes in the quantized one."""
    return Sizes(constant_bytes(floating), constant_bytes(quantized))


def constant_bytes(graph: Graph) -> int:
    """Bytes of all constants; quantized constants count with the bits of their codes."""
    bits = sum(
        value_of(node).size * _bits(graph, node)
        for node in graph.topological()
        if node.op == "const"
    )
    return -(-bits // 8)


def _bits(graph: Graph, constant: Node) -> int:
    users = graph.users(constant.name)
    if users and all(user.op in QUANTIZERS for user in users):
        return max(spec_of(user).bits for user in users)
    return value_of(constant).dtype.itemsize * 8
