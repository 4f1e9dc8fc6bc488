"""Labelled images as a `tf.data.Dataset`: from a directory for each class, or from TFRecords.

A function of these two lines is data for `qgraph quantize`, `train` and `evaluate`:

    def train(epoch=None):
        return image_directory("imagenet/train", Preprocessing(224), epoch=epoch)

Elements are pairs of an image [size, size, 3] in float32 and a class. TensorFlow is imported late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import numpy as np

from qgraph.errors import CalibrationError, UsageError
from qgraph.foreign import DatasetLike, Tensor, TFModule
from qgraph.quant.samples.mistakes import is_image

BUFFER = 2048  # records among which those of TFRecords are shuffled
IMAGE, LABEL = "image/encoded", "image/class/label"  # the usual names in TFRecords


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes an input of the network.

    The shorter side is resized, the middle is cut out, and `(pixel - mean) / deviation` is computed
    for pixels of 0 to 255.

    Attributes:
        size: Height and width of the input.
        shorter: Length of the shorter side before the middle is cut out. None means 8/7 of the
            size, such as 256 for 224.
        mean: Value that is subtracted, one or one for each channel.
        deviation: Value that is divided by, one or one for each channel.
        reverse_channels: Whether channels are in the order blue, green, red.

    Raises:
        UsageError: A size is below 1, or the shorter side is below the size.

    Examples:
        >>> from qgraph.train.images import Preprocessing
        >>> Preprocessing(224, mean=127.5, deviation=127.5).resized
        256
    """

    size: int
    shorter: int | None = None
    mean: float | Sequence[float] = 0.0
    deviation: float | Sequence[float] = 1.0
    reverse_channels: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.resized:
            raise UsageError(
                f"cannot cut {self.size} pixels out of {self.resized}",
                hint="give a size of 1 or more, and a shorter side of at least that size",
            )

    @property
    def resized(self) -> int:
        """Length of the shorter side before the middle is cut out."""
        return round(self.size * 8 / 7) if self.shorter is None else self.shorter

    def __call__(self, content: Tensor) -> Tensor:
        """Decode the content of an image file.

        Args:
            content: A string tensor, the bytes of a JPEG, PNG, GIF or BMP file.

        Returns:
            The input of the network, float32 [size, size, 3].
        """
        import tensorflow as tf

        image = tf.io.decode_image(content, channels=3, expand_animations=False)
        shape = tf.shape(image)[:2]
        factor = self.resized / tf.reduce_min(shape)
        wanted = tf.maximum(
            tf.cast(tf.round(tf.cast(shape, tf.float64) * factor), tf.int32), self.resized
        )
        image = tf.image.resize(tf.cast(image, tf.float32), wanted, antialias=True)
        top, left = tf.unstack((wanted - self.size) // 2)
        image = image[top : top + self.size, left : left + self.size]
        if self.reverse_channels:
            image = image[..., ::-1]
        made = (image - np.asarray(self.mean, "float32")) / np.asarray(self.deviation, "float32")
        return tf.ensure_shape(made, [self.size, self.size, 3])


def image_directory(
    path: str | Path,
    preprocessing: Preprocessing,
    *,
    classes: Sequence[str] | None = None,
    epoch: int | None = None,
    seed: int = 0,
    context: TFModule | None = None,
) -> DatasetLike:
    """Read images from a directory with a directory for each class.

    Args:
        path: The directory.
        preprocessing: How a picture becomes an input.
        classes: Names of the directories, in the order of the classes. None sorts those that exist.
        epoch: Number that the order of images depends on, together with the seed. None keeps the
            order of names.
        seed: Seed of the order.
        context: The `tf.distribute.InputContext` of a worker, which reads its own share only. None
            reads all images.

    Returns:
        A `tf.data.Dataset` of single images with their classes.

    Raises:
        CalibrationError: There are no images, or a directory of a class is missing.

    Examples:
        >>> from qgraph.train.images import Preprocessing, image_directory
        >>> data = image_directory("photos", Preprocessing(8))  # doctest: +SKIP
    """
    import tensorflow as tf

    folder = Path(path)
    names = sorted(p.name for p in folder.glob("*/")) if classes is None else [*classes]
    missing = [name for name in names if not (folder / name).is_dir()]
    if missing:
        raise CalibrationError(f"no directory for the class `{missing[0]}`", node=str(folder))
    found = [
        (str(file), label)
        for label, name in enumerate(names)
        for file in sorted((folder / name).iterdir())
        if is_image(file)
    ]
    if not found:
        raise CalibrationError(
            "no images found",
            node=str(folder),
            hint="give a directory of a directory for each class",
        )
    files, labels = [name for name, _ in found], np.array([label for _, label in found], np.int64)
    chosen = _share(_order(len(files), epoch, seed), context)
    made = tf.data.Dataset.from_tensor_slices(([files[i] for i in chosen], labels[chosen]))
    return _mapped(made, lambda file, label: (preprocessing(tf.io.read_file(file)), label))


def image_records(
    pattern: str,
    preprocessing: Preprocessing,
    *,
    image: str = IMAGE,
    label: str = LABEL,
    first_label: int = 0,
    epoch: int | None = None,
    seed: int = 0,
    context: TFModule | None = None,
) -> DatasetLike:
    """Read images from TFRecord files of `tf.train.Example`.

    Args:
        pattern: Pattern of the names of the files, such as `imagenet/train-*`.
        preprocessing: How a picture becomes an input.
        image: Name of the feature with the bytes of an image file.
        label: Name of the feature with the class.
        first_label: Number of the first class, which becomes 0.
        epoch: Number that the order depends on, together with the seed: files are shuffled, and
            records among the next 2048. None keeps the order.
        seed: Seed of the order.
        context: The `tf.distribute.InputContext` of a worker, which decodes its own share only.
            None decodes all images.

    Returns:
        A `tf.data.Dataset` of single images with their classes.

    Raises:
        CalibrationError: No file has such a name.

    Examples:
        >>> from qgraph.train.images import Preprocessing, image_records
        >>> data = image_records("imagenet/train-*", Preprocessing(224))  # doctest: +SKIP
    """
    import tensorflow as tf

    files = sorted(glob(pattern))
    if not files:
        raise CalibrationError("no such files", node=pattern)
    names = [files[i] for i in _order(len(files), epoch, seed)]
    records = tf.data.TFRecordDataset(names)
    if epoch is not None:
        records = records.shuffle(
            BUFFER, seed=_seed_of(epoch, seed), reshuffle_each_iteration=False
        )
    if context is not None:
        records = records.shard(*_worker(context))
    features = {
        image: tf.io.FixedLenFeature([], tf.string),
        label: tf.io.FixedLenFeature([], tf.int64),
    }

    def parsed(record: Tensor) -> tuple[Tensor, Tensor]:
        found = tf.io.parse_single_example(record, features)
        return preprocessing(found[image]), found[label] - first_label

    return _mapped(records, parsed)


def _mapped(dataset: DatasetLike, function: Callable[..., Tensor]) -> DatasetLike:
    """Several images are decoded at a time; their order stays."""
    import tensorflow as tf

    fast = tf.data.AUTOTUNE
    return dataset.map(function, num_parallel_calls=fast, deterministic=True).prefetch(fast)


def _order(count: int, epoch: int | None, seed: int) -> list[int]:
    if epoch is None:
        return [*range(count)]
    return [int(i) for i in np.random.default_rng([seed, epoch]).permutation(count)]


def _seed_of(epoch: int, seed: int) -> int:
    return int(np.random.default_rng([seed, epoch]).integers(1 << 31))


def _share(order: list[int], context: TFModule | None) -> list[int]:
    """Every n-th of the samples; all workers have as many."""
    if context is None:
        return order
    workers, index = _worker(context)
    return order[: len(order) // workers * workers][index::workers]


def _worker(context: TFModule) -> tuple[int, int]:
    """The number of workers, and which one this is, of a `tf.distribute.InputContext`."""
    return int(context.num_input_pipelines), int(context.input_pipeline_id)
