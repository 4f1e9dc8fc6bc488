"""Functions that a model brings along: their bodies in place of their calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qgraph.errors import GraphError, LoadError
from qgraph.foreign import Proto

LARGEST = 1 << 18  # nodes, all calls inlined

Key = tuple[str, str]  # domain, name


def inlined(proto: Proto) -> Proto:
    """The model without functions.

    Raises GraphError for a function that calls itself, LoadError where the result is a giant.
    """
    from onnx.inliner import inline_local_functions

    sizes: dict[Key, int] = {}
    bodies = {(f.domain, f.name): f.node for f in proto.functions}
    for key in bodies:
        _measure(key, bodies, sizes)
    total = _total(proto.graph.node, bodies, sizes)
    if total > LARGEST:
        raise LoadError(f"the model's functions make {total:,} nodes of it")
    return inline_local_functions(proto)


def _measure(key: Key, bodies: dict[Key, Proto], sizes: dict[Key, int]) -> None:
    """Write the size of each function that `key` needs, its own last."""
    path = {key: _calls(bodies[key], bodies)}
    while path:
        current = next(reversed(path))
        for need in path[current]:
            if need in path:
                raise GraphError("this function calls itself", node=need[1])
            if need not in sizes:
                path[need] = _calls(bodies[need], bodies)
                break
        else:
            path.popitem()
            sizes[current] = _total(bodies[current], bodies, sizes)


def _calls(nodes: Sequence[Proto], bodies: dict[Key, Proto]) -> Iterator[Key]:
    return iter(dict.fromkeys(k for n in _all(nodes) if (k := (n.domain, n.op_type)) in bodies))


def _total(nodes: Sequence[Proto], bodies: dict[Key, Proto], sizes: dict[Key, int]) -> int:
    return sum(sizes.get((n.domain, n.op_type), 1) for n in _all(nodes))


def _all(nodes: Sequence[Proto]) -> Iterator[Proto]:
    """The nodes, and those of graphs inside of them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _all(graph.node)
