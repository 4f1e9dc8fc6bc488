"""Bias correction: subtract the mean error of a layer from its bias (Nagel et al., 2019).

Rounded weights and inputs shift the mean of a layer's output. With data, the shift is measured in
topological order, so that each layer also compensates for the errors of earlier layers. Without
data, the effect of rounded weights on the mean of inputs is computed from batch-norm statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.interpret import run_node
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array
from qgraph.numerics import aligned, quantized_constant
from qgraph.parallel import over_chunks
from qgraph.progress import Steps, silent_steps
from qgraph.quant.float_statistics import (
    FloatStatistics,
    channel_sums,
    positions,
    statistics_of_chunks,
)
from qgraph.quant.graph_values import GraphValues
from qgraph.quant.moments import expected_means, means_map
from qgraph.quant.paired import layer_of, quantized_constant_of, set_constant
from qgraph.quant.samples.data import chunk_count, chunk_inputs
from qgraph.quant.thresholds import Range
from qgraph.rewrite.constants import Float64


@dataclass(frozen=True)
class BiasCorrection:
    """Correction of one layer: RMS change of its bias over channels, or why it was skipped."""

    layer: str
    shift: float
    note: str = ""


def correct_biases(
    graph: Graph,
    floating: Graph,
    data: Mapping[str, Array],
    on_node: Steps = silent_steps,
    statistics: FloatStatistics | None = None,
) -> list[BiasCorrection]:
    """Change biases of `graph` so that each output channel has the float network's mean.

    graph: calibrated. Scales do not change, and a bias is limited to its range. Means are over
    samples and positions, before the activation. Layers are corrected in order; those without a
    bias get a note, and pools are skipped. statistics: those of the float network on these samples,
    if they are known. Call it before bounds on accumulators are computed.
    """
    chunks = chunk_inputs(graph, data)
    order = [node.name for node in graph.topological()]
    done: dict[str, BiasCorrection] = {}
    with over_chunks(chunk_count(chunks)) as each:
        known = statistics or statistics_of_chunks(floating, chunks, each)
        values = GraphValues(graph, chunks, each)
        for i, name in enumerate(order, start=1):
            node = graph.nodes[name]
            layer = layer_of(graph, node) if name in floating.nodes else None
            if layer is not None and values.varies(node.inputs[0]):
                if node.op == "bias_add":
                    done[layer.name] = _correct(graph, floating, layer, node, known, values)
                    values.refresh(graph.nodes[name].inputs[1])
                else:
                    done[layer.name] = BiasCorrection(layer.name, 0.0, "has no bias")
            values.run(graph.nodes[name])
            on_node(i, len(order))
    return list(done.values())


def _correct(
    graph: Graph,
    floating: Graph,
    layer: Node,
    biased: Node,
    known: FloatStatistics,
    values: GraphValues,
) -> BiasCorrection:
    held = quantized_constant_of(graph, biased)
    bias = floating.constant(floating.nodes[biased.name].inputs[1])
    if held is None or bias is None:
        return BiasCorrection(layer.name, 0.0, "its bias is not a quantized constant")

    def summed(x: Array, _: Range | None) -> tuple[Float64, int]:
        return channel_sums(x), positions(x)

    parts = values.reduced(biased.inputs[0], summed)
    found = np.sum([sums for sums, _ in parts], axis=0) / sum(count for _, count in parts)
    wanted = known.means[biased.name] + bias - found
    return put_bias(graph, layer.name, biased.name, held, wanted)


def put_bias(
    graph: Graph, layer: str, biased: str, held: tuple[Node, Array], wanted: Array
) -> BiasCorrection:
    """Replace the bias `held` by `wanted`, float64 [channels], limited to its range."""
    quantizer, bias = held
    spec = spec_of(quantizer)
    exponent = aligned(spec.exponent, bias.shape)
    lowest, highest = (np.ldexp(float(code), -exponent) for code in (spec.lo, spec.hi))
    corrected = np.clip(wanted, lowest, highest)
    limited = int((corrected != wanted).sum())
    shift = corrected - quantized_constant(bias, spec)
    set_constant(graph, biased, corrected.astype(bias.dtype))
    note = f"{limited} of {bias.size} biases are limited to their range" if limited else ""
    return BiasCorrection(layer, float(np.sqrt(np.mean(shift**2))), note)


def correct_biases_without_data(graph: Graph, floating: Graph) -> list[BiasCorrection]:
    """Correct biases of `graph` for the expected effect of rounded weights.

    Like `correct_biases`, with E[x] from batch-norm statistics (`qgraph.quant.moments`): the bias
    changes by E[W x - Q(W) x], with padding. Layers whose inputs have an unknown mean are not
    changed and get a note. Errors from rounded activations are not corrected.
    """
    means = expected_means(floating)
    done: dict[str, BiasCorrection] = {}
    for node in list(graph.topological()):
        compute = layer_of(graph, node)
        if compute is not None and node.op == "bias_add":
            done[compute.name] = _correct_expected(graph, floating, compute, node, means)
        elif compute is not None:
            done[compute.name] = BiasCorrection(compute.name, 0.0, "has no bias")
    return list(done.values())


def _correct_expected(
    graph: Graph, floating: Graph, compute: Node, biased: Node, means: Mapping[str, Array]
) -> BiasCorrection:
    layer = floating.nodes.get(compute.name)
    held, bias = quantized_constant_of(graph, compute), quantized_constant_of(graph, biased)
    weights = floating.constant(layer.inputs[1]) if layer is not None else None
    if layer is None or held is None or bias is None or weights is None:
        return BiasCorrection(compute.name, 0.0, "its weights or bias are not quantized constants")
    value = layer.inputs[0]
    x = means_map(floating, value, means[value]) if value in means else None
    if x is None:
        return BiasCorrection(compute.name, 0.0, "the mean of its input is unknown")
    rounded = quantized_constant(held[1], spec_of(held[0]))
    error = weights.astype(np.float64) - rounded
    (lost,) = run_node(compute, [x.astype(np.float64), error])
    shift = np.mean(lost, axis=tuple(range(lost.ndim - 1)))
    return put_bias(graph, compute.name, biased.name, bias, bias[1].astype(np.float64) + shift)
