"""Training in a directory."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from qgraph.drafts import sole_user
from qgraph.files import make_directory, remove_directory
from qgraph.quant.sources import is_entry_point
from qgraph.quiet import quiet_tensorflow
from qgraph.retrain.directory import load
from qgraph.train.data import (
    ArrayBatches,
    Source,
    TrainingData,
    beginning,
    held_apart,
    read_batches,
    training_data,
    write_batches,
)
from qgraph.train.fused import set_threads
from qgraph.train.loop import CHECKPOINTS, LAST, SAVE_SECONDS, Trainer
from qgraph.train.options import Options
from qgraph.train.score import Watch

VALIDATION = "validation.npz"  # samples of a dataset, in the directory of checkpoints


@quiet_tensorflow()
def train(
    path: str | Path,
    data: Source,
    validation: Source | None = None,
    options: Options | None = None,
    *,
    restart: bool = False,
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
        save_seconds: Seconds between two checkpoints.
        watch: Called with the state of the run after each step.

    Returns:
        The trainer; `history` and `best_score` have its scores on validation data.

    Raises:
        LoadError: The directory is not a training directory.
        CalibrationError: The data does not fit the network.
        UsageError: Options do not fit the network or the data.
        TrainingError: The loss or a weight became NaN or infinite.
        OutputError: A checkpoint cannot be written, or another run uses the directory.

    Examples:
        >>> from qgraph.train.options import Options
        >>> trainer = qgraph.retrain.train("tuned", "train.npz", "val.npz", Options(epochs=1))
        >>> len(trainer.history) > 0
        True
    """
    with sole_user(Path(path)):
        made = trainer(path, data, validation, options, restart=restart)
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
) -> Trainer:
    """Create the trainer that `train` runs, without starting it.

    Args:
        path: The training directory.
        data: Training data, as in `train`.
        validation: Data that the best checkpoint is chosen on, as in `train`.
        options: Settings of the training.
        restart: Whether to remove earlier checkpoints and start again.

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
    found, checkpoints = load(path), path / CHECKPOINTS
    size, seed = options.batch_size, options.seed
    training = training_data(data, found.graph, size, seed)
    kept = checkpoints / VALIDATION
    validation_data: TrainingData | None
    if validation is not None:
        validation_data = training_data(validation, found.graph, size, seed)
    elif isinstance(training, ArrayBatches):
        training, validation_data = held_apart(training, found.graph)
    elif kept.exists() and not restart:
        validation_data = read_batches(kept, found.graph, size)
    elif (checkpoints / LAST).exists() and not restart:
        validation_data = None  # the dataset was too small, or the run began without it
    else:
        validation_data = beginning(training, found.graph)
    made = Trainer(
        found.graph,
        found.floating,
        found.norms,
        training,
        validation_data,
        options,
        folder=checkpoints,
    )
    if restart:
        remove_directory(checkpoints)
    make_directory(checkpoints)
    if isinstance(validation_data, ArrayBatches) and validation_data.trained and not kept.exists():
        write_batches(kept, validation_data)  # else a run that continues would compare with others
    return made


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


def facts_of(trainer: Trainer) -> dict[str, Any]:
    """The result of a run as values that JSON can hold."""
    return {
        "epochs": trainer.at.epoch,
        "steps": trainer.at.step,
        "best": asdict(trainer.best_score) if trainer.best_score else None,
        "history": [asdict(score) for score in trainer.history],
    }
