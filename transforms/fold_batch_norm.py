"""Fold batch norms, and plain per-channel scales, into the weights of an adjacent layer.

`w' = w * gamma / sqrt(variance + epsilon)`, `b' = beta + (b - mean) * gamma / sqrt(...)`
(docs/numerics.md, 6). A scale of 0 gives weights of 0; one that is not finite is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.norm import NormAttrs
from qgraph.ir.types import Array
from qgraph.passes import RewritePass
from qgraph.rewrite.arithmetic_rules import ABSORB, BIAS_RULES
from qgraph.rewrite.constants import (
    Affine,
    Float64,
    batch_norm_affine,
    batch_norm_moments,
    channel_vector,
    channels_of,
    is_layer,
    is_unpadded,
    not_constant,
    only_user,
    other_users,
    times,
)
from qgraph.rewrite.layers import scaled_inputs
from qgraph.rewrite.paths import LayerChannels, channels_behind
from qgraph.rewrite.rewriter import Rewriter, Rule

OVERFLOW = "the folded weights are not finite"


@dataclass(frozen=True)
class FoldBatchNorm(RewritePass):
    """A batch norm goes into the layer before it, or else into the layer after it.

    Layers are conv2d (grouped too), depthwise_conv2d and matmul, each with or without bias_add.
    The product of a layer and a constant is folded in the same way; one number, as attention has to
    scale its scores, also through moves, slices and products of matrices. Every layer gets its own
    constants, so that shared weights stay as they are. The statistics of values that remain are
    kept in `Graph.moments`. Refusals: a value in between that has other users; weights or
    statistics that are not constant; a scale that is not finite; zero padding in the layer after,
    which a shift would change.
    """

    name: ClassVar[str] = "fold-batch-norm"
    ensures: ClassVar[frozenset[str]] = frozenset({"batch-norm-folded"})

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("fold", ("batch_norm",), _fold_batch_norm),
            ABSORB,
            Rule("fold-scale", ("mul",), _fold_scale),
            Rule("fold-number", ("mul",), _fold_number),
            *BIAS_RULES,  # what followed a folded scale now follows the layer
        )


def _fold_batch_norm(rewriter: Rewriter, node: Node) -> bool:
    affine = batch_norm_affine(rewriter.graph, node)
    if affine is None:
        return rewriter.refuse(
            node, not_constant(rewriter.graph, "its statistics", *node.inputs[1:])
        )
    if not affine.is_finite:
        return rewriter.refuse(node, "gamma / sqrt(variance + epsilon) is not finite")
    moments = batch_norm_moments(rewriter.graph, node)
    assert moments is not None
    before = _into_layer_before(rewriter, node, node.inputs[0], affine)
    if before is None:
        rewriter.graph.moments[node.name] = moments[1]  # of the bias that now has its name
        return True
    after = _into_layer_after(rewriter, node, affine)
    if after is None:
        epsilon = np.full(moments[0].mean.shape, node.typed(NormAttrs).epsilon, np.float64)
        rewriter.graph.moments[node.inputs[0]] = replace(moments[0], epsilon=epsilon)
        return True
    return rewriter.refuse(node, f"{before}; {after}")


def _fold_scale(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    for value, other in (node.inputs, node.inputs[::-1]):
        scale = channel_vector(graph, other, channels_of(graph, value))
        if scale is None or graph.types[value] != graph.types[node.name]:
            continue
        if not is_layer(_layer_and_bias(graph, value)[0]) or _is_slope(graph, node, value):
            continue
        wide = scale.astype(np.float64)
        affine = Affine(wide, np.zeros_like(wide))
        reason = _into_layer_before(rewriter, node, value, affine)
        return reason is None or rewriter.refuse(node, reason)
    return False


def _fold_number(rewriter: Rewriter, node: Node) -> bool:
    """Fold one number, such as the scale of attention's scores, into a layer further up."""
    graph = rewriter.graph
    for value, other in (node.inputs, node.inputs[::-1]):
        factor = graph.constant(other)
        if factor is None or factor.size != 1 or graph.types[value] != graph.types[node.name]:
            continue
        found = _layer_above(graph, value, node)
        if found is None or not graph.types[value].is_float or _is_slope(graph, node, value):
            continue
        scale = np.where(found.chosen, factor.astype(np.float64).reshape(()), 1.0)
        weights, bias = graph.constant(found.layer.inputs[1]), found.bias
        offset = graph.constant(bias.inputs[1]) if bias is not None else None
        if weights is None or (bias is not None and offset is None):
            continue
        scaled = times(weights, _as_output_scale(found.layer.op, weights, scale))
        shifted = None if offset is None else times(offset, scale)
        if not all(part is None or np.isfinite(part).all() for part in (scaled, shifted)):
            return rewriter.refuse(node, OVERFLOW)
        _put_weights(rewriter, found.layer, scaled)
        if bias is not None:
            vector = rewriter.const(shifted, f"{found.layer.name}/bias")
            rewriter.put(replace(bias, inputs=(found.layer.name, vector)))
            graph.moments.pop(bias.name, None)
        graph.moments.pop(found.layer.name, None)
        return rewriter.replace_value(node.name, value)
    return False


