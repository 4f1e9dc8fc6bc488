"""Random programs: every op on codes of every width, with bounds that are true.

Their scales are true as well: what is added lies on one scale, products multiply them.
"""

import numpy as np

from qgraph.ir.types import QuantSpec
from qgraph.numerics import round_shift
from qgraph.program import Entry, Program, Step, Tensor

LIMIT = 1 << 52
ROUNDINGS = ("half_even", "half_up", "half_away", "floor", "double")


class Grower:
    """Grows a program op by op on tensors that are there; whatever would pass 2^52 is not added."""

    def __init__(
        self, seed: int, image: bool, roundings: tuple, overflows: tuple, bits: tuple
    ) -> None:
        self.roundings, self.overflows, self.bits = roundings, overflows, bits
        self.rng = np.random.default_rng(seed)
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.steps: list[Step] = []
        self.entries: list[Entry] = []
        self.live: list[str] = []
        for i in range(1 + int(self.rng.random() < 0.4)):
            shape = (1, *self.rng.integers(3, 7, 2), self.rng.integers(1, 5))
            self.entry(f"x{i}", tuple(int(d) for d in (shape if image else shape[:2])))

    # -- pieces ------------------------------------------------------------------------------

    def choose(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def entry(self, name: str, shape: tuple) -> None:
        spec = QuantSpec(self.choose(2, 4, 8, 8, 8, 12, 16), self.choose(True, False), "input",
                         self.choose(-2, 0, 3, 7), self.choose(*self.roundings))  # fmt: skip
        self.tensors[name] = Tensor(
            name, shape, spec.lo, spec.hi, max(-spec.lo, spec.hi), spec.exponent
        )
        self.entries.append(Entry(name, f"{name}/float", spec))
        self.live.append(name)

    def codes(self, *shape: int, exponent=0) -> str:
        """A constant of 2 to 16 bits; sometimes all at one end of its range."""
        bits, signed = self.choose(2, 4, 8, 8, 8, 8, 13, 16), self.choose(True, True, False)
        spec = QuantSpec(bits, signed, "weight")
        codes = self.rng.integers(spec.lo, spec.hi + 1, shape)
        if self.rng.random() < 0.2:
            codes = np.full(shape, self.choose(spec.lo, spec.hi))
        return self.constant(codes, exponent)

    def constant(self, codes, exponent=0) -> str:
        name = f"c{len(self.constants)}"
        low, high = int(codes.min()), int(codes.max())
        tensor = Tensor(name, codes.shape, low, high, max(-low, high), exponent)
        self.tensors[name], self.constants[name] = tensor, codes.astype(tensor.storage)
        return name

    def step(
        self, op: str, inputs: tuple, span: tuple, magnitude=None, exponent=None, **attrs
    ) -> None:
        low, high = span
        exponent = self.tensors[inputs[0]].exponent if exponent is None else exponent
        magnitude = max(-low, high, magnitude or 0)
        if magnitude > LIMIT:
            return
        name, values = f"{op}{len(self.steps)}", []
        for v in inputs:
            values.append(self.constants.get(v, np.zeros(self.tensors[v].shape, np.int64)))
            if op == "lookup" and v == inputs[0]:
                values[-1] = values[-1] + attrs["offset"]
        step = Step(op, inputs, name, attrs)
        shape = np.shape(step.definition.compute(step.attrs, values))
        self.steps.append(step)
        self.tensors[name] = Tensor(name, shape, int(low), int(high), int(magnitude), exponent)
        self.live.append(name)

    def some(self, rank: int | None = None, one_scale: bool = True) -> str | None:
        """A tensor; one whose channels have scales of their own only where that is said to do."""
        fitting = [
            v
            for v in self.live
            if rank in (None, len(self.tensors[v].shape))
            and not (one_scale and isinstance(self.tensors[v].exponent, tuple))
        ]
        late = fitting[-3:] if self.rng.random() < 0.7 else fitting
        return self.choose(*late) if late else None

    # -- ops ---------------------------------------------------------------------------------

    def layer(self) -> None:
        x = self.some(4)
        if x is None:
            return self.matmul()
        t = self.tensors[x]
        channels = t.shape[3]
        kernel = tuple(int(k) for k in self.rng.integers(1, 4, 2))
        window = {
            "strides": self.choose((1, 1), (2, 2), (1, 2)),
            "dilations": self.choose((1, 1), (1, 1), (2, 1)),
            "pads": tuple((int(a), int(b)) for a, b in self.rng.integers(0, 3, (2, 2))),
        }
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, window["dilations"], strict=True)]
        if any(n + sum(p) < s for n, p, s in zip(t.shape[1:3], window["pads"], spans, strict=True)):
            return None
        if self.rng.random() < 0.5:
            multiplier = self.choose(1, 1, 2)
            w = self.weights(channels * multiplier, *kernel, channels, multiplier)
            return self.products("depthwise_conv2d", x, w, (0, 1), **window)
        groups = self.choose(1, *(g for g in (2, channels) if channels % g == 0))
        outputs = groups * self.choose(1, 2)
        w = self.weights(outputs, *kernel, channels // groups, outputs)
        return self.products("conv2d", x, w, (0, 1, 2), **window, groups=groups)

    def weights(self, channels: int, *shape: int) -> str:
        exponent = self.choose(0, 7, 11)
        if self.rng.random() < 0.3:
            exponent = tuple(
                int(e) for e in self.rng.integers(exponent - 2, exponent + 3, channels)
            )
        return self.codes(*shape, exponent=exponent)

    def matmul(self) -> None:
        x = self.some(2)
        if x is not None:
            outputs = self.choose(1, 5, 40)
            w = self.weights(outputs, self.tensors[x].shape[1], outputs)
            self.products("matmul", x, w, (0,))

    def products(self, op: str, x: str, w: str, axes: tuple, **attrs) -> None:
        t = self.tensors[x]
        codes = self.constants[w].astype(object)
        up, down = (np.maximum(codes, 0).sum(axes), np.minimum(codes, 0).sum(axes))
        low, high = min(t.low, 0), max(t.high, 0)
        self.step(
            op,
            (x, w),
            ((up * low + down * high).min(), (up * high + down * low).max()),
            (up - down).max() * max(-low, high),
            plus(t.exponent, self.tensors[w].exponent),
            **attrs,
        )

    def binary(self) -> None:
        x = self.some(one_scale=False)
        shape, exponent = self.tensors[x].shape, self.tensors[x].exponent
        op = self.choose("add", "sub", "mul", "maximum", "minimum")
        if op == "mul" and isinstance(exponent, tuple):
            op = "add"
        scales = (0, 5, 16) if op == "mul" else (exponent,)
        same = [v for v in self.live if self.tensors[v].shape == shape
                and (op == "mul" or self.tensors[v].exponent == exponent)
                and isinstance(self.tensors[v].exponent, tuple) <= (op != "mul")]  # fmt: skip
        constant = self.choose((), shape[-1:], (1,) * (len(shape) - 1) + shape[-1:])
        if isinstance(exponent, tuple) or self.rng.random() < 0.5:
            constant = shape[-1:]
        y = self.choose(*same) if self.rng.random() < 0.6 else self.codes(
            *constant, exponent=scales[int(self.rng.integers(len(scales)))])  # fmt: skip
        a, b = (self.tensors[v] for v in self.choose((x, y), (y, x)))
        if op == "mul":
            ends = [p * q for p in (a.low, a.high) for q in (b.low, b.high)]
            span, exponent = (min(ends), max(ends)), a.exponent + b.exponent
        elif op in ("maximum", "minimum"):
            pick = max if op == "maximum" else min
            span = (pick(a.low, b.low), pick(a.high, b.high))
        elif op == "add":
            span = (a.low + b.low, a.high + b.high)
        else:
            span = (a.low - b.high, a.high - b.low)
        self.step(op, (a.name, b.name), span, a.magnitude + b.magnitude, exponent)

    def clip(self) -> None:
        x = self.some(one_scale=False)
        t = self.tensors[x]
        if len(t.shape) < 2:
            return
        low = self.choose(None, 0, 0, int(t.low // 2), t.low - 5)
        high = self.choose(None, int(t.high // 3), t.high + 9, tuple(
            int(h) for h in self.rng.integers(0, t.high + 2, t.shape[-1])
        ) if t.high >= 0 else None)  # fmt: skip
        bottom = 0 if low is None else low
        top = high if high is None else np.max(high)
        if top is not None and np.min(high) < bottom:
            return
        floor = t.low if low is None else max(t.low, low)
        limited = t.high if top is None else min(t.high, int(top))
        least = floor if high is None else min(floor, int(np.min(high)))
        self.step("clip", (x,), (least, max(limited, floor)), low=low, high=high)

    def requantize(self) -> None:
        x = self.some(one_scale=False)
        t = self.tensors[x]
        bits = max(-t.low, t.high).bit_length()
        span = (-3, max(bits, 1) + 3) if self.rng.random() < 0.8 else (-62, 63)
        middle = np.max(t.exponent) - int(self.rng.integers(*span))
        exponent = int(np.clip(middle, np.max(t.exponent) - 62, np.min(t.exponent) + 62))
        shift = np.asarray(t.exponent) - exponent
        shift = int(shift) if shift.ndim == 0 else tuple(int(s) for s in shift)
        made = QuantSpec(self.choose(*self.bits), self.choose(True, False), "")
        attrs = {
            "shift": shift,
            "rounding": self.choose(*self.roundings),
            "overflow": self.choose(*self.overflows),
        }
        ends = [round_shift(np.asarray(v), np.asarray(shift), attrs["rounding"])
                for v in (t.low, t.high)]  # fmt: skip
        low, high = (np.clip(f(ends), made.lo, made.hi) for f in (np.min, np.max))
        if attrs["overflow"] == "wrap":
            low, high = made.lo, made.hi
        self.step(
            "requantize", (x,), (low, high), None, exponent, **attrs, low=made.lo, high=made.hi
        )

    def lookup(self) -> None:
        x = self.some()
        t = self.tensors[x]
        if t.high - t.low < 1 << 16:
            table = self.codes(t.high - t.low + 1, exponent=self.choose(0, 7))
            made = self.tensors[table]
            span = (made.low, made.high)
            self.step("lookup", (x, table), span, None, made.exponent, offset=t.low)

    def pool(self) -> None:
        x = self.some(4)
        if x is None:
            return
        t = self.tensors[x]
        ksize = tuple(int(k) for k in self.rng.integers(1, 4, 2))
        pads = tuple(tuple(int(p) for p in self.rng.integers(0, k, 2)) for k in ksize)
        if all(n + sum(p) >= k for n, p, k in zip(t.shape[1:3], pads, ksize, strict=True)):
            strides = self.choose((1, 1), (2, 2), (2, 1))
            self.step("max_pool", (x,), (t.low, t.high), ksize=ksize, strides=strides, pads=pads)

    def move(self) -> None:
        x = self.some()
        t = self.tensors[x]
        rank = len(t.shape)
        op = self.choose("reshape", "transpose", "slice", "concat", "pad", "take", "reduce_max")
        axis = int(self.rng.integers(1, rank)) if rank > 1 else 0
        low, high = t.low, t.high
        if not axis:
            return
        if op == "reshape":
            rest = t.shape[1:]
            flat = (1, int(np.prod(rest)))
            shape = self.choose(flat, (1, *rest[::-1]), (*t.shape, 1)[-4:] if rank < 4 else flat)
            if shape[0] == 1:
                self.step(op, (x,), (low, high), shape=shape)
        elif op == "transpose":
            perm = (0, *(int(p) + 1 for p in self.rng.permutation(rank - 1)))
            self.step(op, (x,), (low, high), perm=perm)
        elif op == "slice":
            begin, end, strides = [0] * rank, [None] * rank, [1] * rank
            size = t.shape[axis]
            begin[axis], end[axis], strides[axis] = self.choose(
                (size - 1, None, -1), (0, None, 2), (size // 2, size, 1), (size - 1, 0, -2)
            )
            if size > 1:
                parts = {"begin": begin, "end": end, "strides": strides}
                self.step(op, (x,), (low, high), **{k: tuple(v) for k, v in parts.items()})
        elif op == "concat":
            fitting = [v for v in self.live if self.tensors[v].shape == t.shape
                       and self.tensors[v].exponent == t.exponent]  # fmt: skip
            xs = (x, *(self.choose(*fitting) for _ in range(self.choose(1, 2))))
            joined = [self.tensors[v] for v in xs]
            span = (min(t.low for t in joined), max(t.high for t in joined))
            self.step(op, xs, span, axis=axis)
        elif op == "pad":
            pads = [(0, 0)] * rank
            pads[axis] = self.choose((1, 2), (0, 1))
            self.step(op, (x,), (min(low, 0), max(high, 0)), paddings=tuple(pads))
        elif op == "take":
            indices = tuple(int(i) for i in self.rng.integers(0, t.shape[axis], 5))
            self.step(op, (x,), (low, high), axis=axis, indices=indices)
        else:
            axes = self.choose((axis,), tuple(range(1, rank)))
            self.step(op, (x,), (low, high), axes=axes, keepdims=self.choose(True, False))

    def program(self, size: int) -> Program:
        ops = (self.layer, self.layer, self.matmul, self.binary, self.binary, self.clip,
               self.requantize, self.requantize, self.requantize, self.lookup, self.pool,
               self.move, self.move)  # fmt: skip
        while len(self.steps) < size:
            self.choose(*ops)()
        used = {v for step in self.steps for v in step.inputs}
        exits = [v for v in self.live if v not in used]
        if self.rng.random() < 0.3:
            exits.append(self.choose(*self.live))
        return Program(
            "random",
            {n: t for n, t in self.tensors.items() if n not in self.constants or n in used},
            {n: c for n, c in self.constants.items() if n in used},
            tuple(self.entries),
            tuple(dict.fromkeys(exits)),
            tuple(self.steps),
            batch_free=True,
        )


def plus(a, b):
    """The exponent of a product."""
    return tuple(int(e) for e in np.add(a, b)) if np.ndim(b) else a + b


def random_program(
    seed: int,
    size: int = 8,
    roundings: tuple = ROUNDINGS,
    overflows: tuple = ("saturate", "saturate", "wrap"),
    bits: tuple = (2, 4, 8, 8, 8, 13, 16, 16, 32),
) -> Program:
    """A program of `size` steps on images, or on vectors; every free end is an exit."""
    return Grower(seed, seed % 3 > 0, roundings, overflows, bits).program(size)
