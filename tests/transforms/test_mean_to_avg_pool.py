import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
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


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((None, 5, 3, 2), (1,)),
        ((None, None, 3, 2), (-2,)),
        ((None, 5, 2), (1,)),
        ((3, 5, 2), (-2,)),
    ],
    ids=str,
)
def test_one_axis_of_images_and_the_length_of_signals(shape, axes, keepdims):
    g = net(shape, axes, keepdims)
    before = g.types["gap"]
    run_pass(MeanToAvgPool(), g)
    found = [n.op for n in g.topological()]
    assert "avg_pool" in found and "mean" not in found and g.types["gap"] == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shape": (None, None, 3, 2)}, "--input-shape"),
        ({"axes": (1, 3)}, "over axes [1, 3]"),
        ({"axes": (1, 2, 3)}, "over axes [1, 2, 3]"),
        ({"shape": (2, 5, 3)}, "over axes [1, 2], not over the length"),
        ({"shape": (2, None, 3), "axes": (1,)}, "--input-shape"),
        ({"shape": (2, 5), "axes": (1,)}, "not an NHWC tensor"),
        ({"shape": (2, 5, 3, 2, 2)}, "not an NHWC tensor"),
    ],
    ids=str,
)
def test_refusals(options, words):
    g = net(**options)
    trace = run_pass(MeanToAvgPool(), g)
    [(node, reason)] = reasons(trace)
    assert node == "gap" and words in reason and not trace.rewrites
