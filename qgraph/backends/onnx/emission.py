"""A program as ONNX nodes: the common part of integer and float forms.

Programs use NHWC, ONNX's windows NCHW: a tensor of rank 4 is computed in one layout and transposed
once if a node needs the other. Weights are transposed when they are written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx

from qgraph.backends.onnx.builder import OnnxModelBuilder, element_type
from qgraph.backends.onnx.layouts import axis_in, turned
from qgraph.errors import UnsupportedError
from qgraph.foreign import AttrValue
from qgraph.ir.types import Array
from qgraph.names import Namespace
from qgraph.ops.lowerings import Lowerings
from qgraph.ops.movement import TO_NCHW, TO_NHWC
from qgraph.program import Program, Step, Tensor
from qgraph.program.ops import (
    ClipAttrs,
    ConcatAttrs,
    Conv2dAttrs,
    MaxPoolAttrs,
    PadAttrs,
    ReduceMaxAttrs,
    ReshapeAttrs,
    SliceAttrs,
    TakeAttrs,
    TransposeAttrs,
    WindowAttrs,
)

END = np.iinfo(np.int64)
Lower = Callable[[Any, Step], None]  # of an emission
NO_NAMES: Mapping[str, str] = MappingProxyType({})


def float_inputs(program: Program) -> dict[str, str]:
    """The float values that become codes, by entry. One that is quantized twice has two names."""
    sources = [e.source for e in program.entries]
    return {
        e.tensor: e.source if sources.count(e.source) == 1 else f"{e.tensor}/float"
        for e in program.entries
    }


class ProgramEmission(ABC):
    """Writes a program's steps; `lowerings` has a method for each op.

    `publics`: the user's names of exits, if they have any. `held`: for each tensor, the ONNX values
    that contain it, by (dtype, is it NCHW?); the first is the result of its step.
    """

    form: ClassVar[str]
    opset: ClassVar[int]
    holds: ClassVar[str]  # `codes` or `values`
    lowerings: ClassVar[Lowerings[Lower]]

    def __init__(
        self,
        program: Program,
        publics: Mapping[str, str] = NO_NAMES,
        reserved: Collection[str] = (),
    ) -> None:
        self.program = program
        self.tensors = program.tensors
        self.inputs = self.inputs_of_model()
        self.outputs = self._outputs_of_model(publics, reserved)
        taken = (*self.outputs.values(), *self.inputs.values(), *reserved)
        self.model = OnnxModelBuilder(program.name, self.opset, taken)
        self.held: dict[str, dict[tuple[str, bool], str]] = {}

    def _outputs_of_model(
        self, publics: Mapping[str, str], reserved: Collection[str]
    ) -> dict[str, str]:
        """Names of the model's outputs, by exit; those of the user if there are any."""
        own = {publics[name] for name in self.program.exits if name in publics}
        names = Namespace(taken={*self.inputs.values(), *reserved} - own | {*self.inputs.values()})
        known = [name for name in self.program.exits if name in publics]
        found = {
            name: names.fresh(publics.get(name, name))
            for name in dict.fromkeys([*known, *self.program.exits])
        }
        return {name: found[name] for name in self.program.exits}

    # -- what a form defines -----------------------------------------------------------------

    def inputs_of_model(self) -> dict[str, str]:
        """Names of the model's inputs, by entry."""
        return {e.tensor: e.tensor for e in self.program.entries}

    @abstractmethod
    def working(self, *names: str) -> str:
        """The type of arithmetic on these tensors."""

    @abstractmethod
    def units(self, tensor: Tensor, codes: Array, dtype: str) -> Array:
        """Codes of a tensor as numbers of the type of the computation."""

    @abstractmethod
    def enter(self) -> None:
        """Add the model's inputs, and the values of entries."""

    @abstractmethod
    def leave(self) -> dict[str, dict[str, AttrValue]]:
        """Add outputs of the model; returns their metadata by tensor name."""

    # -- the whole ---------------------------------------------------------------------------

    def emit(self) -> onnx.ModelProto:
        """The checked model. Raises UnsupportedError that names what the form does not support."""
        self.enter()
        for step in self.program.steps:
            self.lowerings.of(step.op, step.output)(self, step)
        exits = self.leave()
        return self.model.model(
            {
                "form": self.form,
                "holds": self.holds,
                "batch_free": self.program.batch_free,
                "entries": {
                    e.tensor: {
                        **self.described(e.tensor),
                        "input": self.inputs[e.tensor],
                        "source": e.source,
                        "bits": e.spec.bits,
                        "signed": e.spec.signed,
                        "rounding": e.spec.rounding,
                        "overflow": e.spec.overflow,
                    }
                    for e in self.program.entries
                },
                "exits": exits,
                "tensors": {name: self._shown(name) for name in self.held},
            }
        )

    def described(self, name: str) -> dict[str, AttrValue]:
        """Meaning of its codes: `value = code * 2^-exponent`, codes in `low..high`."""
        tensor = self.tensors[name]
        return {
            "exponent": tensor.exponent,
            "low": tensor.low,
            "high": tensor.high,
            "dtype": tensor.storage,
        }

    def _shown(self, name: str) -> dict[str, AttrValue]:
        (_, nchw), value = next(iter(self.held[name].items()))
        return {
            "value": value,
            "layout": "NCHW" if nchw else "NHWC",
            "exponent": self.tensors[name].exponent,
        }

    def shape(self, name: str) -> tuple[int | str, ...]:
        """The shape of a tensor as inputs and outputs declare it."""
        shape = self.tensors[name].shape
        return ("N", *shape[1:]) if self.program.batch_free else shape

    # -- tensors -----------------------------------------------------------------------------

    def put(self, name: str, value: str, dtype: str, nchw: bool = False) -> None:
        self.held.setdefault(name, {})[dtype, nchw] = value

    def get(self, name: str, dtype: str, nchw: bool = False) -> str:
        """The value that contains a tensor, cast and transposed if needed."""
        if name in self.program.constants:
            return self.constant(name, dtype, nchw)
        held = self.held[name]
        if (dtype, nchw) not in held:
            other = next((v for (_, turned), v in held.items() if turned == nchw), None)
            if (dtype, not nchw) in held or other is None:
                perm = TO_NCHW if nchw else TO_NHWC
                whole = self.get(name, dtype, not nchw)
                stem = f"{name}/{'NCHW' if nchw else 'NHWC'}"
                made = self.model.add("Transpose", [whole], stem, perm=perm)
                held[dtype, nchw] = self.settled(name, name, made, nchw)
            else:
                held[dtype, nchw] = self.cast(other, dtype, f"{name}/{dtype}")
        return held[dtype, nchw]

    def constant(self, name: str, dtype: str, nchw: bool = False) -> str:
        codes = self.units(self.tensors[name], self.program.constants[name], dtype)
        return self.model.constant(turned(codes) if nchw else codes, name)

    def cast(self, value: str, dtype: str, stem: str) -> str:
        return self.model.add("Cast", [value], stem, to=element_type(dtype))

    def made_as(self, name: str) -> tuple[str, bool]:
        """Type and layout of the result of a tensor's step."""
        return next(iter(self.held[name]))

    def numbers(self, name: str, codes: npt.ArrayLike, dtype: str, nchw: bool, stem: str) -> str:
        """A constant of codes of a tensor: one number, or one for each channel."""
        array = self.units(self.tensors[name], np.asarray(codes), dtype)
        return self.model.constant(array.reshape(-1, 1, 1) if nchw and array.ndim else array, stem)

    def put_moved(self, step: Step, value: str, dtype: str, nchw: bool = False) -> None:
        """Like `put`, for a step that does not change values."""
        source = next(v for v in step.inputs if v not in self.program.constants)
        value = self.settled(source, step.output, value, nchw)
        self.put(step.output, value, dtype, nchw)

    def settled(self, source: str, name: str, value: str, nchw: bool) -> str:
        """The name of a tensor that another tensor was only moved to."""
        return value

    # -- elementwise -------------------------------------------------------------------------

    def _binary(self, step: Step, op: str) -> None:
        dtype = self.working(*step.inputs, step.output)
        nchw = self.is_nchw(step)
        a, b = (self.get(v, dtype, nchw) for v in step.inputs)
        self.put(step.output, self.operate(op, a, b, dtype, step.output), dtype, nchw)

    def is_nchw(self, step: Step) -> bool:
        """Whether an op of two operands is computed in NCHW."""
        varying = [v for v in step.inputs if v not in self.program.constants]
        images = all(len(self.tensors[v].shape) == 4 for v in (*varying, step.output))
        return images and any(self.made_as(v)[1] for v in varying)

    def operate(self, op: str, a: str, b: str, dtype: str, stem: str) -> str:
        """A node of two inputs of one type."""
        return self.model.add(op, [a, b], stem)

    def _unary(self, step: Step, op: str) -> None:
        (name,), (_, nchw) = step.inputs, self.made_as(step.inputs[0])
        dtype = self.working(name, step.output)
        value = self.model.add(op, [self.get(name, dtype, nchw)], step.output)
        self.put(step.output, value, dtype, nchw)

    def _clip(self, step: Step) -> None:
        (name,), attrs = step.inputs, step.attrs_as(ClipAttrs)
        tensor, (_, nchw) = self.tensors[name], self.made_as(name)
        dtype = self.working(name, step.output)
        value = self.get(name, dtype, nchw)
        # A limit that codes cannot reach has no effect, and may not fit the type.
        low = np.asarray(tensor.low if attrs.low is None else np.maximum(attrs.low, tensor.low))
        if (low > tensor.low).any():
            value = self._limited("Max", value, step, low, dtype, nchw)
        if attrs.high is not None:
            highest = np.maximum(low, tensor.high)
            high = np.minimum(attrs.high, highest)
            if (high < highest).any():
                value = self._limited("Min", value, step, high, dtype, nchw)
        self.put(step.output, value, dtype, nchw)

    def _limited(
        self, op: str, value: str, step: Step, bound: npt.ArrayLike, dtype: str, nchw: bool
    ) -> str:
        edge = self.numbers(step.output, bound, dtype, nchw, f"{step.output}/limit")
        return self.operate(op, value, edge, dtype, step.output)

    # -- moves -------------------------------------------------------------------------------

    def _moved(self, step: Step) -> tuple[str, str, bool]:
        (name,) = step.inputs
        dtype, nchw = self.made_as(name)
        return self.get(name, dtype, nchw), dtype, nchw

    def _reshape(self, step: Step) -> None:
        (name,) = step.inputs
        dtype, _ = self.made_as(name)
        shape = list(step.attrs_as(ReshapeAttrs).shape)
        if self.program.batch_free:
            shape[0] = 0  # the size of the input
        sizes = self.model.constant(np.array(shape, np.int64), f"{step.output}/shape")
        value = self.model.add("Reshape", [self.get(name, dtype), sizes], step.output)
        self.put_moved(step, value, dtype)

    def _transpose(self, step: Step) -> None:
        (name,) = step.inputs
        dtype, _ = self.made_as(name)
        value = self.get(name, dtype)
        value = self.model.add(
            "Transpose", [value], step.output, perm=step.attrs_as(TransposeAttrs).perm
        )
        self.put_moved(step, value, dtype)

    def _slice(self, step: Step) -> None:
        value, dtype, nchw = self._moved(step)
        attrs = step.attrs_as(SliceAttrs)
        parts = zip(attrs.begin, attrs.end, attrs.strides, strict=True)
        cuts = [
            (b, (END.max if s > 0 else END.min) if e is None else e, axis_in(axis, nchw), s)
            for axis, (b, e, s) in enumerate(parts)
            if (b, e, s) != (0, None, 1)
        ]
        if cuts:
            columns = [np.array(column, np.int64) for column in zip(*cuts, strict=True)]
            names = [self.model.constant(c, f"{step.output}/cut") for c in columns]
            value = self.model.add("Slice", [value, *names], step.output)
        self.put_moved(step, value, dtype, nchw)

    def _concat(self, step: Step) -> None:
        varying = [v for v in step.inputs if v not in self.program.constants]
        made = {self.made_as(v) for v in varying}
        nchw = any(turned for _, turned in made)
        dtype = self.joined_as(step)
        inputs = [self.get(v, dtype, nchw) for v in step.inputs]
        axis = axis_in(step.attrs_as(ConcatAttrs).axis, nchw)
        value = self.model.add("Concat", inputs, step.output, axis=axis)
        self.put_moved(step, value, dtype, nchw)

    def joined_as(self, step: Step) -> str:
        """The type in which tensors are joined."""
        varying = [v for v in step.inputs if v not in self.program.constants]
        types = {self.made_as(v)[0] for v in varying}
        same = len(types) == 1 and len(varying) == len(step.inputs)
        return types.pop() if same else self.working(*step.inputs)

    def _pad(self, step: Step) -> None:
        (name,) = step.inputs
        nchw, dtype = self.made_as(name)[1], self.padded_as(step)
        pads = np.array(step.attrs_as(PadAttrs).paddings, np.int64)
        pads = (pads[list(TO_NCHW)] if nchw else pads).T.reshape(-1)
        inputs = [self.get(name, dtype, nchw), self.model.constant(pads, f"{step.output}/pads")]
        users = [s for s in self.program.steps if step.output in s.inputs]
        pooled = not all(isinstance(user.attrs, WindowAttrs) for user in users)
        value = self.padded(step, inputs, dtype, pooled=pooled)
        self.put_moved(step, value, dtype, nchw)

    def padded_as(self, step: Step) -> str:
        """The type in which zeros are added around a tensor."""
        return self.working(*step.inputs)

    @abstractmethod
    def padded(self, step: Step, inputs: list[str], dtype: str, pooled: bool) -> str:
        """A Pad with zeros that ONNX Runtime does not change.

        ONNX Runtime merges a Pad into a later MaxPool, whose padding is the smallest value, not
        zero; `pooled`: whether a MaxPool may follow.
        """

    def _take(self, step: Step) -> None:
        value, dtype, nchw = self._moved(step)
        attrs = step.attrs_as(TakeAttrs)
        indices = np.array(attrs.indices, np.int64)
        inputs = [value, self.model.constant(indices, f"{step.output}/indices")]
        axis = axis_in(attrs.axis, nchw)
        value = self.model.add("Gather", inputs, step.output, axis=axis)
        self.put_moved(step, value, dtype, nchw)

    def _reduce_max(self, step: Step) -> None:
        (name,), attrs = step.inputs, step.attrs_as(ReduceMaxAttrs)
        axes, keepdims = attrs.axes, attrs.keepdims
        dtype = self.working(name)
        # Without its height and width a tensor is the same in both layouts.
        nchw = self.made_as(name)[1] and (keepdims or tuple(axes) == (1, 2))
        if not axes:  # ReduceMax without axes would reduce all of them
            return self.put_moved(step, self.get(name, dtype, nchw), dtype, nchw)
        where = np.array([axis_in(a, nchw) for a in axes], np.int64)
        inputs = [self.get(name, dtype, nchw), self.model.constant(where, f"{step.output}/axes")]
        value = self.model.add("ReduceMax", inputs, step.output, keepdims=int(keepdims))
        self.put_moved(step, value, dtype, nchw and keepdims)

    # -- windows -----------------------------------------------------------------------------

    def filters(self, step: Step, codes: Array) -> tuple[Array, int]:
        """Filters in ONNX's layout, [outputs, inputs/groups, height, width], and the groups."""
        if isinstance(step.attrs, Conv2dAttrs):
            return codes.transpose(3, 2, 0, 1), step.attrs.groups
        kh, kw, channels, multiplier = codes.shape
        flat = codes.reshape(kh, kw, 1, channels * multiplier)
        return flat.transpose(3, 2, 0, 1), channels

    def convolution(self, step: Step, groups: int) -> dict[str, AttrValue]:
        """The attributes of a Conv."""
        attrs = step.attrs_as(WindowAttrs)
        return {**_window(attrs), "dilations": attrs.dilations, "group": groups}

    def pool(self, attrs: MaxPoolAttrs) -> dict[str, AttrValue]:
        """The attributes of a MaxPool."""
        return {**_window(attrs), "kernel_shape": attrs.ksize}

    def constant_weights(self, step: Step) -> Array:
        weights = step.inputs[1]
        if weights not in self.program.constants:
            raise UnsupportedError(
                "its filter is computed; ONNX's integer convolutions need a constant one",
                node=step.output,
            )
        return self.program.constants[weights]


def _window(attrs: WindowAttrs | MaxPoolAttrs) -> dict[str, AttrValue]:
    (top, bottom), (left, right) = attrs.pads
    return {"strides": attrs.strides, "pads": (top, left, bottom, right)}
