"""Small TensorFlow graphs: build them, run them in TensorFlow, import and compare them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from qgraph.frontends import load_graph_def
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph

v1 = tf.compat.v1


def graph_def_of(build: Callable[[], Any]) -> Any:
    """The GraphDef that `build` makes; its results become the nodes `y`, `y_1` ..."""
    with tf.Graph().as_default() as graph:
        for result in tf.nest.flatten(build()):
            tf.identity(result, name="y")
        return graph.as_graph_def()


def run_tf(graph_def: Any, feeds: Mapping[str, Any], fetches: list[str]) -> list[Any]:
    """The tensors that TensorFlow computes, with the graph executed as it is written."""
    options = v1.ConfigProto()
    options.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        with v1.Session(graph=graph, config=options) as session:
            tensors = [f if ":" in f else f"{f}:0" for f in fetches]
            return session.run(tensors, {f"{k}:0": v for k, v in feeds.items()})


def random_feeds(graph: Graph, batch: int = 2, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    feeds = {}
    for name in graph.inputs:
        dtype, shape = graph.types[name].dtype, graph.types[name].shape
        feeds[name] = rng.standard_normal([batch if d is None else d for d in shape]).astype(dtype)
    return feeds


def assert_same_as_tf(
    graph_def: Any, tolerance: float = 1e-5, batch: int = 2, **options: Any
) -> Graph:
    """Import `graph_def`, run it here and in TensorFlow, compare every output."""
    graph = load_graph_def(graph_def, **options)
    feeds = random_feeds(graph, batch)
    found = evaluate(graph, feeds)
    expected = run_tf(graph_def, feeds, list(graph.outputs))
    for (name, array), reference in zip(found.items(), expected, strict=True):
        assert array.dtype == reference.dtype, name
        assert array.shape == reference.shape, name
        np.testing.assert_allclose(array, reference, rtol=tolerance, atol=tolerance, err_msg=name)
    return graph
