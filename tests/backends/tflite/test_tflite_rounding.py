"""Executors of `.tflite` files round as `qgraph.backends.tflite.arithmetic` states: every code."""

import numpy as np
import pytest

from qgraph.backends.tflite.arithmetic import ARITHMETICS, TfliteExecutor
from qgraph.ir.types import ROUNDINGS, Rounding
from qgraph.numerics import round_shift
from tests.helpers.tflite_operators import CODES, layer, matrices, pairs, quantizer, run_operator

for package in ("tflite", "ai_edge_litert", "tflite_micro"):
    pytest.importorskip(package, reason="pip install 'qgraph-compiler[tflite]'")

EXECUTORS = [(one, executor) for one in ARITHMETICS for executor in one.executors]
EVERY = pytest.mark.parametrize(("arithmetic", "executor"), EXECUTORS, ids=lambda v: v[:8] if
                                isinstance(v, str) else v.name)  # fmt: skip
SHIFTS = (-3, 0, 1, 2, 3, 5, 8, 12)


def roundings_of(found: np.ndarray, exact: np.ndarray, shift: int, zero: int) -> set[Rounding]:
    """The roundings that give these stored codes."""
    wanted = {r: np.clip(round_shift(exact, shift, r) + zero, -128, 127) for r in ROUNDINGS}
    return {r for r, codes in wanted.items() if np.array_equal(codes, found)}


def one_rounding(shift: int, rounding: Rounding) -> set[Rounding]:
    """The roundings that are `rounding` for this shift, on codes of both signs."""
    if shift <= 0:
        return {*ROUNDINGS}
    by_one = {Rounding.HALF_UP, Rounding.DOUBLE}
    return by_one if shift == 1 and rounding in by_one else {rounding}


@EVERY
@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_layers(arithmetic, executor, op: str, shift: int) -> None:
    rounding = arithmetic.layers
    if (op, executor) == ("FULLY_CONNECTED", TfliteExecutor.REFERENCE):
        assert not arithmetic.fully_connected  # so files have a convolution instead
        rounding = Rounding.HALF_AWAY
    for zero in (0, -128):
        model, x, sums = layer(op, shift, zero)
        found = roundings_of(run_operator(executor, model, [x]), sums, shift, zero)
        assert found >= {rounding}
        if not zero:
            assert found == one_rounding(shift, rounding)


@EVERY
@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize("shift", [-3, 0, 1, 2, 3, 5, 8])
def test_pairs_of_codes(arithmetic, executor, op: str, shift: int) -> None:
    rounding = arithmetic.layers if op == "MUL" else arithmetic.additions
    for zeros in ((0, 0, 0), (-128, -128, -128), (-128, 0, 0)):
        case = pairs(op, shift, zeros)
        made = run_operator(executor, case["model"], case["inputs"])
        found = roundings_of(made, case["exact"], shift, zeros[2])
        assert found >= {rounding}
        if not any(zeros):
            assert found == one_rounding(shift, rounding)


@EVERY
@pytest.mark.parametrize("shift", [3, 6, 9])
@pytest.mark.parametrize("zero", [0, -128])
def test_products_of_matrices(arithmetic, executor, shift: int, zero: int) -> None:
    model, inputs, sums = matrices(shift, zero)
    found = roundings_of(run_operator(executor, model, inputs), sums, shift, 0)
    assert found == {arithmetic.layers}


@EVERY
@pytest.mark.parametrize("shift", [-3, 0, 1, 2, 3, 5])
def test_codes_on_another_scale(arithmetic, executor, shift: int) -> None:
    stored = CODES.astype(np.int8).reshape(1, 16, 16, 1)
    model = quantizer("int8", shift, 0, stored)
    found = roundings_of(run_operator(executor, model, [stored]), stored.astype(int), shift, 0)
    assert found == one_rounding(shift, arithmetic.moves)


@EVERY
@pytest.mark.parametrize("zero", [0, -128])
def test_floats_that_become_codes(arithmetic, executor, zero: int) -> None:
    """Eighths of codes, and the nearest floats on both sides."""
    eighths = np.arange(-2400, 2400, dtype=np.float32) / 8
    ends = np.float32([-np.inf, np.inf])
    values = np.concatenate([eighths, *(np.nextafter(eighths, end) for end in ends)])[None]
    found = run_operator(executor, quantizer("float32", 0, zero, values), [values])
    wide = values.astype(np.float64)
    even, away = np.rint(wide), np.trunc(wide + np.copysign(0.5, wide))
    wanted = {Rounding.HALF_EVEN: even, Rounding.HALF_AWAY: away}[arithmetic.inputs]
    np.testing.assert_array_equal(found, np.clip(wanted + zero, -128, 127))
    assert not np.array_equal(np.clip(even + zero, -128, 127), np.clip(away + zero, -128, 127))


@pytest.mark.parametrize("within", [True, False])
def test_sums_above_the_limit_are_rounded_twice_by_xnnpack(within: bool) -> None:
    """XNNPACK converts sums to float32, so their bound decides whether a layer is exact."""
    shift, step = 20, 1 << 20
    limit = ARITHMETICS[0].largest_sum // step
    ties = np.arange(-limit, limit) if within else np.arange(limit, 2 * limit)
    model, x, sums = layer("CONV_2D", shift, biases=ties * step + step // 2)
    found = roundings_of(run_operator(TfliteExecutor.XNNPACK, model, [x]), sums, shift, 0)
    assert (Rounding.HALF_EVEN in found) == within
