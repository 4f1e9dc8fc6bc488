"""Executors of `.tflite` files round as `qgraph.backends.tflite.arithmetic` states: every code."""

import numpy as np
import pytest

from qgraph.backends.tflite.arithmetic import (
    ARITHMETICS,
    BYTES,
    LITERT,
    StoredCodes,
    TfliteExecutor,
)
from qgraph.ir.types import ROUNDINGS, Rounding
from qgraph.numerics import round_shift
from tests.helpers.tflite_operators import (
    every_code,
    layer,
    matrices,
    pairs,
    quantizer,
    run_operator,
)

for package in ("tflite", "ai_edge_litert", "tflite_micro"):
    pytest.importorskip(package, reason="pip install 'qgraph-compiler[tflite]'")

EXECUTORS = [(one, executor) for one in ARITHMETICS for executor in one.executors]
ON_CODES = [*EXECUTORS, *((one, executor) for one in ARITHMETICS for executor in one.on_codes)]


def named(value) -> str:
    return value[:14] if isinstance(value, str) else value.name


EVERY = pytest.mark.parametrize(("arithmetic", "executor"), ON_CODES, ids=named)
FROM_FLOATS = pytest.mark.parametrize(("arithmetic", "executor"), EXECUTORS, ids=named)
SHIFTS = (-3, 0, 1, 2, 3, 5, 8, 12)


def roundings_of(
    found: np.ndarray, exact: np.ndarray, shift: int, zero: int, stored: StoredCodes = BYTES
) -> set[Rounding]:
    """The roundings that give these stored codes."""
    wanted = {r: np.clip(round_shift(exact, shift, r) + zero, *stored.ends) for r in ROUNDINGS}
    return {r for r, codes in wanted.items() if np.array_equal(codes, found)}


def one_rounding(shift: int, rounding: Rounding) -> set[Rounding]:
    """The roundings that are `rounding` for this shift, on codes of both signs."""
    if shift <= 0:
        return {*ROUNDINGS}
    by_one = {Rounding.HALF_UP, Rounding.DOUBLE}
    return by_one if shift == 1 and rounding in by_one else {rounding}


def zeros_of(stored: StoredCodes) -> tuple[int, ...]:
    return (0, stored.low) if stored.zero_points else (0,)


@EVERY
@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_layers(arithmetic, executor, op: str, shift: int) -> None:
    rounding, stored = arithmetic.layers, arithmetic.stored
    lite = executor in (TfliteExecutor.REFERENCE, TfliteExecutor.DEFAULT)
    if op == "FULLY_CONNECTED" and lite:
        assert not arithmetic.fully_connected  # so files have a convolution instead
        rounding = Rounding.HALF_AWAY
    for zero in zeros_of(stored):
        model, x, sums = layer(op, shift, zero, stored=stored)
        found = roundings_of(run_operator(executor, model, [x]), sums, shift, zero, stored)
        assert found >= {rounding}
        if not zero:
            assert found == one_rounding(shift, rounding)


@EVERY
@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize("shift", [-3, 0, 1, 2, 3, 5, 8])
def test_pairs_of_codes(arithmetic, executor, op: str, shift: int) -> None:
    rounding = arithmetic.products if op == "MUL" else arithmetic.additions
    stored = arithmetic.stored
    mixed = [(0, 0, 0), (-128, -128, -128), (-128, 0, 0)]
    for zeros in mixed if stored.zero_points else mixed[:1]:
        case = pairs(op, shift, zeros, arithmetic)
        made = run_operator(executor, case["model"], case["inputs"])
        found = roundings_of(made, case["exact"], shift, zeros[2], stored)
        assert found >= {rounding}
        if not any(zeros):
            assert found == one_rounding(shift, rounding)


@EVERY
@pytest.mark.parametrize("op", ["ADD", "SUB"])
@pytest.mark.parametrize("end", [0, 1])
def test_sums_are_exact_up_to_the_ends_of_shifts(arithmetic, executor, op: str, end: int) -> None:
    shift = arithmetic.addition_shifts[end]
    case = pairs(op, shift, (0, 0, 0), arithmetic)
    made = run_operator(executor, case["model"], case["inputs"])
    found = roundings_of(made, case["exact"], shift, 0, arithmetic.stored)
    assert arithmetic.additions in found


@EVERY
@pytest.mark.parametrize("shift", [3, 6, 9])
def test_products_of_matrices(arithmetic, executor, shift: int) -> None:
    for zero in zeros_of(arithmetic.stored):
        model, inputs, sums = matrices(shift, zero, arithmetic.stored)
        made = run_operator(executor, model, inputs)
        assert roundings_of(made, sums, shift, 0, arithmetic.stored) == {arithmetic.layers}


@EVERY
@pytest.mark.parametrize("shift", [-3, 0, 1, 2, 3, 5])
def test_codes_on_another_scale(arithmetic, executor, shift: int) -> None:
    stored = arithmetic.stored
    codes = every_code(stored)
    model = quantizer(stored.type, shift, 0, codes, stored)
    made = run_operator(executor, model, [codes])
    found = roundings_of(made, codes.astype(int), shift, 0, stored)
    assert found == one_rounding(shift, arithmetic.moves)


@FROM_FLOATS
def test_floats_that_become_codes(arithmetic, executor) -> None:
    """Eighths of codes, and the nearest floats on both sides."""
    assert_floats_become_codes(arithmetic.stored, executor, arithmetic.inputs)


@pytest.mark.parametrize("arithmetic", [a for a in ARITHMETICS if a.on_codes], ids=named)
def test_floats_that_other_kernels_round_to_even(arithmetic) -> None:
    """So files with float inputs are not compared in these executors."""
    for executor in arithmetic.on_codes:
        assert_floats_become_codes(arithmetic.stored, executor, Rounding.HALF_EVEN)
    assert arithmetic.inputs != Rounding.HALF_EVEN


def assert_floats_become_codes(stored: StoredCodes, executor, rounding: Rounding) -> None:
    reach = 300 if stored == BYTES else 33_000
    eighths = np.arange(-8 * reach, 8 * reach, dtype=np.float32) / 8
    ends = np.float32([-np.inf, np.inf])
    values = np.concatenate([eighths, *(np.nextafter(eighths, end) for end in ends)])[None]
    wide = values.astype(np.float64)
    even, away = np.rint(wide), np.trunc(wide + np.copysign(0.5, wide))
    wanted = {Rounding.HALF_EVEN: even, Rounding.HALF_AWAY: away}[rounding]
    for zero in zeros_of(stored):
        model = quantizer("float32", 0, zero, values, stored)
        found = run_operator(executor, model, [values])
        np.testing.assert_array_equal(found, np.clip(wanted + zero, *stored.ends))
    assert not np.array_equal(np.clip(even, *stored.ends), np.clip(away, *stored.ends))


@pytest.mark.parametrize("within", [True, False])
def test_sums_above_the_limit_are_rounded_twice_by_xnnpack(within: bool) -> None:
    """XNNPACK converts sums to float32, so their bound decides whether a layer is exact."""
    shift, step = 20, 1 << 20
    limit = LITERT.sums.largest_at(shift) // step
    ties = np.arange(-limit, limit) if within else np.arange(limit, 2 * limit)
    model, x, sums = layer("CONV_2D", shift, biases=ties * step + step // 2)
    found = roundings_of(run_operator(TfliteExecutor.XNNPACK, model, [x]), sums, shift, 0)
    assert (Rounding.HALF_EVEN in found) == within
