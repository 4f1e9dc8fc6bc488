"""Errors of input that cannot be loaded name the file or the node, and what to do."""

import io
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import GraphError, LoadError, QGraphError, UnsupportedError, UsageError
from qgraph.frontends import load, load_graph_def
from tests.helpers.tf_graphs import graph_def_of, v1


def relu_graph():
    w = np.random.default_rng(0).standard_normal((3, 400)).astype("float32")
    return graph_def_of(lambda: tf.nn.relu(v1.placeholder("float32", (None, 3), "x") @ w))


def onnx_model():
    import onnx
    from onnx import helper

    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value], [out])
    return helper.make_model(graph).SerializeToString()


def zipped():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("config.json", "{}")
    return buffer.getvalue()


FILES = {
    "random.pb": (bytes(range(255, 100, -1)) * 9, "random.pb: not a GraphDef"),
    "cut.pb": (relu_graph().SerializeToString()[:-900], "cut.pb: not a GraphDef.*\n.*truncated"),
    "model.onnx": (onnx_model()[:-9], "model.onnx: not an ONNX model.*\n.*truncated"),
    "other.onnx": (relu_graph().SerializeToString(), "other.onnx: not an ONNX model"),
    "notes.txt": (b"hello, world\n", "notes.txt: a text file, but not a GraphDef"),
    "blank.pb": (b"\n\n", "blank.pb: "),
    "zip.keras": (zipped(), "zip.keras: a zip archive, but not a Keras model"),
    "hdf.h5": (b"\x89HDF\r\n\x1a\n" + bytes(90), "hdf.h5: the HDF5 library cannot read it"),
    "saved.pb": (b"\x08\x01\x12\x00", "saved.pb: "),
}


@pytest.mark.parametrize("name", FILES)
def test_file_of_another_kind(tmp_path, name):
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LoadError, match=message):
        load(tmp_path / name)


def small_network():
    x = v1.placeholder("float32", (None, 4, 4, 2), "x")
    y = tf.nn.bias_add(tf.nn.conv2d(x, tf.ones((2, 2, 2, 3)), 1, "SAME"), [1.0, 2.0, 3.0])
    y = tf.concat([tf.nn.max_pool2d(y, 2, 2, "VALID"), tf.nn.avg_pool2d(y, 2, 2, "SAME")], 3)
    a, b = tf.split(
        tf.reshape(tf.pad(y, [[0, 0], [1, 0], [0, 0], [0, 0]]), [tf.shape(x)[0], 36]), 2, 1
    )
    return tf.matmul(tf.transpose(a), b, transpose_a=False) + tf.reduce_mean(b[:, 3:-1], [1])


SOUND = graph_def_of(small_network)


