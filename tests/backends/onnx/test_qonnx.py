"""QONNX is the integer program under the executor of the `qonnx` package."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings

from qgraph.backends.onnx.onnx_forms import Qonnx
from qgraph.backends.onnx.runners import qonnx_values, with_batch
from qgraph.ir.types import ROUNDINGS, Rounding
from qgraph.numerics import quantize as quantize_floats
from qgraph.program import lower
from tests.helpers.forms import assert_form, carried, network_of
from tests.helpers.generators.programs import programs
from tests.helpers.layers import Net
from tests.helpers.program_builder import ProgramBuilder
from tests.helpers.quantized import INT8, PROFILES, network_programs, quantize

pytest.importorskip("qonnx", reason="qonnx is not installed")
FORM = Qonnx()
CARRIED = tuple(name for name in PROFILES if name not in ("wrap", "narrow"))


@settings(max_examples=20)
@given(network_programs(CARRIED))
def test_random_networks(program) -> None:
    assert_form(FORM, carried(FORM, program))


@settings(max_examples=30)
@given(programs(None, ROUNDINGS, ("saturate",)))
def test_random_programs(program) -> None:
    assert_form(FORM, carried(FORM, program))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(("bits", "signed"), [(4, True), (8, False), (16, True), (20, True)])
def test_every_tie_is_rounded(rounding: str, bits: int, signed: bool) -> None:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    rule = {"rounding": rounding, "overflow": "saturate", "low": low, "high": high}
    builder = ProgramBuilder()
    x = builder.entry((1, 8), (-256, 255), "x")
    y = builder.step("add", x, x)
    for shift in range(-4, 13):
        builder.step("requantize", y, shift=shift, **rule)
        builder.step("requantize", x, shift=shift, **rule)
    assert_form(FORM, builder.program(), codes={"x": np.arange(-256, 256).reshape(-1, 8)})


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_floats_beside_ties_are_rounded(rounding: Rounding, tmp_path) -> None:
    """An input is any float32: in float32 half a step and the one just below it add up to 1."""
    builder = ProgramBuilder()
    builder.entry((1, 6), name="x", exponent=5, rounding=rounding)
    program = builder.program("x")
    (entry,) = program.entries
    ties = np.float32([0.5, 1.5, -0.5, -1.5, 2.5, -2.5]) / np.float32(32)
    near = [np.nextafter(ties, np.float32(end)) for end in (-np.inf, np.inf)]
    floats = np.stack([*near, ties])
    FORM.write(network_of(program), tmp_path)
    model = with_batch(onnx.load(tmp_path / "network.onnx"), len(floats))
    values = qonnx_values(model, {entry.source: floats})[model.graph.output[0].name]
    np.testing.assert_array_equal(values * 32, quantize_floats(floats, entry.spec).codes)


def test_products_of_16_bits_are_float64() -> None:
    """As a leaky ReLU has them: 31 bits, of which float32 would round off seven."""
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    x = builder.entry((1, 8), (-(2**15), 2**15 - 1), "x", exponent=7)
    slope = builder.constant(np.array([26214, -32768, 3, 1, 0, 77, 32767, 12345]), exponent=16)
    y = builder.step("mul", x, slope)
    rule = {"rounding": "half_even", "overflow": "saturate", "low": -(2**15), "high": 2**15 - 1}
    builder.step("requantize", y, shift=16, **rule)
    codes = rng.integers(-(2**15), 2**15, (2000, 8))
    assert_form(FORM, builder.program(), codes={"x": codes})


def test_a_file_has_grids_and_shapes(tmp_path) -> None:
    net = Net(8, 8, 4)
    net.graph.outputs["y"] = net.op("relu", net.conv("x", "conv"))
    program = lower(quantize(net.graph, replace(INT8, rounding="half_away")))
    FORM.write(network_of(program), tmp_path)
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
    reason = FORM.refusal(network_of(lower(quantize(net.graph, PROFILES[profile]))))
    assert "wraps around, qonnx only saturates" in str(reason)


def test_convolutions_past_float32_are_refused() -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 1, 1, 3), (0, 2**16 - 1), "x")
    w = builder.constant(np.full((1, 1, 3, 1), 100))
    window = {"strides": (1, 1), "dilations": (1, 1), "pads": ((0, 0), (0, 0)), "groups": 1}
    builder.step("conv2d", x, w, name="layer", **window)
    reason = FORM.refusal(network_of(builder.program()))
    assert str(reason).startswith(
        "layer: sums reach 19,660,500, but float32 is exact up to 16,777,216"
    )


def test_wide_quantizers_are_refused() -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 8), (0, 2**16 - 1), "x")
    rule = {"rounding": "floor", "overflow": "saturate", "low": 0, "high": 2**32 - 1}
    for name, shift in (("narrow", -8), ("wide", -9)):
        top = (2**16 - 1) << -shift
        builder.step("requantize", x, name=name, span=(0, top), shift=shift, **rule)
    reason = FORM.refusal(network_of(builder.program()))
    assert str(reason).startswith("wide: its codes are 0..33,553,920, but Quant returns float32")


def test_one_signed_bit_is_refused() -> None:
    builder = ProgramBuilder()
    rule = {"rounding": "floor", "overflow": "saturate", "low": -1, "high": 0}
    builder.step("requantize", builder.entry((1, 8)), name="narrow", shift=8, **rule)
    reason = FORM.refusal(network_of(builder.program()))
    assert str(reason).startswith(
        "narrow: its codes are -1..0, which Quant with 1 bit does not support"
    )
