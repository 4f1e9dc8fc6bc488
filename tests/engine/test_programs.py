"""The engine gives the codes that numpy gives: every op, fused or not, at each level."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph import kernels
from qgraph.program import run
from tests.helpers.engine_programs import random_codes, random_program

if kernels.native_engine() is None:
    pytest.skip("the native extension isn't built", allow_module_level=True)

from qgraph.backends.engine import Engine, levels

LEVELS = levels()


def differences(found, wanted):
    assert found.keys() == wanted.keys()
    return [name for name in wanted if not np.array_equal(found[name], wanted[name])]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 1 << 30),
    st.integers(1, 14),
    st.sampled_from([1, 1, 2, 5]),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
    st.sampled_from(LEVELS),
)
def test_every_tensor_is_what_numpy_makes(seed, steps, samples, threads, fuse, level) -> None:
    program = random_program(seed, steps)
    codes = random_codes(program, samples, seed)
    engine = Engine.of(program, threads, level, fuse)
    assert not differences(engine.run_codes(codes), run(program, codes))
    made = [step.output for step in program.steps]
    assert not differences(engine.run_codes(codes, made), run(program, codes, made))
