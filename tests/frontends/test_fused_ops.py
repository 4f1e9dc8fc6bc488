"""TensorFlow's fused ops are split into what they are made of."""

import pytest
import tensorflow as tf

from qgraph.frontends import load_graph_def
from tests.helpers.graphs import opaque_kinds
from tests.helpers.tf_graphs import assert_same_as_tf, graph_def_of, v1
from tests.helpers.tf_layers import IMAGE, MATRIX, weights

FILTERS = {
    "_FusedConv2D": (3, 3, 4, 5),
    "_FusedDepthwiseConv2dNative": (3, 3, 4, 1),
    "_FusedMatMul": (6, 5),
}


def fused(op, steps, args=1, **attrs):
    """A GraphDef with one fused op, as TensorFlow's own optimiser writes it."""
    channels = 4 if "Depthwise" in op else 5

    def build():
        x = v1.placeholder("float32", MATRIX if op == "_FusedMatMul" else IMAGE, "x")
        tf.identity(weights(x, *FILTERS[op]), "w")
        for i in range(args):
            tf.identity(tf.abs(weights(x, channels)) + i, f"arg{i}")
        return []

    graph_def = graph_def_of(build)
    node = graph_def.node.add(
        name="fused", op=op, input=["x", "w", *(f"arg{i}" for i in range(args))]
    )
    node.attr["T"].type = tf.float32.as_datatype_enum
    node.attr["num_args"].i = args
    node.attr["fused_ops"].list.s.extend(step.encode() for step in steps)
    if op == "_FusedConv2D":
        node.attr["TArgs"].list.type.extend([tf.float32.as_datatype_enum] * args)
        node.attr["num_host_args"].i = 0
    if op != "_FusedMatMul":
        node.attr["strides"].list.i.extend([1, 2, 2, 1])
        node.attr["padding"].s = b"SAME"
    for key, value in attrs.items():
        node.attr[key].f = value
    return graph_def


@pytest.mark.parametrize("activation", [(), ("Relu",), ("Relu6",), ("Elu",)])
@pytest.mark.parametrize("op", ["_FusedConv2D", "_FusedMatMul"])
def test_fused_op_is_split(op, activation):
    graph = assert_same_as_tf(fused(op, ("BiasAdd", *activation)))
    assert list(graph.outputs) == ["fused"]
    assert opaque_kinds(graph) == []


def test_fused_batch_norm_and_leaky_relu():
    steps = ("FusedBatchNorm", "LeakyRelu")
    graph_def = fused("_FusedConv2D", steps, 4, epsilon=0.01, leakyrelu_alpha=0.3)
    graph = assert_same_as_tf(graph_def, 1e-4)
    order = [n.op for n in graph.topological() if n.name.startswith("fused")]
    assert order == ["conv2d", "batch_norm", "leaky_relu"]


def test_fused_depthwise_is_split():
    graph = load_graph_def(fused("_FusedDepthwiseConv2dNative", ("BiasAdd", "Relu6")))
    order = [n.name for n in graph.topological() if n.op not in ("const", "identity", "abs", "add")]
    assert order == ["x", "fused/depthwise_conv2d", "fused/bias_add", "fused"]


def test_settings_of_steps_that_are_not_fused_do_not_count():
    """The optimiser writes both, whatever it fuses."""
    graph = assert_same_as_tf(fused("_FusedConv2D", ("BiasAdd",), epsilon=0.0, leakyrelu_alpha=0.0))
    assert opaque_kinds(graph) == []
