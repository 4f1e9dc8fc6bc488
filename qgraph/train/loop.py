"""The training loop: steps, validation, freezing, checkpoints. A killed run can be resumed.

Source: TQT (Jain et al., 2019), section 5.2.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from qgraph.choices import LossKind
from qgraph.errors import CalibrationError, RunError, TrainingError, UsageError, first_line
from qgraph.foreign import Tensor, Variable
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.ir.types import Array
from qgraph.quant.samples.data import batch_of
from qgraph.records import to_object
from qgraph.train.checkpoint import Checkpoint, read_checkpoint, record_of, restore
from qgraph.train.data import LabelledBatch, TrainingData
from qgraph.train.diagnosis import first_not_finite
from qgraph.train.folded import Norm
from qgraph.train.forward import shaped
from qgraph.train.freezing import Freezing
from qgraph.train.kind import QuantizerKind
from qgraph.train.losses import Loss, loss_for
from qgraph.train.model import TrainingGraph
from qgraph.train.options import Options
from qgraph.train.rate_units import rate_units
from qgraph.train.record import Position, TrainingRecord
from qgraph.train.replicas import Replicas, parts_of, replicas_for, same_everywhere
from qgraph.train.score import Score, TrainingStatus, Watch
from qgraph.train.step import Steps
from qgraph.train.task import WorkerTask
from qgraph.train.tqt import TQT
from qgraph.train.weight_scales import with_unclipped_weights

CHECKPOINTS, LAST, BEST = "checkpoints", "last.npz", "best.npz"
SAVE_SECONDS = 60.0


class Trainer:
    """Trains a calibrated graph, or a float graph with the same options.

    graph, norms: as in `TrainingGraph`. floating: the float graph, the teacher of training without
    labels. kind: of the quantizers. folder: directory for checkpoints; None writes none.
    save_seconds: longest time between two checkpoints. watch: called with the state of the run
    after each step. replicas: devices and workers that share each batch; only the chief of the
    workers writes. `best` is the checkpoint of the best validation. Raises UsageError,
    UnsupportedError, TrainingError.
    """

    def __init__(
        self,
        graph: Graph,
        floating: Graph,
        norms: Sequence[Norm],
        data: TrainingData,
        validation: TrainingData | None = None,
        options: Options | None = None,
        *,
        kind: QuantizerKind = TQT,
        folder: Path | None = None,
        save_seconds: float = SAVE_SECONDS,
        watch: Watch = lambda status: None,
        replicas: Replicas | None = None,
    ) -> None:
        self.replicas = replicas = replicas or replicas_for(None, WorkerTask())
        self.options = options = options or Options()
        self.data, self.validation = data, validation
        self.folder, self.save_seconds, self.watch = folder, save_seconds, watch
        self.network = network_of(graph)
        self.loss: Loss = loss_for(graph, floating, data.labelled, options.loss, options.output)
        if validation and self.loss.kind == LossKind.LABELS and not validation.labelled:
            raise UsageError("the training data has labels, the validation data has none")
        if options.learn == "weights":
            graph = with_unclipped_weights(graph)
        with replicas.scope():
            self.model = TrainingGraph(graph, norms, momentum=options.norm_momentum, kind=kind)
            quantizers = self.model.quantizers
            self.freezing = Freezing(quantizers.ranges, quantizers.frozen_at_once)
            learning = _learning(self.model, options)
            units = () if options.step_rate is None else rate_units(self.model)
            self.optimizer = kind.optimizer(options, self.freezing, units)
            self.steps = Steps(
                self.model, floating, self.loss, self.optimizer, learning, options.weight_decay,
                replicas,
            )  # fmt: skip
        self.at = Position()
        self.history: list[Score] = []
        self.best_score: Score | None = None
        self.best: Checkpoint | None = None
        self.stopped: Callable[[], bool] = lambda: False
        self.kept_step: int | None = None  # of the newest checkpoint
        self._ends = False
        self._saved = time.monotonic()

    @property
    def done(self) -> bool:
        """Whether all epochs are over."""
        return self.at.epoch >= self.options.epochs

    # -- running ------------------------------------------------------------------------------

    def run(self) -> None:
        """Train to the end, from the newest checkpoint on if there is one.

        Once `stopped` returns True, it ends after the step in progress, with a checkpoint. Raises
        RunError if another worker of the run is lost.
        """
        with self._others():
            self._resume()
            self._start_together()
            if not self.history:
                self._validate()
            while not self.done:
                for batch in self._batches():
                    self._one_step(batch)
                if self._ends:
                    self._save()
                    return
                if not self.at.done:
                    raise CalibrationError("the training data has no batches")
                if self.validation is None or self.history[-1].step < self.at.step:
                    self._validate()
                self.at = Position(self.at.step, self.at.epoch + 1)
                self._save()

    def _batches(self) -> Iterator[LabelledBatch]:
        """The rest of the epoch, until a worker is stopped."""
        batches = self.data.batches(self.at.epoch, self.at.done)
        while True:
            batch = next(batches, None)
            state = self.replicas.gathered(self.stopped(), batch is not None)
            self._ends = batch is not None and bool(state[:, 0].any())
            if not same_everywhere(state[:, 1:]):
                raise CalibrationError("the workers have different numbers of batches")
            if batch is None or self._ends:
                return
            yield batch

    def _start_together(self) -> None:
        """Wait for all workers, and check that they continue from the same step of the same run."""
        run = f"{self.network} {self.options}".encode()
        state = self.replicas.gathered(self.at.step, zlib.crc32(run))
        if same_everywhere(state):
            return
        steps = ", ".join(str(step) for step in state[:, 0])
        raise UsageError(
            f"the workers differ: they start at steps {steps}, or have different options",
            hint="give all workers the same options and the same files",
        )

    @contextmanager
    def _others(self) -> Iterator[None]:
        """Report the loss of another worker as a RunError."""
        if self.replicas.task.workers == 1:
            yield
            return
        import tensorflow as tf

        errors = tf.errors
        lost = (
            errors.UnavailableError, errors.AbortedError, errors.CancelledError,
            errors.DeadlineExceededError, errors.InternalError,
        )  # fmt: skip
        try:
            yield
        except lost as error:
            raise RunError(
                f"a worker was lost after step {self.at.step}: {first_line(error)}",
                hint="start all workers again with the same commands: they continue from the "
                "newest checkpoint",
            ) from error

    def _one_step(self, batch: LabelledBatch) -> None:
        norms_frozen = self.at.epoch + self._share_of_epoch() >= self.options.norm_epochs
        self.steps.norms_frozen = norms_frozen or not self.model.norms.by_layer
        inputs, labels, share, count = self._tensors(batch, trains=True)
        loss, right, finite, _ = self.steps.train(inputs, labels, share)
        if not finite:
            raise self._not_finite(batch)
        at = self.at
        self.at = Position(
            at.step + 1, at.epoch, at.done + 1, at.loss + float(loss) * count,
            at.right + float(right), at.samples + count,
        )  # fmt: skip
        if self.model.thresholds and self.options.freeze_schedule().is_due(self.at.step):
            self.freezing.freeze_next()
        every = self.options.validate_every
        if every and self.at.step % every == 0:
            self._validate()
        self.watch(self._status())
        if time.monotonic() - self._saved > self.save_seconds:
            self._save()

    def _share_of_epoch(self) -> float:
        return self.at.done / self.data.steps if self.data.steps else 0.0

    def _validate(self) -> None:
        loss, right, count = self.evaluate(self.validation) if self.validation else (0.0, 0.0, 0)
        if not count:  # without validation data, the newest checkpoint counts as the best
            loss, right, count = -float(self.at.step), 0.0, 1
        accuracy = right / count if self.validation and self.loss.classes else None
        score = Score(self.at.step, self.at.epoch, loss / count, accuracy, self.freezing.count())
        self.history.append(score)
        if score.beats(self.best_score):
            self.best_score = score
            self.best = self._checkpoint(self.model.named_variables())
            if self.folder and self.replicas.task.is_chief:
                self.best.write(self.folder / BEST)
        self._save()

    def state(self) -> Checkpoint:
        """The state of the run, with all that it needs to continue."""
        return self._checkpoint(self._variables())

    def start_again(self, start: Checkpoint, data: TrainingData) -> None:
        """Go back to `start`, a state before training, for other batches.

        Compiled functions are kept, so that the next run begins at once.
        """
        restore(self._variables(), start)
        self.data, self.at, self.history = data, Position(), []
        self.best = self.best_score = None

    def evaluate(self, data: TrainingData) -> tuple[float, float, int]:
        """The sum of the loss, the right answers and the samples of `data`, as in inference."""
        self.steps.wide = self.model.wide_now()
        loss, right, count = 0.0, 0.0, 0
        for batch in data.batches(None):
            inputs, labels, share, size = self._tensors(batch, trains=False)
            mean, found = self.steps.evaluate(inputs, labels, share)
            loss, right, count = loss + float(mean) * size, right + float(found), count + size
        return loss, right, count

    def _status(self) -> TrainingStatus:
        at = self.at
        return TrainingStatus(
            at.epoch, self.options.epochs, at.done, self.data.steps,
            at.loss / at.samples, at.right / at.samples if self.loss.classes else None,
            self.freezing.count(), len(self.model.quantizers.names), self.best_score,
        )  # fmt: skip

    def _tensors(self, batch: LabelledBatch, *, trains: bool) -> tuple[Tensor, Tensor, Tensor, int]:
        """Inputs, labels and shares of the replicas, and the number of samples of the batch.

        Batches of training are divided among the replicas of all workers, unless they have only
        this worker's samples. Others are divided among the replicas of this worker.
        """
        import tensorflow as tf

        count = len(next(iter(batch.inputs.values())))
        if self.loss.kind == LossKind.LABELS and batch.labels is not None:
            batch = replace(batch, labels=_checked(batch.labels, self.loss.classes, count))
        replicas, sharded = self.replicas, trains and self.data.sharded
        if replicas.count == 1:
            return self._inputs(batch), self._labels(batch), None, count
        number = replicas.count if trains and not sharded else replicas.local
        workers = replicas.task.workers if sharded else 1
        parts = parts_of(batch, number, batch_of(self.model.graph))
        inputs = replicas.each(lambda i: self._inputs(parts[i % number].batch))
        share = replicas.each(lambda i: tf.constant(parts[i % number].share / workers))
        labels = None
        if self._labels(parts[0].batch) is not None:
            labels = replicas.each(lambda i: self._labels(parts[i % number].batch))
        return inputs, labels, share, count * workers

    def _inputs(self, batch: LabelledBatch) -> dict[str, Tensor]:
        import tensorflow as tf

        graph = self.model.graph
        given = {n: tf.constant(a, graph.types[n].dtype) for n, a in batch.inputs.items()}
        return {n: shaped(x, graph, n) for n, x in given.items()}

    def _labels(self, batch: LabelledBatch) -> Tensor | None:
        import tensorflow as tf

        unused = self.loss.kind != LossKind.LABELS or batch.labels is None
        return None if unused else tf.constant(batch.labels)

    def _not_finite(self, batch: LabelledBatch) -> TrainingError:
        inputs = self._inputs(batch)
        name = first_not_finite(self.model, inputs, not self.steps.norms_frozen)
        what = "the loss or a gradient is" if name is None else "is the first that is"
        hint = "smaller learning rates may help; the newest checkpoint is from before this step"
        message = f"{what} NaN or infinite in step {self.at.step + 1}: training stops"
        return TrainingError(message, node=name, hint=hint)

    # -- checkpoints --------------------------------------------------------------------------

    def _variables(self) -> dict[str, Variable]:
        """All variables that a run needs to continue, by name."""
        own = {f"freezing/{i}": v for i, v in enumerate(self.freezing.variables)}
        optimizer = {f"optimizer/{i}": v for i, v in enumerate(self.optimizer.variables)}
        return {**self.model.named_variables(), **own, **optimizer}

    def _checkpoint(self, variables: Mapping[str, Variable]) -> Checkpoint:
        arrays: dict[str, Array] = {name: np.array(v.numpy()) for name, v in variables.items()}
        record = TrainingRecord(
            self.options, self.loss.kind, self.at, self.history, self.best_score,
            self.model.kind.name, self.model.kind.integers,
        )  # fmt: skip
        return Checkpoint(self.network, arrays, to_object(record))

    def _save(self) -> None:
        if self.folder and self.replicas.task.is_chief:
            self._checkpoint(self._variables()).write(self.folder / LAST)
            self.kept_step = self.at.step
        self._saved = time.monotonic()

    def _resume(self) -> None:
        if self.folder is None or not (self.folder / LAST).exists():
            return
        last = read_checkpoint(self.folder / LAST, self.network)
        record = record_of(last)
        options = record.options or Options()
        if record.kind != self.model.kind.name:
            raise UsageError(
                f"the checkpoint belongs to a run with quantizers `{record.kind}`, "
                f"not `{self.model.kind.name}`",
                node=str(self.folder / LAST),
                hint="start again with --restart",
            )
        if replace(options, epochs=self.options.epochs) != self.options:
            differs = _difference(options, self.options)
            raise UsageError(
                f"the checkpoint belongs to a run with other options: {differs}",
                node=str(self.folder / LAST),
                hint="give the same ones, or start again with --restart",
            )
        restore(self._variables(), last)
        self.at = record.at or Position()
        self.kept_step = self.at.step
        self.history, self.best_score = list(record.history or ()), record.best
        self.best = read_checkpoint(self.folder / BEST, self.network)


def network_of(graph: Graph) -> str:
    """Identity of a graph: a hash of its text."""
    return hashlib.sha256(print_graph(graph).encode()).hexdigest()


def _learning(model: TrainingGraph, options: Options) -> list[Variable]:
    weights = [*model.kernels, *model.gammas] if options.learn != "thresholds" else []
    thresholds = model.thresholds if options.learn != "weights" else []
    if not weights + thresholds:
        raise TrainingError(
            "nothing can be trained: the network has no layer with weights and no quantizer"
        )
    return weights + thresholds


def _checked(labels: Array, classes: int | None, count: int) -> Array:
    """Labels as int64 classes [n] or float32 probabilities [n, classes].

    Raises CalibrationError for other shapes and types, and for a class that does not exist.
    """
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind in "fiu" and labels.shape == (count, classes):
        return labels.astype(np.float32)
    if labels.dtype.kind not in "iu" or labels.shape != (count,):
        raise CalibrationError(
            f"labels are {labels.dtype} of shape {list(labels.shape)}",
            hint=f"give a class of each sample, 0 to {(classes or 1) - 1}",
        )
    wrong = labels[(labels < 0) | (labels >= (classes or 0))]
    if len(wrong):
        raise CalibrationError(
            f"label {wrong[0]} is out of range: the network has {classes} classes",
            hint=f"labels are 0 to {(classes or 1) - 1}",
        )
    return labels.astype(np.int64)


def _difference(found: Options, wanted: Options) -> str:
    """The options that differ, with both values."""
    given = asdict(wanted)
    return ", ".join(
        f"{name} {value}, not {given[name]}"
        for name, value in asdict(found).items()
        if value != given[name] and name != "epochs"
    )
