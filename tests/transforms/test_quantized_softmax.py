"""Softmaxes between layers as integers: what the pass makes of them, and every form of it."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qgraph.backends.network_forms import Network
from qgraph.errors import UnsupportedError
from qgraph.exact.reference import Reference
from qgraph.exports import form
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.program import lower
from qgraph.quant.calibrate import calibrate
from qgraph.quant.profile import Profile, load_profile
from qgraph.recipes import FLOAT, static
from qgraph.rewrite.trace import Trace
from qgraph.train.model import TrainingGraph
from qgraph.verification.cases import extreme_cases, from_samples, random_case
from qgraph.verification.compare import compare
from tests.helpers.evaluate import reasons as refused
from tests.helpers.forms import ANY_PROFILE
from tests.helpers.layers import Net, check_inserted, inserted
from tests.helpers.quantized import INT8, INT32_BIAS, quantize
from tests.train.test_training_graph import assert_is_inference

POLICY = load_profile("policy-int8")
WRAPPING = replace(INT8, overflow="wrap", rounding="floor")
# Forms that a profile excludes: they saturate, and round half to even.
REFUSED = {WRAPPING: {"onnx-qdq", "qonnx"}}
HEADS, ROWS, CHANNELS = 2, 5, 6


def test_before_a_layer():
    net = Net()
    y = net.fc(net.op("softmax", net.fc(net.x, "f"), name="p"), "g")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %f/w/q8 = quantize(%f/w) {spec=<s8 weight>}
        %f = matmul(%x/q8, %f/w/q8)
        %f/q16 = quantize(%f) {spec=<s16 internal>}
        %f/q8 = quantize(%f/q16) {spec=<s8 activation>}
        %p = integer_softmax(%f/q8) {domain=<s8 activation>, spec=<s16 internal f=15 half_up>}
        %p/q8 = quantize(%p) {spec=<u8 activation>}
        %g/w/q8 = quantize(%g/w) {spec=<s8 weight>}
        %g = matmul(%p/q8, %g/w/q8)
        %g/q16 = quantize(%g) {spec=<s16 internal>}
        %g/q8 = quantize(%g/q16) {spec=<s8 activation>}
        return "y" = %g/q8
    """
    check_inserted(net, y, golden)


def test_over_another_axis():
    net = Net(3, 4)
    y = net.op("batch_matmul", net.op("relu", net.x, name="r"), net.const("c", 4, 2), name="s")
    y = net.op("softmax", y, name="p", axis=1)
    y = net.op("batch_matmul", net.const("d", 2, 3), y, name="z")
    text, trace = inserted(net, y)
    assert "%p/moved = transpose(%s/q8) {perm=(0, 2, 1)}" in text
    assert "%p/softmax = integer_softmax(%p/moved)" in text
    assert "%p = transpose(%p/softmax) {perm=(0, 2, 1)}" in text
    assert not refused(trace)


def test_at_the_end_and_of_floats_it_stays_float():
    net = Net()
    y = net.op("reshape", net.op("softmax", net.fc(net.x, "f"), name="p"), shape=(-1, 2, 2))
    text, trace = inserted(net, y)
    assert "%p = softmax(%f/q8)" in text
    assert refused(trace) == [("p", "stays float: softmax is a float op")]
    net = Net()
    _, trace = inserted(net, net.fc(net.op("softmax", net.x, name="p"), "f"))
    assert refused(trace) == [("p", "stays float: its input is float")]


