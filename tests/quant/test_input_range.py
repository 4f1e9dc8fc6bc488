"""Ranges of inputs compared with the arithmetic before the first layer."""

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.quant.input_range import doubts, ranges_seen
from qgraph.recipes import CLEAN
from tests.helpers.layers import WINDOW

RNG = np.random.default_rng(0)


def network(*front, shape=(None, 8, 8, 3)) -> Graph:
    """A convolution behind `front`: pairs of an op and a constant, which may come first."""
    g = Graph("net")
    y = g.input("x", "float32", shape)
    for op, number in front:
        constant = g.const(np.float32(number))
        y = g.add(op.removeprefix("r"), *((constant, y) if op[0] == "r" else (y, constant)))
    channels = shape[-1]
    w = g.const(RNG.normal(size=(3, 3, channels, 4)).astype(np.float32), "w")
    if len(shape) == 4:
        g.outputs["y"] = g.add("conv2d", y, w, name="conv", attrs=WINDOW)
    else:
        dense = g.const(RNG.normal(size=(channels, 4)).astype(np.float32), "w2")
        g.outputs["y"] = g.add("matmul", y, dense)
    PassManager(CLEAN).run(g)
    return g


def found(g: Graph, low: float, high: float, with_norms: bool = False) -> list[str]:
    return doubts(g, {"x": (low, high)}, with_norms)


NET = ((("div", 127.5), ("sub", 1.0)), (("mul", 1 / 255),), (("sub", [120, 110, 100]), ("div", 58)))


@pytest.mark.parametrize("front", NET, ids=str)
def test_a_network_that_scales_pixels_itself_wants_pixels(front):
    assert not found(network(*front), 0, 255)
    assert not found(network(*front), 3, 190)
    (text,) = found(network(*front), 0, 1)
    assert text.startswith("input `x` is within 0 to 1, and the network multiplies it by 0.0")
    (text,) = found(network(*front), 0, 65535)
    assert "after the network's own scaling" in text


def test_pixels_that_nothing_scales_are_doubted():
    for low, high in ((0, 255), (0, 254.7), (3, 201)):
        (text,) = found(network(), low, high)
        assert "nothing before the first layer scales it" in text
    (text,) = found(network(("sub", 120.0)), 0, 255)  # centred, not scaled
    assert "nothing before the first layer scales it" in text


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 1), (-2.1, 2.6), (-128, 127), (0, 4e3)])
def test_other_ranges_tell_nothing(low, high):
    assert not found(network(), low, high)


def test_a_few_features_may_be_of_any_size():
    assert not found(network(shape=(None, 6)), 0, 200)


def test_batch_norms_tell_better():
    assert not found(network(), 0, 255, with_norms=True)


@pytest.mark.parametrize("with_norms", [True, False])
@pytest.mark.parametrize("value", [0.0, 0.5, -3.0])
def test_an_input_that_is_the_same_everywhere(value, with_norms):
    (text,) = found(network(), value, value, with_norms)
    assert text == f"input `x` is {value:g} everywhere: nothing can be calibrated on it"


def test_ranges_are_those_of_all_samples():
    data = RNG.uniform(-1, 1, (70, 8, 8, 3)).astype(np.float32)
    data[69, 0, 0, 0], data[33, 1, 1, 1] = 7, -5
    assert ranges_seen(network(), {"x": data}) == {"x": (-5, 7)}
