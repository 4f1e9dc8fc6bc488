"""Real networks through the whole flow: the recipe keeps the function, integers are exact."""

import json

import numpy as np
import pytest
import tensorflow as tf

from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def, tensor_names
from qgraph.backends.tf.program import TFProgram, as_tensorflow
from qgraph.compiler import quantize
from qgraph.exact.sums import FLOAT32_EXACT
from qgraph.exports import export
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.cast import cast_floats
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.quantized import Quantized
from qgraph.recipes import FLOAT
from qgraph.stored.write import save
from tests.helpers.real_networks import (
    NETWORKS,
    POLICIES,
    PROFILES,
    WIDE,
    assets,
    model,
    needs_policies,
    one,
    quantized,
    samples,
)
from tests.helpers.tf_graphs import run_tf, v1

pytestmark = pytest.mark.real


def folded(graph: Graph) -> Graph:
    made = graph.copy()
    PassManager(FLOAT).run(made)
    return made


def in_float64(graph: Graph) -> tuple[Graph, Graph]:
    """The graph and the recipe's result, all of it computed in float64."""
    exact = cast_floats(graph, "float64")
    return exact, folded(exact)


def assert_close(found, wanted, tolerance: float, name: str = ""):
    """On the scale of the whole tensor."""
    assert np.ptp(wanted) > 0, name
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def assert_exact(result: Quantized, feeds: dict) -> None:
    """Zero tolerance for integers; what float ops make of them, to float32's rounding."""
    found = Checker(result.graph).run(feeds)
    assert found.differences == ()
    activations = [t for t in tensor_names(result.graph) if t in result.sqnr]
    assert found.tensors >= len(activations) > 0
    assert found.elements > 0
    assert all(off < 1e-5 for off in found.float_outputs.values())


def assert_wide_layers_are_float64(result: Quantized) -> int:
    """Every layer past float32's bound is computed in float64; how many there are."""
    graph_def = emit_graph_def(result.graph)
    tensors = tensor_names(result.graph)
    types = {node.name: node.attr["T"].type for node in graph_def.node if "T" in node.attr}
    wide = [v for v, b in result.bounds.items() if b.magnitude > FLOAT32_EXACT and v in tensors]
    for value in wide:
        assert types[tensors[value]] == tf.float64.as_datatype_enum, value
    return len(wide)


@pytest.mark.parametrize("name", NETWORKS)
def test_recipe_keeps_the_function(name):
    before = model(name)
    after = folded(before)
    feeds = one(before, samples(name))
    programs = [TFProgram(emit_graph_def(graph)) for graph in (before, after)]
    for output, wanted, found in zip(
        before.outputs, *(p.run(feeds, list(before.outputs)) for p in programs), strict=True
    ):
        assert_close(found, wanted, 1e-4, output)
    doubled = {key: value.astype(np.float64) for key, value in feeds.items()}
    exact = [evaluate(graph, doubled) for graph in in_float64(before)]
    for output in before.outputs:
        assert exact[0][output].dtype == np.float64
        assert_close(exact[1][output], exact[0][output], 1e-9, output)


def test_folded_mobilenet_is_the_file():
    graph = model("nudity")
    feeds, outputs = one(graph, samples("nudity")), list(graph.outputs)
    file = TFProgram(assets().mobilenet_v1())
    ours = TFProgram(emit_graph_def(folded(graph)))
    for wanted, found in zip(file.run(feeds, outputs), ours.run(feeds, outputs), strict=True):
        assert_close(found, wanted, 1e-5)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", NETWORKS)
def test_integers_are_exact(name, profile):
    result = quantized(name, profile)
    assert_exact(result, one(result.graph, samples(name)))
    wide = assert_wide_layers_are_float64(result)
    assert wide > 0 or profile != WIDE


@pytest.mark.parametrize("name", NETWORKS)
def test_what_stays_float_is_known(name):
    from qgraph.stored.write import float_ops

    result = quantized(name, "graffitist-int8")
    assert sorted(op.op for op in float_ops(result.graph)) == sorted(NETWORKS[name].float_ops)
    refused = {r.node for r in result.trace.refusals if r.reason.startswith("stays float")}
    moved = {"reshape", "transpose", "reduce_max"}  # they follow their input, whatever it is
    assert {o.name for o in float_ops(result.graph) if o.op not in moved} <= refused


@pytest.mark.parametrize("name", ["cifar_10_model", "basic-pitch"])
def test_saved_model_is_the_same_program(name, tmp_path):
    result = quantized(name, "graffitist-int8")
    out = save(result, tmp_path / "out")
    feeds = one(result.graph, samples(name))
    outputs = list(result.graph.outputs)
    frozen = TFProgram(out / "inference.pb").run(feeds, outputs)
    export(out, "tensorflow", tmp_path / "made")
    loaded = tf.saved_model.load(str(tmp_path / "made/saved_model")).signatures["serving_default"]
    served = loaded(**{key: tf.constant(value) for key, value in feeds.items()})
    for output, array in zip(outputs, frozen, strict=True):
        np.testing.assert_array_equal(served[output].numpy(), array)


@needs_policies
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("path", POLICIES, ids=lambda p: p.stem)
def test_policy_is_exact(path, profile):
    graph = load(path)
    size = json.loads(path.with_suffix(".json").read_text())["observation_size"]
    data = np.random.default_rng(0).normal(size=(64, size)).astype(np.float32)
    result = quantize(graph, data, profile=PROFILES[profile], plan="method=max")
    assert_exact(result, {graph.inputs[0]: data})


@needs_policies
@pytest.mark.parametrize("path", POLICIES, ids=lambda p: p.stem)
def test_recipe_keeps_the_policy(path):
    before = load(path)
    after = folded(before)
    (name,), (output,) = before.inputs, before.outputs
    size = before.types[name].shape[1]
    data = np.random.default_rng(1).normal(size=(64, size))
    exact = [evaluate(graph, {name: data})[output] for graph in in_float64(before)]
    assert_close(exact[1], exact[0], 1e-9)
    feeds = {name: data.astype(np.float32)}
    wanted = run_tf(v1.GraphDef.FromString(path.read_bytes()), feeds, [output])[0]
    assert_close(run_tf(as_tensorflow(emit_graph_def(after)), feeds, [output])[0], wanted, 1e-5)
