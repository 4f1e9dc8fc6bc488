"""A model that cannot be used: a short error that names it, its own exit code, nothing written."""

import json
import shutil

import pytest
import tensorflow as tf
import tf_keras

from tests.helpers.cli import left_in, run, small_network
from tests.helpers.tf_graphs import v1

GOOD = small_network().SerializeToString()
LOAD, GRAPH, UNSUPPORTED, USAGE = 3, 4, 5, 2


def damaged(change):
    graph_def = small_network()
    change(graph_def)
    return graph_def.SerializeToString()


def node(graph_def, name):
    return next(n for n in graph_def.node if n.name == name)


def with_cycle(graph_def):
    node(graph_def, "relu").input[0] = "mean"


def without_input(graph_def):
    graph_def.node.remove(node(graph_def, "relu"))


def with_foreign_op(graph_def):
    node(graph_def, "relu").op = "MyVeryOwnRelu"


FILES = {
    "missing.pb": (None, LOAD, "missing.pb: no such file or directory"),
    "empty.pb": (b"", LOAD, "empty.pb: the file is empty"),
    "random.pb": (bytes(range(255, 0, -1)) * 9, LOAD, "random.pb: not a GraphDef"),
    "cut.pb": (GOOD[:-99], LOAD, "the file may be truncated"),
    "words.pbtxt": (b"once upon a time", LOAD, "words.pbtxt: a text file, but not a GraphDef"),
    "cut.pbtxt": (b'node { name: "x" op: "Pla', LOAD, "cut.pbtxt"),
    "bad.h5": (b"\x89HDF\r\n\x1a\n" + bytes(99), LOAD, "bad.h5: the HDF5 library cannot read it"),
    "bad.keras": (b"PK\x03\x04" + bytes(99), LOAD, "bad.keras: cannot be read"),
    "bad.meta": (b"\xff\xff\xff", LOAD, "bad.index: the checkpoint's file with the list"),
    "cycle.pb": (damaged(with_cycle), GRAPH, "relu: the graph has a cycle: relu -> mean -> relu"),
    "hole.pb": (damaged(without_input), GRAPH, "mean: input `relu` does not exist"),
    "foreign.pb": (damaged(with_foreign_op), UNSUPPORTED, "relu: op `MyVeryOwnRelu`"),
}


def assert_clear_error(done, code, message, folder, entries):
    """Assert a short message on standard error only, and no new file in `folder`."""
    assert done.code == code, done.err
    assert done.err.startswith("error: ") and message in done.err
    assert "Traceback" not in done.err and len(done.err.splitlines()) <= 3
    assert done.out == ""
    assert left_in(folder) == entries


@pytest.mark.parametrize("name", FILES)
def test_file_that_is_no_model(tmp_path, samples, name):
    content, code, message = FILES[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    before = left_in(tmp_path)
    for verb in (
        ["quantize", tmp_path / name, "-c", samples, "-o", tmp_path / "out"],
        ["inspect", tmp_path / name],
    ):
        assert_clear_error(run(*verb), code, message, tmp_path, before)


def test_a_damaged_saved_model(written, samples, tmp_path):
    assert run("export", written, "-f", "tensorflow", "-o", tmp_path / "all").code == 0
    (tmp_path / "all/saved_model").rename(tmp_path / "net")
    shutil.rmtree(tmp_path / "all")
    (tmp_path / "net/saved_model.pb").write_bytes(b"\xff" * 9)
    done = run("quantize", tmp_path / "net", "-c", samples, "-o", tmp_path / "out")
    assert_clear_error(done, LOAD, "net: the SavedModel cannot be read", tmp_path, {"net"})
    (tmp_path / "net/saved_model.pb").unlink()
    done = run("quantize", tmp_path / "net", "-c", samples, "-o", tmp_path / "out")
    assert_clear_error(done, LOAD, "a directory without saved_model.pb", tmp_path, {"net"})


def test_a_file_that_cannot_be_read():
    done = run("inspect", "/proc/self/mem")
    assert done.code == LOAD and "/proc/self/mem: cannot be read" in done.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--inputs", "picture"], "the graph has no input `picture`\n  candidates: `image`"),
        (["--outputs", "klasses"], "the graph has no output `klasses`\n  candidates: `classes`"),
        (["--input-shape", "8;8;3"], "`8;8;3` is not a shape\n  try --input-shape"),
        (["--input-shape", "image=0,8,8,3"], "`image=0,8,8,3` is not a shape"),
        (["--input-shape", "picture=1,8,8,3"], "`picture` is given a shape, but is not an input"),
    ],
)
def test_names_and_shapes_that_are_not_there(model, samples, tmp_path, flags, message):
    for verb in (
        ["quantize", model, "-c", samples, "-o", tmp_path / "out", *flags],
        ["inspect", model, *flags],
    ):
        assert_clear_error(run(*verb), USAGE, message, tmp_path, set())


