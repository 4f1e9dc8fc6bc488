"""Softmax and layer norm in `.tflite` files: int32 ops that every executor computes exactly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.backends.int32_rows import QUOTIENT_BITS, ROOT_BITS
from qgraph.backends.int32_values import Int32Op, Int32Value
from qgraph.backends.tflite.arithmetic import ARITHMETICS, LITERT, TFLM, TFLM_INT16X8
from qgraph.backends.tflite.emission import TfliteEmission
from qgraph.backends.tflite.executors import sessions_of
from qgraph.backends.tflite.int32_operators import FLOAT_EXACT, TfliteInt32
from qgraph.backends.tflite.model_builder import TfliteModelBuilder, metadata_of
from qgraph.backends.tflite.tflite_form import TfliteForm
from qgraph.ir.types import Rounding
from tests.helpers.forms import assert_form, network_of, refused
from tests.helpers.program_builder import ProgramBuilder, requantized

for package in ("tflite", "ai_edge_litert", "tflite_micro"):
    pytest.importorskip(package, reason="pip install 'qgraph-compiler[tflite]'")

EXECUTORS = [(a, e) for a in ARITHMETICS for e in (*a.executors, *a.on_codes)]
EVERY = pytest.mark.parametrize(
    ("arithmetic", "executor"), EXECUTORS, ids=lambda v: v[:14] if isinstance(v, str) else v.name
)
EXACT = {
    Int32Op.ADD: np.add, Int32Op.SUBTRACT: np.subtract, Int32Op.MULTIPLY: np.multiply,
    Int32Op.DIVIDE: lambda a, b: np.abs(a) // b * np.sign(a), Int32Op.MAXIMUM: np.maximum,
    Int32Op.MINIMUM: np.minimum,
}  # fmt: skip
RNG = np.random.default_rng(0)


def numbers_of(op: Int32Op) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of every magnitude whose result has 32 bits, with a second operand for each row."""
    a = RNG.integers(-(1 << 31), 1 << 31, (300, 200)) >> RNG.integers(1, 32, (300, 200))
    b = RNG.integers(-(1 << 31), 1 << 31, (300, 1)) >> RNG.integers(1, 32, (300, 1))
    a[:, :4] = [-(1 << 30), (1 << 30) - 1, 0, -1]
    if op is Int32Op.MULTIPLY:
        a = np.where(np.abs(a * b) >= 1 << 31, 1, a)
    if op is Int32Op.DIVIDE:
        b = np.abs(b) + 1
    return a.astype(np.int32), b.astype(np.int32)


def run(arithmetic, executor, inputs, build) -> np.ndarray:
    """The result of operators that `build` writes."""
    model = TfliteModelBuilder("ops")
    program = ProgramBuilder().program()
    ops = TfliteInt32(TfliteEmission(program, arithmetic, model), "ops")
    for i, array in enumerate(inputs):
        made = model.tensor(f"x{i}", array.shape, "int32")
        ops.shapes[made] = array.shape
        model.inputs[f"x{i}"] = made
    model.outputs["y"] = build(ops, *model.inputs.values())
    for session in sessions_of(executor, model.model({})):
        session.run(inputs)
        found = session.tensor(model.outputs["y"]).astype(np.int64)
    return found


@EVERY
@pytest.mark.parametrize("op", Int32Op)
def test_int32_ops_are_exact(arithmetic, executor, op) -> None:
    a, b = numbers_of(op)
    found = run(arithmetic, executor, [a, b], lambda ops, x, y: ops.write(op, x, y))
    wanted = EXACT[op](a.astype(np.int64), b.astype(np.int64))
    np.testing.assert_array_equal(found, wanted)


