"""Facts of a graph that quantization needs: signs, sources of scales, first and last layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.ops import OPS, op_definition
from qgraph.ir.ops.base import Scale
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.ops.structure import QuantizerAttrs
from qgraph.ir.reading import marks_of, padding_value
from qgraph.ir.types import AnyExponent, Exponent, QuantSpec, Role
from qgraph.numerics import frozen_exponent

QUANTIZERS = tuple(name for name, op in OPS.items() if op.scale is Scale.OWN)
CLIPS = ("maximum", "minimum")
ValueExponents: TypeAlias = dict[str, AnyExponent | None]  # None: a float value
SIGNED_ACTIVATIONS = "signed-activations"  # a fact of graphs: no input or result is unsigned


def is_nonnegative(graph: Graph) -> Callable[[str], bool]:
    """A function of values: whether no element can be negative, for any input."""
    known: dict[str, bool] = {}
    for node in graph.topological():
        rule = op_definition(node.op).nonnegative
        square = node.op == "mul" and node.inputs[0] == node.inputs[1]
        signs = [known.get(v, False) for v in node.inputs]
        known[node.name] = square or rule(node.attributes, signs)
    return lambda value: known.get(value, False)


def size_advice(graph: Graph, node: Node) -> str:
    """Advice for a node that is float because sizes beyond the batch are open, or an empty text."""

    def is_open(value: str) -> bool:
        shape = graph.types[value].shape
        return shape is None or None in shape[1:]

    inputs = [name for name in graph.inputs if is_open(name)]
    if not inputs or not any(map(is_open, node.inputs)):
        return ""
    shape = graph.types[inputs[0]].shape or (None, None, None, 3)
    sizes = ("?", *("224" if d is None else str(d) for d in shape[1:]))
    return (
        f"the size of input `{inputs[0]}` is open; give it, like "
        f"--input-shape {inputs[0]}={','.join(sizes)}"
    )


def has_integer_form(node: Node) -> bool:
    """Whether a node computes codes from codes.

    Padding with a value that is not 0 is not on the grid. Nodes marked `outside` are float
    arithmetic before or after the integer part.
    """
    if op_definition(node.op).integer is None:
        return False
    return not (padding_value(node) or marks_of(node).outside)


def keeps_scale(node: Node) -> bool:
    """Whether the result has the scale of the codes: moves, sums on one scale, ReLU, choices."""
    keeps = op_definition(node.op).keeps_scale or marks_of(node).choice
    return keeps and has_integer_form(node)


def scaled_inputs(node: Node) -> tuple[str, ...]:
    """The inputs of an op that keeps the scale of codes which its result has the scale of."""
    return node.inputs if op_definition(node.op).same_scale else node.inputs[:1]


def multiplies(node: Node) -> bool:
    """Whether the scale of the result is the product of the scales of two inputs."""
    return op_definition(node.op).scale is Scale.PRODUCT


def sources(graph: Graph, value: str) -> list[str]:
    """Names of the quantizers that set the grid of `value`, through ops that keep the scale.

    Empty if the scale is that of an accumulator or if the tensor is float.
    """
    found: dict[str, None] = {}
    waiting, seen = [value], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        node = graph.producer(current)
        if node.op in QUANTIZERS:
            found[node.name] = None
        elif node.op == "bias_add":  # the bias takes the scale of a quantizer or of a sum
            waiting.append(node.inputs[0])
        elif keeps_scale(node):
            waiting += reversed(scaled_inputs(node))
    return list(found)


def exceeds_sources(graph: Graph, value: str) -> bool:
    """Whether codes may lie outside of their quantizers' range: the lowest signed code has no
    absolute value in it.
    """
    node = graph.producer(value)
    if node.op in QUANTIZERS or not keeps_scale(node):
        return False
    if node.op == "abs" and sources_spec(graph, node.inputs[0]).signed:
        return True
    return any(exceeds_sources(graph, v) for v in scaled_inputs(node))


def sources_spec(graph: Graph, value: str) -> QuantSpec:
    """The spec of the quantizers before a value that consists of codes, without masks."""
    specs = [graph.nodes[m].typed(QuantizerAttrs).spec for m in sources(graph, value)]
    specs = [spec for spec in specs if spec.role is not Role.CLIP] or specs
    return max(specs, key=lambda s: (s.signed, s.bits))


def is_for_sign(graph: Graph, quantizer: Node) -> bool:
    """Whether only the sign of a quantizer's codes is used, so that they may saturate."""
    return marks_of(graph.producer(quantizer.inputs[0])).sign_only


def followed_accumulator(graph: Graph, node: Node) -> str | None:
    """The accumulator whose scale a quantizer must use, if it is of a bias; otherwise None."""
    spec = node.typed(QuantizerAttrs).spec
    if spec.role != Role.BIAS or spec.group is not None:
        return None
    users = [u for u in graph.users(node.name) if u.op == "bias_add"]
    return users[0].inputs[0] if users else None


def summing_layer(graph: Graph, accumulator: str) -> Node | None:
    """The layer, with weights as second input, whose sums an accumulator takes; None for others."""
    layer = graph.producer(accumulator)
    while layer.op == "bias_add":
        layer = graph.producer(layer.inputs[0])
    if layer.op == "mul":
        factor = graph.producer(layer.inputs[1])
        return layer if factor.inputs and is_constant(graph, factor.inputs[0]) else None
    return layer if layer.op in COMPUTE else None


