"""Biases that are corrected for what rounding shifts."""

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.rl.actor import Actor, ActorProgram, ActorStep, Packer
from qgraph.rl.actor.ends import last_layers
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy, floats, pack, read_policy
from qgraph.rl.policy.bias import corrected
from qgraph.rl.policy.shift import difference_warning, shift

HEAD = Head("argmax")
UNITS = 32


def seen(n=400, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)


def action_values(end=None, seed=0):
    """A network of two action values of about 50 that differ by some hundredths."""
    rng, graph = np.random.default_rng(seed), Graph("values")
    x = graph.input("seen", "float32", (None, 4))
    for size in (4, UNITS):
        kernel = rng.normal(size=(size, UNITS)) / np.sqrt(size)
        x = graph.add("matmul", x, graph.const(kernel.astype("f")))
        x = graph.add("bias_add", x, graph.const(np.full(UNITS, 1.0, np.float32)))
        x = graph.add("relu", x)
    both = np.abs(rng.normal(size=(UNITS, 1))) + 0.5
    apart = 1e-3 * rng.normal(size=(UNITS, 2))
    last = graph.add("matmul", x, graph.const((both + apart).astype("f")))
    values = floats.run(*_program(graph, last), seen())["out"]
    level = -values.mean(0) if end is None else -values.mean(0) * 0.9
    last = graph.add("bias_add", last, graph.const((level + 30).astype("f")))
    graph.outputs = {"out": last if end is None else graph.add(end, last)}
    return graph


def _program(graph, output):
    made = graph.copy()
    made.outputs = {"out": output}
    found = read_policy(made)
    return found.program, found.weights


def wanted_of(network, observations):
    return floats.run(network.program, network.weights, observations)["out"]


@pytest.mark.parametrize("seed", range(4))
def test_action_values_that_lie_close_keep_their_order(seed):
    network, others = read_policy(action_values(seed=seed)), seen(1000, 9)
    wanted = wanted_of(network, others)
    alone = Policy(pack(network, HEAD)).outputs(others)
    made = Policy(pack(network, HEAD, observations=seen())).outputs(others)
    shifted = (alone - wanted).mean(0)
    gap = np.abs(wanted[:, 0] - wanted[:, 1])
    assert np.abs((made - wanted).mean(0)).max() < 0.3 * np.abs(shifted).max()
    assert np.median(gap) < 0.1 < np.abs(wanted).mean()
    assert shift(HEAD, wanted, made).kl_actions < shift(HEAD, wanted, alone).kl_actions


@pytest.mark.parametrize("end", [None, "tanh", "relu"])
def test_the_mean_before_the_activation_is_that_of_float(end):
    network, x = read_policy(action_values(end)), seen()
    made = corrected(network, x, lambda program: Packer(program, 4))
    (layer,) = last_layers(network.program)
    before, after = (one.weights[layer.weights[1]] for one in (network, made))
    assert np.abs(after - before).min() > 1e-4
    for name in network.weights:
        assert name == layer.weights[1] or made.weights[name] is network.weights[name]
    if end is not None:
        return
    found = Actor(Packer(network.program, 4).pack(made.weights))(x)
    np.testing.assert_allclose(found.mean(0), wanted_of(network, x).mean(0), rtol=1e-5)


def test_few_observations_change_nothing():
    network = read_policy(action_values())
    assert corrected(network, seen(15), Packer) is network


def test_each_branch_behind_which_there_is_no_layer_is_corrected():
    steps = (
        ActorStep("dense", ("observation",), "torso", ("k", "b"), {"activation": "relu"}),
        ActorStep("dense", ("torso",), "advantages", ("ka", "ba")),
        ActorStep("center", ("advantages",), "centered"),
        ActorStep("dense", ("torso",), "value", ("kv", "bv")),
        ActorStep("add", ("centered", "value"), "out"),
    )
    shapes = {"k": (4, 8), "b": (8,), "ka": (8, 3), "ba": (3,), "kv": (8, 1), "bv": (1,)}
    program = ActorProgram((4,), steps, ("out",), shapes)
    assert [step.output for step in last_layers(program)] == ["advantages", "value"]


def test_actions_that_are_often_others_are_doubted():
    wanted = np.eye(4, dtype=np.float32)[np.arange(100) % 4]
    found = wanted.copy()
    found[:9] = found[:9, ::-1]
    assert difference_warning(HEAD, wanted, found) is None
    found[9:11] = found[9:11, ::-1]
    assert "89.0%" in difference_warning(HEAD, wanted, found)
    head = Head("clip", (-1.0, -1.0), (1.0, 1.0))
    numbers = np.zeros((10, 2), np.float32)
    assert difference_warning(head, numbers, numbers + 0.09) is None
    assert "5.5%" in difference_warning(head, numbers, numbers + 0.11)
