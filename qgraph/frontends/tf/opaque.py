"""Unknown ops: their types and values come from TensorFlow.

Ops with effects outside the network are refused (`qgraph.frontends.side_effects`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from qgraph.errors import GraphError, LoadError, QGraphError, UnsupportedError
from qgraph.foreign import Proto
from qgraph.frontends.partial import Partial, small_constants
from qgraph.frontends.side_effects import check_harmless, is_pure, needed_functions
from qgraph.frontends.tf import graphdef
from qgraph.frontends.tf.node import DTYPES, TFNode, shape_of
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.structure import OpaqueAttrs
from qgraph.ir.types import Array, TensorType

NODE = "node"
# Attributes of a NodeDef that describe the surrounding graph: colocated nodes, output shapes.
PLACE_ATTRIBUTES = ("_class", "_output_shapes")


@dataclass(frozen=True)
class TFSource:
    """A TensorFlow op that can be run alone: its NodeDef and the functions it may call."""

    node: str
    node_def: bytes
    library: bytes
    inputs: tuple[TensorType, ...]

    @property
    def pure(self) -> bool:
        """True if the results of the op depend only on its inputs."""
        return _is_pure(self.node_def, self.library)

    def types(
        self, inputs: Sequence[TensorType], constants: Sequence[Array | None]
    ) -> tuple[TensorType, ...]:
        """Output types for inputs of these types; `constants` has the known values."""
        made = replace(self, inputs=tuple(inputs))
        return infer_types(made, small_constants(constants))

    def to_bytes(self) -> bytes:
        """The op as a GraphDef: placeholders for its inputs, then the op."""
        data: bytes = _alone(self).SerializeToString(deterministic=True)
        return data

    @classmethod
    def from_bytes(cls, data: bytes, node: str) -> TFSource:
        """Read what `to_bytes` wrote. Raises LoadError, and UnsupportedError as in `source_of`."""
        graph_def = graphdef.parse(data, "GraphDef")
        if graph_def is None or not graph_def.node:
            raise LoadError("the op is not a GraphDef", node=node)
        *feeds, op = graph_def.node
        inputs = tuple(
            TensorType(DTYPES[feed.attr["dtype"].type], shape_of(feed.attr["shape"].shape))
            for feed in feeds
        )
        library = graph_def.library.SerializeToString(deterministic=True)
        check_harmless(op, library)
        return cls(node, op.SerializeToString(deterministic=True), library, inputs)

    def run(self, inputs: Sequence[Array]) -> Array | tuple[Array, ...]:
        """The op's outputs in TensorFlow: an array, or a tuple where there are several."""
        import tensorflow as tf

        graph = _imported(self, [None] * len(self.inputs))
        outputs = graph.get_operation_by_name(NODE).outputs
        feeds = {f"in{i}:0": value for i, value in enumerate(inputs)}
        try:
            with tf.compat.v1.Session(graph=graph) as session:
                results = session.run(list(outputs), feeds)
        except tf.errors.OpError as error:
            lines = [line for line in error.message.splitlines() if line.strip()]
            raise GraphError(f"TensorFlow failed: {' '.join(lines[:3])}", node=self.node) from None
        arrays = tuple(np.asarray(r) for r in results)
        return arrays[0] if len(arrays) == 1 else arrays


@lru_cache(maxsize=1024)
def _is_pure(node_def: bytes, library: bytes) -> bool:
    return is_pure(_node(node_def), library)


def _node(node_def: bytes) -> Proto:
    import tensorflow as tf

    node = tf.compat.v1.NodeDef()
    node.ParseFromString(node_def)
    return node


def _alone(source: TFSource) -> Proto:
    """The op with placeholders as inputs, and the functions that it needs."""
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef()
    for i, kind in enumerate(source.inputs):
        _add_placeholder(graph_def, f"in{i}", kind)
    node = _node(source.node_def)
    graph_def.node.add().CopyFrom(node)
    needed = needed_functions(node, source.library)
    graph_def.library.function.extend(sorted(needed, key=lambda f: str(f.signature.name)))
    return graph_def


