"""Errors in later layers that are caused by the rounding of a quantizer.

An error of a tensor is weighted by its effect on the layers that use the tensor: channels with
large weights count more, and errors that cancel count less. Both the exact and the quantized tensor
go through the layer with its quantized weights, so that only the threshold is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.interpret import run_node
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.ops.integer_softmax import real_softmax
from qgraph.ir.ops.standardize import StandardizationAttrs, normal
from qgraph.ir.ops.structure import TableAttrs
from qgraph.ir.reading import only_rounds
from qgraph.ir.types import Array, QuantSpec
from qgraph.numerics import fake_quantize
from qgraph.parallel import Each
from qgraph.quant.thresholds import candidates_from
from qgraph.rewrite.constants import Float64, is_layer

# Number of exponents beyond the one that clips nothing: down to a sixteenth of the range.
FINER_BY_OUTPUT = 4
# The largest number of layers per tensor, the nearest ones; a dense network has many more.
MAX_LAYERS = 4

Step = Callable[[Array], Array]
# The value of a node that does not depend on data; None for one that does.
Constant = Callable[[str], Array | None]


@dataclass(frozen=True)
class Consumer:
    """The ops from a tensor to a layer with weights, including the layer.

    Without steps, it stands for the tensor itself: an output, or an operand of a sum.
    """

    steps: tuple[Step, ...] = ()

    def __call__(self, x: Array) -> Array:
        for step in self.steps:
            x = step(x)
        return x


ITSELF = Consumer()


@dataclass(frozen=True)
class Errors:
    """Sums of squares: first of the signal, then of the error at each candidate.

    `itself` [1 + candidates]: of the tensor; zeros if only layers use it. `layers`
    [layers, 1 + candidates].
    """

    itself: Float64
    layers: Float64

    def __add__(self, other: Errors) -> Errors:
        return Errors(self.itself + other.itself, self.layers + other.layers)


def run_unquantized(node: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """A node's results in float, without quantization."""
    if only_rounds(node):
        return (inputs[0],)
    if node.op == "lookup":
        x = inputs[0]
        return (node.typed(TableAttrs).exact(x.astype(np.float64)).astype(x.dtype),)
    if node.op == "standardize":
        return (normal(node.typed(StandardizationAttrs), inputs[0]).astype(inputs[0].dtype),)
    if node.op == "integer_softmax":
        return (real_softmax(inputs[0]).astype(inputs[0].dtype),)
    return run_node(node, inputs)


def consumers_of(graph: Graph, quantizer: str, constant: Constant) -> list[Consumer]:
    """Consumers of the result of `quantizer`: layers, and ITSELF first for all other ops.

    The path to a layer goes through ops with one input that is not constant. For a concat, the
    other members are zeros: a layer's error is the sum of the errors from its members.
    """
    found: list[Consumer] = []
    itself = False
    waiting: list[tuple[str, tuple[Step, ...]]] = [(quantizer, ())]
    seen = {quantizer}
    while waiting:
        value, steps = waiting.pop(0)
        itself = itself or graph.is_output(value)
        for node in graph.users(value):
            step = _step(graph, node, value, constant)
            if step is None:
                itself = True
            elif is_layer(node):
                found.append(Consumer((*steps, step)))
            elif node.name not in seen:
                seen.add(node.name)
                waiting.append((node.name, (*steps, step)))
    return [*([ITSELF] if itself or not found else []), *found[:MAX_LAYERS]]


def _step(graph: Graph, node: Node, value: str, constant: Constant) -> Step | None:
    if node.op == "opaque" or node.outputs > 1 or op_definition(node.op).evaluate is None:
        return None
    others = [v for v in dict.fromkeys(node.inputs) if v != value]
    constants = {v: constant(v) for v in others}
    if node.op == "concat":
        return _joined(graph, node, value, constants)
    if any(c is None for c in constants.values()):
        return None
    known = {v: c for v, c in constants.items() if c is not None}
    return lambda x: run_unquantized(node, [known.get(v, x) for v in node.inputs])[0]


def _joined(
    graph: Graph, node: Node, value: str, constants: dict[str, Array | None]
) -> Step | None:
    axis, sizes = node.typed(AxisAttrs).axis, dict[str, int]()
    for v in constants:
        size = (graph.types[v].shape or {axis: None})[axis]
        if size is None:
            return None
        sizes[v] = size

    def zeros(x: Array, size: int) -> Array:
        shape = list(x.shape)
        shape[axis] = size
        return np.zeros(shape, x.dtype)

    def join(x: Array) -> Array:
        parts = [x if v == value else zeros(x, sizes[v]) for v in node.inputs]
        return np.concatenate(parts, axis)

    return join


def errors(
    x: Array, spec: QuantSpec, candidates: Sequence[int], consumers: Sequence[Consumer]
) -> Errors:
    """Errors of one chunk at each of the `candidates` for the exponent of `spec`."""
    found = np.zeros((len(consumers), 1 + len(candidates)))
    wanted = [consumer(x) for consumer in consumers]
    found[:, 0] = [_power(w) for w in wanted]
    for column, exponent in enumerate(candidates, start=1):
        quantized = fake_quantize(x, spec.with_exponent(exponent))
        for row, consumer in enumerate(consumers):
            found[row, column] = _off(consumer(quantized), wanted[row])
    first = int(bool(consumers) and not consumers[0].steps)
    return Errors(found[:first].sum(axis=0), found[first:])


def _power(x: Array) -> float:
    return float(np.square(x, dtype=np.float64).sum())


def _off(found: Array, wanted: Array) -> float:
    with np.errstate(invalid="ignore"):  # infinite after ops such as a logarithm
        return _power(found - wanted)


def cost(members: Sequence[Errors]) -> Float64:
    """One number per candidate, for one tensor or for all tensors on one scale.

    Each layer's error is relative to its own signal. Errors of tensors without layers are relative
    to their mean signal, because such tensors are added to each other. NaN is the worst.
    """
    layers = np.concatenate([e.layers for e in members])
    own = np.array([e.itself for e in members if e.itself[0] > 0]).reshape(-1, layers.shape[1])
    signals = np.where(layers[:, :1] > 0, layers[:, :1], 1.0)
    total: Float64 = (layers[:, 1:] / signals).sum(axis=0)
    if len(own):
        total = total + own[:, 1:].sum(axis=0) / own[:, 0].mean()
    worst: Float64 = np.where(np.isnan(total), np.inf, total)
    return worst


def exponent_by_output(
    chunks: Sequence[Array],
    spec: QuantSpec,
    coarsest: int,
    consumers: Sequence[Consumer],
    each: Each = map,
) -> int:
    """The exponent, among `coarsest` and a few finer ones, with the least error in later layers."""
    candidates = candidates_from(coarsest, FINER_BY_OUTPUT)
    if len(candidates) == 1:
        return coarsest
    parts = [*each(lambda i: errors(chunks[i], spec, candidates, consumers), range(len(chunks)))]
    return candidates[int(np.argmin(cost([sum(parts[1:], parts[0])])))]
