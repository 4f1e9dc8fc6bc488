"""A program as operators of TFLite on int8 or int16 tensors.

An operator computes sums and requantizes them at once. Steps up to a requantization are therefore
collected first, as a `PendingLayer`; `layers`, `elementwise` and `moves` write the operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from qgraph.backends.pending_layers import LayerOutput, PendingLayer
from qgraph.backends.tflite import moves
from qgraph.backends.tflite.arithmetic import TfliteArithmetic, rounds_alike
from qgraph.backends.tflite.elementwise import (
    converted,
    write_binary,
    write_codes,
    write_scaled,
    write_table,
)
from qgraph.backends.tflite.embeddings import write_index, write_rows
from qgraph.backends.tflite.int32_operators import write_softmax, write_standardize
from qgraph.backends.tflite.layers import DEPTHWISE, write_matmul, write_window
from qgraph.backends.tflite.model_builder import QuantizedScale, TfliteModelBuilder
from qgraph.backends.tflite.writer import ANOTHER_PROFILE, TensorWriter
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Array, Overflow
from qgraph.ops.lowerings import Lowerings
from qgraph.program import Program, Step
from qgraph.program.ops import OPS, LookupAttrs, RequantizeAttrs

LAYERS = ("conv2d", DEPTHWISE, "matmul")
WRITTEN_AS = {"conv2d": write_window, DEPTHWISE: write_window, "matmul": write_matmul}


class TfliteEmission(TensorWriter):
    """Writes the steps of a program; `pending` has tensors that are not written yet.

    waiting: functions that write entries, called when these are needed.
    """

    def __init__(
        self, program: Program, arithmetic: TfliteArithmetic, builder: TfliteModelBuilder
    ) -> None:
        super().__init__(program, arithmetic, builder)
        self.pending: dict[str, PendingLayer] = {}
        self.waiting: dict[str, Callable[[], None]] = {}

    def emit_steps(self) -> None:
        for step in self.program.steps:
            for name in step.inputs:
                self.enter(name)
            of_index = step.output in self.indices
            lower = write_index if of_index else self.lowerings.of(step.op, step.output)
            lower(self, step)

    def enter(self, name: str) -> None:
        """Write an entry, if it is one that waits."""
        write = self.waiting.pop(name, None)
        if write is not None:
            write()

    # -- tensors -----------------------------------------------------------------------------

    def get(self, name: str) -> int:
        """The number of a tensor of codes; it is written now if it is pending."""
        self.enter(name)
        if name not in self.held and name in self.program.constants:
            self.held[name] = self.constant_like(name, name)
        elif name not in self.held:
            zero = self.zero(name)  # codes that do not fit are refused under their own name
            low, high = (end - zero for end in self.stored.ends)
            attrs = RequantizeAttrs(0, self.arithmetic.layers, Overflow.SATURATE, low, high)
            self._write(LayerOutput.of(self.pending[name], name, attrs))
        return self.held[name]

    def constant_like(self, name: str, like: str) -> int:
        """A constant stored with the zero point of another tensor."""
        self.scale_of(name)
        scale = QuantizedScale(self.exponent(name), self.zero(like))
        return self.model.constant(
            name, self.as_stored(self.constant_codes(name) + scale.zero), scale
        )

    def get_like(self, name: str, like: str) -> int:
        """A tensor, stored with the zero point of another; codes that do not fit saturate."""
        if name in self.program.constants:
            return self.constant_like(name, like)
        return converted(self, self.get(name), name, like)

    def as_pending(self, name: str) -> PendingLayer:
        return self.pending.get(name) or PendingLayer(name)

    def _write(self, out: LayerOutput) -> None:
        step = out.pending.layer
        if step is None:
            write_codes(self, out, self.get(out.pending.sums))
        elif step.op in WRITTEN_AS:
            WRITTEN_AS[step.op](self, out, self.get(step.inputs[0]))
        elif step.op == "mul" and out.pending.bias is not None:
            write_scaled(self, out, self.get(step.inputs[0]))
        elif (biased := self._rounded_like_layers(out, step)) is not None:
            write_codes(self, biased, self.get(biased.pending.sums))
        else:
            write_binary(self, out, [self.get(name) for name in step.inputs])

    def _rounded_like_layers(self, out: LayerOutput, step: Step) -> LayerOutput | None:
        """The output with its constant as a bias, if executors round ADD in another way."""
        shifts = {int(s) for s in np.atleast_1d(np.asarray(out.shift))}
        bias = self._bias(step, fitting=True) if step.op in ("add", "sub") else None
        if bias is None or rounds_alike(out.rounding, self.arithmetic.additions, shifts):
            return None
        name, codes = bias
        return replace(out, pending=replace(self.as_pending(name), bias=codes))

    # -- steps -------------------------------------------------------------------------------

    def _layer(self, step: Step) -> None:
        if step.inputs[1] not in self.program.constants:
            raise UnsupportedError(
                "its weights are computed, but TFLite needs constant weights in int8",
                node=step.output,
                hint="use another format",
            )
        self.pending[step.output] = PendingLayer(step.output, step)

    def _binary(self, step: Step) -> None:
        bias = self._bias(step)
        if bias is None:
            self.pending[step.output] = PendingLayer(step.output, step)
        else:
            name, codes = bias
            pending = self.as_pending(name)
            before = 0 if pending.bias is None else pending.bias
            sums = step.output if pending.layer else pending.sums
            self.pending[step.output] = replace(pending, sums=sums, bias=before + codes)

    def _bias(self, step: Step, fitting: bool = False) -> tuple[str, Array] | None:
        """The layer and the codes that a sum adds to each of its channels, if it is a bias.

        fitting: whether a tensor may have a bias that a constant tensor could hold.
        """
        constants = [v for v in step.inputs if v in self.program.constants]
        if len(constants) != 1 or (step.op == "sub" and constants[0] != step.inputs[1]):
            return None
        (name,) = (v for v in step.inputs if v not in constants)
        codes, shape = self.constant_codes(constants[0]), self.tensors[step.output].shape
        flat = codes.size == 1 or (codes.size == shape[-1] and codes.shape[-1:] == shape[-1:])
        pending = self.as_pending(name)
        layer = pending.layer is not None and (
            pending.layer.op in LAYERS or self._scales_channels(pending.layer)
        )
        fits = self.stored.fit(int(codes.min(initial=0)), int(codes.max(initial=0)))
        held = pending.layer is None and (fitting or not fits)
        open_sums = pending.factors is None and not pending.limited
        if not (flat and open_sums and (layer or held) and self.tensors[name].shape == shape):
            return None
        codes = np.broadcast_to(codes.reshape(-1), shape[-1:])
        return name, -codes if step.op == "sub" else codes

    def _scales_channels(self, step: Step) -> bool:
        """Whether it multiplies codes with a constant, one or one for each channel."""
        factors, shape = self.codes(step.inputs[-1]), self.tensors[step.output].shape
        return (
            step.op == "mul"
            and factors is not None
            and self.tensors[step.inputs[0]].shape == shape
            and factors.shape in ((), (1,), shape[-1:], (*(1,) * (len(shape) - 1), shape[-1]))
        )

    def _mul(self, step: Step) -> None:
        a, b = step.inputs
        name, other = (b, a) if a in self.program.constants else (a, b)
        step = Step(step.op, (name, other), step.output)
        pending, factors = self.as_pending(name), self.codes(other)
        image = self.tensors[step.output].shape
        if (
            factors is not None
            and pending.layer is not None
            and pending.layer.op == DEPTHWISE
            and pending.bias is None
            and pending.factors is None
            and not pending.limited
            and factors.shape in ((1, *image[1:3], 1), ())
        ):
            held = np.broadcast_to(factors, (1, *image[1:3], 1))
            self.pending[step.output] = replace(pending, sums=step.output, factors=held)
        else:
            self.pending[step.output] = PendingLayer(step.output, step)

    def _product(self, step: Step) -> None:
        self.pending[step.output] = PendingLayer(step.output, step)

    def _clip(self, step: Step) -> None:
        self.pending[step.output] = self.as_pending(step.inputs[0]).clipped(step)

    def _requantize(self, step: Step) -> None:
        attrs = step.attrs_as(RequantizeAttrs)
        if attrs.wraps:
            raise UnsupportedError(
                "wraps around, but TFLite only saturates", node=step.output, hint=ANOTHER_PROFILE
            )
        self._write(LayerOutput.of(self.as_pending(step.inputs[0]), step.output, attrs))

    def _lookup(self, step: Step) -> None:
        x, table = step.inputs
        offset = step.attrs_as(LookupAttrs).offset
        codes = self.constant_codes(table)
        self.held[step.output] = write_table(self, step, self.get(x), codes, offset)

    def _abs(self, step: Step) -> None:
        tensor, made = self.tensors[step.inputs[0]], self.tensors[step.output]
        if tensor.name in self.pending and not self.stored.fit(tensor.low, tensor.high):
            raise UnsupportedError(
                f"is an absolute value of sums, which TFLite has in {self.stored.bits} bits only",
                node=step.output,
                hint="use another format",
            )
        if not self.stored.fit(0, made.high):
            raise UnsupportedError(
                f"is an absolute value up to {made.high:,}, but {self.stored.type} ends at "
                f"{self.stored.high:,}",
                node=step.output,
                hint="use another format",
            )
        value, codes = self.get(step.inputs[0]), np.arange(tensor.low, tensor.high + 1)
        self.held[step.output] = write_table(self, step, value, np.abs(codes), tensor.low)

    def _softmax(self, step: Step) -> None:
        self.held[step.output] = write_softmax(self, step, self.get(step.inputs[0]))

    def _standardize(self, step: Step) -> None:
        self.held[step.output] = write_standardize(self, step, self.get(step.inputs[0]))

    lowerings: ClassVar[Lowerings[TfliteLower]] = Lowerings(
        "backends/tflite",
        OPS,
        {
            **dict.fromkeys(LAYERS, _layer),
            "add": _binary,
            "sub": _binary,
            "mul": _mul,
            "batch_matmul": _product,
            "clip": _clip,
            "requantize": _requantize,
            "lookup": _lookup,
            "abs": _abs,
            "embedding": write_rows,
            "softmax": _softmax,
            "standardize": _standardize,
            **moves.LOWERINGS,
        },
    )


TfliteLower = Callable[[TfliteEmission, Step], None]
