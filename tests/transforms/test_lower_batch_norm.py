import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.rewrite.trace import Trace
from qgraph.transforms.lower_batch_norm import LowerBatchNorm
from tests.helpers.evaluate import reasons, run_pass


def net(shape, gamma=(1.0, -2.0), variance=(3.0, 0.5), epsilon=1e-3) -> Graph:
    g = Graph("net")
    x = g.input("x", "float64", shape)
    values = {"gamma": gamma, "beta": (0.5, 1.5), "mean": (-1.0, 1.0), "var": variance}
    statistics = [g.const(np.array(v), name) for name, v in values.items()]
    attrs = {"epsilon": epsilon}
    g.outputs["y"] = g.add("batch_norm", x, *statistics, name="bn", attrs=attrs)
    return g


@pytest.mark.parametrize("shape", [(2, 3, 3, 2), (4, 2), (4, 5, 2)], ids=str)
@pytest.mark.parametrize("gamma", [(1.0, -2.0), (0.0, 1.0)], ids=str)
def test_the_function_is_kept(shape, gamma):
    g = net(shape, gamma)
    run_pass(LowerBatchNorm(), g)
    scale = "depthwise_conv2d" if len(shape) == 4 else "mul"
    assert [n.op for n in g.topological() if n.op != "const"] == ["input", scale, "bias_add"]
    assert g.nodes["bn/scale"].attrs["batch_norm"] is True


def test_golden():
    g = net((None, 4, 4, 2), gamma=(2.0, 4.0), variance=(4.0, 1.0), epsilon=0.0)
    run_pass(LowerBatchNorm(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[?,4,4,2]}\n"
        "  %bn/scale/weights = const {value=float64[1,1,2,1]:[1.0,4.0]}\n"
        "  %bn/scale = depthwise_conv2d(%x, %bn/scale/weights) {batch_norm=True,"
        ' dilations=(1, 1), padding="valid", strides=(1, 1)} : float64[?,4,4,2]\n'
        "  %bn/bias = const {value=float64[2]:[1.5,-2.5]}\n"
        "  %bn = bias_add(%bn/scale, %bn/bias) : float64[?,4,4,2]\n"
        '  return "y" = %bn\n'
        "}\n"
    )


def test_variance_and_epsilon_of_zero_are_refused():
    g, trace = net((2, 2), variance=(0.0, 1.0), epsilon=0.0), Trace()
    LowerBatchNorm().run(g, trace)
    assert reasons(trace) == [("bn", "gamma / sqrt(variance + epsilon) is not finite")]
    assert g.nodes["bn"].op == "batch_norm"


def test_variance_of_zero_alone_is_not():
    g = net((2, 2), variance=(0.0, 1.0))
    assert not run_pass(LowerBatchNorm(), g).refusals


def test_statistics_that_are_fed_are_refused():
    g = Graph("net")
    x, c = g.input("x", "float64", (2, 2)), g.const(np.ones(2), "c")
    mean = g.input("mean", "float64", (2,))
    g.outputs["y"] = g.add("batch_norm", x, c, c, mean, c, name="bn", attrs={"epsilon": 0.1})
    trace = run_pass(LowerBatchNorm(), g)
    assert reasons(trace) == [("bn", "its statistics are not constant")]