def attention(seed: int = 0, axis: int = -1) -> tuple[Graph, dict[str, np.ndarray]]:
    """Two heads of attention, with the softmax over keys, or over queries for axis -2."""
    rng, graph = np.random.default_rng(seed), Graph("attention")
    x = graph.input("x", "float32", (None, ROWS, CHANNELS))

    def drawn(*shape: int) -> str:
        return graph.const(rng.normal(size=shape).astype(np.float32))

    def dense(x: str, channels: int, size: int) -> str:
        rows = graph.add("reshape", x, attrs={"shape": (-1, channels)})
        y = graph.add("bias_add", graph.add("matmul", rows, drawn(channels, size)), drawn(size))
        return graph.add("reshape", y, attrs={"shape": (-1, ROWS, size)})

    def heads(x: str, perm: tuple[int, ...]) -> str:
        split = graph.add("reshape", x, attrs={"shape": (-1, ROWS, HEADS, 4)})
        return graph.add("transpose", split, attrs={"perm": perm})

    q, k, v = (dense(x, CHANNELS, 4 * HEADS) for _ in range(3))
    scores = graph.add("batch_matmul", heads(q, (0, 2, 1, 3)), heads(k, (0, 2, 3, 1)))
    shares = graph.add("softmax", scores, name="shares", attrs={"axis": axis})
    mixed = graph.add("batch_matmul", shares, heads(v, (0, 2, 1, 3)))
    joined = graph.add("transpose", mixed, attrs={"perm": (0, 2, 1, 3)})
    joined = graph.add("reshape", joined, attrs={"shape": (-1, ROWS, 4 * HEADS)})
    graph.outputs["y"] = dense(joined, 4 * HEADS, 3)
    return graph, {"x": rng.normal(size=(64, ROWS, CHANNELS)).astype(np.float32)}


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize(
    "profile",
    [INT8, POLICY, INT32_BIAS, WRAPPING],
    ids=["int8", "policy", "int32-bias", "wrap"],
)
def test_every_form_has_the_same_codes(profile: Profile, axis: int) -> None:
    graph, data = attention(axis=axis)
    check_forms(graph, data, profile)


def check_forms(graph: Graph, data: dict[str, np.ndarray], profile: Profile) -> None:
    """Assert that all forms that can have the network compute the same codes."""
    PassManager(FLOAT).run(graph)
    quantize(graph, profile, data)
    one = {"x": data["x"][:1]}
    made = Network(graph, lower(graph), profile, one, one)
    assert sum(step.op == "softmax" for step in made.program.steps) == 1
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


@pytest.mark.parametrize("axis", [-1, -2])
def test_it_is_near_the_float_network(axis: int) -> None:
    graph, data = attention(axis=axis)
    wanted = evaluate(graph, data)["y"]
    PassManager(static(INT8)).run(graph)
    calibrate(graph, data)
    found = Reference(graph).outputs(data)["y"]
    noise = np.square(wanted - found).mean() / np.square(wanted).mean()
    assert noise < 10**-2


@pytest.mark.parametrize("profile", [INT8, INT32_BIAS], ids=["int8", "int32-bias"])
def test_training_computes_what_inference_does(profile: Profile) -> None:
    graph, data = attention()
    PassManager(static(profile)).run(graph)
    calibrate(graph, data)
    training, rng = TrainingGraph(graph), np.random.default_rng(0)
    assert_is_inference(training, data)
    for _ in range(3):
        for variable in training.thresholds:
            variable.assign_add(rng.uniform(-2, 2, variable.shape))
        assert_is_inference(training, data)
    before, after = (g.nodes["shares"].attrs["spec"] for g in (graph, training.finalized()))
    assert before == after


MASKS = {
    "infinite": np.triu(np.full((ROWS, ROWS), -np.inf, np.float32), 1),
    "large": np.triu(np.full((ROWS, ROWS), -1e9, np.float32), 1),
    "of two numbers": np.triu(np.full((ROWS, ROWS), -100, np.float32), 1),
    "with a bias": np.triu(np.full((ROWS, ROWS), -1e4, np.float32), 1) + np.eye(ROWS) / 2,
}


def with_addend(addend: np.ndarray | None, axis: int = -1) -> tuple[Graph, dict[str, np.ndarray]]:
    """Attention with a constant that is added to the scores, or one that depends on an input."""
    graph, data = attention(axis=axis)
    scores = graph.nodes["shares"].inputs[0]
    if addend is None:
        seen = graph.input("seen", "float32", (None, 1, 1, ROWS))
        far = graph.const(np.float32(1e9))
        mask = graph.add("mul", graph.add("sub", seen, graph.const(np.float32(1))), far)
        data["seen"] = (np.arange(ROWS) < [[[[4]]]]).astype(np.float32).repeat(64, axis=0)
    else:
        mask = graph.const(addend.astype(np.float32))
    added = graph.add("add", scores, mask, name="masked")
    graph.replace(replace(graph.nodes["shares"], inputs=(added,)))
    return graph, data


