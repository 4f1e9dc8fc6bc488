"""The whole float recipe on networks: the function is kept, and a second run changes nothing."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT, RECIPES
from qgraph.rewrite.trace import Trace
from tests.helpers.evaluate import assert_same_function
from tests.helpers.generators.choices import Choices
from tests.helpers.generators.graphs import random_graph
from tests.helpers.generators.layers import Network
from tests.helpers.graphs import ops
from tests.helpers.layers import WINDOW

UNKNOWN_TO_QUANTIZATION = {
    "batch_norm", "leaky_relu", "avg_pool", "mean", "sub", "div", "neg", "identity",
}  # fmt: skip


def run(graph: Graph) -> Trace:
    before, trace = graph.copy(), Trace()
    PassManager(FLOAT).run(graph, trace)
    assert_same_function(before, graph)
    again = Trace()
    once = print_graph(graph)
    PassManager(FLOAT).run(graph, again)
    assert print_graph(graph) == once and not again.rewrites
    return trace


def network(*shape: int) -> Network:
    return Network(Choices(0), "float64", "net", *shape)


def conv(net: Network, x: str, out: int, kernel: int = 3, **attrs) -> str:
    shape = (kernel, kernel, net.shape(x)[3], out)
    w = net.op("identity", net.const(net.normal(*shape), "weights"), name="weights/read")
    attrs = WINDOW | attrs
    return net.op("conv2d", x, w, name="conv", **attrs)


def depthwise(net: Network, x: str, **attrs) -> str:
    w = net.const(net.normal(3, 3, net.shape(x)[3], 1), "weights")
    attrs = {"strides": (2, 2), "dilations": (1, 1), "padding": "same"} | attrs
    return net.op("depthwise_conv2d", x, w, name="depthwise", **attrs)


def written_out_norm(net: Network, x: str) -> str:
    c = net.shape(x)[-1]
    gamma, beta, mean = (net.const(net.normal(c), n) for n in ("gamma", "beta", "mean"))
    variance = net.const(net.rng.uniform(0.5, 2, c), "variance")
    m = net.op("mul", net.op("rsqrt", net.op("add", variance, net.const(1e-3, "eps"))), gamma)
    return net.op(
        "add", net.op("mul", x, m), net.op("sub", beta, net.op("mul", mean, m)), name="bn"
    )


def test_residual_block():
    net = network(8, 8, 4)
    x = net.op("relu", net.batch_norm(conv(net, "x", 4)))
    y = net.op("relu", net.batch_norm(conv(net, x, 4)))
    y = net.batch_norm(conv(net, y, 4))
    net.graph.outputs["y"] = net.head(net.op("relu", net.op("add", x, y)))
    trace = run(net.graph)
    block = ["conv2d", "bias_add"]
    assert ops(net.graph) == [
        "input", *block, "relu", *block, "relu", *block, "add", "relu",
        "depthwise_conv2d", "squeeze", "matmul", "bias_add",
    ]  # fmt: skip
    assert not trace.refusals


def test_inception_block():
    net = network(7, 7, 3)
    pooled = net.op("avg_pool", "x", name="pool", ksize=(3, 3), strides=(1, 1), padding="same")
    inner = net.op("concat", conv(net, "x", 2, 1), conv(net, "x", 3), axis=-1)
    joined = net.op("concat", inner, conv(net, pooled, 2, 1), name="joined", axis=3)
    net.graph.outputs["y"] = net.op("relu", net.batch_norm(joined), name="y")
    trace = run(net.graph)
    [refusal] = [r for r in trace.refusals if r.pass_name == "fold-batch-norm"]
    assert "`joined` (concat)" in refusal.reason
    found = ops(net.graph)
    assert found.count("concat") == 1 and found.count("mul") == 1
    assert found[-3:] == ["depthwise_conv2d", "bias_add", "relu"]


def test_mobilenet_block_with_written_out_batch_norms():
    net = network(9, 8, 4)
    y = net.op("relu6", written_out_norm(net, conv(net, "x", 6, 1)))
    y = net.op("relu6", written_out_norm(net, depthwise(net, y)))
    net.graph.outputs["y"] = net.head(written_out_norm(net, conv(net, y, 4, 1)))
    assert not run(net.graph).refusals
    assert ops(net.graph)[:9] == [
        "input", "conv2d", "bias_add", "relu6", "depthwise_conv2d", "bias_add", "relu6",
        "conv2d", "bias_add",
    ]  # fmt: skip


def test_batch_norms_that_were_folded_to_constants_before():
    net = network(6, 6, 3)
    y = net.op("mul", conv(net, "x", 4), net.const(net.normal(4), "scale"))
    y = net.op("add", y, net.const(net.normal(4), "shift"), name="affine")
    net.graph.outputs["y"] = net.op("relu", y)
    assert not run(net.graph).refusals
    assert ops(net.graph) == ["input", "conv2d", "bias_add", "relu"]


def test_nchw_graph():
    net = network(3, 8, 8)

    def layer(x: str, out: int) -> str:
        y = conv(net, net.op("transpose", x, perm=(0, 2, 3, 1)), out)
        y = net.op("transpose", y, perm=(0, 3, 1, 2))
        y = net.op("add", y, net.const(net.normal(out, 1, 1), "bias"))
        y = net.op("mul", y, net.const(net.normal(1, out, 1, 1), "scale"))
        return net.op("relu", y)

    a = layer("x", 4)
    b = layer(a, 4)
    joined = net.op("concat", net.op("add", a, b), b, axis=1)
    pooled = net.op("mean", layer(joined, 5), axes=(2, 3), keepdims=False)
    w = net.const(net.normal(5, 2), "fc")
    net.graph.outputs["y"] = net.op("matmul", pooled, w)
    assert not run(net.graph).refusals
    assert ops(net.graph).count("transpose") == 1 and ops(net.graph)[:2] == ["input", "transpose"]
    assert ops(net.graph).count("bias_add") == 3 and "mul" not in ops(net.graph)


def test_an_atrous_block():
    net = network(8, 8, 3)
    y = net.op("space_to_batch", "x", block=(2, 2), paddings=((2, 2), (2, 2)))
    y = net.op(
        "batch_to_space", conv(net, y, 4, padding="valid"), block=(2, 2), crops=((0, 0),) * 2
    )
    net.graph.outputs["y"] = written_out_norm(net, y)
    assert not run(net.graph).refusals
    assert ops(net.graph) == ["input", "conv2d", "bias_add"]


def test_a_batch_norm_before_a_zero_padded_convolution():
    net = network(5, 5, 3)
    net.graph.outputs["y"] = conv(net, net.batch_norm("x"), 2)
    trace = run(net.graph)
    assert ops(net.graph) == ["input", "depthwise_conv2d", "bias_add", "conv2d"]
    assert any("pads with zeros" in r.reason for r in trace.refusals)


def test_an_input_that_is_an_output():
    net = network(5, 5, 3)
    net.graph.outputs["x"] = net.op("identity", "x")
    net.graph.outputs["y"] = net.batch_norm(conv(net, "x", 2))
    run(net.graph)
    assert net.graph.outputs["x"] == "x" and net.graph.inputs == ["x"]


def test_a_convolution_with_a_second_consumer():
    net = network(5, 5, 3)
    y = net.graph.outputs["raw"] = conv(net, "x", 3)
    net.graph.outputs["y"] = net.op("add", net.batch_norm(y), y)
    assert any("is also used by" in r.reason for r in run(net.graph).refusals)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), layers=st.integers(1, 14))
def test_random_networks(seed, layers):
    graph = random_graph(seed, layers)
    run(graph)
    assert not {op for op in ops(graph) if op in UNKNOWN_TO_QUANTIZATION}


# Functions of each element.
PIECES = {
    "swish": lambda net, x: net.op("mul", x, net.op("sigmoid", x)),
    "leaky": lambda net, x: net.op("leaky_relu", x, alpha=0.1),
    "relu": lambda net, x: net.op("relu", x),
    "tanh": lambda net, x: net.op("tanh", x),
    "square": lambda net, x: net.op("square", x),
    "half": lambda net, x: net.op("mul", x, net.const(0.5, "half")),
    "minus one": lambda net, x: net.op("sub", x, net.const(1.0, "one")),
    "third": lambda net, x: net.op("div", x, net.const(3.0, "three")),
    "minus": lambda net, x: net.op("neg", x),
    "bowl": lambda net, x: net.op(
        "sqrt", net.op("add", net.op("mul", x, x), net.const(1.0, "one"))
    ),
    "quick gelu": lambda net, x: net.op(
        "mul", x, net.op("sigmoid", net.op("mul", x, net.const(1.702, "c")))
    ),
    "clip": lambda net, x: net.op(
        "minimum", net.op("maximum", x, net.const(-1.0, "low")), net.const(1.0, "high")
    ),
}
# What takes their result: some are layers only once batch norms and means have been lowered.
ENDS = {
    "conv": lambda net, x: conv(net, x, 3),
    "batch norm": lambda net, x: net.batch_norm(x),
    "batch norm, padded conv": lambda net, x: conv(net, net.batch_norm(x), 3),
    "pool": lambda net, x: net.op("avg_pool", x, ksize=(2, 2), strides=(1, 1), padding="same"),
    "mean": lambda net, x: net.op("mean", x, axes=(1, 2), keepdims=True),
    "factors": lambda net, x: net.op("mul", x, net.const(net.normal(net.shape(x)[3]), "factors")),
    "itself": lambda net, x: x,
}
CHAINS = st.lists(st.sampled_from(sorted(PIECES)), min_size=1, max_size=4)


@example(["bowl"], ["minus", "swish", "bowl"], "factors", "batch norm", False)
@settings(max_examples=60)
@given(CHAINS, CHAINS, st.sampled_from(sorted(ENDS)), st.sampled_from(sorted(ENDS)), st.booleans())
def test_functions_of_elements_are_composed_at_once(first, second, middle, end, shared):
    net = network(4, 5, 3)
    x = conv(net, "x", 3)
    for piece in first:
        x = PIECES[piece](net, x)
    y = ENDS[middle](net, x)
    for piece in second:
        y = PIECES[piece](net, y)
    net.graph.outputs["y"] = ENDS[end](net, y)
    if shared:
        net.graph.outputs["inner"] = y
    run(net.graph)


@pytest.mark.parametrize("axes", [(1, 2), (1,), (-2,)], ids=str)
@pytest.mark.parametrize("piece", sorted(PIECES))
def test_functions_of_elements_after_a_mean_settle_at_once(piece, axes):
    net = network(4, 5, 3)
    y = net.op("mean", conv(net, "x", 3), axes=axes, keepdims=False)
    y = PIECES[piece](net, y)
    size = 3 * (5 if axes == (1,) else 4 if axes == (-2,) else 1)
    y = net.op("reshape", y, shape=(-1, size))
    net.graph.outputs["y"] = net.op("matmul", y, net.const(net.normal(size, 2), "fc"))
    run(net.graph)
    assert "mean" not in ops(net.graph)


@pytest.mark.parametrize("piece", ["half", "third", "minus", "minus one"])
def test_affine_functions_are_left_to_layers(piece):
    net = network(4, 5, 3)
    net.graph.outputs["y"] = conv(net, PIECES[piece](net, conv(net, "x", 3)), 2)
    run(net.graph)
    assert "composed" not in ops(net.graph)


def test_activations_before_a_batch_norm_of_its_own_are_one_function():
    net = network(4, 5, 3)
    y = PIECES["swish"](net, PIECES["swish"](net, conv(net, "x", 3)))
    net.graph.outputs["y"] = net.batch_norm(y)
    run(net.graph)
    assert ops(net.graph) == ["input", "conv2d", "composed", "depthwise_conv2d", "bias_add"]


def test_random_networks_depend_on_the_seed_only():
    assert print_graph(random_graph(7)) == print_graph(random_graph(7))
    assert print_graph(random_graph(7)) != print_graph(random_graph(8))


def test_every_recipe_is_made_of_passes_with_names_of_their_own():
    for recipe in RECIPES.values():
        names = {type(step): step.name for step in recipe}
        assert len(set(names.values())) == len(names)


@pytest.mark.slow
def test_a_graph_of_fifty_thousand_nodes():
    net = network(2, 2, 2)
    value = "x"
    for _ in range(5000):
        value = net.op("relu", written_out_norm(net, conv(net, value, 2, 1)))
    net.graph.outputs["y"] = value
    assert len(net.graph.nodes) > 50_000
    PassManager(FLOAT).run(net.graph)
    assert len(ops(net.graph)) == 15_001
