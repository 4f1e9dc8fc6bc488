"""NCHW cannot run in TensorFlow on a CPU: the NHWC twin is the reference."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.frontends import load_graph_def
from qgraph.interpret import evaluate
from qgraph.ir.printing import print_graph
from tests.helpers.graphs import opaque_kinds
from tests.helpers.tf_graphs import graph_def_of, v1
from tests.helpers.tf_layers import IMAGE, batch_norm, conv, depthwise, raw, weights

TWINS = {
    "conv": lambda x, f: conv(
        x, data_format=f, strides=[1, 1, 2, 1] if f == "NHWC" else [1, 1, 1, 2]
    ),
    "conv_explicit": lambda x, f: conv(
        x, padding="EXPLICIT", data_format=f,
        explicit_paddings=[0, 0, 1, 0, 2, 1, 0, 0] if f == "NHWC" else [0, 0, 0, 0, 1, 0, 2, 1],
    ),
    "conv_dilated": lambda x, f: conv(
        x, data_format=f, dilations=[1, 2, 3, 1] if f == "NHWC" else [1, 1, 2, 3]
    ),
    "depthwise": lambda x, f: depthwise(x, 2, data_format=f),
    "bias_add": lambda x, f: tf.nn.bias_add(x, weights(x, 4), data_format=f),
    "batch_norm": lambda x, f: batch_norm(raw.FusedBatchNormV3, x, data_format=f)[0],
    "avg_pool": lambda x, f: raw.AvgPool(
        value=x, padding="SAME", data_format=f,
        ksize=[1, 3, 2, 1] if f == "NHWC" else [1, 1, 3, 2],
        strides=[1, 2, 1, 1] if f == "NHWC" else [1, 1, 2, 1],
    ),
    "max_pool": lambda x, f: raw.MaxPool(
        input=x, padding="VALID", data_format=f,
        ksize=[1, 3, 2, 1] if f == "NHWC" else [1, 1, 3, 2],
        strides=[1, 2, 1, 1] if f == "NHWC" else [1, 1, 2, 1],
    ),
    "depth_to_space": lambda x, f: tf.nn.depth_to_space(x, 2, data_format=f),
    "space_to_depth": lambda x, f: tf.nn.space_to_depth(
        x[:, :8, :6] if f == "NHWC" else x[:, :, :8, :6], 2, data_format=f
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TWINS)
def test_nchw_equals_its_nhwc_twin(case):
    build = TWINS[case]
    x = np.random.default_rng(1).standard_normal((2, 8, 7, 4)).astype("float32")
    last = load_graph_def(
        graph_def_of(lambda: build(v1.placeholder("float32", IMAGE, "x"), "NHWC"))
    )
    first = load_graph_def(
        graph_def_of(lambda: build(v1.placeholder("float32", (None, 4, 8, 7), "x"), "NCHW"))
    )
    expected = evaluate(last, {"x": x})["y"]
    found = evaluate(first, {"x": x.transpose(0, 3, 1, 2)})["y"]
    np.testing.assert_array_equal(found.transpose(0, 2, 3, 1), expected)
    assert opaque_kinds(first) == []


def test_nchw_becomes_transposes_around_the_op():
    def build():
        x = v1.placeholder("float32", (1, 1, 4, 4), "x")
        return raw.MaxPool(input=x, ksize=[1, 1, 2, 2], strides=[1, 1, 2, 2], padding="VALID",
                           data_format="NCHW", name="pool")  # fmt: skip

    assert print_graph(load_graph_def(graph_def_of(build), name="nchw")) == (
        'graph "nchw" {\n'
        "  %x = input {type=float32[1,1,4,4]}\n"
        "  %pool/to_nhwc = transpose(%x) {perm=(0, 2, 3, 1)} : float32[1,4,4,1]\n"
        "  %pool/nhwc = max_pool(%pool/to_nhwc)"
        ' {ksize=(2, 2), padding="valid", strides=(2, 2)} : float32[1,2,2,1]\n'
        "  %pool = transpose(%pool/nhwc) {perm=(0, 3, 1, 2)} : float32[1,1,2,2]\n"
        "  %y = identity(%pool) : float32[1,1,2,2]\n"
        '  return "y" = %y\n'
        "}\n"
    )


def test_helpers_leave_the_names_of_other_nodes_alone():
    def build():
        x = v1.placeholder("float32", (1, 1, 4, 4), "x")
        y = raw.MaxPool(input=x, ksize=[1, 1, 2, 2], strides=[1, 1, 2, 2], padding="VALID",
                        data_format="NCHW", name="pool")  # fmt: skip
        return tf.nn.relu(y, name="pool/nhwc")

    graph = load_graph_def(graph_def_of(build))
    assert graph.nodes["pool/nhwc"].op == "relu"
    assert graph.nodes["pool/nhwc_1"].op == "max_pool"
