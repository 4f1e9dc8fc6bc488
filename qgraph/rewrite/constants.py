"""Helpers of weight rewrites: constants as per-channel vectors, and users of a value.

Arithmetic on constants is in float64 and rounded once, to the dtype the constant had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.linear import COMPUTE, ConvAttrs
from qgraph.ir.ops.norm import NormAttrs
from qgraph.ir.ops.pool import ReductionAttrs
from qgraph.ir.ops.windows import PaddingRule
from qgraph.ir.reading import marks_of
from qgraph.ir.types import Array, Moments, Shape

Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def is_layer(node: Node) -> bool:
    """Whether an op has weights of its own; an average pool as depthwise convolution has none."""
    return node.op in COMPUTE and not marks_of(node).pool


def is_unpadded(graph: Graph, layer: Node) -> bool:
    """Whether every window of the layer is inside its input, as far as sizes are known."""
    attrs = layer.attributes
    if not isinstance(attrs, ConvAttrs) or attrs.padding is PaddingRule.VALID:
        return True
    kernel: Any = (graph.types[layer.inputs[1]].shape or ())[:2]
    if attrs.padding is PaddingRule.SAME and kernel == (1, 1):
        return True
    sizes: Any = (graph.types[layer.inputs[0]].shape or (None,) * 4)[1:3]
    if attrs.padding is PaddingRule.SAME and None in sizes:
        return False
    return not any(n for pair in attrs.pads(sizes, kernel) for n in pair)


def channels_of(graph: Graph, value: str) -> int | None:
    """The size of the last axis of `value`, if it is known."""
    shape = graph.types[value].shape
    return shape[-1] if shape else None


def only_user(graph: Graph, value: str) -> Node | None:
    """The only user of `value`; None if it has several uses or is an output."""
    return graph.users(value)[0] if graph.use_count(value) == 1 and graph.users(value) else None


def other_users(graph: Graph, value: str, *known: str) -> str:
    """Users of `value` other than the nodes `known`, in words; empty if there are none."""
    names = [f"`{user.name}`" for user in graph.users(value) if user.name not in known]
    names += [f"output `{public}`" for public, v in graph.outputs.items() if v == value]
    return f"`{value}` is also used by {', '.join(names)}" if names else ""


def is_channel_mean(graph: Graph, node: Node) -> bool:
    """True for a mean over the last axis that keeps the axis."""
    if node.op != "mean":
        return False
    attrs, last = node.typed(ReductionAttrs), (graph.types[node.inputs[0]].rank or 0) - 1
    return attrs.keepdims and attrs.axes in ((last,), (-1,))


def not_constant(graph: Graph, what: str, *values: str) -> str:
    """The reason why a pass cannot use `what`: one of the values is not a constant."""
    verb = "is" if what.endswith("bias") else "are"
    hidden = all(graph.constant(_behind_identities(graph, value)) is not None for value in values)
    cure = ": `splice-identities` must run before" if hidden else ""
    return f"{what} {verb} not constant{cure}"


def _behind_identities(graph: Graph, value: str) -> str:
    while (node := graph.producer(value)).op == "identity":
        value = node.inputs[0]
    return value


def weights_of(graph: Graph, layer: Node) -> Array:
    """The weights of a layer whose weights are known to be constant."""
    weights = graph.constant(layer.inputs[1])
    assert weights is not None
    return weights


def channel_vector(graph: Graph, value: str, channels: int | None) -> Array | None:
    """A float constant that varies along the last axis only, as a vector of `channels`."""
    array = graph.constant(value)
    if array is None or channels is None or not graph.types[value].is_float:
        return None
    if array.size not in (1, channels) or array.size != (array.shape or (1,))[-1]:
        return None
    return np.broadcast_to(array.reshape(-1), (channels,))


def axis_vector(graph: Graph, value: str, axis: int, shape: Shape) -> Array | None:
    """A float constant that varies along one axis only of a tensor of `shape`, as a vector.

    axis: from 0 to below the rank; its size is known.
    """
    array, count = graph.constant(value), shape[axis]
    if array is None or count is None or not graph.types[value].is_float:
        return None
    wide = (1,) * (len(shape) - array.ndim) + array.shape
    fits = len(wide) == len(shape) and array.size == wide[axis] and array.size in (1, count)
    return np.broadcast_to(array.reshape(-1), (count,)) if fits else None


def leaky_product(graph: Graph, maximum: Node) -> tuple[str, str] | None:
    """(x, product) if `maximum` is `maximum(x, x * alpha)`, the lowered form of leaky ReLU."""
    if maximum.op != "maximum":
        return None
    for x, product in (maximum.inputs, maximum.inputs[::-1]):
        node = graph.producer(product)
        if node.op != "mul" or x not in node.inputs or x == product:
            continue
        alpha = graph.constant(node.inputs[1 - node.inputs.index(x)])
        if alpha is not None and bool(np.all((alpha >= 0) & (alpha <= 1))):
            return x, product
    return None


def narrowed(wide: Float64, dtype: npt.DTypeLike) -> Array | None:
    """Numbers in a narrower float type; None if one of them becomes infinite."""
    with np.errstate(over="ignore"):
        narrow: Array = wide.astype(dtype)
    return narrow if np.isfinite(narrow).all() else None


def times(weights: Any, factor: Float64) -> Any:
    """`weights * factor`, each product in float64 and rounded once, without a float64 copy."""
    with np.errstate(over="ignore"):
        return np.multiply(weights, factor, out=np.empty_like(weights), casting="same_kind")


@dataclass(frozen=True)
class Affine:
    """`y = x * scale + shift` along the last axis."""

    scale: Float64
    shift: Float64

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.scale).all() and np.isfinite(self.shift).all())


def batch_norm_affine(graph: Graph, node: Node) -> Affine | None:
    """Factor and offset of a `batch_norm` node; None if a statistic is not constant."""
    constants = [graph.constant(value) for value in node.inputs[1:]]
    if any(c is None for c in constants):
        return None
    gamma, beta, mean, variance = (np.asarray(c, np.float64) for c in constants)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = gamma / np.sqrt(variance + node.typed(NormAttrs).epsilon)
        return Affine(scale, beta - mean * scale)


def batch_norm_moments(graph: Graph, node: Node) -> tuple[Moments, Moments] | None:
    """Moments of the input and the output of a `batch_norm` node; None if it is not constant."""
    constants = [graph.constant(value) for value in node.inputs[1:]]
    if any(c is None for c in constants):
        return None
    gamma, beta, mean, variance = (np.asarray(c, np.float64) for c in constants)
    deviation = np.sqrt(np.maximum(variance, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        epsilon = node.typed(NormAttrs).epsilon
        scale = np.abs(gamma) / np.sqrt(variance + epsilon)
        return Moments(mean, deviation), Moments(beta, scale * deviation, epsilon * scale**2)


def computed(node: Node, inputs: Sequence[Array], dtype: str) -> Array:
    """The result of a node on constants, float arithmetic in float64 and rounded once."""
    op = op_definition(node.op)
    if not op.moves:
        inputs = [c if c.dtype.kind in "iub" else c.astype(np.float64) for c in inputs]
    assert op.evaluate is not None
    with np.errstate(all="ignore"):
        return np.asarray(op.evaluate(node.attributes, inputs), order="C").astype(dtype, copy=False)
