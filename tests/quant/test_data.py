"""Calibration data: read, checked, cut into chunks."""

import sys
import types

import numpy as np
import pytest

from qgraph.errors import CalibrationError
from qgraph.ir.graph import Graph
from qgraph.quant.data import CHUNK, chunk_inputs, load_data

IMAGES = np.random.default_rng(0).normal(size=(10, 4, 4, 3)).astype(np.float32)


def net(*names: str, batch: int | None = None) -> Graph:
    g = Graph("net")
    for name in names or ("x",):
        g.input(name, "float32", (batch, 4, 4, 3))
    return g


@pytest.fixture
def module(monkeypatch):
    made = types.ModuleType("calibration_of_test")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def assert_images(found, count: int = 10) -> None:
    assert list(found) == ["x"]
    assert np.array_equal(found["x"], IMAGES[:count])


def test_files_and_arrays(tmp_path):
    np.save(tmp_path / "a.npy", IMAGES)
    np.savez(tmp_path / "a.npz", whatever=IMAGES)
    for source in (tmp_path / "a.npy", str(tmp_path / "a.npz"), IMAGES, {"any": IMAGES}):
        assert_images(load_data(source, net()))
        assert_images(load_data(source, net(), limit=3), 3)


def test_several_inputs_go_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", b=IMAGES, a=IMAGES[::-1], labels=np.arange(10))
    found = load_data(tmp_path / "a.npz", net("a", "b"))
    assert list(found) == ["a", "b"] and np.array_equal(found["a"], IMAGES[::-1])
    with pytest.raises(
        CalibrationError, match=r"no array for input `c`: found \['a', 'b', 'labels'\]"
    ):
        load_data(tmp_path / "a.npz", net("a", "c"))
    with pytest.raises(CalibrationError, match="different sample counts"):
        load_data({"a": IMAGES, "b": IMAGES[:5]}, net("a", "b"))


@pytest.mark.parametrize("form", ["arrays", "labelled", "named", "generator", "array", "mapping"])
def test_entry_points(module, form):
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(IMAGES)
    module.load = {
        "arrays": lambda: dataset.batch(4),
        "labelled": lambda: dataset.map(lambda x: (x, 1)).batch(4),
        "named": lambda: dataset.map(lambda x: {"x": x}).batch(4),
        "generator": lambda: (IMAGES[i : i + 3] for i in range(0, 10, 3)),
        "array": lambda: IMAGES,
        "mapping": lambda: {"x": IMAGES},
    }[form]
    assert_images(load_data("calibration_of_test:load", net()))


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (IMAGES[0], r"x: calibration data has shape \(4, 4, 3\), the input is float32\[\?,4,4,3\]"),
        (IMAGES[:, :3], r"x: calibration data has shape \(10, 3, 4, 3\)"),
        (IMAGES[:0], "x: there are no samples"),
        (np.where(np.arange(3) == 1, np.nan, IMAGES), "x: calibration data holds NaN"),
        (np.full_like(IMAGES, np.inf), "x: calibration data holds NaN or infinity"),
        (np.zeros_like(IMAGES), "x: calibration data is all zeros"),
        (IMAGES.astype(complex), "x: calibration data is of dtype complex128"),
    ],
)
def test_what_does_not_fit_is_named(array, complaint):
    with pytest.raises(CalibrationError, match=complaint):
        load_data(array, net())


def test_samples_have_to_fill_fixed_batches():
    assert_images(load_data(IMAGES, net(batch=5)))
    with pytest.raises(CalibrationError, match="x: 10 samples do not fill batches of 4"):
        load_data(IMAGES, net(batch=4))


def test_no_data():
    with pytest.raises(CalibrationError, match="there is no calibration data"):
        load_data(None, net())


@pytest.mark.parametrize(
    ("batch", "sizes"), [(None, [CHUNK, 10 - CHUNK]), (5, [5, 5]), (1, [1] * 10)]
)
def test_chunks_are_the_samples_in_order(batch, sizes):
    chunks = chunk_inputs(net(batch=batch), {"x": IMAGES.astype(np.float64)})["x"]
    assert [len(c) for c in chunks] == sizes
    assert np.array_equal(np.concatenate(chunks), IMAGES) and chunks[0].dtype == np.float32


def test_a_network_without_inputs_has_nothing_to_calibrate():
    graph = Graph("constant")
    graph.outputs["y"] = graph.const(np.ones(3, np.float32))
    with pytest.raises(CalibrationError, match="no inputs"):
        load_data({}, graph)
