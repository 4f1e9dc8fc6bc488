"""Rules that write each op of a policy's graph as steps of an actor program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops.attributes import AxisAttrs, SlidingAttrs
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.ops.movement import PartAttrs
from qgraph.ir.ops.norm import NormAttrs
from qgraph.ir.ops.pool import PoolAttrs
from qgraph.ir.ops.windows import explicit_pads
from qgraph.ir.types import Array
from qgraph.ops.movement import TakeAttrs
from qgraph.rewrite.constants import is_channel_mean
from qgraph.rl.actor.ops import ACTIVATIONS, Activation
from qgraph.rl.policy import composed_rules as composed
from qgraph.rl.policy.writer import ActorProgramWriter, no_actor

NO_DILATION = (1, 1)
AFFINE = {"affine": ("scale", "offset"), "layer_norm": ("gamma", "beta")}  # steps that end in one


def _matmul(writer: ActorProgramWriter, node: Node) -> None:
    kernel = writer.constant(node)
    writer.add(
        node.name,
        "dense",
        node.inputs[0],
        kernel=kernel,
        bias=np.zeros(kernel.shape[1], np.float32),
    )


def _conv(writer: ActorProgramWriter, node: Node) -> None:
    kernel, sizes = writer.constant(node), writer.sample(node.inputs[0])
    if node.typed(ConvAttrs).dilations != NO_DILATION:
        raise no_actor(node, " with dilations")
    if kernel.shape[2] != sizes[2]:
        raise no_actor(node, " with groups")
    bias = np.zeros(kernel.shape[3], np.float32)
    attrs = _window(writer, node, kernel.shape[:2])
    writer.add(node.name, "conv", node.inputs[0], attrs=attrs, kernel=kernel, bias=bias)


def _window(writer: ActorProgramWriter, node: Node, kernel: tuple[int, ...]) -> dict[str, object]:
    height, width = (int(size or 0) for size in writer.sample(node.inputs[0])[:2])
    window = node.typed(SlidingAttrs)
    strides, padding = window.strides, window.padding
    size = (kernel[0], kernel[1])
    pads = explicit_pads((height, width), size, strides, NO_DILATION, padding)
    return {"strides": tuple(strides), "pads": pads}


def _depthwise(writer: ActorProgramWriter, node: Node) -> None:
    kernel = writer.constant(node)
    strides = node.typed(ConvAttrs).strides
    if kernel.shape[:2] != (1, 1) or kernel.shape[3] != 1 or strides != (1, 1):
        raise no_actor(node)
    _affine(writer, node, scale=kernel.reshape(-1))


def _max_pool(writer: ActorProgramWriter, node: Node) -> None:
    ksize = node.typed(PoolAttrs).ksize
    attrs = {"ksize": ksize, **_window(writer, node, ksize)}
    writer.add(node.name, "max_pool", node.inputs[0], attrs=attrs)


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
    _two(writer, node, "add")


def _product(writer: ActorProgramWriter, node: Node) -> None:
    for index in (0, 1):
        vector = writer.vector(node, 1 - index)
        if vector is not None:
            _affine(writer, node, index, scale=vector)
            return
    _two(writer, node, "multiply")


def _difference(writer: ActorProgramWriter, node: Node) -> None:
    x, y = node.inputs
    if writer.means.get(y) == writer.value(x):
        writer.add(node.name, "center", x)
        return
    vector = writer.vector(node, 0)
    minus = np.full((writer.sample(y) or (1,))[-1] or 1, -1, np.float32)
    if vector is not None:
        _affine(writer, node, 1, scale=minus, offset=vector)
        return
    negated = f"{node.name}/negated"
    writer.add(negated, "affine", y, scale=minus, offset=np.zeros_like(minus))
    swapped = writer.sample(x) != writer.sample(node.name)
    writer.add(node.name, "add", *((negated, x) if swapped else (x, negated)))


def _two(writer: ActorProgramWriter, node: Node, op: str) -> None:
    """An op on two values of one shape, or the second with a last axis of 1."""
    x, y = node.inputs
    if writer.graph.constant(x) is not None or writer.graph.constant(y) is not None:
        raise no_actor(node, " with a constant that is not one number for each channel")
    swapped = writer.sample(x) != writer.sample(node.name)
    writer.add(node.name, op, *((y, x) if swapped else (x, y)))


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
    whole = np.full(channels, np.inf, np.float32)
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


def _mean(writer: ActorProgramWriter, node: Node) -> None:
    if not is_channel_mean(writer.graph, node):
        raise no_actor(node)
    writer.means[node.name] = writer.value(node.inputs[0])


def _softmax(writer: ActorProgramWriter, node: Node) -> None:
    if node.typed(AxisAttrs).axis not in (-1, len(writer.sample(node.name))):
        raise no_actor(node, " over another axis than the last")
    writer.add(node.name, "softmax", node.inputs[0])


def _concat(writer: ActorProgramWriter, node: Node) -> None:
    if node.typed(AxisAttrs).axis not in (-1, len(writer.sample(node.name))):
        raise no_actor(node, " along another axis than the last")
    rows = [writer.reshaped.get(value) for value in node.inputs]
    if None in rows:
        _joined(writer, node.name, [writer.value(value) for value in node.inputs])
        return
    _joined(writer, f"{node.name}/row", [writer.value(row or "") for row in rows])
    writer.reshaped[node.name] = f"{node.name}/row"


def _joined(writer: ActorProgramWriter, name: str, values: Sequence[str]) -> None:
    """Values one after the other; columns of the observation are selected together."""
    if not all(value in writer.selected for value in values):
        writer.add(name, "concat", *values)
        return
    columns = np.concatenate([writer.selected[value] for value in values])
    total = (writer.sample(writer.observation) or (0,))[0]
    if len(columns) == total and (columns == np.arange(len(columns))).all():
        writer.aliases[name] = writer.observation
    else:
        writer.select(name, columns)


def _reshape(writer: ActorProgramWriter, node: Node) -> None:
    x = writer.reshaped.get(node.inputs[0], node.inputs[0])
    before, after = writer.shape(x), writer.graph.types[node.name].shape or ()
    known = None not in (*before[1:], *after[1:]) and min(len(before), len(after)) > 1
    if known and _numbers(before) != _numbers(after):
        raise no_actor(
            node,
            " that changes the number of samples",
            "a layer on each part of an observation has to be one layer on all parts",
        )
    if before[1:] == after[1:]:
        writer.aliases[node.name] = x
    elif len(after) == 2 and None not in after[1:]:
        writer.add(node.name, "flatten", x)
    else:
        writer.reshaped[node.name] = x


def _slice(writer: ActorProgramWriter, node: Node) -> None:
    """Columns of a value, computed by columns of its layers and of the steps after them."""
    x = node.inputs[0]
    row = writer.reshaped.get(x)  # a vector in another shape, of the same last axis
    attrs = node.typed(PartAttrs)
    begin, end, strides = attrs.begin, attrs.end, attrs.strides
    for axis, size in enumerate(writer.graph.types[x].shape or ()):
        last = axis == len(begin) - 1
        whole = (begin[axis] or 0, strides[axis]) == (0, 1) and end[axis] in (None, size)
        if not last and not whole:
            raise no_actor(node, " along another axis than the last")
    channels = (writer.sample(x) or (None,))[-1]
    if channels is None:
        raise no_actor(node)
    columns = np.arange(channels)[slice(begin[-1], end[-1], strides[-1])]
    if row is None:
        writer.aliases[node.name] = writer.columns(node, writer.value(x), columns, channels)
    elif writer.shape(row)[1:] == (channels,):
        writer.reshaped[node.name] = writer.columns(node, writer.value(row), columns, channels)
    else:
        raise no_actor(node, " of a value that was reshaped")


def _numbers(shape: Sequence[int | None]) -> int:
    """The numbers of one sample."""
    return math.prod(size or 1 for size in shape[1:])


def _take(writer: ActorProgramWriter, node: Node) -> None:
    """Columns of a value by their numbers."""
    x, attrs = node.inputs[0], node.typed(TakeAttrs)
    channels = (writer.sample(x) or (None,))[-1]
    if channels is None or attrs.axis != len(writer.sample(x)):
        raise no_actor(node, " along another axis than the last")
    columns = np.asarray(attrs.indices)
    writer.aliases[node.name] = writer.columns(node, writer.value(x), columns, channels)


def _identity(writer: ActorProgramWriter, node: Node) -> None:
    writer.aliases[node.name] = node.inputs[0]


Rule = Callable[[ActorProgramWriter, Node], None]
RULES: Mapping[str, Rule] = {
    # Graph ops and activations have the same names.
    **{str(kind): _activation(kind) for kind in ACTIVATIONS if kind is not Activation.LINEAR},
    "matmul": _matmul,
    "conv2d": _conv,
    "depthwise_conv2d": _depthwise,
    "max_pool": _max_pool,
    "bias_add": _bias,
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "maximum": _bound(low=True),
    "minimum": _bound(low=False),
    "relu6": lambda writer, node: _bounded(writer, node, 0, 6),
    "layer_norm": _layer_norm,
    "mean": _mean,
    "softmax": _softmax,
    "concat": _concat,
    "reshape": _reshape,
    "expand_dims": _reshape,
    "squeeze": _reshape,
    "identity": _identity,
    "slice": _slice,
    "take": _take,
    "hard_sigmoid": composed.hard_sigmoid,
    "hard_swish": composed.hard_swish,
    "selu": composed.selu,
    "gelu": composed.gelu,
    "argmax": composed.choice,
    **dict.fromkeys(("equal", "not_equal", "greater", "less", "select", "log"), composed.condition),
}
