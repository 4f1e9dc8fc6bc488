"""ONNX ops that are not supported are run by ONNX itself, in float."""

import numpy as np
import pytest
from onnx import helper

from tests.helpers.onnx_graphs import assert_like_runtime, f, feed_of, ints, model_of, one_op

ROW = f(3, 6)
OPAQUE = {
    "Det": (one_op("Det", f(4, 4)), "Det"),
    "linear": (
        one_op(
            "Resize", f(1, 2, 3, 4, 5), np.float32([]), np.float32([1, 1, 2, 2, 2]), mode="linear"
        ),
        "Resize",
    ),
    "TopK": (one_op("TopK", ROW, ints(2), outputs=("y", "z")), "TopK"),
    "3d": (
        one_op("MaxPool", f(1, 2, 3, 4, 5), kernel_shape=[2, 2, 2], dilations=[1, 2, 1]),
        "MaxPool",
    ),
    "integers": (one_op("Div", np.arange(6).reshape(2, 3), np.int64(-2)), "Div"),
}


@pytest.mark.parametrize("case", OPAQUE)
def test_unsupported_ops_are_run_by_onnx(case):
    model, kind = OPAQUE[case]
    x = feed_of(model)
    if case == "integers":
        x = np.arange(-3, 3).reshape(2, 3)
    assert_like_runtime(model, {"x": x}, opaque=[kind])


def test_constants_that_opaque_ops_make_are_constants():
    nodes = [
        helper.make_node("EyeLike", ["k"], ["e"]),
        helper.make_node("Add", ["x", "e"], ["y"]),
    ]
    model = model_of(nodes, {"x": (3, 3)}, constants={"k": np.zeros((3, 3), np.float32)})
    graph = assert_like_runtime(model, {"x": f(3, 3)})
    assert graph.nodes["e"].op == "const"


def old(op, opset, x=None, others=(), outputs=("y",), **attrs):
    return one_op(op, IMAGES if x is None else x, *others, opset=opset, outputs=outputs, **attrs)


IMAGES = f(2, 3, 4, 5)
CODES = np.arange(-12, 12, dtype=np.int8).reshape(2, 3, 4)
SCALES = np.float32([0.1, 0.2, 0.3])
GRID = np.random.default_rng(1).uniform(-1, 1, (2, 3, 3, 2)).astype(np.float32)
BOX, FIRST = np.float32([[0, 0, 3, 3]]), ints(0)
OLD = {
    "Hardmax 11": old("Hardmax", 11),
    "Hardmax 11, axis 2": old("Hardmax", 11, axis=2),
    "Hardmax 11, axis -1": old("Hardmax", 11, axis=-1),
    "Hardmax 13": old("Hardmax", 13),
    "DequantizeLinear 10": old("DequantizeLinear", 10, CODES, [np.float32(0.1)]),
    "DequantizeLinear 13": old("DequantizeLinear", 13, CODES, [SCALES, np.int8([1, 2, 3])], axis=1),
    "QuantizeLinear 13": old("QuantizeLinear", 13, None, [SCALES, np.int8([1, 2, 3])], axis=1),
    "Resize 10": old("Resize", 10, None, [np.float32([1, 1, 2, 2.5])], mode="linear"),
    "Upsample 9": old("Upsample", 9, None, [np.float32([1, 1, 2, 2])], mode="linear"),
    "GridSample 16": old("GridSample", 16, None, [GRID], mode="bicubic"),
    "RoiAlign 10": old(
        "RoiAlign", 10, None, [BOX, FIRST], output_height=2, output_width=2, sampling_ratio=2
    ),
    "Scatter 9": old("Scatter", 9, None, [np.zeros((2, 1, 4, 5), np.int64), f(2, 1, 4, 5)]),
    "Softmax 11": old("Softmax", 11),
    "LogSoftmax 11": old("LogSoftmax", 11, axis=2),
    "TopK 10": old("TopK", 10, None, [ints(2)], outputs=("y", "z")),
}


@pytest.mark.parametrize("case", OLD)
def test_op_has_the_meaning_of_the_opset_of_the_model(case):
    x = CODES if case.startswith("Deq") else IMAGES
    assert_like_runtime(OLD[case], {"x": x}, opaque=None)