def _layer_above(graph: Graph, value: str, user: Node) -> LayerChannels | None:
    """The layer that one number can be moved to: through moves, and products that it scales."""
    product = graph.producer(value)
    if product.op != "batch_matmul" or graph.use_count(value) > 1:
        return channels_behind(graph, value, user)
    found = (_layer_above(graph, operand, product) for operand in product.inputs)
    return next((layer for layer in found if layer is not None), None)


def _is_slope(graph: Graph, node: Node, value: str) -> bool:
    """Whether a product is that of `maximum(x, alpha * x)`, which is a leaky ReLU."""
    users = graph.users(node.name)
    return any(user.op == "maximum" and value in user.inputs for user in users)


def _layer_and_bias(graph: Graph, value: str) -> tuple[Node, Node | None]:
    producer = graph.producer(value)
    if producer.op == "bias_add":
        return graph.producer(producer.inputs[0]), producer
    return producer, None


# -- the layer before ------------------------------------------------------------------------


def _into_layer_before(rewriter: Rewriter, node: Node, value: str, affine: Affine) -> str | None:
    """Fold, or refuse with a reason."""
    graph = rewriter.graph
    layer, bias = _layer_and_bias(graph, value)
    if not is_layer(layer):
        return f"it follows `{layer.name}` ({layer.op}), which has no weights to take the scale"
    for made, user in ((layer, bias or node), *([(bias, node)] if bias else [])):
        if users := other_users(graph, made.name, user.name):
            return users
    weights, offset = (
        graph.constant(layer.inputs[1]),
        graph.constant(bias.inputs[1]) if bias else None,
    )
    if weights is None or (bias and offset is None):
        return not_constant(graph, f"the weights of `{layer.name}`", layer.inputs[1])
    scaled = times(weights, _as_output_scale(layer.op, weights, affine.scale))
    shift = affine.shift + (0 if offset is None else offset * affine.scale)
    shifted = shift.astype(weights.dtype)
    if not (np.isfinite(scaled).all() and np.isfinite(shifted).all()):
        return OVERFLOW

    _put_weights(rewriter, layer, scaled)
    if bias is None and node.op == "mul":
        rewriter.replace_value(node.name, layer.name)
    else:
        vector = rewriter.const(shifted, f"{layer.name}/bias")
        rewriter.put(Node(node.name, "bias_add", (layer.name, vector), control=node.control))
    return None


def _as_output_scale(op: str, weights: Array, scale: Float64) -> Float64:
    """`scale` per output channel, in a shape that multiplies the weights."""
    return scale.reshape(weights.shape[2:]) if op == "depthwise_conv2d" else scale


def _put_weights(rewriter: Rewriter, layer: Node, weights: Array) -> None:
    made = rewriter.const(weights, f"{layer.name}/weights")
    rewriter.put(replace(layer, inputs=(layer.inputs[0], made)))


# -- the layer after -------------------------------------------------------------------------


def _into_layer_after(rewriter: Rewriter, node: Node, affine: Affine) -> str | None:
    """Fold, or refuse with a reason."""
    graph = rewriter.graph
    layer = only_user(graph, node.name)
    if layer is None:
        return other_users(graph, node.name) or "nothing follows it"
    if not is_layer(layer) or layer.inputs[0] != node.name:
        return f"it is followed by `{layer.name}` ({layer.op}), not by a layer"
    weights = graph.constant(layer.inputs[1])
    if weights is None:
        return not_constant(graph, f"the weights of `{layer.name}`", layer.inputs[1])
    if affine.shift.any() and not is_unpadded(graph, layer):
        return f"`{layer.name}` pads with zeros, which cannot take the shift"
    scaled, offset = scaled_inputs(layer.op, weights, affine)
    offset = offset.astype(weights.dtype)
    if not (np.isfinite(scaled).all() and np.isfinite(offset).all()):
        return OVERFLOW

    rewriter.replace_value(node.name, node.inputs[0])
    layer = graph.nodes[layer.name]
    if node.op == "batch_norm" and is_unpadded(graph, layer):
        layer = replace(layer, attrs={**layer.attrs, "normalized_input": True})
    _put_weights(rewriter, layer, scaled)
    if offset.any():
        vector = rewriter.const(offset, f"{layer.name}/bias")
        biased = rewriter.add("bias_add", layer.name, vector, name=f"{layer.name}/shifted")
        graph.redirect(layer.name, biased)
    return None
