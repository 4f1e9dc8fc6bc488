"""The native rounding of codes equals the plain one, to the bit, whatever runs it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph import kernels
from qgraph.kernels import plain_rounding
from qgraph.kernels.plain import Float64

ENDS = [(-8, 7), (-128, 127), (0, 15), (-1, 0)]


pytestmark = pytest.mark.usefixtures("instruction_set")


@st.composite
def problems(draw) -> tuple[Float64, Float64, Float64, tuple[int, int]]:
    """Targets, half of them between two codes; factors; a symmetric matrix; ends of the codes."""
    groups, k, n = draw(st.tuples(st.integers(0, 3), st.integers(0, 100), st.integers(0, 70)))
    return problem(draw(st.integers(0, 2**32 - 1)), groups, k, n, draw(st.sampled_from(ENDS)))


def problem(
    seed: int, groups: int, k: int, n: int, ends: tuple[int, int]
) -> tuple[Float64, Float64, Float64, tuple[int, int]]:
    rng = np.random.default_rng(seed)
    v = rng.uniform(2 * ends[0] - 1, 2 * ends[1] + 1, (groups, k, n))
    v = np.where(rng.random(v.shape) < 0.5, np.round(2 * v) / 2, v)
    lower = rng.normal(size=(groups, k, k)) / 4
    return v, lower, lower + np.swapaxes(lower, 1, 2) + np.eye(k), ends


def same_bits(a: Float64, b: Float64) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


@settings(max_examples=25)
@given(problems())
def test_rounding_in_turn_equals_plain(made) -> None:
    v, lower, _, ends = made
    plain = plain_rounding.round_in_turn(v, lower, *ends)
    assert same_bits(kernels.round_in_turn(v, lower, *ends), plain)


@settings(max_examples=25)
@given(problems(), st.integers(0, 10))
def test_descent_equals_plain(made, sweeps: int) -> None:
    v, _, hessian, ends = made
    start = np.rint(np.clip(v, *ends)) + 0.0
    kept = start.copy()
    plain = plain_rounding.descend(start, v, hessian, *ends, sweeps)
    assert same_bits(kernels.descend(start, v, hessian, *ends, sweeps), plain)
    assert same_bits(start, kept)


def test_any_number_of_threads(threads: int) -> None:
    v, lower, hessian, ends = problem(1, 2, 300, 150, (-8, 7))
    codes = plain_rounding.round_in_turn(v, lower, *ends)
    assert same_bits(kernels.round_in_turn(v, lower, *ends), codes)
    plain = plain_rounding.descend(codes, v, hessian, *ends, 8)
    assert same_bits(kernels.descend(codes, v, hessian, *ends, 8), plain)
    assert (plain != codes).any()


def test_any_layout() -> None:
    v, lower, hessian, ends = problem(2, 2, 40, 5, (-8, 7))
    turned = [np.asfortranarray(a) for a in (v, lower, hessian)]
    codes = kernels.round_in_turn(v, lower, *ends)
    assert same_bits(kernels.round_in_turn(turned[0], turned[1], *ends), codes)
    found = kernels.descend(np.asfortranarray(codes), turned[0], turned[2], *ends, 8)
    assert same_bits(found, kernels.descend(codes, v, hessian, *ends, 8))


def test_without_native_code(monkeypatch) -> None:
    v, lower, hessian, ends = problem(3, 1, 20, 3, (-8, 7))
    native = kernels.round_in_turn(v, lower, *ends)
    descended = kernels.descend(native, v, hessian, *ends, 8)
    monkeypatch.setattr(kernels.native, "extension", None)
    assert same_bits(kernels.round_in_turn(v, lower, *ends), native)
    assert same_bits(kernels.descend(native, v, hessian, *ends, 8), descended)


def test_wrong_arrays_are_refused() -> None:
    v, lower, _, ends = problem(4, 1, 4, 2, (-8, 7))
    with pytest.raises(TypeError, match="float64"):
        kernels.round_in_turn(v.astype(np.float32), lower, *ends)
    with pytest.raises(ValueError, match=r"groups, k, k"):
        kernels.round_in_turn(v, lower[:, :2], *ends)
    with pytest.raises(ValueError, match="codes must be float64"):
        kernels.descend(v[:, :2], v, lower, *ends, 8)
