"""TensorFlow nodes with one changed attribute: a graph for every op that has attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from qgraph.frontends.tf.ops import EVALUATORS, IMPORTERS
from qgraph.frontends.tf.ops.control import VARIABLES
from qgraph.frontends.tf.schemas import WITHOUT_EFFECT, implied_attributes
from tests.helpers.tf_graphs import graph_def_of, v1
from tests.helpers.tf_layers import FIXED, batch_norm, conv, depthwise, raw, weights

WINDOWS = ([1, 1, 1, 1], [1, 2, 2, 1], [1, 2, 1, 1], [1, 1, 2, 2], [2, 1, 1, 1])
VALUES: dict[str, tuple[Any, ...]] = {
    "bool": (False, True),
    "float": (0.3, 0.01),
    "strides": WINDOWS,
    "ksize": WINDOWS,
    "dilations": WINDOWS,
    "explicit_paddings": ([], [0, 0, 1, 2, 0, 3, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0], [1, 0] + [0] * 6),
    "squeeze_dims": ([], [0], [1], [-1], [0, 1]),
    "padding": (b"SAME", b"VALID", b"EXPLICIT"),
    "data_format": (b"NHWC", b"NCHW", b"NCHW_VECT_C"),
    "filter_format": (b"HWIO", b"OIHW"),
    "mode": (b"REFLECT", b"SYMMETRIC"),
    "equation": (b"nhwc,cd->nhwd", b"...c,cd->d...", b"nhwc,cd->nhd", b"nhwc,dc->nhwd", b"nhwc->c"),
    "int": (0, 1, 2, 3, 4, 5, -1, -2),
    "type": (tf.float32, tf.float64, tf.int32, tf.int64),
}
FLAGS = [[True, False, True], [True, True, False]]


def cast(x: Any) -> Any:
    return tf.cast(x, tf.float32)


def number(n: int) -> Any:
    return tf.constant([[[n, 2, 3]]], tf.int32)


def reduced(op: Any, flags: bool = False) -> Callable[[Any], Any]:
    """Reduce a constant, as in shape arithmetic."""
    return lambda x: cast(op(input=tf.constant(FLAGS) if flags else number(4), axis=[-1]))


NODES: dict[str, Callable[[Any], Any]] = {
    "All": reduced(raw.All, True),
    "Any": reduced(raw.Any, True),
    "ArgMax": lambda x: cast(raw.ArgMax(input=x, dimension=1)),
    "ArgMin": lambda x: cast(raw.ArgMin(input=x, dimension=1)),
    "Cumsum": lambda x: raw.Cumsum(x=x, axis=1),
    "AvgPool": lambda x: raw.AvgPool(
        value=x, ksize=[1, 3, 3, 1], strides=[1, 1, 1, 1], padding="SAME"
    ),
    "AvgPool3D": lambda x: raw.AvgPool3D(
        input=tf.stack([x] * 3, 1), ksize=[1, 2, 3, 3, 1], strides=[1] * 5, padding="SAME"
    ),
    "BatchMatMul": lambda x: raw.BatchMatMul(x=x[0, 0, :4], y=weights(x, 4, 4)),
    "BatchMatMulV2": lambda x: raw.BatchMatMulV2(x=x, y=weights(x, 4, 4)),
    "BatchMatMulV3": lambda x: raw.BatchMatMulV3(x=x, y=weights(x, 4, 4), Tout=tf.float32),
    "BatchToSpace": lambda x: raw.BatchToSpace(
        input=tf.concat([x] * 8, 0), crops=[[0, 0], [0, 0]], block_size=2
    ),
    "BiasAdd": lambda x: tf.nn.bias_add(x, weights(x, 4)),
    "Cast": lambda x: cast(raw.Cast(x=x, DstT=tf.float64)),
    "Const": lambda x: x + weights(x, 4),
    "Conv2D": conv,
    "Conv3D": lambda x: raw.Conv3D(
        input=tf.stack([x] * 3, 1),
        filter=weights(x, 2, 3, 3, 4, 5),
        strides=[1] * 5,
        padding="SAME",
    ),
    "Conv2DBackpropInput": lambda x: raw.Conv2DBackpropInput(
        input_sizes=[*FIXED[:3], 5],
        filter=weights(x, 3, 3, 5, 4),
        out_backprop=x,
        strides=[1, 1, 1, 1],
        padding="SAME",
    ),
    "Conv3DBackpropInputV2": lambda x: raw.Conv3DBackpropInputV2(
        input_sizes=[FIXED[0], 3, *FIXED[1:3], 5],
        filter=weights(x, 2, 3, 3, 5, 4),
        out_backprop=tf.stack([x] * 3, 1),
        strides=[1] * 5,
        padding="SAME",
    ),
    "DepthToSpace": lambda x: raw.DepthToSpace(input=x, block_size=2),
    "DepthwiseConv2dNative": depthwise,
    "Einsum": lambda x: raw.Einsum(inputs=[x, weights(x, 4, 3)], equation="nhwc,cd->nhwd"),
    "Equal": lambda x: cast(raw.Equal(x=x, y=x)),
    "FusedBatchNorm": lambda x: batch_norm(raw.FusedBatchNorm, x)[0],
    "FusedBatchNormV2": lambda x: batch_norm(raw.FusedBatchNormV2, x)[0],
    "FusedBatchNormV3": lambda x: batch_norm(raw.FusedBatchNormV3, x)[0],
    "GatherV2": lambda x: cast(raw.GatherV2(params=number(1), indices=[[0]], axis=0)),
    "LeakyRelu": lambda x: raw.LeakyRelu(features=x),
    "LRN": lambda x: raw.LRN(input=x, depth_radius=1),
    "MatMul": lambda x: raw.MatMul(a=x[0, 0, :4], b=weights(x, 4, 4)),
    "Max": lambda x: raw.Max(input=x, axis=[1, 2]),
    "MaxPool": lambda x: raw.MaxPool(
        input=x, ksize=[1, 3, 3, 1], strides=[1, 1, 1, 1], padding="SAME"
    ),
    "MaxPool3D": lambda x: raw.MaxPool3D(
        input=tf.stack([x] * 3, 1), ksize=[1, 2, 3, 3, 1], strides=[1] * 5, padding="SAME"
    ),
    "MaxPoolV2": lambda x: raw.MaxPoolV2(
        input=x, ksize=[1, 3, 3, 1], strides=[1, 2, 1, 1], padding="SAME"
    ),
    "Mean": lambda x: raw.Mean(input=x, axis=[1, -1]),
    "Min": reduced(raw.Min),
    "MirrorPad": lambda x: raw.MirrorPad(
        input=x, paddings=[[0, 0], [1, 2], [2, 0], [0, 0]], mode="REFLECT"
    ),
    "NotEqual": lambda x: cast(raw.NotEqual(x=x, y=-x)),
    "OneHot": lambda x: raw.OneHot(
        indices=tf.cast(x[0, 0], tf.int32), depth=3, on_value=2.0, off_value=1.0
    ),
    "Pack": lambda x: raw.Pack(values=[x[0], x[1]]),
    "Prod": reduced(raw.Prod),
    "ResizeBilinear": lambda x: raw.ResizeBilinear(images=x, size=[5, 11]),
    "ResizeBicubic": lambda x: raw.ResizeBicubic(images=x, size=[5, 11]),
    "ResizeNearestNeighbor": lambda x: raw.ResizeNearestNeighbor(images=x, size=[5, 11]),
    "Shape": lambda x: cast(raw.Shape(input=x)),
    "ShapeN": lambda x: [cast(s) for s in raw.ShapeN(input=[x, x])],
    "Size": lambda x: cast(raw.Size(input=x)),
    "SpaceToBatch": lambda x: raw.SpaceToBatch(
        input=x, paddings=[[0, 0], [0, 1]], block_size=2
    ),
    "SpaceToDepth": lambda x: raw.SpaceToDepth(input=x[:, :, :6], block_size=2),
    "Squeeze": lambda x: raw.Squeeze(input=x[:1, :1, 0, :1]),
    "StridedSlice": lambda x: raw.StridedSlice(
        input=x, begin=[0, 1, 2], end=[2, 7, 3], strides=[1, 2, 1]
    ),
    "Sum": lambda x: raw.Sum(input=x, axis=[0]),
    "Unpack": lambda x: raw.Unpack(value=tf.reshape(x, [-1, 2, 2, 2])[:2], num=2),
}  # fmt: skip


def graph_def_for(op: str) -> Any:
    return graph_def_of(lambda: NODES[op](v1.placeholder("float32", FIXED, "x")))


def attributes() -> Iterator[tuple[str, Any]]:
    """Every attribute that could change a result, of every op that qgraph reads."""
    for op in sorted({*IMPORTERS, *EVALUATORS} - set(VARIABLES)):
        definition = op_def_registry.get(op)
        for attr in definition.attr if definition else ():
            ignored = {*implied_attributes(op), *WITHOUT_EFFECT.get(op, ())}
            if attr.name not in ignored and not attr.name.startswith("_"):
                yield op, attr


def changed(graph_def: Any, op: str, attr: Any, value: Any) -> Any:
    """The graph with a changed attribute of its node (the last node of the op)."""
    result = v1.GraphDef()
    result.CopyFrom(graph_def)
    node = [n for n in result.node if n.op == op][-1]
    proto = node.attr[attr.name]
    if attr.type == "list(int)":
        proto.list.CopyFrom(type(proto.list)(i=value))
    else:
        field = {"bool": "b", "int": "i", "float": "f", "string": "s", "type": "type"}[attr.type]
        setattr(proto, field, value.as_datatype_enum if attr.type == "type" else value)
    for user in result.node:
        if attr.type == "type" and node.name in user.input and "SrcT" in user.attr:
            user.attr["SrcT"].type = proto.type
    return result


def values_of(op: str, attr: Any) -> tuple[Any, ...]:
    """Values to try; windows of volumes have one more axis."""
    values = VALUES.get(attr.name) or VALUES[attr.type]
    if "3D" not in op:
        return values
    if attr.name == "data_format":
        return (b"NDHWC", b"NCDHW")
    return tuple([v[0], 1, *v[1:]] if isinstance(v, list) and len(v) == 4 else v for v in values)


def without_defaults(graph_def: Any) -> Any:
    """The graph as in a SavedModel, without attributes that have their defaults."""
    result = v1.GraphDef()
    result.CopyFrom(graph_def)
    for node in result.node:
        definition = op_def_registry.get(node.op)
        for attr in definition.attr if definition else ():
            if attr.HasField("default_value") and node.attr[attr.name] == attr.default_value:
                del node.attr[attr.name]
    return result
