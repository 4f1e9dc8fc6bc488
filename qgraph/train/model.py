"""A calibrated graph whose weights, biases, batch norms and thresholds are variables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from qgraph.errors import TrainingError
from qgraph.foreign import Tensor, Variable
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array
from qgraph.quant.topology import QUANTIZERS
from qgraph.train.folded import Norm
from qgraph.train.forward import Chain, Forward, Piece
from qgraph.train.kind import QuantizerKind, Quantizers
from qgraph.train.normed_epilogue import PendingNorm
from qgraph.train.normed_input import normed_input
from qgraph.train.norms import MOMENTUM, BatchNorms, Update
from qgraph.train.state import constants_of
from qgraph.train.tqt import TQT, inexact_in_float32


class TrainingGraph:
    """A trainable quantized graph with the variables `kernels`, `gammas` and `thresholds`.

    graph: a calibrated graph, or a float graph, which has no thresholds. norms: batch norms that
    were folded into it; they are active until they are frozen. momentum: of their running
    statistics. kind: of its quantizers.
    """

    def __init__(
        self,
        graph: Graph,
        norms: Sequence[Norm] = (),
        *,
        momentum: float = MOMENTUM,
        kind: QuantizerKind = TQT,
    ) -> None:
        self.graph, self.momentum, self.kind = graph, momentum, kind
        self.quantizers: Quantizers = kind.quantizers(graph)
        self.weights = constants_of(graph)
        self.norms = BatchNorms(graph, norms)
        self._forward = Forward(graph, (*QUANTIZERS, "relu6"))

    @property
    def wide(self) -> frozenset[str]:
        """The nodes whose sums may not be exact in float32 for some weights."""
        return self.quantizers.wide

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run as in inference, inside a `tf.function`: tensors by input name to outputs by name.

        Every quantized number equals that of inference: layers whose sums may not be exact in
        float32 for some weights are computed in float64 (docs/numerics.md, 4).
        """
        import tensorflow as tf

        def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            wanted = self.graph.outputs.values()
            return self.outputs(self.values(inputs, wide=self.wide, wanted=wanted)[0])

        # AutoGraph is off: it would rewrite each line of the function.
        outputs: dict[str, Tensor] = tf.autograph.experimental.do_not_convert(run)(inputs)
        return outputs

    def outputs(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Outputs by public name out of all `values`."""
        import tensorflow as tf

        types, outputs = self.graph.types, self.graph.outputs
        return {name: tf.cast(values[v], types[v].dtype) for name, v in outputs.items()}

    def values(
        self,
        inputs: Mapping[str, Tensor],
        *,
        batch_statistics: bool = False,
        wide: Collection[str] = (),
        wanted: Collection[str] | None = None,
    ) -> tuple[dict[str, Tensor], list[Update]]:
        """Every value by name, and updates of running statistics.

        batch_statistics: whether batch norms use the statistics of this batch; otherwise batch
        norms are frozen and the updates are empty. wide: nodes to compute in float64. wanted: names
        of the values to compute; others may be missing from the result. None computes all.
        """
        updates: list[Update] = []

        def normalize(node: Node, piece: Piece, inputs: Sequence[Tensor]) -> Tensor:
            layer = self.norms.by_layer[node.name]
            weights = self.weights[layer.weights]
            pending, codes = node.name in behind, run.codes.get(node.name)
            normed = False
            if layer.input is not None and codes is not None and codes.ops is not None:
                piece = normed_input(layer.input, piece, codes, self.momentum, updates)
                normed = True
            y, changed = layer.run(
                weights, piece, inputs, self.momentum, pending=pending, normed=normed
            )
            updates.extend(changed)
            return y

        def moves_input(name: str) -> bool:
            layer = self.norms.by_layer.get(name) if batch_statistics else None
            return layer is not None and layer.input is not None

        around = dict.fromkeys(self.norms.by_layer, normalize) if batch_statistics else {}
        run = self.quantizers.replacements(self._forward.pieces, wanted)
        # Normalized inputs are not on a grid of codes.
        pieces = {name: piece for name, piece in run.pieces.items() if not moves_input(name)}
        may_wait = batch_statistics and not wide
        chains = [self._with_norm_outside(chain, batch_statistics) for chain in run.chains]
        gains = self.norms.gains()
        behind = self._pending(chains, gains, updates, frozenset(wanted or ())) if may_wait else {}
        chains = [behind.get(chain.layer, chain) for chain in chains]
        constants = self.norms.folded(self.weights, gains)
        values = self._forward(inputs, constants, run.overrides, around, wide, chains, pieces)
        return values, [*updates, *run.updates]

    def _pending(
        self,
        chains: Iterable[Chain],
        gains: Mapping[str, Tensor],
        updates: list[Update],
        wanted: Collection[str],
    ) -> dict[str, Chain]:
        """Chains that compute the norm of the layer before them, by layer.

        gains: of norms of outputs, by layer. updates: receives those of running statistics when a
        chain runs.
        """
        found = {}
        for chain in chains:
            layer = self.norms.by_layer.get(chain.layer)
            if layer is None or layer.output is None or chain.normed is None:
                continue
            if chain.layer in wanted or self.graph.use_count(chain.layer) > 1:
                continue
            constant = layer.constant(self.weights[layer.weights])
            gain = gains[chain.layer]
            norm = PendingNorm(layer.output, gain, constant, self.momentum, updates)
            found[chain.layer] = replace(chain, run=partial(chain.normed, norm))
        return found

    def _with_norm_outside(self, chain: Chain, batch_statistics: bool) -> Chain:
        """The chain without its layer, if a batch norm of the layer's input moves."""
        layer = self.norms.by_layer.get(chain.layer) if batch_statistics else None
        if layer is None or layer.input is None or chain.without_layer is None:
            return chain
        return chain.without_layer

    def wide_now(self) -> frozenset[str]:
        """The nodes whose sums may not be exact in float32 with the current weights."""
        return inexact_in_float32(self.finalized()) if self.kind.integers else frozenset()

    def constants(self) -> dict[str, Tensor]:
        """Values of the const nodes, batch norms folded."""
        return self.norms.folded(self.weights, self.norms.gains())

    @property
    def kernels(self) -> list[Variable]:
        """Weights, biases and multipliers."""
        return list(self.weights.values())

    @property
    def gammas(self) -> list[Variable]:
        """Scales of batch norms."""
        return self.norms.gammas

    @property
    def thresholds(self) -> list[Variable]:
        """The ranges of all scales (`Quantizers.ranges`); empty for a float graph."""
        return [self.quantizers.ranges] if self.quantizers.names else []

    def named_variables(self) -> dict[str, Variable]:
        """All variables, by names that do not change between versions."""
        found = {f"constant/{name}": v for name, v in self.weights.items()}
        return {**found, **self.norms.named_variables(), **self.quantizers.variables()}

    def arrays(self) -> dict[str, Array]:
        """Values of `named_variables`. Raises TrainingError for NaN or infinity."""
        found = {name: np.array(v.numpy()) for name, v in self.named_variables().items()}
        for name, array in found.items():
            if not np.isfinite(array).all():
                hint = "go back to a checkpoint; smaller learning rates may help"
                raise TrainingError("training led to NaN or infinity", node=name, hint=hint)
        return found

    def finalized(self, graph: Graph | None = None) -> Graph:
        """A copy of `graph` (by default the own one) with the current constants and exponents.

        Raises TrainingError if a variable is not finite, UnsupportedError if the quantizers do not
        end in integers.
        """
        self.arrays()
        made = (graph or self.graph).copy()
        for name, tensor in self.constants().items():
            made.set_attrs(name, value=np.asarray(tensor.numpy()))
        self.quantizers.finalize(made)
        return made
