"""QDQ is the integer program as ONNX Runtime executes it, as it stands and with its own kernels."""

from collections import Counter

import numpy as np
import onnx
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from qgraph.backends.onnx.onnx_forms import OnnxQdq
from qgraph.backends.onnx.runners import check_same, session
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.program import lower, run
from tests.helpers.exports import Made, assert_form, network, padded_pool, random_codes
from tests.helpers.layers import Net
from tests.helpers.quantized import PROFILES, quantize, random_network
from tests.helpers.random_programs import random_program

FORM = OnnxQdq()
CARRIED = ("int32-bias", "int8", "int4", "per-channel", "per-channel-int32")
WINDOW = {"strides": (1, 1), "dilations": (1, 1), "pads": ((1, 1), (1, 1)), "groups": 1}


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(CARRIED))
def test_random_networks(seed: int, profile: str) -> None:
    graph = random_network(seed, profile)
    try:
        program = lower(graph)
    except UnsupportedError:
        reject()
    reason = FORM.refusal(network(program))
    if reason:
        assert "float32 is exact up to" in reason
        reject()
    assert assert_form(FORM, program, seed)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_random_programs(seed: int) -> None:
    program = random_program(seed, 8, ("half_even",), ("saturate",), (2, 4, 8, 8, 8, 13, 16))
    if FORM.refusal(network(program)):
        reject()
    assert assert_form(FORM, program, seed)


@pytest.mark.parametrize("bits", [(4, True), (8, True), (8, False), (13, True), (16, False)])
def test_every_tie_is_rounded_to_even(bits) -> None:
    width, signed = bits
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    rule = {"rounding": "half_even", "overflow": "saturate", "low": low, "high": high}
    made = Made()
    x = made.entry("x", (1, 8), -256, 255)
    y = made.step("add", (x, x), (1, 8), (-512, 510))
    for shift in (*range(-4, 13), 40):
        made.step("requantize", (y,), (1, 8), (low, high), shift=shift, exponent=-shift, **rule)
        made.step("requantize", (x,), (1, 8), (low, high), shift=shift, exponent=-shift, **rule)
    assert assert_form(FORM, made.program(), codes={"x": np.arange(-256, 256).reshape(-1, 8)})


@pytest.mark.parametrize("shift", [-12, -20, -30, -58])
def test_a_clip_in_front_of_a_fine_grid_stays(shift: int) -> None:
    """ONNX Runtime drops it where limits and the grid's ends are within 1e-7 of each other."""
    made = Made()
    rule = {"rounding": "half_even", "overflow": "saturate", "low": -128, "high": 127}
    x = made.entry("x", (1, 8), -128, 127)
    y = made.step("clip", (x,), (1, 8), (0, 42), low=0, high=42)
    made.step("requantize", (y,), (1, 8), (0, 127), shift=shift, exponent=-shift, **rule)
    assert assert_form(FORM, made.program(), codes={"x": np.arange(-128, 128).reshape(-1, 8)})


@pytest.mark.parametrize("shift", [-12, -17, -18, -40])
def test_products_shifted_past_32_bits_saturate(shift: int) -> None:
    """ONNX Runtime's integer product of two quantized tensors would wrap instead."""
    made = Made()
    rule = {"rounding": "half_even", "overflow": "saturate", "low": -128, "high": 127}
    x, factor = made.entry("x", (1, 8), -128, 127), made.constant(np.full(8, 71))
    y = made.step("mul", (factor, x), (1, 8), (-128 * 71, 127 * 71))
    made.step("requantize", (y,), (1, 8), (-128, 127), shift=shift, exponent=-shift, **rule)
    assert assert_form(FORM, made.program(), codes={"x": np.arange(-128, 128).reshape(-1, 8)})


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("high", [255, 4095])
def test_products_of_matrices_are_exact_by_weights_of_any_bits(high: int, bits: int) -> None:
    """ONNX Runtime 1.32 rounds where weights have 4 bits, or 8 and the other matrix 16."""
    made, most = Made(), (1 << bits - 1) - 1
    x, w = made.entry("x", (1, 5), 0, high, 3), made.constant(np.full((5, 40), most), 7)
    made.step("matmul", (x, w), (1, 40), (0, 5 * most * high), exponent=10)
    codes = np.random.default_rng(1).integers(0, high, (3, 5))
    assert assert_form(FORM, made.program(), codes={"x": codes})


def test_two_quantizers_in_a_row_round_twice() -> None:
    made = Made()
    rule = {"rounding": "half_even", "overflow": "saturate"}
    x = made.entry("x", (1, 8), -(2**15), 2**15 - 1)
    y = made.step("requantize", (x,), (1, 8), (-(2**15), 2**15 - 1), shift=3, exponent=-3,
                  low=-(2**15), high=2**15 - 1, **rule)  # fmt: skip
    made.step("requantize", (y,), (1, 8), (-128, 127), shift=5, exponent=-8,
              low=-128, high=127, **rule)  # fmt: skip
    codes = np.arange(-(2**15), 2**15).reshape(-1, 8)
    assert assert_form(FORM, made.program(), codes={"x": codes})


