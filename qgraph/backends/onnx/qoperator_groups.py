"""Steps of a program that one QLinear op of ONNX Runtime computes, with the same codes.

QLinear ops requantize in float32: a sum times a power of two, rounded half to even. This is exact
for sums up to 2^24. Their activations are uint8, with zero point 128 if codes have a sign. Weights
are uint8 too, because ONNX Runtime's products of uint8 and int8 saturate on x86 without VNNI.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from qgraph.backends.pending_layers import LayerOutput, PendingLayer
from qgraph.exact.sums import FLOAT32_EXACT
from qgraph.ir.types import Array, Rounding
from qgraph.numerics import round_shift
from qgraph.program import Program, Step, Tensor
from qgraph.program.ops import RequantizeAttrs

SIGNED_ZERO = 128
MOST_STORED = 255
INT32 = np.iinfo(np.int32)
MAX_EXPONENT = 50  # of a scale; products and quotients of three scales stay normal in float32
TERMS = ("add", "mul", "sub")
MOST_FACTORS = 16  # of a map that sums are multiplied with: each has a QLinearConv
PRODUCTS = ("conv2d", "depthwise_conv2d", "matmul", "batch_matmul")


def zero_of(tensor: Tensor) -> int:
    """The zero point of a tensor of 8 bits."""
    return SIGNED_ZERO if tensor.low < 0 else 0


def in_bytes(tensor: Tensor) -> bool:
    """Whether uint8 holds the codes, with the zero point of `zero_of`."""
    return tensor.storage in ("int8", "uint8")


@dataclass(frozen=True)
class LinearOperand:
    """An operand: a tensor of 8 bits, shifted to the left by `shift` before it is used."""

    name: str
    shift: int = 0


@dataclass(frozen=True)
class LinearGroup:
    """One QLinear op: a step or none, a bias, a shift and limits.

    operands: of the op, in order; one for codes that are only rescaled. absorbed: tensors that the
    op replaces. limits: the lowest and the highest code that are not limits of uint8; None without
    an effect.
    """

    out: LayerOutput
    operands: tuple[LinearOperand, ...]
    absorbed: tuple[str, ...]
    limits: tuple[int | None, int | None]

    @property
    def step(self) -> Step | None:
        return self.out.pending.layer

    @property
    def bias(self) -> Array | None:
        return self.out.pending.bias


class LinearGroups:
    """The groups of a program, by the requantization at their end."""

    def __init__(self, program: Program) -> None:
        self.program, self.tensors = program, program.tensors
        self.makers = {step.output: step for step in program.steps}
        self.uses = Counter(name for step in program.steps for name in step.inputs)
        self.uses.update(program.exits)
        self.by_output: dict[str, LinearGroup] = {}
        self.absorbed: set[str] = set()
        for step in program.steps:
            found = self._group(step) if step.op == "requantize" else None
            if found is not None:
                self.by_output[step.output] = found
                self.absorbed |= {*found.absorbed}

    def _group(self, step: Step) -> LinearGroup | None:
        attrs = step.attrs_as(RequantizeAttrs)
        name, absorbed, clips = step.inputs[0], list[str](), list[Step]()
        while (clip := self._single(name, "clip")) is not None:
            clips.append(clip)
            absorbed.append(name)
            name = clip.inputs[0]
        pending, operands = self._sums(name, absorbed)
        for clip in reversed(clips):
            pending = pending.clipped(clip)
        out = LayerOutput.of(pending, step.output, attrs)
        if not operands or not self._is_exact(out, operands, attrs):
            return None
        return LinearGroup(out, operands, tuple(absorbed), self._limits(out))

    def _single(self, name: str, *ops: str) -> Step | None:
        """The step that computes a tensor which one step reads, if it is one of these ops."""
        step = self.makers.get(name)
        return step if step is not None and self.uses[name] == 1 and step.op in ops else None

    # -- what is computed before the requantization -------------------------------------------

    def _sums(
        self, name: str, absorbed: list[str]
    ) -> tuple[PendingLayer, tuple[LinearOperand, ...]]:
        add = self._single(name, "add")
        if add is not None and (found := self._with_bias(add)) is not None:
            absorbed += [name, found.layer.output if found.layer else ""]
            return found, self._operands_of_layer(found.layer)
        mul = self._single(name, "mul")
        if mul is not None and (found := self._with_factors(mul)) is not None:
            absorbed += [name, found.layer.output if found.layer else ""]
            return found, self._operands_of_layer(found.layer)
        step = self._single(name, *PRODUCTS, *TERMS)
        if step is not None and step.op in PRODUCTS:
            operands = self._operands_of_layer(step)
        elif step is not None:
            operands = self._terms(step, absorbed)
        else:
            operands = ()
        if step is not None and operands:
            absorbed.append(name)
            return PendingLayer(name, step), operands
        varies = name not in self.program.constants
        plain = (LinearOperand(name),) if varies and self._is_byte(name) else ()
        return PendingLayer(name), plain

    def _with_bias(self, add: Step) -> PendingLayer | None:
        """A layer with a constant for each channel added to its sums."""
        constants = [v for v in add.inputs if v in self.program.constants]
        if len(constants) != 1:
            return None
        (name,) = (v for v in add.inputs if v not in constants)
        layer, shape = self._single(name, *PRODUCTS), self.tensors[add.output].shape
        if layer is None or self.tensors[name].shape != shape:
            return None
        codes = self.program.constants[constants[0]].astype(np.int64)
        flat = codes.size == 1 or (codes.size == shape[-1] and codes.shape[-1:] == shape[-1:])
        if layer.op == "batch_matmul" or (layer.op == "matmul" and len(shape) != 2) or not flat:
            return None
        if codes.size and not INT32.min <= codes.min() <= codes.max() <= INT32.max:
            return None
        bias = np.broadcast_to(codes.reshape(-1), shape[-1:])
        return PendingLayer(add.output, layer, bias)

    def _with_factors(self, mul: Step) -> PendingLayer | None:
        """Sums of a depthwise layer times a constant for each position, as in an average pool."""
        constants = [v for v in mul.inputs if v in self.program.constants]
        if len(constants) != 1:
            return None
        (name,) = (v for v in mul.inputs if v not in constants)
        layer, shape = self._single(name, "depthwise_conv2d"), self.tensors[mul.output].shape
        factors = self.program.constants[constants[0]].astype(np.int64)
        weights = None if layer is None else self.program.constants.get(layer.inputs[1])
        if weights is None or factors.shape != (1, *shape[1:3], 1):
            return None
        known = np.unique(factors)
        products = (weights.astype(np.int64) * factor for factor in known)
        if len(known) > MOST_FACTORS or any(zero_of_weights(codes) is None for codes in products):
            return None
        return PendingLayer(mul.output, layer, factors=factors)

    def _operands_of_layer(self, layer: Step | None) -> tuple[LinearOperand, ...]:
        if layer is None:
            return ()
        x, w = layer.inputs
        constant = w in self.program.constants
        if layer.op == "batch_matmul":
            fits = self._is_byte(x) and self._is_byte(w)
        else:
            held = constant and zero_of_weights(self.program.constants[w]) is not None
            fits = held and self._is_byte(x) and x not in self.program.constants
        return (LinearOperand(x), LinearOperand(w)) if fits else ()

    def _terms(self, step: Step, absorbed: list[str]) -> tuple[LinearOperand, ...]:
        """Operands of a sum or product; shifts to the left before it become scales."""
        found = []
        if step.op == "sub" or all(v in self.program.constants for v in step.inputs):
            return ()
        for name in step.inputs:
            shifted = self._single(name, "requantize") if step.op == "add" else None
            operand = LinearOperand(name) if shifted is None else self._shifted(shifted)
            if not self._is_byte(operand.name):
                return ()
            found.append(operand)
        absorbed += [name for name, one in zip(step.inputs, found, strict=True) if name != one.name]
        return tuple(found)

    def _shifted(self, step: Step) -> LinearOperand:
        """The source of a requantization that only shifts to the left; else its result."""
        attrs, (name,) = step.attrs_as(RequantizeAttrs), step.inputs
        source, shift = self.tensors[name], attrs.shift
        if not isinstance(shift, int) or not -8 <= shift <= 0 or not self._is_byte(name):
            return LinearOperand(step.output)
        if name in self.absorbed:  # sums of 8 bits, which the op of the requantization replaces
            return LinearOperand(step.output)
        reach = source.low << -shift, source.high << -shift
        fits = attrs.low <= reach[0] and reach[1] <= attrs.high
        return LinearOperand(name, -shift) if fits else LinearOperand(step.output)

    def _is_byte(self, name: str) -> bool:
        """Whether a tensor has codes of 8 bits and one scale."""
        exponent = self.tensors[name].exponent
        near = isinstance(exponent, int) and abs(exponent) <= MAX_EXPONENT
        return near and in_bytes(self.tensors[name])

    # -- exactness ---------------------------------------------------------------------------

    def _is_exact(
        self, out: LayerOutput, operands: tuple[LinearOperand, ...], attrs: RequantizeAttrs
    ) -> bool:
        shift, tensor, sums = np.asarray(out.shift), self.tensors[out.name], out.pending.sums
        one_limit = out.low.ndim == 0 and out.high.ndim == 0 and bool(out.low <= out.high)
        layer = out.pending.layer
        weighted = layer is not None and layer.op in PRODUCTS
        rounds = attrs.rounding == Rounding.HALF_EVEN or int(shift.max()) <= 0
        if not (one_limit and rounds and self._is_byte(out.name)) or attrs.wraps:
            return False
        if shift.ndim and not (weighted and layer is not None and layer.op != "batch_matmul"):
            return False
        x = self.tensors[operands[0].name].exponent
        scales = np.asarray([shift + tensor.exponent, shift + tensor.exponent - x])
        if np.abs(scales).max() > MAX_EXPONENT:
            return False
        reach = max(-self.tensors[sums].low, self.tensors[sums].high)
        if layer is not None and layer.op == "add":
            # Zero points are subtracted and added in float32 too.
            reach = sum((MOST_STORED + SIGNED_ZERO) << one.shift for one in operands)
            reach += (MOST_STORED + SIGNED_ZERO) << max(int(shift), 0)
        # ONNX Runtime converts sums and products of two tensors to int32 before they saturate.
        return bool(reach <= FLOAT32_EXACT and reach << max(-int(shift.min()), 0) <= INT32.max // 2)

    def _limits(self, out: LayerOutput) -> tuple[int | None, int | None]:
        sums, zero = self.tensors[out.pending.sums], zero_of(self.tensors[out.name])
        ends = [
            round_shift(np.asarray(code, np.int64), np.asarray(out.shift), Rounding.HALF_EVEN)
            for code in (sums.low, sums.high)
        ]
        low, high = int(out.low), int(out.high)
        lowest, highest = max(-zero, int(np.min(ends))), min(MOST_STORED - zero, int(np.max(ends)))
        return (low if low > lowest else None), (high if high < highest else None)


def zero_of_weights(codes: Array) -> int | None:
    """The zero point by which uint8 holds constant weights; None if there is none."""
    low, high = int(codes.min(initial=0)), int(codes.max(initial=0))
    for zero in (SIGNED_ZERO, 0):
        if low + zero >= 0 and high + zero <= MOST_STORED:
            return zero
    return None
