"""`qgraph quantize` without data, and with samples that are not like the training data."""

import json

import numpy as np
import pytest
import tensorflow as tf

from qgraph.quant.without_data.generated import NO_DATA
from tests.helpers.cli import left_in, run
from tests.helpers.tf_graphs import graph_def_of, v1


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A convolution, a batch norm that saw numbers of 0 to 255, a mean, a classifier."""
    rng = np.random.default_rng(0)

    w = rng.normal(0, 0.2, (3, 3, 3, 6)).astype("float32")
    seen = tf.nn.conv2d(photos(seed=2), w, 1, "VALID").numpy()

    def constant(*shape, offset=0.0):
        return tf.constant((rng.normal(0, 0.2, shape) + offset).astype("float32"))

    def build():
        image = v1.placeholder("float32", (None, 8, 8, 3), "image")
        mean, variance = (tf.constant(f(seen, axis=(0, 1, 2))) for f in (np.mean, np.var))
        x = tf.nn.conv2d(image, tf.constant(w), 1, "VALID")
        x, *_ = v1.nn.fused_batch_norm(
            x, constant(6, offset=1), constant(6), mean, variance, is_training=False
        )
        x = tf.reduce_mean(tf.nn.relu(x), axis=(1, 2))
        x = tf.nn.bias_add(tf.matmul(x, constant(6, 4)), constant(4))
        return tf.nn.softmax(x, name="scores")

    path = tmp_path_factory.mktemp("net") / "net.pb"
    path.write_bytes(graph_def_of(build).SerializeToString())
    return path


def photos(scale=1.0, seed=1):
    rng = np.random.default_rng(seed)
    coarse = np.repeat(np.repeat(rng.normal(size=(40, 2, 2, 1)), 4, axis=1), 4, axis=2)
    x = np.clip(coarse * 54 + [120, 110, 100], 0, 255)
    return (x * scale).astype("float32")


def test_quantization_without_data_is_noted_everywhere(model, tmp_path):
    done = run("quantize", model, "-o", tmp_path / "out", "--effort", "fast")
    assert done.code == 0, done.err
    assert "warning: no data: thresholds from batch-norm statistics" in done.out
    assert "assumed to be within 0 to 255" in done.out and "the same class as" not in done.out
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["agreement"] is None and manifest["calibration_samples"] == 0
    assert list(manifest["data_free"]) == ["image"] and len(manifest["warnings"]) == 2
    facts = run("report", tmp_path / "out", "--json")
    assert json.loads(facts.out)["next"][0]["what"] == "Calibrate on data."
    done = run("report", tmp_path / "out")
    assert done.code == 0 and "no output was compared" in done.out
    page = (tmp_path / "out/report.html").read_text()
    assert "no data: thresholds from batch-norm statistics" in page and "without data" in page


def test_a_range_that_is_given(model, tmp_path):
    done = run("quantize", model, "-o", tmp_path / "out", "--effort", "fast", "--json",
               "--input-range", "0,200")  # fmt: skip
    written = json.loads(done.out)
    assert written["data_free"] == {"image": "within 0 to 200 (as given)"}
    assert written["warnings"] == [NO_DATA]  # no warning about a given range


@pytest.mark.parametrize("text", ["5", "a,b", "1,2,3", "image=", "3,3"])
def test_what_is_no_range(model, tmp_path, text):
    done = run("quantize", model, "-o", tmp_path / "out", "--input-range", text)
    assert done.code == 2 and "is not a range" in done.err and left_in(tmp_path) == set()


@pytest.mark.parametrize("scale", [1.0, 1 / 255])
def test_samples_that_are_not_like_the_training_data(model, tmp_path, scale):
    np.save(tmp_path / "x.npy", photos(scale))
    done = run("quantize", model, "-c", tmp_path / "x.npy", "-o", tmp_path / "out", "--effort",
               "plain")  # fmt: skip
    assert done.code == 0
    said = "warning: the samples look unlike the training data: at the first batch norm, means"
    foreign = scale != 1
    assert (said in done.out) == foreign
    assert ("; they would fit multiplied by 255" in done.out) == foreign
    domain = json.loads((tmp_path / "out/manifest.json").read_text())["domain"]
    assert domain["samples"] == 32 and len(domain["drifts"]) == 1
    first = json.loads(run("report", tmp_path / "out", "--json").out)["next"][0]["what"]
    assert (first == "Check the calibration samples.") == foreign
