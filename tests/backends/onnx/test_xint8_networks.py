"""Networks in the shape of XINT8, files of Quark, and what is reported about an NPU."""

import numpy as np
import onnx
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import qgraph
from qgraph import export, verify
from qgraph.backends.onnx.onnx_forms import FILE, OnnxXint8
from qgraph.backends.onnx.runners import session
from qgraph.errors import UnsupportedError
from qgraph.exports import index_of
from qgraph.passes import PassManager
from qgraph.program import lower
from qgraph.quant.profile import load_profile
from qgraph.recipes import FLOAT
from tests.helpers.digits_directory import digits_directory
from tests.helpers.forms import assert_form, carried, network_of
from tests.helpers.generators.graphs import random_graph
from tests.helpers.onnx_codes import types_of
from tests.helpers.program_builder import ProgramBuilder, requantized
from tests.helpers.quantized import quantize as quantized

onnxruntime = pytest.importorskip("onnxruntime")
FORM = OnnxXint8()
RYZEN_AI = load_profile("ryzen-ai")


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_random_networks(seed: int) -> None:
    """The profile gives networks that the form supports, up to the bound of float32."""
    graph = random_graph(seed, 6, dtype="float32")
    PassManager(FLOAT).run(graph)
    try:
        program = lower(quantized(graph, RYZEN_AI))
    except UnsupportedError as error:
        assert "float" in error.message or "nothing" in error.message
        reject()
    assert_form(FORM, carried(FORM, program, "float32 is exact up to"))


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return digits_directory(tmp_path_factory.mktemp("digits"), "ryzen-ai")


def test_verify_compares_every_tensor(out) -> None:
    found = verify(out, forms=["onnx-xint8"])
    assert found.equal
    assert found.certificate.forms["onnx-xint8"].elements > 90_000


def test_a_network_has_the_shape_of_xint8(out, tmp_path) -> None:
    export(out, "onnx-xint8", tmp_path / "made")
    model = onnx.load(tmp_path / "made" / FILE)
    onnx.checker.check_model(model, full_check=True)
    assert types_of(model).keys() <= {"INT8", "INT32"}
    makers = {node.output[0]: node for node in model.graph.node}
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    assert len(layers) == 12
    for layer in layers:
        assert {makers[name].op_type for name in layer.input} == {"DequantizeLinear"}
    scales = [i for i in model.graph.initializer if "/scale" in i.name]
    assert scales
    for scale in scales:
        assert scale.data_type == TensorProto.FLOAT
        mantissa, _ = np.frexp(numpy_helper.to_array(scale))
        assert mantissa.shape == () and mantissa == 0.5