def foreign_ops(graph: Graph) -> list[Node]:
    """The unknown ops that are not from TensorFlow, which cannot carry them, in order."""
    return [
        node
        for node in graph.topological()
        if node.op == "opaque" and not isinstance(node.typed(OpaqueAttrs).source, TFSource)
    ]


def source_of(node: TFNode, library: bytes, inputs: Sequence[TensorType]) -> TFSource:
    """The source of a node. Raises UnsupportedError for an op with effects outside the network."""
    check_harmless(node.proto, library)
    alone = type(node.proto)()
    alone.CopyFrom(node.proto)
    alone.device = ""
    for key in PLACE_ATTRIBUTES:
        alone.attr.pop(key, None)
    return TFSource(node.name, alone.SerializeToString(deterministic=True), library, tuple(inputs))


def infer_types(source: TFSource, known: Sequence[Partial | None]) -> tuple[TensorType, ...]:
    """Output types by TensorFlow's shape inference, given known values of inputs.

    Raises UnsupportedError where this TensorFlow does not know the op.
    """
    outputs = _imported(source, known).get_operation_by_name(NODE).outputs
    return tuple(
        TensorType(
            t.dtype.base_dtype.name, None if t.shape.rank is None else tuple(t.shape.as_list())
        )
        for t in outputs
    )


def _imported(source: TFSource, known: Sequence[Partial | None]) -> Proto:
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef()
    graph_def.library.ParseFromString(source.library)
    for i, (dtype, partial) in enumerate(zip(source.inputs, known, strict=True)):
        _add_input(graph_def, f"in{i}", dtype, partial)
    node = graph_def.node.add()
    node.ParseFromString(source.node_def)
    node.name = NODE
    del node.input[:]
    node.input.extend(f"in{i}" for i in range(len(source.inputs)))
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.graph_util.import_graph_def(graph_def, name="")
    except (ValueError, TypeError, KeyError, tf.errors.OpError) as error:
        raise _explained(error, source, node.op) from None
    return graph


def _explained(error: Exception, source: TFSource, op: str) -> QGraphError:
    text = str(error).splitlines()[0]
    if "not registered" in text or "No attr named" in text:
        return UnsupportedError(
            f"op `{op}` is unknown to the installed TensorFlow",
            node=source.node,
            hint="exclude custom ops: choose inputs and outputs that do not need them",
        )
    return GraphError(f"TensorFlow refuses this `{op}`: {text}", node=source.node)


def _add_input(graph_def: Proto, name: str, of: TensorType, partial: Partial | None) -> None:
    """Add a placeholder, or a constant for shape inference if the value is known."""
    if partial is not None and partial.complete:
        _add_constant(graph_def, name, partial.values)
    elif partial is not None and partial.values.ndim == 1:
        for i, (value, missing) in enumerate(zip(partial.values, partial.missing, strict=True)):
            if missing:
                _add_placeholder(graph_def, f"{name}_{i}", TensorType(of.dtype, ()))
            else:
                _add_constant(graph_def, f"{name}_{i}", value)
        node = graph_def.node.add(name=name, op="Pack")
        node.input.extend(f"{name}_{i}" for i in range(partial.values.size))
        node.attr["T"].type = _enum(of.dtype)
        node.attr["N"].i = partial.values.size
    else:
        _add_placeholder(graph_def, name, of)


def _add_placeholder(graph_def: Proto, name: str, of: TensorType) -> None:
    node = graph_def.node.add(name=name, op="Placeholder")
    node.attr["dtype"].type = _enum(of.dtype)
    if of.shape is None:
        node.attr["shape"].shape.unknown_rank = True
    else:
        node.attr["shape"].shape.SetInParent()
        for d in of.shape:
            node.attr["shape"].shape.dim.add(size=-1 if d is None else d)


def _add_constant(graph_def: Proto, name: str, value: Array) -> None:
    import tensorflow as tf

    node = graph_def.node.add(name=name, op="Const")
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    node.attr["dtype"].type = node.attr["value"].tensor.dtype


def _enum(dtype: str) -> int:
    import tensorflow as tf

    return int(tf.as_dtype(dtype).as_datatype_enum)
