"""Calibration data: read, checked, cut into chunks."""

import mmap
import sys
import types

import numpy as np
import pytest

import qgraph.quant.samples.data
from qgraph.errors import CalibrationError
from qgraph.ir.graph import Graph
from qgraph.quant.samples.data import CHUNK, chunk_inputs, load_data

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
        (
            IMAGES[0],
            r"x: calibration data has shape \(4, 4, 3\), but the input is float32\[\?,4,4,3\]",
        ),
        (IMAGES[:, :3], r"x: calibration data has shape \(10, 3, 4, 3\)"),
        (IMAGES[:0], "x: the array has no samples"),
        (np.where(np.arange(3) == 1, np.nan, IMAGES), "x: calibration data contains NaN"),
        (np.full_like(IMAGES, np.inf), "x: calibration data contains NaN or infinity"),
        (np.zeros_like(IMAGES), "x: calibration data is all zeros"),
        (IMAGES.astype(complex), "x: calibration data is of dtype complex128"),
    ],
)
def test_what_does_not_fit_is_named(array, complaint):
    with pytest.raises(CalibrationError, match=complaint):
        load_data(array, net())


def test_samples_have_to_fill_fixed_batches():
    assert_images(load_data(IMAGES, net(batch=5)))
    with pytest.raises(CalibrationError, match="x: 10 samples are not a multiple of 4"):
        load_data(IMAGES, net(batch=4))


def test_no_data():
    with pytest.raises(CalibrationError, match="calibration data is missing"):
        load_data(None, net())


@pytest.mark.parametrize(
    ("batch", "sizes"), [(None, [CHUNK, 10 - CHUNK]), (5, [5, 5]), (1, [1] * 10)]
)
def test_chunks_are_the_samples_in_order(batch, sizes):
    chunks = chunk_inputs(net(batch=batch), {"x": IMAGES.astype(np.float64)})["x"]
    assert [len(c) for c in chunks] == sizes
    assert np.array_equal(np.concatenate(chunks), IMAGES) and chunks[0].dtype == np.float32
    assert np.array_equal(np.concatenate(chunks[:1]), IMAGES[: sizes[0]])


def test_a_network_without_inputs_has_nothing_to_calibrate():
    graph = Graph("constant")
    graph.outputs["y"] = graph.const(np.ones(3, np.float32))
    with pytest.raises(CalibrationError, match="no inputs"):
        load_data({}, graph)


# -- data that need not fit memory -------------------------------------------------------------


def is_mapped(array: np.ndarray) -> bool:
    base = array
    while base is not None and not isinstance(base, (np.memmap, mmap.mmap, memoryview)):
        base = base.base
    return base is not None


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f4", ">f4", "f8", "f2"])
def test_arrays_of_archives_are_mapped(tmp_path, save, order, dtype):
    x = np.asarray(np.round(IMAGES, 2), dtype, order=order)
    save(tmp_path / "a.npz", odd=np.zeros(3, bool), x=x)
    found = load_data(tmp_path / "a.npz", net("x"))["x"]
    assert np.array_equal(found, x) and is_mapped(found)
    chunks = chunk_inputs(net(), {"x": found})["x"]
    assert np.array_equal(np.concatenate(chunks), x.astype(np.float32))
    assert all(c.flags.aligned and c.flags.c_contiguous for c in chunks)


def test_arrays_of_files_are_mapped(tmp_path):
    np.save(tmp_path / "a.npy", IMAGES)
    assert is_mapped(load_data(tmp_path / "a.npy", net(), limit=4)["x"])


def test_what_is_not_asked_for_is_not_opened(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=IMAGES, labels=np.array([{}], object))
    assert_images(load_data(tmp_path / "a.npz", net("x")))


@pytest.mark.parametrize("place", [0, 5, 9])
def test_every_slice_is_checked(monkeypatch, place):
    monkeypatch.setattr(qgraph.quant.samples.data, "CHECKED_BYTES", 3 * IMAGES[0].nbytes)
    assert_images(load_data(IMAGES, net()))
    bad = IMAGES.copy()
    bad[place, 1, 2, 0] = np.nan
    with pytest.raises(CalibrationError, match=rf"first at \[{place}, 1, 2, 0\]"):
        load_data(bad, net())
    only = np.zeros_like(IMAGES)
    only[place] = 1
    load_data(only, net())


def test_batches_of_one_kind_are_joined(module):
    read = []
    module.load = lambda: [IMAGES[:4], IMAGES[4:5], IMAGES[5:].astype(np.float16)]
    found = load_data("calibration_of_test:load", net(), None, read.append)["x"]
    assert is_mapped(found) and found.dtype == np.float32 and read == [4, 5, 10]
    halves = IMAGES[5:].astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(found, np.concatenate([IMAGES[:5], halves]))


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        (IMAGES[:, :3], r"batches differ: float32 \[3, 4, 3\] after float32 \[4, 4, 3\]"),
        (IMAGES.astype(np.float64), "batches differ: float64"),
        (np.full((1, 4, 4, 3), "a"), "dtype <U1, which is not numeric"),
    ],
)
def test_batches_that_differ(module, second, complaint):
    module.load = lambda: iter([IMAGES, second])
    with pytest.raises(CalibrationError, match=complaint):
        load_data("calibration_of_test:load", net())


def test_a_number_instead_of_samples(tmp_path):
    np.savez(tmp_path / "a.npz", a=IMAGES, b=np.float32(3))
    with pytest.raises(CalibrationError, match="calibration data for `b` is a single number"):
        load_data(tmp_path / "a.npz", net("a", "b"))


def test_a_directory_is_read_file_by_file(tmp_path):
    np.savez(tmp_path / "2.npz", x=IMAGES[4:], labels=np.arange(6))
    np.savez(tmp_path / "1.npz", x=IMAGES[:4], labels=np.arange(4))
    assert_images(load_data(tmp_path, net()))
    assert_images(load_data(str(tmp_path), net(), limit=3), 3)


def test_inputs_of_a_fixed_and_of_a_free_batch_are_split_in_the_same_way() -> None:
    graph = Graph("net")
    graph.input("a", "float32", (2, 3))
    graph.input("b", "float32", (None, 3))
    data = load_data({name: np.ones((6, 3), np.float32) for name in "ab"}, graph)
    assert {name: len(part) for name, part in chunk_inputs(graph, data).items()} == {"a": 3, "b": 3}


def test_inputs_of_two_batch_sizes_are_refused() -> None:
    graph = Graph("net")
    graph.input("a", "float32", (1, 3))
    graph.input("b", "float32", (2, 3))
    with pytest.raises(CalibrationError, match="batches of different sizes"):
        load_data({name: np.ones((6, 3), np.float32) for name in "ab"}, graph)


def test_a_path_that_is_too_long_is_no_file() -> None:
    with pytest.raises(CalibrationError, match="no such file"):
        load_data("x" * 5000, net())


def test_a_directory_of_single_numbers_is_named(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", x=3.0)
    with pytest.raises(CalibrationError, match="single numbers"):
        load_data(tmp_path, net())
