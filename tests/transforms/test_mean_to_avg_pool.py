import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.text import print_graph
from qgraph.transforms.mean_to_avg_pool import MeanToAvgPool
from tests.helpers.evaluate import reasons, run_pass


def net(shape=(None, 5, 3, 2), axes=(1, 2), keepdims=False) -> Graph:
    g = Graph("net")
    x = g.input("x", "float64", shape)
    g.outputs["y"] = g.add("mean", x, name="gap", attrs={"axes": axes, "keepdims": keepdims})
    return g


def test_golden():
    g = net()
    run_pass(MeanToAvgPool(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[?,5,3,2]}\n"
        '  %gap/pool = avg_pool(%x) {ksize=(5, 3), padding="valid", strides=(1, 1)}'
        " : float64[?,1,1,2]\n"
        "  %gap = squeeze(%gap/pool) {axes=(1, 2)} : float64[?,2]\n"
        '  return "y" = %gap\n'
        "}\n"
    )


@pytest.mark.parametrize("axes", [(1, 2), (2, 1), (-2, -3)], ids=str)
def test_dimensions_that_are_kept(axes):
    g = net(axes=axes, keepdims=True)
    run_pass(MeanToAvgPool(), g)
    assert [n.op for n in g.topological()] == ["input", "avg_pool"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shape": (None, None, 3, 2)}, "--input-shape"),
        ({"axes": (1,)}, "over axes [1]"),
        ({"axes": (1, 2, 3)}, "over axes [1, 2, 3]"),
        ({"shape": (2, 5, 3)}, "not an NHWC tensor"),
    ],
    ids=str,
)
def test_refusals(options, words):
    g = net(**options)
    trace = run_pass(MeanToAvgPool(), g)
    [(node, reason)] = reasons(trace)
    assert node == "gap" and words in reason and not trace.rewrites
