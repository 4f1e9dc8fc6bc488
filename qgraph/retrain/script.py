"""Networks to train in your own script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qgraph.compiler import Quantized
from qgraph.ir.graph import Graph
from qgraph.train.folded import Norm, norms_of

if TYPE_CHECKING:
    from qgraph.train.keras import QuantizedModel
    from qgraph.train.module import TrainingModule


from qgraph.quiet import quiet_tensorflow
from qgraph.retrain.directory import TrainingDirectory, check_trainable, load


@quiet_tensorflow()
def keras_model(source: str | Path | TrainingDirectory | Quantized) -> QuantizedModel:
    """A network to train, as a `tf_keras.Model`; as calibration left it.

    source: a directory that `save` wrote, or what is in memory. Raises LoadError, UnsupportedError.
    """
    from qgraph.train.keras import QuantizedModel

    return QuantizedModel(*_twins(source))


@quiet_tensorflow()
def module(source: str | Path | TrainingDirectory | Quantized) -> TrainingModule:
    """A network to train in a loop of your own, as a `tf.Module`. Else as `keras_model`."""
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
