"""Retraining: a quantized network that learns, as a directory between its three verbs.

from qgraph import quantize, retrain
retrain.save(quantize("model.pb", "calib.npz", mode="retrain"), "out")
retrain.train("out", "train.npz", "validation.npz")
retrain.finalize("out").save("out/inference")
"""

from qgraph.retrain.directory import (
    FILES,
    TrainingDirectory,
    check_trainable,
    load,
    reserve,
    save,
    write,
)
from qgraph.retrain.finalize import finalize
from qgraph.retrain.run import (
    check_files,
    facts_of,
    make_deterministic,
    train,
    trainer,
    use_threads,
)
from qgraph.retrain.script import keras_model, module
from qgraph.retrain.training_graph import library_of, save_training_graph
from qgraph.stored import INFERENCE
from qgraph.train.best_checkpoint import load_checkpoint, save_checkpoint
from qgraph.train.loop import CHECKPOINTS

__all__ = [
    "CHECKPOINTS",
    "FILES",
    "INFERENCE",
    "TrainingDirectory",
    "check_files",
    "check_trainable",
    "facts_of",
    "finalize",
    "keras_model",
    "library_of",
    "load",
    "load_checkpoint",
    "make_deterministic",
    "module",
    "reserve",
    "save",
    "save_checkpoint",
    "save_training_graph",
    "train",
    "trainer",
    "use_threads",
    "write",
]
