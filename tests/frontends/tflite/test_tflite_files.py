"""Whole networks in `.tflite` files: names, shapes, float16 weights, the command line."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("tflite", reason="pip install tflite")
pytest.importorskip("ai_edge_litert", reason="pip install ai-edge-litert")

import tensorflow as tf

import qgraph
from qgraph.backends.tflite.model_builder import QuantizedScale, TfliteModelBuilder
from qgraph.errors import LoadError, UnsupportedError, UsageError
from qgraph.frontends import load
from qgraph.frontends.tflite import model as reader
from qgraph.interpret import evaluate
from tests.helpers.cli import run
from tests.helpers.doors import images
from tests.helpers.tflite_files import Written, assert_same_as_litert, converted, written

SHAPE = (None, 6, 6, 2)


def network(half=False):
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return tf.constant(rng.standard_normal(shape).astype("float32"))

    def function(x):
        y = tf.nn.relu(tf.nn.conv2d(x, numbers(3, 3, 2, 4), 1, "SAME") + numbers(4))
        y = tf.nn.depthwise_conv2d(y, numbers(3, 3, 4, 1), [1, 2, 2, 1], "SAME")
        y = tf.nn.max_pool2d(tf.nn.relu6(y + numbers(4)), 3, 1, "SAME")
        return tf.nn.softmax(tf.reshape(y, (-1, 36)) @ numbers(36, 5) + numbers(5))

    return converted(function, [SHAPE], half)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("files")
    (place / "float.tflite").write_bytes(network())
    (place / "half.tflite").write_bytes(network(half=True))
    return place


def test_a_network_computes_what_litert_computes(folder):
    graph = load(folder / "float.tflite")
    (name,) = graph.inputs
    assert graph.types[name].shape == SHAPE and not graph.notes
    assert_same_as_litert(graph, network(), {name: images(1)})


def test_float16_weights_are_read_as_float32(folder):
    graph = load(folder / "half.tflite")
    assert "float16" in graph.notes[0]
    assert_same_as_litert(graph, network(half=True), {graph.inputs[0]: images(1)})
    (weights,) = (n for n in load(folder / "float.tflite").nodes.values() if n.op == "matmul")
    other = load(folder / "float.tflite").constant(weights.inputs[1])
    (halved,) = (n for n in graph.nodes.values() if n.op == "matmul")
    assert np.array_equal(graph.constant(halved.inputs[1]), other.astype("f2").astype("f4"))


def test_the_float_graph_is_that_of_the_same_network_from_tensorflow(folder):
    """Both give the same ops, on the same constants."""

    def ops(graph):
        return [
            (n.op, None if n.op != "const" else graph.constant(n.name).tobytes())
            for n in qgraph.optimize(graph).graph.topological()
        ]

    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(s).astype("f4") for s in ((6, 4), (4,), (4, 3), (3,))]

    def function(x):
        a, b, c, d = weights
        return tf.nn.relu(x @ a + b) @ c + d

    (folder / "dense.tflite").write_bytes(converted(function, [(None, 6)]))
    with tf.Graph().as_default() as made:
        function(tf.compat.v1.placeholder("float32", (None, 6), "x0"))
        (folder / "dense.pb").write_bytes(made.as_graph_def().SerializeToString())
    assert ops(load(folder / "dense.tflite")) == ops(load(folder / "dense.pb"))


def test_inputs_and_outputs_are_named_as_in_the_file_or_in_the_graph(folder):
    path = folder / "float.tflite"
    graph = load(path)
    (pool,) = (n.name for n in graph.nodes.values() if n.op == "max_pool")
    for name in (pool, f"{pool}:0"):
        assert list(load(path, outputs=[name]).outputs) == [pool]
    tensors = [t.name for t in reader.read(path.read_bytes()).network.tensors]
    joined = next(t for t in tensors if ";" in t)  # names of ops that the converter joined
    assert len(load(path, outputs=[joined]).outputs) == 1
    fixed = load(path, input_shapes={"": (3, 6, 6, 2)})
    assert fixed.types[fixed.inputs[0]].shape[0] == 3
    with pytest.raises(UsageError, match="no output `nothing`"):
        load(path, outputs=["nothing"])
    with pytest.raises(UsageError, match="only a SavedModel has signatures"):
        load(path, signature="serving_default")


def test_a_file_is_quantized_from_the_command_line(folder):
    np.save(folder / "samples.npy", images(16))
    done = run("inspect", folder / "float.tflite")
    assert done.code == 0, done.err
    options = ("-c", folder / "samples.npy", "--effort", "plain", "-o", folder / "out")
    done = run("quantize", folder / "float.tflite", *options)
    assert done.code == 0, done.err
    done = run("verify", folder / "out")
    assert done.code == 0, done.err


def test_tensorflow_is_not_imported_to_read_a_file(folder):
    code = (
        "import sys, qgraph\n"
        "from qgraph.interpret import evaluate\n"
        "import numpy as np\n"
        "graph = qgraph.load(sys.argv[1])\n"
        "evaluate(graph, {graph.inputs[0]: np.ones((1, 6, 6, 2), 'f4')})\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, folder / "half.tflite"]).returncode == 0


def test_a_missing_package_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tflite", None)
    with pytest.raises(UnsupportedError, match=r"tflite is not installed\n.*\[tflite\]"):
        load(folder / "float.tflite")


def test_an_operator_that_is_not_read_is_refused_by_name(folder):
    path = folder / "unread.tflite"
    doubled = Written("ADD", [-1, -1], (2, 3))
    path.write_bytes(written((2, 3), doubled, Written("LSTM", [0], (2, 3))))
    with pytest.raises(UnsupportedError, match=r"^y: operator `LSTM` is not supported.*\n.*--out"):
        load(path)
    graph = load(path, outputs=["t"])
    x = np.ones((2, 3), "f4")
    assert np.array_equal(evaluate(graph, {"x": x})["t"], 2 * x)


@pytest.mark.parametrize(
    ("op", "options", "fields", "message"),
    [
        ("STRIDED_SLICE", "StridedSliceOptions", {"Offset": True}, "offset from its begin"),
        ("MAXIMUM", "GatherOptions", {"Axis": 1}, "`MAXIMUM` with Axis"),
        ("ADD", "AddOptions", {"FusedActivationFunction": 5}, "fused activation 5"),
    ],
)
def test_an_option_that_is_not_read_is_refused(folder, op, options, fields, message):
    path = folder / "option.tflite"
    index = np.zeros((2, 1), "i4")
    operator = Written(op, [-1, index, index, index], (2, 1), "float32", options, fields)
    path.write_bytes(written((2, 3), operator))
    with pytest.raises(UnsupportedError, match=f"^y: .*{message}"):
        load(path)


def test_codes_of_constants_are_read_as_numbers(folder):
    builder = TfliteModelBuilder("m")
    builder.inputs["x"] = builder.tensor("x", (2, 3), "float32")
    weights = builder.constant("w", np.array([[1, -3, 5]], "i1"), QuantizedScale((1, 2, 3), axis=1))
    made = builder.tensor("y", (2, 3), "float32")
    builder.outputs["y"] = builder.operator("MUL", [builder.inputs["x"], weights], made)
    (folder / "weights.tflite").write_bytes(builder.model({}))
    graph = load(folder / "weights.tflite")
    found = evaluate(graph, {"x": np.ones((2, 3), "f4")})["y"]
    assert np.array_equal(found, [[0.5, -0.75, 0.625]] * 2)


def test_a_file_is_recognized_by_its_content(folder):
    path = folder / "lite.pb"
    path.write_bytes(network())
    assert (
        str(load(path)).partition("\n")[2] == str(load(folder / "float.tflite")).partition("\n")[2]
    )


@pytest.mark.parametrize("cut", [9, 100, 0.5, 0.9, -1])
def test_a_truncated_file_is_refused(folder, cut):
    data = network()
    path = folder / "cut.tflite"
    path.write_bytes(data[: int(cut * len(data)) if 0 < cut < 1 else cut])
    with pytest.raises(LoadError, match=r"cut\.tflite"):
        load(path)


def test_a_file_without_the_identifier_is_refused(folder):
    path = folder / "other.tflite"
    path.write_bytes(bytes(range(200)))
    with pytest.raises(LoadError, match="not a TensorFlow Lite file"):
        load(path)
