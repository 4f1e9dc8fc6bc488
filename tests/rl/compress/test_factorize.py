"""Dense layers as two narrow ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import UnsupportedError, UsageError
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.compress import ChainPolicy, Compressor
from qgraph.rl.compress.factorize import factors
from qgraph.rl.policy import floats
from tests.helpers.actors import everything, mlp, random_weights


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_at_full_rank_the_product_is_the_kernel(k, m, seed):
    kernel = np.random.default_rng(seed).normal(size=(k, m)).astype("f4")
    left, right = factors(kernel, 1.0)
    assert left.shape == (k, min(k, m)) and right.shape == (min(k, m), m)
    assert left @ right == pytest.approx(kernel, abs=1e-5)


@given(st.floats(0.01, 1), st.integers(0, 99))
def test_the_least_rank_that_keeps_the_energy(energy, seed):
    kernel = np.random.default_rng(seed).normal(size=(8, 6)).astype("f4")
    left, right = factors(kernel, energy)
    lost = ((kernel - left @ right).astype(float) ** 2).sum() / (kernel.astype(float) ** 2).sum()
    assert lost <= 1 - energy + 1e-6
    if len(right) > 1:
        fewer = ((kernel - left[:, :-1] @ right[:-1]).astype(float) ** 2).sum()
        assert fewer / (kernel.astype(float) ** 2).sum() > 1 - energy - 1e-6


def low_rank(rank=3):
    program, rng = mlp(20, 30, 30, 2), np.random.default_rng(0)
    weights = random_weights(program)
    weights["w1"] = (rng.normal(size=(30, rank)) @ rng.normal(size=(rank, 30))).astype("f4")
    return ChainPolicy(program, weights)


def test_a_layer_of_low_rank_is_split_and_the_function_stays():
    policy = low_rank()
    made = Compressor().factorize(1.0)(policy)
    assert [made.weights[step.weights[0]].shape for step in made.program.steps] == [
        (20, 30), (30, 3), (3, 30), (30, 2),
    ]  # fmt: skip
    assert made.numbers == policy.numbers - 900 + 180 + 3
    x = np.random.default_rng(1).normal(size=(5, 20)).astype("f4")
    wanted = floats.run(policy.program, policy.weights, x)["y2"]
    assert floats.run(made.program, made.weights, x)["y2"] == pytest.approx(wanted, abs=1e-4)
    assert made.actor()(x) == pytest.approx(wanted, abs=1e-4)
    again = Compressor().factorize(0.5).factorize(0.5)(low_rank(9))  # names stay apart
    assert again.actor()(x).shape == (5, 2)


def test_what_would_not_get_smaller_stays():
    program = mlp(4, 4, 2)
    policy = ChainPolicy(program, random_weights(program))
    assert Compressor().factorize(1.0)(policy).program == program


def test_every_op_may_stand_beside():
    program = everything()
    policy = ChainPolicy(program, random_weights(program))
    made = Compressor().factorize(0.6)(policy)
    assert made.numbers < policy.numbers
    assert made.program.shapes()["both"] == program.shapes()["both"]


def test_bad_settings_and_graphs():
    for energy in (0, 1.1, float("nan")):
        with pytest.raises(UsageError, match="above 0 to 1"):
            Compressor().factorize(energy)
    program = ActorProgram((3,), (ActorStep("softmax", ("observation",), "y"),), ("y",), {})
    with pytest.raises(UnsupportedError, match="no dense layer"):
        Compressor().factorize()(ChainPolicy(program, {}))
