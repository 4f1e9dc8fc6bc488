"""Calibration data that cannot be used: the file or input is named, and what to do."""

import json
import zipfile

import numpy as np
import pytest

from qgraph.errors import CalibrationError
from tests.helpers.cli import left_in, run, typical_images

CALIBRATION = 6
X = typical_images(4)
NO_DATA = "calibration data is missing, and the network has no batch norms to replace it\n  give a"


def with_nan():
    x = X.copy()
    x[2, 1, 0, 0] = np.nan
    return x


ARRAYS = {
    "shape": (X[..., :2], r"has shape (4, 8, 8, 2), but the input is float32[?,8,8,3]"),
    "one image": (X[0], "give an array of shape (samples, 8, 8, 3): this is one sample"),
    "channels first": (X.transpose(0, 3, 1, 2), "numpy.moveaxis(array, 1, -1) moves them"),
    "flat": (X.reshape(len(X), -1), "array.reshape(-1, 8, 8, 3) fits, if the order is right"),
    "nan": (with_nan(), "contains NaN or infinity, first at [2, 1, 0, 0]"),
    "infinity": (np.where(X > 0.5, np.inf, X), "contains NaN or infinity"),
    "past float32": (X.astype("float64") * 1e300, "contains NaN or infinity"),
    "zeros": (np.zeros_like(X), "all zeros"),
    "none": (X[:0], "the array has no samples"),
    "complex": (X.astype("complex64"), "of dtype complex64, not numbers"),
    "text": (np.full(X.shape, "a"), "not numbers"),
}


