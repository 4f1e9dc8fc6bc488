"""Round weights so that the output of a layer is close to float (the aim of AdaRound).

Codes are chosen against the float layer's own output, on inputs as the quantized network has them,
so that a layer also makes up for errors before it. A finer scale than calibration's is taken where
that is nearer: few bits serve most weights better if the largest are clipped.
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
from qgraph.quant.layer_codes import LayerCodes
from qgraph.quant.layer_rows import LayerRows, as_products
from qgraph.quant.moments import known_moments
from qgraph.quant.paired import PairedLayer, quantized_constant_of, run_paired, set_constant

# Output positions that are looked at; 8,192 tell a layer of 1,024 inputs from noise.
SAMPLES = 8192
# Powers of two by which the scale of weights may become finer.
FINER = 2
# Share of weights beyond which a finer scale is not tried. Scales that served a layer of four
# networks, with 4 and 8 bits, clipped 3.5 % at most; to solve for those that clip much takes long.
MOST_CLIPPED = 0.1


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
) -> list[Reconstruction]:
    """Choose the weight codes of `graph` again, in place, one entry per layer.

    graph: calibrated. `samples`: output positions looked at, fewer for very wide layers. An
    output channel keeps its rounding to nearest unless the new one has less error both on the
    positions used and on those held out, each with what batch norms remember. `finer`: so many
    finer scales are tried too, which clip the largest weights, until one is worse or clips too
    many; not where a bias follows the scale.
    Weights that several layers share stay shared, rounded to nearest.
    To be done before bounds on accumulators are worked out.
    """
    done: list[Reconstruction] = []

    def visit(layer: PairedLayer, each: Each) -> None:
        held = quantized_constant_of(graph, layer.node) if layer.node.op in COMPUTE else None
        if held is None or spec_of(held[0]).role != Role.WEIGHT:
            return
        quantizer, w = held
        if graph.use_count(quantizer.name) > 1 or graph.use_count(quantizer.inputs[0]) > 1:
            return
        spec = spec_of(quantizer)
        x = floating.nodes[layer.node.name].inputs[0]
        rows = LayerRows.of(layer, w, samples, each)
        codes = LayerCodes.of(rows, as_products(layer, w), known_moments(floating, x), each)
        most = min(finer, MAX_EXPONENT - int(np.max(np.asarray(spec.exponent))))
        plain = codes.nearest(spec, each)
        best, steps = codes.solve(spec, plain, each), 0
        for more in range(1, (most if _has_stage(graph, layer.node) else 0) + 1):
            clipped = _finer(spec, more)
            if codes.clipped(clipped) > MOST_CLIPPED:
                break
            found = codes.solve(clipped, codes.nearest(clipped, each), each)
            if found.used.sum() > plain.used.sum() or found.judged.sum() >= best.judged.sum():
                break  # yet finer scales clip more
            best, steps = found, more
        value = best.weights.transpose(1, 0, 2).reshape(w.shape).astype(w.dtype)
        set_constant(graph, layer.node.name, value, _finer(spec, steps))
        before, after = (codes.relative(c) for c in (plain, best))
        changed = float((best.weights != plain.weights).any(axis=1).mean())
        done.append(Reconstruction(layer.node.name, before, after, changed, steps))

    run_paired(graph, floating, data, visit, on_node)
    return done


def _finer(spec: QuantSpec, steps: int) -> QuantSpec:
    return spec.with_exponent(frozen_exponent(np.asarray(spec.exponent) + steps))


def _has_stage(graph: Graph, layer: Node) -> bool:
    """True where the sum is requantized at once: no bias is on its scale."""
    users = graph.users(layer.name)
    return all(u.op == "quantize" for u in users) and not graph.is_output(layer.name)
