"""Training data in each form gives the same batches, from any step on."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import CalibrationError
from qgraph.ir.graph import Graph
from qgraph.train.data import LabelledBatch, training_data

X = np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
Y = np.arange(20) % 3


@pytest.fixture
def graph():
    made = Graph("net")
    made.outputs["y"] = made.add("relu", made.input("x", "float32", (None, 4)))
    return made


def in_order(data) -> tuple[np.ndarray, np.ndarray | None]:
    found = list(data.batches(None))
    labels = [batch.labels for batch in found]
    joined = None if labels[0] is None else np.concatenate(labels)
    return np.concatenate([batch.inputs["x"] for batch in found]), joined


def forms(folder) -> dict:
    np.savez(folder / "both.npz", x=X, labels=Y)
    np.savez(folder / "any_name.npz", image=X, y=Y)
    np.savez_compressed(folder / "small.npz", x=X, label=Y)
    batched = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    batched.save(str(folder / "saved"))
    (folder / "givesdata.py").write_text(
        "import numpy as np, tensorflow as tf\n"
        "def dataset():\n"
        f"    found = np.load({str(folder / 'both.npz')!r})\n"
        "    return tf.data.Dataset.from_tensor_slices(({'x': found['x']}, found['labels']))\n"
        "def arrays():\n"
        f"    return dict(np.load({str(folder / 'both.npz')!r}))\n"
        "def wrong():\n    raise ValueError('nothing here')\n"
    )
    return {
        "npz": folder / "both.npz",
        "npz of any name": folder / "any_name.npz",
        "compressed": folder / "small.npz",
        "pair": (X, Y),
        "named pair": ({"x": X}, Y),
        "arrays": {"x": X, "labels": Y},
        "dataset": tf.data.Dataset.from_tensor_slices((X, Y)),
        "batched dataset": batched,
        "saved dataset": folder / "saved",
        "function": "givesdata:dataset",
        "function of arrays": "givesdata:arrays",
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    sys.path.insert(0, str(folder))
    yield forms(folder)
    sys.path.remove(str(folder))


@pytest.mark.parametrize(
    "form",
    ["npz", "npz of any name", "compressed", "pair", "named pair", "arrays", "dataset",
     "batched dataset", "saved dataset", "function", "function of arrays"],
)  # fmt: skip
def test_each_form_holds_the_same(made, graph, form):
    data = training_data(made[form], graph, 8, 0)
    assert data.labelled
    x, y = in_order(data)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)
    assert [len(batch.labels) for batch in data.batches(None)] == [8, 8, 4]


@pytest.mark.parametrize("form", [X, {"x": X}, tf.data.Dataset.from_tensor_slices(X)], ids=str)
def test_there_need_not_be_labels(graph, form):
    data = training_data(form, graph, 8, 0)
    assert not data.labelled
    x, y = in_order(data)
    np.testing.assert_array_equal(x, X)
    assert y is None


def test_arrays_are_shuffled_by_seed_and_epoch(graph):
    def epoch(seed: int, number: int, start: int = 0) -> list[LabelledBatch]:
        return list(training_data((X, Y), graph, 8, seed).batches(number, start))

    def labels(found: list[LabelledBatch]) -> list:
        return [batch.labels.tolist() for batch in found]

    assert labels(epoch(0, 0)) == labels(epoch(0, 0))
    assert labels(epoch(0, 0)) != labels(epoch(0, 1)) != labels(epoch(1, 1))
    assert labels(epoch(3, 2))[1:] == labels(epoch(3, 2, start=1))
    for batch in epoch(0, 0):  # whole batches; inputs and labels stay together
        assert len(batch.labels) == 8
        rows = [np.flatnonzero((x == X).all(axis=1))[0] for x in batch.inputs["x"]]
        assert (Y[rows] == batch.labels).all()


def test_a_dataset_continues_in_the_middle(graph):
    data = training_data(tf.data.Dataset.from_tensor_slices((X, Y)).batch(8), graph, 1, 0)
    whole, rest = list(data.batches(0)), list(data.batches(0, start=1))
    assert data.steps == 3
    assert [b.labels.tolist() for b in whole[1:]] == [b.labels.tolist() for b in rest]


def test_a_generator_has_no_length(graph):
    dataset = tf.data.Dataset.from_generator(
        lambda: iter([(X[:8], Y[:8])] * 3),
        output_signature=(tf.TensorSpec((None, 4)), tf.TensorSpec((None,), tf.int64)),
    )
    data = training_data(dataset, graph, 1, 0)
    assert data.steps is None
    assert len(list(data.batches(0))) == 3


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.npz", "no such file"),
        ("no_module_of_this_name:data", "failed: No module named"),
        ("givesdata:wrong", "failed: nothing here"),
        ((X, Y[:3]), "there are 3 labels for 20 samples"),
        ({"a": X, "b": X}, "no array for input `x`"),
        (X[:, :3], "training data has shape"),
        (np.where(X > 2, np.nan, X), "training data contains NaN"),
        (X[:0], "the array has no samples"),
        (tf.data.Dataset.from_tensor_slices((X, Y)).repeat(), "repeats without end"),
    ],
    ids=str,
)
def test_wrong_training_data_is_reported(made, graph, source, message):
    with pytest.raises(CalibrationError, match=message):
        training_data(source, graph, 8, 0)


def test_a_directory_that_is_no_dataset(tmp_path, graph):
    with pytest.raises(CalibrationError, match=r"tf\.data\.Dataset\.save"):
        training_data(tmp_path, graph, 8, 0)


def test_a_batch_with_nan_is_found_when_it_comes(graph):
    bad = np.where(np.arange(20)[:, None] == 12, np.nan, X)
    data = training_data(tf.data.Dataset.from_tensor_slices((bad, Y)), graph, 8, 0)
    found = data.batches(0)
    next(found)
    with pytest.raises(CalibrationError, match="contains NaN or infinity, first at"):
        next(found)


@pytest.mark.parametrize(
    "form", [(X, Y, Y), tf.data.Dataset.from_tensor_slices((X, Y, Y))], ids=str
)
def test_weights_of_samples_are_refused(graph, form):
    with pytest.raises(CalibrationError, match="tuple"):
        training_data(form, graph, 8, 0)


def test_single_samples_are_recognised_by_the_input_of_that_name():
    graph = Graph("net")
    graph.outputs["y"] = graph.add("relu", graph.input("z", "float32", (None, 4)))
    graph.outputs["b"] = graph.add("relu", graph.input("a", "float32", (None, 2, 2, 1)))
    images = np.zeros((20, 2, 2, 1), "float32")
    data = training_data(tf.data.Dataset.from_tensor_slices({"z": X, "a": images}), graph, 8, 0)
    shapes = [{n: a.shape for n, a in batch.inputs.items()} for batch in data.batches(0)]
    assert shapes[0] == {"z": (8, 4), "a": (8, 2, 2, 1)}
