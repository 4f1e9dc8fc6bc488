"""The networks of the six families: what each is known for, and that its batch norms fold away."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.families.networks import FAMILIES
from benchmarks.families.train import INPUT, OUTPUT, freeze
from qgraph.backends.tf.program import TFProgram
from qgraph.frontends.tf.importing import import_graph_def
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT

MARKS = {
    "vgg": {"conv2d": 4, "max_pool": 2, "matmul": 2, "relu": 5},
    "resnet": {"conv2d": 9, "add": 3, "relu": 7, "mean": 1},
    "mobilenet_v1": {"conv2d": 6, "depthwise_conv2d": 5, "relu6": 11},
    "mobilenet_v2": {"conv2d": 11, "depthwise_conv2d": 5, "relu6": 11, "add": 2},
    "inception": {"conv2d": 18, "concat": 3, "max_pool": 2, "avg_pool": 2},
    "darknet": {"conv2d": 9, "leaky_relu": 8, "max_pool": 2, "matmul": 0},
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_its_marks_and_its_batch_norms_fold(name):
    network = FAMILIES[name]()
    frozen = freeze(network)
    image = np.random.default_rng(0).random((2, 28, 28, 1), np.float32)
    (found,) = TFProgram(frozen).run({INPUT: image}, [OUTPUT])
    np.testing.assert_allclose(found, network(image, training=False), rtol=1e-5, atol=1e-5)

    graph = import_graph_def(frozen)
    ops = Counter(node.op for node in graph.topological())
    assert {op: ops[op] for op in MARKS[name]} == MARKS[name]
    assert ops["batch_norm"] > 0
    PassManager(FLOAT).run(graph)
    assert "batch_norm" not in {node.op for node in graph.topological()}
