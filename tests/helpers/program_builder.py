"""Build integer programs by hand; and one program with every op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.ir.types import QuantSpec, Rounding
from qgraph.ops.reach import Reach
from qgraph.program import Entry, Program, Step, Tensor
from qgraph.program.ops import OPS, OpClass, Operand

Exponent = int | tuple[int, ...]
INT8 = (-128, 127)


class ProgramBuilder:
    """A program, step by step. Shapes and ranges follow from the definitions of ops."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.entries: list[Entry] = []
        self.steps: list[Step] = []

    def add_tensor(self, name: str | None, shape: Sequence[int], reach: Reach,
                   exponent: Exponent) -> str:  # fmt: skip
        name = name or f"t{len(self.tensors)}"
        self.tensors[name] = Tensor(
            name, tuple(shape), reach.low, reach.high, reach.magnitude, exponent
        )
        return name

    def entry(self, shape: Sequence[int], span: tuple[int, int] = INT8, name: str | None = None,
              exponent: Exponent = 0, rounding: str = Rounding.HALF_EVEN) -> str:  # fmt: skip
        """An entry with codes in `span`, quantized from a separate float tensor."""
        name = self.add_tensor(name, shape, spanned(span), exponent)
        bits = (span[1] - span[0]).bit_length()
        spec = QuantSpec(bits, span[0] < 0, "input", exponent, Rounding(rounding))
        self.entries.append(Entry(name, f"float/{name}", spec))
        return name

    def constant(self, codes, name: str | None = None, exponent: Exponent = 0) -> str:
        codes = np.asarray(codes, np.int64)
        span = spanned((int(codes.min()), int(codes.max())))
        name = self.add_tensor(name, codes.shape, span, exponent)
        self.constants[name] = codes.astype(self.tensors[name].storage)
        return name

    def step(self, op: str, *inputs: str, name: str | None = None,
             span: tuple[int, int] | None = None, **attrs: object) -> str:  # fmt: skip
        """Append an op. `span`: a range of the result that differs from the definition's."""
        name = name or f"t{len(self.tensors)}"
        step = Step(op, inputs, name, attrs)
        shape = step.definition.shape(step.attrs, [self.tensors[v].shape for v in inputs])
        reach = self.reach_of(step) if span is None else spanned(span)
        self.steps.append(step)
        return self.add_tensor(name, shape, reach, self.exponent_of(step))

    def reach_of(self, step: Step) -> Reach:
        operands = [
            Operand(t.shape, t.low, t.high, t.magnitude, self.constants.get(t.name))
            for t in map(self.tensors.__getitem__, step.inputs)
        ]
        return step.definition.reach(step.attrs, operands)

    def exponent_of(self, step: Step) -> Exponent:
        first, *rest = (self.tensors[v].exponent for v in step.inputs)
        attrs = dict(step.attrs.items())
        if step.op == "mul" or step.family in (OpClass.PRODUCT, OpClass.MATRIX):
            return combined(first, rest[0], 1)
        if step.op == "requantize":
            return combined(first, attrs["shift"], -1)
        if step.op == "softmax":
            return attrs["bits"]
        if step.op == "standardize":
            return attrs["shift"] - attrs["guard"]
        return rest[0] if step.op in ("lookup", "embedding") else first

    def ends(self) -> tuple[str, ...]:
        """The results that no step reads."""
        used = {v for step in self.steps for v in step.inputs}
        return tuple(step.output for step in self.steps if step.output not in used)

    def program(self, *exits: str, name: str = "built", batch_free: bool = True) -> Program:
        """The program; its exits are the results that no step reads unless they are given."""
        return Program(name, dict(self.tensors), dict(self.constants), tuple(self.entries),
                       exits or self.ends(), tuple(self.steps), batch_free)  # fmt: skip


def spanned(span: tuple[int, int]) -> Reach:
    low, high = map(int, span)
    return Reach(low, high, max(-low, high))


def combined(a: Exponent, b: Exponent, sign: int) -> Exponent:
    """a + b or a - b, with one number if all channels are equal."""
    exponents = [int(e) for e in np.ravel(np.asarray(a) + sign * np.asarray(b))]
    return exponents[0] if len({*exponents}) == 1 else tuple(exponents)


def requantized(shift: Exponent = 9, span: tuple[int, int] = INT8, rounding: str = "half_even",
                overflow: str = "saturate") -> Mapping[str, object]:  # fmt: skip
    """Attributes of a requantization."""
    return {"shift": shift, "rounding": rounding, "overflow": overflow,
            "low": span[0], "high": span[1]}  # fmt: skip


