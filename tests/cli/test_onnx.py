"""`qgraph` on an ONNX model: images in NCHW in, everything else as for any model."""

import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import helper

from qgraph.frontends import load
from qgraph.interpret import evaluate
from tests.frontends.onnx.test_loading import f, small_cnn
from tests.helpers.cli import run
from tests.helpers.onnx_graphs import model_of


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(small_cnn(None), path)
    np.save(tmp_path / "samples.npy", f(8, 3, 6, 6))
    return path


def quantized(path, *options):
    folder = path.parent
    data = ("-c", folder / "samples.npy", "-o", folder / "out", "--effort", "plain")
    return run("quantize", path, *data, *options)


def test_quantized_network_takes_what_the_model_takes(network):
    made = quantized(network)
    assert made.code == 0, made.err
    out = network.parent / "out"
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["inputs"] == {"image": "float32[?,3,6,6]"}
    x = np.load(network.parent / "samples.npy")
    wanted = evaluate(load(network), {"image": x})["logits"]
    found = evaluate(load(out / "inference.pb"), {"image": x})["logits"]
    assert 0 < np.abs(found - wanted).max() < 0.2 * np.abs(wanted).max()


def test_inspect_shows_what_is_in_it(network):
    shown = run("inspect", network, "--json")
    facts = json.loads(shown.out)
    assert facts["inputs"] == {"image": "float32[?,3,6,6]"}
    assert facts["ops"]["conv2d"] == 1 and facts["unsupported"] == []


def test_an_op_that_cannot_be_trained_is_refused_before_anything_is_done(network):
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"]),
        helper.make_node("TopK", ["c", "k"], ["y", "where"], axis=2),
    ]
    constants = {"w": f(2, 3, 1, 1), "k": np.int64([2])}
    onnx.save(model_of(nodes, {"image": (None, 3, 6, 6)}, constants=constants), network)
    made = quantized(network, "--mode", "retrain")
    assert made.code == 5
    assert "y: `TopK` is not supported" in made.err and "--outputs" in made.err
    assert not (network.parent / "out").exists()
    assert quantized(network, "--mode", "retrain", "--outputs", "c").code == 0
    shutil.rmtree(network.parent / "out")
    made = quantized(network)
    assert made.code == 0 and "TensorFlow does not have `TopK` at y" in made.out


def test_a_damaged_model_is_refused_with_a_clear_message(network):
    network.write_bytes(network.read_bytes()[:-40])
    made = run("inspect", network)
    assert made.code == 3 and "net.onnx: not an ONNX model" in made.err