@pytest.mark.parametrize("channels", [7, 16])
@pytest.mark.parametrize("low", [-128, 0])
@pytest.mark.parametrize("exponent", [5, (5, 6, 4, 5)])
def test_layers_run_on_integer_kernels(tmp_path, channels, low, exponent) -> None:
    """A layer at the bound of float32, its sums of both signs, biased; and a matrix product."""
    made, rng = Made(), np.random.default_rng(0)
    x = made.entry("x", (1, 5, 4, channels), low, low + 255, 3)
    weights = rng.integers(-127, 128, (3, 3, channels, 4))
    bias = rng.integers(-(2**20), 2**20, 4)
    scale = exponent + 3 if isinstance(exponent, int) else tuple(e + 3 for e in exponent)
    w, b = made.constant(weights, exponent), made.constant(bias, scale)
    reach = int(np.abs(weights).sum((0, 1, 2)).max() * 255 + 2**20)
    shape, span = (1, 5, 4, 4), (-reach, reach)
    y = made.step("conv2d", (x, w), shape, span, exponent=scale, **WINDOW)
    y = made.step("add", (y, b), shape, span, exponent=scale)
    y = made.step("clip", (y,), shape, (0, reach), exponent=scale, low=0, high=None)
    shift = 14 if isinstance(exponent, int) else tuple(e + 9 for e in exponent)
    rule = {"rounding": "half_even", "overflow": "saturate", "low": 0, "high": 255}
    y = made.step("requantize", (y,), shape, (0, 255), shift=shift, exponent=-6, **rule)
    y = made.step("reshape", (y,), (1, 80), (0, 255), shape=(1, 80), exponent=-6)
    w = made.constant(rng.integers(-127, 128, (80, 3)), 7)
    b = made.constant(rng.integers(-(2**20), 2**20, 3), 1)
    span = (-80 * 255 * 127 - 2**20, 80 * 255 * 127 + 2**20)
    y = made.step("matmul", (y, w), (1, 3), span, exponent=1)
    y = made.step("add", (y, b), (1, 3), span, exponent=1)
    rule = {**rule, "low": -128, "high": 127}
    made.step("requantize", (y,), (1, 3), (-128, 127), shift=13, exponent=-12, **rule)
    program = made.program()
    assert assert_form(FORM, program, codes=random_codes(program, batch=300))
    FORM.write(network(program), tmp_path)
    ran = executed(tmp_path / "network.onnx", program)
    assert ran["QLinearConv"] == 1 and ran["QGemm"] == 1
    assert not {"Conv", "Gemm", "MatMul"} & ran.keys()


def test_padding_that_is_pooled_is_zero() -> None:
    program, codes = padded_pool(-128)
    assert assert_form(FORM, program, codes=codes)
    program, codes = padded_pool(-128, of_sums=True)
    assert assert_form(FORM, program, codes=codes)


def executed(path, program) -> Counter:
    """Ops that ONNX Runtime makes of a file."""
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


def refusal_of(made: Made) -> str | None:
    return FORM.refusal(network(made.program()))


def test_what_it_cannot_carry_is_named() -> None:
    rule = {"shift": 1, "rounding": "half_even", "overflow": "saturate", "low": -8, "high": 7}
    for change, reason in (
        ({"rounding": "half_up"}, "layer: rounds half_up"),
        ({"overflow": "wrap"}, "layer: wraps around"),
        ({"low": -(2**19), "high": 2**19 - 1}, "layer: its codes are -524288..524287"),
    ):
        made = Made()
        x = made.entry("x", (1, 4), -128, 127)
        made.step("requantize", (x,), (1, 4), (-8, 7), name="layer", exponent=-1, **rule | change)
        assert reason in str(refusal_of(made))


@pytest.mark.parametrize(("magnitude", "refused"), [(2**24, False), (2**24 + 1, True)])
def test_sums_past_float32_are_refused(magnitude: int, refused: bool) -> None:
    made = Made()
    x = made.entry("x", (1, 1), 0, 1)
    w = made.constant(np.array([[magnitude]]))
    made.step("matmul", (x, w), (1, 1), (0, magnitude), name="layer")
    reason = refusal_of(made)
    assert (reason is not None) == refused
    if refused:
        assert "sums reach 16,777,217, float32 is exact up to 16,777,216" in str(reason)


def test_values_go_in_and_out(tmp_path) -> None:
    """The file quantizes its inputs: float in, the network's own names, float out."""
    net = Net(8, 8, 4)
    net.graph.outputs["y"] = net.op("relu", net.conv("x", "conv"))
    program = lower(quantize(net.graph, PROFILES["int32-bias"]))
    FORM.write(network(program), tmp_path)
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
