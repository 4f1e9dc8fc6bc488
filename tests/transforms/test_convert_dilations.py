import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.transforms.convert_dilations import ConvertDilations
from tests.helpers.evaluate import reasons, run_pass


def net(
    block=(2, 2),
    paddings=((2, 2), (2, 2)),
    crops=((0, 0), (0, 0)),
    op="conv2d",
    bias=False,
    size=(8, 8),
    out_block=None,
    **attrs,
) -> Graph:
    rng = np.random.default_rng(1)
    g = Graph("net")
    x = g.input("x", "float64", (2, *size, 2))
    y = g.add("space_to_batch", x, name="s2b", attrs={"block": block, "paddings": paddings})
    w = g.const(rng.normal(size=(3, 3, 2, 3)), "w")
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": "valid"} | attrs
    y = g.add(op, y, w, name="conv", attrs=attrs)
    if bias:
        y = g.add("bias_add", y, g.const(rng.normal(size=g.types[y].shape[-1]), "b"), name="bias")
    attrs = {"block": out_block or block, "crops": crops}
    g.outputs["y"] = g.add("batch_to_space", y, name="b2s", attrs=attrs)
    return g


def test_golden():
    g = net(crops=((0, 1), (1, 0)), bias=True)
    run_pass(ConvertDilations(), g)
    text = "\n".join(line for line in print_graph(g).splitlines() if "const" not in line)
    assert text == (
        'graph "net" {\n'
        "  %x = input {type=float64[2,8,8,2]}\n"
        "  %conv/dilated = conv2d(%x, %w) {dilations=(2, 2), padding=((2, 1), (1, 2)),"
        " strides=(1, 1)} : float64[2,7,7,3]\n"
        "  %bias/dilated = bias_add(%conv/dilated, %b) : float64[2,7,7,3]\n"
        '  return "y" = %bias/dilated\n'
        "}"
    )


@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "geometry",
    [
        {},
        {"block": (2, 3), "paddings": ((2, 2), (3, 4)), "size": (8, 8)},
        {"paddings": ((1, 2), (2, 3)), "crops": ((0, 1), (1, 0)), "size": (7, 9)},
        {"paddings": ((1, 0), (0, 1)), "crops": ((2, 1), (1, 2)), "size": (13, 11)},
        {"block": (1, 2), "dilations": (2, 1)},
        {"padding": ((0, 0), (0, 0))},
    ],
    ids=str,
)
def test_geometries(op, bias, geometry):
    g = net(op=op, bias=bias, **geometry)
    run_pass(ConvertDilations(), g)
    assert not {"space_to_batch", "batch_to_space"} & {n.op for n in g.nodes.values()}


@pytest.mark.parametrize(
    ("geometry", "reason"),
    [
        ({"strides": (2, 2), "size": (10, 10)}, "`conv` has strides (2, 2)"),
        ({"padding": "same"}, "`conv` pads (same) between the blocks"),
        ({"block": (4, 1), "out_block": (2, 2)}, "blocks differ: (4, 1) in, (2, 2) out"),
    ],
    ids=str,
)
def test_refusals(geometry, reason):
    g = net(**geometry)
    trace = run_pass(ConvertDilations(), g)
    assert reasons(trace) == [("b2s", reason)] and not trace.rewrites


def test_a_value_in_between_that_is_used_elsewhere_is_refused():
    g = net(bias=True)
    g.outputs["inner"] = "conv"
    trace = run_pass(ConvertDilations(), g)
    assert reasons(trace) == [("b2s", "`conv` is also used by output `inner`")]


def test_something_else_in_between_is_refused():
    g = Graph("net")
    x = g.input("x", "float64", (2, 4, 4, 2))
    y = g.add("space_to_batch", x, attrs={"block": (2, 2), "paddings": ((0, 0), (0, 0))})
    y = g.add("relu", y, name="r")
    crops = {"block": (2, 2), "crops": ((0, 0), (0, 0))}
    g.outputs["y"] = g.add("batch_to_space", y, name="b2s", attrs=crops)
    trace = run_pass(ConvertDilations(), g)
    assert reasons(trace) == [("b2s", "it follows `r` (relu), not a convolution")]
