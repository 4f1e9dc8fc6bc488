"""Bias correction: a layer's mean error goes into its bias (Nagel et al., 2019).

Rounded weights and inputs shift the mean of a layer's output. With data the shift is measured,
in topological order, so that each layer makes up for what the layers before it left. Without, what
rounded weights make of the inputs' means is worked out from batch-norm statistics.
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
from qgraph.parallel import Each
from qgraph.progress import Steps, silent_steps
from qgraph.quant.moments import expected_means, means_map
from qgraph.quant.paired import (
    PairedLayer,
    layer_of,
    quantized_constant_of,
    run_paired,
    set_constant,
)


@dataclass(frozen=True)
class BiasCorrection:
    """Correction of one layer: rms of the bias's change over channels, and why it was skipped."""

    layer: str
    shift: float
    note: str = ""


def correct_biases(
    graph: Graph,
    floating: Graph,
    data: Mapping[str, Array],
    on_node: Steps = silent_steps,
) -> list[BiasCorrection]:
    """Change biases of `graph` so that each output channel has the float network's mean.

    graph: calibrated; its scales stay, and a bias that would leave its range stops there. Means
    are over samples and positions, before the activation. Layers in order, those without a bias
    with a note; pools are skipped. To be done before bounds on accumulators are worked out.
    """
    done: dict[str, BiasCorrection] = {}

    def visit(layer: PairedLayer, each: Each) -> None:
        compute = layer_of(graph, layer.node)
        assert compute is not None
        if layer.node.op == "bias_add":
            done[compute.name] = _correct(graph, compute, layer, each)
        else:
            done[compute.name] = BiasCorrection(compute.name, 0.0, "has no bias")

    run_paired(graph, floating, data, visit, on_node)
    return list(done.values())


def _correct(graph: Graph, compute: Node, layer: PairedLayer, each: Each) -> BiasCorrection:
    held = quantized_constant_of(graph, layer.node)
    if held is None:
        return BiasCorrection(compute.name, 0.0, "its bias is not a quantized constant")
    sums = [*each(_missing, zip(layer.wanted, layer.inputs, strict=True))]
    wanted = np.sum(sums, axis=0) / sum(x.size // x.shape[-1] for x in layer.inputs)
    return _put(graph, compute.name, layer.node.name, held, wanted)


def _put(
    graph: Graph, layer: str, biased: str, held: tuple[Node, Array], wanted: Array
) -> BiasCorrection:
    """Replace the bias `held` by `wanted`, float64 [channels], as far as its range allows."""
    quantizer, bias = held
    spec = spec_of(quantizer)
    exponent = aligned(spec.exponent, bias.shape)
    lowest, highest = (np.ldexp(float(code), -exponent) for code in (spec.lo, spec.hi))
    corrected = np.clip(wanted, lowest, highest)
    limited = int((corrected != wanted).sum())
    shift = corrected - quantized_constant(bias, spec)
    set_constant(graph, biased, corrected.astype(bias.dtype))
    note = f"{limited} of {bias.size} biases stopped at the end of their range" if limited else ""
    return BiasCorrection(layer, float(np.sqrt(np.mean(shift**2))), note)


def _missing(pair: tuple[Array, Array]) -> Array:
    """Missing mean of the outputs, summed over samples and positions, float64 [channels]."""
    wanted, found = pair
    missing: Array = (wanted - found).reshape(-1, wanted.shape[-1]).sum(axis=0, dtype=np.float64)
    return missing


def correct_biases_without_data(graph: Graph, floating: Graph) -> list[BiasCorrection]:
    """Change biases of `graph` by what rounding the weights does to the expected inputs.

    As `correct_biases`, with E[x] from batch-norm statistics (`qgraph.quant.moments`): the bias
    takes E[W x - Q(W) x], padding included. Layers whose inputs have no known mean are left
    with a note. Errors that come from rounded activations are not seen.
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
    return _put(graph, compute.name, biased.name, bias, bias[1].astype(np.float64) + shift)
