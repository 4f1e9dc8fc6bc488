"""The float reference interpreter."""

import weakref

import numpy as np
import pytest

from qgraph.errors import GraphError, UsageError
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import TensorType


@pytest.fixture
def graph():
    graph = Graph("g")
    x, other = graph.input("x", "float32", (None, 2)), graph.input("other", "float32", (2,))
    doubled = graph.add("add", x, x, name="doubled")
    graph.outputs["positive"] = graph.add("relu", doubled, name="relu")
    graph.outputs["same"] = doubled
    graph.outputs["sum"] = graph.add("add", doubled, other, name="late")
    return graph


X = np.array([[1, -2]], "float32")
FEEDS = {"x": X, "other": np.ones(2, "float32")}


def test_outputs_go_by_their_public_names(graph):
    found = evaluate(graph, FEEDS)
    np.testing.assert_array_equal(found["positive"], [[2, 0]])
    np.testing.assert_array_equal(found["same"], [[2, -4]])
    np.testing.assert_array_equal(found["sum"], [[3, -3]])


def test_only_what_is_fetched_is_run_and_fed(graph):
    found = evaluate(graph, {"x": X}, fetch=["doubled", "positive"])
    assert list(found) == ["doubled", "positive"]
    np.testing.assert_array_equal(found["positive"], [[2, 0]])


def test_a_value_is_fetched_before_an_output_of_the_same_name(graph):
    graph.outputs = {"doubled": "relu", "positive": "doubled"}
    found = evaluate(graph, {"x": X}, fetch=["doubled", "positive"])
    np.testing.assert_array_equal(found["doubled"], [[2, -4]])
    np.testing.assert_array_equal(found["positive"], [[2, -4]])
    assert evaluate(graph, {"x": X})["doubled"].tolist() == [[2, 0]]


class Step:
    """An opaque op that adds one and remembers its results, weakly."""

    def __init__(self, results):
        self.results = results

    def run(self, inputs):
        result = inputs[0] + 1
        self.results.append(weakref.ref(result))
        return result


def test_values_are_freed_after_their_last_use():
    results = []
    chain = Graph("chain")
    value = chain.input("x", "float32", (4,))
    for i in range(5):
        attrs = {"kind": "Step", "types": (TensorType("float32", (4,)),), "source": Step(results)}
        value = chain.add("opaque", value, name=f"step{i}", attrs=attrs)
    chain.outputs["y"] = value
    np.testing.assert_array_equal(
        evaluate(chain, {"x": np.zeros(4, "float32")})["y"], np.full(4, 5)
    )
    assert all(reference() is None for reference in results[:-1])


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": X}, "no data for input `other`"),
        ({**FEEDS, "z": X}, "`z` is not an input of the network"),
        ({**FEEDS, "x": X[0]}, r"input `x` is float32\[\?,2\], but the data is float32\[2\]"),
        ({**FEEDS, "x": X.astype("float64")}, r"but the data is float64\[1,2\]"),
    ],
)
def test_feeds_that_do_not_fit(graph, feeds, message):
    with pytest.raises(UsageError, match=message):
        evaluate(graph, feeds)


def test_value_that_does_not_exist(graph):
    with pytest.raises(GraphError, match="nowhere: the graph has no value of this name"):
        evaluate(graph, FEEDS, fetch=["nowhere"])
