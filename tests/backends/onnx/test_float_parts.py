"""QDQ models have the network's own inputs, outputs and float ops: they replace the float model."""

import numpy as np
import onnx
import pytest

from qgraph import export, optimize, quantize, verify
from qgraph.exports import index_of
from tests.frontends.onnx.test_loading import f, small_cnn
from tests.helpers.cli import run, small_network, typical_images
from tests.helpers.tf_graphs import graph_def_of, tf, v1

onnxruntime = pytest.importorskip("onnxruntime")


def ends(path):
    """Names, types and shapes of inputs and outputs; an open size is None."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return tuple(
        [(v.name, v.type, [d if isinstance(d, int) else None for d in v.shape]) for v in values]
        for values in (session.get_inputs(), session.get_outputs())
    )


def outputs(path, feeds):
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [v.name for v in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def exported(model, samples, folder):
    """The float network, and the quantized one as QDQ."""
    out = quantize(model, samples, effort="plain").save(folder / "out")
    export(out, "onnx-qdq", folder / "qdq")
    optimize(model).save(folder / "float.onnx")
    assert verify(out, files=folder / "qdq").equal
    assert not index_of(folder / "qdq").warnings
    return folder / "float.onnx", folder / "qdq/network.onnx", out


def assert_replaces(floating, quantized, feeds, near=0.1) -> dict:
    assert ends(floating) == ends(quantized)
    found, wanted = outputs(quantized, feeds), outputs(floating, feeds)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert np.abs(found[name] - array).max() < near * np.abs(array).max(), name
    return found


def test_a_softmax_behind_the_program(tmp_path) -> None:
    (tmp_path / "net.pb").write_bytes(small_network().SerializeToString())
    floating, quantized, _ = exported(tmp_path / "net.pb", typical_images(), tmp_path)
    found = assert_replaces(floating, quantized, {"image": typical_images()[:5]})
    np.testing.assert_allclose(found["classes"].sum(-1), 1, rtol=1e-5)
    model = onnx.load(quantized)
    assert model.graph.node[-2].op_type == "Softmax"
    assert [v.name for v in model.graph.output] == ["classes"]


def test_an_onnx_model_keeps_its_layout_and_names(tmp_path) -> None:
    onnx.save(small_cnn(None), tmp_path / "net.onnx")
    images = f(8, 3, 6, 6)
    _, quantized, _ = exported(tmp_path / "net.onnx", images, tmp_path)
    name = onnx.load(tmp_path / "net.onnx").graph.input[0].name
    assert_replaces(tmp_path / "net.onnx", quantized, {name: images[:3]})


def before_and_after(around=tf.exp):
    """Float ops before the first quantizer, an input that only a float op takes, two outputs."""
    rng = np.random.default_rng(2)

    def build():
        x = v1.placeholder("float32", (None, 6), "x")
        offset = v1.placeholder("float32", (None, 4), "offset")
        hidden = tf.exp(x)
        weights = tf.constant(rng.normal(0, 0.4, (6, 4)).astype("float32"))
        scores = tf.nn.relu(tf.matmul(hidden, weights))
        tf.identity(scores, name="scores")
        return tf.add(tf.nn.softmax(scores), around(offset), name="both")

    return graph_def_of(build)


def test_float_ops_before_the_program_and_around_it(tmp_path) -> None:
    (tmp_path / "net.pb").write_bytes(before_and_after().SerializeToString())
    rng = np.random.default_rng(0)
    samples = {
        "x": rng.normal(0, 1, (16, 6)).astype("float32"),
        "offset": rng.normal(0, 1, (16, 4)).astype("float32"),
    }
    floating, quantized, _ = exported(tmp_path / "net.pb", samples, tmp_path)
    assert_replaces(floating, quantized, samples, near=0.3)


def test_a_float_op_that_onnx_lacks_is_left_out(tmp_path) -> None:
    """The outputs are then those of codes, as in the other ONNX forms."""
    (tmp_path / "net.pb").write_bytes(before_and_after(tf.math.lgamma).SerializeToString())
    samples = {"x": np.ones((8, 6), "float32"), "offset": np.ones((8, 4), "float32")}
    out = quantize(tmp_path / "net.pb", samples, effort="plain").save(tmp_path / "out")
    export(out, "onnx-qdq", tmp_path / "qdq")
    assert verify(out, files=tmp_path / "qdq").equal
    _, given = ends(tmp_path / "qdq/network.onnx")
    assert "both" not in {name for name, _, _ in given}
    done = run("export", out, "--format", "onnx-qdq", "-o", tmp_path / "again")
    last = done.out.splitlines()[-1]
    assert last.startswith("warning: the file contains only the integer part"), done.out
    assert index_of(tmp_path / "qdq").warnings and "`scores`" in last


def test_a_changed_tail_is_found(tmp_path) -> None:
    (tmp_path / "net.pb").write_bytes(small_network().SerializeToString())
    _, quantized, out = exported(tmp_path / "net.pb", typical_images(), tmp_path)
    model = onnx.load(quantized)
    (softmax,) = (node for node in model.graph.node if node.op_type == "Softmax")
    softmax.op_type = "LogSoftmax"
    onnx.save(model, quantized)
    done = run("verify", out, "--files", quantized.parent)
    assert done.code == 9 and "the file gives other values than the network" in done.out
