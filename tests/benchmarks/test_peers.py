"""Other tools get the same network, and views of photos are counted by photo."""

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

from PIL import Image

from benchmarks.families.networks import FAMILIES
from benchmarks.families.train import INPUT, OUTPUT, freeze
from benchmarks.peers.float_onnx import float_onnx
from benchmarks.peers.onnx_runtime import LAYERS, OnnxRuntime, quantized
from benchmarks.real.measure import statistics_weight
from benchmarks.real.views import SIZE, VIEWS, Shares, views
from qgraph.backends.tf.program import TFProgram
from qgraph.frontends.tf.importing import import_graph_def
from qgraph.ir.graph import Graph
from qgraph.quant.reconstruction import layer_codes


@pytest.mark.parametrize("name", FAMILIES)
def test_the_onnx_file_is_the_same_network(name):
    frozen = freeze(FAMILIES[name]())
    image = np.random.default_rng(0).random((2, 28, 28, 1), np.float32)
    (wanted,) = TFProgram(frozen).run({INPUT: image}, [OUTPUT])
    found = OnnxRuntime(float_onnx(import_graph_def(frozen))).run(image)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_images_that_no_layer_takes_come_with_channels_first():
    graph = Graph("net")
    image = np.random.default_rng(0).random((2, 4, 5, 3), np.float32)
    factors = np.array([1, 2, 4], np.float32)
    x = graph.input("x", "float32", (None, 4, 5, 3))
    graph.outputs["y"] = graph.add("mul", x, graph.const(factors, "c"))
    found = OnnxRuntime(float_onnx(graph)).run(image)
    np.testing.assert_array_equal(found, image * factors)


def test_views_are_of_all_parts_and_mirrored():
    ramp = np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None], (256, 256, 3)[:2])
    photo = Image.fromarray(np.stack([ramp, ramp.T, ramp], axis=-1))
    seen = [np.asarray(view) for view in views(photo)]
    assert len(seen) == VIEWS and {view.shape for view in seen} == {(SIZE, SIZE, 3)}
    assert (seen[1] == seen[0][:, ::-1]).all()
    means = {tuple(view.mean(axis=(0, 1)).round()) for view in seen[2::2]}
    assert len(means) == 1 + 4 * 3  # the centre of all sizes, and four corners of each


def test_the_weight_of_statistics_changes_while_a_plan_is_built():
    before = layer_codes.STATISTICS_WEIGHT
    with statistics_weight(before + 1):
        assert before + 1 == layer_codes.STATISTICS_WEIGHT
    assert before == layer_codes.STATISTICS_WEIGHT


def test_errors_are_over_photos():
    """Views of a photo that all agree count as one observation."""
    said = np.repeat(np.arange(16) < 8, VIEWS)
    share = Shares(16).of(said)
    assert share.value == 0.5 and share.error == pytest.approx(np.sqrt(0.25 / 16), rel=0.03)
    apart = Shares(16).between(said, ~said)
    assert apart.value == 0 and apart.error == pytest.approx(np.sqrt(1 / 16), rel=0.03)
    same = Shares(16).between(said, said)
    assert same.value == same.error == 0
    first = np.arange(16 * VIEWS) % VIEWS == 0
    assert Shares(16).of(said, first).value == 0.5


def test_weights_of_4_bits_are_those_between_the_first_and_the_last_layer():
    model = float_onnx(import_graph_def(freeze(FAMILIES["mobilenet_v2"]())))
    images = np.random.default_rng(0).random((2, 28, 28, 1), np.float32)
    made = onnx.load_from_string(quantized(model, images, 1, per_channel=True, weight_bits=4))
    codes = {tensor.name: tensor.data_type for tensor in made.graph.initializer}
    scaled = {node.output[0]: node.input[0] for node in made.graph.node}
    kinds = [
        codes[scaled[node.input[1]]]
        for node in made.graph.node
        if node.op_type in LAYERS and scaled.get(node.input[1]) in codes
    ]
    few, many = onnx.TensorProto.INT4, onnx.TensorProto.INT8
    assert kinds == [many, *[few] * (len(kinds) - 2), many] and len(kinds) == 17
