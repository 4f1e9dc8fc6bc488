"""ONNX files: found by content, read without TensorFlow, with data beside them or not at all."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper

from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.printing import print_graph
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT
from tests.helpers.onnx_graphs import assert_like_runtime, imported, model_of, runtime

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


GOLDEN = """graph "small"
  %image = input
  %conv0/to_nhwc = transpose(%image)
  %conv0/nhwc = conv2d(%conv0/to_nhwc, %conv0/nhwc/weights)
  %norm0/nhwc = bias_add(%conv0/nhwc, %conv0/nhwc/bias) : float32[?,6,6,4]
  %relu0/untransposed = relu(%norm0/nhwc) : float32[?,6,6,4]
  %conv1/nhwc = depthwise_conv2d(%relu0/untransposed, %conv1/weights)
  %conv1/biased = bias_add(%conv1/nhwc, %b1) : float32[?,6,6,4]
  %sum/untransposed = add(%conv1/biased, %relu0/untransposed) : float32[?,6,6,4]
  %both/untransposed = concat(%sum/untransposed, %relu0/untransposed)
  %pool/nhwc = max_pool(%both/untransposed)
  %flat/untransposed = reshape(%pool/nhwc)
  %logits/matmul = matmul(%flat/untransposed, %logits/b/untransposed) : float32[?,5]
  %logits = bias_add(%logits/matmul, %b2) : float32[?,5]
  return "logits" = %logits
}"""


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


def test_nchw_network_is_turned_once_at_the_rim():
    graph = imported(small_cnn(None), name="small")
    x = f(2, 3, 6, 6)
    wanted = evaluate(graph, {"image": x})["logits"]
    PassManager(FLOAT).run(graph)
    lines = [line.partition(" {")[0] for line in print_graph(graph).splitlines()]
    assert "\n".join(line for line in lines if "= const" not in line) == GOLDEN
    np.testing.assert_allclose(evaluate(graph, {"image": x})["logits"], wanted, atol=1e-4)


def signal_network():
    """Two 1-D convolutions with a skip between them, and a dense layer."""
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1]),
        make("Relu", ["c0"], ["r0"]),
        make("Conv", ["r0", "w1"], ["c1"], pads=[1, 1]),
        make("Add", ["c1", "r0"], ["s"]),
        make("Relu", ["s"], ["r1"]),
        make("MaxPool", ["r1"], ["p"], kernel_shape=[2], strides=[2]),
        make("Flatten", ["p"], ["f"]),
        make("Gemm", ["f", "w2"], ["y"]),
    ]
    constants = {"w0": f(4, 3, 3), "b0": f(4), "w1": f(4, 4, 3), "w2": f(4 * 5, 2)}
    return model_of(nodes, {"x": (None, 3, 10)}, constants=constants)


def shuffling_network():
    """Channels split into groups, exchanged and joined again, as ShuffleNet does it."""
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w0"], ["c0"]),
        make("Reshape", ["c0", "apart"], ["g"]),
        make("Transpose", ["g"], ["t"], perm=[0, 2, 1, 3, 4]),
        make("Reshape", ["t", "joined"], ["s"]),
        make("Relu", ["s"], ["r"]),
        make("Conv", ["r", "w1"], ["c1"], group=6),
        make("GlobalAveragePool", ["c1"], ["p"]),
        make("Flatten", ["p"], ["y"]),
    ]
    constants = {
        "w0": f(6, 3, 1, 1), "w1": f(6, 1, 3, 3),
        "apart": np.array([0, 2, 3, 5, 5]), "joined": np.array([-1, 6, 5, 5]),
    }  # fmt: skip
    return model_of(nodes, {"x": (None, 3, 5, 5)}, constants=constants)


def gated_network():
    """A squeeze-and-excitation gate made by dense layers."""
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w0"], ["c0"]),
        make("GlobalAveragePool", ["c0"], ["p"]),
        make("Flatten", ["p"], ["f"]),
        make("Gemm", ["f", "w1"], ["d"]),
        make("Sigmoid", ["d"], ["s"]),
        make("Reshape", ["s", "image"], ["gate"]),
        make("Mul", ["c0", "gate"], ["m"]),
        make("Conv", ["m", "w2"], ["y"]),
    ]
    constants = {
        "w0": f(4, 3, 1, 1), "w1": f(4, 4), "w2": f(2, 4, 1, 1), "image": np.array([-1, 4, 1, 1]),
    }  # fmt: skip
    return model_of(nodes, {"x": (None, 3, 5, 5)}, constants=constants)


MOVES_LEFT = {
    # name: (model, input, moves that are left: at the rim, or the network's own)
    "signal": (signal_network(), (2, 3, 10), ["expand_dims", "reshape", "transpose"]),
    "shuffling": (
        shuffling_network(),
        (2, 3, 5, 5),
        ["reshape", "reshape", "reshape", "transpose", "transpose"],
    ),
    "gated": (
        gated_network(),
        (2, 3, 5, 5),
        ["reshape", "reshape", "transpose", "transpose"],
    ),
}


@pytest.mark.parametrize("case", MOVES_LEFT)
def test_moves_that_are_left(case):
    model, shape, left = MOVES_LEFT[case]
    x = f(*shape)
    graph = assert_like_runtime(model, {"x": x})
    wanted = evaluate(graph, {"x": x})["y"]
    PassManager(FLOAT).run(graph)
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], wanted, atol=1e-4)
    moves = ("transpose", "reshape", "squeeze", "expand_dims")
    assert sorted(n.op for n in graph.nodes.values() if n.op in moves) == left
