"""Save a model of a script as the best checkpoint of a training directory."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from qgraph.archives import read_json
from qgraph.errors import LoadError
from qgraph.train.checkpoint import Checkpoint, read_checkpoint
from qgraph.train.loop import BEST, CHECKPOINTS, network_of, restore
from qgraph.train.model import TrainingGraph


class TrainedModel(Protocol):
    """A `QuantizedModel` or a `TrainingModule`."""

    network: TrainingGraph


def save_checkpoint(model: TrainedModel, path: str | Path) -> Path:
    """Write what `model` has learned to the directory `path`, for `finalize`.

    It takes the place of the best checkpoint. Raises LoadError where the directory is of another
    network, TrainingError where numbers are not finite, OutputError.
    """
    network = network_of(model.network.graph)
    file = Path(path) / "training.json"
    if not file.is_file():
        raise LoadError("is not a training directory", node=str(path))
    about = read_json(file)
    if about.get("network") != network:
        raise LoadError(
            "is the training directory of another network",
            node=str(path),
            hint="give the one that the model was made from",
        )
    learned = Checkpoint(network, model.network.arrays(), {})
    file = Path(path) / CHECKPOINTS / BEST
    file.parent.mkdir(exist_ok=True)
    learned.write(file)
    return file


def load_checkpoint(model: TrainedModel, path: str | Path) -> None:
    """Give `model` what the best checkpoint in the directory `path` holds. Raises LoadError."""
    file = Path(path) / CHECKPOINTS / BEST
    found = read_checkpoint(file, network_of(model.network.graph))
    restore(model.network.named_variables(), found)
