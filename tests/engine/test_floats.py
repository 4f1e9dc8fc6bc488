"""Floats in, floats out: what the quantizer, the engine and the codes' scale give, to the bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph import kernels
from qgraph.errors import ExactnessError, GraphError
from qgraph.ir.types import ROUNDINGS, Fixed, QuantSpec
from qgraph.numerics import dequantize, quantize
from tests.helpers.program_builder import ProgramBuilder

if kernels.native_engine() is None:
    pytest.skip("the native extension isn't built", allow_module_level=True)

from qgraph.backends.engine import Engine, FloatEngine


def made(bits: int, signed: bool, size: int, threads: int = 1) -> tuple[Engine, list[str]]:
    """An engine of a wide entry, a product and a narrow exit, and their names."""
    builder, spec = ProgramBuilder(), spec_of(bits, signed, 0)
    x = builder.entry((1, size), (spec.lo, spec.hi))
    weights = np.random.default_rng(0).integers(-128, 128, (size, 5))
    wide = builder.step("matmul", x, builder.constant(weights))
    narrow = builder.step("clip", wide, low=-100, high=100)
    return Engine.of(builder.program(wide, narrow), threads), [wide, narrow]


def spec_of(bits: int, signed: bool, exponent, **options) -> QuantSpec:
    return QuantSpec(bits, signed, role="activation", **options).with_exponent(exponent)


@settings(max_examples=100)
@given(st.data())
def test_the_same_as_code_by_code(data) -> None:
    bits, signed = data.draw(st.integers(2, 16)), data.draw(st.booleans())
    exponent = data.draw(st.integers(-40, 40))
    spec = spec_of(bits, signed, exponent, rounding=data.draw(st.sampled_from(ROUNDINGS)))
    engine, names = made(bits, signed, size=data.draw(st.sampled_from([1, 3, 1500])))
    exits = {name: data.draw(st.integers(-50, 50)) for name in names}
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    samples = data.draw(st.integers(1, 5))
    shape = (samples, *engine.tensors[engine.entries[0]].shape[1:])
    # Ties and what is beyond the range among them.
    halves = rng.integers(2 * spec.lo - 9, 2 * spec.hi + 10, shape) / 2
    x = np.where(rng.random(shape) < 0.5, halves, rng.normal(0, spec.hi, shape))
    x = np.ldexp(x, -exponent).astype(np.float32)

    runner = FloatEngine.of(engine, spec, exits)
    assert runner is not None
    found = runner.run(x)
    codes = engine.run_codes({engine.entries[0]: quantize(x, spec).codes})
    for name, exit_exponent in exits.items():
        wanted = dequantize(Fixed(codes[name].astype(np.int64), exit_exponent))
        np.testing.assert_array_equal(found[name], wanted.astype(np.float32))


@pytest.mark.parametrize("threads", [1, 2])
def test_slice_by_slice(threads) -> None:
    engine, (name, _) = made(8, True, 1 << 20, threads)
    runner = FloatEngine.of(engine, spec_of(8, True, 4), {name: 3})
    assert runner is not None
    x = np.random.default_rng(0).normal(size=(9, 1 << 20)).astype(np.float32)
    alone = [runner.run(x[i : i + 1])[name] for i in range(9)]
    np.testing.assert_array_equal(runner.run(x)[name], np.concatenate(alone))


def test_what_is_no_number_is_refused() -> None:
    engine, (name, _) = made(8, True, 3)
    runner = FloatEngine.of(engine, spec_of(8, True, 4), {name: 3})
    assert runner is not None
    x = np.zeros((2, 3), np.float32)
    x[1, 2] = np.nan
    with pytest.raises(ExactnessError, match="NaN"):
        runner.run(x)
    x[1, 2] = np.inf  # as any other number beyond the range
    assert np.isfinite(runner.run(x)[name]).all()
    for shape in ((2, 4), (0, 3), (3,)):
        with pytest.raises(GraphError, match="expects"):
            runner.run(np.zeros(shape, np.float32))


def test_where_it_does_not_serve() -> None:
    engine, (name, _) = made(8, True, 3)
    spec = spec_of(8, True, 4)
    assert FloatEngine.of(engine, spec, {name: 3}) is not None
    assert FloatEngine.of(engine, spec, {name: (1, 2, 3, 4, 5)}) is None
    assert FloatEngine.of(engine, spec_of(8, True, (1, 2, 3)), {name: 3}) is None
    assert FloatEngine.of(engine, spec_of(8, True, 4, overflow="wrap"), {name: 3}) is None
    assert FloatEngine.of(engine, spec_of(8, True, 127), {name: 3}) is None
