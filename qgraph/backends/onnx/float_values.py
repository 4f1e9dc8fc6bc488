"""The common part of QDQ and QONNX: every tensor contains float values, `code * 2^-exponent`.

This is the same network if the float type holds every sum, in any order: float32 up to 2^24
(docs/numerics.md, section 4). Layers with larger sums are refused by name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np

from qgraph.backends.onnx.emission import NO_NAMES, Lower, ProgramEmission, float_inputs
from qgraph.backends.onnx.integer_steps import softmax_codes, standardized_codes
from qgraph.backends.onnx.shared_lowerings import SHARED
from qgraph.errors import UnsupportedError
from qgraph.exact.sums import FLOAT32_EXACT, FLOAT64_EXACT
from qgraph.foreign import AttrValue
from qgraph.ir.types import AnyExponent, Array, Overflow, QuantSpec, Rounding
from qgraph.numerics import aligned
from qgraph.ops.lowerings import Lowerings
from qgraph.program import Program, Step, Tensor
from qgraph.program.ops import OPS, ClipAttrs, LookupAttrs, MaxPoolAttrs, RequantizeAttrs

# Exponents for which 2^-f, and 2^24 times it, are normal numbers of float32.
MIN_EXPONENT, MAX_EXPONENT = -103, 126
COARSE_EXPONENT = 16  # up to this exponent, steps are well above 1e-7


class ValueEmission(ProgramEmission):
    """Base of forms with float values; they differ in `quantized`.

    exact: the largest code that the form supports.
    """

    holds: ClassVar[str] = "values"
    exact: ClassVar[int] = FLOAT32_EXACT
    roundings: ClassVar[tuple[Rounding, ...]]

    def __init__(
        self,
        program: Program,
        publics: Mapping[str, str] = NO_NAMES,
        reserved: Collection[str] = (),
    ) -> None:
        self.wide: set[str] = set()  # tensors in float64, although the form has float32
        self.users: dict[str, list[Step]] = {}
        for step in program.steps:
            for name in step.inputs:
                self.users.setdefault(name, []).append(step)
        super().__init__(program, publics, reserved)

    def inputs_of_model(self) -> dict[str, str]:
        return float_inputs(self.program)

    @abstractmethod
    def quantized(self, value: str, name: str, spec: QuantSpec, nchw: bool) -> str:
        """Values rounded to the grid of a tensor, with the range and rounding of a spec."""

    # -- entries and exits -------------------------------------------------------------------

    def enter(self) -> None:
        for name, tensor in self.tensors.items():
            check_exact(tensor, FLOAT64_EXACT if name in self.wide else self.exact)
        for entry in self.program.entries:
            self._check_rounding(entry.tensor, entry.spec.rounding, entry.spec.overflow)
            name = entry.tensor
            self.model.input(self.inputs[name], "float32", self.shape(name))
            value = self.quantized(self.inputs[name], name, entry.spec, False)
            self.put(name, value, "float32")

    def leave(self) -> dict[str, dict[str, AttrValue]]:
        exits: dict[str, dict[str, AttrValue]] = {}
        for name in self.program.exits:
            dtype = self.working(name)
            output = self.outputs[name]
            self.model.append("Identity", [self.get(name, dtype)], output)
            self.model.output(output, dtype, self.shape(name))
            exits[name] = {**self.described(name), "value": output}
        return exits

    def _check_rounding(self, name: str, rounding: str, overflow: str) -> None:
        if rounding not in self.roundings:
            raise UnsupportedError(
                f"rounds {rounding}, which {self.form} does not support",
                node=name,
                hint=f"use a profile that rounds {' or '.join(self.roundings)}, or another format",
            )
        if overflow != Overflow.SATURATE:
            raise UnsupportedError(
                f"wraps around, {self.form} only saturates", node=name, hint="use another format"
            )

    # -- numbers -----------------------------------------------------------------------------

    def working(self, *names: str) -> str:
        return "float32"

    def units(self, tensor: Tensor, codes: Array, dtype: str) -> Array:
        codes = np.asarray(codes)
        exponent = aligned(tensor.exponent, codes.shape)
        values: Array = np.ldexp(codes.astype(np.float64), -exponent).astype(dtype)
        return values

    def scale(self, exponent: AnyExponent, stem: str) -> str:
        power = np.ldexp(np.float32(1), -np.asarray(exponent)).astype(np.float32)
        return self.model.constant(power, f"{stem}/scale", own=True)

    # -- layers ------------------------------------------------------------------------------

    def weighted(self, value: str, weights: str) -> str:
        """The input of a layer with these weights."""
        return value

    @abstractmethod
    def weights(self, name: str, codes: Array, axis: int, x: str | None) -> str:
        """Constant weights that the value `x` is multiplied with; None if they are its first
        operand.

        If their scales are per channel, channels are along `axis`.
        """

    def weight_values(self, name: str, codes: Array, axis: int) -> Array:
        """Codes of weights in float32; `axis` as in `weights`."""
        exponent = np.asarray(self.tensors[name].exponent)
        if exponent.ndim:
            exponent = exponent.reshape((-1,) + (1,) * (codes.ndim - 1 - axis))
        values: Array = np.ldexp(codes.astype(np.float64), -exponent).astype(np.float32)
        return values

    def bias(self, name: str) -> str | None:
        """A constant bias, flat, as an input of a layer; None if layers leave it to an Add."""
        return None

    def _conv2d(self, step: Step) -> None:
        x, w = step.inputs
        codes, groups = self.filters(step, self.constant_weights(step))
        attrs = self.convolution(step, groups)
        value = self.weighted(self.get(x, "float32", True), w)
        inputs = [value, self.weights(w, codes, 0, value)]
        self._with_bias(step, "Conv", inputs, nchw=True, **attrs)

    def _depthwise_conv2d(self, step: Step) -> None:
        self._conv2d(step)

    def _matmul(self, step: Step) -> None:
        x, w = step.inputs
        dtype = self.working(x, w, step.output)
        value = self.weighted(self._factor(x, dtype, None), w)
        self._with_bias(step, "MatMul", [value, self._factor(w, dtype, value)], nchw=False)

    def _factor(self, name: str, dtype: str, x: str | None) -> str:
        """An operand of a matrix product; `x` as in `weights`."""
        constant = self.program.constants.get(name)
        if constant is None or dtype != "float32":
            return self.get(name, dtype)
        return self.weights(name, constant, constant.ndim - 1, x)

    def _with_bias(
        self, step: Step, op: str, inputs: list[str], nchw: bool, **attrs: AttrValue
    ) -> None:
        """A layer and its bias as one node, if the bias is added to nothing else."""
        made, add = step.output, self._bias_step(step)
        if op == "MatMul" and len(self.tensors[made].shape) != 2:
            add = None  # Gemm multiplies matrices only
        bias = self.bias(add.inputs[1 - add.inputs.index(step.output)]) if add else None
        if add is not None and bias is not None:
            made, inputs = add.output, [*inputs, bias]
            op = "Gemm" if op == "MatMul" else op
        value = self.model.add(op, inputs, made, **attrs)
        self.put(made, value, self.working(*step.inputs, step.output), nchw)

    def _bias_step(self, step: Step) -> Step | None:
        users = self.users.get(step.output, [])
        if step.output in self.program.exits or len(users) != 1 or users[0].op != "add":
            return None
        other = next((v for v in users[0].inputs if v in self.program.constants), None)
        channels = self.tensors[step.output].shape[-1]
        flat = other is not None and self.program.constants[other].size == channels
        lies = other is not None and self.tensors[other].shape[-1:] == (channels,)
        same = self.tensors[users[0].output].shape == self.tensors[step.output].shape
        return users[0] if flat and lies and same else None

    def _add(self, step: Step) -> None:
        if step.output not in self.held:  # otherwise written with its layer
            super()._binary(step, "Add")

    # -- elementwise -------------------------------------------------------------------------

    def _requantize(self, step: Step) -> None:
        (name,) = step.inputs
        attrs, nchw = step.attrs_as(RequantizeAttrs), self.made_as(name)[1]
        self._check_rounding(step.output, attrs.rounding, attrs.overflow)
        value = self.get(name, self.working(name), nchw)
        made = self._requantized(value, step, nchw)
        self.put(step.output, made, "float32", nchw)

    def _requantized(self, value: str, step: Step, nchw: bool) -> str:
        """Values on the grid of the step's output."""
        return self.quantized(value, step.output, step.attrs_as(RequantizeAttrs).spec, nchw)

    def _clip(self, step: Step) -> None:
        attrs = step.attrs_as(ClipAttrs)
        low, high = attrs.low, attrs.high
        if isinstance(low, tuple) or isinstance(high, tuple):
            return super()._clip(step)
        (name,) = step.inputs
        nchw = self.made_as(name)[1]
        dtype = self.working(name)
        inputs = [self.get(name, dtype, nchw)]
        if (low, high) == (0, None):
            value = self.model.add("Relu", inputs, step.output)
        else:
            value = self.clipped(inputs[0], name, low, high, nchw, step.output)
        return self.put(step.output, value, dtype, nchw)

    def clipped(
        self, value: str, name: str, low: int | None, high: int | None, nchw: bool, stem: str
    ) -> str:
        """Values limited to those of two codes of a tensor; None means no limit."""
        exponent, dtype = self.tensors[name].exponent, self.working(name)
        if isinstance(exponent, tuple) or self._fine or low is None or high is None:
            for op, code in (("Max", low), ("Min", high)):
                if code is not None:
                    limit = self.numbers(name, code, dtype, nchw, f"{stem}/limit")
                    value = self.model.add(op, [value, limit], stem)
            return value
        limits = [self.numbers(name, code, dtype, nchw, f"{stem}/limit") for code in (low, high)]
        return self.model.add("Clip", [value, *limits], stem)

    @cached_property
    def _fine(self) -> bool:
        """Whether ONNX Runtime would remove a Clip wrongly: it removes one that a later quantizer
        makes redundant up to 1e-7, which is too inaccurate for quantizers with small steps.
        """
        made = [e.tensor for e in self.program.entries]
        made += [step.output for step in self.program.steps if step.op in ("clip", "requantize")]
        return any(np.max(self.tensors[name].exponent) > COARSE_EXPONENT for name in made)

    @abstractmethod
    def table(self, step: Step, index: str) -> str:
        """Entries of a constant table by index, as values."""

    def _lookup(self, step: Step) -> None:
        (name, _), nchw = step.inputs, self.made_as(step.inputs[0])[1]
        codes = self._steps(self.get(name, "float32", nchw), name, step.output)
        offset = self.model.constant(
            np.float32(step.attrs_as(LookupAttrs).offset), f"{step.output}/offset"
        )
        index = self.model.add("Sub", [codes, offset], f"{step.output}/place")
        whole = self.cast(index, "int64", f"{step.output}/index")
        self.put(step.output, self.table(step, whole), "float32", nchw)

    def _embedding(self, step: Step) -> None:
        index = self._codes(step.inputs[0], "int64", step.output)
        self.put(step.output, self.table(step, index), "float32")

    def _steps(self, value: str, name: str, stem: str, dtype: str = "float32") -> str:
        """The codes of a tensor as whole numbers of a float type."""
        power = np.ldexp(np.float64(1), self.tensors[name].exponent)
        factor = self.model.constant(np.asarray(power, dtype), f"{stem}/steps")
        return self.model.add("Mul", [value, factor], f"{stem}/code")

    # -- integer arithmetic between float values ----------------------------------------------

    def from_codes(self, name: str, codes: str, nchw: bool = False) -> str:
        """Codes of a tensor in int64, as values; its codes are exact in float32."""
        wide = self.cast(codes, "float32", f"{name}/whole")
        return self.model.add("Mul", [wide, self.scale(self.tensors[name].exponent, name)], name)

    def _codes(self, name: str, dtype: str, stem: str) -> str:
        if name in self.program.constants:
            held = self.program.constants[name].astype(dtype)
            return self.model.constant(held, f"{name}/codes")
        steps = self._steps(self.get(name, "float32"), name, stem)
        return self.cast(steps, dtype, f"{stem}/codes")

    def _standardize(self, step: Step) -> None:
        codes = self._codes(step.inputs[0], "int64", step.output)
        found = standardized_codes(self, step, codes)
        self.put(step.output, self.from_codes(step.output, found), "float32")

    def _softmax(self, step: Step) -> None:
        (x, table), stem = step.inputs, step.output
        codes, entries = self._codes(x, "int32", stem), self._codes(table, "int64", stem)
        found = softmax_codes(self, step, codes, "int32", entries)
        self.put(stem, self.from_codes(stem, found), "float32")

    # -- windows -----------------------------------------------------------------------------

    def _max_pool(self, step: Step) -> None:
        attrs, dtype = self.pool(step.attrs_as(MaxPoolAttrs)), self.working(*step.inputs)
        inputs = [self.get(step.inputs[0], dtype, True)]
        value = self.model.add("MaxPool", inputs, step.output, **attrs)
        self.put_moved(step, value, dtype, True)

    def padded(self, step: Step, inputs: list[str], dtype: str, pooled: bool) -> str:
        # Zeros that ONNX Runtime does not recognize, because it would merge the padding.
        zero = [self.model.constant(np.asarray(-0.0, dtype), "zero")] if pooled else []
        return self.model.add("Pad", [*inputs, *zero], step.output)


