"""Inline calls of functions; a branch whose condition is known counts as a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qgraph.errors import GraphError
from qgraph.foreign import Proto

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
BRANCHES = ("If", "StatelessIf")
MAX_DEPTH = 300
MAX_NODES = 1 << 18  # nodes, after inlining of all calls
BOOL = 10  # types.proto
PASSED = ("Identity", "PlaceholderWithDefault", "ReadVariableOp")


def inline_calls(graph_def: Proto) -> Proto:
    """`graph_def` itself if it calls nothing, else a copy in which bodies replace calls.

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
    bodies: dict[str, Body] = {}
    waiting = list(reversed(graph_def.node))
    while waiting:
        node = waiting.pop()
        name = _called(node, functions, nodes)
        if name is None:
            result.node.append(node)
            continue
        if node.name.count("/") > MAX_DEPTH:
            raise GraphError("functions call each other endlessly", node=name)
        try:
            if name not in bodies:
                bodies[name] = _body(functions[name], functions)
            prefix = _free_prefix(node.name, bodies[name], nodes)
            written = _written_out(node, prefix, functions[name], bodies[name])
        except (LookupError, TypeError, ValueError) as error:
            raise GraphError(
                f"the call of `{name}` is malformed: {error}", node=node.name
            ) from None
        nodes.update((n.name, n) for n in written)
        if len(nodes) > MAX_NODES:
            raise GraphError(
                f"the graph has more than {MAX_NODES:,} nodes once its calls are inlined", node=name
            )
        waiting += written
    return result


def function_body(library: bytes, name: str) -> tuple[Proto, list[str], list[str]]:
    """The body of a function as a graph without calls, its arguments and its results.

    library: a FunctionDefLibrary. Raises GraphError for a function that does not exist, or is
    malformed.
    """
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef()
    graph_def.library.ParseFromString(library)
    functions = {f.signature.name: f for f in graph_def.library.function}
    try:
        function = functions[name]
        body = _body(function, functions)
        results = [body.tensor(function.ret[a.name]) for a in function.signature.output_arg]
    except (LookupError, TypeError, ValueError) as error:
        raise GraphError(f"the function `{name}` is malformed: {error}") from None
    graph_def.node.extend(body.nodes)
    return (
        inline_calls(graph_def),
        [argument.name for argument in function.signature.input_arg],
        results,
    )


def _called(node: Proto, functions: dict[str, Proto], nodes: dict[str, Proto]) -> str | None:
    """The function that `node` certainly calls, if there is one."""
    if not functions:
        return None
    name = node.attr["f"].func.name if node.op in CALLS else node.op
    if node.op in BRANCHES and node.input:
        condition = _condition(node.input[0], nodes)
        if condition is not None:
            name = node.attr["then_branch" if condition else "else_branch"].func.name
    return name if name in functions else None


def _condition(tensor: str, nodes: dict[str, Proto]) -> bool | None:
    """The single boolean of `tensor`, through identities; None if it is not constant."""
    node = nodes.get(tensor.removesuffix(":0"))
    for _ in range(len(nodes)):
        if node is None or node.op not in PASSED or not node.input:
            break
        node = nodes.get(node.input[0].removesuffix(":0"))
    if node is None or node.op != "Const" or node.attr["dtype"].type != BOOL:
        return None
    value = node.attr["value"].tensor
    return any(value.bool_val) or value.tensor_content == b"\1"


def _body(function: Proto, functions: Mapping[str, Proto]) -> Body:
    """The nodes of a function, its arguments among them, with their inputs named as in graphs."""
    import tensorflow as tf

    nodes = []
    for i, argument in enumerate(function.signature.input_arg):
        nodes.append(tf.compat.v1.NodeDef(name=argument.name, op="Placeholder"))
        nodes[-1].attr["dtype"].type = argument.type
        shapes = function.arg_attr[i].attr["_output_shapes"].list.shape
        if shapes:
            nodes[-1].attr["shape"].shape.CopyFrom(shapes[0])
    body = Body(nodes, {node.name: node for node in function.node_def}, functions)
    for inner in function.node_def:
        node = tf.compat.v1.NodeDef()
        node.CopyFrom(inner)
        node.input[:] = [body.tensor(text) for text in inner.input]
        nodes.append(node)
    return body


@dataclass(frozen=True)
class Body:
    """A function's body: nodes, and names in a graph for its tensors `node:output:index`."""

    nodes: list[Proto]
    inner: Mapping[str, Proto]
    functions: Mapping[str, Proto]

    def tensor(self, text: str) -> str:
        """`node:index` for `node:output:index`; arguments and control edges stay as they are."""
        name, colon, rest = text.partition(":")
        if not colon or text.startswith("^"):
            return text
        output, _, index = rest.partition(":")
        node, first = self.inner[name], 0
        for argument in self._outputs(node.op):
            if argument.name == output:
                return f"{name}:{first + int(index or 0)}"
            first += _count(argument, node)
        raise ValueError(f"`{name}` has no output `{output}`")

    def _outputs(self, op: str) -> Proto:
        from tensorflow.python.framework import op_def_registry

        if op in self.functions:
            return self.functions[op].signature.output_arg
        definition = op_def_registry.get(op)
        if definition is None:
            raise ValueError(f"op `{op}` is unknown to the installed TensorFlow")
        return definition.output_arg


def _count(argument: Proto, node: Proto) -> int:
    """The number of tensors of one output of an op."""
    if argument.number_attr:
        return int(node.attr[argument.number_attr].i)
    if argument.type_list_attr:
        return len(node.attr[argument.type_list_attr].list.type)
    return 1


def _free_prefix(call: str, body: Body, nodes: dict[str, Proto]) -> str:
    """A prefix that gives the body's nodes fresh names: the call's name if possible."""
    prefix, count = call, 0
    while any(f"{prefix}/{node.name}" in nodes for node in body.nodes):
        count += 1
        prefix = f"{call}_{count}"
    return prefix


def _written_out(call: Proto, prefix: str, function: Proto, body: Body) -> list[Proto]:
    data = [i for i in call.input if not i.startswith("^")]
    if call.op in BRANCHES:
        del data[0]
    arguments = dict(zip((a.name for a in function.signature.input_arg), data, strict=True))
    nodes = []
    for inner in body.nodes:
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
        results.input.append(_inside(prefix, body.tensor(tensor)))
        results.attr["T"].list.type.append(output.type)
    return [*nodes, results]


def _inside(prefix: str, tensor: str) -> str:
    return f"^{prefix}/{tensor[1:]}" if tensor.startswith("^") else f"{prefix}/{tensor}"
