"""Keras callbacks for models of `qgraph.retrain.keras_model`. They import TensorFlow."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from qgraph.choices import chosen
from qgraph.errors import UsageError
from qgraph.foreign import TFModule
from qgraph.quiet import quiet_tensorflow
from qgraph.train.best_checkpoint import save_checkpoint
from qgraph.train.freezing import FreezeSchedule

with quiet_tensorflow():
    import tensorflow as tf
    import tf_keras as keras

Logs = dict[str, float] | None
MODES = ("auto", "min", "max")


class FreezeThresholds(keras.callbacks.Callback):  # type: ignore[misc]
    """Freezes one threshold every `every` steps, each time the one that has settled best.

    Steps are those of the optimizer, over all calls of `fit`. The defaults are TQT's, for batches
    of 24 (`Options.freeze_schedule` has them for other sizes).

    Args:
        start: First step at which a threshold is frozen.
        every: Steps between two thresholds that are frozen.

    Raises:
        UsageError: `every` is below 1.

    Examples:
        >>> from qgraph.train.callbacks import FreezeThresholds
        >>> callback = FreezeThresholds(start=1000, every=50)
    """

    def __init__(self, start: int = 1000, every: int = 50) -> None:
        super().__init__()
        self.schedule = FreezeSchedule(start, every)
        self._seen = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        self._seen = int(self.model.optimizer.iterations.numpy())

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        now = int(self.model.optimizer.iterations.numpy())
        for step in range(self._seen + 1, now + 1):
            if self.schedule.is_due(step):
                self.model.freezing.freeze_next()
        self._seen = now


class FreezeBatchNorms(keras.callbacks.Callback):  # type: ignore[misc]
    """Runs batch norms as in inference after some epochs.

    Args:
        epochs: Number of epochs, not necessarily whole, in which they use the statistics of the
            batch.

    Examples:
        >>> from qgraph.train.callbacks import FreezeBatchNorms
        >>> callback = FreezeBatchNorms(epochs=0.5)
    """

    def __init__(self, epochs: float = 1.0) -> None:
        super().__init__()
        self.epochs = epochs
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        steps = self.params.get("steps")  # unknown for some data in the first epoch
        if self._epoch + (batch / steps if steps else 0.0) >= self.epochs:
            self.model.norms_frozen = True


class StopAtNan(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends `fit` at a step whose loss or gradients are not finite, before it changes a variable.

    The InvalidArgumentError names the first value of the graph that is NaN or infinite. The model
    keeps this setting (`refuses_nan`) for later calls of `fit`.

    Examples:
        >>> from qgraph.train.callbacks import StopAtNan
        >>> callback = StopAtNan()
    """

    def on_train_begin(self, logs: Logs = None) -> None:
        self.model.refuses_nan = True


class KeepBest(keras.callbacks.Callback):  # type: ignore[misc]
    """Writes the best epoch so far to a training directory, for `qgraph finalize`.

    Args:
        path: The training directory that the model was made from.
        monitor: Name of the metric to compare.
        mode: `min` or `max`, whichever is better. None or `auto` means `max` for accuracies,
            otherwise `min`.

    Raises:
        UsageError: The mode is unknown, or no metric has this name.
        LoadError: The directory is of another network.
        TrainingError: A number is NaN or infinite.
        OutputError: The checkpoint cannot be written.

    Examples:
        >>> from qgraph.train.callbacks import KeepBest
        >>> callback = KeepBest("tuned", monitor="val_accuracy")
    """

    def __init__(
        self, path: str | Path, monitor: str = "val_loss", mode: str | None = None
    ) -> None:
        super().__init__()
        self.path, self.monitor = path, monitor
        usual = "max" if "acc" in monitor else "min"
        chosen_mode = chosen(MODES, mode or "auto", "mode of KeepBest")
        self.sign = 1.0 if (usual if chosen_mode == "auto" else chosen_mode) == "max" else -1.0
        self._best = -np.inf

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        known = logs or {}
        if self.monitor not in known:
            hint = f"metrics are {', '.join(known)}; those on validation_data begin with val_"
            raise UsageError(f"unknown metric `{self.monitor}`", hint=hint)
        found = self.sign * float(known[self.monitor])
        if found > self._best:
            self._best = found
            save_checkpoint(self.model, self.path)


class ThresholdBoard(keras.callbacks.Callback):  # type: ignore[misc]
    """Writes metrics, thresholds and their gradients for TensorBoard.

    `loss` and other metrics; for each scale `thresholds/NAME/log2` (of the scale, before it is
    rounded up), `thresholds/NAME/exponent` (of the codes: a scale is `2^-exponent`) and
    `thresholds/NAME/gradient` (of the last step); and `thresholds/frozen`, how many are.

    Args:
        log_dir: The directory that TensorBoard reads.
        every: Steps between two points; None writes one at the end of each epoch.

    Examples:
        >>> from qgraph.train.callbacks import ThresholdBoard
        >>> callback = ThresholdBoard("logs", every=100)
    """

    def __init__(self, log_dir: str | Path, every: int | None = None) -> None:
        super().__init__()
        self.log_dir, self.every = str(log_dir), every
        self._writer: TFModule = None
        self._written = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        self._writer = tf.summary.create_file_writer(self.log_dir)
        self._written = self._step()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self.every and self._step() >= self._written + self.every:
            self._write(logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._write(logs)

    def on_train_end(self, logs: Logs = None) -> None:
        self._writer.close()

    def _step(self) -> int:
        return int(self.model.optimizer.iterations.numpy())

    def _write(self, logs: Logs) -> None:
        self._written = step = self._step()
        freezing, names = self.model.freezing, self.model.network.quantizers.names
        ranges, gradients = freezing.ranges.numpy(), freezing.latest.numpy()
        with self._writer.as_default(step):
            for name, value in (logs or {}).items():
                _write_scalar(name, value)
            for name, log2, gradient in zip(names, ranges, gradients, strict=True):
                _write_scalar(f"thresholds/{name}/log2", log2)
                _write_scalar(f"thresholds/{name}/exponent", -np.ceil(log2))
                _write_scalar(f"thresholds/{name}/gradient", gradient)
            _write_scalar("thresholds/frozen", freezing.count())
        self._writer.flush()


def _write_scalar(tag: str, value: float) -> None:
    """Write a scalar as `tf.summary.scalar` does, which needs TensorBoard to be installed."""
    plugin = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
    metadata = tf.compat.v1.SummaryMetadata(plugin_data=plugin, data_class=1)  # a scalar
    tf.summary.write(tag, tf.constant(value, tf.float32), metadata=metadata)
