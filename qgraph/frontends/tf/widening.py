"""A GraphDef in half precision as the same GraphDef in float32.

Types are attributes of nodes in TensorFlow. Every one of them that names a narrow float type is
rewritten, in functions too, so that opaque ops compute in float32 as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.foreign import Proto
from qgraph.frontends.tf.node import DTYPES
from qgraph.frontends.tf.refused import nodes_run
from qgraph.ir.narrow_floats import NARROW
from qgraph.ir.types import Array

FLOAT32 = 1  # types.proto
REFERENCE_TYPES = 100
READ_BITS = ("Bitcast", "DecodeRaw", "DecodePaddedRaw")


def widened(graph_def: Proto) -> tuple[Proto, frozenset[str]]:
    """`graph_def` without narrow float types, and the types it had; itself if it has none.

    Raises UnsupportedError for an op that reads the bits of a narrow float.
    """
    attributes = (value for node in nodes_run(graph_def) for value in node.attr.values())
    found = frozenset(name for value in attributes for name in _narrow(value))
    if not found:
        return graph_def, found
    result = type(graph_def)()
    result.CopyFrom(graph_def)
    for node in nodes_run(result):
        _check_bits(node)
        for value in node.attr.values():
            _widen(value)
    for function in result.library.function:
        signature = function.signature
        for argument in (*signature.input_arg, *signature.output_arg):
            argument.type = _wide(argument.type)
    return result, found


def _name(enum: int) -> str:
    return DTYPES.get(enum % REFERENCE_TYPES, "")


def _wide(enum: int) -> int:
    return enum - enum % REFERENCE_TYPES + FLOAT32 if _name(enum) in NARROW else enum


def _narrow(value: Proto) -> Iterable[str]:
    """The narrow float types that an attribute names."""
    kind = value.WhichOneof("value")
    enums: list[int] = []
    if kind == "type":
        enums = [value.type]
    elif kind == "tensor":
        enums = [value.tensor.dtype]
    elif kind == "list":
        enums = [*value.list.type, *(t.dtype for t in value.list.tensor)]
    return (name for name in map(_name, enums) if name in NARROW)


def _widen(value: Proto) -> None:
    kind = value.WhichOneof("value")
    if kind == "type":
        value.type = _wide(value.type)
    elif kind == "tensor":
        _widen_tensor(value.tensor)
    elif kind == "func":
        for inner in value.func.attr.values():
            _widen(inner)
    elif kind == "list":
        value.list.type[:] = [_wide(t) for t in value.list.type]
        for tensor in value.list.tensor:
            _widen_tensor(tensor)
        for function in value.list.func:
            for inner in function.attr.values():
                _widen(inner)


def _widen_tensor(tensor: Proto) -> None:
    """Keep the form of a tensor: bytes, or a few values of which the last one repeats."""
    dtype = _name(tensor.dtype)
    if dtype not in NARROW:
        return
    tensor.dtype = FLOAT32
    if tensor.tensor_content:
        whole = len(tensor.tensor_content) // 2 * 2
        bits = np.frombuffer(tensor.tensor_content[:whole], "<u2")
        tensor.tensor_content = _from_bits(bits, dtype).astype("<f4").tobytes()
    tensor.float_val.extend(_from_bits(np.array(tensor.half_val, np.uint16), dtype).tolist())
    tensor.ClearField("half_val")


def _from_bits(bits: Array, dtype: str) -> Array:
    if dtype == "bfloat16":  # the upper half of a float32
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.astype(np.uint16).view(np.float16).astype(np.float32)


def _check_bits(node: Proto) -> None:
    if node.op in READ_BITS and any(name for v in node.attr.values() for name in _narrow(v)):
        raise UnsupportedError(
            f"`{node.op}` reads the bits of a half-precision number, which is imported as float32",
            node=node.name,
            hint="exclude it: choose --inputs and --outputs that do not need it",
        )