def test_masks_are_codes_far_below_all_scores() -> None:
    net = Net(3, 4)
    scores = net.op("batch_matmul", net.op("relu", net.x, name="r"), net.const("c", 4, 3), name="s")
    mask = net.graph.const(np.triu(np.full((3, 3), -np.inf, np.float32), 1), "m")
    y = net.op("softmax", net.op("add", mask, scores, name="a"), name="p")
    text, trace = inserted(net, net.op("batch_matmul", y, net.const("d", 3, 2), name="z"))
    assert "%a/mask/q15 = quantize(%a/mask) {spec=<s15 clip>}" in text
    assert "%a = add(%s/q8, %a/mask/q15)" in text
    assert "%p = integer_softmax(%a) {domain=<s8 activation>" in text
    assert not refused(trace)


@pytest.mark.parametrize(
    "profile", [INT8, POLICY, INT32_BIAS], ids=["int8", "policy", "int32-bias"]
)
@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_masked_elements_have_no_share(mask, axis: int, profile: Profile) -> None:
    graph, data = with_addend(mask, axis)
    wanted = evaluate(graph, data)
    PassManager(FLOAT).run(graph)
    quantize(graph, profile, data)
    assert sum(n.op == "integer_softmax" for n in graph.nodes.values()) == 1
    graph.outputs["shares"] = graph.nodes["shares"].name
    graph.outputs["scores"] = "masked"
    found = Reference(graph).outputs(data)
    allowed = np.broadcast_to(mask > -50, found["shares"].shape)
    assert (found["shares"][~allowed] == 0).all()
    assert (found["shares"].sum(axis) > 0.9).all()
    assert np.square(wanted["y"] - found["y"]).mean() < 10**-2 * np.square(wanted["y"]).mean()


@pytest.mark.parametrize("axis", [-1, -2])
def test_a_row_that_an_addend_masks_as_a_whole_stays_float(axis: int) -> None:
    """In float32, `-1e9 + score` is nearly the same for all scores; sums of codes keep them."""
    mask = np.zeros((ROWS, ROWS), np.float32)
    mask[(2, ...) if axis == -1 else (..., 2)] = -1e9
    graph, data = with_addend(mask, axis)
    wanted = evaluate(graph, data)
    PassManager(FLOAT).run(graph)
    quantize(graph, INT8, data)
    assert not any(node.op == "integer_softmax" for node in graph.nodes.values())
    found = Reference(graph).outputs(data)
    assert np.square(wanted["y"] - found["y"]).mean() < 10**-2 * np.square(wanted["y"]).mean()


@pytest.mark.parametrize("axis", [-1, -2])
def test_a_row_that_a_select_masks_as_a_whole_has_equal_shares(axis: int) -> None:
    seen = np.ones((ROWS, ROWS), bool)
    seen[(2, ...) if axis == -1 else (..., 2)] = False
    graph, data = attention(axis=axis)
    scores = graph.nodes["shares"].inputs[0]
    far = graph.const(np.float32(-1e9))
    chosen = graph.add("select", graph.const(seen), scores, far, name="masked")
    graph.replace(replace(graph.nodes["shares"], inputs=(chosen,)))
    wanted = evaluate(graph, data)
    PassManager(FLOAT).run(graph)
    quantize(graph, INT8, data)
    assert sum(node.op == "integer_softmax" for node in graph.nodes.values()) == 1
    graph.outputs["shares"] = graph.nodes["shares"].name
    found = Reference(graph).outputs(data)
    shares = np.moveaxis(found["shares"], axis, -1)[..., 2, :]
    assert len(np.unique(shares)) == 1
    assert np.square(wanted["y"] - found["y"]).mean() < 10**-2 * np.square(wanted["y"]).mean()


def test_scores_that_are_nearly_equal_are_masked_too() -> None:
    """Their distances are far below 1, so that the exponentials of scores do not reach 0."""
    graph, data = with_addend(MASKS["large"])
    graph.outputs["shares"] = "shares"
    data = {"x": data["x"] * np.float32(1e-3)}
    PassManager(FLOAT).run(graph)
    quantize(graph, INT8, data)
    shares = Reference(graph).outputs(data)["shares"]
    assert (shares[..., np.triu_indices(ROWS, 1)[0], np.triu_indices(ROWS, 1)[1]] == 0).all()


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_every_form_has_the_same_masked_codes(mask) -> None:
    graph, data = with_addend(mask)
    check_forms(graph, data, INT8)


