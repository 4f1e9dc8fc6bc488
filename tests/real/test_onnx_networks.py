"""Real ONNX networks: the loaded graph is the model, its fixed-point form exact to the bit."""

from functools import cache

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks import assets
from qgraph.backends.tf.agreement import Checker
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.frontends.onnx import import_model, read
from qgraph.interpret import evaluate
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT
from tests.helpers.downloads import fetched
from tests.helpers.graphs import opaque_kinds
from tests.helpers.onnx_graphs import runtime

pytestmark = pytest.mark.real

PHOTO = (3, 224, 224)
# name: (asset, shape of a sample, outputs, transposes that are the network's own)
PACKAGES = {
    "direction": ("text_direction_network", (3, 48, 192), None, 0),
    # its sigmoid gives 0 nearly everywhere on noise: what goes into it is compared
    "detection": ("text_detection_network", (3, 64, 96), ["elementwise_add_11.tmp_0"], 0),
    "recognition": ("text_recognition_network", (3, 48, 96), None, 8),
    "notes": ("basic_pitch_onnx", (43844, 1), None, 0),
    "orientation": ("page_orientation_network", (3, 320, 320), None, 0),
    "file_types": ("file_type_network", (2048,), None, 2),  # around a layer norm over positions
}
SHUFFLES = {"shufflenet": 16}
# The dense layers of these are so large that they keep the weights that they have.
LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")


def path_of(name):
    if name not in PACKAGES:
        return assets.light_network(name)
    return fetched(getattr(assets, PACKAGES[name][0]))


@cache
def model_of(name):
    model = onnx.load(path_of(name))
    return model if name in PACKAGES or name in LARGE else with_random_weights(model)


def with_random_weights(model):
    """The architecture, with weights that keep values in range instead of ones that are alike."""
    random = np.random.default_rng(0)
    shapes = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    for node in [n for n in model.graph.node if n.op_type == "ConstantOfShape"]:
        shape = tuple(shapes[node.input[0]])
        if len(shape) == 1:
            weights = random.uniform(0.5, 1.5, shape)
        else:
            weights = random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        array = numpy_helper.from_array(weights.astype(np.float32), node.output[0])
        model.graph.initializer.append(array)
        model.graph.node.remove(node)
    return model


def inputs_of(name, count):
    shape = PACKAGES[name][1] if name in PACKAGES else PHOTO
    if name == "file_types":
        return np.random.default_rng(1).integers(0, 257, (count, *shape), np.int32)
    x = np.random.default_rng(1).standard_normal((count, *shape)).astype(np.float32)
    return x * np.float32(0.1) if name == "notes" else x


@cache
def loaded(name):
    """The graph for samples of one size, whose inputs and outputs have the model's names."""
    outputs = PACKAGES[name][2] if name in PACKAGES else None
    return import_model(read(model_of(name)), outputs=outputs, input_shapes=shapes_of(name))


def shapes_of(name):
    return {"": (None, *PACKAGES[name][1])} if name in PACKAGES else None


def results_of_runtime(name, x):
    model = model_of(name)
    outputs = PACKAGES[name][2] if name in PACKAGES else None
    if outputs:
        model = onnx.ModelProto.FromString(model.SerializeToString())
        del model.graph.output[:]
        model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(o) for o in outputs)
    kept = {i.name for i in model.graph.initializer}
    used = {i for n in model.graph.node for i in n.input}
    entry = next(i.name for i in model.graph.input if i.name in used - kept)
    return list(runtime(model, {entry: x}).values())


@pytest.mark.parametrize("name", [*PACKAGES, *assets.LIGHT])
def test_graph_computes_what_onnx_runtime_does(name):
    graph, x = loaded(name), inputs_of(name, 1)
    found = list(evaluate(graph, {graph.inputs[0]: x}).values())
    wanted = results_of_runtime(name, x)
    assert len(found) == len(wanted) > 0
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4 * np.abs(theirs).max())
        assert name in LARGE or np.ptp(theirs) > 0
    assert opaque_kinds(graph) == []


@pytest.mark.parametrize("name", [*PACKAGES, *assets.LIGHT])
def test_transposes_are_at_the_rim(name):
    graph = loaded(name).copy()
    PassManager(FLOAT).run(graph)
    turned = [n for n in graph.nodes.values() if n.op == "transpose"]
    inner = [n.name for n in turned if graph.producer(n.inputs[0]).op != "input"]
    own = PACKAGES[name][3] if name in PACKAGES else SHUFFLES.get(name, 0)
    assert len(inner) == own


@pytest.mark.parametrize("name", [*PACKAGES, "squeezenet", "shufflenet", "inception_v1"])
def test_fixed_point_form_is_exact(name):
    graph, x = loaded(name), inputs_of(name, 2 if name in PACKAGES else 1)
    result = quantize(graph, x, plan="method=max")
    found = Checker(result.graph).run({graph.inputs[0]: x[:1]})
    assert found.differences == ()
    assert found.tensors >= 15 and found.elements > 0
    assert all(off < 1e-5 for off in found.float_outputs.values())


def test_command_line_and_file_give_the_same_graph():
    graph = load(path_of("direction"))
    assert graph.outputs == {"softmax_0.tmp_0": "softmax_0.tmp_0"}
    assert str(graph.types["x"]) == "float32[?,3,?,?]"
