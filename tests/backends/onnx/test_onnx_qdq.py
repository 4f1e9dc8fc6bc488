"""QDQ is the integer program as ONNX Runtime executes it, as it stands and with its own kernels."""

from collections import Counter

import numpy as np
import onnx
import pytest
from hypothesis import given, settings

from qgraph.backends.onnx.onnx_forms import OnnxQdq
from qgraph.backends.onnx.runners import check_same, session
from qgraph.errors import ExactnessError
from qgraph.program import lower, run
from tests.helpers.forms import assert_form, carried, network_of, random_codes
from tests.helpers.generators.programs import programs
from tests.helpers.layers import Net
from tests.helpers.program_builder import ProgramBuilder, padded_pool, requantized
from tests.helpers.quantized import PROFILES, network_programs, quantize

FORM = OnnxQdq()
CARRIED = ("int32-bias", "int8", "int4", "per-channel", "per-channel-int32")
WINDOW = {"strides": (1, 1), "dilations": (1, 1), "pads": ((1, 1), (1, 1)), "groups": 1}


@settings(max_examples=25)
@given(network_programs(CARRIED))
def test_random_networks(program) -> None:
    assert_form(FORM, carried(FORM, program, "float32 is exact up to"))


@settings(max_examples=40)
@given(programs(None, ("half_even",), ("saturate",), (2, 4, 8, 8, 8, 13, 16)))
def test_random_programs(program) -> None:
    assert_form(FORM, carried(FORM, program))


@pytest.mark.parametrize("bits", [(4, True), (8, True), (8, False), (13, True), (16, False)])
def test_every_tie_is_rounded_to_even(bits) -> None:
    width, signed = bits
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    rule = {"rounding": "half_even", "overflow": "saturate", "low": low, "high": high}
    builder = ProgramBuilder()
    x = builder.entry((1, 8), (-256, 255), "x")
    y = builder.step("add", x, x)
    for shift in (*range(-4, 13), 40):
        builder.step("requantize", y, shift=shift, **rule)
        builder.step("requantize", x, shift=shift, **rule)
    assert_form(FORM, builder.program(), codes={"x": np.arange(-256, 256).reshape(-1, 8)})


@pytest.mark.parametrize("rounded", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("op", "shape"), [("matmul", (1, 2)), ("batch_matmul", (1, 2)), ("batch_matmul", (1, 3, 2))]
)
def test_float_values_times_constants_are_exact(op, shape, bias, rounded) -> None:
    """With 4- or 8-bit constants, ONNX Runtime would round the float values to 8 bits itself."""
    builder = ProgramBuilder()
    x = builder.entry(shape, name="x")
    y = builder.step("add", x, x)
    codes = np.array([[35, -7, 3], [2, 11, -90]])
    weights = builder.constant(codes.reshape((1,) * (len(shape) - 2) + codes.shape), exponent=2)
    y = builder.step(op, y, weights)
    y = builder.step("add", y, builder.constant([1, 2, 3], exponent=2)) if bias else y
    if rounded:
        builder.step("requantize", y, **requantized(7))
    assert_form(FORM, builder.program())


@pytest.mark.parametrize("reader", [None, "abs", "reshape"])
@pytest.mark.parametrize("first", [(0, 255), (-128, 127)])
@pytest.mark.parametrize("rounded", [True, False])
def test_products_of_two_varying_matrices_are_exact(first, reader, rounded) -> None:
    """ONNX Runtime's sums of uint8 and int8 products saturate at 16 bits on x86 without VNNI."""
    builder = ProgramBuilder()
    x, y = builder.entry((1, 3, 16), first, "x"), builder.entry((1, 16, 5), name="y")
    made = builder.step("batch_matmul", x, y)
    made = builder.step("requantize", made, **requantized(10)) if rounded else made
    attrs = {"shape": (1, 80)} if reader == "reshape" else {}
    others = [builder.step(reader, y, **attrs)] if reader else []
    rng = np.random.default_rng(0)
    codes = {"x": rng.choice(first, (9, 3, 16)), "y": rng.choice([-128, 127], (9, 16, 5))}
    assert_form(FORM, builder.program(made, *others), codes=codes)


@pytest.mark.parametrize("rounded", [True, False])
@pytest.mark.parametrize("shape", [(11, 16), (1, 11, 16)])
def test_constants_times_a_varying_matrix_are_exact(shape, rounded) -> None:
    builder = ProgramBuilder()
    y = builder.entry((1, 16, 4), name="y")
    rng = np.random.default_rng(0)
    made = builder.step("batch_matmul", builder.constant(rng.integers(-128, 128, shape)), y)
    made = builder.step("requantize", made, **requantized(10)) if rounded else made
    assert_form(FORM, builder.program(made, y), codes={"y": rng.choice([-128, 127], (9, 16, 4))})


