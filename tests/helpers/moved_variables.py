"""Networks whose variables move, as in training, without a step of an optimizer."""

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.quant.calibrate import calibrate
from qgraph.recipes import static
from qgraph.train.model import TrainingGraph
from tests.helpers.quantized import INT8
from tests.train.test_training_graph import assert_is_inference


def assert_trains(graph: Graph, data: dict) -> TrainingGraph:
    """Assert that a float network trains as inference computes, before and after a move.

    Returns the training graph after the move of weights and thresholds.
    """
    PassManager(static(INT8)).run(graph)
    calibrate(graph, data)
    training, rng = TrainingGraph(graph), np.random.default_rng(0)
    assert_is_inference(training, data)
    for variable in (*training.kernels, *training.thresholds):
        spread = np.abs(variable.numpy()).max() / 10
        variable.assign_add((rng.normal(size=variable.shape) * spread).astype(np.float32))
    assert_is_inference(training, data)
    return training
