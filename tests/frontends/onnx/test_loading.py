"""ONNX files: found by content, read without TensorFlow, with data beside them or not at all."""

import subprocess
import sys

import numpy as np
import onnx
from onnx import helper

from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT
from tests.helpers.onnx_graphs import imported, model_of, runtime

RANDOM = np.random.default_rng(11)


def f(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def small_cnn(batch=1):
    """Conv, batch norm, ReLU; two branches that meet; pooling, flatten, a dense layer."""
    make = helper.make_node
    nodes = [
        make("Conv", ["image", "w0"], ["conv0"], pads=[1, 1, 1, 1]),
        make("BatchNormalization", ["conv0", "scale", "shift", "mean", "var"], ["norm0"]),
        make("Relu", ["norm0"], ["relu0"]),
        make("Conv", ["relu0", "w1", "b1"], ["conv1"], pads=[1, 1, 1, 1], group=4),
        make("Add", ["conv1", "relu0"], ["sum"]),
        make("Concat", ["sum", "relu0"], ["both"], axis=1),
        make("MaxPool", ["both"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        make("Flatten", ["pool"], ["flat"]),
        make("Gemm", ["flat", "w2", "b2"], ["logits"], transB=1),
    ]
    constants = {
        "w0": f(4, 3, 3, 3), "scale": f(4), "shift": f(4), "mean": f(4), "var": np.abs(f(4)) + 0.1,
        "w1": f(4, 1, 3, 3), "b1": f(4), "w2": f(5, 8 * 3 * 3), "b2": f(5),
    }  # fmt: skip
    return model_of(nodes, {"image": (batch, 3, 6, 6)}, ("logits",), constants)


def written(tmp_path, model, name="net.onnx", **options):
    path = tmp_path / name
    onnx.save(model, path, **options)
    return path


def test_file_of_any_name_is_known_by_its_content(tmp_path):
    model = small_cnn()
    x = f(1, 3, 6, 6)
    wanted = runtime(model, {"image": x})["logits"]
    for name in ("net.onnx", "net.pb", "net"):
        graph = load(written(tmp_path, model, name))
        np.testing.assert_allclose(evaluate(graph, {"image": x})["logits"], wanted, atol=1e-4)


def test_tensorflow_is_not_imported(tmp_path):
    path = written(tmp_path, small_cnn())
    np.save(tmp_path / "samples.npy", f(4, 3, 6, 6))
    script = (
        "import sys, qgraph, numpy\n"
        f"graph = qgraph.load({str(path)!r})\n"
        f"qgraph.quantize(graph, numpy.load({str(tmp_path / 'samples.npy')!r}), effort='plain')\n"
        "from qgraph.cli.main import main\n"
        f"sys.argv = ['qgraph', 'inspect', {str(path)!r}]\n"
        "try:\n    main()\nexcept SystemExit as done:\n    assert not done.code, done.code\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_nchw_network_has_its_transposes_at_the_rim():
    graph = imported(small_cnn(None), name="small")
    x = f(2, 3, 6, 6)
    wanted = evaluate(graph, {"image": x})["logits"]
    PassManager(FLOAT).run(graph)
    turned = [n.name for n in graph.topological() if n.op == "transpose"]
    assert turned == ["conv0/to_nhwc", "pool"]
    np.testing.assert_allclose(evaluate(graph, {"image": x})["logits"], wanted, atol=1e-4)
