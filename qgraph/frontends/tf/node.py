"""Views of TensorFlow's GraphDef: nodes, tensor references, dtypes and constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError, LoadError
from qgraph.foreign import Proto
from qgraph.frontends.site import Ref
from qgraph.frontends.tf.schemas import no_effect
from qgraph.ir.types import Array, Shape

MAX_ELEMENTS = 1 << 28  # elements of a constant that does not store each of them

# tensorflow/core/framework/types.proto; reference dtypes are these plus 100.
DTYPES: Mapping[int, str] = MappingProxyType(
    {
        1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string",
        8: "complex64", 9: "int64", 10: "bool", 11: "qint8", 12: "quint8", 13: "qint32",
        14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16", 18: "complex128",
        19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64",
    }
)  # fmt: skip
NOT_NUMPY = frozenset(
    ("string", "resource", "variant", "qint8", "quint8", "qint32", "qint16", "quint16")
)


@dataclass(frozen=True)
class TFNode:
    """One NodeDef with parsed input strings."""

    name: str
    op: str
    inputs: tuple[Ref, ...]
    control: tuple[str, ...]
    proto: Proto
    attrs: Mapping[str, Proto]  # as in the NodeDef: name -> AttrValue

    @property
    def label(self) -> str:
        """The name of the op in the file."""
        return self.op

    def with_attrs(self, attrs: Mapping[str, Proto]) -> TFNode:
        return replace(self, attrs=attrs)

    def value_as_text(self, key: str) -> str:
        text = str(self.attrs[key])
        kind, _, value = text.partition(": ")  # `f: 0.3`, but `list { i: 1 }`
        return value if kind.isidentifier() else text

    def may_ignore(self, key: str) -> bool:
        return no_effect(self.op, key, self.attrs[key])

    def has(self, key: str) -> bool:
        return key in self.attrs

    def integer(self, key: str, default: int = 0) -> int:
        return int(self.attrs[key].i) if self.has(key) else default

    def real(self, key: str, default: float) -> float:
        """A float32, `default` too, so that leaving it out changes nothing."""
        return float(self.attrs[key].f) if self.has(key) else float(np.float32(default))

    def flag(self, key: str, default: bool = False) -> bool:
        return bool(self.attrs[key].b) if self.has(key) else default

    def text(self, key: str, default: str = "") -> str:
        return self.attrs[key].s.decode() if self.has(key) else default

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(s.decode() for s in self.attrs[key].list.s) if self.has(key) else ()

    def function(self, key: str) -> str:
        """The name of the function in attribute `key`."""
        return str(self.attrs[key].func.name)

    def inside(self, call: str) -> TFNode:
        """The node of a function's body in the call of that name."""
        inputs = tuple((f"{call}/{name}", index) for name, index in self.inputs)
        control = tuple(f"{call}/{name}" for name in self.control)
        return replace(self, name=f"{call}/{self.name}", inputs=inputs, control=control)

    def integers(self, key: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        found = tuple(int(i) for i in self.attrs[key].list.i) if self.has(key) else ()
        return found or default

    def dtype(self, key: str = "T", default: str = "float32") -> str:
        return DTYPES.get(self.attrs[key].type % 100, default) if self.has(key) else default

    def shape(self, key: str = "shape") -> Shape | None:
        """The shape in attribute `key`; None where its rank is unknown or it is missing."""
        return shape_of(self.attrs[key].shape) if self.has(key) else None

    def recorded_shape(self) -> Shape | None:
        """The shape that the exporter recorded (`_output_shapes`), if any."""
        shapes = self.attrs["_output_shapes"].list.shape if self.has("_output_shapes") else ()
        return shape_of(shapes[0]) if shapes else None


def shape_of(proto: Proto) -> Shape | None:
    if proto.unknown_rank:
        return None
    return tuple(None if d.size < 0 else int(d.size) for d in proto.dim)


def parse_ref(text: str) -> Ref:
    """`name` or `name:2` as node name and output index."""
    head, colon, tail = text.rpartition(":")
    return (head, int(tail)) if colon and tail.isdigit() else (text, 0)


def read_nodes(graph_def: Proto) -> dict[str, TFNode]:
    """Every node by name, in file order. Raises GraphError at a name used twice."""
    nodes: dict[str, TFNode] = {}
    for proto in graph_def.node:
        inputs = list(proto.input)
        data = tuple(parse_ref(i) for i in inputs if not i.startswith("^"))
        control = tuple(i[1:] for i in inputs if i.startswith("^"))
        if proto.name in nodes:
            raise GraphError("two nodes have this name", node=proto.name)
        nodes[proto.name] = TFNode(proto.name, proto.op, data, control, proto, proto.attr)
    return nodes


def _stored(proto: Proto) -> int:
    """The number of stored values of a tensor."""
    return sum(len(values) for field, values in proto.ListFields() if field.name.endswith("_val"))


def decode_constant(node: TFNode) -> Array:
    """The array of a Const node; read-only; a view of the bytes of the file where possible.

    Raises LoadError where the tensor's data does not fit its shape.
    """
    proto = node.attrs["value"].tensor
    shape = tuple(int(d.size) for d in proto.tensor_shape.dim)
    name = DTYPES.get(proto.dtype, "")
    content = proto.tensor_content
    if content and name not in NOT_NUMPY and name != "bfloat16":
        dtype = np.dtype(name)
        if len(content) == math.prod(shape) * dtype.itemsize:
            return np.frombuffer(content, dtype).reshape(shape)
    import tensorflow as tf

    if math.prod(shape) > MAX_ELEMENTS:
        raise LoadError(f"a constant of {math.prod(shape):,} elements", node=node.name)
    try:
        if name not in NOT_NUMPY and _stored(proto) == 1:  # one value for all elements: keep it
            alone = type(proto)()
            alone.CopyFrom(proto)
            alone.ClearField("tensor_shape")
            return np.broadcast_to(tf.make_ndarray(alone), shape)
        array: Array = tf.make_ndarray(proto)
    except (MemoryError, TypeError, ValueError) as error:
        raise LoadError(f"the constant cannot be decoded: {error}", node=node.name) from None
    return array
