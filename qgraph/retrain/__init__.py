"""Retraining: train a quantized network in a directory.

`save` writes the directory, `train` trains in it, and `finalize` returns the trained network. A
custom script starts with `keras_model` or `module` and ends with `save_checkpoint`.

Examples:
    >>> from qgraph import quantize, retrain
    >>> from qgraph.train.options import Options
    >>> result = quantize("model.pb", "calib.npz", mode="retrain")
    >>> path = retrain.save(result, "tuned")
    >>> trainer = retrain.train("tuned", "train.npz", "val.npz", Options(epochs=1))
    >>> print(retrain.finalize("tuned").save("tuned/inference"))
    tuned/inference
"""

from qgraph.retrain.directory import TrainingDirectory, load, save
from qgraph.retrain.finalize import finalize
from qgraph.retrain.run import make_deterministic, train, trainer, use_threads
from qgraph.retrain.script import keras_model, module
from qgraph.retrain.training_graph import save_training_graph
from qgraph.train.best_checkpoint import load_checkpoint, save_checkpoint

__all__ = [
    "TrainingDirectory",
    "finalize",
    "keras_model",
    "load",
    "load_checkpoint",
    "make_deterministic",
    "module",
    "save",
    "save_checkpoint",
    "save_training_graph",
    "train",
    "trainer",
    "use_threads",
]
