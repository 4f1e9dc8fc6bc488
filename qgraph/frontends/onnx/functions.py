"""Inlining of the functions that a model defines, and of ops that ONNX defines by other ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from qgraph.errors import GraphError, LoadError
from qgraph.foreign import Proto

MAX_NODES = 1 << 18  # nodes, all calls inlined

Key = tuple[str, str]  # domain, name


def inlined(proto: Proto) -> Proto:
    """The model without functions.

    Raises GraphError for a function that calls itself, LoadError where the result is too large.
    """
    from onnx.inliner import inline_local_functions

    bodies = {(f.domain, f.name): f.node for f in proto.functions}
    sizes: dict[Key, int] = {}
    for key in _callees_first(bodies) if bodies else ():
        sizes[key] = _total(bodies[key], sizes)
    total = _total(proto.graph.node, sizes)
    if total > MAX_NODES:
        raise LoadError(f"the model has {total:,} nodes once its functions are inlined")
    return inline_local_functions(proto)


def by_other_ops(model: Proto) -> Proto | None:
    """`model`, which is one op, as the ops that ONNX's definition of it lists; None without one."""
    import onnx
    from onnx.inliner import inline_selected_functions

    op = model.graph.node[0]
    if op.domain:
        return None
    schema: Proto = onnx.defs.get_schema(op.op_type, model.opset_import[0].version)
    if not (schema.has_function or schema.has_context_dependent_function):
        return None
    whole, key = type(model)(), [(op.domain, op.op_type)]
    whole.CopyFrom(model)
    given = {attribute.name for attribute in op.attribute}
    whole.graph.node[0].attribute.extend(  # the inliner does not add defaults
        a.default_value
        for a in schema.attributes.values()
        if a.name not in given and a.default_value.name
    )
    try:
        made = inline_selected_functions(whole, key, inline_schema_functions=True)
    except Exception:  # ONNX may raise anything where a definition does not fit the types
        return None
    kinds = {node.op_type for node in made.graph.node}
    return None if op.op_type in kinds else made


def _callees_first(bodies: Mapping[Key, Sequence[Proto]]) -> list[Key]:
    """The functions, callees first. Raises GraphError for a function that calls itself."""
    import networkx  # slow to import, and few models have functions

    calls: networkx.DiGraph[Key] = networkx.DiGraph()
    calls.add_nodes_from(bodies)
    for caller, nodes in bodies.items():
        called = ((node.domain, node.op_type) for node in _all(nodes))
        calls.add_edges_from((key, caller) for key in called if key in bodies)
    try:
        return list(networkx.topological_sort(calls))
    except networkx.NetworkXUnfeasible:
        ((_, name), _), *_ = networkx.find_cycle(calls)
        raise GraphError("this function calls itself", node=name) from None


def _total(nodes: Sequence[Proto], sizes: Mapping[Key, int]) -> int:
    return sum(sizes.get((n.domain, n.op_type), 1) for n in _all(nodes))


def _all(nodes: Sequence[Proto]) -> Iterator[Proto]:
    """The nodes, and those of graphs inside them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _all(graph.node)
