"""Images as training data: from directories and TFRecords, and the example for ImageNet."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import CalibrationError, UsageError
from qgraph.frontends import load_keras
from qgraph.train.data import training_data
from qgraph.train.images import Preprocessing, image_directory, image_records
from qgraph.train.task import WorkerTask
from tests.helpers.cli import run
from tests.helpers.retraining import keras_network
from tests.helpers.sources import needs_sources

EXAMPLE = Path(__file__).parents[2] / "examples" / "imagenet"
CLASSES, EACH, SIZE = 5, 16, 8
EXACT = Preprocessing(SIZE, SIZE)


def picture(label: int, number: int) -> np.ndarray:
    """Pixels [8, 8, 3] whose mean shows the class."""
    rng = np.random.default_rng([label, number])
    return np.clip(rng.normal(50 * label + 20, 20, (SIZE, SIZE, 3)), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """`train` and `val` with directories of classes."""
    place = tmp_path_factory.mktemp("images")
    for part, count, first in (("train", EACH, 0), ("val", 8, 100)):
        for label in range(CLASSES):
            (place / part / f"n{label}").mkdir(parents=True)
            for i in range(count):
                content = tf.io.encode_png(picture(label, first + i)).numpy()
                (place / part / f"n{label}" / f"{i:02}.png").write_bytes(content)
    (place / "train" / "n0" / "readme.txt").write_text("not an image")
    return place


@pytest.fixture(scope="module")
def records(folder, tmp_path_factory) -> Path:
    """The same images as TFRecords, in which classes begin at 1."""
    place = tmp_path_factory.mktemp("records")
    for part, name in (("train", "train"), ("val", "validation")):
        files = sorted((folder / part).glob("*/*.png"))
        for shard in range(2):
            path = place / f"{name}-{shard:05}-of-00002"
            with tf.io.TFRecordWriter(str(path)) as writer:
                for file in files[shard::2]:
                    features = {
                        "image/encoded": bytes_of(file.read_bytes()),
                        "image/class/label": number_of(int(file.parent.name[1:]) + 1),
                    }
                    made = tf.train.Example(features=tf.train.Features(feature=features))
                    writer.write(made.SerializeToString())
    return place


def bytes_of(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def number_of(value: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def samples(dataset) -> tuple[np.ndarray, np.ndarray]:
    images, labels = zip(*dataset.as_numpy_iterator(), strict=True)
    return np.stack(images), np.array(labels)


# -- reading ----------------------------------------------------------------------------------


def test_a_directory_in_order(folder) -> None:
    images, labels = samples(image_directory(folder / "train", EXACT))
    np.testing.assert_array_equal(labels, np.repeat(range(CLASSES), EACH))
    wanted = [picture(label, i) for label in range(CLASSES) for i in range(EACH)]
    np.testing.assert_array_equal(images, np.array(wanted, np.float32))


def test_an_order_for_each_epoch(folder, records) -> None:
    for made in (
        lambda epoch: image_directory(folder / "train", EXACT, epoch=epoch),
        lambda epoch: image_records(str(records / "train-*"), EXACT, first_label=1, epoch=epoch),
    ):
        first, again, second = (samples(made(epoch))[1] for epoch in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, second)
        np.testing.assert_array_equal(np.bincount(first), [EACH] * CLASSES)


def test_classes_may_be_named(folder) -> None:
    _, labels = samples(image_directory(folder / "val", EXACT, classes=["n4", "n1"]))
    np.testing.assert_array_equal(labels, [0] * 8 + [1] * 8)
    with pytest.raises(CalibrationError, match="no directory for the class `n9`"):
        image_directory(folder / "val", EXACT, classes=["n9"])
    with pytest.raises(CalibrationError, match="no images found"):
        image_directory(folder / "val" / "n0", EXACT)
    with pytest.raises(CalibrationError, match="no such files"):
        image_records(str(folder / "none-*"), EXACT)


def test_workers_share_the_images(folder, records) -> None:
    contexts = [tf.distribute.InputContext(2, i, 2) for i in range(2)]
    for made in (
        lambda context: image_directory(folder / "train", EXACT, epoch=3, context=context),
        lambda context: image_records(
            str(records / "train-*"), EXACT, first_label=1, epoch=3, context=context
        ),
    ):
        whole, *parts = (samples(made(context)) for context in (None, *contexts))
        for i, (images, labels) in enumerate(parts):
            np.testing.assert_array_equal(images, whole[0][i::2])
            np.testing.assert_array_equal(labels, whole[1][i::2])


# -- preprocessing ----------------------------------------------------------------------------


def test_the_middle_of_a_resized_image() -> None:
    """A picture of two halves: the shorter side becomes 8, and its middle 4 x 4 pixels are left."""
    pixels = np.zeros([16, 32, 3], np.uint8)
    pixels[:, 16:] = [10, 20, 30]
    content = tf.io.encode_png(pixels)
    image = Preprocessing(4, 8, mean=10, deviation=[1, 2, 5], reverse_channels=True)(content)
    assert image.shape == (4, 4, 3)
    np.testing.assert_allclose(image[:, 0], np.tile([-10, -5, -2], (4, 1)), atol=1e-4)
    np.testing.assert_allclose(image[:, -1], np.tile([20, 5, 0], (4, 1)), atol=1e-4)


def test_odd_sizes_are_never_too_small() -> None:
    for height, width in ((7, 13), (13, 7), (3, 3), (100, 9)):
        content = tf.io.encode_png(np.zeros([height, width, 3], np.uint8))
        assert Preprocessing(21)(content).shape == (21, 21, 3)
    with pytest.raises(UsageError, match="cannot cut 9 pixels out of 8"):
        Preprocessing(9, 8)


# -- functions as data ------------------------------------------------------------------------


def by_epoch(epoch=None, input_context=None):
    """A function of a user, with both parameters."""
    start = 0 if epoch is None else 100 * (epoch + 1)
    numbers = np.arange(start, start + 8)
    if input_context is not None:
        numbers = numbers[input_context.input_pipeline_id :: input_context.num_input_pipelines]
    x = np.broadcast_to(numbers[:, None, None, None], (len(numbers), 8, 8, 3))
    return tf.data.Dataset.from_tensor_slices({"image": x, "label": numbers % 5})


def test_a_function_by_epoch_and_worker() -> None:
    graph = load_keras(keras_network())
    where = f"{__name__}:by_epoch"
    sys.modules.setdefault(__name__, sys.modules[by_epoch.__module__])
    data = training_data(where, graph, 4, 0)
    assert (data.steps, data.labelled, data.sharded) == (2, True, False)
    first = [batch.inputs["image"][:, 0, 0, 0] for batch in data.batches(1)]
    np.testing.assert_array_equal(np.concatenate(first), np.arange(200, 208))
    (last,) = data.batches(None, 1)
    np.testing.assert_array_equal(last.labels, np.arange(4, 8) % 5)
    own = training_data(where, graph, 4, 0, WorkerTask(1, 2))
    assert (own.steps, own.sharded) == (2, True)
    (batch, _) = own.batches(0)
    np.testing.assert_array_equal(batch.inputs["image"][:, 0, 0, 0], [101, 103])
    with pytest.raises(UsageError, match="batches of 3 do not divide by 2 workers"):
        training_data(where, graph, 3, 0, WorkerTask(1, 2))


# -- the example ------------------------------------------------------------------------------


@needs_sources
@pytest.mark.parametrize("layout", ["folder", "records"])
def test_the_example_on_a_small_set(layout, request, tmp_path, monkeypatch) -> None:
    place = request.getfixturevalue(layout)
    monkeypatch.setenv("IMAGENET", str(place))
    monkeypatch.setenv("IMAGENET_SIZE", str(SIZE))
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.delitem(sys.modules, "imagenet", raising=False)
    keras_network().save(tmp_path / "net.h5")
    out = tmp_path / "out"
    done = run(
        "quantize", tmp_path / "net.h5", "--mode", "retrain", "-o", out,
        "--calibration", "imagenet:calibration",
    )  # fmt: skip
    assert done.code == 0, done.err
    done = run(
        "train", out, "--data", "imagenet:train", "--validation", "imagenet:validation",
        "--epochs", 4, "--batch-size", 16, "--weight-rate", "1e-2", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    history = json.loads(done.out)["history"]
    assert history[-1]["step"] == 4 * CLASSES * EACH // 16
    assert json.loads(done.out)["best"]["accuracy"] > 0.6 > history[0]["accuracy"]
    assert run("finalize", out).code == 0
    done = run("evaluate", out / "inference", "--data", "imagenet:validation", "--json")
    assert done.code == 0, done.err


@needs_sources
def test_validation_images_are_sorted_by_class(folder, tmp_path, monkeypatch) -> None:
    images = tmp_path / "images"
    images.mkdir()
    lines = ["ImageId,PredictionString"]
    for label in range(2):
        (images / f"val_{label}.png").write_bytes((folder / f"val/n{label}/00.png").read_bytes())
        lines.append(f"val_{label},n{label} 85 1 499 272")
    (tmp_path / "solution.csv").write_text("\n".join(lines))
    target = tmp_path / "val"
    arguments = ["prepare.py", str(images), str(tmp_path / "solution.csv"), str(target)]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(EXAMPLE / "prepare.py"), run_name="__main__")
    found = samples(image_directory(target, EXACT))
    np.testing.assert_array_equal(found[1], [0, 1])
    np.testing.assert_array_equal(found[0], [picture(label, 100) for label in range(2)])
