"""A training graph as a SavedModel. This file imports TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from qgraph.foreign import Tensor
from qgraph.ir.graph import Graph
from qgraph.names import tensorflow_name
from qgraph.train.folded import Norm
from qgraph.train.loop import network_of
from qgraph.train.model import TrainingGraph
from qgraph.train.module import by_name, learn
from qgraph.train.saved_graph.names import NETWORK, state_names
from qgraph.train.tqt import ScaledOps, tqt_with

BOTH = (False, True)


class SavedGraph(tf.Module):  # type: ignore[misc]
    """A network as a function with its variables, for a script to load.

    `kernels`, `gammas` and `thresholds` are lists of variables to train, as in `TrainingModule`.
    `state` has all variables by their names in checkpoints, and the identity of the network.
    """

    def __init__(self, graph: Graph, norms: Sequence[Norm], ops: ScaledOps) -> None:
        super().__init__()
        network = TrainingGraph(graph, norms, kind=tqt_with(ops))
        self.kernels, self.gammas = network.kernels, network.gammas
        self.thresholds = network.thresholds
        named = network.named_variables()
        names = state_names(named)
        self.state = {names[name]: variable for name, variable in named.items()}
        self.state[NETWORK] = tf.Variable(network_of(graph), trainable=False, name=NETWORK)
        self._bodies = {
            "infer": tf.function(network, autograph=False),
            **{
                statistics: tf.function(
                    lambda inputs, of_batch=of_batch: learn(
                        network, inputs, batch_statistics=of_batch
                    ),
                    autograph=False,
                )
                for statistics, of_batch in (("batch", True), ("frozen", False))
            },
        }
        self._graph, self._has_norms = graph, bool(norms)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def __call__(
        self, inputs: Tensor, training: bool = False, norms_frozen: bool = False
    ) -> dict[str, Tensor]:
        """Outputs by name, of inference or for training. norms_frozen: as in `TrainingModule`."""
        body = "infer"
        if training:
            body = "frozen" if norms_frozen or not self._has_norms else "batch"
        outputs: dict[str, Tensor] = self._bodies[body](by_name(self._graph, inputs))
        return outputs


def write_saved_graph(path: Path, graph: Graph, norms: Sequence[Norm], ops: ScaledOps) -> None:
    """Write the SavedModel of a training graph to `path`."""
    made = SavedGraph(graph, norms, ops)
    types = {name: graph.types[name] for name in graph.inputs}
    specs = {
        name: tf.TensorSpec(kind.shape, kind.dtype, name=tensorflow_name(name))
        for name, kind in types.items()
    }
    inputs = specs if len(specs) > 1 else next(iter(specs.values()))
    for training in BOTH:
        for norms_frozen in BOTH:
            made.__call__.get_concrete_function(inputs, training, norms_frozen)
    serving = made.__call__.get_concrete_function(inputs)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(made, str(path), serving, options)
