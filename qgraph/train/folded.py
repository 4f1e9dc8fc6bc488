"""Batch norms that were folded into layers, with their statistics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.reading import marks_of, value_of
from qgraph.ir.types import Array, Moments


@dataclass(frozen=True)
class Norm:
    """Statistics of a batch norm that was folded into `layer`; [channels].

    `side`: `output` (the layer's result without bias), or `input` if the batch norm preceded the
    layer. `weights` and `bias` name the const nodes that it was folded into. `mean`, `variance` and
    `epsilon` describe the value after folding.
    """

    layer: str
    side: str
    weights: str
    bias: str
    mean: Array
    variance: Array
    epsilon: Array


def norms_of(floating: Graph) -> tuple[Norm, ...]:
    """Batch norms that were folded into layers of a float graph, from `Graph.moments`.

    Batch norms before grouped convolutions, and those that left no bias, stay folded.
    """
    found = []
    for bias_add in floating.topological():
        if bias_add.op != "bias_add":
            continue
        layer, bias = (floating.producer(value) for value in bias_add.inputs)
        if layer.op not in COMPUTE and not marks_of(layer).batch_norm:
            continue
        weights = floating.producer(layer.inputs[1])
        if weights.op != "const" or bias.op != "const":
            continue
        names, offset = (weights.name, bias.name), value_of(bias)
        before = floating.moments.get(layer.inputs[0])
        whole = before and len(before.mean) == value_of(weights).shape[-2]
        if marks_of(layer).normalized_input and before and before.epsilon is not None and whole:
            found.append(_norm(layer, "input", names, before, 0.0))
        behind = floating.moments.get(bias_add.name)
        if behind and behind.epsilon is not None and not _is_normalized(floating, bias_add):
            found.append(_norm(layer, "output", names, behind, offset))
    return tuple(found)


def _is_normalized(graph: Graph, node: Node) -> bool:
    """Whether the moments of a value come from a batch norm after it."""
    return any(marks_of(user).normalized_input for user in graph.users(node.name))


def _norm(
    layer: Node, side: str, names: tuple[str, str], known: Moments, offset: Array | float
) -> Norm:
    assert known.epsilon is not None
    variance, epsilon = known.deviation**2, known.epsilon
    # A channel with a gamma of 0 has no scale: any epsilon is right.
    epsilon = np.where(variance + epsilon < np.finfo(np.float32).tiny, 1.0, epsilon)
    mean = known.mean - np.asarray(offset, np.float64)
    return Norm(layer.name, side, *names, mean, variance, epsilon)
