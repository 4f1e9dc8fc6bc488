"""Networks with ops that are not supported: written, read back, run and verified."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.compiler import quantize
from qgraph.errors import LoadError, UnsupportedError
from qgraph.exact.reference import Reference
from qgraph.frontends import load_graph_def
from qgraph.frontends.onnx.opaque import OnnxSource
from qgraph.frontends.sources import source_arrays, sources_of
from qgraph.frontends.tf.opaque import TFSource
from qgraph.interpret import evaluate
from qgraph.ir.parsing import parse_graph
from qgraph.ir.printing import print_graph
from qgraph.ir.verify import constants_of
from qgraph.runtime import Session
from qgraph.stored import load_graph, load_network
from qgraph.stored.code_constants import on_grid
from qgraph.verification.verify import verify
from tests.helpers.onnx_graphs import f, imported, one_op
from tests.helpers.resized_networks import layer, resize, weights
from tests.helpers.tf_graphs import graph_def_of, v1

IMAGES = np.random.default_rng(2).uniform(-1, 2, (12, 8, 8, 3)).astype(np.float32)


def lgamma(x):
    return tf.math.lgamma(tf.nn.relu(x) + 1)


def branches(x):
    @tf.function
    def choose(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1)

    return choose(x)


NETWORKS = {
    "first": lambda x: layer(tf.math.bessel_i0e(x)),
    "behind": lambda x: resize(layer(x), 16),
    "in front": lambda x: layer(resize(x, 4)),
    "on both sides": lambda x: resize(layer(layer(resize(x, 4))), 8),
    "several": lambda x: lgamma(resize(layer(lgamma(resize(x, 4)) * 0.5), 6)),
    "several outputs": lambda x: list(tf.math.top_k(tf.reduce_mean(layer(x, 6), (1, 2)), 3)),
    "only one of several outputs": lambda x: tf.math.top_k(layer(x, 6), 3)[1],
    "functions": lambda x: branches(layer(x)),
    "gather in front": lambda x: layer(
        tf.gather_nd(x, [[[0, i % 3]] for i in range(4)], batch_dims=0)
        if x.shape[0] is not None
        else tf.image.extract_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1] * 4, "VALID")
    ),
}
BATCHES = {"free": None, "fixed": 4}


def quantized(case, batch):
    def build():
        return NETWORKS[case](v1.placeholder("float32", (BATCHES[batch], 8, 8, 3), "image"))

    return quantize(load_graph_def(graph_def_of(build)), {"image": IMAGES}, effort="plain")


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("case", NETWORKS)
def test_the_directory_stores_unsupported_ops(case, batch, tmp_path):
    made = quantized(case, batch)
    made.save(tmp_path / "out")
    feeds = {"image": IMAGES[: BATCHES[batch]]}
    wanted = made.reference().outputs(feeds)
    read = load_graph(tmp_path / "out")
    assert print_graph(read) == print_graph(on_grid(made.graph)[0])
    network = load_network(tmp_path / "out")
    assert network.program.batch_free is (batch == "free")
    found = Session.open(tmp_path / "out").run(feeds)
    again = Reference(read).outputs(feeds)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
        np.testing.assert_array_equal(again[name], array)
    checked = verify(
        tmp_path / "out", forms=["tensorflow", "engine", "onnx-integer", "onnx-qdq", "qonnx"]
    )
    assert checked.equal and not checked.refused
    graph_def = v1.GraphDef.FromString((tmp_path / "out" / "inference.pb").read_bytes())
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        tf.graph_util.import_graph_def(graph_def, name="")
        values = session.run({name: f"{name}:0" for name in wanted}, {"image:0": feeds["image"]})
    for name, array in wanted.items():
        np.testing.assert_allclose(values[name], array, rtol=1e-5, atol=1e-5)


def test_each_output_of_an_op_is_compared_with_itself():
    """Both outputs have one shape, so that the wrong one would give a number too."""

    def build():
        x = v1.placeholder("float32", (None, 4, 4), "x")
        found = tf.raw_ops.LogMatrixDeterminant(input=x)
        return [tf.matmul(tf.reshape(values, (-1, 1)), weights(1, 3)) for values in found]

    data = np.random.default_rng(3).normal(0, 2, (64, 4, 4)).astype(np.float32)
    result = quantize(load_graph_def(graph_def_of(build)), data, effort="plain")
    known = {name: db for name, db in result.sqnr.items() if not name.startswith("x/")}
    assert len(known) > 3 and min(known.values()) > 25, known


def test_ops_that_stand_beside_other_nodes_are_written(tmp_path):
    """Embeddings of a SavedModel are to be where their table is, and that is another node there."""

    def build():
        x = v1.placeholder("float32", (None, 8, 8, 3), "image")
        with tf.device("/cpu:0"):
            return lgamma(layer(x))

    graph_def = graph_def_of(build)
    node = next(n for n in graph_def.node if n.op == "Lgamma")
    node.attr["_class"].list.s.append(b"loc:@gone")
    result = quantize(load_graph_def(graph_def), {"image": IMAGES}, effort="plain")
    checked = verify(result.save(tmp_path / "out"), forms=["tensorflow"])
    assert checked.equal and not checked.refused


# -- sources --------------------------------------------------------------------------------


def test_sources_are_bytes_and_back():
    def build():
        x = v1.placeholder("float32", (None, 6), "x")
        return lgamma(x) + branches(tf.nn.erosion2d(x[None, :, :, None], weights(2, 2, 1),
            [1] * 4, "SAME", "NHWC", [1] * 4)[0, :, :, 0])  # fmt: skip

    graph = load_graph_def(graph_def_of(build))
    arrays = source_arrays(graph)
    again = parse_graph(print_graph(graph), constants_of(graph), sources_of(arrays))
    assert len(arrays) >= 3 and print_graph(again) == print_graph(graph)
    assert source_arrays(again).keys() == arrays.keys()
    for name, array in source_arrays(again).items():
        np.testing.assert_array_equal(array, arrays[name])
    x = {"x": f(3, 6)}
    assert np.array_equal(*(next(iter(evaluate(g, x).values())) for g in (graph, again)))


def test_sources_of_onnx_are_bytes_and_back():
    model = one_op("TopK", f(3, 6), np.array([2]), outputs=("y", "z"))
    graph = imported(model)
    again = parse_graph(print_graph(graph), constants_of(graph), sources_of(source_arrays(graph)))
    x = {"x": f(3, 6)}
    found, wanted = evaluate(again, x), evaluate(graph, x)
    assert isinstance(again.nodes["y"].attrs["source"], OnnxSource)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("kind", ["tensorflow-op", "onnx-op"])
def test_damaged_sources_are_an_error(kind):
    for data in (b"", b"\xff\xff\xff", bytes(range(64))):
        with pytest.raises(LoadError):
            sources_of({f"{kind}/y": np.frombuffer(data, np.uint8)})


# -- sizes ----------------------------------------------------------------------------------


def test_sizes_become_known_with_those_of_inputs():
    def build():
        x = v1.placeholder("float32", (None, None, 8, 3), "x")
        return tf.nn.relu(tf.tile(lgamma(x), [1, 2, 1, 1]))

    graph = load_graph_def(graph_def_of(build))
    assert str(graph.types["y"]) == "float32[?,?,8,3]"
    assert isinstance(graph.nodes["Tile"].attrs["source"], TFSource)
    graph.set_attrs("x", type=graph.types["x"].with_shape((1, 5, 8, 3)))
    graph.verify()
    assert str(graph.types["y"]) == "float32[1,10,8,3]"


def test_sizes_of_onnx_become_known_with_those_of_inputs():
    graph = imported(one_op("Erf", f(2, 3, 4), inputs=(None, 3, None)))
    assert str(graph.types["y"]) == "float32[?,3,?]"
    graph.set_attrs("x", type=graph.types["x"].with_shape((1, 3, 4)))
    assert str(graph.types["y"]) == "float32[1,3,4]"


def test_stored_ops_that_reach_outside_are_refused():
    graph_def = v1.GraphDef()
    graph_def.node.add(name="in0", op="Placeholder").attr["dtype"].type = 7
    graph_def.node.add(name="y", op="ReadFile", input=["in0"])
    stored = np.frombuffer(graph_def.SerializeToString(), np.uint8)
    with pytest.raises(UnsupportedError, match="`ReadFile` has effects outside"):
        sources_of({"tensorflow-op/y": stored})
