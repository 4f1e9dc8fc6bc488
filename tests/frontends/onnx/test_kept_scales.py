"""Already quantized models with power-of-two scales are kept, code by code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qgraph
from qgraph.exact.reference import Reference
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Fixed
from qgraph.quant.profile import load_profile
from qgraph.quantized import Quantized
from tests.frontends.onnx.test_dequantized import WEIGHTS, X, node, quantized_model

onnxruntime = pytest.importorskip("onnxruntime")

NODES = [
    node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]),
    node("Relu", ["a"], ["b"]),
    node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1]),
    node("Add", ["c", "b"], ["e"]),
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
    graph = helper.make_graph(
        NODES, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(a.astype("float32"), name) for name, a in WEIGHTS.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def with_powers_of_two(path: Path, leave: int = 0) -> Path:
    """The file with each scale at the next power of two, as Quark's XINT8 has them.

    leave: the number of scales that stay as they are.
    """
    model = onnx.load(path)
    held = {t.name: t for t in model.graph.initializer}
    arrays = {name: numpy_helper.to_array(t) for name, t in held.items()}
    for name in [name for name in held if name.endswith("_scale")][leave:]:
        arrays[name] = np.exp2(np.ceil(np.log2(arrays[name]))).astype(np.float32)
    for name in (name for name in held if name.endswith("_zero_point")):
        zero = arrays[name]  # at the lowest code or in the middle
        lowest, middle = {"uint8": (0, 128), "int8": (-128, 0)}.get(zero.dtype.name, (0, 0))
        arrays[name] = np.where(zero > lowest, middle, lowest).astype(zero.dtype)
    makers = {n.output[0]: n for n in model.graph.node}
    for n in model.graph.node:  # a bias has the scale of the products
        if n.op_type in ("Conv", "Gemm") and len(n.input) > 2:
            x, w, b = (makers[i].input[1] for i in n.input)
            arrays[b] = (arrays[x] * arrays[w]).reshape(arrays[b].shape)
    for name, tensor in held.items():
        tensor.CopyFrom(numpy_helper.from_array(np.array(arrays[name]), name))
    onnx.save(model, path.with_name("powers.onnx"))
    return path.with_name("powers.onnx")


def run(path: Path, names: Sequence[str], feed: np.ndarray) -> dict[str, np.ndarray]:
    """Values that ONNX Runtime computes from the file as it is, without rewrites."""
    model = onnx.load(path)
    known = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in known)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return dict(zip(names, session.run(list(names), {"x": feed}), strict=True))


def values_of_reference(made: Quantized, feed: np.ndarray) -> dict[str, np.ndarray]:
    """The values of each quantizer of activations, in the layout of the file."""
    found = {}
    for name, value in Reference(made.graph).run({"x": feed}).items():
        node = made.graph.nodes[name]
        if node.op != "quantize" or spec_of(node).role.of_constant:
            continue
        assert isinstance(value, Fixed)
        array = np.ldexp(value.codes.astype(np.float32), -np.asarray(value.exponent))
        moved = array.ndim == 4 and name.endswith("/untransposed")
        found[name.removesuffix("/untransposed")] = array.transpose(0, 3, 1, 2) if moved else array
    return found


def assert_codes_of_runtime(made: Quantized, path: Path, least: int, feed: np.ndarray = X) -> None:
    """All quantizers that the file and the network have are equal; there are `least` of them."""
    model, found = onnx.load(path), values_of_reference(made, feed)
    codes = {n.output[0] for n in model.graph.node if n.op_type == "QuantizeLinear"}
    pairs = [n for n in model.graph.node if n.op_type == "DequantizeLinear"]
    names = [n.output[0] for n in pairs if n.input[0] in codes and n.output[0] in found]
    assert len(names) >= least and "y" in names
    for name, wanted in run(path, names, feed).items():
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)


def arrays_of(folder: Path) -> list[np.ndarray]:
    """The codes of each tensor of an output directory, in the order of the network."""
    with np.load(folder / "tensors.npz") as file:
        return [file[name] for name in file.files if name.startswith("codes/")]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("profile", ["graffitist-int8", "int32-bias"])
def test_codes_equal_those_of_onnx_runtime(profile, kind, per_channel, tmp_path) -> None:
    path = quantized_model(tmp_path, "QDQ", kind, per_channel, model=float_model())
    target = replace(load_profile(profile), per_channel=per_channel)
    made = qgraph.quantize(with_powers_of_two(path), profile=target)
    assert made.graph.notes == [
        "the model is already quantized: 19 of 19 scales are powers of two: kept"
    ]
    assert [w.split(";")[0] for w in made.facts.warnings] == [
        "no data: scales as in the file, others from noise at the inputs"
    ]
    assert_codes_of_runtime(made, tmp_path / "powers.onnx", least=9)


def test_the_result_is_equal_in_every_form(tmp_path) -> None:
    path = quantized_model(tmp_path, "QDQ", "QInt8", False, model=float_model())
    out = qgraph.quantize(with_powers_of_two(path), X).save(tmp_path / "out")
    found = qgraph.verify(out, forms=["engine", "tensorflow", "onnx-integer", "onnx-qdq", "qonnx"])
    assert found.equal and not found.network.program.has_islands


@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
def test_ops_on_codes_are_kept_too(kind, tmp_path) -> None:
    path = quantized_model(tmp_path, "QOperator", kind, False, model=float_model())
    made = qgraph.quantize(with_powers_of_two(path), profile="int32-bias")
    (note,) = made.graph.notes
    assert "kept" in note and "others" not in note
    found = Reference(made.graph).run({"x": X})[made.graph.outputs["y"]]
    assert isinstance(found, Fixed)
    values = np.ldexp(found.codes.astype(np.float32), -np.asarray(found.exponent))
    np.testing.assert_array_equal(values, run(tmp_path / "powers.onnx", ["y"], X)["y"])


def test_scales_that_are_not_powers_of_two_are_chosen_again(tmp_path) -> None:
    path = quantized_model(tmp_path, "QDQ", "QUInt8", False, model=float_model())
    made = qgraph.quantize(with_powers_of_two(path, leave=6), X)
    assert "12 of 19 scales are powers of two: kept; the others" in made.graph.notes[0]
    assert "the profile adds" in made.graph.notes[1]


def test_a_search_quantizes_everything_again(tmp_path) -> None:
    path = quantized_model(tmp_path, "QDQ", "QUInt8", False, model=float_model())
    made = qgraph.quantize(with_powers_of_two(path), X, plan="plain")
    assert "quantized again, with powers of two (19 of 19" in made.graph.notes[0]


def test_weights_that_the_profile_cannot_have_are_reported(tmp_path) -> None:
    path = quantized_model(tmp_path, "QDQ", "QInt8", True, model=float_model())
    made = qgraph.quantize(with_powers_of_two(path), X)
    assert any("the profile one for each tensor" in note for note in made.graph.notes)


@pytest.mark.parametrize("profile", ["graffitist-int8", "int32-bias", "graffitist-int4"])
def test_an_export_gives_the_same_network_again(profile, tmp_path) -> None:
    model = float_model()
    del model.graph.node[4]  # the Sigmoid: a file has the codes of its table
    model.graph.node[4].input[1] = "b"
    onnx.save(model, tmp_path / "float.onnx")
    first = qgraph.quantize(tmp_path / "float.onnx", X, profile=profile, effort="plain")
    wanted = arrays_of(first.save(tmp_path / "first"))
    qgraph.export(tmp_path / "first", "onnx-qdq", tmp_path / "written")
    again = qgraph.quantize(tmp_path / "written" / "network.onnx", X, profile=profile)
    assert "kept" in again.graph.notes[0] and len(again.graph.notes) == 1
    found = arrays_of(again.save(tmp_path / "again"))
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_many_weights_keep_their_scale(tmp_path) -> None:
    """Weights with small codes: a scale chosen from their values would be finer."""
    codes = (np.arange(48 * 24).reshape(48, 24) % 7 - 3).astype(np.int8)
    held = {
        "codes": codes, "zero": np.int8(0), "scale": np.float32(2**-7), "step": np.float32(2**-4),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "step", "zero"], ["x8"]),
        node("DequantizeLinear", ["x8", "step", "zero"], ["x32"]),
        node("DequantizeLinear", ["codes", "scale", "zero"], ["w32"]),
        node("MatMul", ["x32", "w32"], ["m"]),
        node("QuantizeLinear", ["m", "step", "zero"], ["m8"]),
        node("DequantizeLinear", ["m8", "step", "zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 48])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 24])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    made = qgraph.quantize(tmp_path / "m.onnx", profile="int32-bias")
    assert any(np.array_equal(a, codes) for a in arrays_of(made.save(tmp_path / "out")))
    feed = np.random.default_rng(0).normal(0, 4, (16, 48)).astype(np.float32)
    assert_codes_of_runtime(made, tmp_path / "m.onnx", least=2, feed=feed)


def test_exponents_of_a_run_give_it_again(tmp_path) -> None:
    path = quantized_model(tmp_path, "QDQ", "QInt8", False, model=float_model())
    made = qgraph.quantize(with_powers_of_two(path), X)
    out = made.save(tmp_path / "out")
    again = qgraph.quantize(tmp_path / "powers.onnx", X, exponents=out / "exponents.json")
    assert str(again.graph) == str(made.graph)
