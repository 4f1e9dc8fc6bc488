"""Networks for custom training scripts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qgraph.ir.graph import Graph
from qgraph.quantized import Quantized
from qgraph.train.folded import Norm, norms_of

if TYPE_CHECKING:
    from qgraph.train.keras import QuantizedModel
    from qgraph.train.module import TrainingModule


from qgraph.quiet import quiet_tensorflow
from qgraph.retrain.directory import TrainingDirectory, check_trainable, load


@quiet_tensorflow()
def keras_model(source: str | Path | TrainingDirectory | Quantized) -> QuantizedModel:
    """Create a Keras model of the network of a training directory, as after calibration.

    Args:
        source: A directory that `save` or `qgraph quantize --mode retrain` wrote, or the result of
            `load` or `qgraph.quantize`.

    Returns:
        A `tf_keras.Model` that compiles and fits. `tqt_optimizer` and `distillation_loss` make an
        optimizer and a loss for it.

    Raises:
        LoadError: The directory is not a training directory.
        UnsupportedError: The network cannot be trained; the error names the op.

    Examples:
        >>> import numpy as np
        >>> train = np.load("train.npz")
        >>> model = qgraph.retrain.keras_model("tuned")
        >>> model.compile(model.tqt_optimizer(), "sparse_categorical_crossentropy")
        >>> history = model.fit(train["image"], train["labels"], epochs=1, verbose=0)
        >>> print(qgraph.retrain.save_checkpoint(model, "tuned").name)
        best.npz
    """
    from qgraph.train.keras import QuantizedModel

    return QuantizedModel(*_twins(source))


@quiet_tensorflow()
def module(source: str | Path | TrainingDirectory | Quantized) -> TrainingModule:
    """Create a `tf.Module` of the network of a training directory, for a custom training loop.

    Args:
        source: As in `keras_model`.

    Returns:
        A module. A call with a batch returns the outputs by name. `trainable_variables` are the
        variables to train.

    Raises:
        LoadError: The directory is not a training directory.
        UnsupportedError: The network cannot be trained; the error names the op.

    Examples:
        >>> import numpy as np
        >>> network = qgraph.retrain.module("tuned")
        >>> outputs = network(np.load("train.npz")["image"][:8], training=True)
        >>> outputs["probabilities"].shape
        TensorShape([8, 10])
    """
    from qgraph.train.module import TrainingModule

    graph, _, norms = _twins(source)
    return TrainingModule(graph, norms)


def _twins(
    source: str | Path | TrainingDirectory | Quantized,
) -> tuple[Graph, Graph, tuple[Norm, ...]]:
    """The calibrated graph, its float twin, and the batch norms in them."""
    if isinstance(source, Quantized):
        check_trainable(source.graph)
        return source.graph, source.floating, norms_of(source.floating)
    found = source if isinstance(source, TrainingDirectory) else load(source)
    return found.graph, found.floating, found.norms
