"""ONNX of integer ops only is the integer program, bit for bit, optimised and not."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings

from qgraph.backends.onnx.onnx_forms import OnnxInteger
from qgraph.backends.onnx.runners import session
from qgraph.ir.types import ROUNDINGS
from qgraph.numerics import quantize as quantize_codes
from qgraph.program import lower
from tests.helpers.forms import assert_form, network_of
from tests.helpers.generators.programs import programs
from tests.helpers.layers import Net
from tests.helpers.program_builder import ProgramBuilder, padded_pool
from tests.helpers.quantized import network_programs, quantize

FORM = OnnxInteger()
WINDOW = {"strides": (1, 1), "dilations": (1, 1), "pads": ((1, 1), (0, 2))}


@settings(max_examples=25)
@given(network_programs())
def test_random_networks(program) -> None:
    assert_form(FORM, program)


@settings(max_examples=40)
@given(programs())
def test_random_programs(program) -> None:
    assert_form(FORM, program)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("overflow", ["saturate", "wrap"])
@pytest.mark.parametrize(("bits", "signed"), [(4, True), (8, False), (16, True), (32, True)])
def test_every_tie_is_rounded(rounding, overflow, bits, signed) -> None:
    """All codes of 9 bits with every shift, for all channels and for each channel; also distant
    ones.
    """
    builder = ProgramBuilder()
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    rule = {"rounding": rounding, "overflow": overflow, "low": low, "high": high}
    near = builder.entry((1, 8), (-256, 255), "near")
    far = builder.entry((1, 8), (-(2**40), 2**40), "far")
    for shift in (*range(-4, 13), -62, -40, 40, 62, (0, 1, 2, 3, -2, 9, 30, -30)):
        for x in (near, far):
            builder.step("requantize", x, shift=shift, **rule)
    codes = np.arange(-256, 256).reshape(-1, 8)
    rng = np.random.default_rng(0)
    wide = rng.integers(-(2**40), 2**40, codes.shape) >> rng.integers(0, 40, codes.shape)
    wide[:20] = (wide[:20] | 1) << rng.integers(0, 4, (20, 8))
    wide = np.clip(wide, -(2**40), 2**40)
    assert_form(FORM, builder.program(), codes={"near": codes, "far": wide})


@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d", "matmul"])
@pytest.mark.parametrize("x", [(-128, 127), (0, 255), (-(2**15), 2**15 - 1), (0, 2**16 - 1)])
@pytest.mark.parametrize("w", [(-128, 127), (0, 255), (-8, 7), (-(2**15), 2**15 - 1)])
def test_extreme_codes(op, x, w) -> None:
    """Products of the largest codes, where sums of two exceed 16 bits."""
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    shapes = {
        "conv2d": ((1, 5, 4, 12), (3, 3, 12, 5)),
        "depthwise_conv2d": ((1, 5, 4, 12), (3, 3, 12, 2)),
        "matmul": ((1, 70), (70, 9)),
    }
    shape, of_weights = shapes[op]
    attrs = {"matmul": {}, "conv2d": {**WINDOW, "groups": 1}, "depthwise_conv2d": WINDOW}[op]
    entry = builder.entry(shape, x, "x")
    for weights in (
        np.full(of_weights, w[0]),
        np.full(of_weights, w[1]),
        rng.choice(w, of_weights),
    ):
        builder.step(op, entry, builder.constant(weights), **attrs)
    batches = [np.full(shape, x[0]), np.full(shape, x[1]), rng.choice(x, shape)]
    assert_form(FORM, builder.program(), codes={"x": np.concatenate(batches)})


def test_comparisons_past_32_bits() -> None:
    builder = ProgramBuilder()
    reach = (-(2**50), 2**50)
    a, b = (builder.entry((1, 4, 4, 3), reach, name) for name in "ab")
    for op in ("maximum", "minimum"):
        builder.step(op, a, b)
    builder.step("clip", a, low=-5, high=2**40)
    builder.step("clip", a, low=None, high=(1, 2**33, 7))
    builder.step("reduce_max", a, axes=(1, 2), keepdims=False)
    pool = {"ksize": (3, 2), "strides": (2, 1), "pads": ((1, 1), (0, 1))}
    builder.step("max_pool", a, **pool)
    rng = np.random.default_rng(0)
    codes = {v: rng.integers(*reach, (9, 4, 4, 3)) >> rng.integers(0, 50) for v in "ab"}
    assert_form(FORM, builder.program(), codes=codes)


@pytest.mark.parametrize("low", [-128, 0])
def test_padding_that_is_pooled_is_zero(low: int) -> None:
    """The pool's own padding never wins, a pad's zeros do."""
    program, codes = padded_pool(low)
    assert_form(FORM, program, codes=codes)


def test_an_exit_may_be_an_entry_or_leave_twice() -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 3), (-4, 3), "x/y:0")
    y = builder.step("add", x, x)
    program = builder.program(x, y)
    assert_form(FORM, program)


def test_a_file_is_checked_and_always_the_same(tmp_path) -> None:
    net = Net(8, 8, 4)
    biased = net.op("bias_add", net.conv("x", "conv"), net.const("b", 4))
    net.graph.outputs["y"] = net.op("relu", biased)
    program = lower(quantize(net.graph))
    files = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        FORM.write(network_of(program), tmp_path / name)
        files.append((tmp_path / name / "network.onnx").read_bytes())
    assert files[0] == files[1]
    model = onnx.load_from_string(files[0])
    onnx.checker.check_model(model, full_check=True)
    assert [o.version for o in model.opset_import] == [18]
    assert {i.data_type for i in model.graph.initializer} <= {2, 3, 6, 7}  # integers
    assert [n.op_type for n in model.graph.node] == [
        *("Transpose", "ConvInteger", "Max", "Min"),
        *("Add", "Max", "BitwiseAnd", "Min", "Add", "Add", "Div", "Min"),
        *("Cast", "Transpose", "Identity"),
    ]


@pytest.mark.parametrize("overflow", ["saturate", "wrap"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_floats_become_codes_and_back(tmp_path, rounding: str, overflow: str) -> None:
    """The models that convert floats and codes: every tie, the numbers next to ties, and huge
    numbers.
    """
    builder = ProgramBuilder()
    x = builder.entry((1, 4), name="x/q8", exponent=(7, 3, -2, 0))
    spec = replace(builder.entries[0].spec, rounding=rounding, overflow=overflow)
    builder.entries[0] = replace(builder.entries[0], spec=replace(spec, exponent=(7, 3, -2, 0)))
    y = builder.step("add", x, x)
    program = builder.program()
    FORM.write(network_of(program), tmp_path)
    halves = np.arange(-600, 600, dtype=np.float32)[:, None] / 2
    near = [halves, np.nextafter(halves, -np.inf), np.nextafter(halves, np.inf), halves * 1e20]
    inputs = np.concatenate(near) * np.exp2(-np.float32((7, 3, -2, 0)))
    (codes,) = session(tmp_path / "quantize.onnx", optimised=True).run(None, {"float/x/q8": inputs})
    assert codes.dtype == np.int8
    np.testing.assert_array_equal(codes, quantize_codes(inputs, program.entries[0].spec).codes)
    (sums,) = session(tmp_path / "network.onnx", optimised=True).run(None, {x: codes})
    (floats,) = session(tmp_path / "dequantize.onnx", optimised=True).run(None, {y: sums})
    assert floats.dtype == np.float32
    wanted = np.ldexp(2.0 * codes, -np.array((7, 3, -2, 0)))
    np.testing.assert_array_equal(floats, wanted)


def test_what_the_form_does_not_support_is_named() -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 4, 4, 2), (-8, 7), "x")
    w = builder.entry((1, 1, 2, 2), (-8, 7), "w")
    builder.step("conv2d", x, w, name="computed", groups=1, **{
        **WINDOW, "pads": ((0, 0), (0, 0))})  # fmt: skip
    assert FORM.refusal(network_of(builder.program(batch_free=False))).startswith(
        "computed: its filter"
    )
    builder = ProgramBuilder()
    x = builder.entry((1, 1, 1, 34000), (0, 255), "x")
    weights = builder.constant(np.full((1, 1, 34000, 1), 255))
    window = {**WINDOW, "pads": ((0, 0), (0, 0)), "groups": 1}
    builder.step("conv2d", x, weights, name="long", **window)
    assert "long: sums of its 8-bit products exceed 32 bits" in FORM.refusal(
        network_of(builder.program())
    )
