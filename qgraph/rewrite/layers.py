"""Rewrites of the weights and the bias of a layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.types import Array
from qgraph.rewrite.constants import Affine, Float64, only_user, times
from qgraph.rewrite.rewriter import Rewriter


def add_to_bias(rewriter: Rewriter, layer: Node, shift: Float64) -> None:
    """Add `shift`, [output channels], to the bias of `layer`, which gets a bias if it has none.

    A shared bias is not changed. The caller logs the change.
    """
    graph, user = rewriter.graph, only_user(rewriter.graph, layer.name)
    bias = graph.constant(user.inputs[1]) if user is not None and user.op == "bias_add" else None
    dtype = graph.types[layer.name].dtype
    whole = shift if bias is None else shift + bias
    vector = rewriter.const(whole.astype(dtype), f"{layer.name}/bias")
    if user is not None and bias is not None:
        graph.replace(replace(user, inputs=(layer.name, vector)))
        rewriter.prune(user.inputs[1])
    else:
        biased = rewriter.add("bias_add", layer.name, vector, name=f"{layer.name}/shifted")
        graph.redirect(layer.name, biased)


def scaled_inputs(op: str, weights: Array, affine: Affine) -> tuple[Array, Float64]:
    """Weights that scale each input channel, and the output offset that the shift becomes."""
    scale, shift = affine.scale, affine.shift
    if op == "matmul":
        return times(weights, scale[:, None]), np.einsum("io,i->o", weights, shift)
    taps: Array = weights.sum(axis=(0, 1), dtype=np.float64)
    if op == "depthwise_conv2d":
        return times(weights, scale[:, None]), (taps * shift[:, None]).reshape(-1)
    scales, shifts = (_per_group(v, weights.shape[2], weights.shape[3]) for v in (scale, shift))
    return times(weights, scales), (taps * shifts).sum(axis=0)


def _per_group(vector: Float64, inputs: int, outputs: int) -> Float64:
    """[groups * inputs] -> [inputs, outputs]: the inputs of each output channel's group."""
    groups = vector.size // inputs
    return np.repeat(vector.reshape(groups, inputs).T, outputs // groups, axis=1)
