"""Two graphs side by side: who is visited, with what, and that a change is seen from then on."""

import weakref

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.verify import verify
from qgraph.passes import PassManager
from qgraph.quant.paired import layer_of, quantized_constant_of, run_paired, set_constant
from qgraph.recipes import FLOAT
from tests.helpers.evaluate import random_feeds
from tests.helpers.generators.graphs import random_graph
from tests.helpers.quantized import INT8, PROFILES, quantize


def pair(seed: int, profile: str = "int8", batch: int = 10):
    """(quantized, float, data): a random network, ten samples in two chunks."""
    g = random_graph(seed, dtype="float32")
    PassManager(FLOAT).run(g)
    data = random_feeds(g, batch=batch)
    return quantize(g.copy(), PROFILES[profile], data), g, data


def two_layers(shared: bool) -> Graph:
    g = Graph("two")
    x = g.input("x", "float32", (None, 2))
    w = [g.const(np.float32([[1, 2], [3, 4]]) / 4, "w")]
    w.append(w[0] if shared else g.const(np.float32([[5, 6], [7, 8]]) / 8, "v"))
    b = g.const(np.float32([1, -1]), "b")
    for name, weights in zip(("one", "two"), w, strict=True):
        x = g.add("bias_add", g.add("matmul", x, weights, name=name), b, name=f"{name}/biased")
    g.outputs["y"] = x
    return g


@pytest.mark.parametrize("profile", ["int8", "int32-bias", "per-channel"])
@pytest.mark.parametrize("seed", [0, 3, 11])
def test_visitors_see_what_each_graph_computes(seed, profile):
    graph, floating, data = pair(seed, profile)
    seen = {}

    def visit(layer, each):
        inputs, wanted = (np.concatenate([*chunks]) for chunks in (layer.inputs, layer.wanted))
        seen[layer.node.name] = inputs, wanted

    run_paired(graph, floating, data, visit)
    layers = [n for n in graph.topological() if layer_of(graph, n) and n.name in floating.nodes]
    assert list(seen) == [n.name for n in layers]
    inputs = evaluate(graph, data, [n.inputs[0] for n in layers])
    wanted = evaluate(floating, data, list(seen))
    for node in layers:
        assert np.array_equal(seen[node.name][0], inputs[node.inputs[0]])
        assert np.array_equal(seen[node.name][1], wanted[node.name])


def test_layers_after_a_change_see_it():
    g = two_layers(shared=False)
    data = {"x": np.float32([[1, 2], [3, -4]])}
    graph = quantize(g.copy(), INT8, data)

    def visit(layer, each):
        if layer.node.name == "one":
            set_constant(graph, "one", np.zeros((2, 2), np.float32))
        if layer.node.name == "two":
            assert np.concatenate(layer.inputs).tolist() == [[1, -1]] * 2

    run_paired(graph, g, data, visit)
    assert graph.constant("w").any() == np.False_ and g.constant("w").any()


def test_a_shared_constant_stays_with_the_other_layer():
    g = two_layers(shared=True)
    data = {"x": np.float32([[1, 2], [3, -4]])}
    graph = quantize(g.copy(), INT8, data)
    for layer, factor in (("one", 2), ("two/biased", 0)):
        _, value = quantized_constant_of(graph, graph.nodes[layer])
        set_constant(graph, layer, value * np.float32(factor))
    verify(graph)
    assert all(
        graph.use_count(n.name) for n in graph.topological() if n.op in ("const", "quantize")
    )
    held = {n: quantized_constant_of(graph, graph.nodes[n])[1].tolist() for n in graph.nodes
            if layer_of(graph, graph.nodes[n])}  # fmt: skip
    assert held == {
        "one": [[0.5, 1], [1.5, 2]], "two": [[0.25, 0.5], [0.75, 1]],
        "one/biased": [1, -1], "two/biased": [0, 0],
    }  # fmt: skip


def test_progress_is_reported():
    graph, floating, data = pair(0)
    reported = []
    run_paired(graph, floating, data, lambda *_: None, lambda i, n: reported.append((i, n)))
    assert reported == [(i + 1, len(graph.nodes)) for i in range(len(graph.nodes))]


def test_values_are_freed_once_used():
    g = two_layers(shared=False)
    data = {"x": np.float32([[1, 2], [3, -4]])}
    graph = quantize(g.copy(), INT8, data)
    seen, alive = {}, {}

    def visit(layer, each):
        # What is computed in place of a value has its memory.
        taken = layer.inputs[0], layer.wanted[0], None
        alive[layer.node.name] = [
            name for name, ref in seen.items() if all(ref() is not array for array in taken)
        ]
        seen[layer.node.name] = weakref.ref(layer.inputs[0])
        seen[f"float {layer.node.name}"] = weakref.ref(layer.wanted[0])

    run_paired(graph, g, data, visit)
    assert alive == {"one": [], "one/biased": [], "two": [], "two/biased": []}


def test_layers_that_the_float_graph_lacks_are_not_visited():
    g = two_layers(shared=False)
    data = {"x": np.float32([[1, 2]])}
    graph = quantize(g.copy(), INT8, data)
    first = g.copy()
    first.outputs["y"] = "one/biased"
    for name in ("two/biased", "two"):
        first.remove(name)
    seen = []
    run_paired(graph, first, data, lambda layer, each: seen.append(layer.node.name))
    assert seen == ["one", "one/biased"]
