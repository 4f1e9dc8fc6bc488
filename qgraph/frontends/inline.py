"""Calls of functions (`PartitionedCall`) written out in their callers."""

from __future__ import annotations

from typing import Any

CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def inline_calls(graph_def: Any) -> Any:
    """`graph_def` itself if it calls nothing, else a copy in which the bodies stand for the calls.

    A call becomes an IdentityN of the same name over what its body returns, so that its users
    need no change; the body's nodes are named `call/node`. Branches and loops are no calls.
    """
    functions = {f.signature.name: f for f in graph_def.library.function}
    if not any(_called(node, functions) for node in graph_def.node):
        return graph_def
    import tensorflow as tf

    result = tf.compat.v1.GraphDef(versions=graph_def.versions, library=graph_def.library)
    bodies: dict[str, tuple[Any, dict[str, str]]] = {}
    waiting = list(reversed(graph_def.node))
    while waiting:
        node = waiting.pop()
        name = _called(node, functions)
        if name is None:
            result.node.append(node)
            continue
        if name not in bodies:
            bodies[name] = _body(functions[name])
        waiting += _written_out(node, functions[name], *bodies[name])
    return result


def _called(node: Any, functions: dict[str, Any]) -> str | None:
    name = node.attr["f"].func.name if node.op in CALLS else node.op
    return name if name in functions else None


def _body(function: Any) -> tuple[Any, dict[str, str]]:
    """The function's body as a GraphDef, and its tensors' names in there."""
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph_def

    graph_def, flat_names = function_def_to_graph_def(function)
    return graph_def, dict(flat_names)


def _written_out(call: Any, function: Any, body: Any, flat_names: dict[str, str]) -> list[Any]:
    data = [i for i in call.input if not i.startswith("^")]
    arguments = dict(zip((a.name for a in function.signature.input_arg), data, strict=True))
    nodes = []
    for inner in body.node:
        node = type(inner)()
        node.CopyFrom(inner)
        node.name = f"{call.name}/{inner.name}"
        if inner.name in arguments:
            dtype = inner.attr["dtype"].type
            node.Clear()
            node.name, node.op = f"{call.name}/{inner.name}", "Identity"
            node.input.append(arguments[inner.name])
            node.attr["T"].type = dtype
        else:
            node.input[:] = [_inside(call.name, i) for i in inner.input]
        nodes.append(node)
    results = type(call)(name=call.name, op="IdentityN")
    for output in function.signature.output_arg:
        tensor = function.ret[output.name]
        results.input.append(_inside(call.name, flat_names.get(tensor, tensor)))
        results.attr["T"].list.type.append(output.type)
    return [*nodes, results]


def _inside(call: str, tensor: str) -> str:
    return f"^{call}/{tensor[1:]}" if tensor.startswith("^") else f"{call}/{tensor}"