FAILED_DOWNLOADS = {
    "page.npz": (b"<!DOCTYPE html>\n<html>", "a web page (HTML), not the file itself"),
    "page.npy": (b"\n  <HTML><body>", "a web page (HTML), not the file itself"),
    "pointer.npz": (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
}


@pytest.mark.parametrize("name", FAILED_DOWNLOADS)
def test_what_a_failed_download_left_is_named(model, tmp_path, name):
    content, message = FAILED_DOWNLOADS[name]
    (tmp_path / name).write_bytes(content)
    done = quantized(model, tmp_path / name, tmp_path)
    assert done.code == CALIBRATION and f"{name}: {message}" in done.err.replace("\n", " ")


def quantized(model, source, tmp_path, *flags):
    return run("quantize", model, "-c", source, "-o", tmp_path / "out", *flags)


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays(model, tmp_path, case):
    array, message = ARRAYS[case]
    np.save(tmp_path / "x.npy", array)
    done = quantized(model, tmp_path / "x.npy", tmp_path)
    assert done.code == CALIBRATION and "error: input image: " in done.err and message in done.err
    assert "Traceback" not in done.err and left_in(tmp_path) == {"x.npy"}


def cut_npz(path):
    np.savez_compressed(path, image=X)
    path.write_bytes(path.read_bytes()[:-200])


def rotten_npz(path):
    np.savez_compressed(path, image=X)
    content = bytearray(path.read_bytes())
    content[200:400] = bytes(200)
    path.write_bytes(content)


FILES = {
    "cut.npz": cut_npz,
    "rotten.npz": rotten_npz,
    "empty.npz": lambda path: path.write_bytes(b""),
    "words.npy": lambda path: path.write_text("not an array"),
    "half.npy": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'"),
    "object.npy": lambda path: np.save(path, np.array([{}], object), allow_pickle=True),
    "zip.npz": lambda path: zipfile.ZipFile(path, "w").close(),
}


@pytest.mark.parametrize("name", FILES)
def test_files(model, tmp_path, name):
    FILES[name](tmp_path / name)
    done = quantized(model, tmp_path / name, tmp_path)
    assert done.code == CALIBRATION and name in done.err, done.err
    assert "Traceback" not in done.err and left_in(tmp_path) == {name}


def test_images_are_not_arrays(model, tmp_path):
    folder = tmp_path / "photos"
    (folder / "cats").mkdir(parents=True)
    (folder / "cats/1.JPG").write_bytes(b"\xff\xd8\xff")
    for given, message in ((folder, "a directory of images, "), (folder / "cats/1.JPG", "")):
        done = quantized(model, given, tmp_path)
        assert done.code == CALIBRATION and f"{given.name}: {message}" in done.err
        assert "prepare the images as for training" in done.err


def test_a_directory_is_no_data(model, tmp_path):
    done = quantized(model, tmp_path, tmp_path / "sub")
    assert done.code == CALIBRATION and f"{tmp_path}: a directory without .npz files" in done.err


def test_no_data_and_no_such_file(model, tmp_path):
    done = run("quantize", model, "-o", tmp_path / "out")
    assert done.code == CALIBRATION and NO_DATA in done.err
    done = quantized(model, "gone.npz", tmp_path)
    assert done.code == CALIBRATION and "gone.npz: no such file" in done.err
    assert left_in(tmp_path) == set()


def test_arrays_are_found_by_the_names_of_inputs(model, tmp_path):
    np.savez(tmp_path / "two.npz", left=X, right=X)
    done = quantized(model, tmp_path / "two.npz", tmp_path)
    assert done.code == CALIBRATION
    assert "no array for input `image`: found ['left', 'right']" in done.err


def test_samples_fill_batches(model, tmp_path):
    np.save(tmp_path / "x.npy", X)
    done = quantized(model, tmp_path / "x.npy", tmp_path, "--input-shape", "3,8,8,3")
    assert done.code == CALIBRATION and "4 samples are not a multiple of 3" in done.err


# -- from Python -------------------------------------------------------------------------------

SOURCE = """
import numpy as np
import tensorflow as tf

IMAGES = np.random.default_rng(1).random((16, 8, 8, 3), dtype="float32")

def dataset():
    print("noise on standard output")
    return tf.data.Dataset.from_tensor_slices((IMAGES, np.arange(16))).batch(5)

def by_name():
    return tf.data.Dataset.from_tensor_slices({"image": IMAGES}).batch(4)

def endless():
    return tf.data.Dataset.from_tensor_slices(IMAGES).batch(8).repeat()

def arrays():
    return {"image": IMAGES}

def batches():
    return [IMAGES[:8], IMAGES[8:]]

def single():
    return tf.data.Dataset.from_tensor_slices(IMAGES)

def empty():
    return []

def broken():
    raise RuntimeError("the camera is off")

def broken_later():
    yield IMAGES
    raise RuntimeError("the camera went off")

def number():
    return 5
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a module of calibration data, which is forgotten after the test."""
    folder = tmp_path / "here"
    folder.mkdir()
    name = f"calibration_of_{abs(hash(tmp_path))}"
    (folder / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(folder)
    return name


@pytest.mark.parametrize("function", ["dataset", "by_name", "arrays", "batches"])
def test_entry_point_in_the_current_directory(model, written, here, tmp_path, function):
    done = quantized(model, f"{here}:{function}", tmp_path, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["calibration_samples"] == 12  # what it prints is kept off
    assert (tmp_path / "out/graph.txt").read_text() == (written / "graph.txt").read_text()


def test_a_dataset_without_an_end_is_read_up_to_the_limit(model, here, tmp_path):
    done = quantized(model, f"{here}:endless", tmp_path, "--limit", "12", "--json")
    assert done.code == 0 and json.loads(done.out)["calibration_samples"] == 9


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("broken", "failed: the camera is off"),
        ("broken_later", "failed: the camera went off"),
        ("missing", "has no attribute 'missing'"),
        ("number", "failed: 'int' object is not iterable"),
        ("empty", "it returned no data"),
        ("single", "has shape"),
    ],
)
def test_entry_point_that_fails(model, here, tmp_path, function, message):
    done = quantized(model, f"{here}:{function}", tmp_path)
    assert done.code == CALIBRATION and message in done.err, done.err
    assert "Traceback" not in done.err and not (tmp_path / "out").exists()
    done = quantized(model, f"{here}:broken", tmp_path, "--debug")
    assert done.code == CALIBRATION and "Traceback" in done.err and "in broken" in done.err


def test_module_that_is_not_there(model, tmp_path):
    done = quantized(model, "no_such_module_at_all:f", tmp_path)
    assert done.code == CALIBRATION and "No module named 'no_such_module_at_all'" in done.err


# -- integer inputs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "fits"),
    [
        (np.array([[1.0, 200.0]]), True),
        (np.array([[1, 255]]), True),
        (np.array([[0.5, 1.0]]), False),
        (np.array([[-1, 1]]), False),
        (np.array([[256, 1]]), False),
    ],
)
def test_numbers_for_an_integer_input(array, fits):
    from qgraph.ir.graph import Graph
    from qgraph.quant.samples.data import load_data

    graph = Graph("g")
    graph.input("x", "uint8", (None, 2))
    if fits:
        assert load_data(array, graph)["x"].tolist() == array.tolist()
    else:
        with pytest.raises(CalibrationError, match="some of its numbers do not fit uint8"):
            load_data(array, graph)
