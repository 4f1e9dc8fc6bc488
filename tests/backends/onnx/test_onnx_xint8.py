"""Files in the shape of XINT8 compute the integer program in ONNX Runtime, to the last code."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import TensorProto, numpy_helper

from qgraph.backends.onnx.onnx_forms import OnnxXint8
from qgraph.backends.onnx.xint8 import int8_shift
from qgraph.program import Program
from qgraph.quant.profile import load_profile
from tests.helpers.forms import assert_form, carried, network_of
from tests.helpers.generators.programs import programs
from tests.helpers.onnx_codes import types_of
from tests.helpers.program_builder import ProgramBuilder, padded_pool, requantized

onnxruntime = pytest.importorskip("onnxruntime")
FORM = OnnxXint8()
RYZEN_AI = load_profile("ryzen-ai")
WINDOW = {"strides": (1, 1), "dilations": (1, 1), "pads": ((1, 1), (0, 2))}


@settings(max_examples=60)
@given(programs(None, ("half_even",), ("saturate",), (2, 4, 8, 8, 8, 8), int8=True))
def test_random_programs(program) -> None:
    assert_form(FORM, carried(FORM, program))


def file_of(program: Program) -> onnx.ModelProto:
    return FORM.emit(network_of(program))


@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d", "matmul", "batch_matmul"])
def test_layers_of_extreme_codes(op) -> None:
    """Products of the largest codes, where sums of two exceed 16 bits."""
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    shape = {"matmul": (1, 70), "batch_matmul": (1, 3, 70)}.get(op, (1, 5, 4, 16))
    of_weights = {"conv2d": (3, 3, 16, 5), "depthwise_conv2d": (3, 3, 16, 1)}.get(op, (70, 9))
    of_weights = (1, *of_weights) if op == "batch_matmul" else of_weights
    attrs = {"conv2d": {**WINDOW, "groups": 1}, "depthwise_conv2d": WINDOW}.get(op, {})
    channels = of_weights[2] if op == "depthwise_conv2d" else of_weights[-1]
    entry = builder.entry(shape, (-128, 127), "x")
    for codes in (
        np.full(of_weights, -128),
        np.full(of_weights, 127),
        rng.choice([-128, 127], of_weights),
    ):
        y = builder.step(op, entry, builder.constant(codes, exponent=9), **attrs)
        bias = builder.constant(rng.integers(-(2**20), 2**20, channels), exponent=9)
        builder.step("requantize", builder.step("add", y, bias), **requantized(9))
    batches = [
        np.full(shape, -128),
        np.full(shape, 127),
        *(rng.choice([-128, 127], shape) for _ in "abcd"),
    ]
    program = builder.program()
    assert_form(FORM, program, codes={"x": np.concatenate(batches)})
    assert types_of(file_of(program)).keys() == {"INT8", "INT32"}


@pytest.mark.parametrize("first", [True, False])
def test_products_of_matrices(first) -> None:
    """Two activations, one that several nodes read, and a constant as the first operand."""
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    y = builder.entry((1, 16, 5), name="y")
    x = builder.entry((1, 3, 16), name="x") if first else None
    x = x or builder.constant(rng.choice([-128, 127], (1, 3, 16)))
    made = builder.step("batch_matmul", x, y)
    made = builder.step("requantize", made, **requantized(10))
    other = builder.step("abs", y)
    names = ("x", "y") if first else ("y",)
    drawn = {"x": rng.choice([-128, 127], (9, 3, 16)), "y": rng.choice([-128, 127], (9, 16, 5))}
    assert_form(FORM, builder.program(made, other), codes={name: drawn[name] for name in names})


@pytest.mark.parametrize("rounded", [True, False])
def test_constants_times_a_varying_matrix(rounded) -> None:
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    y = builder.entry((1, 16, 4), name="y")
    made = builder.step("batch_matmul", builder.constant(rng.choice([-128, 127], (1, 11, 16))), y)
    if rounded:
        builder.step("requantize", made, **requantized(10))
    assert_form(FORM, builder.program(), codes={"y": rng.choice([-128, 127], (9, 16, 4))})


@pytest.mark.parametrize("op", ["conv2d", "matmul"])
def test_operands_without_a_quantizer_get_a_pair(op) -> None:
    """A sum of two 7-bit codes has 8 bits, and nothing rounds it before the layer."""
    builder, shape = ProgramBuilder(), (1, 4, 4, 3) if op == "conv2d" else (1, 3)
    x = builder.entry(shape, (-64, 63), name="x")
    codes = np.arange(-9, 9).reshape(1, 2, 3, 3) if op == "conv2d" else np.eye(3, dtype=int)
    weights = builder.constant(codes)
    attrs = {**WINDOW, "groups": 1} if op == "conv2d" else {}
    builder.step(op, builder.step("add", x, x), weights, **attrs)
    program = builder.program()
    model = file_of(program)
    makers = {node.output[0]: node.op_type for node in model.graph.node}
    (layer,) = (node for node in model.graph.node if node.op_type in ("Conv", "MatMul"))
    assert [makers[name] for name in layer.input] == ["DequantizeLinear"] * 2
    assert_form(FORM, program)


def test_every_tie_is_rounded_to_even() -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 8), name="x")
    y = builder.step("add", x, x)
    for shift in (*range(-4, 13), -22, -23, -40, 40):
        for value in (x, y):
            builder.step("requantize", value, **requantized(shift))
    assert_form(FORM, builder.program(), codes={"x": np.arange(-128, 128).reshape(-1, 8)})


@pytest.mark.parametrize(
    ("codes", "dtype"),
    [
        ([127 << 9, -128 << 9, 512, 0], "INT8"),
        ([0, 0, 0, 0], "INT8"),
        ([128 << 9, 1024, 0, 0], "INT8"),
        ([128 << 9, 512, 0, 0], "INT32"),
        ([1 << 20, 1, 0, 0], "INT32"),
        ([-(1 << 22), 0, 0, 0], "INT8"),
    ],
)
def test_biases_are_int8_if_a_coarser_scale_has_their_values(codes, dtype) -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 3), name="x")
    y = builder.step("matmul", x, builder.constant(np.arange(12).reshape(3, 4), exponent=7))
    y = builder.step("add", y, builder.constant(codes, "bias", exponent=7))
    builder.step("requantize", y, **requantized(9))
    program = builder.program()
    held = {one.name: one for one in file_of(program).graph.initializer}
    bias = held["bias/codes"]
    assert TensorProto.DataType.Name(bias.data_type) == dtype
    values = numpy_helper.to_array(bias) * numpy_helper.to_array(held["bias/scale"])
    np.testing.assert_array_equal(values, np.ldexp(np.array(codes, np.float64), -7))
    assert_form(FORM, program)


@pytest.mark.parametrize(
    ("codes", "shift"),
    [
        ([0], 0),
        ([127, -128], 0),
        ([128], 1),
        ([-129, 0], None),
        ([-256, 254], 1),
        ([-256, 255], None),
        ([127 << 15], 15),
        ([127 << 16], None),
        ([-(1 << 22)], 15),
        ([-(1 << 23)], None),
        ([1, 1024], None),
    ],
)
def test_shifts_of_int8_biases(codes, shift) -> None:
    assert int8_shift(np.array(codes)) == shift


def test_padding_that_is_pooled_is_zero() -> None:
    for of_sums in (False, True):
        program, codes = padded_pool(-128, of_sums=of_sums)
        assert_form(FORM, program, codes=codes)


# -- the text of a file ----------------------------------------------------------------------

TEXT = """\
x/q8/codes = QuantizeLinear(x, x/q8/scale FLOAT 0.125, x/q8/zero INT8 0)
x/q8 = DequantizeLinear(x/q8/codes, x/q8/scale FLOAT 0.125, x/q8/zero INT8 0)
w = DequantizeLinear(w/codes INT8 [[64, -128], [3, 127]], w/scale FLOAT 0.03125, w/zero INT8 0)
b = DequantizeLinear(b/codes INT8 [96, -32], b/scale FLOAT 0.0078125, b/zero INT8 0)
sum = Gemm(x/q8, w, b)
relu = Relu(sum)
y/codes = QuantizeLinear(relu, y/scale FLOAT 0.5, y/zero INT8 0)
y_1 = DequantizeLinear(y/codes, y/scale FLOAT 0.5, y/zero INT8 0)
y = Identity(y_1)
"""


def text_of(model: onnx.ModelProto) -> str:
    held = {one.name: one for one in model.graph.initializer}

    def shown(name: str) -> str:
        if name not in held:
            return name
        kind = TensorProto.DataType.Name(held[name].data_type)
        return f"{name} {kind} {numpy_helper.to_array(held[name]).tolist()}"

    return "".join(
        f"{node.output[0]} = {node.op_type}({', '.join(map(shown, node.input))})\n"
        for node in model.graph.node
    )


def dense_layer() -> Program:
    builder = ProgramBuilder()
    x = builder.entry((1, 2), name="x/q8", exponent=3)
    y = builder.step(
        "matmul", x, builder.constant([[64, -128], [3, 127]], "w", exponent=5), name="products"
    )
    y = builder.step("add", y, builder.constant([192, -64], "b", exponent=8), name="sum")
    y = builder.step("clip", y, low=0, high=None, name="relu")
    builder.step("requantize", y, **requantized(7), name="y")
    program = builder.program()
    return replace(program, entries=(replace(program.entries[0], source="x"),))


def test_text_of_a_dense_layer() -> None:
    program = dense_layer()
    assert text_of(file_of(program)) == TEXT
    assert_form(FORM, program)


# -- refusals --------------------------------------------------------------------------------


def refusal_of(builder: ProgramBuilder) -> str:
    return str(FORM.refusal(network_of(builder.program())))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rounding": "half_up"}, "layer: rounds half_up, which onnx-xint8 does not support"),
        ({"rounding": "double"}, "layer: rounds double"),
        ({"overflow": "wrap"}, "layer: wraps around, onnx-xint8 only saturates"),
        ({"low": 0, "high": 255}, "layer: its codes are 0..255, but XINT8 has int8 codes"),
        ({"low": -(2**15), "high": 2**15 - 1}, "layer: its codes are -32768..32767, but XINT8"),
        ({"shift": (1, 2, 3, 4)}, "layer: has a scale for each channel, but XINT8 has one scale"),
    ],
)
def test_results_that_the_form_lacks_are_refused(change, reason) -> None:
    rule = {"shift": 1, "rounding": "half_even", "overflow": "saturate", "low": -8, "high": 7}
    builder = ProgramBuilder()
    builder.step("requantize", builder.entry((1, 4), name="x"), name="layer", **rule | change)
    refusal = refusal_of(builder)
    assert refusal.startswith(reason)
    assert "use " in refusal


def test_operands_that_the_form_lacks_are_refused() -> None:
    builder = ProgramBuilder()
    builder.entry((1, 4), (0, 255), "image")
    assert refusal_of(builder).startswith("image: its codes are 0..255")

    builder = ProgramBuilder()
    sums = builder.step("add", *[builder.entry((1, 4), name="x")] * 2, name="sums")
    builder.step("matmul", sums, builder.constant(np.eye(4, dtype=int)), name="layer")
    assert refusal_of(builder).startswith("sums: its codes are -256..254, but XINT8")

    for op, codes in (("matmul", np.eye(4, dtype=int) * 300), ("mul", np.array(300))):
        builder = ProgramBuilder()
        constant = builder.constant(codes, "constant")
        builder.step(op, builder.entry((1, 4), name="x"), constant, name="layer")
        assert refusal_of(builder).startswith("constant: its codes are")

    builder = ProgramBuilder()
    weights = builder.constant(np.eye(4, dtype=int) * 127)
    y = builder.step("matmul", builder.entry((1, 4), name="x"), weights)
    builder.step("add", y, builder.constant([2**24] * 4), name="layer")
    assert "layer: sums reach 16,793," in refusal_of(builder)
