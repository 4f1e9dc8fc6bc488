"""Random feeds, and the check that a pass keeps the function of a graph."""

import numpy as np

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.passes import Pass, PassManager
from qgraph.rewrite.trace import Trace


def random_feeds(graph: Graph, seed: int = 0, batch: int = 2) -> dict:
    """Random inputs; an unknown dimension becomes `batch`."""
    rng = np.random.default_rng(seed)
    types = {name: graph.types[name] for name in graph.inputs}
    return {
        name: rng.normal(size=[batch if d is None else d for d in t.shape]).astype(t.dtype)
        for name, t in types.items()
    }


def assert_same_function(
    before: Graph, after: Graph, tolerance: float = 1e-12, seed: int = 0
) -> None:
    feeds = random_feeds(before, seed)
    expected, found = evaluate(before, feeds), evaluate(after, feeds)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape and found[name].dtype == value.dtype, name
        scale = np.abs(value).max(initial=0) + 1e-300
        assert np.abs(found[name] - value).max(initial=0) <= tolerance * scale, name


def run_pass(step: Pass, graph: Graph, tolerance: float = 1e-12) -> Trace:
    """Run `step` on `graph` in place. It must keep the function, and a second run must change
    nothing.
    """
    before, trace = graph.copy(), Trace()
    PassManager([step]).run(graph, trace)
    assert_same_function(before, graph, tolerance)
    text, again = list(graph.topological()), graph.copy()
    PassManager([step]).run(again)
    assert again.topological() == text, "a second run changed the graph"
    return trace


def reasons(trace: Trace) -> list[tuple[str, str]]:
    return [(refusal.node, refusal.reason) for refusal in trace.refusals]
