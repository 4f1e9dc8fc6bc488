"""Graph algorithms of qgraph against networkx: ``python -m benchmarks.graph_algorithms``.

Both are given the same `Graph`, a chain of additions with skips. networkx is timed with and without
the construction of its graph, which every change of a `Graph` would make necessary again.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import networkx

from qgraph.ir.graph import Graph, node_of

SIZES = (500, 2_000, 8_000)
REPEATS = 31


def network(nodes: int) -> Graph:
    """Additions one behind the other, each of the newest value and the one before it."""
    graph = Graph()
    before = newest = graph.input("x", "float32", (None, 8))
    for _ in range(nodes - 1):
        before, newest = newest, graph.add("add", newest, before)
    graph.outputs["y"] = newest
    return graph


def as_networkx(graph: Graph) -> networkx.DiGraph[str]:
    made: networkx.DiGraph[str] = networkx.DiGraph()
    made.add_nodes_from(graph.nodes)
    for node in graph.nodes.values():
        made.add_edges_from((node_of(value), node.name) for value in node.inputs)
        made.add_edges_from((needed, node.name) for needed in node.control)
    return made


def milliseconds(*functions: Callable[[], object]) -> list[float]:
    """The median time of each function, taken in turns."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(REPEATS):
        for function, taken in zip(functions, times, strict=True):
            start = perf_counter()
            function()
            taken.append(1e3 * (perf_counter() - start))
    return [median(taken) for taken in times]


def measured(graph: Graph) -> list[float]:
    """qgraph's order, networkx's on a graph that exists, and the same with its construction."""
    made = as_networkx(graph)

    def ordered() -> object:
        return list(networkx.topological_sort(made))

    def constructed_and_ordered() -> object:
        return list(networkx.topological_sort(as_networkx(graph)))

    return milliseconds(graph.order_anew, ordered, constructed_and_ordered)


def main() -> None:
    print("| nodes | qgraph, ms | networkx, ms | networkx with construction, ms |")
    print("|---|---|---|---|")
    for nodes in SIZES:
        print(f"| {nodes:,} | " + " | ".join(f"{t:.1f}" for t in measured(network(nodes))) + " |")


if __name__ == "__main__":
    main()
