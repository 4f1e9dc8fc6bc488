"""Models that are already quantized: the float network that they stand for."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qgraph
from qgraph.frontends import load
from qgraph.frontends.onnx.qoperators import QOPERATORS
from qgraph.interpret import evaluate
from tests.frontends.onnx.test_loading import f

quantization = pytest.importorskip("onnxruntime.quantization")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(32, 3, 8, 8)).astype(np.float32)
WEIGHTS = {
    "w1": RNG.normal(0, 0.3, (8, 3, 3, 3)),
    "b1": RNG.normal(0, 0.3, 8),
    "w2": RNG.normal(0, 0.1, (8, 8, 3, 3)),
    "w3": RNG.normal(0, 0.3, (8, 5)),
    "b3": RNG.normal(0, 0.3, 5),
    "w4": RNG.normal(0, 0.3, (5, 4)),
}
node = helper.make_node
NODES = [
    node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]),
    node("Relu", ["a"], ["b"]),
    node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1]),
    node("LeakyRelu", ["c"], ["d"], alpha=0.1),
    node("Add", ["d", "b"], ["e"]),
    node("Sigmoid", ["e"], ["f"]),
    node("Mul", ["e", "f"], ["g"]),
    node("Concat", ["g", "e"], ["h"], axis=2),
    node("MaxPool", ["h"], ["i"], kernel_shape=[2, 2], strides=[2, 2]),
    node("AveragePool", ["i"], ["j"], kernel_shape=[2, 2], strides=[2, 2]),
    node("GlobalAveragePool", ["j"], ["k"]),
    node("Flatten", ["k"], ["l"]),
    node("Gemm", ["l", "w3", "b3"], ["m"]),
    node("MatMul", ["m", "w4"], ["y"]),
]


def float_model(opset: int = 17) -> onnx.ModelProto:
    held = [numpy_helper.from_array(a.astype("float32"), name) for name, a in WEIGHTS.items()]
    graph = helper.make_graph(
        NODES, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        held,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


class _Samples(quantization.CalibrationDataReader):
    def __init__(self) -> None:
        self.left = iter([{"x": X}])

    def get_next(self):
        return next(self.left, None)


def quantized_model(folder, form: str, kind: str, per_channel: bool, opset: int = 17, model=None):
    onnx.save(model or float_model(opset), folder / "float.onnx")
    quantization.quantize_static(
        folder / "float.onnx",
        folder / "quantized.onnx",
        _Samples(),
        quant_format=getattr(quantization.QuantFormat, form),
        activation_type=getattr(quantization.QuantType, kind),
        per_channel=per_channel,
    )
    return folder / "quantized.onnx"


def decibels(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(10 * np.log10(np.square(wanted).mean() / np.square(found - wanted).mean()))


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_the_float_network_is_back(form, kind, per_channel, opset, tmp_path) -> None:
    """Only its weights were rounded: its values are nearer than those of the quantized model."""
    graph = load(quantized_model(tmp_path, form, kind, per_channel, opset))
    assert not any(n.op == "opaque" for n in graph.topological())
    assert "already quantized" in graph.notes[0]
    found = evaluate(graph, {"x": X})["y"]
    assert decibels(found, evaluate(load(tmp_path / "float.onnx"), {"x": X})["y"]) > 30


def test_it_is_quantized_anew_and_equal_in_every_form(tmp_path) -> None:
    made = qgraph.quantize(
        quantized_model(tmp_path, "QOperator", "QUInt8", True), X, effort="plain"
    )
    out = made.save(tmp_path / "out")
    found = qgraph.verify(out, forms=["engine", "onnx-integer", "tensorflow"])
    assert found.equal and not found.network.program.has_islands


def one(*nodes: onnx.NodeProto, **arrays: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def pair(zero, *, again=None) -> onnx.ModelProto:
    """A quantizer and a dequantizer, perhaps with another zero point."""
    return one(
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z" if again is None else "z2"], ["y"]),
        s=np.float32(0.1), z=zero, **({} if again is None else {"z2": again}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("zero", "op"),
    [(np.uint8(0), "relu"), (np.int8(-128), "relu"), (np.uint8(128), None), (np.int8(0), None)],
)
def test_a_zero_point_at_the_lowest_code_is_a_relu(zero, op, tmp_path) -> None:
    onnx.save(pair(zero), tmp_path / "net.onnx")
    graph, x = load(tmp_path / "net.onnx"), f(5, 4)
    assert {n.op for n in graph.topological()} <= {"input", "identity", op}
    wanted = np.maximum(x, 0) if op else x
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], wanted)


def test_codes_that_are_read_on_another_scale_keep_their_quantizer(tmp_path) -> None:
    onnx.save(pair(np.uint8(3), again=np.uint8(5)), tmp_path / "net.onnx")
    graph, x = load(tmp_path / "net.onnx"), f(5, 4)
    assert [n.op for n in graph.topological()].count("opaque") == 2 and not graph.notes
    step = np.clip(np.rint(x / np.float32(0.1)) + 3, 0, 255) - 5
    np.testing.assert_array_equal(
        evaluate(graph, {"x": x})["y"], (step * np.float32(0.1)).astype(np.float32)
    )


def test_codes_pass_through_moves(tmp_path) -> None:
    model = one(
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("Transpose", ["q"], ["t"], perm=[1, 0]),
        node("Transpose", ["t"], ["u"], perm=[1, 0]),
        node("DequantizeLinear", ["u", "s", "z"], ["y"]),
        s=np.float32(0.1), z=np.int8(0),
    )  # fmt: skip
    onnx.save(model, tmp_path / "net.onnx")
    graph, x = load(tmp_path / "net.onnx"), f(5, 4)
    assert not any(n.op == "opaque" for n in graph.topological())
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], x)


def test_every_qoperator_of_onnx_is_known() -> None:
    """Those with a float op of their own; the integer products have no scale."""
    own = {s.name for s in onnx.defs.get_all_schemas() if s.name.startswith("QLinear")}
    assert own <= QOPERATORS.keys()


def test_the_quantizers_are_said_to_be_left_out(tmp_path) -> None:
    from tests.helpers.cli import run

    done = run("inspect", quantized_model(tmp_path, "QDQ", "QInt8", False))
    assert "note: the model is already quantized" in done.out
