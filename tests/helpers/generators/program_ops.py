"""Draw the operands and attributes of each op of a random program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qgraph.numerics import round_shift
from qgraph.program import Tensor
from tests.helpers.generators.grower import Draft, Grower

# Relative frequency of ops, where it is not 1.
FREQUENCY = {
    "requantize": 7, "conv2d": 3, "depthwise_conv2d": 3, "matmul": 2, "batch_matmul": 3,
    "lookup": 2, "clip": 3, "max_pool": 3, "slice": 2, "take": 2, "reshape": 2, "embedding": 2,
}  # fmt: skip


# -- sums of products ----------------------------------------------------------------------------


def window(g: Grower, x: Tensor, most: int = 4) -> tuple[tuple, dict] | None:
    """A kernel and the attributes of a window that fits."""
    c = g.choices
    pads = tuple((c.pick(0, 0, 1, 2, 5), c.pick(0, 0, 1, 2)) for _ in range(2))
    sizes = [size + sum(p) for size, p in zip(x.shape[1:3], pads, strict=True)]
    kernel = tuple(c.number(1, min(most, size)) for size in sizes)
    dilations = tuple(
        c.pick(1, 1, 2, 3) if (k - 1) * 3 < size else 1
        for k, size in zip(kernel, sizes, strict=True)
    )
    strides = (c.number(1, 3), c.number(1, 3))
    return kernel, {"strides": strides, "dilations": dilations, "pads": pads}


def weights(g: Grower, outputs: int, *shape: int) -> str:
    """A constant; sometimes with an exponent for each output."""
    exponent = g.choices.pick(0, 7, 11)
    if g.per_channel(0.3):
        spread = g.choices.rng.integers(exponent - 2, exponent + 3, outputs)
        exponent = tuple(int(e) for e in spread)
    return g.constant(g.codes(*shape), exponent=exponent)


def conv2d(g: Grower, x: Tensor) -> Draft:
    kernel, attrs = window(g, x)
    channels = x.shape[3]
    groups = g.choices.pick(1, *(n for n in (2, 3, channels) if channels % n == 0))
    outputs = groups * g.choices.number(1, 20 if groups == 1 else 3)
    w = weights(g, outputs, *kernel, channels // groups, outputs)
    return Draft((x.name, w), {**attrs, "groups": groups})


def depthwise_conv2d(g: Grower, x: Tensor) -> Draft:
    kernel, attrs = window(g, x)
    channels, multiplier = x.shape[3], g.choices.pick(1, 1, 2, 3)
    w = weights(g, channels * multiplier, *kernel, channels, multiplier)
    return Draft((x.name, w), attrs)


def matmul(g: Grower, x: Tensor) -> Draft:
    outputs = g.choices.number(1, g.choices.pick(5, 40))
    return Draft((x.name, weights(g, outputs, x.shape[1], outputs)))


def batch_matmul(g: Grower, x: Tensor) -> Draft | None:
    """x with a tensor or a constant that fits, on either side of it; axes in front may repeat."""
    c, (*batch, rows, columns) = g.choices, x.shape
    if isinstance(x.exponent, tuple):
        return None
    fitting = [v for v in g.live if multiplies(x, g.tensors[v])]
    if fitting and c.chance(0.7):
        return Draft((x.name, c.pick(*fitting)))
    front = c.pick((), (1, *(c.pick(size, 1) for size in batch[1:])))
    other = c.number(1, c.pick(5, 20))
    if c.chance(0.5):
        exponent = c.pick(0, 7)
        return Draft((g.constant(g.codes(*front, other, rows), exponent=exponent), x.name))
    if front:
        return Draft((x.name, g.constant(g.codes(*front, columns, other), exponent=5)))
    return Draft((x.name, weights(g, other, columns, other)))


def multiplies(x: Tensor, y: Tensor) -> bool:
    """Whether y has as many axes as x, and is a matrix that may follow it."""
    fits = len(x.shape) == len(y.shape) and x.shape[-1] == y.shape[-2]
    pairs = zip(x.shape[:-2], y.shape[:-2], strict=False)
    return fits and all(a == b or 1 in (a, b) for a, b in pairs)


# -- one element at a time -----------------------------------------------------------------------


def pairs(g: Grower, x: Tensor, exponent: object = None) -> list[tuple[str, str]]:
    """x with itself, with a tensor of its shape, with one that is broadcast to it, or with a
    constant.
    """
    added = exponent is None
    exponent = x.exponent if added else exponent
    like = [
        v for v in g.live
        if g.tensors[v].shape == x.shape and g.tensors[v].exponent == exponent
    ]  # fmt: skip
    others = [g.choices.pick(*like)] if like else []
    others += [v for v in g.live if spreads(g.tensors[v], x) and g.tensors[v].exponent == exponent]
    if g.choices.chance(0.6) or not others:
        last = x.shape[-1:] if len(x.shape) > 1 else ()
        shape = last
        if not isinstance(exponent, tuple):
            kept = x.shape[g.choices.number(1, len(x.shape)) :]
            shape = tuple(g.choices.pick(size, size, 1) for size in kept)
            shape = g.choices.pick(shape, (1,) * (len(x.shape) - len(last)) + last)
        codes = g.codes(*shape, bits=(8, 4, 16, 20, 24), added=added)
        others = [g.constant(codes, exponent=exponent)]
    other = g.choices.pick(*others)
    return [(x.name, other), (other, x.name)]


def spreads(small: Tensor, x: Tensor) -> bool:
    """Whether the tensor has the sizes of x, or 1, on every axis."""
    if len(small.shape) != len(x.shape) or small.shape == x.shape:
        return False
    return all(a in (1, b) for a, b in zip(small.shape, x.shape, strict=True))


def mul(g: Grower, x: Tensor) -> Draft:
    return Draft(g.choices.pick(*pairs(g, x, g.choices.pick(x.exponent, 0, 5, 16))))


def clip(g: Grower, x: Tensor) -> Draft | None:
    c = g.choices
    channels = x.shape[-1]
    low = c.pick(None, 0, x.low // 2, x.low - 5, *[c.number(x.low, x.high)] * 2)
    high = c.pick(None, x.high // 3, x.high + 9, *[c.number(x.low, x.high)] * 2)
    if len(x.shape) > 1 and c.chance(0.5):
        ends = np.sort(c.rng.integers(x.low, x.high + 1, (2, channels)), axis=0).tolist()
        low = tuple(ends[0]) if low is not None and c.chance(0.5) else low
        high = tuple(ends[1]) if high is not None else high
    if low is not None and high is not None and np.any(np.asarray(low) > np.asarray(high)):
        return None
    return Draft((x.name,), {"low": low, "high": high})


def requantize(g: Grower, x: Tensor) -> Draft:
    """A requantization to one scale, or from one scale to a scale for each channel."""
    c = g.choices
    spec = g.spec(g.bits, (True, False))
    width = max(-x.low, x.high, 1).bit_length()
    near = max(width - spec.bits, 0) + c.number(-3, 4)
    shift = c.pick(near, near, near, c.number(-3, width + 3), c.number(-60, 60))
    if isinstance(x.exponent, tuple):
        middle = int(np.median(x.exponent))
        shift = tuple(int(np.clip(e - middle + shift, -62, 62)) for e in x.exponent)
    elif len(x.shape) > 1 and g.per_channel(0.2):
        spread = c.rng.integers(shift - 2, shift + 3, x.shape[-1])
        shift = tuple(int(s) for s in spread)
    attrs = {"shift": shift, "low": spec.lo, "high": spec.hi}
    attrs |= g.derived("requantize", *attrs)
    span = None
    if attrs["overflow"] == "saturate" and c.chance(0.5):
        ends = [round_shift(np.asarray(v), np.asarray(shift), attrs["rounding"])
                for v in (x.low, x.high)]  # fmt: skip
        span = tuple(int(np.clip(f(end), spec.lo, spec.hi))
                     for f, end in zip((np.min, np.max), ends, strict=True))  # fmt: skip
    return Draft((x.name,), attrs, span)


def lookup(g: Grower, x: Tensor) -> Draft | None:
    entries = x.high - x.low + 1
    if entries > 1 << 16:
        return None
    table = g.constant(g.codes(entries, bits=(8, 3, 8, 16)), exponent=g.choices.pick(0, 7))
    return Draft((x.name, table), {"offset": x.low})


# -- many elements at once -----------------------------------------------------------------------


def standardize(g: Grower, x: Tensor) -> Draft | None:
    """A standardization with the largest number of guard bits, or with fewer."""
    c = g.choices
    largest = x.shape[-1] * max(-x.low, x.high, 1)
    if largest >= 1 << 25:
        return None
    guard = c.number(0, 25 - largest.bit_length())
    epsilon = c.pick(0, 1, 1 << c.number(0, 50))
    return Draft(
        (x.name,), {"guard": guard, "epsilon": epsilon, "shift": guard + c.number(-guard, 12)}
    )


def softmax(g: Grower, x: Tensor) -> Draft:
    """A falling table; sometimes a single entry, or one for each distance."""
    c = g.choices
    entries = c.pick(1, 9, min(x.high - x.low + 1, 1 << 12))
    table = np.ldexp(np.exp(-np.arange(entries) * c.pick(0.01, 0.1, 1.0)), 15)
    bits = c.pick(0, 7, 8, 15, 16)
    table = g.constant(np.rint(table).astype(np.int64), exponent=15)
    return Draft((x.name, table), {"bits": bits, "high": (1 << bits) - c.pick(0, 1)})


def max_pool(g: Grower, x: Tensor) -> Draft:
    c = g.choices
    ksize = tuple(c.number(1, min(4, size)) for size in x.shape[1:3])
    pads = tuple((c.number(0, k - 1), c.number(0, k - 1)) for k in ksize)
    strides = (c.number(1, 3), c.number(1, 3))
    return Draft((x.name,), {"ksize": ksize, "strides": strides, "pads": pads})


def reduce_max(g: Grower, x: Tensor) -> Draft:
    axes = g.choices.some(range(1, len(x.shape)))
    return Draft((x.name,), {"axes": axes, "keepdims": g.choices.pick(False, True)})


# -- moves ---------------------------------------------------------------------------------------


def reshape(g: Grower, x: Tensor) -> Draft:
    sizes, flat = x.shape[1:], int(np.prod(x.shape[1:]))
    shapes = [
        (flat,),
        (sizes[0], flat // sizes[0]),
        (1, 1, flat),
        sizes[::-1],
        (flat // sizes[-1], sizes[-1]),
        (flat, 1),
    ]
    return Draft((x.name,), {"shape": (1, *g.choices.pick(*shapes))})


def transpose(g: Grower, x: Tensor) -> Draft:
    rest = g.choices.permutation(len(x.shape) - 1)
    return Draft((x.name,), {"perm": (0, *(i + 1 for i in rest))})


def slice_(g: Grower, x: Tensor) -> Draft:
    c, parts = g.choices, [(0, None, 1)]
    for size in x.shape[1:]:
        whole, stride = c.chance(0.3), c.pick(1, 1, 2, -1, -2)
        begin = c.number(0, size - 1) - c.pick(0, size)
        at = begin % size
        end = c.pick(None, size) if stride > 0 else c.pick(None, 0 if at > 0 else None)
        parts.append((0, None, 1) if whole else (begin, end, stride))
    begin, end, strides = zip(*parts, strict=True)
    return Draft((x.name,), {"begin": begin, "end": end, "strides": strides})


def concat(g: Grower, x: Tensor) -> Draft:
    axis = g.choices.number(1, len(x.shape) - 1)
    fitting = [v for v in g.live if joins(g.tensors[v], x, axis)]
    others = [g.choices.pick(*fitting) for _ in range(g.choices.number(0, 2))]
    return Draft((x.name, *others), {"axis": axis})


def joins(other: Tensor, x: Tensor, axis: int) -> bool:
    if len(other.shape) != len(x.shape) or other.exponent != x.exponent:
        return False
    return all(
        a == b or i == axis for i, (a, b) in enumerate(zip(other.shape, x.shape, strict=True))
    )


def pad(g: Grower, x: Tensor) -> Draft:
    c = g.choices
    around = ((c.pick(0, 1, 2), c.pick(0, 1, 2)) for _ in x.shape[1:])
    return Draft((x.name,), {"paddings": ((0, 0), *around)})


def take(g: Grower, x: Tensor) -> Draft:
    axis = g.choices.number(1, len(x.shape) - 1)
    indices = g.choices.rng.integers(0, x.shape[axis], g.choices.number(1, 6))
    return Draft((x.name,), {"axis": axis, "indices": tuple(int(i) for i in indices)})


def embedding(g: Grower, x: Tensor) -> Draft | None:
    """A row of up to two axes for each code, and sometimes rows that no code has."""
    c = g.choices
    if x.low < 0 or x.high >= 1 << 12:
        return None
    row = [c.number(1, 5) for _ in range(c.number(0, 4 - len(x.shape)))]
    table = g.codes(x.high + 1 + c.pick(0, 0, 3), *row, bits=(8, 3, 8, 16))
    return Draft((x.name, g.constant(table, exponent=c.pick(0, 7))))


IMAGES = (4,)
ANY = range(1, 5)
# The ranks of the operand that an op reads first, where they are not 2 to 4.
RANKS: Mapping[str, Sequence[int]] = {
    "conv2d": IMAGES, "depthwise_conv2d": IMAGES, "max_pool": IMAGES, "matmul": (2,),
    "batch_matmul": (3, 4), "requantize": ANY, "clip": ANY, "abs": ANY,
}  # fmt: skip
# Operands and attributes by op; those without a recipe are drawn from their definitions.
RECIPES: Mapping[str, Callable[[Grower, Tensor], Draft | None]] = {
    "conv2d": conv2d, "depthwise_conv2d": depthwise_conv2d, "matmul": matmul, "mul": mul,
    "batch_matmul": batch_matmul, "softmax": softmax,
    "clip": clip, "requantize": requantize, "lookup": lookup, "standardize": standardize,
    "max_pool": max_pool, "reduce_max": reduce_max, "reshape": reshape, "transpose": transpose,
    "slice": slice_, "concat": concat, "pad": pad, "take": take,
    "embedding": embedding,
}  # fmt: skip
