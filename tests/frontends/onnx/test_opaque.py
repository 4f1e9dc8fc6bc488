"""ONNX ops that are not understood are run by ONNX itself, in float."""

import numpy as np
import pytest
from onnx import helper

from tests.helpers.onnx_graphs import assert_like_runtime, f, feed_of, ints, model_of, one_op

ROW = f(3, 6)
OPAQUE = {
    "Erf": (one_op("Erf", ROW), "Erf"),
    "Sign": (one_op("Sign", ROW), "Sign"),
    "linear": (
        one_op("Resize", f(2, 4, 9, 7), np.float32([]), np.float32([1, 1, 2, 2]), mode="linear"),
        "Resize",
    ),
    "TopK": (one_op("TopK", ROW, ints(2), outputs=("y", "z")), "TopK"),
    "3d": (one_op("Conv", f(1, 2, 3, 4, 5), f(2, 2, 2, 2, 2)), "Conv"),
    "Hardmax": (one_op("Hardmax", ROW), "Hardmax"),
    "Less": (one_op("Less", ROW, np.float32(0)), "Less"),
    "integers": (one_op("Div", np.arange(6).reshape(2, 3), np.int64(-2)), "Div"),
}


@pytest.mark.parametrize("case", OPAQUE)
def test_op_that_is_not_understood_is_run_by_onnx(case):
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
