"""Products of two activations as integers: what the pass makes of them, and every form of it."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qgraph.backends.network_forms import Network
from qgraph.compiler import quantize as compiled
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.exports import form
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.program import lower
from qgraph.quant.calibrate import calibrate
from qgraph.quant.profile import Profile, load_profile
from qgraph.recipes import FLOAT, static
from qgraph.train.model import TrainingGraph
from qgraph.verification.cases import extreme_cases, from_samples, random_case
from qgraph.verification.compare import compare
from tests.helpers.forms import ANY_PROFILE
from tests.helpers.layers import Net, check_inserted
from tests.helpers.quantized import INT8, INT32_BIAS, quantize
from tests.train.test_training_graph import assert_is_inference

POLICY = load_profile("policy-int8")
ROWS, CHANNELS = 5, 6


def test_two_activations():
    net = Net(3, 4)
    turned = net.op("transpose", net.x, name="t", perm=(0, 2, 1))
    y = net.op("relu", net.op("batch_matmul", net.x, turned, name="p"), name="r")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %t = transpose(%x) {perm=(0, 2, 1)}
        %t/q8 = quantize(%t) {spec=<s8 input>}
        %p = batch_matmul(%x/q8, %t/q8)
        %r = relu(%p)
        %r/q8 = quantize(%r) {spec=<u8 activation>}
        return "y" = %r/q8
    """
    check_inserted(net, y, golden)


def test_a_layer_without_weights_is_a_product():
    net = Net()
    turned = net.op("transpose", net.x, name="t", perm=(1, 0))
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %t = transpose(%x) {perm=(1, 0)}
        %t/q8 = quantize(%t) {spec=<s8 input>}
        %p = batch_matmul(%x/q8, %t/q8)
        %p/q8 = quantize(%p) {spec=<s8 activation>}
        return "y" = %p/q8
    """
    check_inserted(net, net.op("matmul", net.x, turned, name="p"), golden)


def test_a_constant_has_one_scale():
    net = Net(3, 4)
    y = net.op("batch_matmul", net.const("c", 5, 3), net.x, name="p")
    golden = """
        %c/q8 = quantize(%c) {spec=<s8 constant>}
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %p = batch_matmul(%c/q8, %x/q8)
        %p/q8 = quantize(%p) {spec=<s8 activation>}
        return "y" = %p/q8
    """
    check_inserted(net, y, golden)


def attention(seed: int = 0) -> tuple[Graph, dict[str, np.ndarray]]:
    """Scores of rows, as in attention without softmax, with a constant that mixes rows."""
    rng, graph = np.random.default_rng(seed), Graph("attention")
    x = graph.input("x", "float32", (None, ROWS, CHANNELS))

    def drawn(*shape: int) -> str:
        return graph.const(rng.normal(size=shape).astype(np.float32))

    def dense(x: str, size: int, channels: int = CHANNELS) -> str:
        rows = graph.add("reshape", x, attrs={"shape": (-1, channels)})
        y = graph.add("bias_add", graph.add("matmul", rows, drawn(channels, size)), drawn(size))
        return graph.add("reshape", y, attrs={"shape": (-1, ROWS, size)})

    q, k, v = dense(x, 4), dense(x, 4), dense(x, 7)
    turned = graph.add("transpose", k, attrs={"perm": (0, 2, 1)})
    scores = graph.add("relu", graph.add("batch_matmul", q, turned, name="scores"))
    mixed = graph.add("batch_matmul", drawn(ROWS, ROWS), v, name="mixed")
    graph.outputs["y"] = dense(graph.add("batch_matmul", scores, mixed, name="values"), 3, 7)
    return graph, {"x": rng.normal(size=(16, ROWS, CHANNELS)).astype(np.float32)}


@pytest.mark.parametrize(
    "profile",
    [INT8, POLICY, INT32_BIAS, replace(INT8, overflow="wrap", rounding="floor")],
    ids=["int8", "policy", "int32-bias", "wrap"],
)
def test_every_form_has_the_same_codes(profile: Profile) -> None:
    graph, data = attention()
    PassManager(FLOAT).run(graph)
    quantize(graph, profile, data)
    one = {"x": data["x"][:1]}
    made = Network(graph, lower(graph), profile, one, one)
    assert sum(step.op == "batch_matmul" for step in made.program.steps) == 3
    cases = [
        *from_samples(made, made.samples),
        *extreme_cases(made.program),
        random_case(made.program, 1),
    ]
    carried = set()
    for name in ANY_PROFILE:
        if form(name).refusal(made) is not None:
            assert profile.overflow == "wrap" or profile is INT32_BIAS, name
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


def test_sums_have_the_bits_of_their_terms() -> None:
    graph, data = attention()
    with pytest.raises(ExactnessError, match=r"sums can reach .* needs 19 bits, but") as caught:
        compiled(graph, data, profile=replace(INT8, accumulator_bits=18), plan="plain")
    assert caught.value.node == "values" and not caught.value.evidence


@pytest.mark.parametrize("profile", [INT8, INT32_BIAS], ids=["int8", "int32-bias"])
def test_training_computes_what_inference_does(profile: Profile) -> None:
    graph, data = attention()
    PassManager(static(profile)).run(graph)
    calibrate(graph, data)
    training, rng = TrainingGraph(graph), np.random.default_rng(0)
    assert_is_inference(training, data)
    for variable in training.thresholds:
        variable.assign_add(rng.uniform(-1, 1, variable.shape))
    assert_is_inference(training, data)
