import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.rewrite.trace import Trace
from qgraph.transforms.fold_batch_norm import FoldBatchNorm
from tests.helpers.evaluate import reasons, run_pass
from tests.helpers.graphs import ops

RNG = np.random.default_rng(0)
CIN = 4
WEIGHTS = {
    "conv2d": (3, 3, CIN, 6),
    "grouped": (3, 3, CIN // 2, 6),
    "depthwise_conv2d": (3, 3, CIN, 1),
    "multiplied": (3, 3, CIN, 2),
    "matmul": (CIN, 6),
}
OP = {"grouped": "conv2d", "multiplied": "depthwise_conv2d"}


def start(kind: str):
    g = Graph("net")
    return g, g.input("x", "float64", (2, CIN) if kind == "matmul" else (2, 6, 6, CIN))


def layer(g: Graph, x: str, kind: str, padding="same", bias=False, weights=None) -> str:
    w = weights or g.const(RNG.normal(size=WEIGHTS[kind]), "w")
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": padding}
    y = g.add(OP.get(kind, kind), x, w, name="layer", attrs={} if kind == "matmul" else attrs)
    if bias:
        b = g.const(RNG.normal(size=g.types[y].shape[-1]), "b")
        y = g.add("bias_add", y, b, name="bias")
    return y


def norm(g: Graph, x: str, name="bn", epsilon=1e-3, **changes) -> str:
    c = g.types[x].shape[-1]
    values = {n: RNG.normal(size=c) for n in ("gamma", "beta", "mean")}
    values |= {"variance": RNG.uniform(0.5, 2, size=c)} | changes
    statistics = [g.const(v, n) for n, v in values.items()]
    return g.add("batch_norm", x, *statistics, name=name, attrs={"epsilon": epsilon})


# -- into the layer before -------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_after_every_layer(kind, bias):
    g, x = start(kind)
    g.outputs["y"] = norm(g, layer(g, x, kind, bias=bias))
    run_pass(FoldBatchNorm(), g)
    assert ops(g) == ["input", OP.get(kind, kind), "bias_add"]
    assert {"layer", "bn"} <= g.nodes.keys()  # names are kept


def test_golden():
    g = Graph("net")
    x = g.input("x", "float64", (None, 2))
    y = g.add("matmul", x, g.const(np.array([[1.0, 2.0], [3.0, 4.0]]), "w"), name="fc")
    y = g.add("bias_add", y, g.const(np.array([1.0, 1.0]), "b"), name="bias")
    values = {"gamma": (4.0, 0.0), "beta": (0.5, 7.0), "mean": (2.0, 2.0), "var": (4.0, 1.0)}
    statistics = [g.const(np.array(v), n) for n, v in values.items()]
    g.outputs["y"] = g.add("batch_norm", y, *statistics, name="bn", attrs={"epsilon": 0.0})
    trace = run_pass(FoldBatchNorm(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[?,2]}\n"
        "  %fc/weights = const {value=float64[2,2]:[2.0,0.0,6.0,0.0]}\n"
        "  %fc = matmul(%x, %fc/weights) : float64[?,2]\n"
        "  %fc/bias = const {value=float64[2]:[-1.5,7.0]}\n"
        "  %bn = bias_add(%fc, %fc/bias) : float64[?,2]\n"
        '  return "y" = %bn\n'
        "}\n"
    )
    assert [(r.node, r.rule) for r in trace.rewrites] == [("fc", "fold"), ("bn", "fold")]


def test_two_layers_that_share_their_weights():
    g, x = start("conv2d")
    w = g.const(RNG.normal(size=WEIGHTS["conv2d"]), "w")
    a = norm(g, layer(g, x, "conv2d", weights=w))
    g.outputs["a"], g.outputs["b"] = a, layer(g, x, "conv2d", weights=w)
    before = g.constant("w").copy()
    run_pass(FoldBatchNorm(), g)
    assert "batch_norm" not in ops(g) and np.array_equal(g.constant("w"), before)


@pytest.mark.parametrize("bias", [False, True])
def test_a_second_consumer_is_refused(bias):
    g, x = start("conv2d")
    y = layer(g, x, "conv2d", bias=bias)
    g.outputs["y"] = g.add("relu", norm(g, y), name="r")
    g.outputs["z"] = g.add("tanh", "layer", name="other")
    trace = run_pass(FoldBatchNorm(), g)
    [(node, reason)] = reasons(trace)
    assert node == "bn" and reason.startswith("`layer` is also used by `other`")
    assert not trace.rewrites


def test_a_layer_that_is_an_output_is_refused():
    g, x = start("conv2d")
    y = g.outputs["raw"] = layer(g, x, "conv2d")
    g.outputs["y"] = norm(g, y)
    [(_, reason)] = reasons(run_pass(FoldBatchNorm(), g))
    assert reason.startswith("`layer` is also used by output `raw`")


def test_a_gamma_of_zero_gives_weights_of_zero():
    g, x = start("conv2d")
    gamma = np.array([0.0, 1, 2, 0, 1, 1])
    g.outputs["y"] = norm(g, layer(g, x, "conv2d"), gamma=gamma)
    run_pass(FoldBatchNorm(), g)
    assert not g.constant("layer/weights")[..., gamma == 0].any()


def test_a_variance_of_zero_with_an_epsilon_is_folded():
    g, x = start("conv2d")
    g.outputs["y"] = norm(g, layer(g, x, "conv2d"), variance=np.zeros(6))
    assert not run_pass(FoldBatchNorm(), g).refusals


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_a_variance_of_zero_without_epsilon_is_refused(gamma):
    g, x = start("conv2d")
    y = norm(g, layer(g, x, "conv2d"), gamma=np.full(6, gamma), variance=np.zeros(6), epsilon=0.0)
    g.outputs["y"] = y
    trace = Trace()
    FoldBatchNorm().run(g, trace)
    assert reasons(trace) == [("bn", "gamma / sqrt(variance + epsilon) is not finite")]
    assert "batch_norm" in ops(g)


def test_float32_weights_that_would_overflow_are_refused():
    g = Graph("net")
    x = g.input("x", "float32", (2, 2))
    y = g.add("matmul", x, g.const(np.full((2, 2), 1e30, "float32"), "w"), name="fc")
    small = g.const(np.full(2, 1e-20, "float32"))
    big = g.const(np.full(2, 1e10, "float32"))
    zero = g.const(np.zeros(2, "float32"))
    g.outputs["y"] = g.add(
        "batch_norm", y, big, zero, zero, small, name="bn", attrs={"epsilon": 0.0}
    )
    trace = Trace()
    FoldBatchNorm().run(g, trace)
    [(_, reason)] = reasons(trace)
    assert reason.startswith("the folded weights are not finite") and "batch_norm" in ops(g)


@pytest.mark.parametrize("huge", ["scale", "shift"])
def test_a_layer_behind_that_would_overflow_is_refused(huge):
    g = Graph("net")
    x = g.input("x", "float32", (2, 2))
    one, zero, big = (g.const(np.full(2, v, "float32")) for v in (1, 0, 1e20))
    gamma, beta = (big, zero) if huge == "scale" else (one, big)
    y = g.add("batch_norm", x, gamma, beta, zero, one, name="bn", attrs={"epsilon": 0.0})
    g.outputs["y"] = g.add("matmul", y, g.const(np.full((2, 2), 1e20, "float32"), "w"), name="fc")
    trace = Trace()
    FoldBatchNorm().run(g, trace)
    [(_, reason)] = reasons(trace)
    assert reason.endswith("the folded weights are not finite") and "batch_norm" in ops(g)


def test_float32_weights_are_rounded_once():
    g = Graph("net")
    x = g.input("x", "float32", (2, 64))
    w = RNG.normal(size=(64, 64)).astype("float32")
    y = g.add("matmul", x, g.const(w, "w"), name="fc")
    gamma, beta, mean = (RNG.normal(size=64).astype("float32") for _ in range(3))
    variance = RNG.uniform(0.1, 1, size=64).astype("float32")
    statistics = [g.const(v) for v in (gamma, beta, mean, variance)]
    g.outputs["y"] = g.add("batch_norm", y, *statistics, name="bn", attrs={"epsilon": 1e-3})
    FoldBatchNorm().run(g)
    scale = gamma.astype(float) / np.sqrt(variance.astype(float) + 1e-3)
    found = g.constant("fc/weights")
    assert found.dtype == np.float32 and np.array_equal(found, (w * scale).astype("float32"))


@pytest.mark.parametrize("constant", ["weights", "mean"])
def test_what_is_fed_is_refused(constant):
    g = Graph("net")
    x = g.input("x", "float64", (2, 3))
    w = g.input("w", "float64", (3, 3)) if constant == "weights" else g.const(np.ones((3, 3)))
    mean = g.input("m", "float64", (3,)) if constant == "mean" else g.const(np.ones(3))
    y, one = g.add("matmul", x, w, name="fc"), g.const(np.ones(3))
    y = g.add("batch_norm", y, one, one, mean, one, name="bn", attrs={"epsilon": 0.1})
    g.outputs["y"] = y
    [(_, reason)] = reasons(run_pass(FoldBatchNorm(), g))
    assert "not constant" in reason


def test_after_a_concat_the_reason_names_it():
    g, x = start("conv2d")
    y = g.add("concat", layer(g, x, "conv2d"), x, name="joined", attrs={"axis": 3})
    g.outputs["y"] = g.add("relu", norm(g, y), name="r")
    trace = run_pass(FoldBatchNorm(), g)
    assert reasons(trace) == [
        (
            "bn",
            "it follows `joined` (concat), which has no weights to take the scale;"
            " it is followed by `r` (relu), not by a layer",
        )
    ]


@pytest.mark.parametrize("scale", [(), (CIN,), (1, CIN)])
def test_scale_and_offset_of_a_layer_norm(scale):
    g, x = start("matmul")
    gamma, beta = (g.const(RNG.normal(size=CIN)) for _ in range(2))
    y = g.add("layer_norm", x, gamma, beta, name="norm", attrs={"epsilon": 1e-3})
    y = g.add("mul", y, g.const(RNG.normal(size=scale)), name="scaled")
    g.outputs["y"] = g.add("add", y, g.const(RNG.normal(size=CIN)), name="shifted")
    run_pass(FoldBatchNorm(), g)
    assert ops(g) == ["input", "layer_norm"]


# -- into the layer after --------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("padding", ["valid", ((0, 0), (0, 0))], ids=str)
@pytest.mark.parametrize("kind", WEIGHTS)
def test_before_every_layer(kind, padding, bias):
    g, x = start(kind)
    y = layer(g, norm(g, x), kind, padding=padding, bias=bias)
    g.outputs["y"] = g.add("relu", y, name="r")
    run_pass(FoldBatchNorm(), g)
    assert ops(g) == ["input", OP.get(kind, kind), "bias_add", "relu"]


def test_before_a_1x1_convolution_with_same_padding():
    g, x = start("conv2d")
    w = g.const(RNG.normal(size=(1, 1, CIN, 3)), "w")
    g.outputs["y"] = layer(g, norm(g, x), "conv2d", weights=w)
    run_pass(FoldBatchNorm(), g)
    assert ops(g) == ["input", "conv2d", "bias_add"]


@pytest.mark.parametrize("padding", ["same", ((1, 0), (0, 0))], ids=str)
@pytest.mark.parametrize("kind", ["conv2d", "grouped", "depthwise_conv2d", "multiplied"])
def test_before_a_layer_that_pads_with_zeros_is_refused(kind, padding):
    g, x = start(kind)
    g.outputs["y"] = layer(g, norm(g, x), kind, padding=padding)
    trace = run_pass(FoldBatchNorm(), g)
    [(node, reason)] = reasons(trace)
    assert node == "bn" and "`layer` pads with zeros" in reason and not trace.rewrites


def test_without_a_shift_padding_does_no_harm():
    g, x = start("conv2d")
    zero = np.zeros(CIN)
    g.outputs["y"] = layer(g, norm(g, x, beta=zero, mean=zero), "conv2d", padding="same")
    run_pass(FoldBatchNorm(), g)
    assert ops(g) == ["input", "conv2d"]


def test_before_two_layers_is_refused():
    g, x = start("conv2d")
    y = norm(g, x)
    g.outputs["a"], g.outputs["b"] = (layer(g, y, "conv2d", "valid") for _ in "ab")
    [(_, reason)] = reasons(run_pass(FoldBatchNorm(), g))
    assert "`bn` is also used by `layer`, `layer_1`" in reason


def test_a_batch_norm_on_both_sides():
    g, x = start("conv2d")
    g.outputs["y"] = norm(g, layer(g, norm(g, x, "bn1"), "conv2d", "valid"), "bn2")
    run_pass(FoldBatchNorm(), g)
    assert ops(g) == ["input", "conv2d", "bias_add"]


# -- plain scales ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6,), (1, 1, 1, 6), ()], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_a_scale_after_a_layer(bias, shape):
    g, x = start("conv2d")
    y = layer(g, x, "conv2d", bias=bias)
    y = g.add("mul", g.const(RNG.normal(size=shape), "c"), y, name="scaled")
    g.outputs["y"] = g.add("relu", y, name="r")
    run_pass(FoldBatchNorm(), g)
    assert ops(g) == ["input", "conv2d", *["bias_add"] * bias, "relu"]


def test_the_slope_of_a_leaky_relu_is_no_scale():
    g, x = start("conv2d")
    y = layer(g, x, "conv2d")
    g.outputs["y"] = g.add("maximum", y, g.add("mul", y, g.const(0.1)))
    trace = run_pass(FoldBatchNorm(), g)
    assert not trace.rewrites and not trace.refusals


def test_a_map_or_a_widening_constant_is_no_scale():
    g, x = start("conv2d")
    y = layer(g, x, "conv2d")
    g.outputs["y"] = g.add("mul", y, g.const(RNG.normal(size=(6, 1))))
    assert not run_pass(FoldBatchNorm(), g).rewrites


def test_a_scale_between_two_readers_is_refused():
    g, x = start("conv2d")
    y = g.outputs["raw"] = layer(g, x, "conv2d")
    g.outputs["y"] = g.add("mul", y, g.const(2.0), name="scaled")
    trace = run_pass(FoldBatchNorm(), g)
    assert reasons(trace) == [("scaled", "`layer` is also used by output `raw`")]


def test_the_reciprocals_of_a_pool_stay():
    g, x = start("depthwise_conv2d")
    y = layer(g, x, "depthwise_conv2d")
    g.set_attrs(y, pool=True)
    g.outputs["y"] = g.add("mul", y, g.const(2.0))
    g.outputs["z"] = norm(g, y)
    assert not run_pass(FoldBatchNorm(), g).rewrites


def test_a_large_graph_is_done_quickly():
    g = Graph("net")
    y = g.input("x", "float64", (1, 2))
    w = g.const(np.eye(2), "w")
    for _ in range(3000):
        y = norm(g, g.add("matmul", y, w, name="fc"))
    g.outputs["y"] = y
    FoldBatchNorm().run(g)
    assert "batch_norm" not in ops(g)
