"""The network of few bits: what it computes is what its static policy computes, bit for bit."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import TrainingError, UnsupportedError
from qgraph.ir.reading import spec_of
from qgraph.rl.learn.networks import initial_weights, network
from qgraph.rl.learn.tensors import variables
from qgraph.rl.policy import Policy
from qgraph.rl.policy.build import pack_calibrated
from qgraph.rl.trained_bits.network import TrainedBits
from qgraph.rl.trained_bits.policy_graph import ROOM, calibrated, check_steps, policy_graph

FORMS = [{}, {"layer_norm": True}, {"last": "tanh"}, {"activation": "tanh"}]


def trained(bits=4, sizes=(3, 8, 8, 2), form=None, seed=0, scale=1.0):
    """A network with weights of variance `scale` / fan-in, random biases, and observations."""
    program = network(sizes[:1], sizes[1:-1], sizes[-1], **(form or {}))
    rng = np.random.default_rng(seed)
    weights = {
        name: (w if name.endswith("/kernel") else w + rng.normal(size=w.shape)) * scale
        for name, w in initial_weights(program, rng).items()
    }
    seen = rng.normal(size=(64, *sizes[:1])) * rng.uniform(0.1, 20, sizes[0])
    held = variables({name: np.float32(w) for name, w in weights.items()}, "policy")
    arrays = {name: v.numpy() for name, v in held.items()}
    graph = calibrated(program, arrays, seen.astype(np.float32), bits)
    return TrainedBits(program, graph, 1e-3), held, seen.astype(np.float32)


def static(bits, weights, width=4):
    graph = bits.finalized(weights)
    return Policy(pack_calibrated(graph, bits.program, None, width))


@settings(max_examples=12, deadline=None)
@given(
    width=st.integers(2, 8),
    sizes=st.lists(st.integers(1, 9), min_size=3, max_size=5),
    form=st.sampled_from(FORMS),
    seed=st.integers(0, 99),
    moved=st.floats(-3, 3),
)
def test_the_static_policy_computes_what_training_ends_with(width, sizes, form, seed, moved):
    """Also where thresholds moved by several bits, so that weights and sums saturate."""
    bits, weights, seen = trained(width, tuple(sizes), form, seed)
    ranges = bits.quantizers.ranges
    rng = np.random.default_rng(seed)
    ranges.assign(ranges + rng.uniform(-abs(moved), abs(moved), ranges.shape))
    policy = static(bits, weights, width)
    for x in (seen, (rng.normal(size=(40, sizes[0])) * 50).astype(np.float32)):
        found = policy.outputs(x)
        assert np.array_equal(found, bits.inference(weights, x).numpy())
        assert found.dtype == np.float32


def test_training_computes_the_same_where_sums_are_exact_in_float32():
    bits, weights, seen = trained(3, (2, 6, 6, 1))
    assert np.array_equal(bits(weights, seen), bits.inference(weights, seen))


@pytest.mark.parametrize("width", [8, 4, 3, 2])
def test_weights_of_actors_are_the_codes_of_the_static_policy(width):
    bits, weights, seen = trained(width, (3, 16, 16, 16, 2))
    rounded = bits.rounded(weights)
    assert rounded.keys() == weights.keys()
    finalized = bits.finalized(weights)
    ends = {"hidden_0": 8, "output": 8}
    for name, values in rounded.items():
        (user,) = finalized.users(name)
        spec = spec_of(user)
        codes = np.ldexp(values, spec.exponent)
        assert np.array_equal(codes, np.rint(codes))
        assert codes.min() >= spec.lo and codes.max() <= spec.hi
        if name.endswith("/kernel"):
            assert spec.bits == ends.get(name.split("/")[0], width)
    # Rounded weights are their own codes: the policy stays the same, bit for bit.
    before = static(bits, weights).outputs(seen)
    for name, values in rounded.items():
        weights[name].assign(values)
    assert np.array_equal(static(bits, weights).outputs(seen), before)


def test_weights_and_thresholds_learn_together():
    bits, weights, seen = trained(3)
    before = {name: v.numpy() for name, v in weights.items()}
    ranges = bits.quantizers.ranges.numpy()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(bits(weights, seen) - 1.0))
    found, (of_ranges,) = tape.gradient(loss, (weights, [bits.quantizers.ranges]))
    assert all(np.abs(gradient).max() > 0 for gradient in found.values())
    bits.thresholds.apply({"ranges": of_ranges})
    moved = np.abs(bits.quantizers.ranges.numpy() - ranges)
    assert moved.max() == pytest.approx(1e-3, rel=1e-2)
    assert all(np.array_equal(weights[name], value) for name, value in before.items())


def test_outputs_have_room_to_grow():
    bits, weights, seen = trained(8)
    last = [node for node in bits.graph.topological() if node.op == "quantize"][-1]
    spec = spec_of(last)
    largest = np.ldexp(spec.hi + 1.0, -spec.exponent)
    before = bits.inference(weights, seen).numpy()
    assert largest >= 2**ROOM * np.abs(before).max()


def test_numbers_that_are_not_finite_are_named():
    bits, weights, _ = trained()
    weights["hidden_1/bias"].assign(weights["hidden_1/bias"] * np.nan)
    with pytest.raises(TrainingError, match="NaN or infinity") as error:
        bits.finalized(weights)
    assert error.value.node == "hidden_1/bias"


def test_steps_that_are_not_trained_are_refused_by_name():
    program = network((4,), (8,), 2, dueling=True)
    with pytest.raises(UnsupportedError, match="not trained in few bits") as error:
        check_steps(program)
    assert error.value.node == "centered"
    elu = network((4,), (8,), 2, activation="elu")
    with pytest.raises(UnsupportedError) as error:
        policy_graph(elu, initial_weights(elu, np.random.default_rng(0)))
    assert error.value.node == "hidden_0"