def test_a_shape_that_the_graph_cannot_have_is_named_at_its_node(model, tmp_path):
    done = run("inspect", model, "--input-shape", "image=1,8,8,5")
    assert_clear_error(done, GRAPH, "first: ", tmp_path, set())


@pytest.mark.parametrize("shape", ["2,8,8,3", "image=2,8,8,3"])
def test_a_shape_needs_no_name_where_there_is_one_input(model, shape):
    done = run("inspect", model, "--input-shape", shape)
    assert done.code == 0 and "float32[2,8,8,3]" in done.out


@pytest.mark.parametrize(
    "flags, named",
    [
        (["--mode", "magic"], "unknown mode `magic`"),
        (["--method", "guess"], "unknown calibration method `guess`"),
        (["--limit", "0"], "--limit"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_usage_errors(model, samples, tmp_path, flags, named):
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "out", *flags)
    assert done.code == USAGE and done.out == "" and left_in(tmp_path) == set()
    assert named in done.err


def test_debug_shows_the_traceback_and_what_caused_the_error(tmp_path):
    (tmp_path / "bad.keras").write_bytes(FILES["bad.keras"][0])
    for arguments in (
        ["--debug", "inspect", tmp_path / "bad.keras"],
        ["inspect", tmp_path / "bad.keras", "--debug"],
    ):
        done = run(*arguments)
        assert done.code == LOAD
        assert "Traceback" in done.err and "LoadError" in done.err
        assert "During handling of the above exception" in done.err  # zipfile's own error
        assert f"error: {tmp_path / 'bad.keras'}: " in done.err


def test_a_bug_is_called_one(model, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("oops [/bold]")

    monkeypatch.setattr("qgraph.frontends.load", broken)
    done = run("inspect", model)
    assert done.code == 70 and "Traceback" not in done.err
    assert "internal error, please report it: ZeroDivisionError: oops [/bold]" in done.err


def test_names_with_brackets_come_through(tmp_path):
    name = tmp_path / "[red]net[/].pb"
    done = run("inspect", name)
    assert f"error: {name}: no such file" in done.err


def test_a_checkpoint_by_its_prefix(tmp_path, samples):
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        x = v1.placeholder("float32", (None, 8, 8, 3), "image")
        w = v1.get_variable("w", initializer=tf.ones((1, 1, 3, 2)))
        tf.nn.conv2d(x, w, 1, "SAME", name="y")
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "net"))
    hashes = set()
    for name in ("net", "net.meta"):
        out = tmp_path / f"{name}-out"
        done = run("quantize", tmp_path / name, "-c", samples, "-o", out, "--json")
        assert done.code == 0, done.err
        hashes.add(json.loads(done.out)["model_sha256"])
    assert len(hashes) == 1
    (tmp_path / "net.data-00000-of-00001").unlink()
    done = run("quantize", tmp_path / "net", "-c", samples, "-o", tmp_path / "again")
    assert done.code == LOAD and "net.data" in done.err and not (tmp_path / "again").exists()


def test_keras_file_with_code_asks_for_trust(tmp_path):
    layers = tf_keras.layers
    x = layers.Input((4,), name="x")
    doubled = layers.Lambda(lambda t: t * 2, name="mine")(x)
    tf_keras.Model(x, layers.Dense(2)(doubled)).save(tmp_path / "m.keras")
    refused = run("inspect", tmp_path / "m.keras")
    assert_clear_error(refused, LOAD, "`Lambda` (layer `mine`)", tmp_path, left_in(tmp_path))
    assert "--trust" in refused.err and "model.export" in refused.err
    assert run("inspect", tmp_path / "m.keras", "--trust").code == 0
