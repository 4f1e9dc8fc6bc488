"""Ops that become several steps of an actor, and reshapes that no step computes."""

import numpy as np
import onnxruntime
import pytest

from qgraph.errors import UnsupportedError
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.actor.actor import levels
from qgraph.rl.policy import floats, read_policy
from tests.helpers.exported_policies.written_graph import WrittenGraph, tensor

ACTIVATIONS = {
    "hard swish": ("HardSwish", {}),
    "hard sigmoid": ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    "selu": ("Selu", {}),
    "gelu by tanh": ("Gelu", {"approximate": "tanh"}),
    "gelu by erf": ("Gelu", {}),
    "abs": ("Abs", {}),
    "sign": ("Sign", {}),
}


def policy(middle, inputs=6, outputs=4):
    """Two layers with `middle` between them, which takes the graph and a value."""
    graph = WrittenGraph(20)
    hidden = middle(graph, graph.linear("x", "first", inputs, 8))
    graph.linear(hidden, "last", 8, outputs, to="y")
    return graph.model([tensor("x", "batch", inputs)], [tensor("y", "batch", outputs)])


def compare(path, n=50):
    """Compare with ONNX Runtime, and all levels with one another; returns the network."""
    network = read_policy(path)
    x = np.random.default_rng(0).normal(0, 3, (n, *network.program.shape)).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    found = floats.run(network.program, network.weights, x)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)
    block = Packer(network.program, 8).pack(network.weights)
    bits = {Actor(block, level)(x).tobytes() for level in levels()}
    assert len(bits) == 1 and len(levels()) > 1
    return network


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_composed(name, saved):
    op, attrs = ACTIVATIONS[name]
    compare(saved(policy(lambda graph, x: graph.node(op, x, **attrs))))


@pytest.mark.parametrize("name", ["hard swish", "gelu by tanh", "selu"])
def test_columns_are_taken_behind_composed_activations(name, saved):
    op, attrs = ACTIVATIONS[name]

    def middle(graph, x):
        x = graph.node(op, x, **attrs)
        halves = [graph.constant([k], "int64") for k in (0, 4, 8, 1)]
        low = graph.node("Slice", x, halves[0], halves[1], halves[3])
        high = graph.node("Slice", x, halves[1], halves[2], halves[3])
        return graph.node("Concat", graph.node("Tanh", high), low, axis=-1)

    compare(saved(policy(middle)))


@pytest.mark.parametrize("indices", [[5, 0, 2], [1, 1, 4, 4], [0, 1, 0, 1, 2]], ids=str)
def test_columns_are_taken_by_their_numbers(indices, saved):
    graph = WrittenGraph(20)
    picked = graph.node("Gather", "x", graph.constant(indices, "int64"), axis=1)
    graph.linear(picked, "layer", len(indices), 3, to="y")
    path = saved(graph.model([tensor("x", "batch", 6)], [tensor("y", "batch", 3)]))
    assert {"slice"} <= {step.op for step in compare(path).program.steps}


def grouped(graph, x):
    """A softmax over each half of eight numbers."""
    rows = graph.node("Reshape", x, graph.constant([-1, 4], "int64"))
    return graph.node(
        "Reshape", graph.node("Softmax", rows, axis=-1), graph.constant([-1, 8], "int64")
    )


def apart(graph, x):
    """Each half of eight numbers becomes a sample."""
    return graph.node("Tanh", graph.node("Reshape", x, graph.constant([-1, 4], "int64")))


def chosen(graph, x):
    return graph.node("Add", x, graph.cast(graph.node("ArgMax", x, axis=1, keepdims=1)))


def masked(graph, x):
    valid = graph.node("Greater", x, graph.constant(0.0))
    return graph.node("Where", valid, x, graph.constant(-1e8))


def test_a_softmax_over_each_half_is_on_rows(saved):
    assert "reshape" in {step.op for step in compare(saved(policy(grouped))).program.steps}


REFUSED = {
    "choice": (chosen, r"`argmax`(.|\n)*end the policy at its logits"),
    "mask": (masked, r"`greater`(.|\n)*a head with masks applies it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_step_computes_is_refused_with_a_hint(name, saved):
    middle, reason = REFUSED[name]
    with pytest.raises(UnsupportedError, match=reason):
        read_policy(saved(policy(middle)))


def test_an_output_of_several_samples_for_each_is_refused(saved):
    graph = WrittenGraph(20)
    apart(graph, graph.linear("x", "first", 6, 8))
    graph.node("Identity", graph.nodes[-1].output[0], to="y")
    path = saved(graph.model([tensor("x", "batch", 6)], [tensor("y", None, 4)]))
    with pytest.raises(UnsupportedError, match="changes the number of samples"):
        read_policy(path)


def test_an_observation_that_is_one_number_is_refused(saved):
    graph = WrittenGraph(20)
    graph.node("Tanh", "x", to="y")
    with pytest.raises(UnsupportedError, match=r"a single number(.|\n)*one-hot row"):
        read_policy(saved(graph.model([tensor("x", "batch")], [tensor("y", "batch")])))
