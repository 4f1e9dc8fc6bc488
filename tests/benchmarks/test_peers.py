"""Other tools get the same network, and views of photos are counted by photo."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from PIL import Image

from benchmarks.families.networks import FAMILIES
from benchmarks.families.train import INPUT, OUTPUT, freeze
from benchmarks.peers.float_onnx import float_onnx
from benchmarks.peers.onnx_runtime import OnnxRuntime
from benchmarks.real.measure import statistics_weight
from benchmarks.real.views import SIZE, VIEWS, Shares, views
from qgraph.backends.tf.program import TFProgram
from qgraph.frontends.importing import import_graph_def
from qgraph.ir.graph import Graph
from qgraph.quant import layer_codes


@pytest.mark.parametrize("batch", [2, None])
@pytest.mark.parametrize("name", ["vgg", "resnet", "mobilenet_v1", "mobilenet_v2"])
def test_the_onnx_file_is_the_same_network(name, batch):
    frozen = freeze(FAMILIES[name]())
    image = np.random.default_rng(0).random((2, 28, 28, 1), np.float32)
    (wanted,) = TFProgram(frozen).run({INPUT: image}, [OUTPUT])
    found = OnnxRuntime(float_onnx(import_graph_def(frozen), batch)).run(image)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_factors_of_channels_are_written_for_channels_first():
    graph = Graph("net")
    image = np.random.default_rng(0).random((2, 4, 5, 3), np.float32)
    factors = np.array([1, 2, 4], np.float32)
    x = graph.input("x", "float32", (None, 4, 5, 3))
    graph.outputs["y"] = graph.add("mul", x, graph.const(factors, "c"))
    found = OnnxRuntime(float_onnx(graph, None)).run(image)
    np.testing.assert_array_equal(found.transpose(0, 2, 3, 1), image * factors)


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