@EVERY
def test_sums_of_rows_are_exact_up_to_their_limit(arithmetic, executor) -> None:
    count = 513
    x = RNG.integers(0, FLOAT_EXACT // count + 1, (50, count)).astype(np.int32)
    x[0], x[1] = FLOAT_EXACT // count, -(FLOAT_EXACT // count)
    found = run(arithmetic, executor, [x], lambda ops, x: ops.write_row_sum(x))
    np.testing.assert_array_equal(found, x.sum(1, keepdims=True))


@EVERY
def test_entries_of_a_table(arithmetic, executor) -> None:
    table, index = RNG.integers(0, 1 << 16, 300), np.arange(300, dtype=np.int32).reshape(3, 100)
    found = run(arithmetic, executor, [index], lambda ops, x: ops.write_entries(table, x))
    np.testing.assert_array_equal(found, table[index])


@EVERY
def test_roots_and_quotients_are_nearly_correct(arithmetic, executor) -> None:
    """As `Int32Writer` requires, with squares and quotients of every size."""
    bits = RNG.integers(0, 53, (3000, 1))
    square = np.ldexp(RNG.random((3000, 1)) + 1, bits - 1).astype(np.int64)
    square[:100, 0] = np.arange(100)
    halves = [part.astype(np.int32) for part in (square >> 26, square & (1 << 26) - 1)]

    def root(ops, high, low):
        return ops.near_root(*(Int32Value(v, 0, (1 << 26) - 1) for v in (high, low)))

    found, exact = run(arithmetic, executor, halves, root), np.sqrt(square)
    error = np.where(square < 1 << 24, 1, np.ldexp(exact, -ROOT_BITS))
    assert (np.abs(found - exact) <= error).all()
    divisor = RNG.integers(1, 1 << 27, (3000, 1)) >> RNG.integers(0, 27, (3000, 1))
    divisor = np.maximum(divisor, 1)
    quotient = RNG.uniform(-(1 << 15), 1 << 15, (3000, 8))
    value = np.clip(quotient * divisor / 8, -(1 << 26), 1 << 26).astype(np.int64)

    def near(ops, high, below):
        values = [Int32Value(v, -(1 << 26), 1 << 27) for v in (high, below)]
        return ops.near_quotient(values[0], 3, None, values[1])

    inputs = [value.astype(np.int32), divisor.astype(np.int32)]
    found, exact = run(arithmetic, executor, inputs, near), value * 8 / divisor
    assert (np.abs(found - exact) < 1 + np.ldexp(np.abs(exact), -QUOTIENT_BITS)).all()


def rounding_of(arithmetic) -> dict:
    return {"rounding": arithmetic.inputs}


def rows(arithmetic, count: int, unsigned: bool) -> tuple[ProgramBuilder, str, int]:
    """A builder with an entry of rows, and the bits of its codes."""
    stored, builder = arithmetic.stored, ProgramBuilder()
    span = (0, stored.high - stored.low) if unsigned and stored.zero_points else stored.ends
    x = builder.entry((1, 2, 3, count), span, "x", **rounding_of(arithmetic))
    return builder, x, max(-span[0], span[1])


OF_ROWS = (
    st.sampled_from(ARITHMETICS), st.sampled_from([1, 2, 7, 64, 300]), st.booleans(),
    st.integers(0, 99),
)  # fmt: skip


def check(builder: ProgramBuilder, arithmetic, seed: int) -> None:
    """Compare every executor of the arithmetic, from floats."""
    program, form = builder.program(), TfliteForm()
    meta = metadata_of(form.emit(network_of(program)))
    assert meta["executors"] == [*arithmetic.executors] or arithmetic is LITERT
    assert assert_form(form, program, seed=seed)


@settings(max_examples=12, deadline=None)
@given(*OF_ROWS, st.sampled_from([0, 1, 7, 8, 15]), st.sampled_from([1, 40, 1 << 14]))
def test_softmaxes(arithmetic, count, unsigned, seed, bits, entries) -> None:
    bits = min(bits, arithmetic.stored.bits - 1)
    builder, x, _ = rows(arithmetic, count, unsigned)
    table = np.rint(np.ldexp(np.exp(-np.arange(entries) * 8 / entries), 15)).astype(int)
    builder.step("softmax", x, builder.constant(table), bits=bits, high=(1 << bits) - 1)
    check(builder, arithmetic, seed)


@settings(max_examples=12, deadline=None)
@given(*OF_ROWS, st.integers(0, 9), st.sampled_from([0, 1, 1 << 20, 1 << 50]))
def test_layer_norms(arithmetic, count, unsigned, seed, less, epsilon) -> None:
    builder, x, largest = rows(arithmetic, count, unsigned)
    guard = 25 - (count * largest).bit_length()
    root = int(np.ceil(np.log2(np.sqrt(count)) + 1))
    shift = max(guard + arithmetic.stored.bits - 1 - root - less, 0)
    builder.step("standardize", x, guard=guard, epsilon=epsilon, shift=shift)
    check(builder, arithmetic, seed)


@pytest.mark.parametrize("arithmetic", [LITERT, TFLM, TFLM_INT16X8], ids=lambda a: a.name)
def test_a_product_with_a_constant_and_a_bias_is_a_layer(arithmetic) -> None:
    """As behind a layer norm; the bias has more bits than codes have."""
    builder, x, _ = rows(arithmetic, 5, False)
    gamma = builder.constant([90, -128, 3, 0, 127], exponent=6)
    scaled = builder.step("mul", gamma, x)
    biased = builder.step("add", scaled, builder.constant([40000, -7, 0, 9, 12345], exponent=6))
    shift = 6 if arithmetic.stored.bits == 8 else 7
    builder.step(
        "requantize", biased,
        **requantized(shift, arithmetic.stored.ends, Rounding(arithmetic.layers)),
    )  # fmt: skip
    check(builder, arithmetic, 0)


def test_results_of_more_bits_than_codes_are_refused_by_name() -> None:
    builder, x, _ = rows(LITERT, 4, False)
    table = builder.constant([1 << 15, 1 << 14, 0])
    builder.step("softmax", x, table, bits=12, high=4095, name="shares")
    reason = refused(TfliteForm(), network_of(builder.program()))
    assert reason is not None and "shares: its codes are 0..4,095" in reason
