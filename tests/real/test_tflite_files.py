"""A real network in `.tflite` and in `.onnx`: both give the same float network."""

import numpy as np
import pytest

pytest.importorskip("tflite", reason="pip install tflite")
pytest.importorskip("ai_edge_litert", reason="pip install ai-edge-litert")

import qgraph
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.ops.linear import COMPUTE
from tests.helpers.downloads import fetched
from tests.helpers.tflite_files import assert_same_as_litert


@pytest.fixture(scope="module")
def paths():
    from benchmarks import assets

    return fetched(assets.basic_pitch_tflite), fetched(assets.basic_pitch_onnx)


def sounds():
    return np.random.default_rng(0).uniform(-1, 1, (1, 43844, 1)).astype("float32")


def layers(graph):
    """The layers of the rewritten network with the bytes of their weights."""
    found = qgraph.optimize(graph).graph
    return [
        (node.op, found.constant(node.inputs[1]).tobytes())
        for node in found.topological()
        if node.op in COMPUTE and found.constant(node.inputs[1]) is not None
    ]


@pytest.mark.real
def test_it_has_the_layers_and_results_of_the_onnx_file(paths):
    from_tflite, from_onnx = map(load, paths)
    assert sorted(layers(from_tflite)) == sorted(layers(from_onnx)) != []
    found, wanted = (
        [*evaluate(graph, {graph.inputs[0]: sounds()}).values()]
        for graph in (from_tflite, from_onnx)
    )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


@pytest.mark.real
def test_it_computes_what_litert_computes(paths):
    graph = load(paths[0])
    assert_same_as_litert(graph, paths[0].read_bytes(), {graph.inputs[0]: sounds()}, 1e-4)