def is_constant(graph: Graph, value: str) -> bool:
    """Whether a value is a constant or computed from constants only."""
    node = graph.producer(value)
    if node.op == "const":
        return True
    return bool(node.inputs) and all(is_constant(graph, v) for v in node.inputs)


def is_joined(graph: Graph, value: str) -> bool:
    """Whether a concat uses `value`, directly or moved: its members have one sign."""
    users = graph.users(value)
    moved = [u.name for u in users if op_definition(u.op).moves and u.op != "concat"]
    return any(u.op == "concat" for u in users) or any(is_joined(graph, name) for name in moved)


def end_layers(graph: Graph) -> frozenset[str]:
    """Layers with no other layer before them, or none after them."""
    order = graph.topological()
    first = _unreached(order, lambda node: [node_of(v) for v in node.inputs])
    last = _unreached(
        order[::-1], lambda node: [u.name for v in node.values for u in graph.users(v)]
    )
    return frozenset(first | last)


def _unreached(order: Sequence[Node], before: Callable[[Node], list[str]]) -> set[str]:
    """Layers that no other layer reaches, in `order`, along `before`."""
    behind: set[str] = set()
    ends = set()
    for node in order:
        reached = any(name in behind for name in before(node))
        marks = marks_of(node)
        is_layer = node.op in COMPUTE and not (marks.pool or marks.batch_norm)
        if is_layer and not reached:
            ends.add(node.name)
        if is_layer or reached:
            behind.add(node.name)
    return ends


def final_nodes(graph: Graph) -> frozenset[str]:
    """Nodes that no layer or quantizer follows: their results leave the network."""
    inner: set[str] = set()
    for node in graph.topological()[::-1]:
        if node.name in inner or node.op in COMPUTE or node.op in QUANTIZERS:
            inner.update(node_of(value) for value in node.inputs)
    return frozenset(graph.nodes.keys() - inner)


def leaving_nodes(graph: Graph) -> frozenset[str]:
    """Nodes from which only moves lead on, to outputs of the network."""
    found, outputs = set[str](), {node_of(value) for value in graph.outputs.values()}
    for node in graph.topological()[::-1]:
        users = [user for value in node.values for user in graph.users(value)]
        if (users or node.name in outputs) and all(
            user.name in found and op_definition(user.op).moves for user in users
        ):
            found.add(node.name)
    return frozenset(found)


def before_layers(graph: Graph) -> frozenset[str]:
    """Nodes that a layer, or a product of matrices, follows."""
    inner: set[str] = set()
    for node in graph.topological()[::-1]:
        if node.name in inner or node.op in (*COMPUTE, "batch_matmul"):
            inner.update(node_of(value) for value in node.inputs)
    return frozenset(inner)


def behind_layers(graph: Graph) -> frozenset[str]:
    """Nodes that follow a layer, or a product of matrices, and these themselves."""
    found: set[str] = set()
    for node in graph.topological():
        follows = any(node_of(value) in found for value in node.inputs)
        if follows or node.op in (*COMPUTE, "batch_matmul"):
            found.add(node.name)
    return frozenset(found)


SUMS = ("add", "sub", "bias_add", "select")


def before_softmaxes(graph: Graph, softmaxes: Collection[str]) -> frozenset[str]:
    """Nodes from which only moves, sums and selections lead to one of these softmaxes."""
    found: set[str] = set()
    for node in graph.topological()[::-1]:
        if node.name in softmaxes:
            found.add(node_of(node.inputs[0]))
        elif node.name in found and (op_definition(node.op).moves or node.op in SUMS):
            found.update(node_of(value) for value in node.inputs)
    return frozenset(found)


def masks_of(graph: Graph, scores: Collection[str]) -> frozenset[str]:
    """Nodes that are computed from inputs without a layer, only to be added to `scores`."""
    of_layers, found = behind_layers(graph), set[str]()
    sums = {name for name in scores if graph.producer(name).op in ("add", "sub")}
    for node in graph.topological()[::-1]:
        users = {user.name for value in node.values for user in graph.users(value)}
        outputs = any(graph.is_output(value) for value in node.values)
        if users and not outputs and node.name not in of_layers and users <= found | sums:
            found.add(node.name)
    return frozenset(found)


def known_exponent(exponents: ValueExponents, value: str) -> Exponent:
    """The exponent of a fixed-point value, as in a QuantSpec."""
    exponent = exponents[value]
    assert exponent is not None, value
    return frozen_exponent(exponent)


def scalar_exponent(exponents: ValueExponents, value: str) -> int:
    """The exponent of a fixed-point value whose channels all have the same one."""
    one, *others = {*np.ravel(known_exponent(exponents, value))}
    assert not others, value
    return int(one)


def value_exponent(node: Node, exponents: Mapping[str, AnyExponent | None]) -> AnyExponent | None:
    """The exponent of a node's result from those of its inputs; None if it is float.

    One integer, or an array along the last axis. Products add exponents; sums and moves keep them.
    """
    scale = op_definition(node.op).scale
    if scale is Scale.OWN:
        return node.typed(QuantizerAttrs).spec.exponent
    inputs = [exponents.get(v) for v in node.inputs]
    if not inputs or any(e is None for e in inputs):
        return None
    if scale is Scale.PRODUCT:
        first, second = inputs
        if isinstance(first, int) and isinstance(second, int):  # most products: without numpy
            return first + second
        total = np.asarray(first) + np.asarray(second)
        return int(total) if total.ndim == 0 else total
    return inputs[0] if keeps_scale(node) else None
