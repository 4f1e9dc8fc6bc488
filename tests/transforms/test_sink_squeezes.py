"""Layers on signals stay images of height 1 from one to the next."""

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.transforms.sink_squeezes import SinkSqueezes
from tests.helpers.evaluate import run_pass

RNG = np.random.default_rng(0)


def squeezed(g: Graph, name: str = "x", axes=(1,)) -> str:
    x = g.input(name, "float64", (2, 1, 5, 3))
    return g.add("squeeze", x, name=f"{name}/squeezed", attrs={"axes": axes})


def layer(g: Graph, x: str) -> None:
    """As the next layer would continue."""
    image = g.add("expand_dims", x, name="image", attrs={"axis": 1})
    g.outputs["y"] = g.add("neg", image, name="next")


def test_golden():
    g = Graph("net")
    r = g.add("relu", squeezed(g), name="r")
    layer(g, g.add("add", r, g.const(np.arange(3.0), "c"), name="a"))
    run_pass(SinkSqueezes(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[2,1,5,3]}\n"
        "  %r/unsqueezed = relu(%x) : float64[2,1,5,3]\n"
        "  %c = const {value=float64[3]:[0.0,1.0,2.0]}\n"
        "  %a/unsqueezed = add(%r/unsqueezed, %c) : float64[2,1,5,3]\n"
        "  %next = neg(%a/unsqueezed) : float64[2,1,5,3]\n"
        '  return "y" = %next\n'
        "}\n"
    )


def left(g: Graph) -> int:
    run_pass(SinkSqueezes(), g)
    return sum(n.op == "squeeze" for n in g.nodes.values())


def test_sum_of_two_and_a_constant_of_full_rank():
    g = Graph("net")
    total = g.add("add", squeezed(g), squeezed(g, "u"))
    layer(g, g.add("mul", total, g.const(RNG.normal(size=(2, 5, 3)))))
    assert left(g) == 0


@pytest.mark.parametrize("shape", [(), (4,), (5, 4), (2, 5, 4), (1, 5, 1)])
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_constants_of_any_rank_before_and_behind_the_axis(shape, axis):
    whole = [2, 5, 4]
    whole.insert(axis, 1)
    g = Graph("net")
    y = g.add("squeeze", g.input("x", "float64", tuple(whole)), attrs={"axes": (axis,)})
    y = g.add("mul", g.const(RNG.normal(size=shape)), y)
    image = g.add("expand_dims", y, name="image", attrs={"axis": axis})
    g.outputs["y"] = g.add("neg", image, name="next")
    assert left(g) == 0


def test_what_had_another_rank_stays():
    g = Graph("net")
    x, z = g.input("x", "float64", (4, 1, 4, 3)), g.input("z", "float64", (4, 1, 3))
    sides = [g.add("squeeze", v, attrs={"axes": (1,)}) for v in (x, z)]
    layer(g, g.add("add", *sides))
    assert left(g) == 2


def test_another_axis_is_not_recognized():
    g = Graph("net")
    x = g.input("x", "float64", (2, 1, 1, 3))
    layer(g, g.add("relu", g.add("squeeze", x, attrs={"axes": (2,)})))
    g.outputs["z"] = g.add(
        "expand_dims", g.add("squeeze", x, attrs={"axes": (2,)}), attrs={"axis": 2}
    )
    assert left(g) == 1


def test_a_squeeze_with_two_readers_stays():
    g = Graph("net")
    x = squeezed(g)
    layer(g, g.add("relu", x))
    g.outputs["z"] = x
    assert left(g) == 1


def test_what_is_not_squeezed_stops_it():
    g = Graph("net")
    layer(g, g.add("add", squeezed(g), g.input("u", "float64", (2, 5, 3))))
    g.outputs["z"] = g.add("add", squeezed(g, "v"), g.const(RNG.normal(size=(5, 3))))
    assert left(g) == 2
