"""Builds a GraphDef node by node. TensorFlow is imported when a builder is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from qgraph.foreign import AttrValue, Proto
from qgraph.ir.types import Array
from qgraph.names import Namespace, tensorflow_name


class GraphDefBuilder:
    """Appends NodeDefs to a GraphDef and keeps their names unique.

    A tensor is named as GraphDef names it: `node` or `node:1`.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        import tensorflow as tf

        self.tf = tf
        self.graph_def = tf.compat.v1.GraphDef()
        self.graph_def.versions.producer = (
            tf.compat.v1.get_default_graph().graph_def_versions.producer
        )
        self._names = Namespace(tensorflow_name, reserved)
        self._scalars: dict[tuple[str, object], str] = {}
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self.dtypes: dict[str, str] = {}

    def unique(self, name: str) -> str:
        """A name that TensorFlow allows, and no other node has."""
        return self._names.fresh(name)

    def add(self, op: str, name: str, inputs: Sequence[str] = (), **attrs: AttrValue) -> str:
        """Append a node, its name made unique.

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
        """Merge a serialized FunctionDefLibrary: functions that some node calls."""
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
        dtype = self.tf.as_dtype(array.dtype)
        node.attr["dtype"].type = dtype.as_datatype_enum
        tensor = node.attr["value"].tensor
        tensor.dtype = dtype.as_datatype_enum
        for dim in array.shape:
            tensor.tensor_shape.dim.add().size = dim
        tensor.tensor_content = np.ascontiguousarray(array).tobytes()
        made: str = node.name
        self.dtypes[made] = array.dtype.name
        return made

    def shared(self, value: Array, name: str) -> str:
        """A constant that all who need the same numbers share."""
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
            attr.type = self.tf.as_dtype(value.name).as_datatype_enum
        elif isinstance(value, bool):
            attr.b = value
        elif isinstance(value, int):
            attr.i = value
        elif isinstance(value, float):
            attr.f = value
        elif isinstance(value, str):
            attr.s = value.encode()
        elif isinstance(value, Dims):
            attr.shape.unknown_rank = value.dims is None
            for dim in value.dims or ():
                attr.shape.dim.add().size = -1 if dim is None else dim
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
