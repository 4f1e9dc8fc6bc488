"""Rules for sums and products that several passes use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array
from qgraph.rewrite.constants import (
    Float64,
    channel_vector,
    channels_of,
    is_layer,
    narrowed,
    other_users,
)
from qgraph.rewrite.masks import leaves_no_share, masked_scores, softmaxes_of
from qgraph.rewrite.rewriter import Rewriter, Rule

# Constants that leave the other operand as it is. Softmax in JAX has a maximum with -infinity.
NEUTRAL_NUMBERS: Mapping[str, float] = MappingProxyType(
    {"add": 0, "sub": 0, "mul": 1, "div": 1, "maximum": -math.inf, "minimum": math.inf}
)

NORMS = ("batch_norm", "layer_norm")


def _neutral(rewriter: Rewriter, node: Node) -> bool:
    """Remove x + 0, x - 0, x * 1, x / 1, max(x, -inf) and min(x, inf), unless they widen x."""
    graph, number = rewriter.graph, NEUTRAL_NUMBERS[node.op]
    sides = (0,) if node.op in ("sub", "div") else (0, 1)
    for x, other in ((node.inputs[side], node.inputs[1 - side]) for side in sides):
        constant = graph.constant(other)
        if constant is None or not graph.types[other].is_float or (constant != number).any():
            continue
        if graph.types[x] != graph.types[node.name]:
            continue
        if node.control or graph.control_users(node.name):
            return rewriter.refuse(node, "it has control edges")
        return rewriter.replace_value(node.name, x)
    return False


NEUTRAL = Rule("neutral", tuple(NEUTRAL_NUMBERS), _neutral)


def _bias(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    for x, other in (node.inputs, node.inputs[::-1]):
        producer = graph.producer(x)
        vector = channel_vector(graph, other, channels_of(graph, x))
        if producer.op == "quantize" and vector is not None and _is_on_grid(vector, producer):
            producer = graph.producer(producer.inputs[0])
        biased = producer.op == "bias_add" and graph.use_count(x) == 1
        if vector is None or not (is_layer(producer) or biased):
            continue
        if graph.types[x] != graph.types[node.name]:
            return rewriter.refuse(node, f"adding `{other}` widens `{x}`, so it is not a bias")
        if leaves_no_share(vector) and masked_scores(graph, node, softmaxes_of(graph)):
            return rewriter.refuse(node, f"`{other}` masks a softmax, so it is not a bias")
        array = graph.constant(other)
        is_vector = array is not None and array.shape == vector.shape
        bias = other if is_vector else rewriter.const(vector.copy(), f"{node.name}/bias")
        return rewriter.put(replace(node, op="bias_add", inputs=(x, bias)))
    return False


def _is_on_grid(vector: Float64, quantizer: Node) -> bool:
    """Whether a bias has codes on the scale that a file gave to the sums of a layer."""
    exponent = spec_of(quantizer).exponent
    steps = np.ldexp(vector.astype(np.float64), np.asarray(exponent))
    return bool(np.all(steps == np.rint(steps)))


def _merge_biases(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    first = graph.producer(node.inputs[0])
    if first.op != "bias_add":
        return False
    biases = [graph.constant(first.inputs[1]), graph.constant(node.inputs[1])]
    if biases[0] is None or biases[1] is None:
        return False
    if users := other_users(graph, first.name, node.name):
        return rewriter.refuse(node, f"cannot join the bias before it: {users}")
    total = narrowed(biases[0].astype(np.float64) + biases[1], biases[1].dtype)
    if total is None:
        return rewriter.refuse(node, "the sum with the bias before it is not finite")
    bias = rewriter.const(total, f"{node.name}/sum_of_biases")
    return rewriter.put(replace(node, inputs=(first.inputs[0], bias)))


BIAS_RULES = (
    Rule("add-to-bias", ("add",), _bias),
    Rule("merge-biases", ("bias_add",), _merge_biases),
)


def _absorb(rewriter: Rewriter, node: Node) -> bool:
    """Merge a mul, add or sub of a norm and a constant into gamma and beta."""
    graph = rewriter.graph
    sides = (0, 1) if node.op != "sub" else (0,)
    for side in sides:
        value, other = node.inputs[side], node.inputs[1 - side]
        norm = graph.producer(value)
        constant = channel_vector(graph, other, channels_of(graph, value))
        if norm.op in NORMS and constant is not None:
            break
    else:
        return False
    if graph.types[value] != graph.types[node.name]:
        return False
    if graph.use_count(value) != 1:
        return False
    gamma, beta = (graph.constant(v) for v in norm.inputs[1:3])
    if gamma is None or beta is None:
        return False
    wide_gamma, wide_beta = _joined(node.op, gamma, beta, constant.astype(np.float64))
    new_gamma, new_beta = narrowed(wide_gamma, gamma.dtype), narrowed(wide_beta, beta.dtype)
    if new_gamma is None or new_beta is None:
        return rewriter.refuse(node, f"gamma or beta of `{norm.name}` would not be finite")
    inputs = (
        norm.inputs[0],
        rewriter.const(new_gamma, f"{node.name}/gamma"),
        rewriter.const(new_beta, f"{node.name}/beta"),
        *norm.inputs[3:],
    )
    return rewriter.put(replace(norm, name=node.name, inputs=inputs, control=node.control))


def _absorb_vector(rewriter: Rewriter, node: Node) -> bool:
    """Like `_absorb`, but keep x + 3, which may be the start of a hard sigmoid."""
    constants = (rewriter.graph.constant(value) for value in node.inputs)
    return any(c is not None and c.size > 1 for c in constants) and _absorb(rewriter, node)


def _joined(op: str, gamma: Array, beta: Array, constant: Float64) -> tuple[Float64, Float64]:
    wide_gamma, wide_beta = gamma.astype(np.float64), beta.astype(np.float64)
    if op == "mul":
        return wide_gamma * constant, wide_beta * constant
    return wide_gamma, wide_beta + constant if op == "add" else wide_beta - constant


ABSORB = Rule("absorb", ("add", "sub", "mul"), _absorb)
ABSORB_VECTOR = Rule("absorb", ABSORB.ops, _absorb_vector)