@pytest.mark.parametrize("profile", ["int32-bias", "graffitist-int8", "litert", "tosa", "esp32-s3"])
def test_networks_of_other_profiles_are_refused(profile, tmp_path) -> None:
    made = digits_directory(tmp_path, profile)
    with pytest.raises(UnsupportedError, match="onnx-xint8 does not support this network: "):
        export(made, "onnx-xint8", tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_file_with_another_weight_differs(out, tmp_path) -> None:
    export(out, "onnx-xint8", tmp_path / "made")
    assert verify(out, files=tmp_path / "made").equal
    path = tmp_path / "made" / FILE
    model = onnx.load(path)
    weights = next(one for one in model.graph.initializer if one.name.endswith("weights/q8/codes"))
    weights.raw_data = bytes(byte ^ 1 for byte in weights.raw_data)
    onnx.save(model, path)
    found = verify(out, files=tmp_path / "made")
    assert not found.equal and found.certificate.forms["onnx-xint8"].differences


def test_the_opset_is_older_if_all_ops_have_the_same_version_there(out, tmp_path) -> None:
    builder = ProgramBuilder()
    builder.step("reduce_max", builder.entry((1, 4, 4)), axes=(1,), keepdims=True)
    assert [one.version for one in FORM.emit(network_of(builder.program())).opset_import] == [18]
    export(out, "onnx-xint8", tmp_path / "made")
    model = onnx.load(tmp_path / "made" / FILE)
    assert [one.version for one in model.opset_import] == [17]
    assert index_of(tmp_path / "made").warnings == ()


# -- files of Quark --------------------------------------------------------------------------


def test_int8_biases_of_a_file_are_kept(tmp_path) -> None:
    """A file in the shape that Quark writes: read, exported again, with the same codes."""
    made = file_with_int8_biases()
    onnx.save(made, tmp_path / "quark.onnx")
    images = np.random.default_rng(0).normal(size=(32, 3, 6, 6)).astype(np.float32)
    first = qgraph.quantize(tmp_path / "quark.onnx", profile="ryzen-ai")
    assert len(first.graph.notes) == 1 and "kept" in first.graph.notes[0]
    first.save(tmp_path / "out")
    assert verify(tmp_path / "out", forms=["onnx-xint8"]).equal
    export(tmp_path / "out", "onnx-xint8", tmp_path / "made")
    again = onnx.load(tmp_path / "made" / FILE)
    assert types_of(again).keys() == {"INT8"}
    held = {one.name: numpy_helper.to_array(one) for one in again.graph.initializer}
    values = [
        held[f"{name}/codes"] * held[f"{name}/scale"]
        for name in (n.output[0] for n in again.graph.node if n.op_type == "DequantizeLinear")
        if held.get(f"{name}/codes", np.zeros(0)).shape == (4,)
    ]
    np.testing.assert_array_equal(values, [BIAS * np.float32(2**-5)])
    for optimised in (False, True):
        runs = [session(one, optimised).run(None, {"x": images})[0] for one in (made, again)]
        np.testing.assert_array_equal(*runs)


BIAS = np.array([100, -128, 3, 0], np.int8)


def file_with_int8_biases() -> onnx.ModelProto:
    rng, node = np.random.default_rng(0), helper.make_node
    weights = rng.integers(-128, 128, (4, 3, 3, 3)).astype(np.int8)
    held = {"w": weights, "b": BIAS, "x/s": 2**-5, "w/s": 2**-9, "b/s": 2**-5, "y/s": 2**-4}
    arrays = {n: np.asarray(a, np.int8 if n in "wb" else np.float32) for n, a in held.items()}
    arrays |= {f"{name}/z": np.int8(0) for name in "xwby"}  # ONNX Runtime rewrites shared ones
    nodes = [
        node("QuantizeLinear", ["x", "x/s", "x/z"], ["x/q"]),
        node("DequantizeLinear", ["x/q", "x/s", "x/z"], ["x/d"]),
        node("DequantizeLinear", ["w", "w/s", "w/z"], ["w/d"]),
        node("DequantizeLinear", ["b", "b/s", "b/z"], ["b/d"]),
        node("Conv", ["x/d", "w/d", "b/d"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "y/s", "y/z"], ["y/q"]),
        node("DequantizeLinear", ["y/q", "y/s", "y/z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "quark",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4, 6, 6])],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# -- warnings and versions -------------------------------------------------------------------


def warnings_of(builder: ProgramBuilder) -> list[str]:
    return FORM.warnings(network_of(builder.program()))


def test_ops_that_an_npu_may_leave_to_the_cpu_are_named() -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 4), name="x")
    table = builder.constant(np.arange(-128, 128), "table")
    for name in "abcde":
        builder.step("lookup", x, table, offset=-128, name=name)
    (warning,) = warnings_of(builder)
    assert warning.startswith("5 ops are not in the shape of XINT8")
    assert warning.endswith(": `a`, `b`, `c` and 2 more")
    assert_form(FORM, builder.program())


@pytest.mark.parametrize(("shift", "inside"), [(-1, False), (0, True), (16, True), (17, False)])
def test_shifts_that_quark_would_not_leave_are_named(shift, inside) -> None:
    builder = ProgramBuilder()
    x, weights = builder.entry((1, 4), name="x"), builder.constant(np.eye(4, dtype=int))
    y = builder.step("matmul", x, weights)
    y = builder.step("add", y, builder.constant([1, 2, 3, 4]))
    y = builder.step("clip", y, low=0, high=None)
    y = builder.step("requantize", y, **requantized(shift), name="layer")
    builder.step("requantize", y, **requantized(20), name="no result of a layer")
    found = warnings_of(builder)
    assert len(found) == (not inside)
    if not inside:
        assert found[0].startswith("the results of 1 layers are shifted by less than 0 or more")
        assert found[0].endswith(f": `layer` by {shift}")
    assert_form(FORM, builder.program())
