"""The training graph as a `tf.Module`, for custom loops. This file imports TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from qgraph.errors import UsageError
from qgraph.foreign import Tensor, Variable
from qgraph.ir.graph import Graph
from qgraph.train.folded import Norm
from qgraph.train.forward import shaped
from qgraph.train.freezing import Freezing
from qgraph.train.model import TrainingGraph
from qgraph.train.norms import MOMENTUM


class TrainingModule(tf.Module):  # type: ignore[misc]
    """A quantized network that learns, as a function of its inputs and lists of variables.

    The variables to train are `kernels` (weights, biases, multipliers), `gammas` (scales of batch
    norms) and `thresholds` (one variable, the ranges of all scales). `freezing` keeps frozen
    thresholds: pass it to `TqtAdam`, or call `freezing.hold` after each step. `norms_frozen`:
    whether batch norms work as in inference; functions must be traced again after a change. Under
    `tf.distribute`, create it in the scope of the strategy.
    """

    def __init__(
        self, graph: Graph, norms: Sequence[Norm] = (), *, momentum: float = MOMENTUM
    ) -> None:
        super().__init__()
        self.network = TrainingGraph(graph, norms, momentum=momentum)
        quantizers = self.network.quantizers
        self.freezing = Freezing(quantizers.ranges, quantizers.frozen_at_once)
        self.kernels, self.gammas = self.network.kernels, self.network.gammas
        self.thresholds = self.network.thresholds
        self.state = variables_of(self.network, self.freezing)
        self.norms_frozen = not norms

    def __call__(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        """Outputs by public name. inputs: as in `by_name`.

        In training, batch norms that are not frozen use the statistics of the batch, and update the
        running ones.
        """
        fed = by_name(self.network.graph, inputs)
        if not training:
            return self.network(fed)
        return learn(self.network, fed, batch_statistics=not self.norms_frozen)

    def finalized(self) -> Graph:
        """The calibrated graph of inference, with the current values of the variables."""
        return self.network.finalized()


def variables_of(network: TrainingGraph, freezing: Freezing) -> dict[str, Variable]:
    """All variables, by names that do not change between versions."""
    held = {f"freezing/{i}": v for i, v in enumerate(freezing.variables)}
    return {**network.named_variables(), **held}


def by_name(graph: Graph, inputs: Tensor) -> dict[str, Tensor]:
    """Tensors by input name, cast to the types of the inputs.

    inputs: by name, a sequence in the order of `graph.inputs`, or the only one. Raises UsageError
    for other names or shapes.
    """
    named = inputs
    if not isinstance(inputs, Mapping):
        several = inputs if isinstance(inputs, list | tuple) else [inputs]
        named = dict(zip(graph.inputs, several, strict=False))
        if len(several) != len(graph.inputs):
            raise UsageError(_wanted(graph, f"{len(several)} were given"))
    if set(named) != set(graph.inputs):
        raise UsageError(_wanted(graph, f"`{'`, `'.join(map(str, named))}` were given"))
    typed = {name: tf.cast(named[name], graph.types[name].dtype) for name in graph.inputs}
    return {name: shaped(x, graph, name) for name, x in typed.items()}


def _wanted(graph: Graph, found: str) -> str:
    """The message for inputs that do not fit."""
    return f"the network has the inputs `{'`, `'.join(graph.inputs)}`; {found}"


def learn(
    network: TrainingGraph, inputs: Mapping[str, Tensor], *, batch_statistics: bool
) -> dict[str, Tensor]:
    """Outputs by public name, in training. Updates running statistics."""
    wanted = network.graph.outputs.values()
    values, updates = network.values(inputs, batch_statistics=batch_statistics, wanted=wanted)
    for variable, value in updates:
        variable.assign(value)
    return network.outputs(values)
