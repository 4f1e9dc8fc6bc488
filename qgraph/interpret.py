"""The float reference interpreter: run a graph in numpy, one node after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from qgraph.errors import GraphError, UnsupportedError, UsageError
from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.types import Array, type_of


def evaluate(
    graph: Graph, feeds: Mapping[str, Array], fetch: Sequence[str] | None = None
) -> dict[str, Array]:
    """Run `graph` on `feeds` (input name -> array of the input's dtype and shape).

    Returns the outputs by public name, or the values or outputs that `fetch` names; a value takes
    precedence over an output of the same name. Only the nodes that they need are run. Raises
    UsageError for a feed that is missing, unknown or does not fit, GraphError for a value that does
    not exist, UnsupportedError for an op without a float reference.
    """
    public = graph.outputs
    named = {name: name if name in graph.types else public.get(name, name) for name in fetch or ()}
    wanted = dict(public) if fetch is None else named
    for value in wanted.values():
        if value not in graph.types:
            raise GraphError("the graph has no value of this name", node=value)
    order = needed_for(graph, wanted.values())
    _check_feeds(graph, feeds, order)
    values = {node.name: np.asarray(feeds[node.name]) for node in order if node.op == "input"}
    for _ in run_nodes([n for n in order if n.op != "input"], values, {*wanted.values()}):
        pass
    return {public: values[value] for public, value in wanted.items()}


def run_nodes(
    nodes: Sequence[Node],
    values: dict[str, Array],
    keep: Collection[str] = (),
    run: Callable[[Node, list[Array]], tuple[Array, ...]] | None = None,
) -> Iterator[Node]:
    """Run `nodes` in order on `values`, which also receives the results. Yields after each node.

    A result without later users is removed before the next node, unless it is in `keep`. run: a
    function to use instead of `run_node`.
    """
    left = Counter(v for node in nodes for v in node.inputs)
    made: set[str] = set()
    for node in nodes:
        results = (run or run_node)(node, [values[v] for v in node.inputs])
        values.update(zip(node.values, results, strict=True))
        yield node
        made.update(node.values)
        left.subtract(node.inputs)
        for value in {*node.inputs, *node.values} & made:
            if left[value] <= 0 and value not in keep:
                values.pop(value, None)


def run_node(node: Node, inputs: Sequence[Array], in_place: bool = False) -> tuple[Array, ...]:
    """The results of one node, one array for each of `node.values`.

    in_place: whether an op may write the result to the memory of its first input. There are no
    warnings about floating-point exceptions. Raises UnsupportedError for an op without a float
    reference, GraphError for inputs that the op cannot be computed from.
    """
    definition = op_definition(node.op, node.name)
    if definition.evaluate is None:
        raise UnsupportedError(f"`{node.op}` has no float reference", node=node.name)
    try:
        with np.errstate(all="ignore"):
            if in_place and definition.in_place and inputs[0].flags.writeable:
                result = definition.in_place(node.attributes, inputs)
            else:
                result = definition.evaluate(node.attributes, inputs)
    except GraphError as error:
        raise GraphError(error.message, node=error.node or node.name, hint=error.hint) from None
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        shapes = ", ".join(str(list(np.shape(i))) for i in inputs)
        message = f"`{node.op}` cannot be computed from inputs of shape {shapes}: {error}"
        raise GraphError(message, node=node.name) from None
    results = result if isinstance(result, tuple) else (result,)
    return tuple(np.asarray(r) for r in results)


def needed_for(graph: Graph, wanted: Iterable[str]) -> list[Node]:
    """The nodes that the values `wanted` need, in order."""
    needs = {node_of(v) for v in wanted}
    order = graph.topological()
    for node in reversed(order):
        if node.name in needs:
            needs.update(node_of(v) for v in node.inputs)
    return [node for node in order if node.name in needs]


def _check_feeds(graph: Graph, feeds: Mapping[str, Array], order: Sequence[Node]) -> None:
    listed = ", ".join(f"`{i}` {graph.types[i]}" for i in graph.inputs)
    for name in feeds:
        if name not in graph.inputs:
            raise UsageError(f"`{name}` is not an input of the network", hint=f"inputs: {listed}")
    for node in order:
        if node.op != "input":
            continue
        if node.name not in feeds:
            raise UsageError(f"no data for input `{node.name}`", hint=f"inputs: {listed}")
        found, promised = type_of(np.asarray(feeds[node.name])), graph.types[node.name]
        if not promised.accepts(found):
            raise UsageError(f"input `{node.name}` is {promised}, but the data is {found}")
