"""Save a model of a script as the best checkpoint of a training directory."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from qgraph.archives import read_json
from qgraph.errors import LoadError
from qgraph.files import make_directory
from qgraph.train.checkpoint import Checkpoint, read_checkpoint, restore
from qgraph.train.loop import BEST, CHECKPOINTS, network_of
from qgraph.train.model import TrainingGraph


class TrainedModel(Protocol):
    """A `QuantizedModel` or a `TrainingModule`."""

    network: TrainingGraph


def save_checkpoint(model: TrainedModel, path: str | Path) -> Path:
    """Write what a model has learned as the best checkpoint of a training directory.

    Args:
        model: The result of `keras_model` or `module`.
        path: The training directory that it was made from.

    Returns:
        The path of the checkpoint, which `finalize` reads.

    Raises:
        LoadError: The directory is of another network, or cannot be trained in.
        TrainingError: A number is NaN or infinite.
        OutputError: The file cannot be written.

    Examples:
        >>> model = qgraph.retrain.keras_model("tuned")
        >>> print(qgraph.retrain.save_checkpoint(model, "tuned").name)
        best.npz
    """
    network = network_of(model.network.graph)
    file = Path(path) / "training.json"
    if not file.is_file():
        raise LoadError("not a training directory", node=str(path))
    about = read_json(file)
    if about.get("network") != network:
        raise LoadError(
            "the training directory of another network",
            node=str(path),
            hint="give the one that the model was made from",
        )
    learned = Checkpoint(network, model.network.arrays(), {})
    file = Path(path) / CHECKPOINTS / BEST
    make_directory(file.parent)
    learned.write(file)
    return file


def load_checkpoint(model: TrainedModel, path: str | Path) -> None:
    """Load the best checkpoint of a training directory into a model.

    Args:
        model: The result of `keras_model` or `module`.
        path: The training directory that it was made from.

    Raises:
        LoadError: The checkpoint does not exist, is damaged, or belongs to another network.

    Examples:
        >>> model = qgraph.retrain.keras_model("tuned")
        >>> path = qgraph.retrain.save_checkpoint(model, "tuned")
        >>> qgraph.retrain.load_checkpoint(model, "tuned")
    """
    file = Path(path) / CHECKPOINTS / BEST
    found = read_checkpoint(file, network_of(model.network.graph))
    restore(model.network.named_variables(), found)
