"""Functions of tests that inspect graphs."""

from qgraph.ir.graph import Graph


def ops(graph: Graph) -> list[str]:
    """The ops in topological order, without constants."""
    return [node.op for node in graph.topological() if node.op != "const"]


def opaque_kinds(graph: Graph) -> list[str]:
    """The ops of the source format that qgraph does not support, in alphabetical order."""
    return sorted(node.attrs["kind"] for node in graph.nodes.values() if node.op == "opaque")