def without_a_step() -> list[str]:
    """The ops that `every_op` does not contain, as text."""
    used = {step.op for step in every_op().steps}
    return [f"{op}: no step in tests/helpers/program_builder.py" for op in OPS if op not in used]


def every_op() -> Program:
    """A fixed program with every op, which the golden `.qgi` file holds."""
    b = ProgramBuilder()

    def codes(*shape: int) -> np.ndarray:
        return (np.arange(np.prod(shape)) * 37 % 255 - 127).reshape(shape)

    ones = {"strides": (1, 1), "dilations": (1, 1), "pads": ((1, 1), (1, 1))}
    image = b.entry((1, 6, 5, 4), (0, 255), "image")
    vector = b.entry((1, 7), (-(2**15), 2**15 - 1))
    padded = b.step("pad", image, paddings=((0, 0), (1, 0), (0, 1), (0, 0)))
    x = b.step("conv2d", padded, b.constant(codes(3, 3, 4, 6)), **ones, groups=1)
    x = b.step("requantize", x, **requantized())
    x = b.step("add", x, b.constant(codes(6)))
    x = b.step("clip", x, low=0, high=(90, 80, 70, 60, 50, 40))
    x = b.step("depthwise_conv2d", x, b.constant(codes(2, 2, 6, 1)), **ones)
    y = b.step("requantize", x, **requantized((1, 2, 3, 4, 5, 6)))
    pooled = b.step("max_pool", y, ksize=(2, 2), strides=(2, 2), pads=((0, 1), (0, 0)))
    pooled = b.step("lookup", pooled, b.constant(codes(256)[::-1]), offset=-128)
    grouped = b.step("conv2d", pooled, b.constant(codes(1, 1, 3, 4)), **ones, groups=2)
    wide = b.step("mul", grouped, b.constant(codes(1, 5, 1)), span=(-(1 << 40), 1 << 40))
    turned = b.step("requantize", wide, **requantized(3, overflow="wrap"))
    turned = b.step("transpose", turned, perm=(0, 2, 1, 3))
    parts = {"begin": (0, -1, 1, 0), "end": (None,) * 4, "strides": (1, -1, 2, 1)}
    some = b.step("slice", turned, **parts)
    more = b.step("take", turned, axis=2, indices=(0, 2))
    both = b.step("concat", some, b.step("take", more, axis=2, indices=(1,)), axis=2)
    high = b.step("reduce_max", both, axes=(1, 2), keepdims=False)
    size = int(np.prod(b.tensors[both].shape))
    flat = b.step("reshape", both, shape=(1, size))
    sums = b.step("matmul", flat, b.constant(codes(size, 4)))
    left = b.step("sub", b.step("requantize", sums, **requantized()), high)
    left = b.step("abs", left)
    rows = b.constant(codes(b.tensors[left].high + 1, 2))
    embedded = b.step("embedding", left, rows)
    right = b.step("maximum", left, b.constant([3]))
    scaled = b.step("matmul", vector, b.constant(codes(7, 4)))
    scaled = b.step("requantize", scaled, **requantized(16, rounding="half_away"))
    least = b.step("minimum", right, scaled)
    normal = b.step("standardize", vector, guard=7, epsilon=1000, shift=20)
    matrix = b.step("transpose", turned, perm=(0, 1, 3, 2))
    crossed = b.step("batch_matmul", turned, matrix)
    table = b.constant(np.array([1 << 15, 12055, 4435, 1631, 600, 221, 81, 30, 11, 4, 1, 1, 0]))
    shares = b.step("softmax", y, table, bits=15, high=(1 << 15) - 1)
    return b.program(least, wide, high, normal, crossed, shares, embedded, name="random")


def padded_pool(low: int, of_sums: bool = False) -> tuple[Program, dict[str, np.ndarray]]:
    """A pool after a pad with zeros, on codes that are mostly below 0, so that its own pads never
    win.
    """
    builder = ProgramBuilder()
    y = builder.entry((1, 4, 4, 2), (low, 127), "x")
    y = builder.step("max_pool", y, ksize=(1, 1), strides=(1, 1))
    y = builder.step("add", y, y) if of_sums else y
    y = builder.step("pad", y, paddings=((0, 0), (1, 1), (0, 1), (0, 0)))
    builder.step("max_pool", y, ksize=(3, 3), strides=(1, 1), pads=((1, 0), (1, 1)))
    negative = np.random.default_rng(0).integers(low, min(low + 99, 9), (3, 4, 4, 2))
    return builder.program(), {"x": negative}
