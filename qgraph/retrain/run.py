"""Training in a directory."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path

from qgraph.drafts import lock_directory
from qgraph.files import make_directory, remove_directory
from qgraph.ir.graph import Graph
from qgraph.quant.samples.sources import is_entry_point
from qgraph.quiet import quiet_tensorflow
from qgraph.records import Object
from qgraph.retrain.directory import load
from qgraph.train.data import (
    ArrayBatches,
    Source,
    TrainingData,
    beginning,
    read_batches,
    split_held_out,
    training_data,
    write_batches,
)
from qgraph.train.fused import set_threads
from qgraph.train.loop import CHECKPOINTS, LAST, SAVE_SECONDS, Trainer
from qgraph.train.options import Options
from qgraph.train.replicas import replicas_for
from qgraph.train.score import Watch
from qgraph.train.task import WorkerTask, task_of

VALIDATION = "validation.npz"  # samples of a dataset, in the directory of checkpoints


@quiet_tensorflow()
def train(
    path: str | Path,
    data: Source,
    validation: Source | None = None,
    options: Options | None = None,
    *,
    restart: bool = False,
    devices: str | int | None = None,
    workers: bool = False,
    save_seconds: float = SAVE_SECONDS,
    watch: Watch = lambda status: None,
) -> Trainer:
    """Train in a directory, from its newest checkpoint to the end of `options.epochs`.

    A run that was killed and continues ends with the same bits, where TensorFlow's ops are
    deterministic (`make_deterministic`).

    Args:
        path: A directory that `save` or `qgraph quantize --mode retrain` wrote.
        data: Training data, with labels or without: a `.npz` with an array for each input and
            labels under `labels`, `label` or `y`, a `.npy`, a directory of such files or one that
            `tf.data.Dataset.save` wrote, `module:function`, arrays by name, a pair of inputs and
            labels, or a `tf.data.Dataset`.
        validation: Validation data, in the same formats. None keeps a part of the training data for
            validation; of a dataset, the first batches, which training also uses.
        options: Learning rates, loss and schedule; None uses the defaults.
        restart: Whether to remove existing checkpoints and start again.
        devices: Devices that share each batch: `all` for all GPUs of this machine, or their number.
            Without a GPU, a number divides the CPU, to try it out. None uses one device.
        workers: Whether other processes share each batch too. The variable TF_CONFIG names them.
            The first one writes checkpoints, which all must be able to read.
        save_seconds: Seconds between two checkpoints.
        watch: Called with the state of the run after each step.

    Returns:
        The trainer; `history` and `best_score` have its scores on validation data.

    Raises:
        LoadError: The directory is not a training directory.
        CalibrationError: The data does not fit the network.
        UsageError: Options do not fit the network or the data.
        TrainingError: The loss or a weight became NaN or infinite.
        RunError: Another worker was lost.
        OutputError: A checkpoint cannot be written, or another run uses the directory.

    Examples:
        >>> from qgraph.train.options import Options
        >>> trainer = qgraph.retrain.train("tuned", "train.npz", "val.npz", Options(epochs=1))
        >>> len(trainer.history) > 0
        True
    """
    with sole_chief(path, task_of(workers)):
        made = trainer(
            path, data, validation, options, restart=restart, devices=devices, workers=workers
        )
        made.save_seconds, made.watch = save_seconds, watch
        made.run()
        return made


@quiet_tensorflow()
def trainer(
    path: str | Path,
    data: Source,
    validation: Source | None = None,
    options: Options | None = None,
    *,
    restart: bool = False,
    devices: str | int | None = None,
    workers: bool = False,
) -> Trainer:
    """Create the trainer that `train` runs, without starting it.

    Args:
        path: The training directory.
        data: Training data, as in `train`.
        validation: Data that the best checkpoint is chosen on, as in `train`.
        options: Settings of the training.
        restart: Whether to remove earlier checkpoints and start again.
        devices: Devices that share each batch, as in `train`.
        workers: Whether other processes share each batch too, as in `train`.

    Returns:
        The trainer; its `run` trains.

    Raises:
        LoadError: The directory is not a training directory.
        CalibrationError: The data does not fit the network.
        UsageError: Options do not fit the network or the data.
        OutputError: The directory of checkpoints cannot be created or removed.

    Examples:
        >>> trainer = qgraph.retrain.trainer("tuned", "train.npz", "val.npz")
        >>> trainer.options.epochs
        5
    """
    path, options = Path(path), options or Options()
    task = task_of(workers)
    replicas = replicas_for(devices, task)
    found, checkpoints = load(path), path / CHECKPOINTS
    training = training_data(data, found.graph, options.batch_size, options.seed, task)
    training, kept = _split_validation(
        training, validation, found.graph, options, checkpoints, restart
    )
    made = Trainer(
        found.graph,
        found.floating,
        found.norms,
        training,
        kept if task.is_chief else None,
        options,
        folder=checkpoints if task.is_chief or not restart else None,
        replicas=replicas,
    )
    if not task.is_chief:
        return made
    if restart:
        remove_directory(checkpoints)
    make_directory(checkpoints)
    file = checkpoints / VALIDATION
    if isinstance(kept, ArrayBatches) and kept.trained and not file.exists():
        write_batches(file, kept)  # else a run that continues would compare with others
    return made


def _split_validation(
    training: TrainingData,
    validation: Source | None,
    graph: Graph,
    options: Options,
    checkpoints: Path,
    restart: bool,
) -> tuple[TrainingData, TrainingData | None]:
    """Samples for training, and for validation: those given, kept before, or held apart now."""
    kept = checkpoints / VALIDATION
    if validation is not None:
        return training, training_data(validation, graph, options.batch_size, options.seed)
    if isinstance(training, ArrayBatches):
        return split_held_out(training, graph)
    if kept.exists() and not restart:
        return training, read_batches(kept, graph, options.batch_size)
    if (checkpoints / LAST).exists() and not restart:
        return training, None  # the dataset was too small, or the run began without it
    return training, beginning(training, graph)


def sole_chief(path: str | Path, task: WorkerTask) -> AbstractContextManager[None]:
    """Lock the directory of a run, which its workers share. Raises OutputError."""
    return lock_directory(Path(path)) if task.is_chief else nullcontext()


def check_files(path: str | Path, *sources: Source | None) -> None:
    """Check a training directory, and data in files, without TensorFlow.

    Raises LoadError, CalibrationError.
    """
    graph = load(path).graph
    for source in sources:
        if not isinstance(source, str | Path) or is_entry_point(source):
            continue
        if not Path(source).is_dir():  # where it is one: a saved tf.data.Dataset
            training_data(source, graph, 1, 0)


def make_deterministic() -> None:
    """Make TensorFlow use deterministic ops in this process, so that every run gives equal bits.

    Examples:
        >>> qgraph.retrain.make_deterministic()
    """
    import tensorflow as tf

    tf.config.experimental.enable_op_determinism()


def use_threads(count: int) -> None:
    """Limit the threads of TensorFlow's and qgraph's ops. Call it before any op has run.

    Args:
        count: Threads, at least 1.

    Raises:
        UsageError: `count` is below 1.
        RuntimeError: TensorFlow has run an op in this process.

    Examples:
        >>> qgraph.retrain.use_threads(2)  # doctest: +SKIP
    """
    import tensorflow as tf

    set_threads(count)
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(count)


def facts_of(trainer: Trainer) -> Object:
    """The result of a run as values that JSON can hold."""
    return {
        "epochs": trainer.at.epoch,
        "steps": trainer.at.step,
        "best": asdict(trainer.best_score) if trainer.best_score else None,
        "history": [asdict(score) for score in trainer.history],
    }
