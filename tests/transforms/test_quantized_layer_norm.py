"""Layer norms as integers: what the pass makes of them, what stays float, every form of it."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qgraph.backends.network_forms import Network
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.exact.reference import Reference, as_float
from qgraph.exports import form
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.parsing import parse_graph
from qgraph.ir.printing import print_graph
from qgraph.ir.verify import constants_of
from qgraph.passes import PassManager
from qgraph.program import lower
from qgraph.quant.profile import load_profile
from qgraph.recipes import FLOAT
from qgraph.verification.cases import extreme_cases, from_samples, random_case
from qgraph.verification.compare import compare
from tests.helpers.evaluate import reasons as refused
from tests.helpers.forms import ANY_PROFILE
from tests.helpers.layers import WINDOW, Net, check_inserted, inserted
from tests.helpers.quantized import INT8, INT32_BIAS, quantize

POLICY = load_profile("policy-int8")
WRAPPING = replace(INT8, overflow="wrap", rounding="floor")
# Forms that a profile excludes: they saturate, and round half to even; float32 cannot hold the sum
# of the product with a scale and a bias of 32 bits.
REFUSED = {WRAPPING: {"onnx-qdq", "qonnx"}, INT32_BIAS: {"onnx-qdq"}}


def norm(net: Net, x: str, size: int = 4, **attrs) -> str:
    vectors = (net.const("gamma", size), net.const("beta", size))
    return net.op("layer_norm", x, *vectors, name="n", **{"epsilon": 1e-5, **attrs})


def test_behind_a_layer():
    net = Net()
    y = net.op("relu", norm(net, net.fc(net.x, "f")), name="r")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %f/w/q8 = quantize(%f/w) {spec=<s8 weight>}
        %f = matmul(%x/q8, %f/w/q8)
        %f/q16 = quantize(%f) {spec=<s16 internal>}
        %f/q16_1 = quantize(%f/q16) {spec=<s16 internal>}
        %n/normal = standardize(%f/q16_1) {domain=<s16 internal>, epsilon=1e-05, spec=<s16 internal f=14 half_up>}
        %gamma/q16 = quantize(%gamma) {spec=<s16 scale>}
        %n/scale = mul(%n/normal, %gamma/q16)
        %n/scale/q16 = quantize(%n/scale) {spec=<s16 internal>}
        %beta/q16 = quantize(%beta) {spec=<s16 bias>}
        %n = bias_add(%n/scale/q16, %beta/q16)
        %r = relu(%n)
        %r/q8 = quantize(%r) {spec=<u8 activation>}
        return "y" = %r/q8
    """  # noqa: E501
    check_inserted(net, y, golden)


def test_of_what_has_few_bits_already_and_without_internal_stage():
    net = Net(3, 4)
    y = norm(net, net.op("reshape", net.x, name="s", shape=(-1, 2, 4)))
    golden = """
        %s = reshape(%x) {shape=(-1, 2, 4)}
        %s/q8 = quantize(%s) {spec=<s8 input>}
        %n/normal = standardize(%s/q8) {domain=<s8 input>, epsilon=1e-05, spec=<s16 internal f=14 half_up>}
        %gamma/q16 = quantize(%gamma) {spec=<s16 scale>}
        %n/scale = mul(%n/normal, %gamma/q16)
        %beta/q32 = quantize(%beta) {spec=<s32 bias>}
        %n = bias_add(%n/scale, %beta/q32)
        %n/q8 = quantize(%n) {spec=<s8 activation>}
        return "y" = %n/q8
    """  # noqa: E501
    check_inserted(net, y, golden, INT32_BIAS)


def test_what_is_made_of_floats_stays_float():
    net = Net()
    y = net.fc(norm(net, net.op("softmax", net.x, name="p")), "f")
    text, trace = inserted(net, y)
    assert "%n = layer_norm(%p, %gamma, %beta)" in text and "standardize" not in text
    assert ("n", "stays float: its input is float") in refused(trace)


def test_too_many_channels_stay_float():
    net = Net(1 << 22)
    _, trace = inserted(net, norm(net, net.x, 1 << 22))
    assert refused(trace) == [("n", "stays float: 4194304 channels are too many")]


def test_the_number_of_channels_that_four_bits_allow():
    net = Net(1 << 21)
    text, trace = inserted(net, norm(net, net.x, 1 << 21))
    assert "standardize" in text and not refused(trace)


@pytest.mark.parametrize(("channels", "bits"), [(512, 16), (513, 15), (3000, 13), (1 << 18, 7)])
def test_many_channels_have_fewer_bits(channels, bits):
    net = Net(channels)
    half = net.graph.const(np.float32(0.5), "half")
    net.graph.outputs["y"] = norm(net, net.op("mul", net.x, half), channels)
    feeds = {"x": np.random.default_rng(0).normal(size=(2, channels)).astype(np.float32)}
    floating = net.graph.copy()
    PassManager(FLOAT).run(net.graph)
    quantize(net.graph, INT8, feeds)
    (node,) = (n for n in net.graph.topological() if n.op == "standardize")
    assert node.attrs["domain"].bits == bits
    found = as_float(Reference(net.graph).run(feeds, {node.name})[node.name])
    x = feeds["x"].astype(np.float64)
    wanted = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()
    assert lower(net.graph) and evaluate(floating, feeds)