def value_lowerings(place: str, form: str, **own: Lower) -> Lowerings[Lower]:
    """The table of a form of values. own: lowerings that differ from the common ones."""
    lowered: dict[str, Lower] = {
        **SHARED,
        "conv2d": ValueEmission._conv2d,
        "depthwise_conv2d": ValueEmission._depthwise_conv2d,
        "matmul": ValueEmission._matmul,
        "batch_matmul": ValueEmission._matmul,
        "add": ValueEmission._add,
        "clip": ValueEmission._clip,
        "requantize": ValueEmission._requantize,
        "lookup": ValueEmission._lookup,
        "embedding": ValueEmission._embedding,
        "max_pool": ValueEmission._max_pool,
        "standardize": ValueEmission._standardize,
        "softmax": ValueEmission._softmax,
        **own,
    }
    return Lowerings(place, OPS, lowered)


def reach(tensor: Tensor) -> int:
    """The largest magnitude of a tensor's codes and of all partial sums.

    In any order, a partial sum is a sum of some of the terms. The lowest has all negative terms,
    the highest all positive terms; these are `low` and `high`.
    """
    return max(-tensor.low, tensor.high)


def check_exact(tensor: Tensor, exact: int) -> None:
    """Raise UnsupportedError unless floats hold every partial sum of a tensor's codes."""
    if reach(tensor) > exact:
        kind = "float32" if exact == FLOAT32_EXACT else "float64"
        raise UnsupportedError(
            f"sums reach {reach(tensor):,}, but {kind} is exact up to {exact:,} only",
            node=tensor.name,
            hint="use the format onnx-integer",
        )
    exponents = np.asarray(tensor.exponent)
    if exponents.min() < MIN_EXPONENT or exponents.max() > MAX_EXPONENT:
        raise UnsupportedError(
            f"its scale 2^-{tensor.exponent} is out of float32's range", node=tensor.name
        )
