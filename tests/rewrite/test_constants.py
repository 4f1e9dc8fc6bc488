"""Questions about constants and users of values: leaky ReLU."""

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.rewrite.constants import leaky_product


def start() -> tuple[Graph, str]:
    g = Graph("net")
    return g, g.input("x", "float32", (None, 4, 4, 2))


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize(
    ("alpha", "leaky"), [(0.1, True), (0.0, True), (1.0, True), (1.1, False), (-0.1, False),
                         ([0.1, 0.9], True), ([0.1, 2], False)],
)  # fmt: skip
def test_leaky_relu(alpha, leaky, swap):
    g, x = start()
    a = g.const(np.float32(alpha), "alpha")
    m = g.add("mul", *((a, x) if swap else (x, a)))
    y = g.add("maximum", *((m, x) if swap else (x, m)))
    assert leaky_product(g, g.nodes[y]) == ((x, m) if leaky else None)


def test_what_looks_like_leaky_relu():
    g, x = start()
    a = g.const(np.float32(0.1), "alpha")
    other = g.add("mul", g.add("neg", x), a)
    square = g.add("mul", x, x)
    for y in (g.add("maximum", x, other), g.add("maximum", x, square), g.add("minimum", x, other)):
        assert leaky_product(g, g.nodes[y]) is None
