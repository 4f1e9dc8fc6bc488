"""Calls of functions written out in their callers; a branch of a known condition is a call."""

from __future__ import annotations

from typing import Any

from qgraph.errors import GraphError

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
BRANCHES = ("If", "StatelessIf")
DEEPEST = 300
BOOL = 10  # types.proto
PASSED = ("Identity", "PlaceholderWithDefault", "ReadVariableOp")


def inline_calls(graph_def: Any) -> Any:
    """`graph_def` itself if it calls nothing, else a copy in which the bodies stand for the calls.

    A call becomes an IdentityN of the same name over what its body returns, so that its users
    need no change; the body's nodes are named `call/node`. Loops, and branches whose condition
    is not constant, stay as they are. Raises GraphError for a call that does not fit.
    """
    functions = {f.signature.name: f for f in graph_def.library.function}
    nodes = {node.name: node for node in graph_def.node}
    if not any(_called(node, functions, nodes) for node in graph_def.node):
        return graph_def
    import tensorflow as tf

    result = tf.compat.v1.GraphDef(versions=graph_def.versions, library=graph_def.library)
    bodies: dict[str, tuple[Any, dict[str, str]]] = {}
    waiting = list(reversed(graph_def.node))
    while waiting:
        node = waiting.pop()
        name = _called(node, functions, nodes)
        if name is None:
            result.node.append(node)
            continue
        if node.name.count("/") > DEEPEST:
            raise GraphError("functions call each other without end", node=name)
        try:
            if name not in bodies:
                bodies[name] = _body(functions[name])
            prefix = _free_prefix(node.name, bodies[name][0], nodes)
            written = _written_out(node, prefix, functions[name], *bodies[name])
        except (LookupError, TypeError, ValueError) as error:
            raise GraphError(
                f"the call of `{name}` is malformed: {error}", node=node.name
            ) from None
        nodes.update((n.name, n) for n in written)
        waiting += written
    return result


def _called(node: Any, functions: dict[str, Any], nodes: dict[str, Any]) -> str | None:
    """The function that `node` is sure to call, if there is one."""
    if not functions:
        return None
    name = node.attr["f"].func.name if node.op in CALLS else node.op
    if node.op in BRANCHES and node.input:
        condition = _condition(node.input[0], nodes)
        if condition is not None:
            name = node.attr["then_branch" if condition else "else_branch"].func.name
    return name if name in functions else None


def _condition(tensor: str, nodes: dict[str, Any]) -> bool | None:
    """The single boolean behind `tensor` where it is constant, else None."""
    node = nodes.get(tensor.removesuffix(":0"))
    for _ in range(len(nodes)):
        if node is None or node.op not in PASSED or not node.input:
            break
        node = nodes.get(node.input[0].removesuffix(":0"))
    if node is None or node.op != "Const" or node.attr["dtype"].type != BOOL:
        return None
    value = node.attr["value"].tensor
    return any(value.bool_val) or value.tensor_content == b"\1"


def _body(function: Any) -> tuple[Any, dict[str, str]]:
    """The function's body as a GraphDef, and its tensors' names in there."""
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph_def

    graph_def, flat_names = function_def_to_graph_def(function)
    return graph_def, dict(flat_names)


def _free_prefix(call: str, body: Any, nodes: dict[str, Any]) -> str:
    """A prefix under which the body's nodes take nobody's names: the call's name if it can be."""
    prefix, count = call, 0
    while any(f"{prefix}/{node.name}" in nodes for node in body.node):
        count += 1
        prefix = f"{call}_{count}"
    return prefix


def _written_out(
    call: Any, prefix: str, function: Any, body: Any, flat_names: dict[str, str]
) -> list[Any]:
    data = [i for i in call.input if not i.startswith("^")]
    if call.op in BRANCHES:
        del data[0]
    arguments = dict(zip((a.name for a in function.signature.input_arg), data, strict=True))
    nodes = []
    for inner in body.node:
        node = type(inner)()
        node.CopyFrom(inner)
        node.name = f"{prefix}/{inner.name}"
        if inner.name in arguments:
            dtype = inner.attr["dtype"].type
            node.Clear()
            node.name, node.op = f"{prefix}/{inner.name}", "Identity"
            node.input.append(arguments[inner.name])
            node.attr["T"].type = dtype
        else:
            node.input[:] = [_inside(prefix, i) for i in inner.input]
        nodes.append(node)
    results = type(call)(name=call.name, op="IdentityN")
    for output in function.signature.output_arg:
        tensor = function.ret[output.name]
        results.input.append(_inside(prefix, flat_names.get(tensor, tensor)))
        results.attr["T"].list.type.append(output.type)
    return [*nodes, results]


def _inside(prefix: str, tensor: str) -> str:
    return f"^{prefix}/{tensor[1:]}" if tensor.startswith("^") else f"{prefix}/{tensor}"
