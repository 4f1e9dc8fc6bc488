import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.transforms.lower_leaky_relu import LowerLeakyRelu
from tests.helpers.evaluate import reasons, run_pass


def net(alpha: float) -> Graph:
    g = Graph("net")
    x = g.input("x", "float64", (2, 5))
    g.outputs["y"] = g.add("leaky_relu", x, name="y", attrs={"alpha": alpha})
    return g


def test_the_maximum():
    g = net(0.1)
    run_pass(LowerLeakyRelu(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[2,5]}\n"
        "  %y/alpha = const {value=float64[]:[0.1]}\n"
        "  %y/scaled = mul(%x, %y/alpha) : float64[2,5]\n"
        "  %y = maximum(%x, %y/scaled) : float64[2,5]\n"
        '  return "y" = %y\n'
        "}\n"
    )


@pytest.mark.parametrize("alpha", [0.0, 1.0, 0.3])
def test_slopes_in_range(alpha):
    g = net(alpha)
    assert run_pass(LowerLeakyRelu(), g).rewrites and g.nodes["y"].op != "leaky_relu"


@pytest.mark.parametrize("alpha", [-0.5, 1.5, float("nan")])
def test_a_slope_outside_is_refused(alpha):
    g = net(alpha)
    if alpha == alpha:
        trace = run_pass(LowerLeakyRelu(), g)
        reason = f"slope {alpha} is outside [0, 1], so max(x, slope*x) does not equal leaky_relu"
        assert reasons(trace) == [("y", reason)]
    else:
        LowerLeakyRelu().run(g)
    assert g.nodes["y"].op == "leaky_relu"
