import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.ops.pool import PoolAttrs, window_count
from qgraph.ir.printing import print_graph
from qgraph.rewrite.trace import Trace
from qgraph.transforms.avg_pool_to_depthwise import AvgPoolToDepthwise
from tests.helpers.evaluate import reasons, run_pass
from tests.helpers.graphs import ops


def net(size=(7, 6), ksize=(3, 3), strides=(2, 2), padding="same", channels=2) -> Graph:
    g = Graph("net")
    x = g.input("x", "float64", (None, *size, channels))
    attrs = {"ksize": ksize, "strides": strides, "padding": padding}
    g.outputs["y"] = g.add("avg_pool", x, name="pool", attrs=attrs)
    return g


@pytest.mark.parametrize("size", [(7, 6), (3, 9), (8, 8)], ids=str)
@pytest.mark.parametrize("ksize", [(3, 3), (2, 2), (3, 1), (5, 4)], ids=str)
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (1, 3)], ids=str)
@pytest.mark.parametrize("padding", ["same", ((1, 1), (0, 2)), ((2, 0), (1, 1))], ids=str)
def test_borders(size, ksize, strides, padding):
    g, trace = net(size, ksize, strides, padding), Trace()
    count = window_count(*size, g.nodes["pool"].typed(PoolAttrs))
    if count.all():
        trace = run_pass(AvgPoolToDepthwise(), g)
        assert "avg_pool" not in ops(g)
    else:
        AvgPoolToDepthwise().run(g, trace)
    assert bool(trace.refusals) != bool(count.all())


def test_same_padding_gets_a_map_of_reciprocals():
    g = net((4, 4), (3, 3), (2, 2), channels=1)
    run_pass(AvgPoolToDepthwise(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[?,4,4,1]}\n"
        "  %pool/ones = const {value=float64[3,3,1,1]:"
        "[1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0]}\n"
        "  %pool/sum = depthwise_conv2d(%x, %pool/ones) {dilations=(1, 1),"
        " padding=((0, 1), (0, 1)), pool=True, strides=(2, 2)} : float64[?,2,2,1]\n"
        "  %pool/map = const {value=float64[1,2,2,1]:[0.1111111111111111,"
        "0.16666666666666666,0.16666666666666666,0.25]}\n"
        "  %pool = mul(%pool/sum, %pool/map) {pool=True} : float64[?,2,2,1]\n"
        '  return "y" = %pool\n'
        "}\n"
    )


@pytest.mark.parametrize("size", [(7, 6), (None, None)], ids=str)
@pytest.mark.parametrize("padding", ["valid", ((0, 0), (0, 0))], ids=str)
def test_valid_padding_needs_no_size(size, padding):
    g, trace = net(size, padding=padding), Trace()
    AvgPoolToDepthwise().run(g, trace)
    assert ops(g) == ["input", "depthwise_conv2d"] and not trace.refusals
    assert np.array_equal(g.constant("pool/reciprocal"), np.full((3, 3, 2, 1), 1 / 9))
    assert g.nodes["pool"].attrs["padding"] == "valid" and g.nodes["pool"].attrs["pool"] is True


def test_same_padding_that_never_reaches_the_border():
    g = net((8, 8), (2, 2), (2, 2))
    run_pass(AvgPoolToDepthwise(), g)
    assert ops(g) == ["input", "depthwise_conv2d"]


def test_one_window_that_sees_everything():
    g = net((3, 3), (5, 5), (4, 4))
    run_pass(AvgPoolToDepthwise(), g)
    assert ops(g) == ["input", "depthwise_conv2d"]
    assert np.array_equal(g.constant("pool/reciprocal"), np.full((5, 5, 2, 1), 1 / 9))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": (None, 6)}, "--input-shape"),
        ({"channels": None}, "the channels of float64[?,7,6,?] are unknown"),
        ({"padding": ((3, 0), (0, 0))}, "contain only padding"),
    ],
    ids=str,
)
def test_refusals(options, words):
    g, trace = net(**options), Trace()
    AvgPoolToDepthwise().run(g, trace)
    [(node, reason)] = reasons(trace)
    assert node == "pool" and words in reason and ops(g) == ["input", "avg_pool"]
