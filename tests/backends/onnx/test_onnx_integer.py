"""ONNX of integer ops only is the integer program, bit for bit, optimised and not."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from qgraph.backends.onnx.onnx_forms import OnnxInteger
from qgraph.backends.onnx.runners import session
from qgraph.errors import UnsupportedError
from qgraph.numerics import quantize as quantize_codes
from qgraph.program import lower
from tests.helpers.exports import Made, assert_form, network, padded_pool
from tests.helpers.layers import Net
from tests.helpers.quantized import PROFILES, quantize, random_network
from tests.helpers.random_programs import ROUNDINGS, random_program

FORM = OnnxInteger()
WINDOW = {"strides": (1, 1), "dilations": (1, 1), "pads": ((1, 1), (0, 2))}


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(sorted(PROFILES)))
def test_random_networks(seed: int, profile: str) -> None:
    graph = random_network(seed, profile)
    try:
        program = lower(graph)
    except UnsupportedError:
        reject()
    assert assert_form(FORM, program, seed)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_random_programs(seed: int) -> None:
    assert assert_form(FORM, random_program(seed), seed)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("overflow", ["saturate", "wrap"])
@pytest.mark.parametrize(("bits", "signed"), [(4, True), (8, False), (16, True), (32, True)])
def test_every_tie_is_rounded(rounding, overflow, bits, signed) -> None:
    """All codes of 9 bits by every shift, at once and one for each channel; and far ones."""
    made = Made()
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    rule = {"rounding": rounding, "overflow": overflow, "low": low, "high": high}
    near = made.entry("near", (1, 8), -256, 255)
    far = made.entry("far", (1, 8), -(2**40), 2**40)
    bounds = (low, high)
    for shift in (*range(-4, 13), -62, -40, 40, 62, (0, 1, 2, 3, -2, 9, 30, -30)):
        for x in (near, far):
            made.step("requantize", (x,), (1, 8), bounds, shift=shift, **rule)
    codes = np.arange(-256, 256).reshape(-1, 8)
    rng = np.random.default_rng(0)
    wide = rng.integers(-(2**40), 2**40, codes.shape) >> rng.integers(0, 40, codes.shape)
    wide[:20] = (wide[:20] | 1) << rng.integers(0, 4, (20, 8))
    wide = np.clip(wide, -(2**40), 2**40)
    assert assert_form(FORM, made.program(), codes={"near": codes, "far": wide})


@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d", "matmul"])
@pytest.mark.parametrize("x", [(-128, 127), (0, 255), (-(2**15), 2**15 - 1), (0, 2**16 - 1)])
@pytest.mark.parametrize("w", [(-128, 127), (0, 255), (-8, 7), (-(2**15), 2**15 - 1)])
def test_extreme_codes(op, x, w) -> None:
    """Products of the largest codes, where sums of two pass 16 bits."""
    made, rng = Made(), np.random.default_rng(0)
    shapes = {
        "conv2d": ((1, 5, 4, 12), (3, 3, 12, 5), (1, 5, 4, 5)),
        "depthwise_conv2d": ((1, 5, 4, 12), (3, 3, 12, 2), (1, 5, 4, 24)),
        "matmul": ((1, 70), (70, 9), (1, 9)),
    }
    shape, of_weights, result = shapes[op]
    attrs = {"matmul": {}, "conv2d": {**WINDOW, "groups": 1}, "depthwise_conv2d": WINDOW}[op]
    entry = made.entry("x", shape, *x)
    reach = 108 * max(-x[0], x[1]) * max(-w[0], w[1])
    for weights in (
        np.full(of_weights, w[0]),
        np.full(of_weights, w[1]),
        rng.choice(w, of_weights),
    ):
        made.step(op, (entry, made.constant(weights)), result, (-reach, reach), **attrs)
    batches = [np.full(shape, x[0]), np.full(shape, x[1]), rng.choice(x, shape)]
    assert assert_form(FORM, made.program(), codes={"x": np.concatenate(batches)})


def test_comparisons_past_32_bits() -> None:
    made = Made()
    reach = (-(2**50), 2**50)
    a, b = (made.entry(name, (1, 4, 4, 3), *reach) for name in "ab")
    for op in ("maximum", "minimum"):
        made.step(op, (a, b), (1, 4, 4, 3), reach)
    made.step("clip", (a,), (1, 4, 4, 3), (-5, 2**40), low=-5, high=2**40)
    made.step("clip", (a,), (1, 4, 4, 3), reach, low=None, high=(1, 2**33, 7))
    made.step("reduce_max", (a,), (1, 3), reach, axes=(1, 2), keepdims=False)
    pool = {"ksize": (3, 2), "strides": (2, 1), "pads": ((1, 1), (0, 1))}
    made.step("max_pool", (a,), (1, 2, 4, 3), reach, **pool)
    rng = np.random.default_rng(0)
    codes = {v: rng.integers(*reach, (9, 4, 4, 3)) >> rng.integers(0, 50) for v in "ab"}
    assert assert_form(FORM, made.program(), codes=codes)


@pytest.mark.parametrize("low", [-128, 0])
def test_padding_that_is_pooled_is_zero(low: int) -> None:
    """The pool's own padding never wins, a pad's zeros do."""
    program, codes = padded_pool(low)
    assert assert_form(FORM, program, codes=codes)


def test_an_exit_may_be_an_entry_or_leave_twice() -> None:
    made = Made()
    x = made.entry("x/y:0", (1, 3), -4, 3)
    y = made.step("add", (x, x), (1, 3), (-8, 6))
    program = made.program(exits=(x, y))
    assert assert_form(FORM, program)


def test_a_file_is_checked_and_always_the_same(tmp_path) -> None:
    net = Net(8, 8, 4)
    biased = net.op("bias_add", net.conv("x", "conv"), net.const("b", 4))
    net.graph.outputs["y"] = net.op("relu", biased)
    program = lower(quantize(net.graph))
    files = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        FORM.write(network(program), tmp_path / name)
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
    """The models beside it: every tie, the numbers next to ties, and huge ones."""
    made = Made()
    x = made.entry("x/q8", (1, 4), -128, 127, (7, 3, -2, 0))
    spec = replace(made.entries[0].spec, rounding=rounding, overflow=overflow)
    made.entries[0] = replace(made.entries[0], spec=replace(spec, exponent=(7, 3, -2, 0)))
    y = made.step("add", (x, x), (1, 4), (-256, 254), exponent=(7, 3, -2, 0))
    program = made.program()
    FORM.write(network(program), tmp_path)
    halves = np.arange(-600, 600, dtype=np.float32)[:, None] / 2
    near = [halves, np.nextafter(halves, -np.inf), np.nextafter(halves, np.inf), halves * 1e20]
    inputs = np.concatenate(near) * np.exp2(-np.float32((7, 3, -2, 0)))
    (codes,) = session(tmp_path / "quantize.onnx", optimised=True).run(None, {"x/q8/float": inputs})
    assert codes.dtype == np.int8
    np.testing.assert_array_equal(codes, quantize_codes(inputs, program.entries[0].spec).codes)
    (sums,) = session(tmp_path / "network.onnx", optimised=True).run(None, {x: codes})
    (floats,) = session(tmp_path / "dequantize.onnx", optimised=True).run(None, {y: sums})
    assert floats.dtype == np.float32
    wanted = np.ldexp(2.0 * codes, -np.array((7, 3, -2, 0)))
    np.testing.assert_array_equal(floats, wanted)


def test_what_it_cannot_carry_is_named() -> None:
    made = Made()
    x = made.entry("x", (1, 4, 4, 2), -8, 7)
    w = made.entry("w", (1, 1, 2, 2), -8, 7)
    made.step("conv2d", (x, w), (1, 4, 4, 2), (-112, 128), name="computed", groups=1, **{
        **WINDOW, "pads": ((0, 0), (0, 0))})  # fmt: skip
    assert FORM.refusal(network(made.program(free=False))).startswith("computed: its filter")
    made = Made()
    x = made.entry("x", (1, 1, 1, 34000), 0, 255)
    weights = made.constant(np.full((1, 1, 34000, 1), 255))
    window = {**WINDOW, "pads": ((0, 0), (0, 0)), "groups": 1}
    made.step("conv2d", (x, weights), (1, 1, 1, 1), (0, 34000 * 255**2), name="long", **window)
    assert "long: sums of its 8-bit products pass 32 bits" in FORM.refusal(network(made.program()))
