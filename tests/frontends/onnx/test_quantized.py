"""Small ONNX networks in fixed point: integers, program and TensorFlow agree to the bit."""

import numpy as np
import pytest
from onnx import helper

from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.lower import refusal_of
from qgraph.compiler import quantize
from tests.frontends.onnx.test_loading import (
    gated_network,
    shuffling_network,
    signal_network,
    small_cnn,
)
from tests.helpers.onnx_graphs import assert_like_runtime, f, imported, model_of, one_op

make = helper.make_node


def policy():
    """An actor as reinforcement-learning libraries export it: dense layers and tanh."""
    nodes = [
        make("Flatten", ["obs"], ["flat"]),
        make("Gemm", ["flat", "w0", "b0"], ["h0"], transB=1),
        make("Tanh", ["h0"], ["t0"]),
        make("Gemm", ["t0", "w1", "b1"], ["h1"], transB=1),
        make("Tanh", ["h1"], ["t1"]),
        make("Gemm", ["t1", "w2", "b2"], ["mean"], transB=1),
        make("Clip", ["mean", "low", "high"], ["action"]),
    ]
    constants = {
        "w0": f(16, 8), "b0": f(16), "w1": f(16, 16), "b1": f(16), "w2": f(2, 16), "b2": f(2),
        "low": np.float32(-1), "high": np.float32(1),
    }  # fmt: skip
    return model_of(nodes, {"obs": (None, 8)}, ("action",), constants)


def upsampler():
    """A transposed convolution and a skip that is enlarged."""
    nodes = [
        make("Conv", ["x", "w0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        make("HardSwish", ["c0"], ["h"]),
        make("ConvTranspose", ["h", "w1", "b1"], ["u"], strides=[2, 2], pads=[1, 1, 1, 1]),
        make("Resize", ["h", "", "scales"], ["r"]),
        make("Concat", ["u", "r"], ["both"], axis=1),
        make("Conv", ["both", "w2"], ["y"]),
    ]
    constants = {
        "w0": f(4, 3, 3, 3), "w1": f(4, 2, 4, 4), "b1": f(2), "scales": np.float32([1, 1, 2, 2]),
        "w2": f(2, 6, 1, 1),
    }  # fmt: skip
    return model_of(nodes, {"x": (None, 3, 8, 8)}, constants=constants)


NETWORKS = {
    "cnn": (small_cnn(None), (3, 6, 6), "graffitist-int8"),
    "signal": (signal_network(), (3, 10), "int32-bias"),
    "shuffling": (shuffling_network(), (3, 5, 5), "graffitist-int8"),
    "gated": (gated_network(), (3, 5, 5), "graffitist-int8"),
    "policy": (policy(), (8,), "policy-int8"),
    "upsampler": (upsampler(), (3, 8, 8), "graffitist-int8"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_fixed_point_form_is_exact(name):
    model, shape, profile = NETWORKS[name]
    x = f(4, *shape)
    graph = assert_like_runtime(model, {next(i.name for i in model.graph.input): x})
    result = quantize(graph, x, profile=profile, effort="plain")
    found = Checker(result.graph).run({graph.inputs[0]: x})
    assert found.differences == () and found.elements > 0
    stays_float = [r.reason for r in result.trace.refusals if r.reason.startswith("stays float")]
    assert stays_float == []


def test_op_that_tensorflow_cannot_carry_is_refused_by_name():
    graph = imported(one_op("Det", f(3, 3)))
    reason = str(refusal_of(graph))
    assert "y: `Det` is not supported" in reason and "--outputs" in reason
    assert refusal_of(imported(small_cnn())) is None
