"""QONNX is the integer program under the executor of the `qonnx` package."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from qgraph.backends.onnx.onnx_forms import Qonnx
from qgraph.errors import UnsupportedError
from qgraph.program import lower
from tests.helpers.exports import Made, assert_form, network
from tests.helpers.layers import Net
from tests.helpers.quantized import INT8, PROFILES, quantize, random_network
from tests.helpers.random_programs import ROUNDINGS, random_program

pytest.importorskip("qonnx", reason="qonnx is not installed")
FORM = Qonnx()
CARRIED = tuple(name for name in PROFILES if name not in ("wrap", "narrow"))


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from(CARRIED))
def test_random_networks(seed: int, profile: str) -> None:
    graph = random_network(seed, profile)
    try:
        program = lower(graph)
    except UnsupportedError:
        reject()
    if FORM.refusal(network(program)):
        reject()
    assert assert_form(FORM, program, seed)


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_random_programs(seed: int) -> None:
    program = random_program(seed, 8, ROUNDINGS, ("saturate",))
    if FORM.refusal(network(program)):
        reject()
    assert assert_form(FORM, program, seed)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(("bits", "signed"), [(4, True), (8, False), (16, True), (20, True)])
def test_every_tie_is_rounded(rounding: str, bits: int, signed: bool) -> None:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    rule = {"rounding": rounding, "overflow": "saturate", "low": low, "high": high}
    made = Made()
    x = made.entry("x", (1, 8), -256, 255)
    y = made.step("add", (x, x), (1, 8), (-512, 510))
    for shift in range(-4, 13):
        made.step("requantize", (y,), (1, 8), (low, high), shift=shift, exponent=-shift, **rule)
        made.step("requantize", (x,), (1, 8), (low, high), shift=shift, exponent=-shift, **rule)
    assert assert_form(FORM, made.program(), codes={"x": np.arange(-256, 256).reshape(-1, 8)})


def test_products_of_16_bits_are_float64() -> None:
    """As a leaky ReLU has them: 31 bits, of which float32 would round off seven."""
    made, rng = Made(), np.random.default_rng(0)
    x = made.entry("x", (1, 8), -(2**15), 2**15 - 1, 7)
    slope = made.constant(np.array([26214, -32768, 3, 1, 0, 77, 32767, 12345]), 16)
    y = made.step("mul", (x, slope), (1, 8), (-(2**30), 2**30), exponent=23)
    rule = {"rounding": "half_even", "overflow": "saturate", "low": -(2**15), "high": 2**15 - 1}
    made.step("requantize", (y,), (1, 8), (-(2**15), 2**15 - 1), shift=16, exponent=7, **rule)
    codes = rng.integers(-(2**15), 2**15, (2000, 8))
    assert assert_form(FORM, made.program(), codes={"x": codes})


def test_a_file_says_its_grids_and_shapes(tmp_path) -> None:
    net = Net(8, 8, 4)
    net.graph.outputs["y"] = net.op("relu", net.conv("x", "conv"))
    program = lower(quantize(net.graph, replace(INT8, rounding="half_away")))
    FORM.write(network(program), tmp_path)
    model = onnx.load(tmp_path / "network.onnx")
    assert [(i.domain, i.version) for i in model.opset_import] == [
        ("", 18), ("qonnx.custom_op.general", 1)]  # fmt: skip
    quants = [n for n in model.graph.node if n.op_type == "Quant"]
    modes = {a.s.decode() for n in quants for a in n.attribute if a.name == "rounding_mode"}
    assert len(quants) == 4 and modes == {"HALF_UP", "ROUND"}  # of constants: they are on the grid
    known = {v.name for v in (*model.graph.value_info, *model.graph.output)}
    assert {o for n in model.graph.node for o in n.output} <= known
    assert [i.name for i in model.graph.input] == ["x"]


@pytest.mark.parametrize("profile", ["wrap", "narrow"])
def test_wrapping_is_refused(profile: str) -> None:
    net = Net(40)
    w = net.const("w", 40, 4)
    net.graph.outputs["y"] = net.op("matmul", "x", w, name="layer")
    reason = FORM.refusal(network(lower(quantize(net.graph, PROFILES[profile]))))
    assert "wraps around, qonnx only saturates" in str(reason)


def test_convolutions_past_float32_are_refused() -> None:
    made = Made()
    x = made.entry("x", (1, 1, 1, 3), 0, 2**16 - 1)
    w = made.constant(np.full((1, 1, 3, 1), 100))
    window = {"strides": (1, 1), "dilations": (1, 1), "pads": ((0, 0), (0, 0)), "groups": 1}
    made.step("conv2d", (x, w), (1, 1, 1, 1), (0, 300 * (2**16 - 1)), name="layer", **window)
    reason = FORM.refusal(network(made.program()))
    assert str(reason).startswith("layer: sums reach 19,660,500, float32 is exact up to 16,777,216")


def test_wide_quantizers_are_refused() -> None:
    made = Made()
    x = made.entry("x", (1, 8), 0, 2**16 - 1)
    rule = {"rounding": "floor", "overflow": "saturate", "low": 0, "high": 2**32 - 1}
    for name, shift in (("narrow", -8), ("wide", -9)):
        top = (2**16 - 1) << -shift
        made.step("requantize", (x,), (1, 8), (0, top), name=name, shift=shift, **rule)
    reason = FORM.refusal(network(made.program()))
    assert str(reason).startswith("wide: its codes are 0..33,553,920, Quant gives float32")
