"""Ops without an importer that are read as the ops of ONNX's definition of them."""

import numpy as np
import pytest
from onnx import TensorProto, defs, helper

from benchmarks.onnx_nodes import Verdict, node_cases, outcome_of
from qgraph import quantize
from qgraph.frontends.onnx.functions import by_other_ops
from qgraph.verification.verify import verify
from tests.helpers.graphs import opaque_kinds
from tests.helpers.onnx_graphs import assert_like_runtime, f, imported, ints, model_of, one_op

CASES = {case.name.removeprefix("test_"): case for case in node_cases()}
READ = [
    *("rotary_embedding", "rotary_embedding_with_interleaved_rotary_dim"),
    *("center_crop_pad_crop_and_pad", "center_crop_pad_crop_negative_axes_hwc"),
    *("affine_grid_2d_align_corners", "swiglu_alpha", "mvn"),
    *("causal_conv_with_state_silu", "linear_attention_linear", "attention_3d_local_window"),
]


@pytest.mark.parametrize("name", READ)
def test_node_tests_are_equal(name):
    outcome = outcome_of(CASES[name])
    assert outcome.verdict is Verdict.EQUAL, outcome.reason


ROTARY = (f(1, 2, 3, 8), f(6, 4), f(6, 4), ints([0, 2, 5]))


@pytest.mark.parametrize(
    "model",
    [
        one_op("RotaryEmbedding", *ROTARY, opset=23),
        one_op("RotaryEmbedding", *ROTARY, opset=23, interleaved=1),
        one_op("MeanVarianceNormalization", f(2, 3, 4, 5)),
        one_op("MeanVarianceNormalization", f(2, 3, 4, 5), axes=[1, 3]),
        one_op("CenterCropPad", f(5, 4, 3), ints(3, 6), opset=18, axes=[0, 2]),
    ],
    ids=["rotary", "interleaved", "all_but_channels", "axes", "crop_and_pad"],
)
def test_they_are_those_of_onnx_runtime(model):
    """Attributes that are left out have their defaults."""
    model.ir_version = 10
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert_like_runtime(model, {"x": f(*shape)})


def test_without_a_definition_there_is_none():
    assert by_other_ops(one_op("Det", f(4, 4))) is None
    assert defs.get_schema("RotaryEmbedding").has_context_dependent_function


def test_an_op_stays_whole_if_a_part_of_it_is_opaque():
    """A window of Hann needs a range whose end is an input."""
    model = one_op("HannWindow", np.asarray(10, np.int64))
    graph = imported(model)
    assert opaque_kinds(graph) == ["HannWindow"]
    assert {node.op for node in graph.nodes.values()} == {"input", "opaque"}


def test_a_rotary_embedding_between_layers_is_integer(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"]),
        helper.make_node("RotaryEmbedding", ["q", "cos", "sin", "place"], ["r"], num_heads=2),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    angles = (np.arange(12).reshape(3, 4) * 0.4).astype(np.float32)
    constants = {
        "w": f(5, 16), "cos": np.cos(angles), "sin": np.sin(angles), "place": ints([0, 1, 2]),
        "v": f(16, 3),
    }  # fmt: skip
    model = model_of(nodes, {"x": (1, 3, 5)}, constants=constants, opset=23, ir_version=10)
    data = {"x": np.random.default_rng(0).normal(size=(1, 3, 5)).astype(np.float32)}
    made = quantize(imported(model), data, effort="plain")
    assert not [r for r in made.trace.refusals if r.reason.startswith("stays float")]
    found = verify(made.save(tmp_path / "out"), forms=["engine", "onnx-integer"])
    assert found.equal and not found.refused


# -- Scan ----------------------------------------------------------------------------------------


def scan(**attrs):
    """Sums of the rows so far, and each sum doubled."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "row"], ["next"]),
            helper.make_node("Add", ["next", "next"], ["double"]),
        ],
        "body",
        [info("sum", TensorProto.FLOAT, (3,)), info("row", TensorProto.FLOAT, (3,))],
        [info("next", TensorProto.FLOAT, (3,)), info("double", TensorProto.FLOAT, (3,))],
    )
    node = helper.make_node("Scan", ["s", "x"], ["y", "z"], body=body, num_scan_inputs=1, **attrs)
    shape = (3, 4) if attrs.get("scan_input_axes") else (4, 3)
    return model_of([node], {"x": shape}, ["y", "z"], {"s": np.float32([0.5, -1, 2])}), shape


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"scan_input_axes": [1]},
        {"scan_input_axes": [-1], "scan_output_axes": [1]},
        {"scan_input_directions": [1], "scan_output_directions": [1]},
        {"scan_output_axes": [-1]},
    ],
    ids=str,
)
def test_steps_of_a_scan_are_written_out(attrs):
    model, shape = scan(**attrs)
    assert_like_runtime(model, {"x": f(*shape)})


VECTORS = {
    "row": (f(4), f(4, 3)),
    "column": (f(3, 4), f(4)),
    "both": (f(4), f(4)),
    "row_of_batches": (f(4), f(2, 4, 3)),
    "column_of_batches": (f(2, 3, 4), f(4)),
}


@pytest.mark.parametrize("name", VECTORS)
def test_products_with_vectors(name):
    x, w = VECTORS[name]
    assert_like_runtime(one_op("MatMul", x, w), {"x": x})