@pytest.mark.parametrize("profile", [INT8, INT32_BIAS], ids=["int8", "int32-bias"])
def test_training_masks_as_inference_does(profile: Profile) -> None:
    graph, data = with_addend(MASKS["with a bias"])
    PassManager(static(profile)).run(graph)
    calibrate(graph, data)
    training, rng = TrainingGraph(graph), np.random.default_rng(0)
    assert_is_inference(training, data)
    for _ in range(3):
        for variable in training.thresholds:
            variable.assign_add(rng.uniform(-2, 2, variable.shape))
        assert_is_inference(training, data)


def test_masks_that_depend_on_inputs_stay_float_with_their_softmax() -> None:
    graph, data = with_addend(None)
    wanted = evaluate(graph, data)["y"]
    PassManager(static(INT8)).run(graph, trace := Trace())
    assert ("masked", "stays float: it masks a softmax, with numbers far below the others") in (
        refused(trace)
    )
    of_mask = [n for n in graph.topological() if n.name in ("sub", "mul")]
    assert all(graph.producer(v).op != "quantize" for n in of_mask for v in n.inputs)
    calibrate(graph, data)
    found = evaluate(graph, data)["y"]
    assert np.square(wanted - found).mean() < 10**-2 * np.square(wanted).mean()


@pytest.mark.parametrize("other", ["output", "relu"])
def test_masked_scores_with_other_users_stay_float(other: str) -> None:
    graph, _ = with_addend(MASKS["large"])
    graph.outputs["z"] = "masked" if other == "output" else graph.add("relu", "masked")
    PassManager(static(INT8)).run(graph, trace := Trace())
    assert "masked" in dict(refused(trace))


def test_a_bias_of_scores_is_added_on_codes() -> None:
    graph, _ = with_addend(np.random.default_rng(1).normal(size=(HEADS, ROWS, ROWS)))
    PassManager(static(INT8)).run(graph)
    assert graph.nodes["shares"].op == "integer_softmax"


@pytest.mark.parametrize("bias", [0, 1])
@pytest.mark.parametrize("op", ["add", "bias_add"])
@pytest.mark.parametrize("is_output", [False, True])
def test_a_bias_that_masks_a_softmax(is_output: bool, op: str, bias: int) -> None:
    """On one scale with -1e9, all scores would have the same code; float if they are an output."""
    rng = np.random.default_rng(0)
    graph = Graph("masked")
    weights = [graph.const(rng.normal(size=s).astype(np.float32)) for s in ((4, 8), (8, 3))]
    scores = graph.add("matmul", graph.input("x", "float32", (None, 4)), weights[0])
    mask = graph.const(np.float32([bias, -1e9] * 4))
    shares = graph.add("softmax", graph.add(op, scores, mask, name="masked"), name="shares")
    graph.outputs = {"y": graph.add("matmul", shares, weights[1])}
    graph.outputs |= {"z": "masked"} if is_output else {}
    data = {"x": rng.normal(size=(64, 4)).astype(np.float32)}
    wanted = evaluate(graph, data)["y"]
    PassManager(static(INT8)).run(graph, trace := Trace())
    reasons = [reason for node, reason in refused(trace) if node == "masked"]
    assert any("stays float: it masks" in reason for reason in reasons) == is_output
    assert is_output or graph.nodes["shares"].op == "integer_softmax"
    calibrate(graph, data)
    found = evaluate(graph, data)["y"]
    assert np.square(wanted - found).mean() < 10**-2 * np.square(wanted).mean()


def test_scores_that_an_input_masks_stay_integer() -> None:
    """Keras selects between scores and scores less 1e9: the latter are a code far below."""
    graph, data = attention()
    scores = graph.nodes["shares"].inputs[0]
    seen = graph.input("seen", "bool", (None, 1, 1, ROWS))
    far = graph.add("add", scores, graph.const(np.float32(-1e9)), name="far")
    chosen = graph.add("select", seen, scores, far, name="chosen")
    graph.replace(replace(graph.nodes["shares"], inputs=(chosen,)))
    data["seen"] = (np.arange(ROWS) < [[[[4]]]]).repeat(64, axis=0)
    wanted = evaluate(graph, data)["y"]
    PassManager(static(INT8)).run(graph, trace := Trace())
    assert not dict(refused(trace)) and graph.nodes["shares"].op == "integer_softmax"
    calibrate(graph, data)
    found = evaluate(graph, data)["y"]
    assert np.square(wanted - found).mean() < 10**-2 * np.square(wanted).mean()
