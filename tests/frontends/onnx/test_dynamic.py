"""Models of `quantize_dynamic`: the float networks that they stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qgraph
from qgraph.frontends import load
from qgraph.interpret import evaluate
from tests.frontends.onnx.test_dequantized import decibels
from tests.frontends.onnx.test_dequantized import float_model as convolutions

quantization = pytest.importorskip("onnxruntime.quantization")

RNG = np.random.default_rng(1)


def model(nodes: list[onnx.NodeProto], shape: list, **arrays: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in arrays.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def dense() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "v"], ["e"]),
        helper.make_node("MatMul", ["d", "u"], ["f"]),
        helper.make_node("Add", ["e", "f"], ["y"]),
    ]
    shapes = {"w": (6, 8), "b": (8,), "v": (8, 3), "u": (8, 3)}
    return model(nodes, ["N", 6], **{n: RNG.normal(0, 0.5, s) for n, s in shapes.items()})


def lstm() -> onnx.ModelProto:
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["all", "y"], hidden_size=4,
                         direction="bidirectional"),
    ]  # fmt: skip
    shapes = {"w": (2, 16, 6), "r": (2, 16, 4), "b": (2, 32)}
    return model(nodes, [5, 2, 6], **{n: RNG.normal(0, 0.5, s) for n, s in shapes.items()})


def dynamic(folder: Path, made: onnx.ModelProto, **options: object) -> Path:
    onnx.save(made, folder / "float.onnx")
    quantization.quantize_dynamic(folder / "float.onnx", folder / "dynamic.onnx", **options)
    return folder / "dynamic.onnx"


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["QInt8", "QUInt8"])
@pytest.mark.parametrize("network", [dense, lstm, convolutions])
def test_only_the_weights_are_rounded(network, kind, per_channel, tmp_path) -> None:
    made = network()
    options = {"per_channel": per_channel, "weight_type": getattr(quantization.QuantType, kind)}
    path = dynamic(tmp_path, made, **options)
    assert {n.op_type for n in onnx.load(path).graph.node} & {
        "MatMulInteger", "ConvInteger", "DynamicQuantizeLSTM"
    }  # fmt: skip
    graph = load(path)
    assert not any(n.op == "opaque" for n in graph.topological())
    assert "quantized dynamically" in graph.notes[0]
    shape = [4 if isinstance(d, str) else d for d in _shape(made)]
    feed = {"x": RNG.normal(size=shape).astype(np.float32)}
    wanted, found = (evaluate(g, feed)["y"] for g in (load(tmp_path / "float.onnx"), graph))
    assert decibels(found, wanted) > 30


def _shape(made: onnx.ModelProto) -> list[int | str]:
    dims = made.graph.input[0].type.tensor_type.shape.dim
    return [d.dim_param or d.dim_value for d in dims]


def test_weights_are_the_codes_times_their_scales(tmp_path) -> None:
    path = dynamic(tmp_path, dense(), per_channel=True)
    held = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    codes, scale, zero = (held[f"w_{part}"] for part in ("quantized", "scale", "zero_point"))
    wanted = (codes.astype(np.float64) - zero) * scale
    graph = load(path)
    layer = next(n for n in graph.topological() if n.op == "matmul")
    np.testing.assert_array_equal(graph.constant(layer.inputs[1]), wanted.astype(np.float32))


def test_codes_with_other_users_stay(tmp_path) -> None:
    path = dynamic(tmp_path, dense())
    changed = onnx.load(path)
    quantizer = next(n for n in changed.graph.node if n.op_type == "DynamicQuantizeLinear")
    changed.graph.node.append(
        helper.make_node("Cast", [quantizer.output[0]], ["codes"], to=TensorProto.FLOAT)
    )
    changed.graph.output.append(helper.make_empty_tensor_value_info("codes"))
    onnx.save(changed, path)
    kinds = [n.attrs.get("kind") for n in load(path).topological() if n.op == "opaque"]
    assert "DynamicQuantizeLinear" in kinds


def test_the_network_is_equal_in_every_form(tmp_path) -> None:
    feed = RNG.normal(size=(32, 6)).astype(np.float32)
    out = qgraph.quantize(dynamic(tmp_path, dense()), feed, effort="plain").save(tmp_path / "out")
    found = qgraph.verify(out, forms=["engine", "onnx-integer", "onnx-qdq"])
    assert found.equal and not found.network.program.has_islands
