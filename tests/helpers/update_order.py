"""The order of reads and updates of variables in the graphs that TensorFlow runs.

TensorFlow orders them when it builds a function. Its graph optimizer removes control edges that
other paths imply, and may later remove such a path, for instance one through an `IdentityN` of a
function with a custom gradient. Then a variable is read before or after its update by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unordered_reads() -> Iterator[list[tuple[str, str]]]:
    """Fills a list with (update, read) of one variable without an order, in all that was run."""
    from tensorflow.python.eager import context

    running, found = context.context(), []
    running.enable_graph_collection()
    try:
        yield found
        for graphs in running.export_run_metadata().function_graphs:
            found += _unordered(graphs.post_optimization_graph)
    finally:
        running.disable_graph_collection()


def _unordered(graph) -> list[tuple[str, str]]:
    nodes = {node.name: node for node in graph.node}

    def variable(name: str) -> str:
        while nodes[name].op == "Identity":
            name = _source(nodes[name].input[0])
        return name

    def before(name: str) -> set[str]:
        seen, waiting = set(), [name]
        while waiting:
            sources = {_source(edge) for edge in nodes[waiting.pop()].input}
            waiting += sources - seen
            seen |= sources
        return seen

    reads = [node.name for node in graph.node if node.op == "ReadVariableOp"]
    of = {name: variable(_source(nodes[name].input[0])) for name in reads}
    updates = [n for n in graph.node if n.op.startswith(("Assign", "ResourceApply"))]
    return [
        (update.name, read)
        for update in updates
        for read in reads
        if of[read] == variable(_source(update.input[0]))
        and read not in before(update.name)
        and update.name not in before(read)
    ]


def _source(edge: str) -> str:
    return edge.lstrip("^").split(":")[0]
