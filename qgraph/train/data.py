"""Training data: batches of inputs, with or without labels."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Protocol, TypeAlias

import numpy as np

from qgraph.archives import read_arrays, reading
from qgraph.errors import CalibrationError, UsageError, reason_of
from qgraph.files import write_whole
from qgraph.foreign import DatasetLike
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.names import from_entry_name
from qgraph.npz import npz_bytes
from qgraph.quant.samples.data import batch_of, check_arrays
from qgraph.quant.samples.labels import labels_among
from qgraph.quant.samples.mistakes import holds_images
from qgraph.quant.samples.sources import is_entry_point, read_source
from qgraph.static.sample_parts import COMPARED, MIN_SAMPLES
from qgraph.train.task import WorkerTask

INPUT, LABELS = "input/", "labels"  # names of arrays in a file of validation samples
# A path, `module:function`, arrays by name, (inputs, labels), a tf.data.Dataset.
Source: TypeAlias = DatasetLike


@dataclass(frozen=True)
class LabelledBatch:
    """Arrays by input name, and labels: None, classes [n] or probabilities [n, classes]."""

    inputs: Mapping[str, Array]
    labels: Array | None


class TrainingData(Protocol):
    """Batches that can be iterated again from any step."""

    @property
    def steps(self) -> int | None:
        """Number of batches in an epoch; None if it is unknown until the end."""

    @property
    def labelled(self) -> bool:
        """Whether batches have labels."""

    @property
    def sharded(self) -> bool:
        """Whether batches have only the samples of this worker."""

    def batches(self, epoch: int | None, start: int = 0) -> Iterator[LabelledBatch]:
        """The batches of an epoch from step `start`; without an epoch, all samples in order."""


def training_data(
    source: Source, graph: Graph, batch_size: int, seed: int, task: WorkerTask | None = None
) -> TrainingData:
    """Data for training or validating `graph`.

    `source`: a `.npz` (arrays named like the inputs, labels under `labels`, `label` or `y`), a
    `.npy`, a directory of such `.npz` files or one that `tf.data.Dataset.save` wrote,
    `module:function` that returns a `tf.data.Dataset` or arrays, or the objects themselves.
    Elements of datasets are inputs, (inputs, labels), or inputs and labels by name; batched or not.
    A function with a parameter `epoch` is called again for each epoch. One with a parameter
    `input_context` returns the share of a worker, the place of which is `task`. Raises
    CalibrationError, UsageError.
    """
    made: DatasetLike
    if isinstance(source, str | Path) and is_entry_point(source):
        function, where = EntryPoint(str(source), task or WorkerTask()), str(source)
        made = function(None)
        if hasattr(made, "element_spec"):
            size = function.own_batch(batch_size)
            return DatasetBatches(made, graph, size, where, function)
    else:
        made = _read(source)
    if hasattr(made, "element_spec"):
        return DatasetBatches(made, graph, batch_size, str(source))
    named, labels = _split_labels(made, graph)
    inputs = check_arrays(named, graph, "training data")
    count = len(next(iter(inputs.values())))
    if labels is not None and len(labels) != count:
        raise CalibrationError(
            f"there are {len(labels)} labels for {count} samples",
            hint="give one for each sample, in the same order",
        )
    step = batch_of(graph)
    return ArrayBatches(inputs, labels, max(batch_size // step, 1) * step, seed)


def _read(source: Source) -> DatasetLike:
    if not isinstance(source, str | Path):
        return source
    path = Path(source)
    if not path.exists():
        raise CalibrationError(
            "no such file",
            node=str(source),
            hint="training data is a .npz, a directory of .npz files, a saved tf.data.Dataset, or "
            "module:function",
        )
    if path.is_dir() and not any(path.glob("*.npz")) and not holds_images(path):
        return _saved_dataset(path)
    return read_source(path)


class EntryPoint:
    """`module:function`, called with those of `epoch` and `input_context` that it has.

    Raises CalibrationError where it fails.
    """

    def __init__(self, where: str, task: WorkerTask) -> None:
        self.where, self.task = where, task
        module, _, name = where.partition(":")
        with self._failures_named():
            self.function = getattr(importlib.import_module(module), name)
            parameters = inspect.signature(self.function).parameters
        self.by_epoch = "epoch" in parameters
        self.shards = "input_context" in parameters and task.workers > 1

    def __call__(self, epoch: int | None) -> DatasetLike:
        """Call the function; without an epoch, it returns all samples in order."""
        given: dict[str, object] = {"epoch": epoch} if self.by_epoch else {}
        with self._failures_named():
            if self.shards:
                import tensorflow as tf

                place = self.task.workers, self.task.index, self.task.workers
                given["input_context"] = tf.distribute.InputContext(*place)
            return self.function(**given)

    def own_batch(self, batch_size: int) -> int:
        """Samples of a batch that are of this worker. Raises UsageError if they are not whole."""
        if not self.shards:
            return batch_size
        if batch_size % self.task.workers:
            raise UsageError(
                f"batches of {batch_size} do not divide by {self.task.workers} workers"
            )
        return batch_size // self.task.workers

    @contextmanager
    def _failures_named(self) -> Iterator[None]:
        """Raise CalibrationError, with the name of the function, for any exception in the block."""
        try:
            yield
        except Exception as error:  # the user's code may raise anything
            raise CalibrationError(
                f"failed: {reason_of(error)}",
                node=self.where,
                hint="it must return a tf.data.Dataset or arrays; --debug shows where",
            ) from error


def _saved_dataset(path: Path) -> DatasetLike:
    import tensorflow as tf

    try:
        return tf.data.Dataset.load(str(path))
    except Exception as error:  # TensorFlow may raise anything on a foreign directory
        raise CalibrationError(
            "not a directory that tf.data.Dataset.save wrote", node=str(path)
        ) from error


def _other_tuple(what: str, where: str | None = None) -> CalibrationError:
    """The error for a tuple that is neither of inputs nor of inputs and labels."""
    hint = "give inputs, or (inputs, labels); weights of samples are not supported"
    return CalibrationError(what, node=where, hint=hint)


def _split_labels(made: DatasetLike, graph: Graph) -> tuple[Mapping[str, Array], Array | None]:
    """The inputs by name, and the labels or None."""
    if isinstance(made, tuple) and len(made) == 2:
        inputs, labels = made
        named = inputs if isinstance(inputs, Mapping) else {"": inputs}
        return named, np.asarray(labels)
    if isinstance(made, tuple):
        raise _other_tuple(f"training data is a tuple of {len(made)}")
    named = made if isinstance(made, Mapping) else {"": np.asarray(made)}
    labels_name = labels_among(named, graph.inputs)
    # An input may be called `y` too, where it is alone.
    if labels_name is None or len(named) == 1:
        return named, None
    inputs = {name: named[name] for name in named if name != labels_name}
    return inputs, np.asarray(named[labels_name])


@dataclass(frozen=True)
class ArrayBatches:
    """Arrays in memory or in mapped files. Their order depends only on the seed and the epoch.

    inputs, labels: as in `LabelledBatch`, for all samples. size: samples in a batch. index: numbers
    of the samples to use; None uses all. trained: whether training uses these samples too.
    """

    inputs: Mapping[str, Array]
    labels: Array | None
    size: int
    seed: int
    index: Array | None = None
    trained: bool = False
    sharded: ClassVar[bool] = False

    @property
    def samples(self) -> int:
        return len(next(iter(self.inputs.values())) if self.index is None else self.index)

    @property
    def steps(self) -> int:
        return max(self.samples // self.size, 1)

    @property
    def labelled(self) -> bool:
        return self.labels is not None

    def batches(self, epoch: int | None, start: int = 0) -> Iterator[LabelledBatch]:
        """The batches of an epoch, shuffled; without an epoch, all samples in order.

        An epoch leaves out the last, incomplete batch, unless it is the only one.
        """
        order = np.arange(self.samples) if self.index is None else self.index
        if epoch is not None:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
            order = order[: self.steps * self.size]
        for first in range(start * self.size, len(order), self.size):
            index = order[first : first + self.size]
            labels = None if self.labels is None else self.labels[index]
            yield LabelledBatch({name: array[index] for name, array in self.inputs.items()}, labels)


def split_held_out(data: ArrayBatches, graph: Graph) -> tuple[ArrayBatches, ArrayBatches | None]:
    """Split data into samples for training and samples for validation.

    Samples for validation are spread evenly over the data: a tenth, or `COMPARED` if that is more,
    but at most a quarter. With fewer than `MIN_SAMPLES` samples, returns the data itself and None.
    """
    if data.samples < MIN_SAMPLES:
        return data, None
    step = batch_of(graph)
    count = min(max(data.samples // 10, COMPARED), data.samples // 4) // step * step
    if not count:
        return data, None
    held = np.arange(1, count + 1) * data.samples // count - 1
    rest = np.delete(np.arange(data.samples), held)
    return replace(data, index=rest), replace(data, index=held)


def beginning(data: TrainingData, graph: Graph) -> ArrayBatches | None:
    """The first `COMPARED` samples of a dataset, for validation; None for under `MIN_SAMPLES`.

    Training also uses them: a dataset may shuffle its samples, so none can be excluded.
    """
    kept: list[LabelledBatch] = []
    count = 0
    for batch in data.batches(None):
        kept.append(batch)
        count += len(next(iter(batch.inputs.values())))
        if count >= COMPARED:
            break
    if count < MIN_SAMPLES:
        return None
    inputs = {name: np.concatenate([b.inputs[name] for b in kept]) for name in graph.inputs}
    labels = np.concatenate([np.asarray(b.labels) for b in kept]) if data.labelled else None
    return ArrayBatches(inputs, labels, len(next(iter(kept[0].inputs.values()))), 0, trained=True)


def write_batches(path: Path, data: ArrayBatches) -> None:
    """Write the samples of `beginning`, for `read_batches`. Raises OutputError."""
    arrays = {INPUT + name: array for name, array in data.inputs.items()}
    labels = {} if data.labels is None else {LABELS: data.labels}
    write_whole(path, npz_bytes(arrays | labels))


def read_batches(path: Path, graph: Graph, size: int) -> ArrayBatches:
    """Read what `write_batches` wrote. Raises LoadError, CalibrationError."""
    problem, hint = "is not a file of validation samples that can be read", "give --restart"
    with reading(path, problem, hint):
        arrays = {from_entry_name(n): a for n, a in read_arrays(path, problem=problem).items()}
    labels = arrays.pop(LABELS, None)
    named = {name.removeprefix(INPUT): array for name, array in arrays.items()}
    return ArrayBatches(check_arrays(named, graph, str(path)), labels, size, 0, trained=True)


def _is_single(spec: DatasetLike, graph: Graph) -> bool:
    """Whether elements of a dataset are single samples, whose inputs lack the batch dimension.

    spec: of the inputs of an element, without labels.
    """
    import tensorflow as tf

    name = graph.inputs[0]
    one = spec[name] if isinstance(spec, Mapping) and name in spec else tf.nest.flatten(spec)[0]
    return one.shape.rank is not None and one.shape.rank < (graph.types[name].rank or 0)


class DatasetBatches:
    """A `tf.data.Dataset`, which determines its own order, or a function that returns one.

    function: makes the dataset of each epoch, or of a worker; None uses the same one again.
    """

    def __init__(
        self,
        dataset: DatasetLike,
        graph: Graph,
        batch_size: int,
        where: str,
        function: EntryPoint | None = None,
    ) -> None:
        import tensorflow as tf

        self.graph, self.where, self.function = graph, where, function
        self.labels_name: str | None = None
        spec = dataset.element_spec
        if isinstance(spec, Mapping) and len(spec) > 1:
            self.labels_name = labels_among(spec, graph.inputs)
        self.size = batch_size
        self.labelled = self.labels_name is not None or (isinstance(spec, tuple) and len(spec) == 2)
        if isinstance(spec, tuple) and not self.labelled and len(spec) != len(graph.inputs):
            raise _other_tuple(f"its elements are tuples of {len(spec)}", where)
        self.single = _is_single(spec[0] if isinstance(spec, tuple) else spec, graph)
        self.dataset = self._batched(dataset)
        count = int(self.dataset.cardinality())
        if count == tf.data.INFINITE_CARDINALITY:
            raise CalibrationError(
                "repeats without end", node=where, hint="end it: dataset.take(STEPS_PER_EPOCH)"
            )
        self.steps = count if count >= 0 else None

    @property
    def sharded(self) -> bool:
        """Whether batches have only the samples of this worker."""
        return self.function is not None and self.function.shards

    def _batched(self, dataset: DatasetLike) -> DatasetLike:
        return dataset.batch(self.size) if self.single else dataset

    def batches(self, epoch: int | None, start: int = 0) -> Iterator[LabelledBatch]:
        dataset = self.dataset
        if self.function is not None and self.function.by_epoch:
            dataset = self._batched(self.function(epoch))
        for element in dataset.skip(start).as_numpy_iterator():
            named, labels = self._parts(element)
            yield LabelledBatch(check_arrays(named, self.graph, f"a batch of {self.where}"), labels)

    def _parts(self, element: DatasetLike) -> tuple[Mapping[str, Array], Array | None]:
        """The inputs by name and the labels of a batch."""
        if self.labels_name is not None:
            inputs = {name: x for name, x in element.items() if name != self.labels_name}
            return inputs, element[self.labels_name]
        inputs, labels = element if self.labelled else (element, None)
        if isinstance(inputs, tuple):
            return dict(zip(self.graph.inputs, inputs, strict=True)), labels
        return inputs if isinstance(inputs, Mapping) else {"": inputs}, labels
