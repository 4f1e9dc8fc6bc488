"""Form `onnx-qdq`: float ops between QuantizeLinear and DequantizeLinear, zero points 0.

A runtime may compute the float ops unchanged or replace them by integer kernels: because of the
bounds in `float_values`, both give the same codes.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import ClassVar

import numpy as np
from onnx import TensorProto, helper

from qgraph.backends.onnx.emission import NO_NAMES
from qgraph.backends.onnx.float_values import ValueEmission, reach, value_lowerings
from qgraph.backends.onnx.integer_steps import requantization, requantized_codes
from qgraph.backends.onnx.layouts import turned
from qgraph.errors import UnsupportedError
from qgraph.exact.sums import FLOAT32_EXACT
from qgraph.foreign import AttrValue
from qgraph.ir.types import Array, QuantSpec, Rounding
from qgraph.program import Program, Step, Tensor
from qgraph.program.ops import RequantizeAttrs

INT4 = (-8, 7)
INT32_MAX = 2**31 - 1


class QdqEmission(ValueEmission):
    form: ClassVar[str] = "onnx-qdq"
    opset: ClassVar[int] = 18  # 21 if needed, for 4 and 16 bits
    roundings: ClassVar[tuple[Rounding, ...]] = (Rounding.HALF_EVEN,)
    types: ClassVar[tuple[str, ...]] = ("int8", "uint8", "int16", "uint16")

    def __init__(
        self,
        program: Program,
        publics: Mapping[str, str] = NO_NAMES,
        reserved: Collection[str] = (),
    ) -> None:
        super().__init__(program, publics, reserved)
        self._constants: dict[Hashable, str] = {}  # dequantized once for all users
        self.dequantized: set[str] = set()  # outputs of DequantizeLinear nodes
        self.bytes: set[str] = set()  # those of them that fit in 8 bits
        self.far: set[str] = set()  # tensors whose codes exceed int32 before they saturate
        # Products beyond float32, as in layer norms: in float64, then rounded in integers.
        self.wide = {step.output for step in program.steps if self._is_wide_product(step)}

    def _is_wide_product(self, step: Step) -> bool:
        tensor, users = self.tensors[step.output], self.users.get(step.output, [])
        rounded = bool(users) and all(user.op == "requantize" for user in users)
        one_scale = isinstance(tensor.exponent, int) and step.output not in self.program.exits
        return step.op == "mul" and reach(tensor) > FLOAT32_EXACT and rounded and one_scale

    def working(self, *names: str) -> str:
        return "float32" if self.wide.isdisjoint(names) else "float64"

    def quantized(self, value: str, name: str, spec: QuantSpec, nchw: bool) -> str:
        low, high = spec.lo, spec.hi
        dtype = self.narrowest(name, low, high)
        if value in self.dequantized or name in self.far or self._is_per_channel(name):
            # ONNX Runtime merges two pairs in a row, and then rounds once instead of twice. In its
            # integer kernels, codes would exceed int32 before they saturate, and results have one
            # scale.
            value = self.apart(value, name)
        if (np.iinfo(dtype).min, np.iinfo(dtype).max) != (low, high):
            value = self.clipped(value, name, low, high, nchw, f"{name}/clipped")
        return self.on_grid(value, name, dtype, nchw)

    def _is_per_channel(self, name: str) -> bool:
        return isinstance(self.tensors[name].exponent, tuple)

    def apart(self, value: str, name: str) -> str:
        """The same values, by a node that ONNX Runtime does not fuse with a quantizer."""
        lowest = self.model.constant(np.float32(np.finfo(np.float32).min), "lowest")
        return self.model.add("Max", [value, lowest], f"{name}/apart")

    def _factor(self, name: str, dtype: str, x: str | None) -> str:
        value = super()._factor(name, dtype, x)
        if name in self.program.constants:
            return value
        # ONNX Runtime's integer kernels take one scale for a matrix that varies. Its sums of
        # products of uint8 and int8 saturate at 16 bits on x86 without VNNI. It makes signed codes
        # unsigned itself, but not those that several nodes read.
        readers = len(self.users.get(name, [])) + (name in self.program.exits)
        saturates = x is not None and self.tensors[name].low < 0 and readers > 1
        return self.apart(value, name) if saturates or self._is_per_channel(name) else value

    def _requantize(self, step: Step) -> None:
        (name,) = step.inputs
        if name in self.wide:
            nchw, dtype = self.made_as(name)[1], requantization(self, step).dtype
            value = self.get(name, "float64", nchw)
            codes = self.cast(self._steps(value, name, step.output, "float64"), dtype, name)
            rounded = requantized_codes(self, step, codes, nchw)
            self.put(step.output, self.from_codes(step.output, rounded, nchw), "float32", nchw)
            return
        shift = int(np.min(step.attrs_as(RequantizeAttrs).shift))
        source = self.tensors[step.inputs[0]]
        if max(-source.low, source.high) << max(-shift, 0) > INT32_MAX:
            self.far.add(step.output)
        super()._requantize(step)

    def settled(self, source: str, name: str, value: str, nchw: bool) -> str:
        # Every op between a dequantizer and a quantizer, as runtimes expect it. If one is missing,
        # ONNX Runtime adds it, with an error in opset 21.
        tensor = self.tensors[name]
        if value in self.dequantized or self.dequantized.isdisjoint(self.held[source].values()):
            return value
        return self.on_grid(value, name, self.narrowest(name, tensor.low, tensor.high), nchw)

    def on_grid(self, value: str, name: str, dtype: str, nchw: bool) -> str:
        grid, axis = self._grid(name, dtype, self._channel_axis(name, nchw))
        codes = self.model.add("QuantizeLinear", [value, *grid], f"{name}/codes", **axis)
        made = self.model.add("DequantizeLinear", [codes, *grid], name, **axis)
        self.dequantized.add(made)
        if dtype in ("int8", "uint8"):
            self.bytes.add(made)
        return made

    def _channel_axis(self, name: str, nchw: bool) -> int:
        return 1 if nchw else len(self.tensors[name].shape) - 1

    def _grid(self, name: str, dtype: str, axis: int) -> tuple[list[str], dict[str, AttrValue]]:
        """Scale and zero point of a tensor, along `axis` if they are per channel.

        They are not shared: ONNX Runtime may rewrite those of one tensor, and then of all.
        """
        exponent = self.tensors[name].exponent
        shape = np.shape(exponent)
        names = [self.scale(exponent, name)]
        if dtype in ("int16", "uint16"):
            self.model.opset = 21
        if dtype != "int32":  # int32 has no zero point
            names.append(self.model.constant(np.zeros(shape, dtype), f"{name}/zero", own=True))
        return names, {"axis": axis} if shape else {}

    def values_of(self, name: str, codes: Array, dtype: str, axis: int) -> str:
        key = (name, dtype, axis, codes.shape, codes.tobytes())
        if key not in self._constants:
            grid, attrs = self._grid(name, dtype, axis)
            held = self.model.constant(codes.astype(dtype), f"{name}/codes", own=True)
            self._constants[key] = self.model.add("DequantizeLinear", [held, *grid], name, **attrs)
        return self._constants[key]

    def constant(self, name: str, dtype: str, nchw: bool = False) -> str:
        if dtype == "float64":
            return self.cast(self.constant(name, "float32", nchw), dtype, f"{name}/wide")
        codes, tensor = self.program.constants[name], self.tensors[name]
        codes = turned(codes) if nchw else codes
        kind = self.type_of_constant(tensor)
        return self.values_of(name, codes, kind, 1 if nchw else codes.ndim - 1)

    def type_of_constant(self, tensor: Tensor) -> str:
        """The type of the codes of a constant, other than weights of layers."""
        return tensor.storage if tensor.storage in self.types else "int32"

    def weighted(self, value: str, weights: str) -> str:
        # ONNX Runtime would make an integer layer of float weights too, after rounding them to 8
        # bits.
        held = weights in self.program.constants and value in self.dequantized
        apart = held and self.tensors[weights].storage not in self.types
        return self.apart(value, weights) if apart else value

    def weights(self, name: str, codes: Array, axis: int, x: str | None) -> str:
        tensor = self.tensors[name]
        product = axis == codes.ndim - 1  # filters of convolutions have their channels first
        if x not in (self.bytes if product else self.dequantized):
            # With dequantized weights of 4 or 8 bits, ONNX Runtime multiplies float values with
            # less precision; with 16 bits, it does so for matrices. With 8-bit constants as the
            # first operand, its sums of two products saturate at 16 bits on x86 without VNNI.
            return self.model.constant(self.weight_values(name, codes, axis), name)
        if not product and INT4[0] <= tensor.low and tensor.high <= INT4[1]:
            return self._int4(name, codes, axis)
        return self.values_of(name, codes, tensor.storage, axis)

    def _int4(self, name: str, codes: Array, axis: int) -> str:
        exponent = self.tensors[name].exponent
        shape = np.shape(exponent)
        self.model.opset = 21
        numbers = [int(c) for c in codes.reshape(-1)]
        zeros = [0] * int(np.prod(shape, dtype=int))
        held = [
            self.model.raw_constant(helper.make_tensor(stem, TensorProto.INT4, dims, values))
            for stem, dims, values in (
                (f"{name}/codes", codes.shape, numbers),
                ("int4/zero", shape, zeros),
            )
        ]
        inputs = [held[0], self.scale(exponent, name), held[1]]
        attrs: dict[str, AttrValue] = {"axis": axis} if shape else {}
        return self.model.add("DequantizeLinear", inputs, name, **attrs)

    def bias(self, name: str) -> str:
        return self.values_of(name, self.program.constants[name].reshape(-1), "int32", 0)

    def table(self, step: Step, index: str) -> str:
        name = step.inputs[1]
        dtype = self.narrowest(step.output, self.tensors[name].low, self.tensors[name].high)
        entries = self.model.constant(self.program.constants[name].astype(dtype), name)
        codes = self.model.add("Gather", [entries, index], f"{step.output}/codes")
        return self._dequantized(step.output, codes, self._grid(name, dtype, 0))

    def from_codes(self, name: str, codes: str, nchw: bool = False) -> str:
        dtype = self.narrowest(name, self.tensors[name].low, self.tensors[name].high)
        grid = self._grid(name, dtype, self._channel_axis(name, nchw))
        return self._dequantized(name, self.cast(codes, dtype, f"{name}/codes"), grid)

    def _dequantized(
        self, name: str, codes: str, grid: tuple[list[str], dict[str, AttrValue]]
    ) -> str:
        inputs, attrs = grid
        made = self.model.add("DequantizeLinear", [codes, *inputs], name, **attrs)
        self.dequantized.add(made)
        return made

    def narrowest(self, name: str, low: int, high: int) -> str:
        """The smallest type of QuantizeLinear for these codes. Raises UnsupportedError."""
        for dtype in self.types:
            if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
                return dtype
        raise UnsupportedError(
            f"its codes are {low}..{high}, but QuantizeLinear has 16 bits", node=name,
            hint="use another format",
        )  # fmt: skip

    lowerings = value_lowerings("backends/onnx/qdq", form, requantize=_requantize)
