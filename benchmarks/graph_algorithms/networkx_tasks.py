"""Tasks in qgraph and networkx: order, reachability, single sources, sets and patterns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx
from networkx.algorithms.isomorphism import DiGraphMatcher
from networkx.utils import UnionFind

from benchmarks.graph_algorithms import examples
from benchmarks.graph_algorithms.timing import Task
from qgraph.errors import GraphError
from qgraph.ir.graph import Graph
from qgraph.rewrite.channels import ChannelUnion
from qgraph.rewrite.functions import MAX_STEPS, single_sources
from qgraph.rewrite.pattern import Op, Var, match

CHANNELS = 16  # channels of a value
ROOTS = 20  # results whose single sources are searched


# -- order and reachability --------------------------------------------------------------------


def order_tasks(nodes: int) -> Iterator[Task]:
    graph, cyclic = examples.skips(nodes), examples.cyclic(nodes)
    (output,) = graph.outputs.values()

    def construct() -> Any:
        return examples.as_networkx(graph)

    yield Task(
        "topological order",
        nodes,
        lambda: len(graph.computed_order()),
        lambda made: len(list(networkx.topological_sort(made))),
        construct,
    )
    yield Task(
        "ancestors of the output",
        nodes,
        lambda: graph.ancestors([output]),
        lambda made: networkx.ancestors(made, output) | {output},
        construct,
    )
    yield Task(
        "find a cycle",
        nodes,
        lambda: has_cycle(cyclic),
        lambda made: bool(networkx.find_cycle(made)),
        lambda: examples.as_networkx(cyclic),
    )


def has_cycle(graph: Graph) -> bool:
    try:
        graph.computed_order()
    except GraphError:
        return True
    return False


# -- single sources and sets -------------------------------------------------------------------


def set_tasks(nodes: int) -> Iterator[Task]:
    graph = examples.swishes(nodes)
    results = [node.name for node in graph.topological() if node.op == "mul"]
    roots = results[:: len(results) // ROOTS][:ROOTS]
    yield Task(
        f"single sources of {ROOTS} values",
        nodes,
        lambda: own_sources(graph, roots),
        lambda made: [dominators(made, root) for root in roots],
        lambda: examples.as_networkx(graph).reverse(copy=False),
    )
    title = f"union of {CHANNELS} channels a node"
    yield Task(title, nodes, lambda: own_union(nodes), lambda _: library_union(nodes))


def own_sources(graph: Graph, roots: list[str]) -> list[list[str]]:
    order = {node.name: index for index, node in enumerate(graph.topological())}
    found = (
        single_sources(graph, root, order, lambda node: node.op != "input", lambda value: False)
        for root in roots
    )
    return [[source for source, _ in sources] for sources in found]


def dominators(turned: networkx.DiGraph[str], root: str) -> list[str]:
    """The nodes that are on every path from the input to `root`, the nearest first.

    As in qgraph, only nodes with at most `MAX_STEPS` nodes between them and the root.
    """
    above = networkx.immediate_dominators(turned, root)
    found, node = [], "x"
    while node != root:
        found.append(node)
        node = above[node]
    return found[::-1][: MAX_STEPS // 2]


def own_union(values: int) -> int:
    """The number of sets if each value has the channels of the previous value."""
    union = ChannelUnion()
    before = union.new(CHANNELS)
    for _ in range(values - 1):
        channels = union.new(CHANNELS)
        union.join(before, channels)
        before = channels
    return len({union.root(i) for i in range(values * CHANNELS)})


def library_union(values: int) -> int:
    union: UnionFind[int] = UnionFind()
    for i in range((values - 1) * CHANNELS):
        union.union(i, i + CHANNELS)
    return len({union[i] for i in range(values * CHANNELS)})


# -- matching ----------------------------------------------------------------------------------


def match_tasks() -> Iterator[Task]:
    x = Var("x")
    layer = Op("relu6", Op("batch_norm", Op("conv2d", x, Var("w")), *map(Var, "abcd")))
    swish = Op("mul", x, Op("sigmoid", x))
    for title, graph, pattern in (
        ("match relu6(batch_norm(conv2d)), digits", examples.digits(), layer),
        ("match x * sigmoid(x), random graph", examples.random_graph(2_000), swish),
    ):
        yield match_task(title, graph, pattern)


def match_task(title: str, graph: Graph, pattern: Op) -> Task:
    wanted = as_pattern(pattern)

    def own() -> set[str]:
        return {name for name in graph.nodes if match(graph, name, pattern) is not None}

    def library(made: Any) -> set[str]:
        matcher = DiGraphMatcher(made, wanted, node_match=is_op)
        ways = matcher.subgraph_monomorphisms_iter()
        return {name for way in ways for name, role in way.items() if role == "root"}

    return Task(title, len(graph.nodes), own, library, lambda: examples.as_networkx(graph))


def is_op(node: dict[str, str], wanted: dict[str, str]) -> bool:
    return wanted["op"] in ("", node["op"])


def as_pattern(pattern: Op) -> networkx.DiGraph[str]:
    """The pattern in networkx. Variables match any op. The order of inputs is lost in a
    `DiGraph`.
    """
    made: networkx.DiGraph[str] = networkx.DiGraph()

    def add(part: Any, name: str) -> str:
        if isinstance(part, Var):
            made.add_node(part.name, op="")
            return part.name
        made.add_node(name, op=part.op)
        for index, needed in enumerate(part.inputs):
            made.add_edge(add(needed, f"{name}/{index}"), name)
        return name

    add(pattern, "root")
    return made
