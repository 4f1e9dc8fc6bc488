"""Round weights so that the output of a layer is close to float (the aim of AdaRound).

Codes are chosen against the float layer's own output, on inputs as the quantized network has them,
so that a layer also makes up for errors before it. Its bias then takes the mean error that is left.
A finer scale than calibration's is taken where that is nearer: few bits serve most weights better
if the largest are clipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, QuantSpec, Role
from qgraph.numerics import MAX_EXPONENT, frozen_exponent
from qgraph.parallel import Each
from qgraph.progress import Steps, silent_steps
from qgraph.quant.correct_bias import put_bias
from qgraph.quant.float_statistics import channel_sums, positions
from qgraph.quant.moments import known_moments
from qgraph.quant.paired import (
    PairedLayer,
    layer_of,
    quantized_constant_of,
    run_paired,
    set_constant,
)
from qgraph.quant.reconstruction.layer_codes import LayerCodes
from qgraph.quant.reconstruction.layer_rows import LayerRows, as_products
from qgraph.rewrite.constants import Float64

# Output positions that are looked at; 8,192 tell a layer of 1,024 inputs from noise.
SAMPLES = 8192
# Powers of two by which the scale of weights may become finer.
FINER = 2
# Share of weights beyond which a finer scale is not tried. Scales that served a layer of four
# networks, with 4 and 8 bits, clipped 3.5 % at most; to solve for those that clip much takes long.
MAX_CLIPPED = 0.1


@dataclass(frozen=True)
class Reconstruction:
    """A layer's output error, rms relative to the float output's, on images held out.

    `before` is with weights to nearest; `channels` is the share of output channels that changed,
    `finer` by how many powers of two the scale did.
    """

    layer: str
    before: float
    after: float
    channels: float
    finer: int = 0


def reconstruct_weights(
    graph: Graph,
    floating: Graph,
    data: Mapping[str, Array],
    samples: int = SAMPLES,
    finer: int = FINER,
    on_node: Steps = silent_steps,
    biases: bool = True,
) -> list[Reconstruction]:
    """Choose the weight codes of `graph` again, in place, one entry per layer.

    graph: calibrated. `samples`: the number of output positions to use, fewer for very wide layers.
    An output channel keeps its rounding to nearest unless the new one has less error both on the
    positions used and on those held out; both errors include those from batch-norm statistics.
    `finer`: the number of finer scales to try. These clip the largest weights; the search ends when
    one is worse or clips too many, and it is skipped where a bias follows the scale. Weights that
    several layers share stay shared, rounded to nearest. `biases`: a bias that only one layer has
    compensates for the mean error, which then does not count for the weights. Bounds of
    accumulators must be computed after this.
    """
    done: list[Reconstruction] = []

    def visit(layer: PairedLayer, each: Each) -> None:
        if layer.node.op == "bias_add":
            if biases and (bias := _own_constant(graph, layer.node)) is not None:
                put_bias(graph, layer.node.name, layer.node.name, bias, _mean_off(layer, each))
            return
        held = _own_constant(graph, layer.node) if layer.node.op in COMPUTE else None
        if held is None or spec_of(held[0]).role != Role.WEIGHT:
            return
        quantizer, w = held
        spec = spec_of(quantizer)
        x = floating.nodes[layer.node.name].inputs[0]
        rows = LayerRows.of(layer, w, samples, each)
        if biases and _has_own_bias(graph, floating, layer.node):
            rows = rows.centred()
        codes = LayerCodes.of(rows, as_products(layer, w), known_moments(floating, x), each)
        most = min(finer, MAX_EXPONENT - int(np.max(np.asarray(spec.exponent))))
        plain = codes.nearest(spec, each)
        best, steps = codes.solve(spec, plain, each), 0
        for more in range(1, (most if _has_stage(graph, layer.node) else 0) + 1):
            clipped = _finer(spec, more)
            if codes.clipped(clipped) > MAX_CLIPPED:
                break
            found = codes.solve(clipped, codes.nearest(clipped, each), each)
            if found.used.sum() > plain.used.sum() or found.checked.sum() >= best.checked.sum():
                break  # yet finer scales clip more
            best, steps = found, more
        value = best.weights.transpose(1, 0, 2).reshape(w.shape).astype(w.dtype)
        set_constant(graph, layer.node.name, value, _finer(spec, steps))
        before, after = (codes.relative(c) for c in (plain, best))
        changed = float((best.weights != plain.weights).any(axis=1).mean())
        done.append(Reconstruction(layer.node.name, before, after, changed, steps))

    run_paired(graph, floating, data, visit, on_node)
    return done


def _own_constant(graph: Graph, layer: Node) -> tuple[Node, Array] | None:
    """The quantizer and the constant of weights or a bias that no other layer takes."""
    held = quantized_constant_of(graph, layer)
    if held is None or graph.use_count(held[0].name) > 1:
        return None
    return held if graph.use_count(held[0].inputs[0]) == 1 else None


def _has_own_bias(graph: Graph, floating: Graph, layer: Node) -> bool:
    """True if nothing but a bias that no other layer has takes the sums of `layer`."""
    value = layer.name
    while len(users := graph.users(value)) == 1 and users[0].op == "quantize":
        value = users[0].name
    if len(users) != 1 or users[0].op != "bias_add" or users[0].name not in floating.nodes:
        return False
    return layer_of(graph, users[0]) == layer and _own_constant(graph, users[0]) is not None


def _mean_off(layer: PairedLayer, each: Each) -> Float64:
    """The bias with which the mean of each channel is that of the float network."""

    def sums(i: int) -> tuple[Float64, int]:
        found = channel_sums(layer.wanted[i]) - channel_sums(layer.inputs[i])
        return found, positions(layer.inputs[i])

    parts = [*each(sums, range(len(layer.inputs)))]
    return np.asarray(sum(off for off, _ in parts) / sum(count for _, count in parts))


def _finer(spec: QuantSpec, steps: int) -> QuantSpec:
    return spec.with_exponent(frozen_exponent(np.asarray(spec.exponent) + steps))


def _has_stage(graph: Graph, layer: Node) -> bool:
    """True where the sum is requantized at once: no bias is on its scale."""
    users = graph.users(layer.name)
    return all(u.op == "quantize" for u in users) and not graph.is_output(layer.name)
