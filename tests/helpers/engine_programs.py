"""Random small integer programs: every op, odd shapes, every storage type."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from qgraph.ir.types import ROUNDINGS, QuantSpec
from qgraph.program import Entry, Program, Step, Tensor, run

WIDEST = 1 << 24  # of what a step takes: no result leaves 2^50
BINARY = ("add", "sub", "mul", "maximum", "minimum")


class ProgramWriter:
    """Grows a program step by step; ranges of codes are worked out on the way."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.entries: list[Entry] = []
        self.steps: list[Step] = []

    def pick(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def fresh(self, shape, low, high, name: str | None = None) -> str:
        name = name or f"t{len(self.tensors)}"
        largest = max(-int(low), int(high), 0)
        self.tensors[name] = Tensor(name, tuple(shape), int(low), int(high), largest, 0)
        return name

    def entry(self, shape, bits: int, signed: bool, name: str | None = None) -> str:
        spec = QuantSpec(bits, signed, "input", 0)
        name = self.fresh(shape, spec.lo, spec.hi, name)
        self.entries.append(Entry(name, f"float/{name}", spec))
        return name

    def constant(self, array, name: str | None = None) -> str:
        array = np.asarray(array, np.int64)
        name = self.fresh(array.shape, array.min(), array.max(), name)
        self.constants[name] = array.astype(self.tensors[name].storage)
        return name

    def step(self, op: str, *inputs: str, low=None, high=None, **attrs) -> str:
        """The op on what numpy makes of its shapes; the range of the first input unless said."""
        first = self.tensors[inputs[0]]
        made = self._try(op, inputs, attrs)
        low, high = first.low if low is None else low, first.high if high is None else high
        name = self.fresh(made.shape, low, high)
        self.steps.append(Step(op, inputs, name, attrs))
        return name

    def _try(self, op, inputs, attrs):
        tensors = {name: self.tensors[name] for name in inputs}
        if op == "lookup":
            return np.empty(self.tensors[inputs[0]].shape)
        constants = {n: np.zeros(t.shape, np.int64) for n, t in tensors.items()}
        probe = Program(
            "probe", tensors, constants, (), ("y",), (Step(op, inputs, "y", attrs),), False
        )
        return run(probe, {})["y"]

    def program(self, exits, batch_free: bool = True) -> Program:
        return Program(
            "random",
            dict(self.tensors),
            dict(self.constants),
            tuple(self.entries),
            tuple(exits),
            tuple(self.steps),
            batch_free,
        )

    # -- one step of each kind, with numbers picked at random ----------------------------------

    def codes(self, *shape, bits: int = 8):
        half = 1 << (bits - 1)
        return self.rng.integers(-half, half, shape)

    def range_of(self, name: str) -> tuple[int, int]:
        return self.tensors[name].low, self.tensors[name].high

    def linear(self, op: str, x: str, weights, **attrs) -> str:
        """Weights are [..., outputs]; pads bring zeros in."""
        rows = weights.reshape(-1, weights.shape[-1])
        if op == "depthwise_conv2d":
            rows = weights.reshape(weights.shape[0] * weights.shape[1], -1)
        low, high = (min(0, self.tensors[x].low), max(0, self.tensors[x].high))
        up, down = np.maximum(rows, 0).sum(0), np.minimum(rows, 0).sum(0)
        least = (up * low + down * high).min()
        most = (up * high + down * low).max()
        return self.step(op, x, self.constant(weights), low=least, high=most, **attrs)

    def pads(self, span_h: int, span_w: int):
        high, wide = max(span_h - 1, 0), max(span_w - 1, 0)
        return (
            (self.number(0, high), self.number(0, high)),
            (self.number(0, wide), self.number(0, wide)),
        )

    def window(self, x: str):
        """Kernel, and attributes, of a window that fits."""
        height, width = self.tensors[x].shape[1:3]
        kernel = (self.number(1, min(height, 4)), self.number(1, min(width, 4)))
        dilations = tuple(
            self.pick(1, 1, 2) if (k - 1) * 2 + 1 <= size else 1
            for k, size in zip(kernel, (height, width), strict=True)
        )
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        strides = (self.number(1, 3), self.number(1, 2))
        return kernel, {"strides": strides, "dilations": dilations, "pads": self.pads(*spans)}

    def conv2d(self, x: str) -> str:
        kernel, attrs = self.window(x)
        channels = self.tensors[x].shape[3]
        groups = self.pick(*(g for g in (1, 1, 2, 3, channels) if channels % g == 0))
        outputs = groups * self.number(1, 20 if groups == 1 else 3)
        bits = self.pick(2, 8, 8, 8, 12, 16, 20)
        weights = self.codes(*kernel, channels // groups, outputs, bits=bits)
        return self.linear("conv2d", x, weights, **attrs, groups=groups)

    def depthwise_conv2d(self, x: str) -> str:
        kernel, attrs = self.window(x)
        shape = (*kernel, self.tensors[x].shape[3], self.pick(1, 1, 2, 3))
        return self.linear(
            "depthwise_conv2d", x, self.codes(*shape, bits=self.pick(8, 8, 16)), **attrs
        )

    def matmul(self, x: str) -> str:
        shape = (self.tensors[x].shape[1], self.number(1, 40))
        return self.linear("matmul", x, self.codes(*shape, bits=self.pick(4, 8, 16)))

    def binary(self, a: str, b: str) -> str:
        op = self.pick(*BINARY)
        (al, ah), (bl, bh) = self.range_of(a), self.range_of(b)
        products = [p * q for p in (al, ah) for q in (bl, bh)]
        low, high = {
            "add": (al + bl, ah + bh),
            "sub": (al - bh, ah - bl),
            "mul": (min(products), max(products)),
            "maximum": (max(al, bl), max(ah, bh)),
            "minimum": (min(al, bl), min(ah, bh)),
        }[op]
        return self.step(op, a, b, low=low, high=high)

    def with_constant(self, x: str) -> str:
        """A constant that spreads over x: some of its trailing dimensions, some of them 1."""
        shape = self.tensors[x].shape
        kept = shape[self.number(1, len(shape)) :]
        kept = tuple(self.pick(1, d, d) for d in kept)
        constant = self.constant(self.codes(*kept, bits=self.pick(4, 8, 16, 24)))
        pair = (x, constant) if self.pick(True, True, False) else (constant, x)
        return self.binary(*pair)

    def with_itself(self, x: str) -> str:
        """x and its maximum over some axes, which spreads over it."""
        rank = len(self.tensors[x].shape)
        axes = tuple(a for a in range(1, rank) if self.pick(True, False))
        other = self.step("reduce_max", x, axes=axes, keepdims=True)
        return self.binary(*((x, other) if self.pick(True, False) else (other, x)))

    def clip(self, x: str) -> str:
        channels, (low, high) = self.tensors[x].shape[-1], self.range_of(x)
        per_channel = self.pick(True, False)

        def bound(side):
            if self.pick(True, False, False):
                return None
            if per_channel:
                return tuple(int(n) for n in np.sort(self.rng.integers(low, high + 1, channels)))
            return side

        middle = (low + high) // 2
        least, most = bound(self.number(low, middle)), bound(self.number(middle, high))
        if per_channel and least is not None and most is not None:
            least, most = tuple(map(min, least, most)), tuple(map(max, least, most))
        low = low if least is None else max(low, int(np.min(least)))
        high = high if most is None else min(high, int(np.max(most)))
        return self.append("clip", x, {"low": least, "high": most}, low, high)

    def absolute(self, x: str) -> str:
        low, high = self.range_of(x)
        return self.append("abs", x, {}, max(low, -high, 0), max(-low, high))

    def append(self, op: str, x: str, attrs: dict, low: int, high: int) -> str:
        """A step that keeps the shape, and whose attributes name the range too."""
        name = self.fresh(self.tensors[x].shape, low, high)
        self.steps.append(Step(op, (x,), name, attrs))
        return name

    def requantize(self, x: str, bits: int | None = None) -> str:
        low, high = self.range_of(x)
        width = max(-low, high, 1).bit_length()
        spec = QuantSpec(
            bits or self.pick(3, 8, 8, 8, 16, 32), self.pick(True, low >= 0), "activation"
        )
        centre = max(width - spec.bits, 0)
        shift = self.number(centre - 3, centre + 4)
        channels = self.tensors[x].shape[-1]
        if self.pick(True, False, False) and len(self.tensors[x].shape) > 1:
            shift = tuple(int(n) for n in self.rng.integers(shift - 2, shift + 3, channels))
        attrs = {
            "shift": shift,
            "rounding": self.pick(*ROUNDINGS),
            "overflow": self.pick("saturate", "saturate", "saturate", "wrap"),
            "low": spec.lo,
            "high": spec.hi,
        }
        return self.append("requantize", x, attrs, spec.lo, spec.hi)

    def lookup(self, x: str) -> str:
        low, high = self.range_of(x)
        if high - low >= 1 << 17:
            x = self.requantize(x, 8)
            low, high = self.range_of(x)
        table = self.codes(high - low + 1, bits=self.pick(3, 8, 8, 16))
        values = self.constant(table)
        return self.step("lookup", x, values, offset=low, low=table.min(), high=table.max())

    def standardize(self, x: str) -> str:
        """With as many guard bits as there may be, or fewer."""
        channels, (low, high) = self.tensors[x].shape[-1], self.range_of(x)
        largest = channels * max(-low, high, 1)
        if largest >= 1 << 25:
            x, largest = self.requantize(x, 8), channels * 255
        guard = self.number(0, 25 - largest.bit_length())
        shift = guard + self.number(-guard, 12)
        epsilon = self.pick(0, 1, 1 << self.number(0, 50))
        reach = (int(np.sqrt(channels)) + 1) << max(shift - guard, 0)
        attrs = {"guard": guard, "epsilon": epsilon, "shift": shift}
        return self.step("standardize", x, low=-reach, high=reach, **attrs)

    def max_pool(self, x: str) -> str:
        kernel, attrs = self.window(x)
        pads = self.pads(*kernel)
        return self.step("max_pool", x, ksize=kernel, strides=attrs["strides"], pads=pads)

    def pad(self, x: str) -> str:
        rank = len(self.tensors[x].shape)
        paddings = ((0, 0), *((self.number(0, 2), self.number(0, 2)) for _ in range(rank - 1)))
        low, high = self.range_of(x)
        return self.step("pad", x, paddings=paddings, low=min(low, 0), high=max(high, 0))

    def transpose(self, x: str) -> str:
        rank = len(self.tensors[x].shape)
        return self.step(
            "transpose", x, perm=(0, *(int(i) + 1 for i in self.rng.permutation(rank - 1)))
        )

    def slice(self, x: str) -> str:
        parts = [(0, None, 1)]
        for size in self.tensors[x].shape[1:]:
            step = self.pick(1, 1, 2, -1, -2)
            begin = self.number(0, size - 1) - self.pick(0, size)
            parts.append((begin, None, step))
        begin, end, strides = zip(*parts, strict=True)
        return self.step("slice", x, begin=begin, end=end, strides=strides)

    def take(self, x: str) -> str:
        shape = self.tensors[x].shape
        axis = self.number(1, len(shape) - 1)
        indices = self.rng.integers(0, shape[axis], self.number(1, 6))
        return self.step("take", x, axis=axis, indices=tuple(int(i) for i in indices))

    def reshape(self, x: str) -> str:
        sizes = list(self.tensors[x].shape[1:])
        flat = reduce(lambda a, b: a * b, sizes, 1)
        shape = self.pick((1, flat), (1, sizes[0], flat // sizes[0]), (1, 1, 1, flat))
        return self.step("reshape", x, shape=shape)

    def reduce_max(self, x: str) -> str:
        rank = len(self.tensors[x].shape)
        keep = self.pick(True, False)
        axes = tuple(a for a in range(1, rank) if self.pick(True, False))
        return self.step("reduce_max", x, axes=axes, keepdims=keep)

    def concat(self, x: str, others: list[str]) -> str:
        shape = self.tensors[x].shape
        axis = self.number(1, len(shape) - 1)
        rest = [
            other
            for other in others
            if len(self.tensors[other].shape) == len(shape)
            and all(
                a == b or i == axis
                for i, (a, b) in enumerate(zip(self.tensors[other].shape, shape, strict=True))
            )
        ]
        parts = [x, *(self.pick(*rest) for _ in range(self.number(0, 2)) if rest)]
        lows, highs = zip(*map(self.range_of, parts), strict=True)
        return self.step("concat", *parts, axis=axis, low=min(lows), high=max(highs))


IMAGES = ("conv2d", "depthwise_conv2d", "max_pool")
ANY = (
    *("with_constant", "with_itself", "clip", "requantize", "requantize", "requantize", "lookup"),
    *("pad", "transpose", "slice", "take", "reshape", "reduce_max", "standardize", "absolute"),
)


def random_program(seed: int, steps: int) -> Program:
    """A program of about so many steps; codes stay below 2^50."""
    writer = ProgramWriter(seed)
    shape = (1, writer.number(1, 9), writer.number(1, 9), writer.number(1, 36))
    live = [writer.entry(shape, writer.pick(4, 8, 8, 16), writer.pick(True, False))]
    if writer.pick(True, False):
        live.append(writer.entry((1, writer.number(1, 30)), 8, writer.pick(True, False)))
    for _ in range(steps):
        x = writer.pick(live[-1], live[-1], *live)
        if writer.tensors[x].magnitude > WIDEST:
            x = writer.requantize(x, writer.pick(3, 8, 8, 8, 16))
        tensor = writer.tensors[x]
        kinds = list(ANY)
        if len(tensor.shape) == 4 and tensor.magnitude < 1 << 18:
            kinds += [*IMAGES, *IMAGES]
        if len(tensor.shape) == 2 and tensor.magnitude < 1 << 18:
            kinds += ["matmul", "matmul"]
        if len(tensor.shape) == 1:
            kinds = ["requantize", "clip"]
        kind = writer.pick(*kinds, "concat") if len(tensor.shape) > 1 else writer.pick(*kinds)
        made = writer.concat(x, live) if kind == "concat" else getattr(writer, kind)(x)
        if np.prod(writer.tensors[made].shape) < 1 << 14:
            live.append(made)
    exits = [live[-1], *(v for v in live[:-1] if writer.pick(True, False, False, False))]
    return writer.program(dict.fromkeys(exits))


def random_codes(program: Program, samples: int, seed: int) -> dict[str, np.ndarray]:
    """Codes for every entry, the ends of its range among them."""
    rng = np.random.default_rng(seed)
    found = {}
    for entry in program.entries:
        tensor = program.tensors[entry.tensor]
        codes = rng.integers(tensor.low, tensor.high + 1, (samples, *tensor.shape[1:]))
        edge = rng.random(codes.shape)
        codes[edge < 0.1], codes[edge > 0.9] = tensor.low, tensor.high
        found[entry.tensor] = codes
    return found


def with_exits(program: Program, *names: str) -> Program:
    return replace(program, exits=names)


def every_op() -> Program:
    """One program with every op in it, the same wherever it is made."""
    writer = ProgramWriter(0)

    def codes(*shape):
        return (np.arange(np.prod(shape)) * 37 % 255 - 127).reshape(shape)

    def requantize(x, shift=9, rounding="half_even", overflow="saturate"):
        attrs = {"shift": shift, "rounding": rounding, "overflow": overflow}
        return writer.append("requantize", x, attrs | {"low": -128, "high": 127}, -128, 127)

    ones = {"strides": (1, 1), "dilations": (1, 1), "pads": ((1, 1), (1, 1))}
    image, vector = writer.entry((1, 6, 5, 4), 8, False, "image"), writer.entry((1, 7), 16, True)
    padded = writer.step("pad", image, paddings=((0, 0), (1, 0), (0, 1), (0, 0)))
    x = writer.linear("conv2d", padded, codes(3, 3, 4, 6), **ones, groups=1)
    x = requantize(x)
    x = writer.step("add", x, writer.constant(codes(6)), low=-255, high=254)
    x = writer.append("clip", x, {"low": 0, "high": (90, 80, 70, 60, 50, 40)}, 0, 90)
    x = writer.linear("depthwise_conv2d", x, codes(2, 2, 6, 1), **ones)
    y = requantize(x, shift=(1, 2, 3, 4, 5, 6))
    pooled = writer.step("max_pool", y, ksize=(2, 2), strides=(2, 2), pads=((0, 1), (0, 0)))
    table = writer.constant(codes(256)[::-1])
    pooled = writer.step("lookup", pooled, table, offset=-128, low=-127, high=127)
    grouped = writer.linear("conv2d", pooled, codes(1, 1, 3, 4), **ones, groups=2)
    wide = writer.step(
        "mul", grouped, writer.constant(codes(1, 5, 1)), low=-(1 << 40), high=1 << 40
    )
    turned = writer.step("transpose", requantize(wide, overflow="wrap", shift=3), perm=(0, 2, 1, 3))
    some = writer.step("slice", turned, begin=(0, -1, 1, 0), end=(None,) * 4, strides=(1, -1, 2, 1))
    more = writer.step("take", turned, axis=2, indices=(0, 2))
    both = writer.step("concat", some, writer.step("take", more, axis=2, indices=(1,)), axis=2)
    high = writer.step("reduce_max", both, axes=(1, 2), keepdims=False)
    flat = writer.step("reshape", both, shape=(1, int(np.prod(writer.tensors[both].shape))))
    sums = writer.linear("matmul", flat, codes(writer.tensors[flat].shape[1], 4))
    left = writer.step("sub", requantize(sums), high, low=-255, high=255)
    left = writer.append("abs", left, {}, 0, 255)
    right = writer.step("maximum", left, writer.constant([3]), low=3, high=255)
    scaled = requantize(
        writer.linear("matmul", vector, codes(7, 4)), shift=16, rounding="half_away"
    )
    least = writer.step("minimum", right, scaled, low=-128, high=127)
    normal = writer.step("standardize", vector, guard=7, epsilon=1000, shift=20)
    return writer.program((least, wide, high, normal))
