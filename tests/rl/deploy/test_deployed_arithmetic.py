"""The functions inside the C of a policy: rounding to codes, and tanh."""

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.ir.types import QuantSpec
from qgraph.numerics import quantize
from qgraph.rl.deploy import deploy
from qgraph.rl.deploy.float_loop import float_literal
from qgraph.rl.head import Head
from tests.helpers.c_programs import needs_compiler
from tests.helpers.deployed import FOUND, library, with_head

EACH = """\
void tanh_of_all(const float *x, float *y, int count);
int32_t code_of_one(float x, float steps, int32_t low, int32_t high);

void tanh_of_all(const float *x, float *y, int count)
{
    for (int i = 0; i < count; ++i)
        y[i] = tanh_of(x[i]);
}

int32_t code_of_one(float x, float steps, int32_t low, int32_t high)
{
    return code_of(x, steps, low, high);
}
"""


@pytest.fixture(scope="module", params=FOUND)
def inside(request, tmp_path_factory):
    policy = with_head("squashed_gaussian")
    made = deploy(policy, tmp_path_factory.mktemp("inside") / "c")
    found = library(made, EACH, request.param)
    found.code_of_one.argtypes = [ctypes.c_float, ctypes.c_float, ctypes.c_int32, ctypes.c_int32]
    return found


@needs_compiler
@settings(max_examples=200, deadline=None)
@given(
    x=st.floats(width=32, allow_nan=False),
    exponent=st.integers(-20, 30),
    bits=st.integers(2, 16),
    signed=st.booleans(),
    steps=st.none() | st.integers(-70_000, 70_000),
)
def test_codes_are_those_of_the_quantizer(inside, x, exponent, bits, signed, steps):
    if steps is not None:  # multiples of half a step
        x = float(np.float32(np.ldexp(steps / 2, -exponent)))
    spec = QuantSpec(bits, signed, "input", exponent)
    found = inside.code_of_one(x, 2.0**exponent, spec.lo, spec.hi)
    assert found == quantize(np.float32(x), spec).codes


@needs_compiler
def test_tanh_of_every_code_of_16_bits_is_that_of_the_head(inside):
    codes, head = np.arange(-(2**15), 2**15), Head("squashed_gaussian", (-1.0,), (1.0,))
    for exponent in range(4, 28):
        x = np.ldexp(codes, -exponent).astype(np.float32)
        found = np.empty_like(x)
        pointers = (array.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for array in (x, found))
        inside.tanh_of_all(*pointers, x.size)
        wanted = np.tanh(x, dtype=np.float64).astype(np.float32)
        np.testing.assert_array_equal(found.view(np.int32), wanted.view(np.int32))
        outputs = np.stack([x, np.zeros_like(x)], 1)
        acted = head.actions(outputs)[:, 0]
        scaled = np.float32(-1) + (wanted + np.float32(1)) * np.float32(2) / np.float32(2)
        np.testing.assert_array_equal(acted, scaled)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_numbers_in_c_are_exact(value):
    text = float_literal(value).strip("()").removesuffix("f")
    found = float.fromhex(text) if "0x" in text else float(text)
    assert np.float32(found).tobytes() == np.float32(value).tobytes()