@settings(max_examples=60)
@given(data=st.data())
def test_graph_with_damaged_nodes_is_refused_by_name(data):
    graph_def = type(SOUND).FromString(SOUND.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        node = graph_def.node[data.draw(st.integers(0, len(graph_def.node) - 1))]
        other = graph_def.node[data.draw(st.integers(0, len(graph_def.node) - 1))]
        match data.draw(st.sampled_from(["op", "drop", "swap", "attr"])):
            case "op":
                node.op = other.op
            case "drop" if node.input:
                del node.input[data.draw(st.integers(0, len(node.input) - 1))]
            case "swap" if node.input:
                node.input[data.draw(st.integers(0, len(node.input) - 1))] = other.name
            case "attr" if node.attr:
                del node.attr[data.draw(st.sampled_from(sorted(node.attr)))]
    try:
        load_graph_def(graph_def, outputs=["y"])
    except QGraphError as error:
        assert error.node


@pytest.fixture(scope="module")
def some_file(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged") / "net.pb"


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_file_never_shows_a_traceback_of_others(some_file, data):
    content = bytearray(SOUND.SerializeToString())
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[at] = data.draw(st.integers(0, 255))
    some_file.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    try:
        load(some_file)
    except QGraphError as error:
        assert error.node


def test_path_that_does_not_exist(tmp_path):
    with pytest.raises(LoadError, match=r"gone\.pb: no such file"):
        load(tmp_path / "gone.pb")


def test_saved_model_without_its_variables(tmp_path):
    module = tf.Module()
    module.v = tf.Variable([1.0])
    module.f = tf.function(lambda x: x * module.v, input_signature=[tf.TensorSpec((1,))])
    tf.saved_model.save(module, str(tmp_path), signatures=module.f)
    moved = tmp_path / "elsewhere.pb"
    moved.write_bytes((tmp_path / "saved_model.pb").read_bytes())
    with pytest.raises(LoadError, match="the graph of a SavedModel without its directory"):
        load(moved)
    for file in (tmp_path / "variables").iterdir():
        file.unlink()
    with pytest.raises(LoadError, match="the SavedModel cannot be read"):
        load(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(LoadError, match="the SavedModel cannot be read"):
        load(tmp_path)


def test_saved_model_with_several_signatures(tmp_path):
    module = tf.Module()
    module.f = tf.function(lambda x: x * 2, input_signature=[tf.TensorSpec((1,))])
    tf.saved_model.save(module, str(tmp_path), signatures={"a": module.f, "b": module.f})
    with pytest.raises(UsageError, match=r"`a`, `b`\n.*--signature a"):
        load(tmp_path)


# -- checkpoints --------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path):
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        x = v1.placeholder("float32", (None, 3), "x")
        tf.matmul(x, v1.get_variable("w", (3, 2)), name="y")
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "net"))
    return tmp_path / "net.meta"


@pytest.mark.parametrize("gone", ["net.meta", "net.index", "net.data-00000-of-00001"])
def test_checkpoint_with_a_missing_file(checkpoint, gone):
    (checkpoint.parent / gone).unlink()
    with pytest.raises(LoadError, match=rf"net\.{gone[4:8]}.*missing"):
        load(checkpoint)


@pytest.mark.parametrize("damaged", ["net.meta", "net.index", "net.data-00000-of-00001"])
def test_damaged_checkpoint(checkpoint, damaged):
    (checkpoint.parent / damaged).write_bytes(b"\xff\xff\xff")
    with pytest.raises(LoadError, match=r"net\.meta: the checkpoint cannot be read"):
        load(checkpoint)


def test_metagraph_away_from_its_checkpoint(checkpoint, tmp_path):
    with pytest.raises(LoadError, match="a MetaGraph without its checkpoint"):
        load(checkpoint.rename(tmp_path / "other.pb"))


# -- graphs that do not hold together --------------------------------------------------------------


def test_cycle():
    graph_def = graph_def_of(lambda: tf.nn.relu(v1.placeholder("float32", (3,), "x"), name="a"))
    graph_def.node.add(name="b", op="Relu", input=["c"])
    graph_def.node.add(name="c", op="Relu", input=["b"])
    graph_def.node.add(name="d", op="Relu", input=["c"])
    with pytest.raises(GraphError, match=r"c: the graph has a cycle: c -> b -> c"):
        load_graph_def(graph_def, outputs=["d"])


def test_missing_input_node():
    graph_def = graph_def_of(lambda: tf.nn.relu(v1.placeholder("float32", (3,), "x"), name="a"))
    graph_def.node.remove(next(n for n in graph_def.node if n.name == "x"))
    with pytest.raises(GraphError, match="a: input `x` does not exist"):
        load_graph_def(graph_def, outputs=["a"])


def test_two_nodes_of_one_name():
    graph_def = graph_def_of(lambda: tf.nn.relu(v1.placeholder("float32", (3,), "x"), name="a"))
    graph_def.node.add(name="a", op="NoOp")
    with pytest.raises(GraphError, match="a: two nodes have this name"):
        load_graph_def(graph_def)


def test_unfrozen_graph_asks_for_its_checkpoint():
    def build():
        return v1.placeholder("float32", (3,), "x") * v1.get_variable("w", (3,), use_resource=False)

    with pytest.raises(LoadError, match=r"w: the graph holds a variable(.|\n)*\.meta"):
        load_graph_def(graph_def_of(build))


def test_custom_op_is_named():
    graph_def = graph_def_of(lambda: tf.nn.relu(v1.placeholder("float32", (3,), "x"), name="a"))
    graph_def.node.add(name="mine", op="MyVeryOwnOp", input=["a"])
    with pytest.raises(UnsupportedError, match="mine: op `MyVeryOwnOp` is unknown"):
        load_graph_def(graph_def, outputs=["mine"])


def test_constant_with_too_little_data():
    graph_def = graph_def_of(lambda: v1.placeholder("float32", (3,), "x") * [1.0, 2.0, 3.0])
    constant = next(n for n in graph_def.node if n.op == "Const")
    constant.attr["value"].tensor.tensor_content = b"\0\0\0\0\0"
    with pytest.raises(LoadError, match=f"{constant.name}: the constant cannot be decoded"):
        load_graph_def(graph_def)


def with_filled_constant(*dims):
    graph_def = graph_def_of(lambda: v1.placeholder("float32", (None, 3), "x") * [1.0, 2.0, 3.0])
    tensor = next(n for n in graph_def.node if n.op == "Const").attr["value"].tensor
    tensor.tensor_content = b""
    tensor.float_val.append(2.5)
    del tensor.tensor_shape.dim[:]
    for size in dims:
        tensor.tensor_shape.dim.add().size = size
    return graph_def


def test_one_value_for_all_stays_one():
    graph = load_graph_def(with_filled_constant(50_000_000, 3))
    (constant,) = (n.attrs["value"] for n in graph.nodes.values() if n.op == "const")
    assert constant.shape == (50_000_000, 3) and constant.strides == (0, 0)
    assert constant[7, 1] == 2.5


def test_giant_made_of_one_value_is_refused():
    with pytest.raises(LoadError, match="a constant of 1,099,511,627,776 elements"):
        load_graph_def(with_filled_constant(2**20, 2**20))


@pytest.mark.parametrize(
    ("size", "take_apart", "op", "number"),
    [
        (None, lambda x: tf.unstack(x, 5), "Unpack", "num"),
        (2**40, lambda x: tf.split(x, 4), "Split", "num_split"),
    ],
)
def test_giant_numbers_of_pieces_make_no_nodes(size, take_apart, op, number):
    """Memory would not be enough for them, so the op stays an op of TensorFlow or gives an
    error.
    """
    graph_def = graph_def_of(lambda: take_apart(v1.placeholder("float32", (size, 3), "x")))
    next(node for node in graph_def.node if node.op == op).attr[number].i = 2**40
    try:
        assert len(load_graph_def(graph_def).nodes) < 100
    except QGraphError as error:
        assert error.message
