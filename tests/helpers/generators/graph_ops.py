"""Ops beyond the layers of convolutional networks: tables, norms of layers, products, moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qgraph.ir.ops import OPS
from qgraph.ir.ops.base import AnyOp
from qgraph.ops.attributes import declarations
from tests.helpers.generators.layers import Network, Value

Attrs = dict[str, object]


def needs_no_attributes(op: AnyOp) -> bool:
    return not any(declared.required for declared in declarations(op.attributes))


def becomes_integer(op: AnyOp) -> bool:
    return op.integer is not None or op.pointwise


# Ops of one or two values that become integers, from their definitions.
UNARY = tuple(
    name
    for name, op in OPS.items()
    if op.elementwise and op.arity == (1, 1) and becomes_integer(op) and needs_no_attributes(op)
)
BINARY = tuple(
    name
    for name, op in OPS.items()
    if op.elementwise and op.arity == (2, 2) and becomes_integer(op) and needs_no_attributes(op)
)
# Values of attributes beside their defaults.
OPTIONAL: Mapping[str, Attrs] = {
    "hard_sigmoid": {"alpha": 0.3, "beta": 0.4},
    "elu": {"alpha": 0.3},
    "gelu": {"approximate": True},
}


def table(net: Network, x: Value) -> Value:
    op = net.choices.pick(*UNARY)
    return net.op(op, x, **(OPTIONAL.get(op, {}) if net.choices.chance(0.5) else {}))


def pair(net: Network, x: Value) -> Value:
    """An op on two values of one shape."""
    same = [v for v in net.live if net.shape(v) == net.shape(x)]
    return net.op(net.choices.pick(*BINARY), x, net.choices.pick(*same))


def layer_norm(net: Network, x: Value) -> Value:
    c, channels = net.choices, net.shape(x)[-1]
    gamma = net.const(net.normal(channels) if c.chance(0.5) else np.ones(channels), "gamma")
    beta = net.const(net.normal(channels), "beta")
    return net.op("layer_norm", x, gamma, beta, epsilon=c.pick(1e-5, 0.0, 1e-12, 0.1))


def gate(net: Network, x: Value) -> Value:
    """A product with a number for each channel, as in squeeze-and-excitation."""
    made = net.op("sigmoid", net.op("mean", x, axes=(1, 2), keepdims=True))
    return net.op("mul", x, made, name="gated")


def attention(net: Network, x: Value) -> Value:
    """Products of pixels, their softmax, and sums of pixels by it."""
    _, height, width, channels = net.shape(x)
    rows = net.op("reshape", x, shape=(-1, height * width, channels))
    columns = net.op("transpose", rows, perm=(0, 2, 1))
    shares = net.op("softmax", net.op("batch_matmul", rows, columns), axis=-1)
    mixed = net.op("batch_matmul", shares, rows)
    return net.op("reshape", mixed, shape=(-1, height, width, channels))


def log_softmax(net: Network, x: Value) -> Value:
    return net.op("log_softmax", x, axis=-1)


def local_response(net: Network, x: Value) -> Value:
    """A product with a function of the squares of neighbours among the channels."""
    c, number = net.choices, np.arange(net.shape(x)[-1])
    band = np.abs(number[:, None] - number) <= c.number(0, 2)
    total = net.op("batch_matmul", net.op("square", x), net.const(band, "band"))
    scaled = net.op("mul", total, net.const(c.pick(0.1, 2.0), "factor"))
    base = net.op("add", scaled, net.const(c.pick(1.0, 0.5), "bias"))
    share = net.op("pow", base, net.const(c.pick(-0.75, -0.5), "power"))
    return net.op("mul", x, share, name="normalized")


def dilated_pool(net: Network, x: Value) -> Value:
    """The largest of two rows that lie apart."""
    height = net.shape(x)[1]
    apart = net.choices.number(0, height - 1)
    rows = (row for first in range(height - apart) for row in (first, first + apart))
    taps = net.op("take", x, axis=1, indices=tuple(rows))
    return net.op("max_pool", taps, ksize=(2, 1), strides=(2, 1), padding="valid")


def float_island(net: Network, x: Value) -> Value:
    """Ops without an integer form; layers behind them make them an island."""
    if net.choices.chance(0.5):  # of length 1 along channels
        square = net.op("sum", net.op("square", x), axes=(3,), keepdims=True)
        return net.op("div", x, net.op("sqrt", net.op("add", square, net.const(1e-3, "small"))))
    larger = net.op("greater", x, net.op("mean", x, axes=(1, 2), keepdims=True))
    return net.op("select", larger, x, net.op("neg", x))


# -- moves ---------------------------------------------------------------------------------------


def move(net: Network, x: Value) -> Value:
    """A move that fits, otherwise the same value."""
    op = net.choices.pick(*MOVES)
    attrs = MOVES[op](net, x)
    return net.op("identity", x) if attrs is None else net.op(op, x, **attrs)


def slice_(net: Network, x: Value) -> Attrs:
    c, whole = net.choices, (None,) * 4
    strides = (1, c.pick(1, -1, 2), c.pick(1, 1, -1), c.pick(1, 2))
    if c.chance(0.5):
        return {"begin": whole, "end": whole, "strides": strides}
    begin = (None, *(c.number(0, size - 1) for size in net.shape(x)[1:]))
    return {"begin": begin, "end": whole, "strides": (1, c.pick(1, -1), 1, 1)}


def resize_nearest(net: Network, x: Value) -> Attrs | None:
    _, height, width, _ = net.shape(x)
    if height * width >= 40:
        return None
    flag = net.choices.pick(None, "half_pixel", "align_corners")
    size = net.choices.pick((height + 1, 2 * width), (2 * height, 2 * width), (height, 1))
    return {
        "size": size,
        "half_pixel": flag == "half_pixel",
        "align_corners": flag == "align_corners",
    }


def take(net: Network, x: Value) -> Attrs:
    axis, c = net.choices.number(1, 3), net.choices
    size = net.shape(x)[axis]
    indices = tuple(c.number(0, size - 1) for _ in range(c.number(1, size)))
    return {"axis": axis, "indices": indices}


def space_to_depth(net: Network, x: Value) -> Attrs | None:
    _, height, width, channels = net.shape(x)
    fits = height % 2 == 0 and width % 2 == 0 and channels < 8
    return {"block": 2} if fits else None


def depth_to_space(net: Network, x: Value) -> Attrs | None:
    return {"block": 2} if net.shape(x)[3] % 4 == 0 else None


def pad(net: Network, x: Value) -> Attrs | None:
    c, (_, height, width, _) = net.choices, net.shape(x)
    mode = c.pick("constant", "reflect", "symmetric")
    if mode == "constant":
        return {"paddings": ((0, 0), *((c.number(0, 2), c.number(0, 2)) for _ in range(3)))}
    return (
        {"paddings": ((0, 0), (1, 0), (0, 1), (0, 0)), "mode": mode}
        if min(height, width) > 1
        else None
    )


def transpose(net: Network, x: Value) -> Attrs:
    return {"perm": (0, *(axis + 1 for axis in net.choices.permutation(3)))}


def reshape(net: Network, x: Value) -> Attrs:
    _, height, width, channels = net.shape(x)
    shapes = [
        (1, height * width, channels),
        (height, width * channels, 1),
        (width, height, channels),
    ]
    return {"shape": (-1, *net.choices.pick(*shapes))}


def reduce_max(net: Network, x: Value) -> Attrs:
    return {"axes": net.choices.pick((1,), (2,), (1, 2), (-1,)), "keepdims": True}


def max_pool(net: Network, x: Value) -> Attrs:
    c, pads = net.choices, []
    ksize = tuple(c.number(1, min(3, size)) for size in net.shape(x)[1:3])
    for size in ksize:
        pads.append((c.number(0, size - 1), c.number(0, size - 1)))
    return {"ksize": ksize, "strides": (c.number(1, 2), c.number(1, 2)), "padding": tuple(pads)}


# Attributes of moves of one value, None where the op does not fit.
MOVES: Mapping[str, Callable[[Network, Value], Attrs | None]] = {
    "slice": slice_, "resize_nearest": resize_nearest, "space_to_depth": space_to_depth,
    "depth_to_space": depth_to_space, "pad": pad, "transpose": transpose, "reshape": reshape,
    "reduce_max": reduce_max, "max_pool": max_pool, "take": take,
}  # fmt: skip