@pytest.mark.parametrize("channels_last", [True, False])
def test_products_beyond_float32_are_rounded_per_channel(channels_last) -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 2, 3, 4), name="x")
    if not channels_last:
        window = {"ksize": (1, 1), "strides": (1, 1), "pads": ((0, 0), (0, 0))}
        x = builder.step("max_pool", x, **window)
    wide = builder.step("mul", x, builder.constant([1 << 20, 3 << 19, 5 << 18, 7 << 18]))
    builder.step("requantize", wide, **requantized((19, 20, 21, 22)))
    assert_form(FORM, builder.program())


def test_results_of_layers_have_scales_of_channels() -> None:
    """ONNX Runtime would make a layer with one scale for its results."""
    builder = ProgramBuilder()
    x = builder.entry((1, 1, 2, 3), (-8, 7), "x", exponent=-2)
    w = builder.constant(np.arange(-9, 9).reshape(1, 3, 1, 6))
    y = builder.step("conv2d", x, w, **{**WINDOW, "groups": 3})
    builder.step("requantize", y, **requantized((4, 1, 3, 0, 0, 3), (0, 255)))
    assert_form(FORM, builder.program())


def test_a_varying_matrix_has_scales_of_channels() -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 2, 2), (0, 255), name="x")
    y = builder.step("requantize", x, **requantized((5, 2), (0, 255)))
    builder.step("batch_matmul", x, y)
    assert_form(FORM, builder.program())


@pytest.mark.parametrize("rounded", [(12, (-128, 127)), (5, (-32768, 32767))])
@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d", "matmul"])
def test_weights_over_16_bits_are_exact(op, rounded) -> None:
    """ONNX Runtime refuses integer layers of int32 weights, and rounds float ones to 8 bits."""
    builder = ProgramBuilder()
    product = op == "matmul"
    x = builder.entry((1, 6) if product else (1, 4, 4, 6), (-2, 1), "x")
    shape = {"conv2d": (3, 3, 1, 6), "depthwise_conv2d": (3, 3, 6, 1), "matmul": (6, 5)}[op]
    w = builder.constant(np.random.default_rng(0).integers(-99_999, 99_999, shape))
    window = {"conv2d": {**WINDOW, "groups": 6}, "matmul": {}}
    shared = {name: value for name, value in WINDOW.items() if name != "groups"}
    y = builder.step(op, x, w, **window.get(op, shared))
    builder.step("requantize", y, **requantized(*rounded))
    assert_form(FORM, builder.program())


@pytest.mark.parametrize("shift", [-12, -20, -30, -58])
def test_a_clip_in_front_of_a_fine_grid_stays(shift: int) -> None:
    """ONNX Runtime drops it where limits and the grid's ends are within 1e-7 of each other."""
    builder = ProgramBuilder()
    rule = {"rounding": "half_even", "overflow": "saturate", "low": -128, "high": 127}
    x = builder.entry((1, 8), name="x")
    y = builder.step("clip", x, low=0, high=42)
    builder.step("requantize", y, span=(0, 127), shift=shift, **rule)
    assert_form(FORM, builder.program(), codes={"x": np.arange(-128, 128).reshape(-1, 8)})


@pytest.mark.parametrize("shift", [-12, -17, -18, -40])
def test_products_shifted_past_32_bits_saturate(shift: int) -> None:
    """ONNX Runtime's integer product of two quantized tensors would wrap instead."""
    builder = ProgramBuilder()
    rule = {"rounding": "half_even", "overflow": "saturate", "low": -128, "high": 127}
    x, factor = builder.entry((1, 8), name="x"), builder.constant(np.full(8, 71))
    y = builder.step("mul", factor, x)
    builder.step("requantize", y, shift=shift, **rule)
    assert_form(FORM, builder.program(), codes={"x": np.arange(-128, 128).reshape(-1, 8)})


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("high", [255, 4095])
def test_products_of_matrices_are_exact_by_weights_of_any_bits(high: int, bits: int) -> None:
    """ONNX Runtime 1.32 rounds where weights have 4 bits, or 8 and the other matrix 16."""
    builder, most = ProgramBuilder(), (1 << bits - 1) - 1
    x, w = (
        builder.entry((1, 5), (0, high), "x", exponent=3),
        builder.constant(np.full((5, 40), most), exponent=7),
    )
    builder.step("matmul", x, w)
    codes = np.random.default_rng(1).integers(0, high, (3, 5))
    assert_form(FORM, builder.program(), codes={"x": codes})


def test_two_quantizers_in_a_row_round_twice() -> None:
    builder = ProgramBuilder()
    rule = {"rounding": "half_even", "overflow": "saturate"}
    x = builder.entry((1, 8), (-(2**15), 2**15 - 1), "x")
    y = builder.step("requantize", x, shift=3, low=-(2**15), high=2**15 - 1, **rule)  # fmt: skip
    builder.step("requantize", y, shift=5, low=-128, high=127, **rule)  # fmt: skip
    codes = np.arange(-(2**15), 2**15).reshape(-1, 8)
    assert_form(FORM, builder.program(), codes={"x": codes})


