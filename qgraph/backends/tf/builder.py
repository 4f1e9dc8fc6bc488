"""Builds a GraphDef node by node, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from qgraph.backends.tf.messages import PRODUCER, new_message
from qgraph.errors import UnsupportedError
from qgraph.foreign import AttrValue, Proto
from qgraph.frontends.tf.node import DTYPES
from qgraph.ir.types import Array
from qgraph.names import Namespace, tensorflow_name


class GraphDefBuilder:
    """Appends NodeDefs to a GraphDef and keeps their names unique.

    A tensor is named as GraphDef names it: `node` or `node:1`.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.graph_def = new_message("GraphDef")
        self.graph_def.versions.producer = PRODUCER
        self._names = Namespace(tensorflow_name, reserved)
        self._scalars: dict[tuple[str, object], str] = {}
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self.dtypes: dict[str, str] = {}

    def unique(self, name: str) -> str:
        """A name that TensorFlow allows, and no other node has."""
        return self._names.fresh(name)

    def add(self, op: str, name: str, inputs: Sequence[str] = (), **attrs: AttrValue) -> str:
        """Append a node with a unique name.

        Attributes are Python values, dtypes and shapes as DType and Dims.
        """
        return self.add_exactly(op, self.unique(name), inputs, **attrs)

    def add_exactly(
        self, op: str, name: str, inputs: Sequence[str] = (), **attrs: AttrValue
    ) -> str:
        """Append a node under a name that was reserved for it."""
        node = self.graph_def.node.add()
        node.op, node.name = op, name
        node.input.extend(inputs)
        for key, value in attrs.items():
            self._set(node.attr[key], value)
        return name

    def add_library(self, library: bytes) -> None:
        """Add a serialized FunctionDefLibrary with the functions that nodes call."""
        known = {function.signature.name for function in self.graph_def.library.function}
        other = type(self.graph_def.library)()
        other.ParseFromString(library)
        for function in other.function:
            if function.signature.name not in known:
                self.graph_def.library.function.add().CopyFrom(function)

    def const(self, value: AttrValue, name: str) -> str:
        array = np.asarray(value)
        node = self.graph_def.node.add()
        node.op, node.name = "Const", self.unique(name)
        dtype = type_number(array.dtype.name)
        node.attr["dtype"].type = dtype
        tensor = node.attr["value"].tensor
        tensor.dtype = dtype
        for dim in array.shape:
            tensor.tensor_shape.dim.add().size = dim
        tensor.tensor_content = np.ascontiguousarray(array).tobytes()
        made: str = node.name
        self.dtypes[made] = array.dtype.name
        return made

    def shared(self, value: Array, name: str) -> str:
        """A constant that all nodes with the same numbers share."""
        key = (value.dtype.name, value.shape, value.tobytes())
        if key not in self._shared:
            self._shared[key] = self.const(value, name)
        return self._shared[key]

    def scalar(self, value: float | int, dtype: str) -> str:
        """A shared scalar constant."""
        key = (dtype, value)
        if key not in self._scalars:
            self._scalars[key] = self.const(np.asarray(value, dtype), f"qgraph/constants/{dtype}")
        return self._scalars[key]

    def _set(self, attr: Proto, value: AttrValue) -> None:
        if isinstance(value, DType):
            attr.type = type_number(value.name)
        elif isinstance(value, bool):
            attr.b = value
        elif isinstance(value, int):
            attr.i = value
        elif isinstance(value, float):
            attr.f = value
        elif isinstance(value, str):
            attr.s = value.encode()
        elif isinstance(value, Dims):
            set_shape(attr.shape, value)
        else:
            attr.list.SetInParent()
            attr.list.i.extend(int(v) for v in value)


class DType:
    """Marks an attribute value as a dtype."""

    def __init__(self, name: str) -> None:
        self.name = name


class Dims:
    """Marks an attribute value as a shape."""

    def __init__(self, dims: tuple[int | None, ...] | None) -> None:
        self.dims = dims


NUMBERS = {name: number for number, name in DTYPES.items()}


def type_number(dtype: str) -> int:
    """TensorFlow's number for a numpy type. Raises UnsupportedError for a type that it lacks."""
    if dtype not in NUMBERS:
        raise UnsupportedError(f"TensorFlow has no type `{dtype}`")
    return NUMBERS[dtype]


def set_shape(shape: Proto, dims: Dims) -> None:
    """Fill a TensorShapeProto."""
    shape.unknown_rank = dims.dims is None
    for dim in dims.dims or ():
        shape.dim.add().size = -1 if dim is None else dim
