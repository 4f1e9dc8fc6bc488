"""Ops on codes between a quantizer and a dequantizer have the values that ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qgraph.frontends import load
from qgraph.interpret import evaluate

onnxruntime = pytest.importorskip("onnxruntime")
node = helper.make_node
X = np.random.default_rng(0).normal(0, 3, (4, 3, 5)).astype(np.float32)
CONSTANTS = {
    "step": np.float32(2**-4), "other": np.float32(2**-5), "zero": np.uint8(128),
    "low": np.uint8(100), "high": np.uint8(200), "least": np.uint8(0), "most": np.uint8(255),
    "five": np.uint8(5), "pads": np.array([0, 0, 1, 0, 0, 2]),
    "places": np.arange(15).reshape(3, 5) % 2 == 0,
}  # fmt: skip
# Nodes from the codes p and q to the codes r, and whether they become ops on numbers.
CASES = {
    "limits": ([node("Clip", ["p", "low", "high"], ["r"])], True),
    "upper limit": ([node("Clip", ["p", "", "high"], ["r"])], True),
    "limits of the type": ([node("Clip", ["p", "least", "most"], ["r"])], True),
    "limit that varies": (
        [node("ReduceMax", ["q"], ["top"], keepdims=0), node("Clip", ["p", "", "top"], ["r"])],
        False,
    ),
    "joined": ([node("Concat", ["p", "q", "p"], ["r"], axis=1)], True),
    "chosen": ([node("Where", ["places", "p", "q"], ["r"])], True),
    "chosen after a move": (
        [node("Identity", ["p"], ["i"]), node("Where", ["places", "i", "q"], ["r"])], True
    ),
    "padded with zeros": ([node("Pad", ["p", "pads", "zero"], ["r"])], True),
    "padded with another code": ([node("Pad", ["p", "pads", "five"], ["r"])], False),
    "padded with code 0": ([node("Pad", ["p", "pads"], ["r"])], False),
    "padded with edges": ([node("Pad", ["p", "pads"], ["r"], mode="edge")], True),
    "of two scales": ([node("Where", ["places", "p", "s"], ["r"])], False),
}  # fmt: skip


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_equal_those_of_onnx_runtime(case, keep, tmp_path) -> None:
    made, becomes_float = CASES[case]
    nodes = [
        node("QuantizeLinear", ["x", "step", "zero"], ["p"]),
        node("Neg", ["x"], ["n"]),
        node("QuantizeLinear", ["n", "step", "zero"], ["q"]),
        node("QuantizeLinear", ["n", "other", "zero"], ["s"]),
        *made,
        node("DequantizeLinear", ["r", "step", "zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in CONSTANTS.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    read = load(tmp_path / "m.onnx", keep_scales=keep)
    kinds = {n.attrs.get("kind") for n in read.nodes.values() if n.op == "opaque"}
    assert ("DequantizeLinear" in kinds) == (not becomes_float)
    (found,) = evaluate(read, {"x": X}).values()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (wanted,) = session.run(["y"], {"x": X})
    if keep or not becomes_float:
        np.testing.assert_array_equal(found, wanted)
    else:  # the float network, which does not round to the steps of the file
        np.testing.assert_allclose(found, wanted, rtol=0, atol=CONSTANTS["step"] / 2)