@pytest.mark.parametrize("channels", [7, 16])
@pytest.mark.parametrize("low", [-128, 0])
@pytest.mark.parametrize("exponent", [5, (5, 6, 4, 5)])
def test_layers_run_on_integer_kernels(tmp_path, channels, low, exponent) -> None:
    """A layer at the bound of float32, with sums of both signs and a bias; and a matrix product."""
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    x = builder.entry((1, 5, 4, channels), (low, low + 255), "x", exponent=3)
    weights = rng.integers(-127, 128, (3, 3, channels, 4))
    bias = rng.integers(-(2**20), 2**20, 4)
    scale = exponent + 3 if isinstance(exponent, int) else tuple(e + 3 for e in exponent)
    w, b = builder.constant(weights, exponent=exponent), builder.constant(bias, exponent=scale)
    y = builder.step("conv2d", x, w, **WINDOW)
    y = builder.step("add", y, b)
    y = builder.step("clip", y, low=0, high=None)
    shift = 14 if isinstance(exponent, int) else tuple(e + 9 for e in exponent)
    rule = {"rounding": "half_even", "overflow": "saturate", "low": 0, "high": 255}
    y = builder.step("requantize", y, shift=shift, **rule)
    y = builder.step("reshape", y, shape=(1, 80))
    w = builder.constant(rng.integers(-127, 128, (80, 3)), exponent=7)
    b = builder.constant(rng.integers(-(2**20), 2**20, 3), exponent=1)
    y = builder.step("matmul", y, w)
    y = builder.step("add", y, b)
    rule = {**rule, "low": -128, "high": 127}
    builder.step("requantize", y, shift=13, **rule)
    program = builder.program()
    assert_form(FORM, program, codes=random_codes(program, samples=300))
    FORM.write(network_of(program), tmp_path)
    ran = executed(tmp_path / "network.onnx", program)
    assert ran["QLinearConv"] == 1 and ran["QGemm"] == 1
    assert not {"Conv", "Gemm", "MatMul"} & ran.keys()


def test_padding_that_is_pooled_is_zero() -> None:
    program, codes = padded_pool(-128)
    assert_form(FORM, program, codes=codes)
    program, codes = padded_pool(-128, of_sums=True)
    assert_form(FORM, program, codes=codes)


def executed(path, program) -> Counter:
    """The ops that ONNX Runtime executes for a file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path.with_suffix(".optimised"))
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return Counter(n.op_type for n in onnx.load(options.optimized_model_filepath).graph.node)


def test_levels_that_disagree_are_an_error() -> None:
    codes = np.arange(4)
    check_same("layer", codes, codes)
    with pytest.raises(ExactnessError, match=r"layer: ONNX Runtime gives other codes .* 1 of 4"):
        check_same("layer", codes, codes * [1, 1, 1, 2])


def refusal_of(builder: ProgramBuilder) -> str | None:
    return FORM.refusal(network_of(builder.program()))


def test_what_the_form_does_not_support_is_named() -> None:
    rule = {"shift": 1, "rounding": "half_even", "overflow": "saturate", "low": -8, "high": 7}
    for change, reason in (
        ({"rounding": "half_up"}, "layer: rounds half_up"),
        ({"overflow": "wrap"}, "layer: wraps around"),
        ({"low": -(2**19), "high": 2**19 - 1}, "layer: its codes are -524288..524287"),
    ):
        builder = ProgramBuilder()
        x = builder.entry((1, 4), name="x")
        builder.step("requantize", x, name="layer", **rule | change)
        assert reason in str(refusal_of(builder))


@pytest.mark.parametrize(("magnitude", "refused"), [(2**24, False), (2**24 + 1, True)])
def test_sums_past_float32_are_refused(magnitude: int, refused: bool) -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 1), (0, 1), "x")
    w = builder.constant(np.array([[magnitude]]))
    builder.step("matmul", x, w, name="layer")
    reason = refusal_of(builder)
    assert (reason is not None) == refused
    if refused:
        assert "sums reach 16,777,217, but float32 is exact up to 16,777,216 only" in str(reason)


def test_values_go_in_and_out(tmp_path) -> None:
    """The file quantizes its inputs: float in, the network's own names, float out."""
    net = Net(8, 8, 4)
    net.graph.outputs["y"] = net.op("relu", net.conv("x", "conv"))
    program = lower(quantize(net.graph, PROFILES["int32-bias"]))
    FORM.write(network_of(program), tmp_path)
    model = onnx.load(tmp_path / "network.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [i.name for i in model.graph.input] == ["x"]
    assert [n.op_type for n in model.graph.node][:3] == [
        "QuantizeLinear", "DequantizeLinear", "Transpose"]  # fmt: skip
    (entry,), (exit_name,) = program.entries, program.exits
    x = np.random.default_rng(0).normal(size=(5, 8, 8, 4)).astype(np.float32)
    codes = np.clip(np.rint(np.ldexp(x, entry.spec.exponent)), entry.spec.lo, entry.spec.hi)
    expected = run(program, {entry.tensor: codes.astype(np.int64)})[exit_name]
    (found,) = session(tmp_path / "network.onnx", optimised=True).run(None, {"x": x})
    np.testing.assert_array_equal(np.ldexp(found, program.tensors[exit_name].exponent), expected)