TINY = {"x": np.ldexp(np.random.default_rng(0).normal(size=(3, 4)), -40).astype(np.float32)}


def test_an_input_tiny_beside_epsilon_takes_a_coarse_scale():
    """It is far below the root of epsilon, so that rounding it to zero changes nothing."""
    net = Net()
    net.graph.outputs["y"] = norm(net, net.x, epsilon=1e-2)
    PassManager(FLOAT).run(net.graph)
    (wanted,) = evaluate(net.graph, TINY).values()
    quantize(net.graph, INT8, TINY)
    (found,) = Reference(net.graph).outputs(TINY).values()
    assert np.abs(found - wanted).max() <= 2**-7 * np.abs(wanted).max()


def test_a_shared_input_tiny_beside_epsilon_is_reported():
    """A layer beside the layer norm needs the fine scale, for which the layer norm has no root."""
    net = Net()
    net.graph.outputs["y"] = norm(net, net.x, epsilon=1e-2)
    eye = net.graph.const(np.eye(4, dtype=np.float32), "eye")
    net.graph.outputs["z"] = net.graph.add("matmul", net.x, eye)
    PassManager(FLOAT).run(net.graph)
    with pytest.raises(ExactnessError, match="52 bits") as caught:
        quantize(net.graph, INT8, TINY)
    assert caught.value.node == "n/normal"


@pytest.mark.parametrize("profile", [INT8, INT32_BIAS], ids=["int8", "int32-bias"])
def test_an_offset_far_above_the_scale_is_kept(profile):
    net = Net()
    gamma, beta = (net.graph.const(np.full(4, v, np.float32)) for v in (2**-10, 3.0))
    net.graph.outputs["y"] = net.op("layer_norm", net.x, gamma, beta, epsilon=1e-5)
    feeds = {"x": np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)}
    PassManager(FLOAT).run(net.graph)
    quantize(net.graph, profile, feeds)
    found = Reference(net.graph).outputs(feeds)["y"]
    assert np.abs(found - 3).max() <= 2**-6 + 2**-9


# -- forms ------------------------------------------------------------------------------------


def network(rank: int, profile, seed: int = 0) -> Network:
    """Layers, or moves, around a layer norm on tensors of a rank."""
    rng, graph = np.random.default_rng(seed), Graph("normed")
    shape = {2: (6,), 3: (3, 5), 4: (3, 4, 5)}[rank]
    x = graph.input("x", "float32", (None, *shape))

    def drawn(*shape: int) -> str:
        return graph.const(rng.normal(size=shape).astype(np.float32))

    channels = 9 if rank != 3 else 5
    if rank == 2:
        x = graph.add("bias_add", graph.add("matmul", x, drawn(6, 9)), drawn(9))
    elif rank == 4:
        x = graph.add("conv2d", x, drawn(3, 3, 5, 9), attrs=WINDOW)
    attrs = {"epsilon": 1e-5}
    x = graph.add("layer_norm", x, drawn(channels), drawn(channels), name="n", attrs=attrs)
    x = graph.add("relu", x)
    x = graph.add("layer_norm", x, drawn(channels), drawn(channels), name="m", attrs=attrs)
    graph.outputs["y"] = x
    data = {"x": rng.normal(size=(6, *shape)).astype(np.float32)}
    PassManager(FLOAT).run(graph)
    quantize(graph, profile, data)
    return Network(graph, lower(graph), profile, data, data)


@pytest.mark.parametrize(
    ("rank", "profile"),
    [(2, POLICY), (3, INT32_BIAS), (3, INT8), (4, INT8), (4, WRAPPING)],
    ids=["policy", "int32-bias", "rows", "images", "wrap"],
)
def test_every_form_has_the_same_codes(rank, profile) -> None:
    made = network(rank, profile)
    assert sum(step.op == "standardize" for step in made.program.steps) == 2
    cases = [
        *from_samples(made, made.samples),
        *extreme_cases(made.program),
        random_case(made.program, 1),
    ]
    carried = set()
    for name in ANY_PROFILE:
        refusal = form(name).refusal(made)
        assert (refusal is None) == (name not in REFUSED.get(profile, ())), refusal
        if refusal is not None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                form(name).write(made, Path(folder))
                runner = form(name).runner(made, Path(folder))
            except (UnsupportedError, ImportError):  # a tool that is not installed
                continue
            tally = compare(made, {name: runner}, cases).tallies[name]
        assert tally.wrong == 0 and tally.elements
        carried.add(name)
    assert "vectors" in carried


def test_the_text_reads_back():
    graph = network(2, INT8).graph
    again = parse_graph(print_graph(graph), constants_of(graph))
    assert print_graph(again) == print_graph(graph)
    assert [n.attrs for n in again.topological() if n.op == "standardize"] == [
        n.attrs for n in graph.topological() if n.op == "standardize"
    ]
