"""Ops with effects outside a network: files, Python, sockets, printing, state. They are never run.

TensorFlow runs opaque ops during calibration, so an op is allowed only if TensorFlow declares it
stateless, or if it is listed here. Functions that an op calls are checked as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from qgraph.errors import UnsupportedError
from qgraph.foreign import Proto

# Declared stateless by TensorFlow, but with effects outside.
OUTSIDE = re.compile(
    r"ReadFile|MatchingFiles|PyFunc|Dataset|^Reader|TextFile|Remote|ImmutableConst|^Abort$"
    r"|^(Un)?Batch(Function|Grad)?$|^Copy(Host)?$|^Debug|^_?(Xla|TPU|Nccl|Collective)"
)
CALLS = ("If", "Case", "StatefulPartitionedCall")  # stateful if the called function is
# Declared stateful because they draw numbers, check something, or call functions.
HARMLESS = re.compile(
    r"If|Case|While|StatefulPartitionedCall|CheckNumerics(V2)?|Assert|GuaranteeConst|Empty"
    r"|Random\w+|(Parameterized)?TruncatedNormal|Multinomial|StatelessRandom\w+|CudnnRNN\w*"
    r"|TensorArray\w+|(Mutable)?HashTable(V2)?|LookupTable(Find|Size)(V2)?"
)


def check_harmless(node: Proto, library: bytes) -> None:
    """Raise UnsupportedError if the NodeDef `node`, or a function it calls, has effects outside."""
    for op in _ops(node, library):
        if not is_harmless(op):
            raise UnsupportedError(
                f"`{op}` has effects outside the network (files, Python, state): it is not run",
                node=node.name,
                hint="exclude it: --inputs and --outputs choose the part to quantize",
            )


def is_harmless(op: str) -> bool:
    """Whether an op only computes; true for an op that the installed TensorFlow lacks."""
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(op)
    if definition is None:
        return True
    if definition.is_stateful:
        return HARMLESS.fullmatch(op) is not None
    return OUTSIDE.search(op) is None


def is_pure(node: Proto, library: bytes) -> bool:
    """Whether the NodeDef `node` gives results that depend only on its inputs."""
    from tensorflow.python.framework import op_def_registry

    definitions = {op: op_def_registry.get(op) for op in _ops(node, library)}
    return all(
        op in CALLS or (is_harmless(op) and (definition is None or not definition.is_stateful))
        for op, definition in definitions.items()
    )


def needed_functions(node: Proto, library: bytes) -> list[Proto]:
    """The functions that an op calls, and those that they call."""
    import tensorflow as tf

    found = tf.compat.v1.GraphDef()
    found.library.ParseFromString(library)
    functions = {f.signature.name: f for f in found.library.function}
    needed: dict[str, Proto] = {}
    called = list(_called(node))
    while called:
        name = called.pop()
        if name in functions and name not in needed:
            needed[name] = functions[name]
            for inner in functions[name].node_def:
                called += _called(inner)
    return list(needed.values())


def _ops(node: Proto, library: bytes) -> Iterator[str]:
    """Names of the op and of all ops that it may call."""
    yield node.op
    for function in needed_functions(node, library):
        yield from (inner.op for inner in function.node_def)


def _called(node: Proto) -> Iterator[str]:
    yield node.op  # a function may be called by its own name
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        yield from (function.name for function in value.list.func)
