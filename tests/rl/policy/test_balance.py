"""Features of different size in one quantized observation."""

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.rl.actor import Packer
from qgraph.rl.policy import Policy, floats, pack, read_policy
from qgraph.rl.policy.balance import balance, nearer


def network(normalised=False):
    rng, graph = np.random.default_rng(0), Graph("p")
    x = graph.input("seen", "float32", (None, 3))
    if normalised:
        x = graph.add("mul", x, graph.const(np.float32([1, 10, 1000])))
    weights = rng.normal(size=(3, 16)) * np.array([[1], [10], [1000]])
    hidden = graph.add("tanh", graph.add("matmul", x, graph.const(weights.astype("f"))))
    last = graph.const(rng.normal(size=(16, 2)).astype("f"))
    graph.outputs = {"out": graph.add("matmul", hidden, last)}
    return read_policy(graph)


def seen(n=300, seed=1):
    sizes = np.float32([1, 0.1, 0.001])
    return np.random.default_rng(seed).normal(size=(n, 3)).astype("f") * sizes


def error_of(policy, made):
    x = seen(seed=2)
    wanted = floats.run(made.program, made.weights, x)["out"]
    return float(np.sqrt(((policy.outputs(x) - wanted) ** 2).mean()))


def test_float_outputs_stay_as_they_are():
    made = network()
    other = balance(made, seen())
    assert [step.op for step in other.program.steps] == ["affine", "dense", "dense"]
    factors = 1 / other.weights["seen/scaled/scale"]
    largest = np.abs(seen()).max(0)
    assert (largest <= factors).all() and (factors < 2 * largest).all()
    assert (np.log2(factors) % 1 == 0).all()
    for array in (seen(), seen(seed=9)):
        wanted = floats.run(made.program, made.weights, array)["out"]
        found = floats.run(other.program, other.weights, array)["out"]
        np.testing.assert_array_equal(found, wanted)


def test_small_features_keep_their_bits():
    made = network()
    alike = {"first_bits": 8, "last_bits": 8}
    apart = Policy(pack(made, bits=8, observations=seen(), **alike))
    together = Policy(pack(made, bits=8, **alike))
    assert error_of(apart, made) < 0.2 * error_of(together, made)


def test_the_nearer_one_is_kept():
    made = network()
    other = balance(made, seen())
    assert nearer(made, other, seen(), Packer) is other
    assert nearer(other, made, seen(), Packer) is other


def test_normalised_observations_are_left_alone():
    assert balance(network(normalised=True), seen()) is None
