"""Rules that write each op of a policy's graph as steps of an actor program."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.ops.norm import NormAttrs
from qgraph.ir.types import Array
from qgraph.rl.actor.ops import ACTIVATIONS, Activation
from qgraph.rl.policy import composed_rules as composed
from qgraph.rl.policy import layer_rules as layers
from qgraph.rl.policy import movement_rules as movement
from qgraph.rl.policy.writer import ActorProgramWriter, no_actor

LARGEST = np.finfo(np.float32).max
AFFINE = {"affine": ("scale", "offset"), "layer_norm": ("gamma", "beta")}  # steps that end in one


def _bias(writer: ActorProgramWriter, node: Node) -> None:
    _affine(writer, node, offset=writer.constant(node))


def _affine(
    writer: ActorProgramWriter,
    node: Node,
    index: int = 0,
    scale: Array | None = None,
    offset: Array | None = None,
) -> None:
    """Add x * scale + offset to the layer or the affine step before it, or as a new step."""
    x = node.inputs[index]
    before = writer.before(x)
    same_size = writer.sample(x) == writer.sample(node.name)
    if before is not None and same_size and scale is None and before.is_linear_layer:
        writer.join(node, before, bias=writer.weight(before, "bias") + offset)
        return
    channels = (writer.sample(node.name) or (1,))[-1] or 1
    scale = np.ones(channels, np.float32) if scale is None else scale
    offset = np.zeros(channels, np.float32) if offset is None else offset
    roles = AFFINE.get(before.op) if before is not None else None
    if before is not None and same_size and roles is not None:
        factor, shift = roles
        earlier = writer.weight(before, shift) * scale + offset
        changed = {factor: writer.weight(before, factor) * scale, shift: earlier}
        writer.join(node, before, **changed)
        return
    if not same_size:
        raise no_actor(node, " that repeats a value")
    writer.add(node.name, "affine", x, scale=scale, offset=offset)


def _activation(kind: str) -> Rule:
    def rule(writer: ActorProgramWriter, node: Node) -> None:
        before = writer.before(node.inputs[0])
        alpha = {"alpha": float(node.attrs["alpha"])} if "alpha" in node.attrs else {}
        attrs = {"activation": kind, **alpha}
        if before is not None and before.is_linear_layer:
            writer.join(node, before.with_attrs(**attrs))
        else:
            writer.add(node.name, "activate", node.inputs[0], attrs=attrs)

    return rule


def _sum(writer: ActorProgramWriter, node: Node) -> None:
    for index in (0, 1):
        vector = writer.vector(node, 1 - index)
        if vector is not None:
            _affine(writer, node, index, offset=vector)
            return
    for index in (0, 1):
        numbers = writer.numbers(node, 1 - index)
        if numbers is not None:
            _affine_of_numbers(writer, node, index, offset=numbers)
            return
    _two(writer, node, "add")


def _product(writer: ActorProgramWriter, node: Node) -> None:
    for index in (0, 1):
        vector = writer.vector(node, 1 - index)
        if vector is not None:
            _affine(writer, node, index, scale=vector)
            return
    for index in (0, 1):
        numbers = writer.numbers(node, 1 - index)
        if numbers is not None:
            _affine_of_numbers(writer, node, index, scale=numbers)
            return
    _two(writer, node, "multiply")


def _difference(writer: ActorProgramWriter, node: Node) -> None:
    x, y = node.inputs
    if writer.means.get(y) == writer.value(x):
        writer.add(node.name, "center", x)
        return
    channels = (writer.sample(y) or (1,))[-1] or 1
    minus = np.full(channels, -1, np.float32)
    vector, numbers = writer.vector(node, 0), writer.numbers(node, 0)
    if vector is not None:
        _affine(writer, node, 1, scale=minus, offset=vector)
        return
    if numbers is not None:
        _affine_of_numbers(writer, node, 1, scale=np.full_like(numbers, -1), offset=numbers)
        return
    taken = writer.numbers(node, 1)
    if taken is not None:
        _affine_of_numbers(writer, node, 0, offset=-taken)
        return
    negated = f"{node.name}/negated"
    writer.add(negated, "affine", y, scale=minus, offset=np.zeros_like(minus))
    _two(writer, node, "add", negated)


def _affine_of_numbers(
    writer: ActorProgramWriter,
    node: Node,
    index: int,
    scale: Array | None = None,
    offset: Array | None = None,
) -> None:
    """x * scale + offset with one number for each number of x, as for positions of a sequence."""
    x, own = node.inputs[index], node.name
    if writer.known(x) != writer.known(own):
        raise no_actor(node, " that repeats a value")
    given = scale if scale is not None else offset
    assert given is not None
    scale = np.ones_like(given) if scale is None else scale
    offset = np.zeros_like(given) if offset is None else offset
    row = writer.reshaped(f"{own}/row", writer.value(x), given.shape)
    writer.add(f"{own}/numbers", "affine", row, scale=scale, offset=offset)
    made = writer.reshaped(own, f"{own}/numbers", writer.known(own))
    if made != own:
        writer.aliases[own] = made


def _two(writer: ActorProgramWriter, node: Node, op: str, second: str | None = None) -> None:
    """An op on two values, of which one may have size 1 along one axis.

    second: the value of the program in place of the second one.
    """
    if any(writer.graph.constant(value) is not None for value in node.inputs):
        raise no_actor(node, " with a constant that does not have the shape of the value")
    shape = writer.known(node.name)
    values = [writer.value(node.inputs[0]), second or writer.value(node.inputs[1])]
    shapes = [writer.known(value) for value in node.inputs]
    if shapes[0] != shape:
        values, shapes = values[::-1], shapes[::-1]
    if shapes[0] != shape or len(shapes[1]) != len(shape):
        raise no_actor(node, " that repeats both values, or along new axes")
    a, b = values
    repeated = [i for i, size in enumerate(shapes[1]) if size != shape[i]]
    if not repeated and writer.shapes[a] == writer.shapes[b]:
        writer.add(node.name, op, a, b)
        return
    a = writer.reshaped(f"{node.name}/a", a, shape)
    b = writer.reshaped(f"{node.name}/b", b, shapes[1])
    if len(repeated) > 1:
        raise no_actor(node, " that repeats a value along several axes")
    if not repeated or repeated == [len(shape) - 1]:
        writer.add(node.name, op, a, b)
        return
    order = [*(i for i in range(len(shape)) if i not in repeated), *repeated]
    turned = [writer.moved(f"{node.name}/{i}", v, order) for i, v in enumerate((a, b))]
    writer.add(f"{node.name}/{op}", op, *turned)
    writer.moved(node.name, f"{node.name}/{op}", np.argsort(order).tolist())


def _bounded(
    writer: ActorProgramWriter,
    node: Node,
    low: Array | float | None,
    high: Array | float | None,
    index: int = 0,
) -> None:
    """Clip x to low..high, joined with a clip before it."""
    x = node.inputs[index]
    channels = (writer.sample(node.name) or (1,))[-1] or 1
    whole = np.full(channels, LARGEST, np.float32)  # weights are finite
    low = -whole if low is None else np.broadcast_to(np.asarray(low, np.float32), whole.shape)
    high = whole if high is None else np.broadcast_to(np.asarray(high, np.float32), whole.shape)
    before = writer.before(x)
    if before is None or before.op != "clip":
        writer.add(node.name, "clip", x, low=np.array(low), high=np.array(high))
        return
    held = [np.clip(writer.weight(before, role), low, high) for role in ("low", "high")]
    writer.join(node, before, low=held[0], high=held[1])


def _bound(*, low: bool) -> Rule:
    """The rule for a constant bound, from below or from above."""

    def rule(writer: ActorProgramWriter, node: Node) -> None:
        for index in (0, 1):
            vector = writer.vector(node, 1 - index)
            if vector is not None:
                _bounded(writer, node, vector if low else None, None if low else vector, index)
                return
        raise no_actor(node, " of two values")

    return rule


def _layer_norm(writer: ActorProgramWriter, node: Node) -> None:
    gamma, beta = writer.constant(node, 1), writer.constant(node, 2)
    attrs = {"epsilon": node.typed(NormAttrs).epsilon}
    writer.add(node.name, "layer_norm", node.inputs[0], attrs=attrs, gamma=gamma, beta=beta)


def _depthwise(writer: ActorProgramWriter, node: Node) -> None:
    if layers.is_scale(writer, node):
        _affine(writer, node, scale=writer.constant(node).reshape(-1))
    else:
        layers.depthwise(writer, node)


def _softmax(writer: ActorProgramWriter, node: Node) -> None:
    movement.along_last(writer, node, node.typed(AxisAttrs).axis, "softmax")


def _identity(writer: ActorProgramWriter, node: Node) -> None:
    writer.aliases[node.name] = node.inputs[0]


Rule = Callable[[ActorProgramWriter, Node], None]
RULES: Mapping[str, Rule] = {
    # Graph ops and activations have the same names.
    **{str(kind): _activation(kind) for kind in ACTIVATIONS if kind is not Activation.LINEAR},
    "matmul": layers.matmul,
    "batch_matmul": layers.matmul,
    "conv2d": layers.conv,
    "depthwise_conv2d": _depthwise,
    "max_pool": layers.pool,
    "avg_pool": layers.pool,
    "reduce_max": layers.largest,
    "bias_add": _bias,
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "maximum": _bound(low=True),
    "minimum": _bound(low=False),
    "relu6": lambda writer, node: _bounded(writer, node, 0, 6),
    "layer_norm": _layer_norm,
    "mean": movement.mean,
    "sum": movement.total,
    "transpose": movement.transpose,
    "softmax": _softmax,
    "concat": movement.concat,
    "pad": movement.pad,
    "reshape": movement.reshape,
    "expand_dims": movement.reshape,
    "squeeze": movement.reshape,
    "identity": _identity,
    "slice": movement.part,
    "take": movement.take,
    "abs": composed.magnitude,
    "square": composed.square,
    "hard_sigmoid": composed.hard_sigmoid,
    "hard_swish": composed.hard_swish,
    "selu": composed.selu,
    "gelu": composed.gelu,
    "argmax": composed.choice,
    **dict.fromkeys(("equal", "not_equal", "greater", "less", "select", "log"), composed.condition),
}
