"""Replicas of a training graph: the devices of this machine and of others that share each batch.

Every worker reads every batch and computes its own part of it, so that all of them agree on which
samples a batch has. Gradients are summed over all replicas. TensorFlow is imported late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from qgraph.errors import RunError, UsageError, first_line
from qgraph.foreign import Tensor, TFModule
from qgraph.ir.types import Array
from qgraph.train.data import LabelledBatch
from qgraph.train.task import WorkerTask

ALL = "all"


class Replicas:
    """The replicas of this worker, as a strategy of `tf.distribute`.

    strategy: the default one for a single device. task: the place of this worker.
    """

    def __init__(self, strategy: TFModule, task: WorkerTask | None = None) -> None:
        self.strategy, self.task = strategy, task or WorkerTask()
        self.count = int(strategy.num_replicas_in_sync)
        self.local = self.count // self.task.workers

    def scope(self) -> AbstractContextManager[object]:
        """Variables that are created inside have a copy on each replica."""
        scope: AbstractContextManager[object] = self.strategy.scope()
        return scope

    def run(self, function: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
        """Call a function on each local replica, inside a `tf.function`."""
        return self.strategy.run(function, args=arguments)

    def values(self, result: Tensor) -> tuple[Tensor, ...]:
        """The tensors of one result of `run`, by local replica."""
        found: tuple[Tensor, ...] = self.strategy.experimental_local_results(result)
        return found

    def each(self, of_replica: Callable[[int], Tensor]) -> Tensor:
        """A value for each local replica, by its number among all replicas."""
        if self.count == 1:
            return of_replica(0)
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: of_replica(int(context.replica_id_in_sync_group))
        )

    def gathered(self, *numbers: int) -> Array:
        """The numbers of every worker, [workers, n]. All workers wait here for each other."""
        import tensorflow as tf

        rows = np.zeros((self.task.workers, len(numbers)), np.int64)
        rows[self.task.index] = numbers
        if self.task.workers == 1:
            return rows
        first = self.task.index * self.local
        given = self.each(lambda i: tf.constant(rows if i == first else np.zeros_like(rows)))
        found = self.strategy.reduce(tf.distribute.ReduceOp.SUM, given, axis=None)
        return np.asarray(found.numpy())


def replicas_for(devices: str | int | None, task: WorkerTask) -> Replicas:
    """The replicas for `--devices` and `--workers`. Create them before TensorFlow runs an op.

    devices: None for one device, `all` for all GPUs of this machine, or their number. Without a
    GPU, a number divides the CPU, to try it out. Raises UsageError, RunError.
    """
    import tensorflow as tf

    count = _count(devices)
    if task.workers > 1:
        gpus = tf.config.get_visible_devices("GPU")
        if count > max(len(gpus), 1):
            raise UsageError(f"{count} devices, but this worker has {len(gpus)} GPUs")
        if gpus:
            tf.config.set_visible_devices(gpus[:count], "GPU")
        try:
            return Replicas(tf.distribute.MultiWorkerMirroredStrategy(), task)
        except (tf.errors.OpError, RuntimeError, ValueError) as error:
            raise RunError(f"cannot start worker {task.index}: {first_line(error)}") from error
    return Replicas(strategy_of(count))


def _count(devices: str | int | None) -> int:
    if devices is None:
        return 1
    if devices == ALL:
        return max(gpu_count(), 1)
    if not str(devices).isdigit() or int(devices) < 1:
        raise UsageError(f"`{devices}` is not a number of devices", hint="give `all` or a number")
    return int(devices)


def gpu_count() -> int:
    import tensorflow as tf

    return len(tf.config.get_visible_devices("GPU"))


def strategy_of(replicas: int) -> TFModule:
    """A strategy for `replicas` GPUs; without GPUs, for as many parts of the CPU, to try it out.

    Raises UsageError if there are fewer GPUs, or if it is too late to divide the CPU.
    """
    import tensorflow as tf

    if replicas == 1:
        return tf.distribute.get_strategy()
    gpus = gpu_count()
    if 0 < gpus < replicas:
        raise UsageError(f"{replicas} replicas, but {gpus} GPUs")
    if not gpus:
        _divide_processor(replicas)
    kind = "GPU" if gpus else "CPU"
    return tf.distribute.MirroredStrategy([f"{kind}:{i}" for i in range(replicas)])


def _divide_processor(parts: int) -> None:
    import tensorflow as tf

    (processor,) = tf.config.list_physical_devices("CPU")
    configuration = [tf.config.LogicalDeviceConfiguration() for _ in range(parts)]
    try:
        tf.config.set_logical_device_configuration(processor, configuration)
    except RuntimeError:
        if len(tf.config.list_logical_devices("CPU")) < parts:
            raise UsageError(
                "TensorFlow has started already, so the CPU cannot be divided"
            ) from None


# -- parts of a batch -------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchPart:
    """The samples of a batch that one replica computes, and their share of the whole batch."""

    batch: LabelledBatch
    share: float


def parts_of(batch: LabelledBatch, count: int, step: int) -> list[BatchPart]:
    """A batch divided among `count` replicas, each with a multiple of `step` samples.

    A replica for which no sample is left computes the first ones with a share of 0, since all
    replicas take part in each sum.
    """
    samples = len(next(iter(batch.inputs.values())))
    groups = max(samples // step, 1)
    ends = [*(i * groups // count * step for i in range(count)), samples]
    made = []
    for start, end in pairwise(ends):
        if start == end:
            made.append(BatchPart(_slice(batch, 0, step), 0.0))
        else:
            made.append(BatchPart(_slice(batch, start, end), (end - start) / samples))
    return made


def _slice(batch: LabelledBatch, start: int, end: int) -> LabelledBatch:
    labels = None if batch.labels is None else batch.labels[start:end]
    return LabelledBatch({name: x[start:end] for name, x in batch.inputs.items()}, labels)


def same_everywhere(rows: Sequence[Sequence[int]] | Array) -> bool:
    """Whether all workers gave the same numbers."""
    return bool((np.asarray(rows) == np.asarray(rows)[0]).all())
