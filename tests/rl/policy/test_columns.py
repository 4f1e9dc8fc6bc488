"""Layers whose outputs the graph takes apart: means and deviations, most often."""

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy, floats, pack, read_policy

HALVES = {"means": (0, 3), "deviations": (3, 6), "one": (2, 3), "every other": (1, 6, 2)}


def seen(n=30):
    return np.random.default_rng(1).normal(size=(n, 5)).astype(np.float32)


def part(graph, x, *cut):
    begin, end, stride = (*cut, 1)[:3]
    attrs = {"begin": (None, begin), "end": (None, end), "strides": (1, stride)}
    return graph.add("slice", x, attrs=attrs)


def whole(layers=("tanh",)):
    """A graph to six outputs, with `layers` between the last layer and what is cut from it."""
    rng, graph = np.random.default_rng(0), Graph("halves")
    x = graph.input("seen", "float32", (None, 5))
    hidden = graph.add("matmul", x, graph.const(rng.normal(size=(5, 8)).astype("f")))
    hidden = graph.add("tanh", hidden)
    last = graph.add("matmul", hidden, graph.const(rng.normal(size=(8, 6)).astype("f")))
    last = graph.add("bias_add", last, graph.const(rng.normal(size=6).astype("f")))
    for layer in layers:
        if layer in ("mul", "minimum"):
            last = graph.add(layer, last, graph.const(rng.normal(size=6).astype("f")))
        else:
            last = graph.add(layer, last)
    return graph, last


def check(graph):
    network, x = read_policy(graph), seen()
    wanted = evaluate(graph, {"seen": x})
    found = floats.run(network.program, network.weights, x)
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6)
    return network


@pytest.mark.parametrize("cut", HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("layers", [(), ("tanh",), ("mul",), ("tanh", "mul", "minimum", "relu")])
def test_columns_are_cut_from_the_layer_that_makes_them(cut, layers):
    graph, last = whole(layers)
    graph.outputs = {"out": graph.add("tanh", part(graph, last, *cut))}
    network = check(graph)
    count = len(range(*cut))
    assert network.program.size("out") == count
    kernels = [s.weights[0] for s in network.program.steps if s.op == "dense"]
    assert [network.weights[name].shape for name in kernels] == [(5, 8), (8, count)]


def test_both_halves_are_outputs():
    graph, last = whole(())
    means, spread = part(graph, last, 0, 3), part(graph, last, 3, 6)
    graph.outputs = {"mean": graph.add("tanh", means), "log_std": spread}
    network = check(graph)
    head = Head("clip", (-1.0,) * 3, (1.0,) * 3)
    policy, x = Policy(pack(network, head, observations=seen())), seen()
    wanted = evaluate(graph, {"seen": x})["mean"]
    assert np.abs(policy(x) - wanted).max() < 0.05


@pytest.mark.parametrize("cut", HALVES.values(), ids=HALVES)
def test_columns_of_what_mixes_them_are_slices(cut):
    graph, last = whole(("softmax",))
    graph.outputs = {"out": part(graph, last, *cut)}
    network = check(graph)
    taken = [step.attrs.columns for step in network.program.steps if step.op == "slice"]
    assert taken == ([(1, 1), (3, 1), (5, 1)] if cut == (1, 6, 2) else [(cut[0], cut[1] - cut[0])])


def test_columns_of_the_observation_are_selected():
    graph = Graph("history")
    x = graph.input("seen", "float32", (None, 5))
    old, new = part(graph, x, 0, 2), part(graph, x, 2, 5)
    old = graph.add("tanh", old)  # which is not part of the selection
    both = graph.add("concat", new, old, attrs={"axis": -1})
    weights = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    graph.outputs = {"out": graph.add("matmul", both, graph.const(weights))}
    network, x = read_policy(graph), 1e4 * seen()
    slices = [step for step in network.program.steps if step.op == "slice"]
    assert [step.attrs.columns for step in slices] == [(2, 3), (0, 2)]
    wanted = evaluate(graph, {"seen": x})["out"]
    policy = Policy(pack(network, bits=8, first_bits=32, last_bits=32))
    assert np.abs(policy.outputs(x) / wanted - 1).max() < 1e-3  # float16 takes numbers as they are
