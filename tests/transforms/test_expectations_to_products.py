"""Expected values of a softmax become layers with whole numbers."""

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.transforms.expectations_to_products import ExpectationsToProducts
from tests.helpers.evaluate import reasons, run_pass

VALUES = {
    "odd": np.linspace(-10, 10, 51),
    "even": np.linspace(0, 200, 8),
    "one": np.array([3.0]),
    "uneven": np.array([0.0, 1.0, 3.0, 4.0]),
    "many": np.linspace(-1, 1, 301),
    "whole": np.arange(-3.0, 4),
}


def net(values, axes=(2,), keepdims=False, swapped=False, softmax=True) -> Graph:
    g = Graph("net")
    x = g.input("x", "float64", (None, 3, len(values)))
    if softmax:
        x = g.add("softmax", x, attrs={"axis": -1})
    both = (x, g.const(np.asarray(values), "v"))
    x = g.add("mul", *(both[::-1] if swapped else both))
    g.outputs["y"] = g.add("sum", x, name="s", attrs={"axes": axes, "keepdims": keepdims})
    return g


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("keepdims", [False, True])
def test_the_function_stays(values, swapped, keepdims):
    g = net(values, keepdims=keepdims, swapped=swapped)
    x = {"x": np.random.default_rng(0).normal(size=(4, 3, len(values)))}
    before = evaluate(g, x)["y"]
    run_pass(ExpectationsToProducts(), g)
    np.testing.assert_allclose(evaluate(g, x)["y"], before, rtol=1e-9, atol=1e-9)
    assert g.types["s"].shape == (None, 3, *([1] if keepdims else []))
    assert "matmul" in {n.op for n in g.topological()}


@pytest.mark.parametrize(("name", "whole"), [(n, n not in ("uneven", "many")) for n in VALUES])
def test_evenly_spaced_values_become_whole_numbers(name, whole):
    g = net(VALUES[name])
    run_pass(ExpectationsToProducts(), g)
    (kernel,) = (g.constant(n.inputs[1]) for n in g.topological() if n.op == "matmul")
    small = np.abs(kernel).max() <= 127 and (kernel == np.rint(kernel)).all()
    assert small == whole or name == "uneven"
    if name != "one":
        assert whole == (kernel[1] - kernel[0] == 1).all() or name == "uneven"


def test_refusals_and_what_is_left_alone():
    ((node, reason),) = reasons(run_pass(ExpectationsToProducts(), net(VALUES["odd"], axes=(1, 2))))
    assert node == "s" and "not over the last one" in reason
    g = net(VALUES["odd"], softmax=False)
    assert not reasons(run_pass(ExpectationsToProducts(), g)) and g.nodes["s"].op == "sum"
