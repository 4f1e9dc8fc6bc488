"""Variables come from the checkpoint by name; nothing that a file asks to be run is run."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import GraphError, LoadError
from qgraph.frontends import load, load_graph_def
from qgraph.interpret import evaluate
from tests.helpers.tf_graphs import v1

X = np.random.default_rng(0).standard_normal((2, 8)).astype("float32")


def result_of(graph, x=X):
    return next(iter(evaluate(graph, {graph.inputs[0]: x}).values()))


class SharedFunction(tf.Module):
    """One function called with two variables of the same name."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (tf.Variable(tf.random.normal([8]), name="v") for _ in range(2))

    @tf.function
    def times(self, x, v):
        return x * v

    @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, "x")])
    def infer(self, x):
        return {"y": self.times(self.times(x, self.first) + 1.0, self.second)}


def test_a_function_called_with_different_variables(tmp_path):
    module = SharedFunction()
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.infer})
    graph = load(tmp_path)
    assert graph.inputs == ["x"] and list(graph.outputs) == ["y"]
    np.testing.assert_array_equal(result_of(graph), module.infer(X)["y"])


@pytest.fixture
def trained():
    """A TF1 session whose variables are stored in parts, its input and its output."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(0)
        x = v1.placeholder("float32", (None, 8), "x")
        rows = v1.get_variable(
            "rows", (8, 6), partitioner=v1.fixed_size_partitioner(3), use_resource=False
        )
        columns = v1.get_variable(
            "columns", (6, 4), partitioner=v1.fixed_size_partitioner(2, axis=1), use_resource=True
        )
        y = tf.matmul(x, tf.convert_to_tensor(rows))
        y = tf.matmul(y, tf.convert_to_tensor(columns), name="y")
        session.run(v1.global_variables_initializer())
        yield session, x, y


def saved_twice(folder, session, x, y, **options):
    """The same network as a SavedModel and as a checkpoint."""
    builder = v1.saved_model.Builder(str(folder / "saved"))
    signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
    builder.add_meta_graph_and_variables(
        session, ["serve"], {"serving_default": signature}, **options
    )
    builder.save()
    v1.train.Saver().save(session, str(folder / "net"))
    return folder / "saved", folder / "net.meta"


def test_variables_in_parts(tmp_path, trained):
    session, x, y = trained
    expected = session.run(y, {x: X})
    for path in saved_twice(tmp_path, session, x, y):
        np.testing.assert_allclose(result_of(load(path)), expected, rtol=1e-6)


def test_initializers_and_restore_ops_are_not_run(tmp_path, trained):
    session, x, y = trained
    expected, written = session.run(y, {x: X}), tmp_path / "written"
    writes = tf.io.write_file(str(written), "x", name="writes")
    saved, meta = saved_twice(tmp_path, session, x, y, main_op=writes)
    message = v1.MetaGraphDef.FromString(meta.read_bytes())
    name = message.saver_def.restore_op_name
    next(n for n in message.graph_def.node if n.name == name).input.append("^writes")
    meta.write_bytes(message.SerializeToString())
    for path in (saved, meta):
        np.testing.assert_allclose(result_of(load(path)), expected, rtol=1e-6)
    assert not written.exists()
    with tf.Graph().as_default(), v1.Session() as other:  # it would have been written
        v1.saved_model.load(other, ["serve"], str(saved))
    assert written.exists()


@pytest.mark.parametrize(
    ("size", "dtype", "message"),
    [
        (7, "float32", r"variable `v` has shape \[7\] in the checkpoint, the graph has \[8\]"),
        (8, "float64", "variable `v` has another dtype in the checkpoint"),
        (None, "float32", "variable `v` is not in the checkpoint"),
    ],
)
def test_checkpoint_of_another_network(tmp_path, size, dtype, message):
    def save(name, variable, length, kind):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(kind, (None, length), "x")
            v = v1.get_variable(variable, (length,), dtype=kind, use_resource=False)
            tf.multiply(x, v, name="y")
            session.run(v1.global_variables_initializer())
            v1.train.Saver().save(session, str(tmp_path / name))

    save("net", "v", 8, "float32")
    save("other", "v" if size else "w", size or 8, dtype)
    (tmp_path / "net.meta").replace(tmp_path / "other.meta")
    with pytest.raises(LoadError, match=message):
        load(tmp_path / "other.meta")


# -- calls -------------------------------------------------------------------------------------


def doubling(levels, body="AddV2"):
    """Functions that call the next one twice: 2^levels nodes once all is written out."""
    graph_def = v1.GraphDef()
    node = graph_def.node.add(name="x", op="Placeholder")
    node.attr["dtype"].type = 1
    node.attr["shape"].shape.dim.add().size = 3
    for level in range(levels):
        function = graph_def.library.function.add()
        function.signature.name = f"f{level}"
        function.signature.input_arg.add(name="a", type=1)
        function.signature.output_arg.add(name="r", type=1)
        for i, source in enumerate(("a", "call0:output:0")):
            call = function.node_def.add(name=f"call{i}", op="PartitionedCall", input=[source])
            call.attr["f"].func.name = f"f{level + 1}"
            for key in ("Tin", "Tout"):
                call.attr[key].list.type.append(1)
        function.ret["r"] = "call1:output:0"
    last = graph_def.library.function.add()
    last.signature.name = f"f{levels}"
    last.signature.input_arg.add(name="a", type=1)
    last.signature.output_arg.add(name="r", type=1)
    add = last.node_def.add(name="add", op=body, input=["a", "a"])
    add.attr["T"].type = 1
    last.ret["r"] = "add:z:0"
    call = graph_def.node.add(name="y", op="PartitionedCall", input=["x"])
    call.attr["f"].func.name = "f0"
    for key in ("Tin", "Tout"):
        call.attr[key].list.type.append(1)
    return graph_def


def test_calls_within_calls():
    graph = load_graph_def(doubling(3))
    np.testing.assert_array_equal(result_of(graph, np.ones(3, "float32")), [256.0] * 3)


def test_calls_that_double_at_every_level(monkeypatch):
    monkeypatch.setattr("qgraph.frontends.tf.inline.MAX_NODES", 3000)
    with pytest.raises(GraphError, match="more than 3,000 nodes"):
        load_graph_def(doubling(60))


def test_an_op_that_is_not_known_inside_a_function():
    with pytest.raises(GraphError, match="op `Unheard` is unknown"):
        load_graph_def(doubling(1, body="Unheard"))


def test_tensorflow_warns_of_nothing(tmp_path, monkeypatch, caplog):
    """Users would see a warning that TensorFlow gives about qgraph's calls."""
    from tensorflow.python.util import deprecation

    module = tf.Module()
    module.v = tf.Variable([1.0])
    module.f = tf.function(lambda x: x * module.v, input_signature=[tf.TensorSpec((1,))])
    tf.saved_model.save(module, str(tmp_path), signatures=module.f)
    monkeypatch.setattr(deprecation, "_PRINTED_WARNING", {})  # each is printed once per process
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    load(tmp_path)
    assert not caplog.records
