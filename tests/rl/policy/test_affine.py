"""The papers' arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from qgraph.errors import UsageError
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.policy.affine import Simulated, dequantized

tensors = arrays.arrays(
    np.float32, st.integers(1, 20), elements=st.floats(-100, 100, width=32, allow_subnormal=False)
)


def test_codes_by_hand():
    # delta = (1 + 3) / 2^2 = 1
    assert dequantized(np.array([-1, 0.4, 1.6, 3], "f"), 2).tolist() == [-1, 0, 2, 2]


def test_a_tensor_of_one_sign_saturates():
    assert dequantized(np.array([0, 0.5, 1], "f"), 8).tolist() == [0, 0.5, 255 / 256]
    assert dequantized(np.array([-1, -0.5], "f"), 8).tolist() == [-255 / 256, -0.5]
    assert dequantized(np.array([-1, 1], "f"), 8).tolist() == [-1, 127 / 128]


def test_zeros_stay():
    assert dequantized(np.zeros(3, "f"), 4).tolist() == [0, 0, 0]


@given(tensors, st.integers(2, 15))
def test_no_more_codes_than_bits_have_and_an_error_of_a_step(x, bits):
    found = dequantized(x, bits)
    delta = (max(x.max(), 0) - min(x.min(), 0)) / 2**bits
    assert len(np.unique(found)) <= 2**bits
    assert (np.abs(found - x) <= 1.51 * delta).all()
    assert (found[x == 0] == 0).all()


def test_sixteen_bits_are_float16_and_do_not_overflow():
    found = dequantized(np.array([1e6, 1 / 3], "f"), 16)
    assert found.tolist() == [65504.0, float(np.float16(1 / 3))]


def test_too_few_bits_are_refused():
    with pytest.raises(UsageError, match="1 bits"):
        dequantized(np.ones(2, "f"), 1)


def network():
    steps = (
        ActorStep("conv", ("observation",), "a", ("k", "b"), {"activation": "relu"}),
        ActorStep("flatten", ("a",), "f"),
        ActorStep("dense", ("f",), "out", ("w", "c")),
    )
    shapes = {"k": (1, 1, 1, 2), "b": (2,), "w": (2, 1), "c": (1,)}
    weights = {
        "k": np.array([[[[1.0, 0.01]]]], "f"),
        "b": np.zeros(2, "f"),
        "w": np.array([[0.37], [1.0]], "f"),
        "c": np.full(1, 0.123, "f"),
    }
    return ActorProgram((1, 1, 1), steps, ("out",), shapes), weights


def test_channels_of_conv_layers_have_their_own_range():
    program, weights = network()
    found = Simulated.of(program, weights, 4).weights
    np.testing.assert_allclose(found["k"].ravel(), [15 / 16, 0.15 / 16], 1e-6)
    np.testing.assert_allclose(found["w"].ravel(), [6 / 16, 15 / 16], 1e-6)
    assert found["c"] is weights["c"]


def test_activations_have_a_range_for_each_observation():
    program, weights = network()
    seen = np.array([1.0, 1000.0], "f").reshape(2, 1, 1, 1)
    whole, weights_alone = (Simulated.of(program, weights, 3, b) for b in (3, 32))
    assert not np.allclose(whole(seen), weights_alone(seen), rtol=1e-3)
    for one in (whole, weights_alone):
        np.testing.assert_array_equal(one(seen), np.concatenate([one(seen[:1]), one(seen[1:])]))


def test_observations_are_quantized_where_a_layer_takes_them():
    program, weights = network()
    program = ActorProgram(
        (1, 1, 1), program.steps[:1], ("a",), {k: program.weight_shapes[k] for k in "kb"}
    )
    found = Simulated.of(program, {**weights, "k": np.full((1, 1, 1, 2), -0.5, "f")}, 2)
    seen = np.array([-0.123], "f").reshape(1, 1, 1, 1)
    # Both ranges are one-sided: 3 of 4 steps are left of each, which is 3/4 of the number.
    wanted = np.float32(0.75 * -0.123) * np.float32(-0.375)
    assert found(seen).ravel() == pytest.approx([wanted, wanted], rel=1e-6)


def test_what_no_layer_takes_is_unchanged():
    steps = (
        ActorStep("dense", ("observation",), "layer", ("k", "b")),
        ActorStep("concat", ("observation", "layer"), "out"),
    )
    program = ActorProgram((3,), steps, ("out",), {"k": (3, 1), "b": (1,)})
    weights = {"k": np.ones((3, 1), "f"), "b": np.zeros(1, "f")}
    seen = np.array([[0.3, -0.7, 0.123]], "f")
    found = Simulated(program, weights, 2)(seen)
    np.testing.assert_array_equal(found[:, :3], seen)
    assert found[0, 3] != seen.sum()
